"""The reply side of request/reply: one partition of ``memory.replies``, watched by a consumer without a group."""

import asyncio
import logging
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from engramlog.engine.client.connection import KafkaConfig, kafka_errors
from engramlog.schemas.errors import BrokerUnavailable, ConfigurationError
from engramlog.schemas.queries import CORRELATION_ID

_log = logging.getLogger(__name__)
_PAUSE_S, _REFUSED_PAUSE_S = 0.5, 5.0


class Replies:
    """Hands replies to those who wait for them; late, doubled and foreign ones are dropped unread.

    Args:
        config: The cluster.
        topic: The reply topic.
        partition: The partition that this client asks its replies to be sent to; shared with other clients.
    """

    def __init__(self, config: KafkaConfig, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self._config = config
        self._waiting: dict[bytes, asyncio.Future[bytes]] = {}
        self._ready = asyncio.Event()
        self._next: int | None = None
        self._refused: ConfigurationError | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen, in the background."""
        if self._task is None:
            self._task = asyncio.create_task(self._listen(), name="engramlog-replies")

    async def stop(self) -> None:
        """Stop listening; whoever still waits is cancelled."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        for future in self._waiting.values():
            future.cancel()
        self._waiting.clear()

    async def ready(self) -> None:
        """Wait until no reply to a request that is sent from now on can be missed.

        Raises:
            ConfigurationError: We must not read replies; it is tried again in the background.
        """
        await self._ready.wait()
        if self._refused is not None:
            raise self._refused

    def expect(self, request_id: str) -> "asyncio.Future[bytes]":
        """A future for the body of the reply to a request. Call :meth:`forget` when done with it."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[request_id.encode()] = future
        return future

    def forget(self, request_id: str) -> None:
        """Nobody waits for this reply any more."""
        self._waiting.pop(request_id.encode(), None)

    async def _listen(self) -> None:
        while True:
            consumer = AIOKafkaConsumer(**self._config.reader())
            try:
                with kafka_errors(self._config, "waiting for replies"):
                    await self._hear(consumer)
            except ConfigurationError as error:
                self._refuse(error)
            except BrokerUnavailable as error:
                _log.warning("the reply consumer lost Kafka: %s", error)
            finally:
                with suppress(KafkaError, OSError):
                    await consumer.stop()
            await asyncio.sleep(_PAUSE_S if self._refused is None else _REFUSED_PAUSE_S)

    async def _hear(self, consumer: AIOKafkaConsumer) -> None:
        await consumer.start()
        await self._position(consumer)
        self._ready.set()
        try:
            async for message in consumer:
                self._refused = None
                self._dispatch(message)
        except OffsetOutOfRangeError:
            self._next = None

    def _refuse(self, error: ConfigurationError) -> None:
        """Tell everybody who waits, instead of letting their time run out; said once in the log."""
        if self._refused is None:
            _log.error("%s", error)
        self._refused = error
        self._ready.set()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)

    async def _position(self, consumer: AIOKafkaConsumer) -> None:
        """Start at the end, once; after a lost connection go on where we were."""
        partition = TopicPartition(self.topic, self.partition)
        consumer.assign([partition])
        if self._next is None:
            self._next = (await consumer.end_offsets([partition]))[partition]
        consumer.seek(partition, self._next)
        await consumer.position(partition)

    def _dispatch(self, message: "ConsumerRecord[bytes, bytes]") -> None:
        self._next = message.offset + 1
        for name, value in message.headers:
            if name == CORRELATION_ID:
                future = self._waiting.pop(value, None)
                if future is not None and not future.done():
                    future.set_result(message.value or b"")
                return
