"""The consumers as one running whole: checked, started and stopped in order."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from aiokafka.errors import KafkaError
from faststream.kafka import KafkaBroker
from faststream.kafka.prometheus import KafkaPrometheusMiddleware

from engramlog.consumers import admit, answer, derive, index, store, summarise, telemetry
from engramlog.consumers.complaints import Complaints
from engramlog.consumers.health import LOOK_TIMEOUT_S, Health
from engramlog.consumers.metrics import Metrics
from engramlog.consumers.probes import Probes
from engramlog.consumers.security import faststream_security
from engramlog.consumers.wire import Delivers, Wiring
from engramlog.engine.adopting import adopt
from engramlog.engine.client import header_keys, stops
from engramlog.engine.client.admin import inspect_topics
from engramlog.engine.client.ends import LogEnds
from engramlog.engine.client.rights import Wanted, require_rights
from engramlog.engine.history import History
from engramlog.engine.history.versions import HISTORY, Projected, Version
from engramlog.engine.settings import Settings
from engramlog.engine.wiring import Backends, configured_model
from engramlog.schemas.errors import ConfigurationError, EngramlogError
from engramlog.schemas.topics import MAX_MESSAGE_BYTES, Topics

_log = logging.getLogger(__name__)

FOLLOW_S = 0.25
"""How often it is looked which versions of the projections are active."""
GO_OVER_S = 15.0
"""How long going over to other versions may still take when the process stops, in seconds."""
LOOKS_PER_NOTE = 20
"""After so many looks it is noted which of them hold all of the log."""
LEAST_RETENTION_MS = 3_600_000
"""For shorter than this nobody needs to rebuild, even if the topics forget their tombstones sooner."""

CONSUMERS: Mapping[str, Callable[[Wiring], Delivers]] = {
    admit.NAME: admit.register,
    store.NAME: store.register,
    derive.NAME: derive.register,
    index.NAME: index.register,
    summarise.NAME: summarise.register,
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
        self._running: dict[str, _Running] = {}
        self._following: asyncio.Task[None] | None = None
        self._going_over = asyncio.Lock()
        self._broker: KafkaBroker | None = None
        self._history: History | None = None
        self._backends: Backends | None = None
        self._wiring: Wiring | None = None
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
            if works_with_derivations(self._settings, self._names):
                await adopt(self._settings, self._history, model=configured_model(self._settings, self._names))
            active = await self._history.versions.active()
            generations = {version.generation for version in active.values()}
            if generations != {1}:
                (await inspect_topics(kafka, topics=topics, generations=generations)).require()
                await require_rights(kafka, rights_of(self._settings, self._names, generations))
            _check_age(active, cluster.delete_retention_ms(topics.records))
            self._backends = await Backends.open(self._settings, self._history, self._names)
            self._wiring = Wiring(
                self._settings,
                cluster,
                topics,
                self._broker,
                self._history,
                self.metrics,
                self.health,
                self._backends,
                active[HISTORY].generation,
            )
            for name in self._names:
                self._register(name, self._wiring)
            await self._broker.connect()
            await self._start(self._names)
            self._broker.running = True
            self.health.start(
                LogEnds(self._settings.kafka(client_id="engramlog.health"), timeout_s=LOOK_TIMEOUT_S),
                self._history,
                records=topics.records,
                partitions=_Partitions(
                    {state.spec.name: state.partitions for state in cluster.states}, cluster.partitions
                ),
            )
            self._following = asyncio.create_task(self._follow(), name="engramlog-follow")
        except BaseException:
            await self._stop()
            raise
        _log.info("running %s on %s", ", ".join(self._names), self._settings.kafka().bootstrap_servers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    def _register(self, name: str, wiring: Wiring) -> None:
        """Build a consumer, with lists of its own of what to start and stop."""
        own = replace(wiring, subscribers=[], starts=[], stops=[], switches=[])
        self._running[name] = _Running(CONSUMERS[name](own), own)

    async def _start(self, names: Sequence[str]) -> None:
        """Start consumers, all at once: each waits for its group, one after the other that takes seconds each."""
        wirings = [self._running[name].wiring for name in names]
        await asyncio.gather(*(subscriber.start() for wiring in wirings for subscriber in wiring.subscribers))
        for start in (start for wiring in wirings for start in wiring.starts):
            start()

    async def _end(self, names: Sequence[str]) -> None:
        """Stop consumers: they finish what is under way."""
        running = [self._running[name] for name in names if name in self._running]
        for one in running:
            await one.delivery.stop()
        # All at once: leaving a group that is just being balanced takes until that is over.
        stopped = await asyncio.gather(
            *(subscriber.stop() for one in running for subscriber in one.wiring.subscribers), return_exceptions=True
        )
        for stop in (stop for one in running for stop in one.wiring.stops):
            await stop()
        for name in names:  # only now: who is interrupted meanwhile is stopped once more
            self._running.pop(name, None)
        for error in stopped:
            if error is not None:
                raise error

    async def _follow(self) -> None:
        """Go over to whichever versions of the projections are active, as soon as they are."""
        assert self._history is not None
        said, seen = "", _numbers(await self._history.versions.active())
        looked = 0
        while True:
            await asyncio.sleep(FOLLOW_S)
            looked += 1
            try:
                active = await self._history.versions.active()
                if _numbers(active) != seen:
                    async with self._going_over:
                        await self._go_over(active)
                    seen, said = _numbers(active), ""
                if looked % LOOKS_PER_NOTE == 0:
                    await self._note(active)
            except (EngramlogError, KafkaError, OSError) as error:
                if said != str(error):  # it is tried again four times a second
                    said = str(error)
                    _log.warning("cannot follow the active versions, trying again: %s", error)

    async def _go_over(self, active: Mapping[Projected, Version]) -> None:
        assert self._backends is not None
        assert self._wiring is not None
        before = self._wiring
        changed = await self._backends.follow(self._settings)
        if changed is not None:
            self._backends = changed
        self._wiring = replace(before, backends=self._backends, history_generation=active[HISTORY].generation)
        again = [name for name, running in self._running.items() if _is_of_another(name, running.wiring, self._wiring)]
        await self._end(again)
        missing = [name for name in self._names if name not in self._running]  # also what failed to start before
        if missing:
            await self._start_anew(missing)
            _log.info("%s: started anew for another generation", ", ".join(missing))
        # Those who write go over first: what answers waits until the new vectors are where the old ones are.
        for name, running in list(self._running.items()):
            if name not in missing:
                for switch in running.wiring.switches:
                    await switch(self._backends)

    async def _start_anew(self, names: Sequence[str]) -> None:
        assert self._wiring is not None
        for name in names:
            self.health.forget(name)
            self._register(name, self._wiring)
        try:
            await self._start(names)
        except BaseException:
            await self._end(names)
            raise

    async def _note(self, active: Mapping[Projected, Version]) -> None:
        """Note which active versions hold all of the log: one that did not for long must be rebuilt."""
        assert self._history is not None
        current = [version for projection, version in active.items() if self.health.is_current(projection)]
        await self._history.versions.current(current)

    async def _stop(self) -> None:
        self.health.stopping()
        if self._following is not None:
            with suppress(TimeoutError):  # a consumer that is cancelled while it starts leaves its connection open
                async with asyncio.timeout(GO_OVER_S), self._going_over:
                    self._following.cancel()
            self._following.cancel()
            with suppress(asyncio.CancelledError):
                await self._following
        async with AsyncExitStack() as rest:  # whatever cannot be stopped: the rest is
            if self._history is not None:
                rest.push_async_callback(self._history.stop)
            if self._backends is not None:
                rest.push_async_callback(self._backends.close)
            rest.push_async_callback(self.health.stop)
            if self._broker is not None:
                rest.push_async_callback(self._broker.stop)
            await self._end([*self._running])


def _numbers(active: Mapping[Projected, Version]) -> dict[Projected, int]:
    return {projection: version.number for projection, version in active.items()}


@dataclass(frozen=True, slots=True)
class _Running:
    """A consumer of this process.

    Attributes:
        delivery: What handles its messages.
        wiring: What it was built from.
    """

    delivery: Delivers
    wiring: Wiring


class _Partitions(dict[str, int]):
    """Number of partitions by topic; of a later generation's topic, that of every agent topic."""

    def __init__(self, known: Mapping[str, int], agents: int) -> None:
        super().__init__(known)
        self._agents = agents

    def __missing__(self, _topic: str) -> int:
        return self._agents


def _is_of_another(name: str, wiring: Wiring, wanted: Wiring) -> bool:
    """Whether a consumer works on another generation of derivations than it is to."""
    if name == store.NAME:
        return wiring.history_generation != wanted.history_generation
    return (
        name in {derive.NAME, index.NAME} and wiring.backends.version.generation != wanted.backends.version.generation
    )


def _check_age(active: Mapping[Projected, Version], delete_retention_ms: int) -> None:
    """Refuse a projection that may have missed tombstones: the log does not hold them any more."""
    for version in active.values():
        away_ms = time.time() * 1000 - version.current_ms
        if version.current_ms and away_ms > max(delete_retention_ms, LEAST_RETENTION_MS):
            raise ConfigurationError(
                f"{version} was last known to hold all of the log {away_ms / 86_400_000:.1f} days ago; tombstones are "
                f"kept for {delete_retention_ms / 86_400_000:g} days, so it may hold what was erased since. Rebuild "
                "it: engramlog replay all"
            )


def works_with_derivations(settings: Settings, names: Collection[str]) -> bool:
    """Whether some of these consumers write, project or search what is derived."""
    searching = answer.NAME in names and settings.vectors_are_served()
    return searching or bool(set(names) & {store.NAME, derive.NAME, index.NAME})


def rights_of(settings: Settings, names: Sequence[str], generations: Collection[int] = (1,)) -> Wanted:
    """What some consumers must be allowed to do, as the topic table says.

    Who works with derivations also reads them, on a new database: which there are, of which model; and ``derive`` finds
    there what is derived already.
    """
    topics = settings.topics()
    derived = [topics.derived_spec(generation) for generation in sorted(generations)]
    table = [*derived, *(spec for spec in topics.table() if spec.name != topics.derived)]
    reading = {spec.name for spec in derived} if works_with_derivations(settings, names) else set()
    return Wanted(
        reads=tuple(spec.name for spec in table if set(names) & set(spec.consumers) or spec.name in reading),
        writes=tuple(spec.name for spec in table if set(names) & set(spec.producers)),
        groups=tuple(f"{settings.prefix}.{name}" for name in names),
    )


def _broker(settings: Settings, client_id: str, metrics: Metrics) -> KafkaBroker:
    header_keys.tolerate()
    stops.tolerate()
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
