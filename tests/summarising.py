"""What the tests of summarising share: a desk that folds logs, a summariser that does as it is told, logs in memory."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from engramlog.engine.cutting import CutPolicy
from engramlog.engine.history import History
from engramlog.engine.history.due import Due
from engramlog.engine.log import Entry, Run
from engramlog.engine.summarise import Summarising
from engramlog.engine.summarisers.passages import Passage, Summary
from engramlog.schemas.codec import summaries_codec
from engramlog.schemas.contexts import StoredSummary, SummariesQuery
from engramlog.schemas.envelope import AgentEvent
from engramlog.schemas.errors import BrokerUnavailable
from engramlog.schemas.keys import parse_key
from engramlog.schemas.queries import Reached
from engramlog.schemas.scope import Scope
from engramlog.schemas.summaries import SummaryCreatedEvent, SummaryFailedEvent
from tests.history_log import START_MS, Log, given, scope

SUMMARIES = "memory.summaries"
POLICY = CutPolicy(threshold_tokens=210, keep_tokens=105, budget_tokens=100_000)
Answer = str | BaseException | None
"""What a summariser answers: a text, an error, or (None) nothing, ever."""


def tell(log: Log, count: int, *, start: int = 0, **more: Any) -> None:
    """A talk of about 50 tokens a turn; the ids are ``t0``, ``t1``, and so on."""
    for n in range(start, start + count):
        said = f"mark{n} " + "we talk about many good things and then some more. " * 4
        log.says(said, **{"id": f"t{n}", "role": ("user", "assistant")[n % 2], "session": "s", **more})


@dataclass
class FakeSummariser:
    """Answers as told, one answer after the other, then for ever with the first words of each passage."""

    answers: list[Answer] = field(default_factory=list)
    only: Callable[[str], bool] = lambda _text: True
    model: str = "fake"
    prompt: str = "fake.v1"
    asked: list[list[str]] = field(default_factory=list)
    cancelled: int = 0

    async def summarise(self, passages: Sequence[Passage], *, max_tokens: int, previous: str | None) -> Summary:
        assert max_tokens >= 30
        assert previous is None
        self.asked.append([passage.record_id for passage in passages])
        text = " ".join(passage.text.split()[0] for passage in passages)
        if self.answers and self.only(text):
            answer = self.answers.pop(0)
            if isinstance(answer, BaseException):
                raise answer
            if answer is None:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.cancelled += 1
                    raise
            text = str(answer)
        return Summary(text, (), (), (), (), None, None, 0.5, self.model, self.prompt)


@dataclass
class FakeLog:
    """The topics that are written, in memory. What is published to the summaries is applied to the history at once."""

    history: History
    summaries: list[Any] = field(default_factory=list)
    records: list[AgentEvent] = field(default_factory=list)
    down: bool = False
    held: asyncio.Event | None = None

    async def publish(
        self, partition: int, summary: SummaryCreatedEvent | SummaryFailedEvent | None, records: Sequence[AgentEvent]
    ) -> None:
        assert partition == 0
        if self.down:
            raise BrokerUnavailable("the broker is away")
        if self.held is not None:
            await self.held.wait()
        self.records += records
        if summary is not None:
            self.summaries.append(summary)
            await apply_summaries(self.history, [summary], at=len(self.summaries) - 1)

    async def last(self, partition: int) -> Reached | None:
        assert partition == 0
        end = len(self.summaries)
        return Reached(topic=SUMMARIES, partition=0, offset=end - 1) if end else None

    def created(self) -> list[SummaryCreatedEvent]:
        return [event for event in self.summaries if isinstance(event, SummaryCreatedEvent)]

    def failed(self) -> list[SummaryFailedEvent]:
        return [event for event in self.summaries if isinstance(event, SummaryFailedEvent)]


async def apply_summaries(history: History, events: Sequence[Any], *, at: int) -> None:
    """Apply events of the topic of summaries; the first lies at ``at``. A key in bytes is a tombstone for it."""
    entries = tuple(
        Entry(at + n, START_MS + 1000 * (at + n), parse_key(event), None, b"")
        if isinstance(event, bytes)
        else Entry(at + n, START_MS + 1000 * (at + n), parse_key(event.key()), event, summaries_codec().encode(event))
        for n, event in enumerate(events)
    )
    await history.open_partition(SUMMARIES, 0, cluster_id="c", topic_id="s", end_offset=10**6)
    await history.apply(Run(SUMMARIES, 0, at, at + len(entries), entries))


@dataclass
class Desk:
    """All that summarises, over one history."""

    history: History
    now: list[float]
    policy: CutPolicy = POLICY
    summariser: FakeSummariser = field(default_factory=FakeSummariser)
    timeout_s: float = 30.0
    running: Summarising | None = None

    def __post_init__(self) -> None:
        self.log = FakeLog(self.history)

    def summarising(self) -> Summarising:
        return Summarising(
            self.history,
            self.summariser,
            self.log,
            self.policy,
            records="memory.records",
            timeout_s=self.timeout_s,
            before=self.log,
        )

    async def fold(self, log: Log, sizes: Sequence[int] = (), *, work: bool = False) -> Summarising:
        """Bring history and fold to the log's end, from wherever they stand. ``work``: summaries are made, too."""
        await given(self.history, log)
        if self.running is None:
            self.running = self.summarising()
        of: Any = self.running if work else self.running._state
        at = await of.open_partition(log.topic, 0, cluster_id="c", topic_id="t", end_offset=log.end)
        for run in log.runs(sizes):
            if run.next > at:
                rest = tuple(entry for entry in run.entries if entry.offset >= at)
                await self.running.apply(Run(run.topic, 0, max(at, run.expected), run.next, rest))
        return self.running

    async def stop(self) -> None:
        if self.running is not None:
            await self.running.stop()
            self.running = None

    async def dues(self) -> list[Due]:
        """Every summary that is due, or was made."""
        table = self.history._tables.due
        query = select(table).order_by(table.c.session_id, table.c.user_id, table.c.first, table.c.level)
        return await self.history._database.read(lambda connection: [Due.of(row) for row in connection.execute(query)])

    async def covered(self) -> list[tuple[str, ...]]:
        return [due.record_ids for due in await self.dues()]

    async def all_made(self) -> None:
        """Wait until nothing is due any more."""

        async def done() -> bool:
            return all(due.state for due in await self.dues())

        await eventually(done)

    async def active(self, of: Scope | None = None, **query: Any) -> tuple[StoredSummary, ...]:
        """The active summaries."""
        answer = await self.history.read_summaries(of or scope(users="all"), SummariesQuery(**query))
        return answer.answer.summaries


async def eventually(condition: Callable[[], Awaitable[Any]], *, within_s: float = 15.0) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(within_s):
        while not await condition():  # noqa: ASYNC110 - it is in SQL
            await asyncio.sleep(0.01)


OpenDesk = Callable[..., Awaitable[Desk]]
