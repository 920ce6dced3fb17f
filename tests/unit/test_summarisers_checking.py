"""What is a summary of some passages, and what is none."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from engramlog.engine.summarisers import Passage, Summary, SummaryRefused, checked
from engramlog.engine.summarisers.extractive import Extractive
from engramlog.engine.summarisers.languages import dominant_language

GOOD = Summary(
    text="Ann adopted a puppy and moves to Portland in July.",
    facts=("Ann has a puppy.",),
    preferences=(),
    decisions=(),
    open_tasks=(),
    language="en",
    topic="puppy",
    importance=0.7,
    model="m",
    prompt="summary.v1",
)


def passages(*texts: str) -> list[Passage]:
    day = datetime(2023, 5, 8, tzinfo=UTC)
    return [Passage(str(at), "Ann", "user", text, day, None, "turn") for at, text in enumerate(texts)]


ENGLISH = passages(
    "I adopted a puppy from the shelter last week and he is lovely.",
    "We have decided to move to Portland in July because of the new job, and I am very happy about it.",
)
CHINESE = passages(
    "我上周从收容所领养了一只小狗，它非常可爱，我每天都带它去公园散步。",
    "我们决定七月搬到上海，因为我在那里找到了新的工作。",
)


def code_of(text: str, talk: list[Passage], **changes: object) -> str | None:
    try:
        checked(replace(GOOD, text=text, **changes), talk)
    except SummaryRefused as refused:
        return refused.code
    return None


def test_a_good_one_is_accepted() -> None:
    checked(GOOD, ENGLISH)
    checked(replace(GOOD, text="用户领养了一只小狗，七月搬到上海。"), CHINESE)


@pytest.mark.parametrize(
    ("text", "talk", "code"),
    [
        ("", ENGLISH, "empty"),
        (" \n ", CHINESE, "empty"),
        ("Ann adopted a puppy. " * 30, ENGLISH, "too_long"),
        ("她领养了一只小狗。" * 30, CHINESE, "too_long"),
        ("The user adopted a puppy and will move to Shanghai.", CHINESE, "wrong_language"),
        ("用户领养了一只小狗，七月搬到波特兰。", ENGLISH, "wrong_language"),
        ("L'utilisatrice a adopté un chiot et elle est dans une nouvelle ville.", ENGLISH, "wrong_language"),
        ("I'm sorry, but I can't assist with that request.", ENGLISH, "refused"),
        ("As an AI language model, I cannot summarize this conversation.", ENGLISH, "refused"),
        ("很抱歉，我无法提供这段对话的总结。", CHINESE, "refused"),
        ("作为一个人工智能，我不能处理这些内容。", CHINESE, "refused"),
    ],
)
def test_what_is_no_summary_is_refused_with_the_reason(text: str, talk: list[Passage], code: str) -> None:
    assert code_of(text, talk) == code


def test_a_talk_in_two_languages_may_be_summarised_in_either() -> None:
    both = passages(
        "我喜欢吃海鲜 👋 and I planted tomatoes on the balcony, because the summer is hot.",
        "大连的海鲜最新鲜，我们下周去。 And the tomatoes are ripe by then, I hope.",
    )
    assert code_of("用户喜欢吃海鲜，下周去大连。", both) is None
    assert code_of("The user planted tomatoes on the balcony.", both) is None
    assert code_of("L'utilisatrice a planté des tomates et elle est dans la ville.", both) == "wrong_language"
    some_words = [*CHINESE, *passages("我用 Python 写代码，the best one。")]
    assert code_of("The user adopted a puppy and will move to Shanghai.", some_words) == "wrong_language"


async def test_the_extractive_summary_of_a_talk_in_two_languages_is_one() -> None:
    """Whichever language its sentences happen to be in."""
    talk = passages(*("The meeting moved to Thursday at 14:30; 请把报告发给李雪 👋. " * 4 for _ in range(12)))
    for max_tokens in (30, 60, 200):
        checked(await Extractive().summarise(talk, max_tokens=max_tokens, previous=None), talk)


def test_a_talk_about_refusing_may_be_summarised() -> None:
    assert code_of("Ann: I'm sorry, I can't come to the content meeting.", ENGLISH) is None
    assert code_of("Ann is sorry that she cannot come. Bob moves to Portland.", ENGLISH) is None


def test_numbers_and_lists_must_fit() -> None:
    assert code_of(GOOD.text, ENGLISH, importance=1.5) == "invalid"
    assert code_of(GOOD.text, ENGLISH, importance=float("nan")) == "invalid"
    assert code_of(GOOD.text, ENGLISH, facts=("",)) == "invalid"
    assert code_of("a" * 100_001, passages("a" * 200_000)) == "invalid"


def test_a_text_whose_language_cannot_be_told_is_let_through() -> None:
    assert code_of("Puppy: Biscuit. Portland: 12.07.", ENGLISH) is None
    assert code_of("8 x 7 = 56", passages("12345 67890 12345 67890")) is None


def test_the_language_of_a_talk_is_the_one_in_which_most_is_said() -> None:
    assert dominant_language(["我喜欢猫，也喜欢狗。", "ok", "今天天气很好。"]) == "zh"
    assert dominant_language(["你好", "I went to the market and it was great."]) == "en"
    assert dominant_language(["大连 hotel 的海鲜很好吃，我们明天再去一次"]) == "zh"
    assert dominant_language(["👋", "12345"]) is None
    assert dominant_language([]) is None
