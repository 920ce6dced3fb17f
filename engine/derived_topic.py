"""A derived topic, as it lies in Kafka: read by whoever has lost what was made of it."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from engramlog.engine.client import KafkaConfig, reader
from engramlog.engine.recorded import Lying


@dataclass(frozen=True, slots=True)
class DerivedTopic:
    """A :class:`~engramlog.engine.recorded.DerivedReader` of Kafka.

    Attributes:
        config: The cluster.
        topic: The topic's full name.
    """

    config: KafkaConfig
    topic: str

    async def span(self, partition: int) -> tuple[int, int]:
        """The first offset of a partition, and the one that its next message will get. Errors as in :meth:`read`."""
        found = await reader.spans(self.config, {self.topic: partition + 1})
        return found[self.topic, partition].begin, found[self.topic, partition].end

    async def read(self, partition: int, start: int) -> AsyncGenerator[Lying, None]:
        """The messages of a partition from an offset on, up to where its end is when reading begins.

        Raises:
            BrokerUnavailable: Kafka does not answer.
            ConfigurationError: Kafka refuses.
        """
        read = reader.read(self.config, self.topic, partitions=[partition], start={partition: start})
        async with aclosing(read) as messages:
            async for message in messages:
                yield Lying(message.position.offset, message.value)
