"""The consumers as one running whole: checked, started and stopped in order."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from faststream.kafka import KafkaBroker
from faststream.kafka.prometheus import KafkaPrometheusMiddleware

from engramlog.consumers import admit, answer, store, telemetry
from engramlog.consumers.complaints import Complaints
from engramlog.consumers.health import LOOK_TIMEOUT_S, Health
from engramlog.consumers.metrics import Metrics
from engramlog.consumers.probes import Probes
from engramlog.consumers.security import faststream_security
from engramlog.consumers.wire import Delivers, Wiring
from engramlog.engine.client import header_keys
from engramlog.engine.client.admin import inspect_topics
from engramlog.engine.client.ends import LogEnds
from engramlog.engine.client.rights import Wanted, require_rights
from engramlog.engine.history import History
from engramlog.engine.settings import Settings
from engramlog.schemas.errors import ConfigurationError
from engramlog.schemas.topics import MAX_MESSAGE_BYTES, Topics

_log = logging.getLogger(__name__)

CONSUMERS: Mapping[str, Callable[[Wiring], Delivers]] = {
    admit.NAME: admit.register,
    store.NAME: store.register,
    answer.NAME: answer.register,
}
"""Every consumer by its name: group suffix, metric label and argument of ``engramlog run``."""


class Consumers:
    """Some consumers in this process. An async context manager: inside, they run.

    Args:
        settings: The settings.
        names: Which consumers; by default all.

    Attributes:
        metrics: What they count.
        health: Whether they are well.
        probes: Both, to be served.

    Raises:
        ConfigurationError: A consumer is unknown; or, on entering, a topic is missing or would forget.
        BrokerUnavailable: On entering: Kafka does not answer.
        StoreUnavailable: On entering: a store does not answer.
    """

    def __init__(self, settings: Settings, names: Sequence[str] = tuple(CONSUMERS)) -> None:
        if unknown := sorted(set(names) - CONSUMERS.keys()):
            raise ConfigurationError(f"unknown consumer {', '.join(unknown)}; there are {', '.join(CONSUMERS)}")
        self._settings = settings
        self._names = tuple(dict.fromkeys(names))
        self._deliveries: list[Delivers] = []
        self._broker: KafkaBroker | None = None
        self._history: History | None = None
        self.metrics = Metrics()
        self.health = Health(self.metrics, max_lag=settings.ready_max_lag)
        self.probes = Probes(self.health, self.metrics.registry)

    async def __aenter__(self) -> Self:
        kafka = self._settings.kafka()
        cluster = (await inspect_topics(kafka, topics=self._settings.topics())).require()
        await require_rights(kafka, rights_of(self._settings, self._names))
        topics = Topics(self._settings.prefix, cluster.partitions)
        self._history = History(self._settings.effective_history_url(), topics=topics)
        self._broker = _broker(self._settings, ".".join(self._names), self.metrics)
        try:
            await self._history.start()
            wiring = Wiring(self._settings, cluster, topics, self._broker, self._history, self.metrics, self.health)
            self._deliveries = [CONSUMERS[name](wiring) for name in self._names]
            await _start(self._broker)
            self.health.start(
                LogEnds(self._settings.kafka(client_id="engramlog.health"), timeout_s=LOOK_TIMEOUT_S),
                self._history,
                records=topics.records,
                partitions={state.spec.name: state.partitions for state in cluster.states},
            )
        except BaseException:
            await self._stop()
            raise
        _log.info("running %s on %s", ", ".join(self._names), self._settings.kafka().bootstrap_servers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def _stop(self) -> None:
        self.health.stopping()
        for delivery in self._deliveries:
            await delivery.stop()
        if self._broker is not None:
            # All at once: leaving a group that is just being balanced takes until that is over.
            await asyncio.gather(*(subscriber.stop() for subscriber in self._broker.subscribers))
            await self._broker.stop()
        await self.health.stop()
        if self._history is not None:
            await self._history.stop()


async def _start(broker: KafkaBroker) -> None:
    """Start all subscribers at once: each waits for its group, one after the other that would take seconds each."""
    await broker.connect()
    await asyncio.gather(*(subscriber.start() for subscriber in broker.subscribers))
    broker.running = True


def rights_of(settings: Settings, names: Sequence[str]) -> Wanted:
    """What some consumers must be allowed to do, as the topic table says."""
    table = settings.topics().table()
    return Wanted(
        reads=tuple(spec.name for spec in table if set(names) & set(spec.consumers)),
        writes=tuple(spec.name for spec in table if set(names) & set(spec.producers)),
        groups=tuple(f"{settings.prefix}.{name}" for name in names),
    )


def _broker(settings: Settings, client_id: str, metrics: Metrics) -> KafkaBroker:
    header_keys.tolerate()
    kafka = settings.kafka(client_id=f"engramlog.{client_id}")
    Complaints(kafka.security, client_id).install()
    return KafkaBroker(
        kafka.bootstrap_servers.split(","),
        client_id=kafka.client_id,
        request_timeout_ms=kafka.request_timeout_ms,
        acks="all",
        enable_idempotence=kafka.idempotent,
        max_request_size=MAX_MESSAGE_BYTES,
        allow_auto_create_topics=False,
        middlewares=[
            KafkaPrometheusMiddleware(registry=metrics.registry, app_name="engramlog"),
            *telemetry.middlewares(),
        ],
        logger=logging.getLogger("engramlog.faststream"),
        log_level=logging.DEBUG,
        **faststream_security(kafka.security),
    )
