"""How far the consumers have come: ends of the log against checkpoints and committed offsets."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from engramlog.consumers import derive, index, store
from engramlog.consumers.app import CONSUMERS
from engramlog.engine.client.admin import Cluster, inspect_topics
from engramlog.engine.client.groups import Group, inspect_groups
from engramlog.engine.client.reader import Span, spans
from engramlog.engine.history import Checkpoint, History
from engramlog.engine.settings import Settings
from engramlog.schemas.asking import Reached, positions_token
from engramlog.schemas.errors import StoreUnavailable
from engramlog.schemas.topics import Topics

PROJECTIONS = {store.NAME: "history", derive.NAME: "derive", index.NAME: "vectors"}
"""The consumers whose checkpoints lie in the history's database, and what they are called there."""
_CHECKPOINTS = {
    store.NAME: "checkpoints of the history",
    derive.NAME: "checkpoints of the derivation",
    index.NAME: "checkpoints of the vectors",
}


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One consumer in one partition.

    Attributes:
        topic: Full topic name.
        partition: Partition.
        end: Offset that the next message will get.
        next: Offset that the consumer wants next; None: it has not begun, or nobody could say.
        lag: How many offsets it is behind; None: unknown.
        refused: How many positions went to the dead letters, where the store says.
        owner: The process that has the partition; None: nobody.
    """

    topic: str
    partition: int
    end: int
    next: int | None
    lag: int | None
    refused: int
    owner: str | None


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """One consumer.

    Attributes:
        name: Its name.
        group: Its consumer group, as the broker has it.
        source: What its positions were read from.
        error: Why they could not be read; None: they could.
        partitions: Where it is.
    """

    name: str
    group: Group
    source: str
    error: str | None
    partitions: tuple[PartitionLag, ...]

    @property
    def lag(self) -> int | None:
        """Its whole lag; None: unknown."""
        lags = [partition.lag for partition in self.partitions]
        return None if None in lags else sum(lag for lag in lags if lag is not None)


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """Everything.

    Attributes:
        cluster: The topics.
        consumers: The consumers.
        dead_letters: Messages in the dead-letter topic.
        applied: The last position of each partition that the history holds; None: nobody could say.
    """

    cluster: Cluster
    consumers: tuple[ConsumerStatus, ...]
    dead_letters: int
    applied: tuple[Reached, ...] | None

    @property
    def token(self) -> str | None:
        """The same as one text: memory as of now, for whoever asks later; None: nobody could say."""
        return None if self.applied is None else positions_token(self.applied)

    def problems(self) -> list[str]:
        """What needs somebody's attention."""
        found = [problem for state in self.cluster.states for problem in state.problems]
        found += [f"nobody runs {c.name!r}: engramlog run {c.name}" for c in self.consumers if not c.group.members]
        return found + [f"{c.name}: {c.error}" for c in self.consumers if c.error]


async def inspect_engine(settings: Settings) -> EngineStatus:
    """Look at the topics, the groups, the checkpoints and the ends of the log.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        ConfigurationError: A topic is missing.
    """
    kafka, topics = settings.kafka(), settings.topics()
    cluster = (await inspect_topics(kafka, topics=topics)).require()
    groups = await inspect_groups(kafka, [f"{settings.prefix}.{name}" for name in CONSUMERS])
    checkpoints, error = await _checkpoints(settings, Topics(settings.prefix, cluster.partitions))
    ends = await spans(kafka, {state.spec.name: state.partitions for state in cluster.states})
    consumers = []
    for name, group in zip(CONSUMERS, groups, strict=True):
        read = {spec.name for spec in topics.table() if name in spec.consumers}
        here = {place: span for place, span in ends.items() if place[0] in read}
        if (projection := PROJECTIONS.get(name)) is not None:
            stored = {(c.topic, c.partition): c for c in checkpoints.get(projection, ())}
            following = {place: checkpoint.next for place, checkpoint in stored.items()}
            lags = _lags(here, following, group, stored, error=error)
            consumers.append(ConsumerStatus(name, group, _CHECKPOINTS[name], error, lags))
        else:
            lags = _lags(here, group.committed, group, {}, error=None)
            consumers.append(ConsumerStatus(name, group, "offsets of its group", None, lags))
    dead = sum(span.end - span.begin for (topic, _), span in ends.items() if topic == topics.dead_letters)
    return EngineStatus(cluster, tuple(consumers), dead, None if error else _applied(checkpoints.get("history", ())))


def _applied(checkpoints: Iterable[Checkpoint]) -> tuple[Reached, ...]:
    return tuple(Reached(topic=c.topic, partition=c.partition, offset=c.next - 1) for c in checkpoints if c.next)


async def _checkpoints(settings: Settings, topics: Topics) -> tuple[dict[str, list[Checkpoint]], str | None]:
    """The checkpoints of each projection, or why there are none: looking must not create a database."""
    url = settings.effective_history_url()
    if (path := missing_file(url)) is not None:
        return {}, f"there is no history at {path} (ENGRAMLOG_HISTORY_URL, or ENGRAMLOG_DATA_DIR)"
    history = History(url, topics=topics, timeout_s=settings.timeout_s)
    try:
        await history.start()
        return await history.all_checkpoints(), None
    except StoreUnavailable as error:
        return {}, str(error)
    finally:
        await history.stop()


def missing_file(url: str) -> Path | None:
    """The SQLite file of a URL, if it is not there."""
    path = Path(url.partition(":///")[2])
    return path if url.startswith("sqlite") and not path.exists() else None


def _lags(
    ends: Mapping[tuple[str, int], Span],
    following: Mapping[tuple[str, int], int],
    group: Group,
    stored: Mapping[tuple[str, int], Checkpoint],
    *,
    error: str | None,
) -> tuple[PartitionLag, ...]:
    owners = {place: member.client_id for member in group.members for place in member.owns}
    found = []
    for place, span in sorted(ends.items()):
        wants = following.get(place)
        behind = None if error else span.end - max(span.begin, span.begin if wants is None else wants)
        refused = stored[place].refused if place in stored else 0
        found.append(PartitionLag(*place, span.end, wants, behind, refused, owners.get(place)))
    return tuple(found)
