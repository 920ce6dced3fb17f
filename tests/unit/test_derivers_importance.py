"""How much a text is worth keeping, in English and Chinese."""

import pytest

from tests.deriving import understood

WORTH_KEEPING = [
    "My name is Farid and I was born in Tabriz in 1988.",
    "I'm allergic to peanuts, so I always carry an EpiPen.",
    "We decided to move the database to PostgreSQL next month.",
    "From now on, always answer me in French.",
    "No, the meeting is on Thursday, not on Tuesday.",
    "My daughter starts school in September.",
    "I just quit my job at the bank and joined a small bakery.",
    "I prefer trains to planes because flying makes me sick.",
    "I'll send you the signed contract by Friday.",
    "我叫林小满，今年二十八岁，住在成都。",
    "我对海鲜过敏，吃了会起疹子。",
    "我们决定下个月把数据库换成 PostgreSQL。",
    "以后请你都用英文回答我。",
    "不对，会议改到周四下午三点了。",
    "我女儿九月份就要上小学了。",
    "上周我从银行辞职了，现在在一家面包店工作。",
    "我不喜欢坐飞机，更喜欢坐火车，因为飞机让我头晕。",
]
NOT_WORTH_KEEPING = [
    "Hi there!",
    "Thanks a lot, that's great!",
    "Wow, sounds amazing!",
    "What do you think?",
    "Talk to you later, take care!",
    "Okay, will do.",
    "👋",
    "",
    "你好！",
    "谢谢你的建议！",
    "太棒了！",
    "你觉得呢？",
    "好的，我会考虑的。",
    "再见，晚安！",
]


@pytest.mark.parametrize("kept", WORTH_KEEPING)
def test_what_is_worth_keeping_weighs_more_than_any_filler(kept: str) -> None:
    assert understood(kept).importance > max(understood(filler).importance for filler in NOT_WORTH_KEEPING)


@pytest.mark.parametrize("kept", WORTH_KEEPING)
def test_what_is_worth_keeping_is_in_the_upper_half(kept: str) -> None:
    assert understood(kept).importance > 0.5


@pytest.mark.parametrize("filler", NOT_WORTH_KEEPING)
def test_filler_is_in_the_lower_third(filler: str) -> None:
    assert understood(filler).importance < 0.34


@pytest.mark.parametrize(
    "advice",
    [
        "You should sleep enough, drink water and go for a walk every day.",
        "你可以多喝水，保持良好的睡眠，每天适当运动，这对身体很有好处。",
    ],
)
def test_an_assistants_general_advice_is_low(advice: str) -> None:
    assert understood(advice, "assistant").importance < 0.2


def test_the_same_words_weigh_less_from_an_assistant() -> None:
    text = "I moved to Lisbon last year."
    assert understood(text, "assistant").importance < understood(text).importance


def test_a_tools_error_weighs_more_than_its_success() -> None:
    failed = understood("pytest: 3 failed, ValueError: no such column", "tool")
    passed = understood("pytest: all tests passed", "tool")
    assert failed.importance > 0.5 > passed.importance


def test_a_question_weighs_less_than_the_statement() -> None:
    assert understood("Do you live in Oslo?").importance < understood("I live in Oslo.").importance
    assert understood("你住在大连吗？").importance < understood("我住在大连。").importance


@pytest.mark.parametrize("kind", ["fact", "preference", "decision", "rule"])
def test_what_the_publisher_calls_a_fact_is_never_low(kind: str) -> None:
    assert understood("ok", kind=kind).importance >= 0.7
    assert understood("ok").importance < 0.7


def test_the_publishers_own_importance_wins() -> None:
    assert understood("My name is Ana.", importance=0.05).importance == 0.05
    assert understood("ok", kind="rule", importance=0.0).importance == 0.0


def test_a_language_without_patterns_stays_near_the_middle() -> None:
    assert 0.25 <= understood("Ich wohne seit drei Jahren in Berlin und habe zwei Katzen.").importance <= 0.75
