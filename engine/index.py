"""Indexing: from a run of the derived topic to the vectors.

The vectors are a function of the derived topic: of each record the last derivation counts, and a tombstone or an
erasure deletes. Points are written on the condition that no later one is there, so that doing it again changes nothing.
That makes it safe to let the durable checkpoint lag: points can be found as soon as the store has taken them, and are
flushed about once a second, before the checkpoint moves (see :mod:`engramlog.engine.history.vectors`).

An owner that lost its partition may write a point after the new one took it out. It learns so when it moves the
checkpoint, and puts it back to where it had begun: from there everything is written again, in order, once more.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from engramlog.engine.history.vectors import VectorCheckpoints
from engramlog.engine.log import Entry, Run
from engramlog.engine.vectors.vectors import Change, Dropped, Left, Unhinted, Vectors, Written
from engramlog.schemas.derived import RecallChangedEvent, RecordDerived, WatermarkPassed
from engramlog.schemas.errors import EngramlogError, Fenced

_log = logging.getLogger(__name__)

FLUSH_EVERY_S = 1.0
"""How long what was written may lie unflushed."""

Place = tuple[str, int]


@dataclass(slots=True)
class _Open:
    """A partition that this process projects: where the store is, and where it is for good."""

    applied: int
    durable: int


class Indexing:
    """The projection of ``index``.

    Args:
        vectors: The vectors.
        checkpoints: How far they have come.
        records: The topic of the records, whose watermarks it passes.

    Attributes:
        vectors: The vectors that it writes to.
    """

    def __init__(self, vectors: Vectors, checkpoints: VectorCheckpoints, *, records: str) -> None:
        self.vectors = vectors
        self._checkpoints = checkpoints
        self._records = records
        self._open: dict[Place, _Open] = {}
        self._flusher: asyncio.Task[None] | None = None
        self._flushing = asyncio.Lock()
        self._reopen: Callable[[str, int], Awaitable[None]] | None = None

    def when_lost(self, reopen: Callable[[str, int], Awaitable[None]]) -> None:
        """Whom to tell of a partition that another owner had as well: if it is still ours, it is to be opened anew."""
        self._reopen = reopen

    async def open_partition(
        self, topic: str, partition: int, *, cluster_id: str | None, topic_id: str | None, end_offset: int
    ) -> int:
        """Where to go on: at what was flushed, see :meth:`History.open_partition`."""
        found = await self._checkpoints.open_partition(
            topic, partition, cluster_id=cluster_id, topic_id=topic_id, end_offset=end_offset
        )
        self._open[topic, partition] = _Open(found, found)
        return found

    def close_partition(self, topic: str, partition: int) -> None:
        """Nothing is kept of a partition that went to another owner."""

    async def apply(self, run: Run) -> None:
        """Write a run's points, and say up to which record they can be found.

        Raises:
            Fenced: The run is not the next one.
            Unprocessable: The store will never take one of its points.
            StoreUnavailable: The store does not answer.
        """
        state = self._open.get((run.topic, run.partition))
        if state is None or state.applied != run.expected:
            raise Fenced(f"{run.topic}/{run.partition} is not at {run.expected} here: it was given away meanwhile")
        changes = [change for entry in run.entries if (change := change_of(run, entry)) is not None]
        if changes:
            await self.vectors.apply(changes)
        if run.refused:
            await self._checkpoints.refuse(run)
        state.applied = run.next
        marks = [e.event.data.next for e in run.entries if isinstance(e.event, WatermarkPassed)]
        if marks:
            await self._checkpoints.cover(self._records, run.partition, marks[-1])
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush_now_and_then(), name="engramlog-flush")

    async def flush(self) -> None:
        """Make durable what was written, and move the checkpoints.

        Raises:
            StoreUnavailable: A store does not answer.
        """
        async with self._flushing:
            due = {place: s.applied for place, s in self._open.items() if s.applied > s.durable}
            if not due:
                return
            await self.vectors.flush()
            for (topic, partition), following in due.items():
                state = self._open[topic, partition]
                try:
                    await self._checkpoints.advance(Run(topic, partition, state.durable, following))
                except Fenced:
                    await self._give_back(topic, partition, state.durable)
                else:
                    state.durable = following

    async def _give_back(self, topic: str, partition: int, durable: int) -> None:
        """Another owner went on from the same place: whoever has it now does so again."""
        _log.info("%s-%d had another owner, too: it is indexed again from %d", topic, partition, durable)
        self._open.pop((topic, partition), None)
        await self._checkpoints.rewind(topic, partition, durable)
        if self._reopen is not None:
            await self._reopen(topic, partition)

    async def go_over(self, vectors: Vectors, checkpoints: VectorCheckpoints) -> None:
        """From now on write to another version of the vectors, each partition from where that stands."""
        try:
            await self.flush()
        except EngramlogError as error:
            _log.warning("the last points of the version before were not flushed: %s", error)
        before, self._open = self._open, {}
        self.vectors, self._checkpoints = vectors, checkpoints
        for place in before:
            if self._reopen is not None:
                await self._reopen(*place)

    async def stop(self) -> None:
        """Flush for the last time."""
        self._reopen = None
        if self._flusher is not None:
            self._flusher.cancel()
            with suppress(asyncio.CancelledError):
                await self._flusher
        try:
            await self.flush()
        except EngramlogError as error:
            _log.warning("the last points were not flushed, and will be written again: %s", error)

    async def _flush_now_and_then(self) -> None:
        while any(state.applied > state.durable for state in self._open.values()):
            await asyncio.sleep(FLUSH_EVERY_S)
            try:
                await self.flush()
            except EngramlogError as error:
                _log.warning("cannot flush the vectors, trying again: %s", error)


def change_of(run: Run, entry: Entry) -> Change | None:
    """What an entry of the derived topic changes; None: nothing."""
    event, key = entry.event, entry.key
    if isinstance(event, RecordDerived):
        return Written(event, sequence=entry.offset, partition=run.partition)
    if isinstance(event, RecallChangedEvent):
        return Left(event, partition=run.partition)
    if event is None and key.record_id is not None:
        return Dropped(key.tenant, key.agent, key.record_id, sequence=entry.offset)
    if event is None and key.agent:  # a mark was taken back: what it hid is looked up again
        return Unhinted(key.tenant, key.agent)
    return None
