"""Delivery: decode → publish dead letters → apply with the checkpoint → commit. The only place that knows it.

Kafka only says who owns a partition; the projection keeps its own checkpoint (:mod:`engramlog.consumers.ownership`):

- Messages are decoded one by one: what is wrong becomes a dead letter, whose acknowledgement is awaited before the
  checkpoint moves past it.
- A run is applied by compare-and-set on the checkpoint. A stale owner is :class:`Fenced`: it writes nothing, and the
  partition is opened anew.
- When a store is down the run is tried a few times, then its partition is closed: the consumer stays in its group,
  other partitions go on, nothing is ever skipped, and the partition is opened again when the store is back.
- Kafka's group offsets are committed now and then, as a courtesy to lag tools.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeAlias, TypeVar

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError
from faststream.kafka import KafkaMessage

from engramlog.consumers.dead_letters import DeadLetters
from engramlog.consumers.observing import Observer
from engramlog.consumers.ownership import Ownership
from engramlog.engine.decoding import Decoder
from engramlog.engine.log import Entry, Refused, Run, halves
from engramlog.schemas.codec import Codec
from engramlog.schemas.errors import Fenced, InvalidEvent, Transient, Unprocessable

_log = logging.getLogger(__name__)
Message: TypeAlias = "ConsumerRecord[Any, Any]"
T = TypeVar("T")

RETRIES_S = (0.1, 0.4, 1.5)
"""Pauses between the tries of one run, before its partition is closed."""
COMMIT_EVERY_S = 1.0
_BREATH = 64
"""After so many messages the decoder lets others run: heartbeats, an answer in the same process."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A decoded run and the messages it came from."""

    run: Run
    messages: Sequence[Message]


class Delivery:
    """Delivers one topic to one projection. Give it to a FastStream batch subscriber as handler and listener.

    Args:
        ownership: Which partitions are open, and at which offset.
        codecs: What decodes each topic's events.
        partitions: Number of every topic's partitions: the n of the partition rule.
        dead_letters: Where everything else goes.
        observer: Who is told.
        reports_invalid: Whether what cannot be decoded becomes a dead letter here. Of the consumers of a topic one
            does; the others pass over it.
    """

    def __init__(
        self,
        ownership: Ownership,
        codecs: Mapping[str, Codec[Any]],
        partitions: int,
        dead_letters: DeadLetters,
        observer: Observer,
        *,
        reports_invalid: bool = True,
    ) -> None:
        self._ownership = ownership
        self._observer = observer
        self._projection = ownership.projection
        self._decoder = Decoder(codecs, partitions)
        self._reports_invalid = reports_invalid
        self._dead_letters = dead_letters
        self._committed_at = 0.0
        self._stopping = False

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Partitions went to another owner."""
        self._ownership.forget(revoked)

    async def on_partitions_assigned(self, assigned: set[TopicPartition], consumer: AIOKafkaConsumer) -> None:
        """Partitions came to this owner: open them."""
        await self._ownership.open_all(assigned, consumer)

    async def stop(self) -> None:
        """Take no more messages; the run under way is finished by whoever stops the broker."""
        self._stopping = True
        await self._ownership.stop()

    async def __call__(self, message: KafkaMessage) -> None:
        """Handle one batch: runs of messages, each of one partition, one after the other."""
        for (topic, number), group in groupby(message.raw_message, key=lambda m: (m.topic, m.partition)):
            partition, messages = TopicPartition(topic, number), list(group)
            span = await self._ownership.span(partition, messages[-1].offset)
            if self._stopping or span is None:
                continue
            fresh = [m for m in messages if m.offset >= span[0]]
            batch = await self._guarded(partition, span[0], self._decode, fresh, *span) if fresh else None
            if batch is not None:
                await self._finish(partition, batch)
        await self._commit(message)

    async def idle(self) -> None:
        """Nothing is in hand: what the consumers passed over without a message (a compacted end) is passed for good."""
        for partition in list(self._ownership.next):
            span = await self._ownership.span(partition)
            if span is not None and span[1] > span[0]:
                await self._finish(partition, Batch(Run(partition.topic, partition.partition, *span), ()))

    async def _finish(self, partition: TopicPartition, batch: Batch) -> None:
        expected = batch.run.expected
        with self._observer.applying(batch.run, batch.messages) as applying:
            applied = await self._guarded(partition, expected, self._apply, batch.run, batch.messages)
            applying.done = bool(applied)
        if applied and self._ownership.next.get(partition) == expected:
            self._ownership.next[partition] = batch.run.next

    async def _guarded(
        self, partition: TopicPartition, expected: int, action: Callable[..., Awaitable[T]], *args: Any
    ) -> T | None:
        """Do something about a partition, patiently. None: it could not be done, and the partition is closed."""
        try:
            return await _patiently(action, *args)
        except Fenced as error:
            _log.warning("%s", error)
            await self._ownership.reopen(partition)
        except Exception as error:  # noqa: BLE001 - let out, FastStream would log it and go on behind it
            _log.error(
                "%s-%d halts at offset %d: %s",
                *(partition.topic, partition.partition, expected, error),
                exc_info=None if isinstance(error, (Transient, KafkaError)) else error,
            )
            self._ownership.close(partition, str(error) or type(error).__name__, rewind_to=expected)
        return None

    async def _decode(self, messages: Sequence[Message], expected: int, following: int) -> Batch:
        entries: list[Entry] = []
        refused: list[Refused] = []
        for n, message in enumerate(messages):
            try:
                entries.append(self._decoder.entry(message))
            except InvalidEvent as error:
                if self._reports_invalid:
                    await self._dead_letters.publish(message, error)
                refused.append(Refused(message.offset, error.reason))
            if n % _BREATH == 0:
                await asyncio.sleep(0)
        first = messages[0]
        run = Run(first.topic, first.partition, expected, following, tuple(entries), tuple(refused))
        return Batch(run, messages)

    async def _apply(self, run: Run, messages: Sequence[Message]) -> bool:
        """Apply a run; halve it until what the store cannot hold stands alone, and is a dead letter."""
        try:
            await self._projection.apply(run)
        except Unprocessable as error:
            if len(run.entries) > 1:
                for half in halves(run):
                    await self._apply(half, messages)
                return True
            spoilt = {entry.offset for entry in run.entries}
            for message in messages:
                if message.offset in spoilt:
                    await self._dead_letters.publish(message, error)
            refused = (*run.refused, *(Refused(offset, error.reason) for offset in spoilt))
            await self._projection.apply(replace(run, entries=(), refused=refused))
        return True

    async def _commit(self, message: KafkaMessage) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._committed_at < COMMIT_EVERY_S:
            return
        self._committed_at = now
        try:
            await message.ack()
        except KafkaError as error:  # a rebalance came first; the checkpoint is what counts
            _log.debug("group offsets were not committed: %s", error)


async def _patiently(action: Callable[..., Awaitable[T]], *args: Any) -> T:
    for pause_s in RETRIES_S:
        try:
            return await action(*args)
        except Fenced:
            raise
        except (Transient, KafkaError) as error:
            _log.warning("trying again in %g s: %s", pause_s, error)
            await asyncio.sleep(pause_s)
    return await action(*args)
