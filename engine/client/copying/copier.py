"""Copies one agent topic: into an empty topic, into an unfinished copy, or beside what others have written."""

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from engramlog.engine.client.copying.ordering import AgentTopic, everywhere, is_watermark
from engramlog.engine.client.copying.origin import Origin, origin_of, without_origin
from engramlog.engine.client.copying.places import Moved
from engramlog.engine.client.copying.translating import is_of_nothing, speaks_of_offsets, translated
from engramlog.engine.client.publisher import Outgoing, Publisher
from engramlog.engine.client.reader import Decoded, Message, decode, read, spans
from engramlog.schemas.codec import Codec
from engramlog.schemas.derived import Watermark, WatermarkPassed
from engramlog.schemas.errors import ConfigurationError, InvalidEvent, TooLarge, WrongKey
from engramlog.schemas.keys import Key, parse_key, partition_for

BATCH_MESSAGES, BATCH_BYTES = 1_000, 4_000_000
SOURCE = "engramlog/copy"


class Source(Protocol):
    """The originals."""

    @property
    def name(self) -> str:
        """What copies call the log."""

    @property
    def partitions(self) -> int:
        """Number of its partitions."""

    @property
    def codec(self) -> Codec[Any]:
        """What decodes its events."""

    def messages(self) -> AsyncGenerator[Message, None]:
        """The messages, in the order of :class:`~engramlog.engine.client.copying.ordering.Ordered`."""


@dataclass(slots=True)
class Copied:
    """What a copy did, or would do.

    Attributes:
        copied: Messages that were copied now.
        already_there: Messages whose copies were there before.
        bad: Messages that were left out, by reason.
        superseded: Derivations that were left out, because the copy of the record that they were made of is gone.
        translated: Events whose offsets were translated.
        watermarks: Watermarks that were written.
    """

    copied: int = 0
    already_there: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    superseded: int = 0
    translated: int = 0
    watermarks: int = 0


@dataclass(slots=True)
class Foreign:
    """What others than the copier have written to the copy.

    Attributes:
        messages: How many messages.
        agents: Whose, as tenant and agent.
        tenants: The tenants of these.
    """

    messages: int = 0
    agents: set[tuple[str, str]] = field(default_factory=set)
    tenants: set[str] = field(default_factory=set)

    def add(self, key: Key | None) -> None:
        """Note a message."""
        self.messages += 1
        if key is not None and not is_watermark(key):
            self.agents.add((key.tenant, key.agent))
            self.tenants.add(key.tenant)

    def concerns(self, key: Key) -> bool:
        """Whether a copy must not come to lie behind it: it would overtake what is newer, or what was erased."""
        if not key.agent:
            return key.tenant in self.tenants
        return (key.tenant, key.agent) in self.agents or (key.tenant, "") in self.agents


class Copier:
    """Copies one agent topic. Use it once: :meth:`look`, then call it, or :meth:`plan` what calling it would do.

    Args:
        source: The originals.
        target: The copy; exists, and takes log times from its producers.
        records: Where the records lie in their copy, for any other topic, which speaks of their offsets.
            None: these are the records.
        beside: Whether others may have written to the copy, as long as it is about other agents. False: nobody may.
        timeout_s: Limit of each batch, in seconds.
    """

    def __init__(
        self,
        source: Source,
        target: AgentTopic,
        *,
        records: Moved | None = None,
        beside: bool = False,
        timeout_s: float = 60.0,
    ) -> None:
        self._source, self._target = source, target
        self._beside = beside
        self._timeout_s = timeout_s
        self._publisher = Publisher(target.kafka)
        self.moved = Moved(target.partitions)
        self._records = records or self.moved
        self._shared: set[str] = set()
        self._batch: list[tuple[int, int, Outgoing]] = []
        self._batch_bytes = 0
        self._marks: dict[int, int] = {}
        self._marks_there: dict[int, int] = {}
        self.foreign = Foreign()
        self.copied = Copied()

    async def look(self) -> None:
        """Learn from the copy's headers how far it has come.

        Raises:
            ConfigurationError: The copy holds what is no copy of this original, and must not.
            BrokerUnavailable: Kafka does not answer.
        """
        target = self._target
        async with aclosing(read(target.kafka, target.name, partitions=range(target.partitions))) as messages:
            async for message in messages:
                self._look_at(message)
        if self.foreign.messages and not self._beside:
            raise ConfigurationError(
                f"{self.foreign.messages:,} messages of {target.name!r} are no copies from {self._source.name!r}: a "
                "copy of an older message must not overtake them; migrate to a prefix that is not in use"
            )

    async def __call__(self) -> Copied:
        """Copy what the original holds and the copy does not.

        Raises:
            ConfigurationError: The copy holds something of others about the same agent.
            DeadlineExceeded: A batch was not acknowledged in time; copying again goes on from there.
            BrokerUnavailable: Kafka does not answer; likewise.
        """
        try:
            async with aclosing(self._source.messages()) as messages:
                async for message in messages:
                    await self._copy(message)
            await self._flush()
            await self._write_watermarks()
            return self.copied
        finally:
            await self._publisher.stop()

    def plan(self, message: Message) -> Key | None:
        """Count what would become of a message; nothing is published. Whose it is; None: it would be left out.

        Raises:
            ConfigurationError: The copy holds something of others about the same agent.
        """
        if self._is_there(message):
            self.copied.already_there += 1
            return parse_key(message.key)
        decoded = decode(message, self._source.codec, partitions=self._source.partitions)
        if decoded.error is not None or decoded.key is None:
            self.copied.bad[decoded.error.reason if decoded.error else WrongKey.reason] += 1
            return None
        name = everywhere(decoded.key, decoded.event, message.key or b"")
        if is_watermark(decoded.key) or (name is not None and name in self._shared):
            return decoded.key
        self.copied.translated += speaks_of_offsets(decoded.event)
        if name is not None:
            self._shared.add(name)
            if self.moved.everywhere[name].new.keys() >= {*range(self._target.partitions)}:
                self.copied.already_there += 1
                return decoded.key
        self._refuse_overtaking(decoded.key)
        self.copied.copied += 1
        return decoded.key

    def _look_at(self, message: Message) -> None:
        origin, position = origin_of(message), message.position
        ours = origin is not None and origin.log == self._source.name
        try:
            key = parse_key(message.key)
            event = None if key.agent or message.value is None else self._target.codec.decode(message.value)
        except InvalidEvent:
            self.foreign.add(None)
            return
        if not ours or origin is None:
            self.foreign.add(key)
        elif key.agent:
            self.moved.of(origin.partition, position.partition).add(origin.offset, position.offset)
        elif isinstance(event, WatermarkPassed):
            self._marks_there[event.data.partition] = event.data.next
        elif (name := everywhere(key, event, message.key or b"")) is not None:
            self.moved.everywhere[name].new.setdefault(position.partition, position.offset)

    async def _copy(self, message: Message) -> None:
        if self._is_there(message):
            self.copied.already_there += 1
            return
        decoded = decode(message, self._source.codec, partitions=self._source.partitions)
        if decoded.error is not None or decoded.key is None:
            self.copied.bad[decoded.error.reason if decoded.error else WrongKey.reason] += 1
            return
        key, partition = decoded.key, message.position.partition
        if is_watermark(key):
            if isinstance(decoded.event, WatermarkPassed):
                self._marks[decoded.event.data.partition] = decoded.event.data.next
            return
        name = everywhere(key, decoded.event, message.key or b"")
        if name is not None:
            await self._copy_everywhere(name, decoded)
            return
        self._refuse_overtaking(key)
        to = partition_for(key.tenant, key.agent, self._target.partitions)
        if is_of_nothing(decoded.event, (partition, to), self._records):
            self.copied.superseded += 1
            return
        value = await self._translated(decoded, to)
        if value is not None and len(value) > self._target.codec.max_bytes:  # larger numbers, and it was full
            self.copied.bad[TooLarge.reason] += 1
            return
        self._batch.append((partition, message.position.offset, self._outgoing(message, to, value)))
        self._batch_bytes += len(value or b"")
        if len(self._batch) >= BATCH_MESSAGES or self._batch_bytes >= BATCH_BYTES:
            await self._flush()

    def _is_there(self, message: Message) -> bool:
        """Whether an agent's message has been copied before."""
        try:
            key = parse_key(message.key)
        except WrongKey:
            return False
        if not key.agent:
            return False
        to = partition_for(key.tenant, key.agent, self._target.partitions)
        return message.position.offset < self.moved.of(message.position.partition, to).next

    def _refuse_overtaking(self, key: Key) -> None:
        if self.foreign.concerns(key):
            whose = f"agent {key.agent!r} of tenant {key.tenant!r}" if key.agent else f"tenant {key.tenant!r}"
            raise ConfigurationError(
                f"{self._target.name!r} holds messages about {whose} that are no copies from {self._source.name!r}: "
                "older ones must not overtake them; take a prefix that is not in use"
            )

    def _outgoing(self, message: Message, partition: int, value: bytes | None) -> Outgoing:
        origin = Origin(self._source.name, message.position.partition, message.position.offset)
        headers = (*without_origin(message), origin.header())
        recorded_ms = round(message.recorded.timestamp() * 1000)
        return Outgoing(self._target.name, partition, message.key, value, headers, recorded_ms)

    async def _translated(self, decoded: Decoded, to: int) -> bytes | None:
        """The value of a copy, with its offsets as those of the new partition."""
        event, value, partition = decoded.event, decoded.message.value, decoded.message.position.partition
        if event is None or value is None or not speaks_of_offsets(event):
            return value
        if self._records is self.moved and any(p == partition and o.partition == to for p, _, o in self._batch):
            await self._flush()  # the new offsets must be known
        self.copied.translated += 1
        return translated(event, value, (partition, to), self._records, codec=self._source.codec)

    async def _flush(self) -> None:
        if not self._batch:
            return
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        positions = await self._publisher.publish([outgoing for _, _, outgoing in batch], timeout_s=self._timeout_s)
        for (partition, offset, outgoing), position in zip(batch, positions, strict=True):
            self.moved.of(partition, outgoing.partition).add(offset, position.offset)
        self.copied.copied += len(batch)

    async def _copy_everywhere(self, name: str, decoded: Decoded) -> None:
        """Copy what lies in every partition, once to each new one; its other copies only say where it lay."""
        message, shared = decoded.message, self.moved.everywhere[name]
        shared.old.setdefault(message.position.partition, message.position.offset)
        if name in self._shared:
            return
        self._shared.add(name)
        missing = [n for n in range(self._target.partitions) if n not in shared.new]
        if not missing:
            self.copied.already_there += 1
            return
        if decoded.key is not None:
            self._refuse_overtaking(decoded.key)
        await self._flush()
        batch = [self._outgoing(message, n, await self._translated(decoded, n)) for n in missing]
        for position in await self._publisher.publish(batch, timeout_s=self._timeout_s):
            shared.new[position.partition] = position.offset
        self.copied.copied += 1

    async def _write_watermarks(self) -> None:
        """How far the copies of the records are derived: what the old watermarks say of the new partitions.

        Not where others have written, too: there ``derive`` says so itself.
        """
        if not self._marks or self.foreign.messages:
            return
        topic = self._target.name
        ends = _ends_of(self._records)
        passed = {n: self._records.passed(self._marks, n, end=ends[n]) for n in range(self._target.partitions)}
        wanted = {n: offset for n, offset in passed.items() if offset > self._marks_there.get(n, 0)}
        batch = [
            Outgoing(topic, n, mark.key(), self._target.codec.encode(mark), (Origin(self._source.name, n, 0).header(),))
            for n, mark in ((n, _mark(n, offset)) for n, offset in wanted.items())
        ]
        if batch:
            await self._publisher.publish(batch, timeout_s=self._timeout_s)
        self.copied.watermarks = len(batch)


def _ends_of(moved: Moved) -> Mapping[int, int]:
    """By new partition, the offset behind its last copy."""
    ends = dict.fromkeys(range(moved.partitions), 0)
    for (_, new), places in moved.places.items():
        if places.new:
            ends[new] = max(ends[new], places.new[-1] + 1)
    for shared in moved.everywhere.values():
        for new, offset in shared.new.items():
            ends[new] = max(ends[new], offset + 1)
    return ends


def _mark(partition: int, offset: int) -> WatermarkPassed:
    """A watermark as ``derive`` writes one; its time says nothing, for it is always the same copy's."""
    return WatermarkPassed(
        id=f"watermark-{partition}",
        source=SOURCE,
        time=datetime(1970, 1, 1, tzinfo=UTC),
        data=Watermark(partition=partition, next=offset),
    )


async def ends_of(topic: AgentTopic) -> dict[int, int]:
    """By partition, the end of a topic as it is now.

    Raises:
        ConfigurationError: It does not exist.
        BrokerUnavailable: Kafka does not answer.
    """
    held = await spans(topic.kafka, {topic.name: topic.partitions})
    return {partition: span.end for (_, partition), span in held.items()}


def lag(ends: Mapping[int, int], later: Mapping[int, int]) -> int:
    """How many offsets lie between earlier ends and later ones."""
    return sum(end - ends[partition] for partition, end in later.items())
