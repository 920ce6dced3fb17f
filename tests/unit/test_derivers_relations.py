"""What speakers state plainly of themselves."""

import pytest

from tests.deriving import understood


def stated(text: str, role: str = "user", **fields: str) -> list[tuple[str, str, str]]:
    return [(r.subject, r.predicate, r.object) for r in understood(text, role, **fields).relations]


@pytest.mark.parametrize(
    ("text", "predicate", "thing"),
    [
        ("My name is Ana Costa, nice to meet you.", "name_is", "Ana Costa"),
        ("I live in a small town near Ghent and I like it.", "lives_in", "a small town near Ghent"),
        ("I'm living in Oslo.", "lives_in", "Oslo"),
        ("I\u2019m from Peru.", "comes_from", "Peru"),
        ("I work at the harbour.", "works_at", "the harbour"),
        ("I work as a nurse.", "works_as", "nurse"),
        ("I'm allergic to cats, sadly.", "allergic_to", "cats"),
        ("I really love climbing.", "loves", "climbing"),
        ("I hate coriander", "hates", "coriander"),
        ("I don't like loud music.", "dislikes", "loud music"),
        ("I prefer dark mode.", "prefers", "dark mode"),
        ("I have two cats and a parrot.", "has", "two cats"),
        ("我叫林小满，今年二十八岁。", "name_is", "林小满"),
        ("我住在成都，一个人住。", "lives_in", "成都"),
        ("我在一家医院工作。", "works_at", "一家医院"),
        ("我是一名护士。", "works_as", "护士"),
        ("我喜欢爬山。", "likes", "爬山"),
        ("我不喜欢香菜。", "dislikes", "香菜"),
        ("我讨厌下雨天。", "hates", "下雨天"),
        ("我对花生过敏。", "allergic_to", "花生"),
        ("我养了一只橘猫。", "has", "一只橘猫"),
    ],
)
def test_a_plain_statement_is_a_relation(text: str, predicate: str, thing: str) -> None:
    assert ("user", predicate, thing) in stated(text)


def test_chinese_statements_go_on_without_their_subject() -> None:
    assert stated("我叫李雪，住在大连，在一家书店工作，喜欢看电影。") == [
        ("user", "name_is", "李雪"),
        ("user", "lives_in", "大连"),
        ("user", "works_at", "一家书店"),
        ("user", "likes", "看电影"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Do I live in Oslo?",
        "我住在大连吗？",
        "I like that!",
        "I love your hat.",
        "I have a question.",
        "She lives in Oslo and he works at a bank.",
        "我妈妈住在北京，喜欢养花。",
        "我喜欢的电影很多。",
        "If I had a garden, I would grow roses.",
        "",
    ],
)
def test_questions_politeness_and_statements_of_others_are_none(text: str) -> None:
    assert stated(text) == []


@pytest.mark.parametrize("role", ["assistant", "tool", "function", "system", "developer"])
def test_only_people_state_what_they_are(role: str) -> None:
    assert stated("I live in the cloud. 我住在云端。", role) == []


def test_the_speakers_name_is_the_subject_where_it_is_known() -> None:
    assert stated("I live in Oslo.", role_name="Maja") == [("Maja", "lives_in", "Oslo")]
