"""The topics that ``summarise`` writes, on Kafka."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from aiokafka.errors import KafkaError
from faststream.kafka import KafkaBroker

from engramlog.engine.client import KafkaConfig, reader
from engramlog.schemas.codec import records_codec, summaries_codec
from engramlog.schemas.envelope import AgentEvent
from engramlog.schemas.errors import BrokerUnavailable
from engramlog.schemas.queries import Reached
from engramlog.schemas.summaries import SummaryCreatedEvent, SummaryFailedEvent


@dataclass(frozen=True, slots=True)
class KafkaSummaryLog:
    """``memory.summaries``, and ``memory.records`` for what is extracted.

    Attributes:
        broker: What publishes.
        summaries: Full name of the topic of summaries.
        records: Full name of the topic of records.
        config: The cluster.
    """

    broker: KafkaBroker
    summaries: str
    records: str
    config: KafkaConfig

    async def last(self, partition: int) -> Reached | None:
        """The last position of a partition of the summaries; None: it is empty.

        Raises:
            BrokerUnavailable: Kafka does not answer.
            ConfigurationError: Kafka refuses.
        """
        found = await reader.spans(self.config, {self.summaries: partition + 1})
        end = found[self.summaries, partition].end
        return Reached(topic=self.summaries, partition=partition, offset=end - 1) if end else None

    async def publish(
        self, partition: int, summary: SummaryCreatedEvent | SummaryFailedEvent | None, records: Sequence[AgentEvent]
    ) -> None:
        """Publish a summary and the records that go with it; return when all in-sync replicas have them.

        Raises:
            BrokerUnavailable: Kafka does not take them.
        """
        messages = [(self.records, record.key(), records_codec().encode(record)) for record in records]
        if summary is not None:
            messages.append((self.summaries, summary.key(), summaries_codec().encode(summary)))
        try:
            futures = [
                await self.broker.publish(value, topic=topic, partition=partition, key=key, no_confirm=True)
                for topic, key, value in messages
            ]
            await asyncio.gather(*futures)
        except (KafkaError, OSError) as error:
            raise BrokerUnavailable(f"{self.summaries}-{partition} does not take a summary: {error}") from error
