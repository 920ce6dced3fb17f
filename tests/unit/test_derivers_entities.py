"""What a text names, and its keywords."""

import pytest

from tests.deriving import understood


def named(text: str) -> set[tuple[str, str]]:
    return {(entity.text, entity.type) for entity in understood(text).entities}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I met Alice and her brother Tom in Kyoto.", {("Alice", "person"), ("Tom", "person"), ("Kyoto", "other")}),
        ("We fly to Lisbon on 14 May 2027.", {("Lisbon", "place"), ("14 May 2027", "date")}),
        ("She studies at Delft University at 7:30 am.", {("Delft University", "organisation"), ("7:30 am", "date")}),
        ("We walked through Victoria Park.", {("Victoria Park", "place")}),
        ("See https://example.org/a?b=1, page 12.", {("https://example.org/a?b=1", "url"), ("12", "number")}),
        ("Run `make test` after editing engine/derive.py.", {("make test", "code"), ("engine/derive.py", "file")}),
        ("loadSettings() reads max_poll_s", {("max_poll_s", "code"), ("loadSettings()", "code")}),
        ("The rent is $1,250 and rises by 3.5%.", {("$1,250", "number"), ("3.5%", "number")}),
        ("我叫李雪，下周五去大连。", {("李雪", "person"), ("下周五", "date"), ("大连", "place")}),
        ("机票1200元，于2026-05-01出发。", {("1200元", "number"), ("2026-05-01", "date")}),
        ("2026年3月1日我在北京看了《活着》。", {("2026年3月1日", "date"), ("北京", "place"), ("活着", "product")}),
        ("她在华为工作，昨天去了上海。", {("华为", "organisation"), ("昨天", "date"), ("上海", "place")}),
    ],
)  # fmt: skip
def test_what_a_text_names_is_found_and_told_apart(text: str, expected: set[tuple[str, str]]) -> None:
    assert expected <= named(text)


@pytest.mark.parametrize(
    "text", ["Thanks! Great. Yes. Sounds good.", "Do it. It works. Nice.", "谢谢！太好了，我对猫过敏。"]
)
def test_words_in_capitals_at_the_start_and_thanks_are_no_names(text: str) -> None:
    assert named(text) == set()


def test_an_entity_stands_in_the_text_as_it_is_and_comes_once() -> None:
    text = "Alice called. Alice said that ALICE_KEY in .env was wrong, and Alice was right. 爱丽丝在北京，北京很冷。"
    entities = understood(text).entities
    assert len(set(entities)) == len(entities)
    assert all(entity.text in text for entity in entities)


def test_keywords_carry_the_text_best_first_and_do_not_repeat() -> None:
    keywords = understood(
        "The sourdough starter needs rye flour. My sourdough starter died because the rye flour was old."
    ).keywords
    assert keywords[0] == "sourdough starter"
    assert "rye flour" in keywords
    assert len(set(keywords)) == len(keywords) <= 12


def test_chinese_keywords_are_whole_words() -> None:
    keywords = understood("我在写一篇关于量子计算的论文，量子计算需要很低的温度。").keywords
    assert any("量子" in keyword for keyword in keywords[:2])
    assert "论文" in keywords


def test_filler_has_no_keywords() -> None:
    assert understood("Thanks, that's great!").keywords == ()
    assert understood("谢谢，太棒了！").keywords == ()
