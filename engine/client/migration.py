"""Migration: an agent topic copied, event by event, to another prefix or another number of partitions.

What must hold afterwards is that a rebuild from the copy remembers what a rebuild from the original does:

- Every good message is copied in its partition's order, tombstones and superseded copies too: so the last copies, and
  the order of each agent, are those of the original. What was a dead letter is left out.
- A mark's ``at`` is an offset: it becomes the one below which the same messages of the agent lie.
- An entry of the erasure ledger without an agent lies in every partition. It is published once to each new one, after
  all that any old partition had before it, and before all that came after it: the partitions wait for each other.
- The log time of a message stays: the copy's topic takes it from the copier until the copy is complete. Until then
  that topic is one that no process of ours runs on.

A copy names its original in the header :data:`ORIGIN`. So a copy that was interrupted goes on where it ended, and so
does one whose original has grown since; what somebody else has written to the copy is noticed.
"""

import json
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from engramlog.engine.client.connection import KafkaConfig
from engramlog.engine.client.publisher import Outgoing, Publisher
from engramlog.engine.client.reader import Message, decode, read, spans
from engramlog.schemas.codec import Codec
from engramlog.schemas.envelope import Envelope
from engramlog.schemas.errors import ConfigurationError, WrongKey
from engramlog.schemas.keys import Key, parse_key, partition_for
from engramlog.schemas.records import ScopeErased

ORIGIN = "engramlog-copy-of"
"""Header of a copy: ``topic/partition/offset`` of its original."""

_BATCH_MESSAGES, _BATCH_BYTES = 1_000, 4_000_000


@dataclass(frozen=True, slots=True)
class AgentTopic:
    """An agent topic.

    Attributes:
        kafka: The cluster.
        name: Full name.
        partitions: Number of its partitions.
        codec: What decodes its events.
    """

    kafka: KafkaConfig
    name: str
    partitions: int
    codec: Codec[Any]


@dataclass(slots=True)
class Copied:
    """What a copy did.

    Attributes:
        copied: Messages that were copied now.
        already_there: Messages whose copies were there before.
        bad: Messages that were left out, by reason.
        marks: Marks whose ``at`` was translated.
        until: By partition, the offset up to which the original was read.
    """

    copied: int = 0
    already_there: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    marks: int = 0
    until: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Places:
    """Where the messages of one old partition that go to one new partition lie: old and new offsets, ascending."""

    old: "array[int]" = field(default_factory=lambda: array("q"))
    new: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, old: int, new: int) -> None:
        """Note one. An older one that was copied again takes those after it with it: they will be, too."""
        while self.old and self.old[-1] >= old:
            self.old.pop()
            self.new.pop()
        self.old.append(old)
        self.new.append(new)

    @property
    def next(self) -> int:
        """Old offset from which on nothing was copied."""
        return self.old[-1] + 1 if self.old else 0

    def translate(self, at: int) -> int:
        """The new offset below which exactly those lie that lay below ``at``."""
        before = bisect_left(self.old, at)
        return self.new[before - 1] + 1 if before else 0


def everywhere(key: Key, event: Envelope | None, raw: bytes) -> str | None:
    """What identifies a message that lies in every partition, in each of them; None: it is one agent's.

    Of the ledger entries of one request only the first counts, whatever their ids.
    """
    if key.agent:
        return None
    data = getattr(event, "data", None)
    if isinstance(data, ScopeErased) and data.request_id is not None and event is not None:
        return f"request {event.tenantid}/{event.userid or ''}/{data.request_id}"
    return f"{'tombstone' if event is None else 'event'} {raw.decode()}"


@dataclass(slots=True)
class Meeting:
    """Where the old partitions wait for each other: a message of every partition is copied when all have come to it.

    Attributes:
        partitions: The old partitions.
        done: What was copied.
    """

    partitions: frozenset[int]
    done: set[str] = field(default_factory=set)
    _arrived: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    _waiting: dict[int, str] = field(default_factory=dict)
    _ended: set[int] = field(default_factory=set)

    def arrive(self, partition: int, name: str) -> bool:
        """A partition came to such a message; whether it must wait there."""
        if name in self.done or partition in self._arrived[name]:
            return False
        self._arrived[name].add(partition)
        self._waiting[partition] = name
        return True

    def end(self, partition: int) -> None:
        """A partition has no more messages."""
        self._ended.add(partition)

    def next(self) -> str | None:
        """What all have come to; None: nothing.

        Two that were written at the same time may lie in either order. Then the partitions that wait for the one that
        fewer have come to go on to the other: it erases what was recorded in between as well.
        """
        open_ = {name for name in self._arrived if name not in self.done}
        for name in sorted(open_):
            if self._arrived[name] | self._ended >= self.partitions:
                self.done.add(name)
                self._waiting = {p: n for p, n in self._waiting.items() if n != name}
                return name
        if open_ and not self.ready():
            most = max(sorted(open_), key=lambda name: len(self._arrived[name]))
            self._waiting = {p: n for p, n in self._waiting.items() if n == most}
        return None

    def ready(self) -> list[int]:
        """The partitions that can go on."""
        return sorted(self.partitions - self._ended - self._waiting.keys())


class Copier:
    """Copies one agent topic. Use it once.

    Args:
        source: The original.
        target: The copy; exists, and takes log times from its producers.
        timeout_s: Limit of each batch, in seconds.
        on_read: Called with the number of messages that were read or skipped, again and again.
    """

    def __init__(
        self,
        source: AgentTopic,
        target: AgentTopic,
        *,
        timeout_s: float = 60.0,
        on_read: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._source, self._target = source, target
        self._timeout_s = timeout_s
        self._on_read = on_read
        self._publisher = Publisher(target.kafka)
        self._places: dict[tuple[int, int], Places] = defaultdict(Places)
        self._meeting = Meeting(frozenset(range(source.partitions)))
        self._lies_in: dict[str, set[int]] = defaultdict(set)
        self._shared: dict[str, Outgoing] = {}
        self._batch: list[tuple[int, int, Outgoing]] = []
        self._batch_bytes = 0
        self.copied = Copied()

    async def __call__(self) -> Copied:
        """Copy what the original holds now and the copy does not. :meth:`look` first.

        Raises:
            DeadlineExceeded: A batch was not acknowledged in time; copying again goes on from there.
            BrokerUnavailable: Kafka does not answer; likewise.
        """
        try:
            held = await spans(self._source.kafka, {self._source.name: self._source.partitions})
            ends = {n: span.end for (_, n), span in held.items()}
            reading = {n: span.begin for (_, n), span in held.items()}
            while ready := self._meeting.ready():
                for partition in ready:
                    reading[partition] = await self._copy_partition(partition, reading[partition], ends[partition])
                await self._flush()
                while (name := self._meeting.next()) is not None:
                    await self._copy_everywhere(name)
            self.copied.until = ends
            return self.copied
        finally:
            await self._publisher.stop()

    async def look(self) -> None:
        """Learn from the copy's headers how far it has come.

        Raises:
            ConfigurationError: The copy holds what is no copy of this original.
            BrokerUnavailable: Kafka does not answer.
        """
        foreign = 0
        async with aclosing(_all_of(self._target)) as messages:
            async for message in messages:
                origin = _origin_of(message, self._source)
                if origin is None:
                    foreign += 1
                    continue
                key, position = parse_key(message.key), message.position
                if key.agent:
                    self._places[origin[0], position.partition].add(origin[1], position.offset)
                    continue
                event = None if message.value is None else self._target.codec.decode(message.value)
                self._lies_in[everywhere(key, event, message.key or b"") or ""].add(position.partition)
        if foreign:
            raise ConfigurationError(
                f"{foreign:,} messages of {self._target.name!r} are no copies from {self._source.name!r}: a copy of an "
                "older message must not overtake them; migrate to a prefix that is not in use"
            )

    async def _copy_partition(self, partition: int, start: int, end: int) -> int:
        """Copy a partition up to its end, or to where it must wait for the others; the offset to go on from."""
        source = self._source
        if start < end:
            async with aclosing(
                read(source.kafka, source.name, partitions=[partition], start={partition: start})
            ) as messages:
                async for message in messages:
                    offset = message.position.offset
                    if offset >= end:
                        break
                    self._on_read(offset + 1 - start)
                    start = offset + 1
                    if await self._copy(message):
                        return start
            self._on_read(end - start)
        self._meeting.end(partition)
        return end

    async def _copy(self, message: Message) -> bool:
        """Copy one message; whether its partition must wait now."""
        partition, offset = message.position.partition, message.position.offset
        if (there := self._already(message)) is not None and offset < self._places[partition, there].next:
            self.copied.already_there += 1
            return False
        decoded = decode(message, self._source.codec, partitions=self._source.partitions)
        if decoded.error is not None:
            self.copied.bad[decoded.error.reason] += 1
            return False
        key = parse_key(message.key)
        outgoing = Outgoing(
            self._target.name,
            0,
            message.key,
            message.value,
            (*_without_origin(message), (ORIGIN, f"{self._source.name}/{partition}/{offset}".encode())),
            round(message.recorded.timestamp() * 1000),
        )
        name = everywhere(key, decoded.event, message.key or b"")
        if name is not None:
            self._shared[name] = outgoing
            return self._meeting.arrive(partition, name)
        to = partition_for(key.tenant, key.agent, self._target.partitions)
        value = await self._translated(decoded.event, message.value, partition, to)
        self._batch.append((partition, offset, replace(outgoing, partition=to, value=value)))
        self._batch_bytes += len(message.value or b"")
        if len(self._batch) >= _BATCH_MESSAGES or self._batch_bytes >= _BATCH_BYTES:
            await self._flush()
        return False

    def _already(self, message: Message) -> int | None:
        """The new partition that a message goes to; None: it is no agent's."""
        try:
            key = parse_key(message.key)
        except WrongKey:
            return None
        return partition_for(key.tenant, key.agent, self._target.partitions) if key.agent else None

    async def _translated(self, event: Envelope | None, value: bytes | None, partition: int, to: int) -> bytes | None:
        """The value of a copy: with the ``at`` of a mark as an offset of the new partition."""
        at = at_of(event)
        if at is None or value is None:
            return value
        if any(p == partition and o.partition == to for p, _, o in self._batch):
            await self._flush()  # the new offsets must be known
        new = self._places[partition, to].translate(at)
        self.copied.marks += 1
        return value if new == at else with_at(self._source.codec.decode_current(value)[1], new)

    async def _flush(self) -> None:
        if not self._batch:
            return
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        positions = await self._publisher.publish([outgoing for _, _, outgoing in batch], timeout_s=self._timeout_s)
        for (partition, offset, outgoing), position in zip(batch, positions, strict=True):
            self._places[partition, outgoing.partition].add(offset, position.offset)
        self.copied.copied += len(batch)

    async def _copy_everywhere(self, name: str) -> None:
        missing = set(range(self._target.partitions)) - self._lies_in[name]
        batch = [replace(self._shared[name], partition=partition) for partition in sorted(missing)]
        if batch:
            await self._publisher.publish(batch, timeout_s=self._timeout_s)
            self.copied.copied += 1
        else:
            self.copied.already_there += 1


def at_of(event: Envelope | None) -> int | None:
    """The offset at which a mark was resolved; None: none, or no mark."""
    at = getattr(getattr(event, "data", None), "at", None)
    return at if isinstance(at, int) else None


def with_at(value: bytes, at: int) -> bytes:
    """An encoded mark, resolved at another offset."""
    document = json.loads(value)
    document["data"]["at"] = at
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _all_of(topic: AgentTopic) -> Any:
    return read(topic.kafka, topic.name, partitions=range(topic.partitions))


def _origin_of(message: Message, source: AgentTopic) -> tuple[int, int] | None:
    """Partition and offset of the original; None: it is no copy from there."""
    values = [value for name, value in message.headers if name == ORIGIN]
    if not values or not values[-1]:
        return None
    topic, _, rest = values[-1].decode(errors="replace").partition("/")
    partition, _, offset = rest.partition("/")
    if topic != source.name or not (partition.isdecimal() and offset.isdecimal()):
        return None
    return int(partition), int(offset)


def _without_origin(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(header for header in message.headers if header[0] != ORIGIN)
