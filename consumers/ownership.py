"""Which partitions of a topic this process may project, and from which offset.

On assignment a partition is *opened*: its checkpoint is read from the projection and the consumer seeks there. One that
cannot be opened, or whose store went down, is *closed*: paused, and tried again in the background. Nothing of a closed
partition is processed.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError

from engramlog.engine.log import Run
from engramlog.schemas.errors import Permanent, Transient

_log = logging.getLogger(__name__)

REOPEN_S = 1.0
"""Pause between tries to open a partition."""

OPEN_S = 15.0
"""How long a try may take, seconds.

A rebalance waits for it, and who is not back after ``rebalance_timeout_ms`` (30 s) is put out of the group.
"""


class Projection(Protocol):
    """What can be rebuilt from a topic, and knows how far it has come."""

    async def open_partition(
        self, topic: str, partition: int, *, cluster_id: str | None, topic_id: str | None, end_offset: int
    ) -> int:
        """The next offset to read.

        Raises:
            ConfigurationError: The checkpoint does not belong to this log.
            StoreUnavailable: The store does not answer.
        """

    def close_partition(self, topic: str, partition: int) -> None:
        """The partition went to another owner."""

    async def apply(self, run: Run) -> None:
        """Apply a run and move the checkpoint, both or neither.

        Raises:
            Fenced: The checkpoint is not where the run begins.
            Unprocessable: The store cannot hold an event of the run.
            StoreUnavailable: The store does not answer.
        """


class Ownership:
    """The partitions that a process owns.

    Args:
        projection: What keeps the checkpoints.
        cluster_id: The cluster's own id, where it has one.

    Attributes:
        next: The open partitions, and the offset that each wants next.
        closed: The closed ones, and why.
    """

    def __init__(self, projection: Projection, cluster_id: str | None) -> None:
        self.projection = projection
        self.next: dict[TopicPartition, int] = {}
        self._cluster_id = cluster_id
        self.closed: dict[TopicPartition, str] = {}
        self._consumer: AIOKafkaConsumer | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def forget(self, revoked: Iterable[TopicPartition]) -> None:
        """They went to another owner, who reads their checkpoints."""
        for partition in revoked:
            self.projection.close_partition(partition.topic, partition.partition)
            self.next.pop(partition, None)
            self.closed.pop(partition, None)

    async def open_all(self, assigned: Iterable[TopicPartition], consumer: AIOKafkaConsumer) -> None:
        """They came to this owner."""
        self._consumer = consumer
        # At once: one after the other, each would wait until the broker ends an empty fetch on the same connection.
        await asyncio.gather(*(self._open(partition, consumer) for partition in sorted(assigned)))

    async def span(self, partition: TopicPartition, last_offset: int = -1) -> tuple[int, int] | None:
        """Where a batch begins and ends: the offset that the partition wants next, and the consumer's position.

        The position may lie behind the last message: compaction leaves gaps, also at the end of a log.

        Args:
            partition: The partition.
            last_offset: The last offset of the batch.

        Returns:
            None: the partition is closed or gone, or the batch was fetched before the consumer was sent elsewhere.
            Such a batch is still handed over after a rebalance; taken for the next one, it would skip whatever lies
            before it.
        """
        expected = self.next.get(partition)
        if expected is None or self._consumer is None:
            return None
        try:
            position: int = await self._consumer.position(partition)
        except IllegalStateError:  # revoked
            return None
        return (expected, position) if position > last_offset else None

    async def reopen(self, partition: TopicPartition) -> None:
        """Another owner was here: read the checkpoint anew, if the partition is still ours."""
        self.next.pop(partition, None)
        if self._consumer is not None:
            await self._open(partition, self._consumer)

    def close(self, partition: TopicPartition, reason: str, *, rewind_to: int | None = None) -> None:
        """Process nothing of it until it can be opened again."""
        self.next.pop(partition, None)
        if self._consumer is None:
            return
        with suppress(IllegalStateError):  # revoked: the next owner does the work
            if rewind_to is not None:
                self._consumer.seek(partition, rewind_to)
            self._consumer.pause(partition)
            self.closed[partition] = reason
        if not self._stopped and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._open_closed(self._consumer), name="engramlog-reopen")

    async def stop(self) -> None:
        """Stop trying to open partitions."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _open(self, partition: TopicPartition, consumer: AIOKafkaConsumer) -> None:
        try:
            async with asyncio.timeout(OPEN_S):
                expected = await self._expected(partition, consumer)
            consumer.seek(partition, expected)
            consumer.resume(partition)
        except IllegalStateError:  # revoked in the meantime
            self.closed.pop(partition, None)
        except (Transient, Permanent, KafkaError, OSError) as error:  # a TimeoutError is an OSError, and says nothing
            reason = str(error) or f"its checkpoint could not be read within {OPEN_S:g} s"
            if self.closed.get(partition) != reason:  # it is tried again every second
                _log.error("%s-%d is not processed: %s", partition.topic, partition.partition, reason)
            self.close(partition, reason)
        else:
            self.next[partition] = expected
            self.closed.pop(partition, None)
            _log.info("%s-%d is open at offset %d", partition.topic, partition.partition, expected)

    async def _expected(self, partition: TopicPartition, consumer: AIOKafkaConsumer) -> int:
        end_offset = (await consumer.end_offsets([partition]))[partition]
        return await self.projection.open_partition(
            partition.topic, partition.partition, cluster_id=self._cluster_id, topic_id=None, end_offset=end_offset
        )

    async def _open_closed(self, consumer: AIOKafkaConsumer) -> None:
        while self.closed:
            await asyncio.sleep(REOPEN_S)
            await asyncio.gather(*(self._open(partition, consumer) for partition in sorted(self.closed)))
