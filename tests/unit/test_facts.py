"""What the rules take for a fact, and what not."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engramlog.engine.facts import MAX_FACTS, Fact, facts
from engramlog.engine.facts.sentences import sentences_of
from engramlog.schemas.records import MemoryRecord


def of(text: str, *, role: str = "user", name: str | None = None) -> list[Fact]:
    return facts(MemoryRecord(role=role, role_name=name, content=text), text)


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        ("I prefer dark mode over light mode.", "preference", "User prefers dark mode over light mode."),
        ("Honestly, I can't stand cilantro!", "preference", "User cannot stand cilantro."),
        ("I don't eat meat.", "preference", "User does not eat meat."),
        ("I'm a huge fan of jazz, you know?", "preference", "User is a huge fan of jazz."),
        ("Drawing flowers is one of my faves.", "preference", "Drawing flowers is one of User's faves."),
        ("We decided to use Postgres instead of MySQL.", "decision", "User decided to use Postgres instead of MySQL."),
        ("Let's go with option B.", "decision", "User decides to go with option B."),
        ("I'll take the red one, thanks.", "decision", "User will take the red one."),
        ("I'm moving to Boston in June.", "decision", "User is moving to Boston in June."),
        ("I'm allergic to nuts, so no satay.", "fact", "User is allergic to nuts."),
        ("My name is Anna.", "fact", "User's name is Anna."),
        ("I live in Boston and work as a nurse.", "fact", "User lives in Boston and works as a nurse."),
        ("I have two cats named Tom and Jerry.", "fact", "User has two cats named Tom and Jerry."),
        ("My daughter Sara is 5 years old.", "fact", "User's daughter Sara is 5 years old."),
        ("My birthday is on May 3rd.", "fact", "User's birthday is on May 3rd."),
        ("Please call me Annie.", "rule", "User asks: call them Annie."),
        ("Always answer in French.", "rule", "User asks: always answer in French."),
        ("Please don't use emojis 👋", "rule", "User asks: don't use emojis."),
        ("我最喜欢的颜色是蓝色👋", "preference", "用户最喜欢的颜色是蓝色。"),
        ("其实我不太喜欢吃辣。", "preference", "用户不太喜欢吃辣。"),
        ("我不吃辣", "preference", "用户不吃辣。"),
        ("我对赛车越来越感兴趣了", "preference", "用户对赛车越来越感兴趣了。"),
        ("就用PostgreSQL吧", "decision", "用户就用PostgreSQL。"),
        ("我们决定改成周五发布。", "decision", "用户决定改成周五发布。"),
        ("周末打算和朋友去看电影。", "decision", "用户周末打算和朋友去看电影。"),
        ("我对花生过敏", "fact", "用户对花生过敏。"),
        ("你好，我叫李雪，很高兴认识你。", "fact", "用户的名字是李雪。"),
        ("我住在北京。", "fact", "用户住在北京。"),
        ("我养了两只猫", "fact", "用户养了两只猫。"),
        ("我的生日是5月3日", "fact", "用户的生日是5月3日。"),
        ("我今年28岁", "fact", "用户今年28岁。"),
        ("不对，应该是周三", "fact", "用户更正：应该是周三。"),
        ("以后不要再用表情符号了", "rule", "用户要求以后不要再用表情符号了。"),
        ("请以后用中文回答我。", "rule", "用户要求以后用中文回答自己。"),
        ("你可以叫我小琳吧", "rule", "用户要求叫自己小琳。"),
    ],
)
def test_what_is_stated_plainly_becomes_a_sentence_about_the_user(text: str, kind: str, told: str) -> None:
    found = [(fact.kind, fact.text) for fact in of(text)]
    assert (kind, told) in found


@pytest.mark.parametrize(
    "text",
    [
        "Do I like cats?",
        "I'd love to hear more about it!",
        "I love your idea.",
        "I love it so much",
        "If I liked cats I would have three.",
        "Maybe I should move to Boston.",
        "He said I love pizza.",
        'She told me: "I hate mornings and I am allergic to nuts"',
        "> I prefer tabs",
        "I like cats. Just kidding!",
        "I'm going to check it out, thanks!",
        "I'll keep that in mind.",
        "Have you decided to move?",
        "```\nI prefer dark mode\n```",
        "我喜欢你的想法",
        "我喜欢猫吗？",
        "如果我喜欢猫的话",
        "他说我喜欢猫",
        "我朋友喜欢爬山",
        "我想和你聊聊今天的生活。",
        "谢谢你的建议，我会去试试。",
        "请问你喜欢什么？",
        "我喜欢吃香菜，开玩笑的",
        "👋",
        "",
    ],
)
def test_questions_courtesies_and_the_words_of_others_are_no_facts(text: str) -> None:
    assert of(text) == []


def test_speakers_are_named_by_their_name() -> None:
    assert [fact.text for fact in of("I'm allergic to nuts.", name="Caroline")] == ["Caroline is allergic to nuts."]
    assert [fact.text for fact in of("我喜欢爬山", name="王峰")] == ["王峰喜欢爬山。"]


def test_what_stands_before_a_question_is_stated() -> None:
    assert [fact.text for fact in of("I love green tea, do you?")] == ["User loves green tea."]
    assert [fact.text for fact in of("我比较喜欢自然风光，你有推荐的地方吗？")] == ["用户比较喜欢自然风光。"]


def test_assistants_are_believed_less_and_give_no_rules() -> None:
    said = "I live in Boston. Please always answer in French."
    assert [(fact.kind, fact.confidence) for fact in of(said, role="assistant")] == [("fact", 0.4)]
    assert min(fact.confidence for fact in of(said)) >= 0.7
    assert of(said, role="tool") == of(said, role="system") == []


def test_advice_without_a_subject_is_not_the_assistants_own() -> None:
    assert of("喜欢历史文化，可以选择去故宫博物院。", role="assistant") == []
    assert of("喜欢历史文化。") != []


def test_one_turn_may_state_several_things() -> None:
    kinds = [fact.kind for fact in of("My name is Bob. I hate onions! We decided to meet on Friday. 我对花生过敏。")]
    assert kinds == ["fact", "preference", "decision", "fact"]


def test_spans_point_at_the_words_themselves() -> None:
    text = "Hi there! 👋 Well, I prefer tea. 对了，我住在上海，你呢？"
    assert [text[fact.span[0] : fact.span[1]] for fact in of(text)] == ["I prefer tea", "我住在上海"]


def test_what_is_said_twice_is_found_once() -> None:
    assert len(of("I love tea. I LOVE tea! I love tea.")) == 1


_FRAGMENTS = st.sampled_from(
    [
        "I love ",
        "we decided to ",
        "my name is ",
        "我喜欢",
        "我打算",
        "以后请",
        "，",
        "。",
        ", ",
        ". ",
        "?",
        "吗",
        '"',
        "“",
        "\n",
        "```",
        "a" * 50,
        "👋",
        " ",
    ]
)


@given(st.lists(_FRAGMENTS | st.text(max_size=20), max_size=40).map("".join), st.sampled_from(["user", "assistant"]))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_and_every_fact_is_within_bounds(text: str, role: str) -> None:
    record = MemoryRecord(role=role, content="")
    found = facts(record, text)
    assert len(found) <= MAX_FACTS
    assert found == facts(record, text)
    for fact in found:
        assert 0 <= fact.span[0] < fact.span[1] <= len(text)
        assert fact.text.strip()
        assert fact.confidence <= (0.9 if role == "user" else 0.4)


@given(st.text(max_size=200) | st.lists(_FRAGMENTS, max_size=20).map("".join))
def test_sentences_are_pieces_of_the_text_in_order(text: str) -> None:
    end = 0
    for sentence in sentences_of(text):
        assert end <= sentence.start
        assert text[sentence.start : sentence.end] == sentence.text != ""
        end = sentence.end
    assert sum(len("".join(one.text.split())) for one in sentences_of(text)) == len("".join(text.split()))


@pytest.mark.parametrize(
    "text",
    [
        "I love " * 20_000,
        "I am " * 20_000,
        "我喜欢" * 20_000,
        "a" * 200_000,
        "I love tea. " * 10_000,
        "my " * 40_000,
        '"' * 100_000,
        ", " * 50_000,
    ],
)
def test_long_texts_take_no_longer_than_their_length(text: str) -> None:
    began = time.process_time()
    of(text)
    assert time.process_time() - began < 5.0
