"""Reading whole topics fast, from given offsets on: for rebuilds, which keep their own positions."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from engramlog.engine.client.connection import KafkaConfig, kafka_errors
from engramlog.engine.client.reach import reach

_FETCH_BYTES = 8 * 1024 * 1024
_DOING = "reading the log"

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one partition, in order.

    Attributes:
        place: Topic and partition.
        messages: They; none where compaction or a transaction left nothing.
        next: Where the reader goes on: what lies before it was seen, or does not exist any more.
    """

    place: Place
    messages: Sequence[Any]
    next: int


class LogReader:
    """Reads partitions from where it is sent; commits nothing. Made by :func:`log_reader`."""

    def __init__(self, config: KafkaConfig, consumer: AIOKafkaConsumer, partitions: Sequence[TopicPartition]) -> None:
        self._config = config
        self._consumer = consumer
        self._partitions = list(partitions)
        self._told: dict[TopicPartition, int] = {}

    async def ends(self) -> dict[Place, int]:
        """The offset that the next message of each partition will get.

        Raises:
            BrokerUnavailable: Kafka does not answer.
        """
        with kafka_errors(self._config, _DOING):
            found = await self._consumer.end_offsets(self._partitions)
        return {(tp.topic, tp.partition): end for tp, end in found.items()}

    async def begins(self) -> dict[Place, int]:
        """The first offset that each partition still has."""
        with kafka_errors(self._config, _DOING):
            found = await self._consumer.beginning_offsets(self._partitions)
        return {(tp.topic, tp.partition): begin for tp, begin in found.items()}

    def seek(self, offsets: Mapping[Place, int]) -> None:
        """Go on at these offsets."""
        for place, offset in offsets.items():
            self._consumer.seek(TopicPartition(*place), offset)
            self._told[TopicPartition(*place)] = offset

    def pause(self, places: Iterable[Place]) -> None:
        """Read nothing more of these partitions, until they are resumed."""
        self._consumer.pause(*(TopicPartition(*place) for place in places))

    def resume(self, places: Iterable[Place]) -> None:
        """Go on reading these partitions."""
        self._consumer.resume(*(TopicPartition(*place) for place in places))

    async def read(self, *, timeout_ms: int, max_records: int) -> list[Batch]:
        """What comes next; empty: nothing came in time.

        Raises:
            BrokerUnavailable: Kafka does not answer.
        """
        with kafka_errors(self._config, _DOING):
            found = await self._consumer.getmany(timeout_ms=timeout_ms, max_records=max_records)
            batches = [
                Batch((tp.topic, tp.partition), messages, await self._consumer.position(tp))
                for tp, messages in found.items()
            ]
            if not found:  # what is left at the end of a compacted log has no message that would tell of it
                for tp in self._partitions:
                    position = await self._consumer.position(tp)
                    if position > self._told.get(tp, position):
                        batches.append(Batch((tp.topic, tp.partition), (), position))
        self._told |= {TopicPartition(*batch.place): batch.next for batch in batches}
        return batches


@asynccontextmanager
async def log_reader(config: KafkaConfig, topics: Iterable[str], *, partitions: int) -> AsyncIterator[LogReader]:
    """A reader of whole topics.

    Args:
        config: The cluster.
        topics: Full names.
        partitions: Number of partitions of each.

    Raises:
        ConfigurationError: A topic does not exist, or Kafka refuses.
        BrokerUnavailable: Kafka does not answer.
    """
    await reach(config, _DOING)
    consumer = AIOKafkaConsumer(
        **config.reader() | {"max_partition_fetch_bytes": _FETCH_BYTES, "fetch_max_wait_ms": 50}
    )
    wanted = [TopicPartition(topic, n) for topic in topics for n in range(partitions)]
    with kafka_errors(config, _DOING):
        try:
            await consumer.start()
            consumer.assign(wanted)
            yield LogReader(config, consumer, wanted)
        finally:
            await consumer.stop()
