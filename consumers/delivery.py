"""Delivery: decode → publish dead letters → apply with the checkpoint → commit. The only place that knows it.

A projection keeps its own checkpoint, in the transaction of its rows. Kafka only says who owns a partition:

- On assignment the partition is *opened*: its checkpoint is read and the consumer seeks there. A partition that cannot
  be opened is paused and tried again in the background; nothing of it is processed meanwhile.
- Messages are decoded one by one: what is wrong becomes a dead letter, whose acknowledgement is awaited before the
  checkpoint moves past it.
- A run is applied by compare-and-set on the checkpoint. A stale owner is :class:`Fenced`: it writes nothing, and the
  partition is opened anew.
- When a store is down the run is tried a few times, then its partition is closed as above: the consumer stays in its
  group, other partitions go on, and nothing is ever skipped.
- Kafka's group offsets are committed now and then, as a courtesy to lag tools.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Protocol, TypeAlias

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError
from faststream.kafka import KafkaMessage

from engramlog.consumers.dead_letters import DeadLetters
from engramlog.engine.log import Entry, Refused, Run
from engramlog.schemas.codec import Codec
from engramlog.schemas.errors import Fenced, InvalidEvent, Permanent, Transient, Unprocessable, WrongKey, WrongPartition
from engramlog.schemas.keys import parse_key, partition_for

_log = logging.getLogger(__name__)
Message: TypeAlias = "ConsumerRecord[Any, Any]"

RETRIES_S = (0.1, 0.4, 1.5)
"""Pauses between the tries of one run, before its partition is closed."""
REOPEN_S = 1.0
"""Pause between tries to open a partition."""
COMMIT_EVERY_S = 1.0


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

    async def apply(self, run: Run) -> None:
        """Apply a run and move the checkpoint, both or neither.

        Raises:
            Fenced: The checkpoint is not where the run begins.
            Unprocessable: The store cannot hold an event of the run.
            StoreUnavailable: The store does not answer.
        """


@dataclass(frozen=True, slots=True)
class Log:
    """The topic that is delivered.

    Attributes:
        topic: Full name.
        partitions: Number of its partitions: the n of the partition rule.
        cluster_id: The cluster's own id, where it has one.
        codec: What decodes its events.
    """

    topic: str
    partitions: int
    cluster_id: str | None
    codec: Codec[Any]


@dataclass(slots=True)
class Delivery(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka's listener is untyped
    """Delivers one topic to one projection. Give it to a FastStream batch subscriber as handler and listener.

    Attributes:
        log: The topic.
        projection: What is projected into.
        dead_letters: Where the rest goes.
    """

    log: Log
    projection: Projection
    dead_letters: DeadLetters
    consumer: AIOKafkaConsumer | None = None
    _next: dict[TopicPartition, int] = field(default_factory=dict)
    _closed: set[TopicPartition] = field(default_factory=set)
    _reopening: asyncio.Task[None] | None = None
    _committed_at: float = 0.0
    _stopping: bool = False

    # -- assignment --------------------------------------------------------------------------------------------------

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Forget them: whoever owns them next reads their checkpoints."""
        for partition in revoked:
            self._next.pop(partition, None)
            self._closed.discard(partition)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Open each one, or close it and try again in the background."""
        for partition in sorted(assigned):
            await self._open(partition)

    async def stop(self) -> None:
        """Take no more messages; the run under way is finished by whoever stops the broker."""
        self._stopping = True
        if self._reopening is not None:
            self._reopening.cancel()
            with suppress(asyncio.CancelledError):
                await self._reopening

    async def _open(self, partition: TopicPartition) -> None:
        assert self.consumer is not None, "the subscriber hands its consumer over before it starts"
        try:
            end_offset = (await self.consumer.end_offsets([partition]))[partition]
            expected = await self.projection.open_partition(
                partition.topic,
                partition.partition,
                cluster_id=self.log.cluster_id,
                topic_id=None,
                end_offset=end_offset,
            )
            self.consumer.seek(partition, expected)
            self.consumer.resume(partition)
        except IllegalStateError:  # revoked in the meantime
            self._closed.discard(partition)
        except (Transient, Permanent, KafkaError, OSError) as error:
            _log.error("%s-%d is not processed: %s", partition.topic, partition.partition, error)
            self._close(partition, rewind_to=None)
        else:
            self._next[partition] = expected
            self._closed.discard(partition)
            _log.info("%s-%d is open at offset %d", partition.topic, partition.partition, expected)

    def _close(self, partition: TopicPartition, *, rewind_to: int | None) -> None:
        assert self.consumer is not None
        self._next.pop(partition, None)
        with suppress(IllegalStateError):  # revoked: the next owner does the work
            if rewind_to is not None:
                self.consumer.seek(partition, rewind_to)
            self.consumer.pause(partition)
            self._closed.add(partition)
        if self._reopening is None or self._reopening.done():
            self._reopening = asyncio.create_task(self._reopen(), name=f"reopen-{self.log.topic}")

    async def _reopen(self) -> None:
        while self._closed:
            await asyncio.sleep(REOPEN_S)
            for partition in sorted(self._closed):
                await self._open(partition)

    # -- messages ----------------------------------------------------------------------------------------------------

    async def __call__(self, message: KafkaMessage) -> None:
        """Handle one batch: runs of messages, each of one partition."""
        for (topic, partition), group in groupby(message.raw_message, key=lambda m: (m.topic, m.partition)):
            if self._stopping:
                return
            await self._deliver(TopicPartition(topic, partition), list(group))
        await self._commit(message)

    async def _deliver(self, partition: TopicPartition, messages: list[Message]) -> None:
        expected = self._next.get(partition)
        if expected is None:  # closed, or revoked while the batch was on its way
            return
        fresh = [m for m in messages if m.offset >= expected]
        if not fresh:
            return
        try:
            run = await self._patiently(self._decode, fresh, expected)
            await self._patiently(self._apply, run, {m.offset: m for m in fresh})
        except Fenced as error:
            _log.warning("%s", error)
            self._next.pop(partition, None)
            await self._open(partition)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing may be skipped
            _log.error(
                "%s-%d halts at offset %d: %s",
                *(partition.topic, partition.partition, expected, error),
                exc_info=None if isinstance(error, (Transient, KafkaError)) else error,
            )
            self._close(partition, rewind_to=expected)
        else:
            if self._next.get(partition) == expected:
                self._next[partition] = run.next

    async def _patiently(self, action: Any, *args: Any) -> Any:
        for pause_s in RETRIES_S:
            try:
                return await action(*args)
            except Fenced:
                raise
            except (Transient, KafkaError) as error:
                _log.warning("trying again in %g s: %s", pause_s, error)
                await asyncio.sleep(pause_s)
        return await action(*args)

    async def _decode(self, messages: Sequence[Message], expected: int) -> Run:
        entries: list[Entry] = []
        refused: list[Refused] = []
        for message in messages:
            try:
                entries.append(self._entry(message))
            except InvalidEvent as error:
                await self.dead_letters.publish(message, error)
                refused.append(Refused(message.offset, error.reason))
        first, last = messages[0], messages[-1]
        return Run(first.topic, first.partition, expected, last.offset + 1, tuple(entries), tuple(refused))

    def _entry(self, message: Message) -> Entry:
        key = parse_key(message.key)
        if message.value is None:
            self._check_partition(message, key.tenant, key.agent or None)
            return Entry(message.offset, message.timestamp, key, None, b"")
        event, value = self.log.codec.decode_current(message.value)
        if event.key() != message.key:
            raise WrongKey(f"the key is {message.key!r}, for this event it must be {event.key()!r}")
        self._check_partition(message, event.tenantid, event.agentid)
        return Entry(message.offset, message.timestamp, key, event, value)

    def _check_partition(self, message: Message, tenant: str, agent: str | None) -> None:
        if agent is None:  # the erasure of a user or a tenant lies in every partition
            return
        wanted = partition_for(tenant, agent, self.log.partitions)
        if message.partition != wanted:
            raise WrongPartition(
                f"partition {message.partition}, for this agent it must be {wanted}: "
                '(murmur2(utf8("tenant/agent")) & 0x7fffffff) % ' + str(self.log.partitions) + "; producers that "
                "cannot compute it find test vectors in tests/unit/partition_vectors.json"
            )

    async def _apply(self, run: Run, messages: Mapping[int, Message]) -> None:
        """Apply a run; halve it until what the store cannot hold stands alone, and is a dead letter."""
        try:
            await self.projection.apply(run)
        except Unprocessable as error:
            if len(run.entries) > 1:
                for half in _halves(run):
                    await self._apply(half, messages)
                return
            for entry in run.entries:
                await self.dead_letters.publish(messages[entry.offset], error)
            refused = (*run.refused, *(Refused(entry.offset, error.reason) for entry in run.entries))
            await self.projection.apply(replace(run, entries=(), refused=refused))

    async def _commit(self, message: KafkaMessage) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._committed_at < COMMIT_EVERY_S:
            return
        self._committed_at = now
        try:
            await message.ack()
        except KafkaError as error:  # a rebalance came first; the checkpoint is what counts
            _log.debug("group offsets were not committed: %s", error)


def _halves(run: Run) -> Iterator[Run]:
    middle = len(run.entries) // 2
    border = run.entries[middle].offset
    before = tuple(r for r in run.refused if r.offset < border)
    after = tuple(r for r in run.refused if r.offset >= border)
    yield replace(run, next=border, entries=run.entries[:middle], refused=before)
    yield replace(run, expected=border, entries=run.entries[middle:], refused=after)
