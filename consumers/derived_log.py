"""The derived topic on Kafka, as ``derive`` writes it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from aiokafka.errors import KafkaError
from faststream.kafka import KafkaBroker

from engramlog.engine.derivation import Outgoing
from engramlog.schemas.errors import BrokerUnavailable


@dataclass(frozen=True, slots=True)
class KafkaDerivedLog:
    """``memory.derived.gN`` on Kafka.

    Attributes:
        broker: What publishes; its producer keeps the order within a partition.
        topic: Full name of the topic.
    """

    broker: KafkaBroker
    topic: str

    async def publish(self, partition: int, messages: Sequence[Outgoing]) -> None:
        """Publish messages in order; return when all in-sync replicas have them.

        Raises:
            BrokerUnavailable: Kafka does not take them.
        """
        try:
            futures = [
                await self.broker.publish(value, topic=self.topic, partition=partition, key=key, no_confirm=True)
                for key, value in messages
            ]
            await asyncio.gather(*futures)
        except (KafkaError, OSError) as error:
            raise BrokerUnavailable(f"{self.topic}-{partition} does not take what was derived: {error}") from error
