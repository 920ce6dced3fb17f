"""In which order partitions are copied: a message of every partition comes when all that lay before it have come."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from engramlog.engine.client.connection import KafkaConfig
from engramlog.engine.client.reader import Message, decode, read, spans
from engramlog.schemas.codec import Codec
from engramlog.schemas.envelope import Envelope
from engramlog.schemas.errors import WrongKey
from engramlog.schemas.keys import Key, parse_key
from engramlog.schemas.records import ScopeErased

WATERMARK_TENANT = "~"
"""The tenant of a watermark's key; no tenant's name can be written like this in a key."""


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


def is_watermark(key: Key) -> bool:
    """Whether a key is that of a partition's watermark."""
    return key.tenant == WATERMARK_TENANT and not key.agent


def everywhere(key: Key, event: Envelope | None, raw: bytes) -> str | None:
    """What identifies a message that lies in every partition, in each of them; None: it lies in one.

    Of the ledger entries of one request only the first counts, whatever their ids.
    """
    if key.agent or is_watermark(key):
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


@dataclass(slots=True)
class Ordered:
    """The messages of a topic up to given ends, each partition's in order, and in an order for one pass.

    What lies in every partition comes after all that any partition has before it, and before all that comes after it;
    each partition's copy of it comes.

    Attributes:
        topic: The topic.
        ends: By partition, up to which offset.
        on_read: Called with the number of messages that were read or skipped, again and again.
    """

    topic: AgentTopic
    ends: Mapping[int, int]
    on_read: Callable[[int], None] = lambda _: None
    _meeting: Meeting = field(init=False)
    _held: dict[str, list[Message]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self._meeting = Meeting(frozenset(range(self.topic.partitions)))

    @property
    def name(self) -> str:
        """What copies call the log: the topic."""
        return self.topic.name

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return self.topic.partitions

    @property
    def codec(self) -> Codec[Any]:
        """What decodes its events."""
        return self.topic.codec

    async def messages(self) -> AsyncGenerator[Message, None]:
        """The messages. Call it once.

        Raises:
            BrokerUnavailable: Kafka does not answer.
        """
        held = await spans(self.topic.kafka, {self.topic.name: self.topic.partitions})
        reading = {n: span.begin for (_, n), span in held.items()}
        while ready := self._meeting.ready():
            for partition in ready:
                async with aclosing(self._partition(partition, reading)) as messages:
                    async for message in messages:
                        yield message
            while (name := self._meeting.next()) is not None:
                for message in self._held.pop(name, []):
                    yield message

    async def _partition(self, partition: int, reading: dict[int, int]) -> AsyncGenerator[Message, None]:
        """A partition up to its end, or to where it must wait for the others; ``reading`` says where to go on."""
        topic, end = self.topic, self.ends[partition]
        if reading[partition] < end:
            start = {partition: reading[partition]}
            async with aclosing(read(topic.kafka, topic.name, partitions=[partition], start=start)) as messages:
                async for message in messages:
                    offset = message.position.offset
                    if offset >= end:
                        break
                    self.on_read(offset + 1 - reading[partition])
                    reading[partition] = offset + 1
                    name = self._name(message)
                    if name is None or not self._meeting.arrive(partition, name):
                        yield message
                        continue
                    self._held[name].append(message)
                    return
            self.on_read(end - reading[partition])
            reading[partition] = end
        self._meeting.end(partition)

    def _name(self, message: Message) -> str | None:
        """What identifies a good message that lies in every partition."""
        try:
            key = parse_key(message.key)
        except WrongKey:
            return None
        if key.agent or is_watermark(key):
            return None
        decoded = decode(message, self.topic.codec, partitions=self.topic.partitions)
        return None if decoded.error is not None else everywhere(key, decoded.event, message.key or b"")
