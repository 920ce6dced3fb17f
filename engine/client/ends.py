"""Watching where topics begin and end, with one connection that is kept."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from engramlog.engine.client.connection import KafkaConfig, kafka_errors
from engramlog.engine.client.reader import Span
from engramlog.schemas.errors import BrokerUnavailable


class LogEnds:
    """Looks at the ends of topics again and again; after a failure the next look connects anew.

    Args:
        config: The cluster.
        timeout_s: Limit of one look, in seconds.
    """

    def __init__(self, config: KafkaConfig, *, timeout_s: float) -> None:
        self._config = config
        self._timeout_s = timeout_s
        self._consumer: AIOKafkaConsumer | None = None

    async def look(self, topics: Mapping[str, int]) -> dict[tuple[str, int], Span]:
        """What the partitions of topics hold now.

        Args:
            topics: Number of partitions by full topic name.

        Returns:
            The spans by topic and partition.

        Raises:
            BrokerUnavailable: Kafka does not answer in time.
        """
        partitions = [TopicPartition(topic, n) for topic, count in topics.items() for n in range(count)]
        doing = "reading the ends of topics"
        try:
            with kafka_errors(self._config, doing):
                async with asyncio.timeout(self._timeout_s):
                    consumer = await self._connected()
                    begins, ends = await asyncio.gather(
                        consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
                    )
        except BaseException as error:
            await self.stop()
            if isinstance(error.__cause__ or error, TimeoutError):
                message = f"Kafka at {self._config.bootstrap_servers} did not answer within {self._timeout_s:g} s"
                raise BrokerUnavailable(f"{message} while {doing}") from None
            raise
        return {(tp.topic, tp.partition): Span(begins[tp], ends[tp]) for tp in partitions}

    async def stop(self) -> None:
        """Let go of the connection."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with suppress(KafkaError, OSError):
                await consumer.stop()

    async def _connected(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            consumer = AIOKafkaConsumer(**self._config.reader())
            try:
                await consumer.start()
            except BaseException:
                with suppress(KafkaError, OSError):
                    await consumer.stop()
                raise
            self._consumer = consumer
        return self._consumer
