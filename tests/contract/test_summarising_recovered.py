"""The state of ``summarise`` is lost, its topic is not: no summary is made again, and the state comes out the same."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from sqlalchemy import select

from engramlog.engine.history.due import ACTIVE, ROLLED
from engramlog.engine.summarisers.passages import SummaryRefused
from engramlog.schemas.envelope import AgentEvent, RecordWritten
from engramlog.schemas.errors import ModelUnavailable
from engramlog.schemas.queries import Reached
from engramlog.schemas.summaries import SummaryCreatedEvent, SummaryFailedEvent
from tests.contract.conftest import OpenHistory
from tests.history_log import Log, given
from tests.summarising import POLICY, SUMMARIES, Desk, FakeLog, apply_summaries, eventually, tell

ROLLING = replace(POLICY, budget_tokens=40, window_ratio=0.5)


@dataclass
class Living(FakeLog):
    """What is published to the records lies in the log, too. ``crash``: it stops after so many messages."""

    talk: Log = field(default_factory=Log)
    closed: bool = False
    crash: int | None = None
    later: list[Any] | None = None

    async def publish(
        self, partition: int, summary: SummaryCreatedEvent | SummaryFailedEvent | None, records: Sequence[AgentEvent]
    ) -> None:
        assert not self.closed, "something was published"
        await super().publish(partition, summary, records if self.crash is None else records[: self.crash])
        for record in records if self.crash is None else records[: self.crash]:
            self.talk.append(record)
        if self.crash is not None:
            raise InterruptedError

    async def last(self, partition: int) -> Reached | None:
        if self.later is None:
            return await super().last(partition)
        return Reached(topic=SUMMARIES, partition=0, offset=len(self.later) - 1)


OpenDesk = Callable[..., Awaitable[Desk]]


@pytest.fixture
async def open_desk(open_history: OpenHistory) -> AsyncIterator[OpenDesk]:
    """Opens desks over new databases, with a clock that stands still."""
    desks: list[Desk] = []

    async def open_(talk: Log, **how: Any) -> Desk:
        now = [1_000.0]
        desk = Desk(await open_history(clock=lambda: now[0]), now, **{"policy": ROLLING, **how})
        desk.log = Living(desk.history, talk=talk)
        desks.append(desk)
        return desk

    yield open_
    for desk in desks:
        await desk.stop()


def living(desk: Desk) -> Living:
    assert isinstance(desk.log, Living)
    return desk.log


async def live_on(desk: Desk) -> None:
    """Fold the log and make what is due, until nothing comes of it any more."""
    talk = living(desk).talk
    end = -1
    while end != talk.end or any(not due.state for due in await desk.dues()):
        end = talk.end
        await desk.fold(talk, work=True)
        await desk.all_made()


async def lost(open_desk: OpenDesk, live: Desk, sizes: Sequence[int] = (), *, have: bool = True) -> Desk:
    """A ``summarise`` with an empty database over the log of another, whose summariser nobody may ask."""
    of = living(live)
    desk = await open_desk(of.talk, policy=live.policy)
    again = living(desk)
    again.closed, again.later = True, list(of.summaries)
    if have:
        await apply_summaries(desk.history, of.summaries, at=0)
        await desk.fold(of.talk, sizes, work=True)
        await desk.all_made()
    return desk


async def rows(desk: Desk) -> dict[str, list[tuple[Any, ...]]]:
    """Every row that ``summarise`` keeps, but for when something is tried next."""
    t = desk.history._tables
    found: dict[str, list[tuple[Any, ...]]] = {}
    for table in (t.turns, t.due):
        columns = [column for column in table.c if column.name not in {"attempts", "next_ms"}]
        query = select(*columns)
        read = await desk.history._database.read(lambda connection, q=query: list(connection.execute(q).all()))
        found[table.name] = sorted(tuple(row) for row in read)
    c = t.checkpoints.c
    at = select(c.next).where(c.projection == "summarise_g1")
    found["next"] = [tuple(r) for r in await desk.history._database.read(lambda x: list(x.execute(at).all()))]
    return found


async def life(desk: Desk) -> None:
    """All that may happen to a talk and its summaries, each once what came before has been made."""
    talk = living(desk).talk
    tell(talk, 14)
    talk.says("I prefer dark mode in every editor. " * 5, id="likes", session="s")
    tell(talk, 7, start=20, session="other", user="ada")
    await live_on(desk)
    tell(talk, 9, start=30)
    talk.erases("record", "t1")  # of a summary that was rolled up
    await live_on(desk)
    (made,) = [due for due in await desk.dues() if due.address[2] == "other"]
    talk.clears(session="other", user="ada", at=made.last)  # in the middle of what a summary stands for
    tell(talk, 6, start=50, session="other", user="ada")
    await live_on(desk)
    tell(talk, 5, start=60, session="again")
    await live_on(desk)
    talk.removes("t63", "t64")
    tell(talk, 5, start=60, session="again")  # sent again: due again, under the same id
    await live_on(desk)
    tell(talk, 5, start=70, session="private")
    talk.removes("t71", scope="recall")  # it comes back with no summary
    talk.says("我喜欢喝茶,不喜欢喝咖啡。" * 12, id="茶/1|", session="private")
    await live_on(desk)
    tell(talk, 5, start=80, session="gone", user="bob")
    await live_on(desk)
    talk.erases("user", user="bob")
    talk.ends("s")
    await live_on(desk)


@pytest.mark.parametrize("sizes", [(), (1,) * 200, (9, 30, 4, 1, 17)])
async def test_a_lost_state_is_recovered_row_by_row_and_goes_on_alike(
    open_desk: OpenDesk, sizes: Sequence[int]
) -> None:
    live = await open_desk(Log())
    await life(live)
    assert {due.state for due in await live.dues()} == {ACTIVE, ROLLED}
    again = await lost(open_desk, live, sizes)
    assert again.summariser.asked == []
    assert await rows(again) == await rows(live)
    await again.stop()
    log, copy = living(live), living(again)
    copy.closed, copy.later, copy.summaries = False, None, list(log.summaries)
    copy.talk = Log()
    copy.talk.entries, copy.talk.end = list(log.talk.entries), log.talk.end
    made = len(log.summaries)
    for desk in (live, again):
        tell(living(desk).talk, 12, start=100)
        await live_on(desk)
    assert copy.summaries[made:] == log.summaries[made:]
    assert len(log.summaries) > made + 1
    assert await rows(again) == await rows(live)


async def test_nothing_is_made_until_the_history_has_all_summaries_of_before(open_desk: OpenDesk) -> None:
    live = await open_desk(Log(), policy=POLICY)
    tell(living(live).talk, 8)
    await live_on(live)
    again = await lost(open_desk, live, have=False)
    talk = Log()
    talk.entries = [entry for entry in living(live).talk.entries if entry.event and entry.event.source == "test"]
    talk.end = living(live).talk.end  # nothing but the history says that they were made
    running = await again.fold(talk, work=True)

    async def looked() -> bool:
        return running._openings._open[0].looked

    await eventually(looked)
    assert await running._openings.ready() == set()
    await apply_summaries(again.history, living(live).summaries[:-1], at=0)
    assert await running._openings.ready() == set()
    assert again.summariser.asked == []
    living(again).closed = False
    await apply_summaries(again.history, living(live).summaries[-1:], at=len(living(live).summaries) - 1)
    await again.all_made()
    assert again.summariser.asked == []
    assert living(again).summaries == []
    assert (await rows(again))["summarise_due"] == (await rows(live))["summarise_due"]


@pytest.mark.parametrize("crash", [0, 1, 2])
async def test_a_crash_while_a_summary_is_published_loses_nothing_of_it_and_asks_no_model(
    open_desk: OpenDesk, crash: int
) -> None:
    live = await open_desk(Log(), policy=POLICY)
    log = living(live)
    for n in range(2):
        log.talk.says("I prefer dark mode in every editor. " * 5, id=f"t{n}", session="s", user="ada")
    tell(log.talk, 3, start=2, user="ada")
    log.crash = crash
    await live.fold(log.talk, work=True)

    async def published() -> bool:
        return len(log.created()) == 1 and any(due.attempts for due in await live.dues())

    await eventually(published)
    await live.stop()
    log.crash = None
    whole, asked = list(log.records), len(live.summariser.asked)
    again = await lost(open_desk, live, have=False)
    copy = living(again)
    copy.closed = False
    await apply_summaries(again.history, log.summaries, at=0)
    await again.fold(log.talk, work=True)
    await again.all_made()
    assert (asked, again.summariser.asked, copy.summaries) == (1, [], [])
    written = [event.data for event in (*whole, *copy.records) if isinstance(event, RecordWritten)]
    assert sorted(record.origin for record in written) == ["extracted", "extracted", "summary"]
    assert [record.origin for record in written][-1] == "summary"


async def test_what_failed_is_tried_again_and_what_was_made_is_not(open_desk: OpenDesk) -> None:
    live = await open_desk(Log(), policy=POLICY)
    live.summariser.only = lambda text: "mark20" in text
    live.summariser.answers = [ModelUnavailable("away"), SummaryRefused("refused", "no")]
    log = living(live)
    tell(log.talk, 5)
    tell(log.talk, 5, start=20, session="other")
    await live.fold(log.talk, work=True)

    async def both() -> bool:
        return len(log.created()) == 1 and len(log.failed()) == 1

    await eventually(both)
    await live.stop()
    again = await lost(open_desk, live, have=False)
    copy = living(again)
    copy.closed, copy.summaries = False, list(log.summaries)
    await apply_summaries(again.history, log.summaries, at=0)
    await again.fold(log.talk, work=True)
    await again.all_made()
    assert again.summariser.asked == [["t20", "t21", "t22"]]
    assert [event.sessionid for event in copy.created()] == ["s", "other"]


async def test_a_summary_in_the_history_that_covers_something_else_is_made_again(open_desk: OpenDesk) -> None:
    live = await open_desk(Log(), policy=POLICY)
    tell(living(live).talk, 5)
    await live_on(live)
    (event,) = living(live).created()
    other = event.data.model_copy(update={"covers": event.data.covers.model_copy(update={"first": 1})})
    again = await lost(open_desk, live, have=False)
    living(again).closed = False
    await given(again.history, living(live).talk)
    await apply_summaries(again.history, [event.model_copy(update={"data": other})], at=0)
    living(again).summaries = [event]
    await again.fold(living(live).talk, work=True)
    await again.all_made()
    assert len(again.summariser.asked) == 1


async def test_while_the_past_is_folded_no_session_is_taken_for_idle(open_desk: OpenDesk) -> None:
    talk = Log()
    tell(talk, 6)
    desk = await open_desk(talk, policy=POLICY)
    running = desk.summarising()
    await given(desk.history, talk)
    await running.open_partition(talk.topic, 0, cluster_id="c", topic_id="t", end_offset=talk.end)
    seen = []
    for run in talk.runs((2, 2)):
        seen.append(running.owned())
        await running.apply(run)
    assert [*seen, running.owned()] == [frozenset(), frozenset(), frozenset(), frozenset({0})]
    await running.stop()
