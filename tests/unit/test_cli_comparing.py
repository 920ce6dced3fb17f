"""The demonstration's count: what is lost, doubled, foreign or out of order is seen."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from engramlog.engine.cli.comparing import Outcome, compare, scopes_of
from engramlog.engine.cli.turns import Maker, Turn, Whose

MAKE = Maker(Whose(tenant="t"), now=datetime(2026, 3, 1, tzinfo=UTC))


def turn(record_id: str, *, agent: str = "a", session: str | None = "s") -> Turn:
    made = MAKE({"role": "user", "record_id": record_id}, where="", ordinal=1, agent=agent, session=session)
    assert isinstance(made, Turn)
    return made


def outcome(turns: Sequence[Turn], agent: list[str], session: list[str]) -> Outcome:
    return compare(turns, {("t", "a"): agent}, {("t", "a", "s"): session})


TWO = [turn("1"), turn("2")]


def test_all_came_back() -> None:
    found = outcome(TWO, ["1", "2"], ["1", "2"])
    assert found.good
    assert (found.published, found.projected) == (2, 2)


@pytest.mark.parametrize(("agent", "session"), [(["1"], ["1", "2"]), (["1", "2"], ["1"]), ([], [])])
def test_lost(agent: list[str], session: list[str]) -> None:
    found = outcome(TWO, agent, session)
    assert ("t", "a", "2") in found.lost
    assert found.projected == 2 - len(found.lost)
    assert not found.good


def test_a_read_that_is_missing_loses_all() -> None:
    assert len(compare(TWO, {}, {}).lost) == 2


def test_duplicated() -> None:
    found = outcome(TWO, ["1", "2", "1"], ["1", "2"])
    assert (found.duplicated, found.lost) == ((("t", "a", "1"),), ())
    assert not found.good


def test_unexpected() -> None:
    found = outcome(TWO, ["1", "2", "x"], ["1", "2"])
    assert found.unexpected == (("t", "a", "x"),)
    assert not found.good


def test_what_crossed_into_another_session_is_unexpected_there() -> None:
    turns = [turn("1"), turn("2", session="other")]
    found = compare(turns, {("t", "a"): ["1", "2"]}, {("t", "a", "s"): ["1", "2"], ("t", "a", "other"): ["2"]})
    assert found.unexpected == (("t", "a", "2"),)


def test_out_of_order() -> None:
    found = outcome(TWO, ["2", "1"], ["1", "2"])
    assert (found.out_of_order, found.good) == ((("t", "a"),), False)


def test_of_a_record_that_was_sent_again_the_last_copy_counts_in_its_place() -> None:
    turns = [turn("1"), turn("2"), turn("1")]
    found = outcome(turns, ["2", "1"], ["2", "1"])
    assert found.good
    assert found.published == 2


def test_scopes() -> None:
    turns = [turn("1"), turn("2", session=None), turn("3", agent="b")]
    assert scopes_of(turns) == ([("t", "a"), ("t", "b")], [("t", "a", "s"), ("t", "b", "s")])
