"""Delivery of requests: each in a task of its own, always answered, committed only when all before it are done.

A request that is redelivered (this process died before it was done) is answered again; the client drops the second
reply. A request whose deadline has passed is dropped: nobody waits for it any more.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError
from faststream.kafka import KafkaBroker, KafkaMessage

from engramlog.consumers.dead_letters import DeadLetters
from engramlog.consumers.observing import Observer
from engramlog.schemas import queries as q
from engramlog.schemas.codec import Codec, replies_codec
from engramlog.schemas.errors import InvalidEvent, TooLarge

_log = logging.getLogger(__name__)
Message: TypeAlias = "ConsumerRecord[Any, Any]"
Handler = Callable[..., Awaitable[q.Reply]]

MAX_AT_ONCE = 4_096
"""How many requests may be under way; more are left in Kafka."""
MAX_AT_ONCE_AGENT = 256
"""How many of them may be one agent's; more are refused, so that one agent's flood leaves room for others."""
COMMIT_EVERY_S = 1.0
_STOP_S = 5.0
_ID_BYTES = 128


@dataclass(frozen=True, slots=True)
class Address:
    """Where a reply goes.

    Attributes:
        partition: The caller's partition of the reply topic.
        correlation_id: The id by which the caller knows its request.
    """

    partition: int
    correlation_id: str


@dataclass(slots=True)
class Requests:
    """Delivers requests to a handler. Give it to a FastStream batch subscriber as handler and listener.

    Attributes:
        broker: The broker to reply with.
        reply_topic: The only topic that replies go to, whatever a request says.
        reply_partitions: Its number of partitions.
        codec: What decodes requests.
        handler: What answers them; it must not raise.
        dead_letters: Where requests go that can neither be read nor answered.
        observer: Who is told.
        on_stop: What else to stop, after the last request.
    """

    broker: KafkaBroker
    reply_topic: str
    reply_partitions: int
    codec: Codec[q.QueryAsked]
    handler: Handler
    dead_letters: DeadLetters
    observer: Observer
    on_stop: Callable[[], Awaitable[None]]
    _consumer: AIOKafkaConsumer | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_AT_ONCE))
    _agents: Counter[tuple[str, str]] = field(default_factory=Counter)
    _open: dict[TopicPartition, set[int]] = field(default_factory=dict)
    _next: dict[TopicPartition, int] = field(default_factory=dict)
    _committed: dict[TopicPartition, int] = field(default_factory=dict)
    _committing: asyncio.Task[None] | None = None
    _stopping: bool = False

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Commit what is done; what is under way is still answered."""
        await self._commit()
        for partition in revoked:
            for known in (self._open, self._next, self._committed):
                known.pop(partition, None)

    async def on_partitions_assigned(self, _assigned: set[TopicPartition], consumer: AIOKafkaConsumer) -> None:
        """Partitions came to this owner."""
        self._consumer = consumer
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit_now_and_then(), name="engramlog-commit")

    async def stop(self) -> None:
        """Take no more, finish what is under way, for a few seconds, and commit."""
        self._stopping = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_STOP_S)
        for task in self._tasks:
            task.cancel()
        if self._committing is not None:
            self._committing.cancel()
            with suppress(asyncio.CancelledError):
                await self._committing
        await self._commit()
        await self.on_stop()

    async def idle(self) -> None:
        """Nothing to do."""

    async def __call__(self, message: KafkaMessage) -> None:
        """Start a task for each request of a batch; wait while too many are under way."""
        for request in message.raw_message:
            if self._stopping:  # not committed: another process answers it
                return
            partition = TopicPartition(request.topic, request.partition)
            self._open.setdefault(partition, set()).add(request.offset)
            self._next[partition] = request.offset + 1
            await self._room.acquire()
            task = asyncio.create_task(self._serve(request, partition))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, request: Message, partition: TopicPartition) -> None:
        try:
            await self._answer(request)
        except KafkaError as error:
            _log.error("the request at %s@%d was not answered: %s", partition, request.offset, error)
        except Exception:  # noqa: BLE001 - let out, it would be lost in its task: nobody awaits it
            _log.exception("the request at %s@%d was not answered", partition, request.offset)
        finally:
            self._room.release()
            self._open.get(partition, set()).discard(request.offset)

    async def _answer(self, request: Message) -> None:
        address = _address(request, self.reply_topic, self.reply_partitions)
        try:
            query = self.codec.decode(request.value or b"")
        except InvalidEvent as error:
            self.observer.unreadable()
            if address is None:
                await self.dead_letters.publish(request, error)
            else:
                failure = q.Failure(code="bad_request", message=str(error))
                await self._reply(address, q.Reply(error=failure), tenant="unknown")
            return
        left_s = (request.timestamp + query.data.timeout_ms) / 1000 - time.time()
        if address is None or left_s <= 0:
            _log.debug("request %s is dropped: %s", query.id, "no reply address" if address is None else "too late")
            self.observer.late(query.data.ask)
            return
        with self.observer.answering(query.data.ask, request) as answering:
            reply = await self._handled(query, left_s)
            answering.replied(reply)
            await self._reply(address, reply, tenant=query.tenantid)

    async def _handled(self, query: q.QueryAsked, left_s: float) -> q.Reply:
        agent = (query.tenantid, query.agentid)
        if self._agents[agent] >= MAX_AT_ONCE_AGENT:
            message = f"{MAX_AT_ONCE_AGENT} requests of this agent are under way already; try again"
            return q.Reply(error=q.Failure(code="unavailable", message=message))
        self._agents[agent] += 1
        try:
            return await self.handler(query, timeout_s=left_s)
        finally:
            self._agents[agent] -= 1
            if not self._agents[agent]:
                del self._agents[agent]

    async def _reply(self, address: Address, reply: q.Reply, *, tenant: str) -> None:
        event = q.QueryReplied(
            source="engramlog/answer", tenantid=tenant, correlationid=address.correlation_id, data=reply
        )
        try:
            value = replies_codec().encode(event)
        except TooLarge as error:
            failure = q.Failure(code="too_large", message=str(error))
            value = replies_codec().encode(event.model_copy(update={"data": q.Reply(error=failure)}))
        await self.broker.publish(
            value,
            topic=self.reply_topic,
            partition=address.partition,
            key=address.correlation_id.encode(),
            headers={q.CORRELATION_ID: address.correlation_id},
        )

    async def _commit_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_EVERY_S)
            await self._commit()

    async def _commit(self) -> None:
        """Commit up to the oldest request that is still under way."""
        done = {tp: min(self._open.get(tp) or {end}) for tp, end in self._next.items()}
        moved = {tp: offset for tp, offset in done.items() if self._committed.get(tp) != offset}
        if not moved or self._consumer is None:
            return
        with suppress(KafkaError):  # a rebalance came first: those requests are answered twice
            await self._consumer.commit(moved)
            self._committed.update(moved)


def _address(request: Message, topic: str, partitions: int) -> Address | None:
    """The reply address, if the request has one that may be used: the reply topic, and nothing else."""
    headers = dict(request.headers)
    partition = headers.get(q.REPLY_PARTITION) or b""
    correlation_id = headers.get(q.CORRELATION_ID)
    if headers.get(q.REPLY_TOPIC) != topic.encode() or not correlation_id or not partition.isdigit():
        return None
    if len(correlation_id) > _ID_BYTES or not correlation_id.isascii() or not correlation_id.decode().isprintable():
        return None
    number = int(partition[:6])
    return Address(number, correlation_id.decode()) if number < partitions else None
