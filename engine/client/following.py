"""Following a topic message by message: for a durable group, or from a place of one's own. At least once.

Nothing is fetched while the caller works on a message, and what waits is bounded: one fetch of the broker's.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError

from engramlog.engine.client.connection import KafkaConfig, kafka_errors
from engramlog.engine.client.reach import reach
from engramlog.engine.client.reader import Message, Start, message_of, starts_of

_log = logging.getLogger(__name__)

_POLL_MS = 200
_AT_ONCE = 100
_FETCH_BYTES = 2 * 1024 * 1024
_COMMIT_EVERY_S = 1.0
_LONGEST_WORK_MS = 24 * 60 * 60 * 1000
"""How long a caller may work on one message before its partitions go to another member of its group."""


class Follower:
    """Follows some partitions of a topic for ever.

    Args:
        config: The cluster.
        topic: Full topic name.
        partitions: Which of its partitions; a group follows all of them, shared among its members.
        group: The consumer group that remembers the place; None: nobody does.
        start: Where to begin; for a group: the first time.

    Attributes:
        ends: By partition, its end when it was opened: what lies before is the past.
        waiting: How many messages wait to be taken.
    """

    def __init__(
        self, config: KafkaConfig, topic: str, partitions: Collection[int], *, group: str | None, start: Start
    ) -> None:
        self.ends: dict[int, int] = {}
        self._config = config
        self._topic = topic
        self._partitions = [TopicPartition(topic, n) for n in partitions]
        self._group = group
        self._start = start
        self._consumer: AIOKafkaConsumer | None = None
        self._buffer: deque[Any] = deque()
        self._done: dict[TopicPartition, int] = {}
        self._under_way: tuple[TopicPartition, int] | None = None
        self._committed_s = 0.0

    @property
    def waiting(self) -> int:
        """How many messages wait to be taken."""
        return len(self._buffer)

    async def open(self) -> None:
        """Find the place to begin at: what is published from now on is not missed.

        Raises:
            ConfigurationError: The topic does not exist, or the broker refuses.
            BrokerUnavailable: Kafka does not answer.
        """
        if self._consumer is not None:
            return
        doing = f"following {self._topic}"
        await reach(self._config, doing)
        with kafka_errors(self._config, doing):
            if self._group is not None:
                await self._begin_group(self._group)
            self._consumer = AIOKafkaConsumer(**self._arguments())
            try:
                await self._consumer.start()
                if self._group is None:
                    await self._assign(self._consumer)
                else:
                    self._consumer.subscribe([self._topic], listener=_Listener(self))
            except BaseException:
                await self.close()
                raise

    async def close(self) -> None:
        """Let go. What was taken and asked beyond is committed; what the caller still works on is not."""
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        try:
            await self._commit(consumer)
        finally:
            self._buffer.clear()
            with suppress(KafkaError, OSError):
                await consumer.stop()

    async def messages(self) -> AsyncGenerator[Message, None]:
        """The messages. Those of one partition come in order; each counts as done when the next one is asked for."""
        await self.open()
        consumer = self._consumer
        assert consumer is not None, "it was opened"
        with kafka_errors(self._config, f"following {self._topic}"):
            while self._consumer is consumer:
                if not self._buffer:
                    await self._fetch(consumer)
                    continue
                raw = self._buffer.popleft()
                self._under_way = TopicPartition(raw.topic, raw.partition), raw.offset + 1
                yield message_of(raw)
                self._finish()
                if self._group is not None and asyncio.get_running_loop().time() > self._committed_s + _COMMIT_EVERY_S:
                    await self._commit(consumer)

    async def acknowledge(self) -> None:
        """The message that was given last is done, too, before the next one is asked for."""
        self._finish()
        if self._consumer is not None:
            await self._commit(self._consumer)

    def _finish(self) -> None:
        if self._under_way is not None:
            partition, following = self._under_way
            self._done[partition] = following
            self._under_way = None

    async def _fetch(self, consumer: AIOKafkaConsumer) -> None:
        await self._commit(consumer)
        consumer.resume(*consumer.paused())
        batches = await consumer.getmany(timeout_ms=_POLL_MS, max_records=_AT_ONCE)
        consumer.pause(*consumer.assignment())
        for batch in batches.values():
            self._buffer.extend(batch)

    async def _commit(self, consumer: AIOKafkaConsumer) -> None:
        """Commit what is done. Where that fails it is delivered again, to us or to the partition's new owner."""
        self._committed_s = asyncio.get_running_loop().time()
        assigned = consumer.assignment()
        offsets = {tp: offset for tp, offset in self._done.items() if tp in assigned}
        self._done.clear()
        if self._group is None or not offsets:
            return
        try:
            await consumer.commit(offsets)
        except (KafkaError, IllegalStateError) as error:
            _log.warning("the place of the group %s was not committed: %s", self._group, error)

    async def _assign(self, consumer: AIOKafkaConsumer) -> None:
        consumer.assign(self._partitions)
        ends = await consumer.end_offsets(self._partitions)
        for tp, offset in (await starts_of(consumer, self._partitions, self._start, ends)).items():
            consumer.seek(tp, offset)
        self._note_ends(ends)

    async def _begin_group(self, group: str) -> None:
        """Write down where a new group begins, before anything is delivered: else a crash would move it.

        While the group has members Kafka takes no such offset; then one of them has written it down already.
        """
        consumer = AIOKafkaConsumer(**{**self._config.reader(), "group_id": group})
        try:
            await consumer.start()
            consumer.assign(self._partitions)
            new = [tp for tp in self._partitions if await consumer.committed(tp) is None]
            if not new:
                return
            starts = await starts_of(consumer, new, self._start, await consumer.end_offsets(new))
            try:
                await consumer.commit({tp: OffsetAndMetadata(offset, "") for tp, offset in starts.items()})
            except KafkaError as error:
                if not all([await consumer.committed(tp) is not None for tp in new]):
                    raise
                _log.debug("the group %s has begun elsewhere: %s", group, error)
        finally:
            with suppress(KafkaError, OSError):
                await consumer.stop()

    def _arguments(self) -> dict[str, Any]:
        arguments = {**self._config.reader(), "fetch_max_bytes": _FETCH_BYTES}
        if self._group is None:
            return arguments
        return arguments | {
            "group_id": self._group,
            "auto_offset_reset": "earliest",
            "max_poll_interval_ms": _LONGEST_WORK_MS,
        }

    def _note_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        self.ends.update({tp.partition: end for tp, end in ends.items()})

    async def revoked(self) -> None:
        """Partitions go to other members: what is done is committed, what waits is theirs."""
        if self._consumer is not None:
            await self._commit(self._consumer)
        self._under_way = None
        self._buffer.clear()

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Partitions are ours."""
        if self._consumer is not None and partitions:
            self._note_ends(await self._consumer.end_offsets(list(partitions)))


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka's listener is untyped
    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:  # noqa: ARG002 - all are
        await self._follower.revoked()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        await self._follower.assigned(assigned)
