"""Summarising: what a log makes due, whatever the runs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from engramlog.engine.history.due import ACTIVE
from engramlog.engine.log import Run
from engramlog.schemas.envelope import RecordWritten, SessionIdledEvent
from engramlog.schemas.errors import Fenced
from engramlog.schemas.keys import record_key
from engramlog.schemas.records import SessionIdled
from tests.history_log import START, Log, contents, scope
from tests.summarising import POLICY, Desk, OpenDesk, eventually, tell

FIRST, SECOND = ("t0", "t1", "t2"), ("t3", "t4")


def past() -> Log:
    """A log with all that may happen to a talk."""
    log = Log()
    tell(log, 9)
    log.says("instruction", role="system", session="s")
    tell(log, 7, start=20, session="other", user="ada")
    tell(log, 7, start=40, session="other", user="bob")
    log.removes("t5", "t21")
    tell(log, 3, start=9)
    log.says("pinned", layer="core", session="s")
    tell(log, 3, start=6)  # sent again
    log.erases("record", "t1")
    log.clears(session="other", user="ada", scope="both")
    tell(log, 6, start=60, session="other", user="ada")
    log.ends("other")
    log.erases("user", user="bob")
    tell(log, 9, start=80)
    log.tombstone(record_key("acme", "bot", "t82"))
    tell(log, 5, start=90)
    return log


@pytest.mark.parametrize("sizes", [(1,) * 80, (7, 1, 13), (30,), ()])
async def test_any_cut_of_runs_makes_the_same_summaries_due(desk: Desk, sizes: Sequence[int]) -> None:
    await desk.fold(past(), sizes)
    found = await desk.dues()
    assert len(found) >= 6
    assert EXPECTED.setdefault("dues", found) == found


EXPECTED: dict[str, Any] = {}


async def test_the_oldest_part_is_due_above_the_threshold_users_and_sessions_apart(desk: Desk) -> None:
    log = Log()
    for n in range(6):
        for session, user in (("s", None), ("s", "ada"), ("s2", "ada"), (None, "ada")):
            tell(log, 1, start=n, session=session, user=user, id=f"{session}/{user}/{n}")
    await desk.fold(log)
    found = await desk.dues()
    assert [(due.address[2:], due.record_ids[0], due.trigger, due.reason) for due in found] == [
        (("s", ""), "s/None/0", "tokens", "new"),
        (("s", "ada"), "s/ada/0", "tokens", "new"),
        (("s2", "ada"), "s2/ada/0", "tokens", "new"),
    ]
    assert {len({i.rsplit("/", 1)[0] for i in due.record_ids}) for due in found} == {1}


async def test_a_message_count_makes_the_oldest_batch_due(open_desk: OpenDesk) -> None:
    desk = await open_desk(policy=replace(POLICY, threshold_tokens=10_000, messages=20, batch=4))
    log = Log()
    tell(log, 21)
    await desk.fold(log)
    (due,) = await desk.dues()
    assert (due.record_ids, due.trigger, due.at) == (("t0", "t1", "t2", "t3"), "messages", 20)


async def test_the_end_of_a_session_makes_all_due_that_may_go(desk: Desk) -> None:
    log = Log()
    tell(log, 4)
    tell(log, 4, start=10, user="ada")
    tell(log, 4, start=20, session="other")
    log.ends("s")
    await desk.fold(log)
    assert await desk.covered() == [("t0", "t1"), ("t10", "t11")]
    assert {due.trigger for due in await desk.dues()} == {"ended"}


@pytest.mark.parametrize(("idle_s", "trigger"), [(1800.0, "idled"), (0.0, "request")])
async def test_an_idle_session_is_summarised_and_one_on_request(desk: Desk, idle_s: float, trigger: str) -> None:
    log = Log()
    tell(log, 4)
    idled = SessionIdled(idle_s=idle_s)
    log.append(
        SessionIdledEvent(id="i", source="test", tenantid="acme", agentid="bot", sessionid="s", time=START, data=idled)
    )
    await desk.fold(log)
    assert [(due.record_ids, due.trigger) for due in await desk.dues()] == [(("t0", "t1"), trigger)]


async def test_what_nobody_said_is_in_no_summary_and_an_imported_talk_is(desk: Desk) -> None:
    log = Log()
    tell(log, 5, origin="import")
    for n, origin in enumerate(("extracted", "summary", "recall")):
        tell(log, 1, start=10 + n, origin=origin, derived_from=("t0",))
    assert (await (await desk.fold(log))._state.waiting(("acme", "bot", "s", ""))) == 1
    assert await desk.covered() == [FIRST]


async def test_a_record_that_is_sent_again_is_summarised_where_it_lies_last(desk: Desk) -> None:
    log = Log()
    tell(log, 3)
    tell(log, 1)  # t0 once more
    tell(log, 2, start=3)
    await desk.fold(log)
    assert await desk.covered() == [("t1", "t2", "t0")]


async def test_a_whole_talk_that_is_sent_again_is_summarised_again_under_the_same_id(desk: Desk) -> None:
    log = Log()
    tell(log, 5)
    await desk.fold(log, work=True)
    await desk.all_made()
    (before,) = await desk.dues()
    log.removes("t3", "t4")
    tell(log, 5)
    await desk.fold(log, work=True)
    await eventually(lambda: made(desk, 2))
    (after,) = [due for due in await desk.dues() if due.summary_id == before.summary_id]
    assert (before.first, after.first, after.state) == (0, 6, ACTIVE)
    assert [s.summary.covers.first for s in await desk.active()] == [6]
    assert [text.split()[0] for text in await contents(desk.history, scope("s"))] == ["mark3", "mark4"]


async def made(desk: Desk, count: int) -> bool:
    return len(desk.log.created()) >= count and all(due.state for due in await desk.dues())


@pytest.mark.parametrize("leave", ["window", "both", "recall"])
async def test_a_removed_record_goes_into_no_summary_unless_it_left_recall_only(desk: Desk, leave: str) -> None:
    log = Log()
    tell(log, 4)
    log.removes("t1", scope=leave)
    tell(log, 3, start=4)
    await desk.fold(log)
    first = (await desk.covered())[0]
    assert ("t1" in first) == (leave == "recall")


async def test_what_is_removed_while_its_summary_waits_is_not_read(desk: Desk) -> None:
    log = Log()
    tell(log, 5)
    log.removes("t1", scope="both")
    log.removes("t2", scope="recall")
    await desk.fold(log)
    await desk.fold(log, work=True)
    await desk.all_made()
    (event,) = desk.log.created()
    assert "mark1" not in event.data.text
    assert "mark2" in event.data.text  # it is in the window
    assert not any(isinstance(record, RecordWritten) for record in desk.log.records)  # nor does it come back to recall


@pytest.mark.parametrize("leave", ["window", "both", "recall"])
@pytest.mark.parametrize(("who", "cleared"), [("own", {"ada"}), ("all", {"", "ada", "bob"})])
async def test_a_clear_drops_what_was_due(desk: Desk, leave: str, who: str, cleared: set[str]) -> None:
    log = Log()
    for user in (None, "ada", "bob"):
        tell(log, 5, start=10 * len(user or ""), user=user)
    await desk.fold(log)
    assert len(await desk.dues()) == 3
    log.clears(session="s", user="ada", users=who, scope=leave)
    await desk.fold(log)
    left = {due.address[3] for due in await desk.dues()}
    assert left == ({"", "ada", "bob"} - cleared if leave != "recall" else {"", "ada", "bob"})


async def test_a_clear_as_of_an_earlier_place_frees_what_was_said_later(desk: Desk) -> None:
    log = Log()
    tell(log, 5)
    log.clears(session="s", at=2)
    await desk.fold(log)
    assert await desk.dues() == []
    tell(log, 4, start=5)
    await desk.fold(log)
    assert await desk.covered() == [("t2", "t3", "t4")]


async def test_summaries_of_a_cleared_talk_are_neither_active_nor_rolled_up(open_desk: OpenDesk) -> None:
    desk = await open_desk(policy=replace(POLICY, budget_tokens=20, window_ratio=0.5))
    log = Log()
    tell(log, 5)
    await desk.fold(log, work=True)
    await desk.all_made()
    assert len(await desk.active()) == 1
    log.clears(session="s")
    tell(log, 5, start=10)
    await desk.fold(log, work=True)
    await desk.all_made()
    assert [s.summary.covers.record_ids for s in await desk.active()] == [("t10", "t11", "t12")]
    assert [s.summary.level for s in await desk.active(active=False)] == [1, 1]


async def test_an_erased_record_goes_into_no_summary(desk: Desk) -> None:
    log = Log()
    tell(log, 3)
    log.erases("record", "t1")
    tell(log, 3, start=3)
    await desk.fold(log)
    assert await desk.covered() == [("t0", "t2", "t3")]


@pytest.mark.parametrize("first_made", [False, True])
async def test_what_an_erasure_leaves_of_a_summary_is_due_again(desk: Desk, *, first_made: bool) -> None:
    log = Log()
    tell(log, 5)
    await desk.fold(log, work=first_made)
    if first_made:
        await desk.all_made()
    (before,) = await desk.dues()
    at = log.erases("record", "t1")
    await desk.fold(log)
    (after,) = await desk.dues()
    assert (after.record_ids, after.reason, after.trigger) == (("t0", "t2"), "erased", "erased")
    assert (after.replaces, after.at) == ((before.summary_id,), at)
    await desk.fold(log, work=True)
    await desk.all_made()
    (active,) = await desk.active(active=False)
    assert (active.summary.summary_id, active.summary.text, active.summary.reason) == (
        after.summary_id,
        "mark0 mark2",
        "erased",
    )
    assert desk.log.created()[-1].data.replaces == (before.summary_id,)


async def test_an_erased_record_takes_its_summary_along_wherever_it_was_sent_again(desk: Desk) -> None:
    log = Log()
    tell(log, 5)
    await desk.fold(log, work=True)
    await desk.all_made()
    tell(log, 1, start=1)  # t1 once more, behind what the summary covers
    log.erases("record", "t1")
    await desk.fold(log, work=True)
    await eventually(lambda: made(desk, 2))
    assert [s.summary.text for s in await desk.active(active=False)] == ["mark0 mark2"]


async def test_the_last_record_that_an_erasure_leaves_comes_with_the_next_summary(desk: Desk) -> None:
    log = Log()
    tell(log, 5)
    log.erases("record", "t0", "t1")
    await desk.fold(log)
    assert await desk.dues() == []
    tell(log, 2, start=5)
    await desk.fold(log)
    assert await desk.covered() == [("t2", "t3", "t4")]


@pytest.mark.parametrize(
    ("what", "where", "left"),
    [
        ("session", {"session": "s"}, {"other"}),
        ("user", {"user": "ada"}, {"s", "other"}),
        ("agent", {}, set()),
        ("tenant", {}, set()),
    ],
)
async def test_an_erased_scope_leaves_nothing_due(desk: Desk, what: str, where: dict[str, str], left: set[str]) -> None:
    log = Log()
    for session in ("s", "other"):
        for user in (None, "ada"):
            for n in range(5):
                tell(log, 1, start=n, session=session, user=user, id=f"{session}/{user}/{n}")
    for n in range(5):
        log.says("elsewhere " * 50, id=f"b{n}", session="s", agent="b")
    await desk.fold(log)
    assert len(await desk.dues()) == 5
    log.erases(what, **where)
    await desk.fold(log)
    found = await desk.dues()
    assert {due.address[2] for due in found if due.address[1] == "bot"} == left
    assert [due.address[1] for due in found].count("b") == (what != "tenant")
    assert {due.address[3] for due in found if due.address[1] == "bot"} <= ({""} if what == "user" else {"", "ada"})


async def test_an_erasure_that_is_published_again_counts_nothing(desk: Desk) -> None:
    log = Log()
    tell(log, 2)
    log.erases("session", session="s", id="x1")
    event: Any = log.entries.pop().event
    log.end -= 1
    event = event.model_copy(update={"data": event.data.model_copy(update={"request_id": "q"})})
    log.append(event)
    tell(log, 5, start=10)
    log.append(event.model_copy(update={"id": "x2"}))
    await desk.fold(log)
    assert await desk.covered() == [("t10", "t11", "t12")]


async def test_a_stale_owner_writes_nothing(desk: Desk) -> None:
    log = Log()
    tell(log, 5)
    (run,) = log.runs()
    summarising = await desk.fold(log)
    before = await desk.dues()
    with pytest.raises(Fenced):
        await summarising.apply(run)
    with pytest.raises(Fenced):
        await summarising.apply(Run(run.topic, 0, 3, 5, run.entries[3:]))
    assert await desk.dues() == before
