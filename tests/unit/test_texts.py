"""Which text of a record is searched and embedded."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engramlog.engine import texts
from engramlog.engine.embedders.chunking import is_grapheme_border, weight
from engramlog.engine.terms import terms
from engramlog.schemas.records import MemoryRecord, Part

WHEN = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)


def said(content: str, *, who: str | None = None, role: str = "user", **fields: object) -> MemoryRecord:
    return MemoryRecord(role=role, role_name=who, content=content, timestamp=WHEN, **fields)  # type: ignore[arg-type]


def test_the_searched_text_holds_speaker_words_and_day() -> None:
    assert texts.searchable(said("I went hiking", who="Caroline")) == "Caroline: I went hiking\n8 May 2023"
    assert texts.searchable(said("今天去爬山了")) == "今天去爬山了\n2023年5月8日"


def test_the_day_is_that_of_the_instants_own_zone() -> None:
    late = datetime(2023, 5, 8, 23, 30, tzinfo=timezone(timedelta(hours=8)))
    assert texts.day(late, like="hello") == "8 May 2023"


def test_a_question_by_date_shares_the_days_terms() -> None:
    assert {"8", "may"} <= set(terms("What happened on 8 May?")) & set(terms(texts.searchable(said("Hiking!"))))


def test_captions_of_pictures_are_part_of_the_text() -> None:
    picture = Part(type="image", url="https://x/y.png", detail={"alt": "a cat on a sofa", "detail": "low"})
    assert texts.content(said("Look!", parts=(picture,))) == "Look!\n[image: a cat on a sofa]"
    assert texts.content(said("", parts=(picture,))) == "[image: a cat on a sofa]"


def test_text_parts_speak_only_where_there_is_no_content() -> None:
    parts = (Part(type="text", text="as first published"),)
    assert texts.content(said("", parts=parts)) == "as first published"
    assert texts.content(said("as corrected", parts=parts)) == "as corrected"


def test_a_record_without_words_is_neither_searched_nor_embedded() -> None:
    bare = said("  \n", who="Caroline", parts=(Part(type="image", url="https://x/y.png"),))
    assert texts.searchable(bare) == ""
    assert texts.embeddable(bare, "Melanie: How are you?") == ""
    assert texts.previous(bare) == ""


def test_an_answer_is_embedded_with_its_question() -> None:
    question = texts.previous(said("When do you travel?", role="assistant"))
    assert texts.embeddable(said("In June!"), question) == "When do you travel?\nIn June!"
    asked = texts.previous(said("你什么时候出发呢", role="assistant"))
    assert texts.embeddable(said("六月！"), asked) == "你什么时候出发呢\n六月！"


def test_a_statement_to_an_assistant_stands_alone() -> None:
    assert texts.embeddable(said("I am allergic to nuts"), texts.previous(said("Noted.", role="assistant"))) == (
        "I am allergic to nuts"
    )
    told = texts.previous(said("I am allergic to nuts"))
    assert texts.embeddable(said("Noted.", role="assistant"), told) == "Noted."


def test_people_talking_to_each_other_are_read_with_the_turn_before() -> None:
    before = texts.previous(said("I moved to Boston.", who="Melanie"))
    assert texts.embeddable(said("That is far!", who="Caroline"), before) == (
        "Melanie: I moved to Boston.\nCaroline: That is far!"
    )
    assert texts.embeddable(said("And I like it.", who="Melanie"), before) == "Melanie: And I like it."


def test_only_the_end_of_a_long_turn_is_carried_over() -> None:
    assert texts.previous(said("x" * 5_000 + " end", who="Bo")) == "Bo: " + ("x" * 5_000 + " end")[-500:]


@pytest.mark.parametrize("question", ["", "Where do I live?", "x" * 600, "我住在哪里？" * 40])
def test_a_question_is_read_whole(question: str) -> None:
    assert texts.gist(question) == question


@pytest.mark.parametrize(
    ("unit", "kept"), [("abc ", 75), ("天气很好。", 24), ("👨‍👩‍👧", 20), ("e\u0301", 150), ("🇨🇳🇬🇧", 30)]
)
def test_of_a_long_question_the_beginning_and_the_end_are_read(unit: str, kept: int) -> None:
    begin, end = "Begin " + unit * 2_000, unit * 2_000 + " end?"
    found = texts.gist(begin + end)
    assert sum(map(weight, found)) <= texts.GIST_CHARS + 3
    head, tail = found.split(" … ")
    assert begin.startswith(head)
    assert end.endswith(tail)
    assert head.count(unit) >= kept - 10
    assert tail.count(unit) >= kept - 10
    assert is_grapheme_border(begin, len(head))
    assert is_grapheme_border(end, len(end) - len(tail))


@given(st.text(min_size=240, max_size=2_000))
def test_the_gist_of_any_question_is_short_and_made_of_its_ends(question: str) -> None:
    assume("…" not in question)
    found = texts.gist(question)
    assert sum(map(weight, found)) <= texts.GIST_CHARS + 3
    head, _, tail = found.partition(" … ")
    assert question.startswith(head)
    assert question.endswith(tail)
    assert found == question or tail
