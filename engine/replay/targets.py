"""What a replay builds: a version of the history, or of the vectors."""

from collections.abc import Mapping
from typing import Any, Protocol

from engramlog.engine.history import History
from engramlog.engine.history.vectors import VectorCheckpoints
from engramlog.engine.history.versions import Version
from engramlog.engine.index import change_of
from engramlog.engine.log import Run
from engramlog.engine.vectors.vectors import Vectors
from engramlog.schemas.codec import Codec, derived_codec, records_codec, summaries_codec
from engramlog.schemas.derived import WatermarkPassed
from engramlog.schemas.errors import Fenced
from engramlog.schemas.topics import Topics

FLUSH_EVERY = 20_000
"""After so many events what was written to the vectors is flushed, and their checkpoint moves."""

Place = tuple[str, int]
"""Topic and partition."""


class Target(Protocol):
    """A version of a projection, as a replay builds it.

    Attributes:
        version: The version.
        codecs: What decodes the events of the topics that it is built from, by full topic name.
        closely: Whether readers are to be told at once what is applied, because it is about to take over.
    """

    version: Version
    codecs: Mapping[str, Codec[Any]]
    closely: bool

    async def open_partition(self, place: Place, *, cluster_id: str | None, end_offset: int) -> int:
        """The offset to go on at: 0 at first, later what is durable.

        Raises:
            ConfigurationError: The version does not belong to this log.
        """

    async def apply(self, run: Run) -> None:
        """Apply a run of one partition.

        Raises:
            Fenced: Somebody else builds the same version.
            Unprocessable: It cannot hold an event of the run.
            StoreUnavailable: The store does not answer.
        """

    async def flush(self) -> None:
        """Make durable what was applied. After this, whoever opens the version goes on behind it."""

    async def refused_live(self, place: Place) -> Mapping[int, str]:
        """The positions of a partition that the active version has dead-lettered, and why."""

    async def applied_live(self, place: Place) -> int:
        """The offset that the active version wants next."""


class HistoryTarget:
    """A version of the history.

    Args:
        live: The history that is in use.
        version: What is built.
        topics: The engine's topics.
    """

    def __init__(self, live: History, version: Version, topics: Topics) -> None:
        self.version = version
        self.closely = False
        self.history = live.of(version)
        self._live = live
        self.codecs: Mapping[str, Codec[Any]] = {
            topics.records: records_codec(),
            topics.derived_of(version.generation): derived_codec(),
            topics.summaries: summaries_codec(),
        }

    async def open_partition(self, place: Place, *, cluster_id: str | None, end_offset: int) -> int:
        """See :class:`Target`."""
        return await self.history.open_partition(*place, cluster_id=cluster_id, topic_id=None, end_offset=end_offset)

    async def apply(self, run: Run) -> None:
        """See :class:`Target`: rows and checkpoint in one transaction."""
        await self.history.apply(run)

    async def flush(self) -> None:
        """See :class:`Target`: every run was durable at once."""

    async def refused_live(self, place: Place) -> Mapping[int, str]:
        """See :class:`Target`."""
        return await self._live.refused(*place)

    async def applied_live(self, place: Place) -> int:
        """See :class:`Target`."""
        return (await self._live.next_offsets()).get(place, 0)


class VectorsTarget:
    """A version of the vectors: a collection that nobody else writes to.

    What was applied is made durable now and then, and so is the checkpoint. After a kill it is written again from
    there, in the same order, and ends in the same state.

    Args:
        vectors: The collection.
        live: The history that is in use: it keeps the checkpoints.
        version: What is built.
        before: The version that is active now.
        topics: The engine's topics.
    """

    def __init__(self, vectors: Vectors, live: History, version: Version, before: Version, topics: Topics) -> None:
        self.version = version
        self.closely = False
        self.vectors = vectors
        self.codecs: Mapping[str, Codec[Any]] = {topics.derived_of(version.generation): derived_codec()}
        self._records = topics.records
        self._checkpoints: VectorCheckpoints = live.vectors(version.checkpoints)
        self._live: VectorCheckpoints = live.vectors(before.checkpoints)
        self._applied: dict[Place, int] = {}
        self._durable: dict[Place, int] = {}
        self._covered: dict[int, int] = {}
        self._unflushed = 0

    async def open_partition(self, place: Place, *, cluster_id: str | None, end_offset: int) -> int:
        """See :class:`Target`."""
        found = await self._checkpoints.open_partition(
            *place, cluster_id=cluster_id, topic_id=None, end_offset=end_offset
        )
        self._applied[place] = self._durable[place] = found
        return found

    async def apply(self, run: Run) -> None:
        """See :class:`Target`. Found at once, durable after the next flush."""
        place = run.topic, run.partition
        if self._applied.get(place) != run.expected:
            raise Fenced(f"{run.topic}/{run.partition} is not at {run.expected} here")
        changes = [change for entry in run.entries if (change := change_of(run, entry)) is not None]
        if changes and self.closely:
            await self.vectors.apply(changes)
        elif changes:
            await self.vectors.build(changes)
        if run.refused:
            await self._checkpoints.refuse(run)
        marks = [entry.event.data.next for entry in run.entries if isinstance(entry.event, WatermarkPassed)]
        if marks:
            self._covered[run.partition] = marks[-1]
            if self.closely:
                await self._checkpoints.cover(self._records, run.partition, marks[-1])
        self._applied[place] = run.next
        self._unflushed += len(run.entries)
        if self._unflushed >= FLUSH_EVERY:
            await self.flush()

    async def flush(self) -> None:
        """See :class:`Target`."""
        self._unflushed = 0
        due = {place: offset for place, offset in self._applied.items() if offset > self._durable[place]}
        covered = dict(self._covered)
        if not due:
            return
        await self.vectors.flush()
        for (topic, partition), offset in due.items():
            await self._checkpoints.advance(Run(topic, partition, self._durable[topic, partition], offset))
            self._durable[topic, partition] = offset
        for partition, following in covered.items():
            await self._checkpoints.cover(self._records, partition, following)

    async def refused_live(self, place: Place) -> Mapping[int, str]:
        """See :class:`Target`."""
        return await self._live.refused(*place)

    async def applied_live(self, place: Place) -> int:
        """See :class:`Target`."""
        return await self._live.current(*place)
