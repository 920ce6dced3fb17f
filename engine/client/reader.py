"""Reading a topic without a group: from now, the beginning, a time or given offsets; nothing is committed.

For people and tools that look at the log. A projection is not read like this: see ``consumers/delivery.py``.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from aiokafka import AIOKafkaConsumer, TopicPartition

from engramlog.engine.client.connection import KafkaConfig, kafka_errors
from engramlog.engine.client.reach import reach
from engramlog.schemas.codec import Codec
from engramlog.schemas.envelope import Envelope
from engramlog.schemas.errors import InvalidEvent, WrongKey, WrongPartition
from engramlog.schemas.keys import Key, parse_key, partition_for
from engramlog.schemas.scope import Position

Start = Literal["now", "beginning"] | datetime | Mapping[int, int]
"""Where to begin: the end as it is now, the oldest message, an instant of the log's clock, or offsets by partition."""

_POLL_MS = 200
_MAX_RECORDS = 1_000


@dataclass(frozen=True, slots=True)
class Message:
    """One message, as it lies in the log.

    Attributes:
        position: Where.
        recorded: When the broker appended it.
        key: Its key.
        value: Its bytes; None: a tombstone.
        headers: Its headers; names that are not UTF-8 come with replacement characters.
    """

    position: Position
    recorded: datetime
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Decoded:
    """A message and what it means.

    Attributes:
        message: The message.
        key: Its parsed key; None: it is no key of ours.
        event: The event, in its newest version; None: a tombstone, or undecodable.
        error: Why it cannot be decoded; None: it can.
    """

    message: Message
    key: Key | None = None
    event: Envelope | None = None
    error: InvalidEvent | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """What a partition holds now: offsets from ``begin`` up to, not including, ``end``.

    Attributes:
        begin: The oldest offset.
        end: The offset that the next message will get.
    """

    begin: int
    end: int


async def spans(config: KafkaConfig, topics: Mapping[str, int]) -> dict[tuple[str, int], Span]:
    """What the partitions of topics hold now.

    Args:
        config: The cluster.
        topics: Number of partitions by full topic name.

    Returns:
        The spans by topic and partition.

    Raises:
        ConfigurationError: A topic does not exist.
        BrokerUnavailable: Kafka does not answer.
    """
    partitions = [TopicPartition(topic, n) for topic, count in topics.items() for n in range(count)]
    async with _consumer(config, "reading the ends of topics") as consumer:
        begins = await consumer.beginning_offsets(partitions)
        ends = await consumer.end_offsets(partitions)
    return {(tp.topic, tp.partition): Span(begins[tp], ends[tp]) for tp in partitions}


async def places_at(config: KafkaConfig, topic: str, *, partitions: Iterable[int], time: datetime) -> dict[int, int]:
    """By partition, the offset of the first message that was recorded at an instant or later; its end where none was.

    Raises:
        ConfigurationError: The topic does not exist.
        BrokerUnavailable: Kafka does not answer.
    """
    wanted = [TopicPartition(topic, n) for n in partitions]
    async with _consumer(config, f"finding a time in {topic}") as consumer:
        ends = await consumer.end_offsets(wanted)
        return {tp.partition: offset for tp, offset in (await starts_of(consumer, wanted, time, ends)).items()}


async def read(
    config: KafkaConfig, topic: str, *, partitions: Iterable[int], start: Start = "beginning", follow: bool = False
) -> AsyncGenerator[Message, None]:
    """Read a topic. Messages of one partition come in order; between partitions no order is promised.

    Args:
        config: The cluster.
        topic: Full topic name.
        partitions: Which of its partitions.
        start: Where to begin. Offsets by partition: a partition that is not named begins at its end.
        follow: Wait for more at the end; otherwise stop where the ends were when reading began.

    Raises:
        ConfigurationError: The topic does not exist.
        BrokerUnavailable: Kafka does not answer.
    """
    wanted = [TopicPartition(topic, n) for n in partitions]
    async with _consumer(config, f"reading {topic}") as consumer:
        consumer.assign(wanted)
        ends = await consumer.end_offsets(wanted)
        starts = await starts_of(consumer, wanted, start, ends)
        for partition, offset in starts.items():
            consumer.seek(partition, offset)
        pending = {tp for tp in wanted if starts[tp] < ends[tp]}
        while follow or pending:
            batches = await consumer.getmany(timeout_ms=_POLL_MS, max_records=_MAX_RECORDS)
            for partition, batch in batches.items():
                for raw in batch:
                    if follow or raw.offset < ends[partition]:
                        yield message_of(raw)
            if not follow:
                pending = {tp for tp in pending if await consumer.position(tp) < ends[tp]}


def decode(message: Message, codec: Codec[Any], *, partitions: int) -> Decoded:
    """Decode one message of an agent topic, and check it as a consumer would; what is wrong is told, never raised.

    Args:
        message: The message.
        codec: What decodes its events.
        partitions: Number of partitions of the topic.
    """
    key: Key | None = None
    try:
        key = parse_key(message.key)
        event = None if message.value is None else codec.decode(message.value)
        if event is not None and event.key() != message.key:
            raise WrongKey(f"the key is {message.key!r}, for this event it must be {event.key()!r}")
        wanted = partition_for(key.tenant, key.agent, partitions) if key.agent else message.position.partition
        if message.position.partition != wanted:
            raise WrongPartition(f"partition {message.position.partition}, for this agent it must be {wanted}")
    except InvalidEvent as error:
        return Decoded(message, key, error=error)
    return Decoded(message, key, event)


@asynccontextmanager
async def _consumer(config: KafkaConfig, doing: str) -> AsyncIterator[AIOKafkaConsumer]:
    await reach(config, doing)
    consumer = AIOKafkaConsumer(**config.reader())
    with kafka_errors(config, doing):
        try:
            await consumer.start()
            yield consumer
        finally:
            await consumer.stop()


async def starts_of(
    consumer: AIOKafkaConsumer, partitions: Sequence[TopicPartition], start: Start, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Where reading begins in each partition.

    Args:
        consumer: A consumer that is started.
        partitions: The partitions.
        start: Where to begin.
        ends: Their ends.
    """
    if start == "now":
        return dict(ends)
    begins: dict[TopicPartition, int] = await consumer.beginning_offsets(partitions)
    if isinstance(start, datetime):
        found = await consumer.offsets_for_times(dict.fromkeys(partitions, round(start.timestamp() * 1000)))
        return {tp: ends[tp] if found[tp] is None else found[tp].offset for tp in partitions}
    if isinstance(start, Mapping):
        return {tp: max(begins[tp], min(start.get(tp.partition, ends[tp]), ends[tp])) for tp in partitions}
    return begins


def message_of(raw: Any) -> Message:
    """A message of aiokafka's."""
    return Message(
        Position(raw.topic, raw.partition, raw.offset),
        datetime.fromtimestamp(raw.timestamp / 1000, UTC),
        raw.key,
        raw.value,
        tuple(raw.headers),
    )
