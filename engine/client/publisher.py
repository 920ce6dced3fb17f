"""Publishing events: every one acknowledged by all in-sync replicas, its position returned."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import RecordMetadata

from engramlog.engine.client.connection import KafkaConfig, kafka_errors
from engramlog.engine.client.reach import reach
from engramlog.schemas.errors import BrokerUnavailable, ConfigurationError, DeadlineExceeded
from engramlog.schemas.scope import Position

_log = logging.getLogger(__name__)
_PAUSE_S = 0.2
_LOOKS = 5


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message to publish.

    Attributes:
        topic: Full topic name.
        partition: Partition.
        key: Kafka key; None: none.
        value: Encoded event; None: a tombstone.
        headers: Kafka headers.
        timestamp_ms: When it was recorded, milliseconds since the epoch; only a topic that does not stamp its messages
            itself keeps it.
    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


class Publisher:
    """An acks=all, idempotent producer that is rebuilt when it died.

    Args:
        config: The cluster.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._producer: AIOKafkaProducer | None = None
        self._starting = asyncio.Lock()

    async def stop(self) -> None:
        """Send what is buffered, then close."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with kafka_errors(self._config, "closing the producer"):
                await producer.stop()

    async def partitions(self, topic: str) -> int:
        """Number of partitions of a topic.

        Raises:
            ConfigurationError: It does not exist.
            BrokerUnavailable: Kafka does not answer.
        """
        lost: BrokerUnavailable | None = None
        for _ in range(_LOOKS):  # a topic that was just created is not yet known to every broker
            try:
                with kafka_errors(self._config, f"reading about the topic {topic}"):
                    producer = await self._running()
                    found = (await producer.client.fetch_all_metadata()).partitions_for_topic(topic)
            except BrokerUnavailable as error:  # the connection was idle, and the broker ended it or its login
                lost = error
            else:
                if found:
                    return len(found)
                lost = None
            await asyncio.sleep(_PAUSE_S)
        if lost is not None:
            raise lost
        raise ConfigurationError(f"the topic {topic!r} does not exist: create it with 'engramlog topics create'")

    async def publish(self, messages: Sequence[Outgoing], *, timeout_s: float) -> list[Position]:
        """Publish messages; those of one partition keep their order.

        What is not acknowledged when a producer dies is sent again by a new one: keys make that harmless.

        Args:
            messages: What to publish.
            timeout_s: Limit for all of them, in seconds.

        Returns:
            Where each one lies, in the order given.

        Raises:
            DeadlineExceeded: Not all were acknowledged in time. Some may be in the log; publishing the same record
                ids again is safe.
            TooLarge: A message is larger than the broker takes.
        """
        positions: dict[int, Position] = {}
        pending = list(range(len(messages)))
        try:
            async with asyncio.timeout(timeout_s):
                while pending:
                    pending = await self._attempt(messages, pending, positions)
        except TimeoutError:
            raise DeadlineExceeded(
                f"{len(pending)} of {len(messages)} messages were not acknowledged by Kafka at "
                f"{self._config.bootstrap_servers} within {timeout_s:g} s; publishing the same ids again is safe"
            ) from None
        return [positions[i] for i in range(len(messages))]

    async def _attempt(
        self, messages: Sequence[Outgoing], pending: list[int], positions: dict[int, Position]
    ) -> list[int]:
        try:
            with kafka_errors(self._config, "publishing"):
                producer = await self._running()
                futures = await _send(producer, [messages[i] for i in pending])
                done = await asyncio.gather(*futures, return_exceptions=True)
        except BrokerUnavailable as error:
            await self._rebuild(error)
            return pending
        failed: list[int] = []
        broken: set[tuple[str, int]] = set()
        failure: BaseException | None = None
        for i, outcome in zip(pending, done, strict=True):
            place = (messages[i].topic, messages[i].partition)
            if isinstance(outcome, RecordMetadata) and place not in broken:
                positions[i] = await self._position(outcome)
                continue
            # What comes after a failure in the same partition is sent again, too: the order is that of the last copies.
            failed.append(i)
            broken.add(place)
            failure = failure or (outcome if isinstance(outcome, BaseException) else None)
        if failure is not None:
            try:
                with kafka_errors(self._config, "publishing"):
                    raise failure
            except BrokerUnavailable as error:
                await self._rebuild(error)
        return failed

    async def _position(self, metadata: RecordMetadata) -> Position:
        if metadata.offset >= 0:
            return Position(metadata.topic, metadata.partition, metadata.offset)
        # The broker had it already and does not say where: it lies before the partition's end.
        partition = TopicPartition(metadata.topic, metadata.partition)
        consumer = AIOKafkaConsumer(**self._config.reader())
        with kafka_errors(self._config, "reading the end offset"):
            await consumer.start()
            try:
                end = (await consumer.end_offsets([partition]))[partition]
            finally:
                await consumer.stop()
        return Position(metadata.topic, metadata.partition, max(end - 1, 0))

    async def _running(self) -> AIOKafkaProducer:
        async with self._starting:
            if self._producer is None:
                await reach(self._config, "starting a producer")
                producer = AIOKafkaProducer(**self._config.producer())
                try:
                    await producer.start()
                except BaseException:
                    await producer.stop()
                    raise
                self._producer = producer
            return self._producer

    async def _rebuild(self, error: BrokerUnavailable) -> None:
        _log.warning("publishing failed, a new producer is made: %s", error)
        async with self._starting:
            producer, self._producer = self._producer, None
        if producer is not None:
            try:
                async with asyncio.timeout(_PAUSE_S):
                    await producer.stop()
            except (KafkaError, OSError, TimeoutError) as stop_error:
                _log.debug("the dead producer did not stop cleanly: %s", stop_error)
        await asyncio.sleep(_PAUSE_S)


async def _send(producer: AIOKafkaProducer, messages: Sequence[Outgoing]) -> list["asyncio.Future[RecordMetadata]"]:
    return [
        await producer.send(
            m.topic, m.value, key=m.key, partition=m.partition, headers=list(m.headers), timestamp_ms=m.timestamp_ms
        )
        for m in messages
    ]
