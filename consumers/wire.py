"""Subscribing a delivery to a topic with FastStream, so that nothing is lost by a default."""

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from faststream import AckPolicy
from faststream.kafka import KafkaBroker, KafkaMessage
from faststream.kafka.annotations import KafkaMessage as InjectedMessage
from faststream.kafka.subscriber.usecase import BatchSubscriber

from engramlog.consumers.dead_letters import DeadLetters
from engramlog.consumers.health import Health, Subscription
from engramlog.consumers.metrics import Metrics
from engramlog.consumers.observing import Observer
from engramlog.consumers.ownership import Ownership
from engramlog.engine.client.admin import Cluster
from engramlog.engine.history import History
from engramlog.engine.settings import Settings
from engramlog.engine.wiring import Backends
from engramlog.schemas.topics import Topics

POLL_MS = 200
"""How long a consumer waits for messages before it is idle, in milliseconds."""


class Delivers(Protocol):
    """A handler of batches that also wants to know which partitions it owns."""

    async def __call__(self, message: KafkaMessage) -> None:
        """Handle one batch."""

    async def idle(self) -> None:
        """There was nothing to fetch: no batch is in hand."""

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Partitions went to another owner."""

    async def on_partitions_assigned(self, assigned: set[TopicPartition], consumer: AIOKafkaConsumer) -> None:
        """Partitions came to this owner, who may seek in the consumer."""

    async def stop(self) -> None:
        """Finish what is under way."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """What consumers are built from.

    Attributes:
        settings: The settings.
        cluster: What was found when the topics were checked.
        topics: Their names.
        broker: The FastStream broker.
        history: The history store.
        metrics: What is counted.
        health: What watches the consumers.
        backends: The models and stores that its consumers need.
        history_generation: The generation of derivations that the active history holds.
        subscribers: What was subscribed.
        starts: What is to be started with the consumer.
        stops: What is to be stopped after it.
        switches: Who goes over to other vectors without being started anew.
    """

    settings: Settings
    cluster: Cluster
    topics: Topics
    broker: KafkaBroker
    history: History
    metrics: Metrics
    health: Health
    backends: Backends
    history_generation: int = 1
    subscribers: list[BatchSubscriber] = field(default_factory=list)
    starts: list[Callable[[], None]] = field(default_factory=list)
    stops: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    switches: list[Callable[[Backends], Awaitable[None]]] = field(default_factory=list)

    def on_switch(self, follow: Callable[[Backends], Awaitable[None]]) -> None:
        """Have something told when other vectors of the same generation became active."""
        self.switches.append(follow)

    def on_start(self, start: Callable[[], None]) -> None:
        """Have something started, once the consumers take messages."""
        self.starts.append(start)

    def on_stop(self, stop: Callable[[], Awaitable[None]]) -> None:
        """Have something stopped, once no consumer takes messages any more."""
        self.stops.append(stop)

    def group(self, consumer: str) -> str:
        """The consumer group of a consumer."""
        return f"{self.settings.prefix}.{consumer}"

    def observer(self, consumer: str) -> Observer:
        """Whom a consumer tells about its work."""
        return Observer(consumer, self.group(consumer), self.metrics)

    def dead_letters(self, consumer: str) -> DeadLetters:
        """Where a consumer sends what it cannot process."""
        return DeadLetters(self.broker, self.topics.dead_letters, consumer, self.observer(consumer))


def subscribe(
    wiring: Wiring,
    name: str,
    topics: Sequence[str],
    delivery: Delivers,
    *,
    max_records: int,
    ownership: Ownership | None = None,
    projection: str | None = None,
) -> None:
    """Subscribe to topics in batches, from its beginning, committing by hand.

    The group is ``{prefix}.{name}``: the name is the consumer's identity, for ever.

    Args:
        wiring: What everything is built from.
        name: The consumer.
        topics: The topics.
        delivery: What handles their messages.
        max_records: How many it takes at once.
        ownership: For a projection: its partitions, which health looks at.
        projection: For a projection: its name.
    """
    subscriber = wiring.broker.subscriber(
        *topics,
        group_id=wiring.group(name),
        batch=True,
        max_records=max_records,
        ack_policy=AckPolicy.MANUAL,
        auto_offset_reset="earliest",
        isolation_level="read_committed",  # what a transaction took back is cleaned away: a rebuild would not see it
        session_timeout_ms=wiring.settings.session_timeout_ms,
        heartbeat_interval_ms=wiring.settings.session_timeout_ms // 3,
        rebalance_timeout_ms=max(30_000, wiring.settings.session_timeout_ms),
        fetch_max_wait_ms=wiring.settings.fetch_max_wait_ms,
        listener=_Listener(delivery, lambda: subscription),
        parser=_header_proof,
        decoder=_undecoded,
        persistent=False,  # one that is started anew is another one
    )

    async def handle(message: InjectedMessage) -> None:
        await delivery(message)

    async def poll(consumer: AIOKafkaConsumer) -> tuple[Any, ...]:
        batches = await consumer.getmany(timeout_ms=POLL_MS, max_records=max_records)
        if not batches:
            await delivery.idle()
        return tuple(chain.from_iterable(batches.values()))

    subscriber(handle)
    # In the place of FastStream's own, which sleeps after an empty fetch: a message that comes then would wait.
    wiring.subscribers.append(subscriber)
    subscriber.get_msg = poll  # type: ignore[method-assign]  # FastStream has no setting for it
    subscription = Subscription(name, tuple(topics), subscriber, ownership, projection)
    wiring.health.watch(subscription)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka's listener is untyped
    """Hands the consumer over with each assignment: it exists only after the subscriber was started."""

    def __init__(self, delivery: Delivers, subscription: Callable[[], Subscription]) -> None:
        self._delivery, self._subscription = delivery, subscription

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._subscription().assigned = None
        await self._delivery.on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._subscription().assigned = frozenset(assigned)
        consumer = self._subscription().subscriber.consumer
        if consumer is not None:
            await self._delivery.on_partitions_assigned(assigned, consumer)


async def _header_proof(batch: tuple[Any, ...], original: Callable[[Any], Awaitable[KafkaMessage]]) -> KafkaMessage:
    """Parse without headers and bodies: one header that is not UTF-8 would lose the whole batch.

    FastStream sees only an empty first message; the delivery decodes each raw message by itself.
    """
    message = await original((dataclasses.replace(batch[0], headers=(), value=b""),))
    message.raw_message = batch
    message.body = [raw.value or b"" for raw in batch]  # for the middlewares that count bytes
    return message


async def _undecoded(message: KafkaMessage) -> Any:
    return message.body
