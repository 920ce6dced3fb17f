"""Delivery from one topic to others: decode → publish, await every acknowledgement → commit.

The group's offset is the checkpoint: what was published before a crash is published again, under the same keys, so
that the last copy counts and nothing is doubled. A process that was stopped and wakes up must not publish what another
has published since: a batch that has been in hand for longer than half of the session timeout is given back.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError
from faststream.kafka import KafkaBroker, KafkaMessage

from engramlog.consumers.dead_letters import DeadLetters
from engramlog.consumers.observing import Observer
from engramlog.engine.client.publisher import Outgoing
from engramlog.schemas.errors import InvalidEvent

__all__ = ["Forwarding", "Message", "Outgoing"]

_log = logging.getLogger(__name__)
Message: TypeAlias = "ConsumerRecord[Any, Any]"

PAUSE_S = 1.0
"""After a failure, before the batch is read again."""
_CHUNK = 100


@dataclass(slots=True)
class Forwarding:
    """Delivers a topic to other topics. Give it to a FastStream batch subscriber as handler and listener.

    Attributes:
        broker: What publishes.
        handle: Makes one message into another.
        dead_letters: Where messages go that it refuses.
        observer: Who is told.
        stale_after_s: When a batch in hand may have become another's, in seconds.
    """

    broker: KafkaBroker
    handle: Callable[[Message], Outgoing]
    dead_letters: DeadLetters
    observer: Observer
    stale_after_s: float
    _consumer: AIOKafkaConsumer | None = None
    _stopping: bool = False

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """What is not committed is done again by the next owner."""

    async def on_partitions_assigned(self, _assigned: set[TopicPartition], consumer: AIOKafkaConsumer) -> None:
        """Partitions came to this owner: it goes on at the committed offsets."""
        self._consumer = consumer

    async def stop(self) -> None:
        """Take no more messages."""
        self._stopping = True

    async def idle(self) -> None:
        """Nothing to do."""

    async def __call__(self, message: KafkaMessage) -> None:
        """Forward one batch."""
        until = asyncio.get_running_loop().time() + self.stale_after_s
        groups = groupby(message.raw_message, key=lambda m: TopicPartition(m.topic, m.partition))
        for partition, group in groups:
            if self._stopping:
                return
            messages = list(group)
            try:
                for first in range(0, len(messages), _CHUNK):
                    _check_age(until)
                    await self._forward(messages[first : first + _CHUNK])
                await self._commit(partition, messages[-1].offset + 1)
            except (KafkaError, OSError, _StaleError) as error:
                _log.warning("%s-%d is read again from %d: %s", *partition, messages[0].offset, error)
                await self._rewind(partition, messages[0].offset)

    async def _forward(self, messages: Sequence[Message]) -> None:
        futures = []
        for message in messages:
            try:
                out = self.handle(message)
            except InvalidEvent as error:
                await self.dead_letters.publish(message, error)
                continue
            with self.observer.forwarding(message):
                futures.append(
                    await self.broker.publish(
                        out.value, topic=out.topic, partition=out.partition, key=out.key, no_confirm=True
                    )
                )
        await asyncio.gather(*futures)

    async def _commit(self, partition: TopicPartition, offset: int) -> None:
        if self._consumer is None:
            return
        try:
            await self._consumer.commit({partition: offset})
        except (KafkaError, IllegalStateError) as error:
            # A rebalance came first: the next owner does it again, with the same effect.
            _log.debug("%s-%d was not committed: %s", *partition, error)

    async def _rewind(self, partition: TopicPartition, offset: int) -> None:
        await asyncio.sleep(PAUSE_S)
        if self._consumer is None:
            return
        try:
            committed = await self._consumer.committed(partition)
            self._consumer.seek(partition, max(offset, committed or 0))
        except (KafkaError, IllegalStateError) as error:
            _log.debug("%s-%d was not rewound: %s", *partition, error)


def _check_age(until: float) -> None:
    if asyncio.get_running_loop().time() > until:
        raise _StaleError("the batch was in hand for too long")


class _StaleError(Exception):
    """A batch is too old to be published."""
