"""What was derived before, as the derived topic has it: for a ``derive`` that lost its state, and not its log.

Nothing is computed again that was published: the model's vector and the turn of each record are taken from there. The
topic is read once for an index (16 bytes a derivation), and a second time along with the records; neither its length
nor the size of its events matters to memory.
"""

import asyncio
from array import array
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engramlog.engine.ports import Matrix
from engramlog.engine.texts import embeddable
from engramlog.schemas.codec import derived_codec
from engramlog.schemas.derived import Derived, DerivedEvent, RecordDerived, WatermarkPassed
from engramlog.schemas.envelope import RecordWritten
from engramlog.schemas.errors import ConfigurationError, InvalidEvent

_TAIL = 256
"""How much of the topic's end is looked through for a watermark first: more than a run."""
_FAR = 4_096
"""A message that lies farther ahead is gone to at once, instead of reading up to it."""
Places: TypeAlias = NDArray[np.int64]
"""Offsets."""


@dataclass(frozen=True, slots=True)
class Lying:
    """A message of the derived topic.

    Attributes:
        offset: Where it lies.
        value: Its bytes; None: a tombstone.
    """

    offset: int
    value: bytes | None


class DerivedReader(Protocol):
    """The derived topic, as it can be read."""

    async def span(self, partition: int) -> tuple[int, int]:
        """The first offset of a partition, and the one that its next message will get.

        Raises:
            BrokerUnavailable: Kafka does not answer.
            ConfigurationError: Kafka refuses.
        """

    def read(self, partition: int, start: int) -> AsyncGenerator[Lying, None]:
        """The messages from an offset on, up to where the end is when reading begins. Errors as above."""


async def passed(reader: DerivedReader, partition: int) -> int:
    """How far the records of a partition were derived, as the newest watermarks say; 0: there is none.

    Costs the end of the topic: a watermark is the last message of each run.
    """
    begin, end = await reader.span(partition)
    back = _TAIL
    while begin < end:
        start = max(begin, end - back)
        found = 0
        async with aclosing(reader.read(partition, start)) as messages:
            async for message in messages:
                event = decoded(message)
                if isinstance(event, WatermarkPassed):
                    found = max(found, event.data.next)
        if found or start == begin:
            return found
        back *= 16
    return 0


class Recorded:
    """The derivations of one partition, found by where their records lie.

    Args:
        reader: The derived topic.
        partition: The partition.
    """

    def __init__(self, reader: DerivedReader, partition: int) -> None:
        self._reader, self._partition = reader, partition
        self._index: tuple[Places, Places] | None = None
        self._stream: AsyncGenerator[Lying, None] | None = None
        self._next = 0
        self._lock = asyncio.Lock()

    async def of(self, events: Iterable[tuple[int, RecordWritten]]) -> dict[int, list[RecordDerived]]:
        """What was derived of these records, by their offsets, in the order in which it was published.

        There is more than one where a record was corrected, or derived again after a crash.

        Raises:
            ConfigurationError: The topic belongs to another log; or Kafka refuses.
            BrokerUnavailable: Kafka does not answer; asked again, it goes on.
        """
        async with self._lock:
            offsets, positions = self._index = self._index or await self._indexed()
            wanted: list[tuple[int, int, RecordWritten]] = []
            for offset, event in events:
                first, last = np.searchsorted(offsets, [offset, offset + 1])
                wanted += [(int(position), offset, event) for position in positions[first:last]]
            found: dict[int, list[RecordDerived]] = {}
            for position, offset, event in sorted(wanted, key=lambda one: one[0]):
                derived = await self._at(position)
                if derived is not None:
                    self._check(derived, event, offset)
                    found.setdefault(offset, []).append(derived)
        return found

    async def close(self) -> None:
        """Read no more."""
        async with self._lock:
            await self._close()

    async def _indexed(self) -> tuple[Places, Places]:
        offsets, positions = array("q"), array("q")
        begin, _ = await self._reader.span(self._partition)
        async with aclosing(self._reader.read(self._partition, begin)) as messages:
            async for message in messages:
                event = decoded(message)
                if isinstance(event, RecordDerived):
                    offsets.append(event.data.offset)
                    positions.append(message.offset)
        found, places = np.array(offsets, dtype=np.int64), np.array(positions, dtype=np.int64)
        order = np.argsort(found, kind="stable")  # of one record in the order of the topic
        return found[order], places[order]

    async def _at(self, position: int) -> RecordDerived | None:
        """The derivation at a position; None: compaction took it meanwhile."""
        if self._stream is None or not self._next <= position <= self._next + _FAR:
            await self._close()
            self._stream, self._next = self._reader.read(self._partition, position), position
        try:
            while (message := await anext(self._stream, None)) is not None:
                self._next = message.offset + 1
                if message.offset >= position:
                    break
        except BaseException:
            await self._close()
            raise
        if message is None or message.offset != position:
            await self._close()
            return None
        event = decoded(message)
        return event if isinstance(event, RecordDerived) else None

    async def _close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.aclose()

    def _check(self, derived: RecordDerived, event: RecordWritten, offset: int) -> None:
        """At one place there lies one record, for ever."""
        theirs = derived.tenantid, derived.agentid, derived.data.record_id
        ours = event.tenantid, event.agentid, event.data.record_id
        if theirs != ours:
            raise ConfigurationError(
                f"the derived topic belongs to other records: at offset {offset} of partition {self._partition} it "
                f"knows {'/'.join(theirs)}, but {'/'.join(ours)} lies there; was the topic of records made anew? "
                "Then delete the derived topics, too, so that everything is derived again"
            )


def first_vector(derived: Derived) -> Matrix | None:
    """The vector of the first chunk; None: the record has none."""
    vectors = derived.embedding
    if vectors is None:
        return None
    return np.frombuffer(vectors.packed(), dtype="<f4", count=vectors.dimension).astype(np.float32)


def original(copies: Sequence[RecordDerived], event: RecordWritten) -> Derived | None:
    """What was derived of a record as it was written, and not as it was corrected later; None: that is gone.

    A correction is derived in its record's place, but has its own time, and hardly ever the same length.
    """
    length = len(embeddable(event.data, None))
    for copy in reversed(copies):
        data = copy.data
        covered = data.embedding.spans[-1][1] if data.embedding is not None else 0
        if copy.time == event.time and covered + data.unembedded == length:
            return data
    return None


def decoded(message: Lying) -> DerivedEvent | None:
    """What a message says; None: it is a tombstone, or cannot be read."""
    if message.value is None:
        return None
    try:
        event: DerivedEvent = derived_codec().decode(message.value)
    except InvalidEvent:  # it is a dead letter of those who project the topic
        return None
    return event
