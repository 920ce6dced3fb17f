"""Whether this process lives, whether it is ready, and how far it lags: looked at again and again, told when asked."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from aiokafka import TopicPartition
from aiokafka.errors import IllegalStateError
from faststream.kafka.subscriber.usecase import BatchSubscriber
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from engramlog.consumers.metrics import Metrics
from engramlog.consumers.ownership import Ownership
from engramlog.engine.client.ends import LogEnds
from engramlog.engine.client.reader import Span
from engramlog.engine.history import Checkpoint, History
from engramlog.schemas.errors import EngramlogError

_log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
LOOK_TIMEOUT_S = 5.0
HISTORY = "history"
"""The projection that every process looks at: answers come from it."""
_SHOWN = 50

T = TypeVar("T")
Place = tuple[str, int]
"""Topic and partition."""
Progress = tuple[str, str, int]
"""Projection, topic and partition."""


@dataclass(slots=True)
class Subscription:
    """A consumer that reads a topic in this process.

    Attributes:
        consumer: Its name.
        topics: The topics.
        subscriber: FastStream's subscriber.
        ownership: For a projection: which partitions are open.
        projection: Its name, which its checkpoints are found under.
        assigned: The partitions that the group gave it; None: none yet, or it is being decided anew.
    """

    consumer: str
    topics: tuple[str, ...]
    subscriber: BatchSubscriber
    ownership: Ownership | None
    projection: str | None = None
    assigned: frozenset[TopicPartition] | None = None

    def alive(self) -> bool:
        """Whether something still takes messages. FastStream starts what failed again, but not what was cancelled."""
        return any(not task.done() for task in self.subscriber.tasks)

    @property
    def restarts(self) -> int:
        """How often FastStream had to start it again."""
        return max(0, len(self.subscriber.tasks) - 1)


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one time; None: it could not be seen.

    Attributes:
        ends: The spans of all partitions that this process cares for.
        checkpoints: How far the projections have come.
        positions: How far the other consumers of this process have come, by consumer and partition.
        errors: Why something could not be seen, by source.
    """

    ends: Mapping[Place, Span] | None = None
    checkpoints: Mapping[Progress, Checkpoint] | None = None
    positions: Mapping[tuple[str, TopicPartition], int] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)

    def lag(self, projection: str, place: Place) -> int | None:
        """How many offsets a projection is behind in a partition; None: unknown."""
        if self.ends is None or self.checkpoints is None or place not in self.ends:
            return None
        found = self.checkpoints.get((projection, *place))
        return self.behind(place, found.next if found is not None else 0)

    def behind(self, place: Place, wants: int) -> int | None:
        """How many offsets lie between a position and the end; None: unknown."""
        if self.ends is None or place not in self.ends:
            return None
        span = self.ends[place]
        return max(0, span.end - max(span.begin, wants))


class Health:
    """Watches the consumers of one process.

    Args:
        metrics: Where the lag is served.
        max_lag: With more offsets behind, in one partition, the process is not ready.
    """

    def __init__(self, metrics: Metrics, *, max_lag: int) -> None:
        self.state: Literal["starting", "running", "stopping"] = "starting"
        self._metrics = metrics
        self._max_lag = max_lag
        self._subscriptions: list[Subscription] = []
        self._look = Look(errors={"engine": "nothing was looked at yet"})
        self._task: asyncio.Task[None] | None = None
        self._records = ""
        self._partitions: Mapping[str, int] = {}
        metrics.collect_from(self._collect)

    def watch(self, subscription: Subscription) -> None:
        """Watch a consumer, too."""
        self._subscriptions.append(subscription)

    def forget(self, consumer: str) -> None:
        """A consumer was stopped, and will be started anew."""
        self._subscriptions = [s for s in self._subscriptions if s.consumer != consumer]

    @property
    def _followed(self) -> Mapping[str, frozenset[str]]:
        """The topics of each projection that this process looks at."""
        followed = {HISTORY: {self._records}} if self._records else {}
        for subscription in self._subscriptions:
            if subscription.projection is not None:
                followed.setdefault(subscription.projection, set()).update(subscription.topics)
        return {projection: frozenset(topics) for projection, topics in followed.items()}

    def start(self, ends: LogEnds, history: History, *, records: str, partitions: Mapping[str, int]) -> None:
        """Begin to look.

        Args:
            ends: Looks at the log; stopped with the rest.
            history: Where the checkpoints are.
            records: The topic that every process looks at.
            partitions: Number of partitions of every topic.
        """
        self._records, self._partitions = records, partitions
        self.state = "running"
        self._task = asyncio.create_task(self._run(ends, history), name="engramlog-health")

    def is_current(self, projection: str) -> bool:
        """Whether a projection was seen to hold all of the log at the last look."""
        lags = [lag for (name, _, _), lag in self._lags() if name == projection]
        return bool(lags) and not any(lags) and not self._look.errors

    def stopping(self) -> None:
        """From now on it is not ready."""
        self.state = "stopping"

    async def stop(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def live(self) -> tuple[bool, dict[str, Any]]:
        """Whether every consumer still takes messages; and what to say about it."""
        dead = [] if self.state != "running" else [s.consumer for s in self._subscriptions if not s.alive()]
        if self.state == "running" and (self._task is None or self._task.done()):
            dead.append("health")
        problems = [f"the task of {name!r} has died: restart this process" for name in dead]
        return not dead, {"live": not dead, "state": self.state, "problems": problems}

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether every consumer does its work, and every projection is near the log's end; and what is not."""
        problems = [] if self.state == "running" else [f"the process is {self.state}"]
        if self.state == "running":
            problems += [f"{source}: {error}" for source, error in sorted(self._look.errors.items())]
        consumers = [self._about(subscription, problems) for subscription in self._subscriptions]
        body = {"ready": not problems, "state": self.state, "max_lag": self._max_lag, "problems": problems[:_SHOWN]}
        return not problems, {
            **body,
            "consumers": consumers,
            "projections": [self._projection(name) for name in sorted(self._followed) or [HISTORY]],
        }

    def _about(self, subscription: Subscription, problems: list[str]) -> dict[str, Any]:
        name, own = subscription.consumer, subscription.ownership
        if self.state == "running" and not subscription.alive():
            problems.append(f"{name}: its task has died")
        if subscription.assigned is None and self.state == "running":
            problems.append(f"{name}: waiting for the partitions of {' and '.join(subscription.topics)}")
        found = []
        for tp in sorted(subscription.assigned or ()):
            about = self._partition(tp, own, subscription.projection or HISTORY) if own is not None else {}
            if about:
                found.append({"topic": tp.topic, "partition": tp.partition, **about})
                if self.state == "running":
                    problems.append(f"{name}: {_said(tp, about, self._max_lag)}")
        count = None if subscription.assigned is None else len(subscription.assigned)
        return {
            "consumer": name,
            "topic": ", ".join(subscription.topics),
            "partitions": count,
            "unready": found[:_SHOWN],
        }

    def _partition(self, tp: TopicPartition, own: Ownership, projection: str) -> dict[str, Any]:
        """What is wrong with a partition of a projection; empty: nothing."""
        lag = self._look.lag(projection, (tp.topic, tp.partition))
        if tp in own.closed:
            return {"projection": projection, "state": "closed", "reason": own.closed[tp], "lag": lag}
        if tp not in own.next:
            return {"projection": projection, "state": "opening", "lag": lag}
        if lag is not None and lag > self._max_lag:
            return {"projection": projection, "state": "open", "lag": lag}
        return {}

    def _projection(self, projection: str) -> dict[str, Any]:
        """A whole projection, also where other processes have the partitions."""
        lags = {(topic, n): lag for (name, topic, n), lag in self._lags() if name == projection}
        here = any(s.projection == projection for s in self._subscriptions)
        worst = max(lags, key=lambda place: lags[place], default=None)
        return {
            "projection": projection,
            "here": here,
            "lag": sum(lags.values()) if lags else None,
            "worst": {"topic": worst[0], "partition": worst[1], "lag": lags[worst]} if worst else None,
        }

    def _lags(self) -> Iterator[tuple[Progress, int]]:
        for projection, topic, partition in self._look.checkpoints or {}:
            lag = self._look.lag(projection, (topic, partition))
            if lag is not None:
                yield (projection, topic, partition), lag

    async def _run(self, ends: LogEnds, history: History) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                self._take(await self._seen(ends, history))
                asleep = loop.time()
                await asyncio.sleep(LOOK_EVERY_S)
                self._metrics.loop_delay.set(max(0.0, loop.time() - asleep - LOOK_EVERY_S))
        finally:
            await ends.stop()

    def _take(self, look: Look) -> None:
        """Take over what was seen; what changed for the better or the worse is said once."""
        before = {} if "engine" in self._look.errors else self._look.errors
        for source in look.errors.keys() - before.keys():
            _log.warning("not ready: %s: %s", source, look.errors[source])
        for source in before.keys() - look.errors.keys():
            _log.info("%s answers again", source)
        self._look = look

    async def _seen(self, ends: LogEnds, history: History) -> Look:
        errors: dict[str, str] = {}
        followed = self._followed  # as it is now: consumers may be started anew, on other topics, while we look
        read = {self._records}.union(*(s.topics for s in self._subscriptions))
        topics = {topic: self._partitions[topic] for topic in read}

        async def attempt(source: str, look: Callable[[], Any]) -> Any:
            try:
                return await look()
            except EngramlogError as error:
                errors[source] = str(error)
            except Exception as error:  # noqa: BLE001 - let out, it would end the looking: /ready would stand still
                _log.exception("looking at %s failed", source)
                errors[source] = f"{type(error).__name__}: {error}"
            return None

        spans, rows, positions = await asyncio.gather(
            attempt("kafka", lambda: ends.look(topics)),
            attempt("history", history.all_checkpoints),
            self._positions(),
        )
        checkpoints: dict[Progress, Checkpoint] | None = None
        if rows is not None:
            checkpoints = {}
            for projection, names in followed.items():
                known = {(row.topic, row.partition): row for row in rows.get(projection, ())}
                for place in ((topic, n) for topic in names for n in range(topics[topic])):
                    checkpoints[projection, *place] = known.get(place) or Checkpoint(*place, 0, 0, 0)
        return Look(spans, checkpoints, positions, errors)

    async def _positions(self) -> dict[tuple[str, TopicPartition], int]:
        found: dict[tuple[str, TopicPartition], int] = {}
        for subscription in self._subscriptions:
            consumer = subscription.subscriber.consumer
            if subscription.ownership is not None or consumer is None:
                continue
            for tp in subscription.assigned or ():
                with suppress(IllegalStateError, TimeoutError):  # revoked; or not known yet
                    async with asyncio.timeout(LOOK_EVERY_S):
                        found[subscription.consumer, tp] = await consumer.position(tp)
        return found

    def _collect(self) -> Iterable[Metric]:
        look = self._look
        up = GaugeMetricFamily("engramlog_source_up", "Whether it answered at the last look.", labels=["source"])
        for source in ("kafka", "history"):
            up.add_metric([source], 0.0 if {source, "engine"} & look.errors.keys() else 1.0)
        yield up
        yield _family(
            "engramlog_log_end_offset",
            "Offset that the next message of a partition will get.",
            ["topic", "partition"],
            [((topic, str(n)), span.end) for (topic, n), span in sorted((look.ends or {}).items())],
        )
        projection = ["projection", "topic", "partition"]
        checkpoints = sorted((look.checkpoints or {}).items())
        yield _family(
            "engramlog_projection_next_offset",
            "Offset that a projection wants next: its checkpoint.",
            projection,
            [((name, topic, str(n)), row.next) for (name, topic, n), row in checkpoints],
        )
        yield _family(
            "engramlog_projection_lag_offsets",
            "How many offsets a projection's checkpoint is behind the end of the log.",
            projection,
            [((name, topic, str(n)), lag) for (name, topic, n), lag in sorted(self._lags())],
        )
        yield from self._collect_consumers(look)

    def _collect_consumers(self, look: Look) -> Iterable[Metric]:
        labels = ["consumer", "topic", "partition"]
        yield _family(
            "engramlog_consumer_lag_offsets",
            "How many offsets a consumer without checkpoints has not taken yet, in its own partitions.",
            labels,
            [
                ((name, tp.topic, str(tp.partition)), behind)
                for (name, tp), position in sorted(look.positions.items())
                if (behind := look.behind((tp.topic, tp.partition), position)) is not None
            ],
        )
        owned = [(s, tp) for s in self._subscriptions for tp in sorted(s.assigned or ())]
        yield _family(
            "engramlog_partition_open",
            "Partitions that this process owns: 1 if it processes them, 0 if it must not yet.",
            labels,
            [
                ((s.consumer, tp.topic, str(tp.partition)), float(s.ownership is None or tp in s.ownership.next))
                for s, tp in owned
            ],
        )
        yield _family(
            "engramlog_consumer_alive",
            "Whether a consumer still takes messages.",
            ["consumer"],
            [((s.consumer,), float(s.alive())) for s in self._subscriptions],
        )
        restarts = CounterMetricFamily(
            "engramlog_consumer_restarts", "How often a consumer failed and was started again.", labels=["consumer"]
        )
        for subscription in self._subscriptions:
            restarts.add_metric([subscription.consumer], subscription.restarts)
        yield restarts


def _family(
    name: str, about: str, labels: Sequence[str], values: Sequence[tuple[tuple[str, ...], float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, about, labels=labels)
    for names, value in values:
        family.add_metric(names, value)
    return family


def _said(tp: TopicPartition, about: Mapping[str, Any], max_lag: int) -> str:
    where = f"{about['projection']} at {tp.topic}/{tp.partition}"
    lag = "lag unknown" if about["lag"] is None else f"{about['lag']:,} offsets behind"
    match about["state"]:
        case "closed":
            return f"{where} is closed ({lag}): {about['reason']}"
        case "opening":
            return f"{where} is being opened ({lag})"
        case _:
            return f"{where} is {lag}, the limit is {max_lag:,}"
