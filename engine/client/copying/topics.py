"""The agent topics of an engine: those of the table, and the derived topics of further generations."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from aiokafka.admin import NewTopic
from aiokafka.errors import TopicAlreadyExistsError, for_code

from engramlog.engine.client.admin import connected, create_topics, generations_of, inspect_topics, set_topic_config
from engramlog.engine.client.connection import KafkaConfig
from engramlog.engine.client.copying.copier import ends_of
from engramlog.engine.client.copying.ordering import AgentTopic
from engramlog.engine.client.reader import spans
from engramlog.schemas.codec import Codec, derived_codec, records_codec, summaries_codec
from engramlog.schemas.errors import ConfigurationError
from engramlog.schemas.topics import Topics

Role = Literal["records", "derived", "summaries"]
STAMPED = {"message.timestamp.type": "LogAppendTime"}
AS_GIVEN = {"message.timestamp.type": "CreateTime"}


@dataclass(frozen=True, slots=True)
class LogTopic:
    """One agent topic of an engine.

    Attributes:
        role: What it holds.
        generation: Of the derived topics: which; else None.
        topic: The topic.
    """

    role: Role
    generation: int | None
    topic: AgentTopic


@dataclass(frozen=True, slots=True)
class Log:
    """The agent topics of an engine: records first, which the others speak of.

    Attributes:
        cluster_id: The cluster's id; None: it has none.
        topics: The names.
        all: The topics.
    """

    cluster_id: str | None
    topics: Topics
    all: tuple[LogTopic, ...]

    async def ends(self) -> list[dict[int, int]]:
        """The ends of all topics, by partition: what lies below in one of them speaks of nothing that does not.

        Raises:
            BrokerUnavailable: Kafka does not answer.
        """
        records, *others = self.all
        found = [await ends_of(other.topic) for other in others]  # before the records, of which they speak
        return [await ends_of(records.topic), *found]

    async def size(self) -> int:
        """How many offsets lie between beginnings and ends. Errors as above."""
        total = 0
        for one in self.all:
            held = await spans(one.topic.kafka, {one.topic.name: one.topic.partitions})
            total += sum(span.end - span.begin for span in held.values())
        return total

    async def stamp(self, changes: Mapping[str, str]) -> None:
        """Say who sets the log times of its topics.

        Raises:
            ConfigurationError: Kafka refuses.
        """
        for one in self.all:
            await set_topic_config(one.topic.kafka, one.topic.name, changes)


def codec_of(role: Role) -> Codec[Any]:
    """What decodes the events of a topic."""
    return {"records": records_codec, "derived": derived_codec, "summaries": summaries_codec}[role]()


async def log_of(kafka: KafkaConfig, topics: Topics, *, unfinished: bool = False) -> Log:
    """The agent topics that exist.

    Args:
        kafka: The cluster.
        topics: The table.
        unfinished: Whether they may be an unfinished copy, which takes log times from its producers.

    Raises:
        ConfigurationError: One is missing, or would forget; or they differ in their numbers of partitions.
        BrokerUnavailable: Kafka does not answer.
    """
    cluster = await inspect_topics(kafka, topics=topics)
    if not unfinished:
        cluster.require()
    counts = {state.spec.name: state.partitions for state in cluster.states if state.spec.kind == "agent"}
    if missing := [name for name, count in counts.items() if not count]:
        raise ConfigurationError(f"the topic {missing[0]!r} does not exist: run 'engramlog topics create'")
    generations = await generations_of(kafka, topics)
    roles: list[tuple[Role, int | None, str]] = [("records", None, topics.records)]
    roles += [("derived", n, topics.derived_of(n)) for n in sorted(generations)]
    roles.append(("summaries", None, topics.summaries))
    partitions = {*counts.values(), *generations.values()}
    if len(partitions) != 1:
        raise ConfigurationError(f"the agent topics of {topics.prefix!r} differ in their numbers of partitions")
    (count,) = partitions
    found = tuple(LogTopic(role, n, AgentTopic(kafka, name, count, codec_of(role))) for role, n, name in roles)
    return Log(cluster.cluster_id, replace(topics, partitions=count), found)


async def create_like(
    kafka: KafkaConfig, topics: Topics, generations: list[int], *, replication: int | None, in_sync: int | None
) -> None:
    """Create the topics of a table, and of these generations, as far as they are missing.

    Args:
        kafka: The cluster.
        topics: The table.
        generations: Generations of derivations.
        replication: Copies of each; None: as :func:`create_topics` does.
        in_sync: How many copies must have a record before it is acknowledged; None: likewise.

    Raises:
        ConfigurationError: Kafka refuses.
        BrokerUnavailable: Kafka does not answer.
    """
    await create_topics(kafka, topics=topics, replication=replication, min_insync_replicas=in_sync)
    state = (await inspect_topics(kafka, topics=topics)).states[1]
    there = await generations_of(kafka, topics)
    async with connected(kafka, "creating topics of generations") as admin:
        for generation in sorted({*generations} - there.keys()):
            spec = topics.derived_spec(generation)
            kept = state.config.get("min.insync.replicas", "1")
            new = NewTopic(
                spec.name,
                spec.partitions,
                state.replication,
                topic_configs={**spec.config, "min.insync.replicas": kept},
            )
            code, message = (await admin.create_topics([new])).topic_errors[0][1:3]
            if code and for_code(code) is not TopicAlreadyExistsError:
                raise ConfigurationError(f"Kafka refuses to create {spec.name!r}: {for_code(code).__name__}: {message}")
