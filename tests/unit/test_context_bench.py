"""What bench.context_budget counts as present, and the window that it compares with."""

from datetime import UTC, datetime

import pytest

from bench.context_budget import as_one_session, query_of
from bench.context_measures import Coverage, Evidence, Shown, passages, plain_window
from bench.recall_talks import Asked, Talk
from engramlog.engine.client import MemoryRecord
from engramlog.engine.tokens import count_messages
from engramlog.schemas.formats.openai import to_openai

THEN = datetime(2026, 3, 1, 9, tzinfo=UTC)
HIKE = "We hiked up Mount Hood with Luna, carrying lemonade 👋"


def said(text: str, record_id: str = "r") -> MemoryRecord:
    return MemoryRecord(record_id=record_id, role="user", role_name="Ada", content=text, timestamp=THEN)


def block(tag: str, *items: str) -> dict[str, str]:
    return {"role": "system", "content": "\n".join(("Title", "Note.", f"<{tag}>", *items, f"</{tag}>"))}


def test_each_item_of_a_block_is_a_passage_of_its_own() -> None:
    recalled = block("memories", "1. 8 May, Ada: one\n  - indented", "2. 9 May: two")
    summaries = block("summaries", "- first\n  Facts: a", "- 第二")
    plain = {"role": "user", "content": "- not\n- a block"}
    assert list(passages([recalled, summaries, plain, {"role": "assistant", "content": None}])) == [
        "1. 8 May, Ada: one\n  - indented",
        "2. 9 May: two",
        "- first\n  Facts: a",
        "- 第二",
        "- not\n- a block",
    ]


@pytest.mark.parametrize("text", [HIKE, "👋", "Wow!", "我昨天去爬山了，带着露娜。", "two\nlines"])
def test_a_turn_that_is_shown_is_present_with_and_without_content_words(text: str) -> None:
    evidence = Evidence.of(said(text))
    indented = "\n  ".join(text.splitlines())
    assert Shown([{"role": "user", "content": text}]).holds(evidence)
    assert Shown([block("memories", f"1. 1 March, Ada: {indented}")]).verbatim(evidence)
    assert not Shown([{"role": "user", "content": "nothing of that"}]).holds(evidence)


def test_seven_tenths_of_the_words_must_stand_in_one_passage() -> None:
    evidence = Evidence.of(said(HIKE))
    assert len(evidence.words) == 7
    enough = "Ada hiked Mount Hood, carried Luna"
    assert Shown([block("summaries", f"- {enough}")]).holds(evidence)
    assert not Shown([block("summaries", f"- {enough}")]).verbatim(evidence)
    assert not Shown([block("summaries", "- Ada hiked Mount Hood")]).holds(evidence)
    assert not Shown([block("summaries", "- Ada hiked Mount Hood", "- Luna carried lemonade")]).holds(evidence)


def test_the_coverage_of_a_question_is_the_share_of_its_evidence() -> None:
    evidence = [Evidence.of(said(HIKE)), Evidence.of(said("Bob sold his violin in Lisbon"))]
    found = Coverage.of([block("summaries", "- Ada hiked Mount Hood, carried Luna")], evidence)
    assert (found.held, found.verbatim) == (0.5, 0.0)


@pytest.mark.parametrize("budget_tokens", [40, 100, 333])
def test_the_plain_window_holds_as_many_of_the_newest_turns_as_fit(budget_tokens: int) -> None:
    records = [said(f"{i}: {HIKE}", str(i)) for i in range(30)]
    question = said("Where did we hike?", "question")
    kept = plain_window(records, question, budget_tokens=budget_tokens)
    assert kept == [to_openai(record) for record in records][len(records) - len(kept) :]
    asking = to_openai(question)
    assert count_messages([*kept, asking]) <= budget_tokens
    one_more = to_openai(records[len(records) - len(kept) - 1])
    assert count_messages([one_more, *kept, asking]) > budget_tokens


def test_a_question_recalls_nothing_from_its_own_instant_on() -> None:
    question = said("Where?")
    for variant in ("all", "summaries off", "facts off"):
        asked = query_of(variant, question, budget_tokens=4_000)
        assert asked.recall is not None
        assert asked.recall.filter.happened_until == asked.now == THEN
    assert query_of("recall off", question, budget_tokens=4_000).recall is None
    without = query_of("summaries off", question, budget_tokens=4_000)
    assert without.recall is not None
    assert (without.summaries, without.recall.filter.origins) == (False, ("dialogue", "extracted"))


def test_a_talk_in_one_session_has_the_same_turns() -> None:
    talk = Talk("t", (("s1", (said("a", "1"),)), ("s2", (said("b", "2"),))), (Asked("?", ("1",), "4"),))
    whole = as_one_session(talk)
    assert [record.record_id for _, record in whole.records()] == ["1", "2"]
    assert len(whole.sessions) == 1
    assert whole.questions == talk.questions
