"""The agents' log as commands see it: where a partition ends, and one event published to it."""

import asyncio
from dataclasses import dataclass, field

from aiokafka import AIOKafkaConsumer, TopicPartition
from faststream.kafka import KafkaBroker

from engramlog.engine.client import KafkaConfig
from engramlog.engine.client.connection import kafka_errors
from engramlog.schemas.codec import records_codec
from engramlog.schemas.envelope import AgentEvent, ScopeErasedEvent
from engramlog.schemas.keys import partition_for
from engramlog.schemas.queries import Reached


@dataclass(slots=True)
class KafkaAgentLog:
    """``memory.records`` on Kafka.

    Attributes:
        config: The cluster.
        broker: What publishes.
        topic: Full name of the records topic.
        partitions: Its number of partitions.
    """

    config: KafkaConfig
    broker: KafkaBroker
    topic: str
    partitions: int
    _consumer: AIOKafkaConsumer | None = None
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)

    def partition(self, tenant: str, agent: str) -> int:
        """The partition that holds an agent's events."""
        return partition_for(tenant, agent, self.partitions)

    async def last(self, tenant: str, agent: str) -> Reached | None:
        """The last position of an agent's partition; None: it is empty.

        Raises:
            BrokerUnavailable: Kafka does not answer.
        """
        partition = self.partition(tenant, agent)
        with kafka_errors(self.config, "looking for the end of the log"):
            consumer = await self._reader()
            found = TopicPartition(self.topic, partition)
            end: int = (await consumer.end_offsets([found]))[found]
        return Reached(topic=self.topic, partition=partition, offset=end - 1) if end else None

    async def publish(self, event: AgentEvent | ScopeErasedEvent) -> Reached:
        """Publish an event of an agent, and wait until all in-sync replicas have it.

        Raises:
            BrokerUnavailable: Kafka does not take it.
        """
        assert event.agentid is not None, "commands are an agent's"
        partition = self.partition(event.tenantid, event.agentid)
        with kafka_errors(self.config, "publishing a command's event"):
            done = await self.broker.publish(
                records_codec().encode(event), topic=self.topic, key=event.key(), partition=partition
            )
        return Reached(topic=self.topic, partition=partition, offset=done.offset)

    async def stop(self) -> None:
        """Let go of Kafka."""
        if self._consumer is not None:
            await self._consumer.stop()

    async def _reader(self) -> AIOKafkaConsumer:
        async with self._starting:
            if self._consumer is None:
                consumer = AIOKafkaConsumer(self.topic, **self.config.reader())
                try:
                    await consumer.start()
                except BaseException:
                    await consumer.stop()
                    raise
                self._consumer = consumer
            return self._consumer
