"""Building a version of a projection: the log from where it stands, applied in order."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engramlog.engine.client.log_reader import Batch, LogReader
from engramlog.engine.decoding import Decoder
from engramlog.engine.log import Entry, Refused, Run, halves
from engramlog.engine.replay.targets import Place, Target
from engramlog.schemas.errors import (
    ConfigurationError,
    Fenced,
    InvalidEvent,
    Permanent,
    StoreUnavailable,
    Unprocessable,
)

_log = logging.getLogger(__name__)

POLL_MS = 20
RETRIES_S = (0.1, 0.4, 1.5, 5.0)
"""Pauses between the tries of one run while a store does not answer."""
LIVE_WAIT_S = 10.0
"""How long the live projection may need to come to an event that cannot be processed, and to dead-letter it."""
REPORT_EVERY_S = 0.2
FLUSH_EVERY_S = 0.2
"""While it follows the log: the live one flushes once a second, and a version that is behind it cannot take over."""

Report = Callable[["Progress"], None]
DeadLetter = Callable[[Any, InvalidEvent | Unprocessable], Awaitable[None]]
"""Publishes a message that cannot be processed to the dead letters."""


class ReplayStopped(Permanent):
    """An event cannot be processed that the live projection could, or has not seen."""

    reason = "replay_stopped"

    def __init__(self, projection: str, place: Place, offset: int, error: Exception, value: bytes | None) -> None:
        self.position = f"{place[0]}/{place[1]}@{offset}"
        self.error = error
        self.value = value
        self.projection = projection
        super().__init__(
            f"{projection} stops at {self.position}: {error}. Mend the projection and run the same command again, or "
            "pass over such events with --dead-letter-new"
        )


@dataclass(slots=True)
class Progress:
    """How far a build has come.

    Attributes:
        projection: What is built.
        version: Its number.
        begun_at: By partition, the offsets it began at.
        goal: By partition, the offsets it goes to: the log's ends, as last seen, or where it is to end.
        next: By partition, where it stands.
        applied: Events that were applied, tombstones included.
        passed: Events that were passed over, because the live projection dead-lettered them.
        dead_lettered: Events that were dead-lettered by this build.
        seconds: How long it has been at work.
    """

    projection: str
    version: int
    begun_at: dict[Place, int] = field(default_factory=dict)
    goal: dict[Place, int] = field(default_factory=dict)
    next: dict[Place, int] = field(default_factory=dict)
    applied: int = 0
    passed: int = 0
    dead_lettered: int = 0
    seconds: float = 0.0

    @property
    def lag(self) -> int:
        """How many offsets are missing to the goal."""
        return sum(max(0, end - self.next.get(place, 0)) for place, end in self.goal.items())

    @property
    def total(self) -> int:
        """How many offsets lie between beginning and goal."""
        return sum(max(0, end - self.begun_at.get(place, 0)) for place, end in self.goal.items())

    @property
    def events_per_s(self) -> float:
        """Events a second, on average."""
        return self.applied / self.seconds if self.seconds else 0.0

    @property
    def eta_s(self) -> float | None:
        """Seconds until the goal is reached, if it goes on like this; None: unknown."""
        done = self.total - self.lag
        return self.lag * self.seconds / done if done > 0 and self.seconds else None


@dataclass(slots=True)
class Build:
    """Builds one version.

    Attributes:
        target: What is built.
        reader: The log.
        decoder: What decodes it.
        cluster_id: The cluster's id; None: unknown.
        batch: How many messages are taken at once.
        dead_letter: Publishes what cannot be processed; None: such an event stops the build.
        report: Who is told about progress.
        pause_s: Pause after each run, in which writers of the same database get their turn, in seconds.
        progress: How far it has come.
    """

    target: Target
    reader: LogReader
    decoder: Decoder
    cluster_id: str | None = None
    batch: int = 2_000
    dead_letter: DeadLetter | None = None
    report: Report | None = None
    pause_s: float = 0.0
    progress: Progress = field(init=False)
    _refused: dict[Place, Mapping[int, str]] = field(default_factory=dict)
    _until: Mapping[Place, int] | None = None
    _reported: float = 0.0

    def __post_init__(self) -> None:
        self.progress = Progress(self.target.version.projection, self.target.version.number)

    async def open(self) -> None:
        """Find where to go on, in every partition.

        Raises:
            ConfigurationError: The version does not belong to this log.
            StoreUnavailable: A store does not answer.
            BrokerUnavailable: Kafka does not answer.
        """
        ends = await self.reader.ends()
        for place, end in ends.items():
            self.progress.next[place] = await self.target.open_partition(
                place, cluster_id=self.cluster_id, end_offset=end
            )
            self._refused[place] = await self.target.refused_live(place)
        self.progress.begun_at = dict(self.progress.next)
        self.progress.goal = dict(ends)
        self.reader.seek(self.progress.next)

    async def advance(self, until: Mapping[Place, int] | None = None) -> None:
        """Apply the log up to some offsets, exclusive, by default to its ends as they are now; then flush.

        Partitions that are not named are left where they are. One that is further already stays.

        Raises:
            ReplayStopped: An event cannot be processed.
            ConfigurationError: Somebody else builds the same version.
            StoreUnavailable: A store does not answer.
            BrokerUnavailable: Kafka does not answer.
        """
        goal = dict(await self.reader.ends() if until is None else until)
        self._until, self.progress.goal = goal, goal
        began, before = time.monotonic(), self.progress.seconds
        # What the consumer has fetched beyond an earlier goal was dropped: it is read again.
        self.reader.seek(self.progress.next)
        places = [*self.progress.next]
        self.reader.pause(place for place in places if self._is_done(place))
        self.reader.resume(place for place in places if not self._is_done(place))
        try:
            while self.progress.lag:
                await self._step()
                self.progress.seconds = before + time.monotonic() - began
                self._tell()
            await self.target.flush()
        finally:
            self.progress.seconds = before + time.monotonic() - began
            self._tell(always=True)

    async def follow(self, stop: asyncio.Event) -> None:
        """Apply whatever comes, as a live projection does, until told to stop; then flush. Errors as in advance."""
        self._until, self.target.closely = None, True
        self.reader.seek(self.progress.next)
        self.reader.resume([*self.progress.next])
        flushed = time.monotonic()
        while not stop.is_set():
            await self._step()
            if time.monotonic() - flushed > FLUSH_EVERY_S:  # also where there is always something to read
                await self.target.flush()
                flushed = time.monotonic()
        await self.target.flush()

    def _is_done(self, place: Place) -> bool:
        return self._until is not None and self.progress.next[place] >= self._until.get(place, 0)

    async def _step(self) -> None:
        batches = await self.reader.read(timeout_ms=POLL_MS, max_records=self.batch)
        for batch in batches:
            await self._take(batch)
        if not batches:
            await self.target.flush()

    async def _take(self, batch: Batch) -> None:
        place = batch.place
        expected = self.progress.next[place]
        end = batch.next if self._until is None else min(batch.next, self._until.get(place, 0))
        if end <= expected:
            return
        messages = [m for m in batch.messages if expected <= m.offset < end]
        run = await self._decoded(place, messages, expected, end)
        await self._apply(run, messages)
        self.progress.next[place] = end
        if self._is_done(place):
            self.reader.pause([place])
        if self.pause_s:
            await asyncio.sleep(self.pause_s)

    async def _decoded(self, place: Place, messages: Sequence[Any], expected: int, end: int) -> Run:
        entries, refused = list[Entry](), list[Refused]()
        for message in messages:
            try:
                entries.append(self.decoder.entry(message))
            except InvalidEvent as error:
                refused.append(await self._pass_over(message, error))
        return Run(*place, expected, end, tuple(entries), tuple(refused))

    async def _pass_over(self, message: Any, error: InvalidEvent | Unprocessable) -> Refused:
        """What cannot be processed: the live projection could not do it either, or it is new."""
        place = message.topic, message.partition
        if await self._is_refused_live(place, message.offset):
            self.progress.passed += 1
        elif self.dead_letter is None:
            raise ReplayStopped(str(self.target.version), place, message.offset, error, message.value) from error
        else:
            await self.dead_letter(message, error)
            self.progress.dead_lettered += 1
        return Refused(message.offset, error.reason)

    async def _is_refused_live(self, place: Place, offset: int) -> bool:
        """Whether the live projection has dead-lettered a position; if it did not come there yet, it is waited for."""
        until = time.monotonic() + LIVE_WAIT_S
        while offset not in self._refused[place]:
            passed = await self.target.applied_live(place) > offset  # before the refusals are read: none is missed
            self._refused[place] = await self.target.refused_live(place)
            if passed or time.monotonic() > until:
                break
            await asyncio.sleep(0.1)
        return offset in self._refused[place]

    async def _apply(self, run: Run, messages: Sequence[Any]) -> None:
        """Apply a run; halve it until what the store cannot hold stands alone."""
        try:
            await self._patiently(run)
        except Unprocessable as error:
            if len(run.entries) > 1:
                for half in halves(run):
                    await self._apply(half, messages)
                return
            spoilt = {entry.offset for entry in run.entries}
            passed = [await self._pass_over(message, error) for message in messages if message.offset in spoilt]
            await self._patiently(replace(run, entries=(), refused=(*run.refused, *passed)))
        else:
            self.progress.applied += len(run.entries)

    async def _patiently(self, run: Run) -> None:
        for pause_s in RETRIES_S:
            try:
                return await self.target.apply(run)
            except StoreUnavailable as error:
                _log.warning("trying again in %g s: %s", pause_s, error)
                await asyncio.sleep(pause_s)
            except Fenced as error:
                raise ConfigurationError(
                    f"{self.target.version} is being built by another process, too ({error}): let one of them do it"
                ) from error
        return await self.target.apply(run)

    def _tell(self, *, always: bool = False) -> None:
        now = time.monotonic()
        if self.report is not None and (always or now - self._reported >= REPORT_EVERY_S):
            self._reported = now
            self.report(self.progress)
