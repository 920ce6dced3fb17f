"""The edge ticker: sessions that fell silent are told once, on the log."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from engramlog.engine.cutting import CutPolicy
from engramlog.engine.history import History
from engramlog.engine.idling import Ticker
from engramlog.engine.log import Run
from engramlog.engine.summarise import Summarising
from engramlog.engine.summarisers import summariser_by_name
from engramlog.schemas.envelope import AgentEvent, SessionIdledEvent
from engramlog.schemas.errors import BrokerUnavailable
from tests.history_log import START_MS, Log, given

IDLE_S = 60.0


@dataclass
class FakeLog:
    events: list[AgentEvent] = field(default_factory=list)
    down: bool = False

    async def publish(self, _partition: int, summary: Any, records: Sequence[AgentEvent]) -> None:
        if self.down:
            raise BrokerUnavailable("away")
        assert summary is None
        self.events += records

    def idled(self) -> list[str | None]:
        assert all(isinstance(event, SessionIdledEvent) for event in self.events)
        return [event.sessionid for event in self.events]


class Clock:
    """Seconds after the log's first record."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return START_MS / 1000 + self.s


async def folded(history: History, log: Log) -> None:
    """Bring the fold of ``summarise`` to the log's end."""
    await given(history, log)
    state = Summarising(history, summariser_by_name("archive"), FakeLog(), CutPolicy(), records=log.topic)
    at = await state.open_partition(log.topic, 0, cluster_id="c", topic_id="t", end_offset=log.end)
    for run in log.runs():
        if run.next > at:
            rest = tuple(entry for entry in run.entries if entry.offset >= at)
            await state.apply(Run(run.topic, 0, max(at, run.expected), run.next, rest))
    await state.stop()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def ticker(history: History, log: FakeLog, clock: Clock) -> Ticker:
    return Ticker(history.summarising(), log, lambda: {0}, idle_s=IDLE_S, clock=clock)


async def test_a_session_is_idle_once_after_its_last_word(history: History, clock: Clock) -> None:
    talk, told = Log(), FakeLog()
    talk.says("hello", session="s1")  # at second 0
    talk.says("你好", session="会话", user="阿梅")  # at second 1
    talk.says("no session")
    await folded(history, talk)
    tick = ticker(history, told, clock)
    clock.s = IDLE_S - 1
    assert await tick.tick() == 0
    clock.s = IDLE_S + 0.5
    assert await tick.tick() == 1
    clock.s = IDLE_S + 30
    assert await tick.tick() == 1
    assert await tick.tick() == 0
    assert told.idled() == ["s1", "会话"]


async def test_who_goes_on_talking_is_not_idle_and_falls_silent_again(history: History, clock: Clock) -> None:
    talk, told = Log(), FakeLog()
    talk.says("one", session="s")
    tick = ticker(history, told, clock)
    await folded(history, talk)
    for _ in range(30):
        talk.says(f"filler {talk.end}", session="other")
    talk.says("two", session="s", user="bob")
    await folded(history, talk)
    clock.s = IDLE_S + 5
    await tick.tick()
    assert told.idled() == []
    clock.s = IDLE_S + 100
    await tick.tick()
    assert sorted(told.idled(), key=str) == ["other", "s"]
    talk.end = 200  # a later time
    talk.says("three", session="s")
    await folded(history, talk)
    clock.s = IDLE_S + 300
    await tick.tick()
    assert told.idled().count("s") == 2
    assert len({event.id for event in told.events}) == 3


async def test_a_restart_tells_it_under_the_same_id_and_a_dead_broker_is_asked_again(
    history: History, clock: Clock
) -> None:
    talk, told = Log(), FakeLog(down=True)
    talk.says("hello", session="s1")
    await folded(history, talk)
    clock.s = IDLE_S + 10
    first = ticker(history, told, clock)
    with pytest.raises(BrokerUnavailable):
        await first.tick()
    told.down = False
    assert await first.tick() == 1
    assert await ticker(history, told, clock).tick() == 1
    assert len({event.id for event in told.events}) == 1
