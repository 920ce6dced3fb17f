"""Topics: made from the table, and checked against it before any process runs on them."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.errors import TopicAlreadyExistsError as AlreadyExists
from aiokafka.protocol.metadata import MetadataRequest

from engramlog.engine.client.connection import KafkaConfig, kafka_errors
from engramlog.engine.client.reach import reach
from engramlog.engine.client.refusals import is_forbidden
from engramlog.schemas.errors import ConfigurationError
from engramlog.schemas.topics import DEFAULT_PARTITIONS, MUST_HOLD, Topics, TopicSpec

_GOOD_REPLICATION = 3
_LOOKS, _PAUSE_S = 50, 0.1
_SET_FOR_TOPIC = 1
"""Source of a configuration entry, in Kafka's protocol: set for this topic, neither default nor the broker's."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic of the table, as the cluster has it.

    Attributes:
        spec: What the table wants.
        partitions: Partitions in the cluster; 0: it does not exist.
        replication: Replicas of its first partition.
        config: Its configuration in the cluster, as far as the broker tells.
        problems: What keeps engramlog from running on it, each with what to do.
        remarks: What differs from the table without doing harm.
    """

    spec: TopicSpec
    partitions: int = 0
    replication: int = 0
    config: dict[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a process must know of the cluster before it starts.

    Attributes:
        cluster_id: The cluster's own id, None where the broker has none.
        partitions: Partitions of every agent topic.
        states: The topics.
    """

    cluster_id: str | None
    partitions: int
    states: tuple[TopicState, ...]

    def partitions_of(self, topic: str) -> int:
        """Number of partitions of one topic."""
        return next(state.partitions for state in self.states if state.spec.name == topic)

    def delete_retention_ms(self, topic: str) -> int:
        """How long a topic keeps its tombstones, in milliseconds; as the table says, where the broker does not tell."""
        state = next(state for state in self.states if state.spec.name == topic)
        return int(state.config.get("delete.retention.ms") or state.spec.config["delete.retention.ms"])

    def require(self) -> "Cluster":
        """The cluster itself, if one can run on it.

        Raises:
            ConfigurationError: A topic is missing or would forget; the message says what to change.
        """
        problems = [problem for state in self.states for problem in state.problems]
        if problems:
            raise ConfigurationError("; ".join(problems))
        return self


@asynccontextmanager
async def connected(config: KafkaConfig, doing: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """An admin client that is connected.

    Args:
        config: The cluster.
        doing: What it is for, as errors say it.

    Raises:
        ConfigurationError: The broker refuses: login, TLS, ACLs.
        BrokerUnavailable: Kafka does not answer.
    """
    await reach(config, doing)
    admin = AIOKafkaAdminClient(**config.common())
    with kafka_errors(config, doing):
        try:
            await admin.start()
            yield admin
        finally:
            await admin.close()


async def coordinator_of(admin: AIOKafkaAdminClient, group: str) -> int:
    """The broker that looks after a group. The first group of a cluster waits until its offsets topic is made.

    Raises:
        GroupAuthorizationFailedError: We must not see the group.
        GroupCoordinatorNotAvailableError: There is none yet.
    """
    for _ in range(_LOOKS):
        try:
            return int(await admin.find_coordinator(group))
        except GroupCoordinatorNotAvailableError:
            await asyncio.sleep(_PAUSE_S)
    return int(await admin.find_coordinator(group))


async def create_topics(
    config: KafkaConfig,
    *,
    partitions: int = DEFAULT_PARTITIONS,
    topics: Topics | None = None,
    generations: Iterable[int] = (),
    replication: int | None = None,
    min_insync_replicas: int | None = None,
) -> list[str]:
    """Create the topics that are missing; those that exist are left as they are.

    Args:
        config: The cluster.
        partitions: Partitions of each new topic. Agent topics can never change it.
        topics: The whole table, if not the default one of that many partitions.
        generations: Further generations of derivations, each with a topic of its own.
        replication: Copies of each new topic. None: 3, or as many as there are brokers.
        min_insync_replicas: How many copies must have a record before it is acknowledged. None: 2 where replication is
            3 or more, else 1.

    Returns:
        The names of those that were created.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        ConfigurationError: Kafka refuses to create one.
    """
    created: list[str] = []
    async with connected(config, "creating topics") as admin:
        brokers = len((await admin.describe_cluster())["brokers"])
        copies = replication or min(_GOOD_REPLICATION, brokers)
        in_sync = min_insync_replicas or (2 if copies >= _GOOD_REPLICATION else 1)
        table = _table(topics or Topics(config.prefix, partitions), generations)
        described = await _described(admin, [spec.name for spec in table])
        for spec in table:
            code = described[spec.name]["error_code"]
            if code == TopicAuthorizationFailedError.errno:
                raise ConfigurationError(_refused(config, spec.name, TopicAuthorizationFailedError, None))
            if code != UnknownTopicOrPartitionError.errno:
                continue
            settings = {**spec.config, "min.insync.replicas": str(in_sync)}
            new = NewTopic(spec.name, spec.partitions, copies, topic_configs=settings)
            response = await admin.create_topics([new])
            code, message = response.topic_errors[0][1], response.topic_errors[0][2]
            error = for_code(code)
            if code and error is not AlreadyExists:
                raise ConfigurationError(_refused(config, spec.name, error, message))
            created.append(spec.name)
        await _wait_for(admin, created)
    return created


def _refused(config: KafkaConfig, topic: str, error: type[Exception], message: str | None) -> str:
    if is_forbidden(error()):
        return (
            f"Kafka's ACLs forbid creating {topic!r}: grant {config.security.principal} Create and Describe on the "
            f"topics of the prefix {config.prefix!r}, or create the topics as another user"
        )
    return f"Kafka refuses to create {topic!r}: {error.__name__}: {message}"


async def _described(admin: AIOKafkaAdminClient, names: list[str]) -> dict[str, dict[str, Any]]:
    """Topics by name, those that do not exist or must not be seen too: their ``error_code`` says which it is.

    Not with ``describe_topics``: it lets brokers that create topics by themselves create those that are missing.
    """
    request = MetadataRequest(names, allow_auto_topic_creation=False)
    response = await admin._send_request(request)  # noqa: SLF001 - the public method does not pass that on
    return {topic["topic"]: topic for topic in response.to_object()["topics"]}


async def _wait_for(admin: AIOKafkaAdminClient, created: list[str]) -> None:
    """Wait until new topics are known: a broker tells of them a little later than it makes them."""
    for _ in range(_LOOKS):
        known = await admin.describe_topics(created) if created else []
        if all(topic["error_code"] == 0 and topic["partitions"] for topic in known):
            return
        await asyncio.sleep(_PAUSE_S)


def _table(topics: Topics, generations: Iterable[int]) -> tuple[TopicSpec, ...]:
    return (*topics.table(), *(topics.derived_spec(n) for n in sorted({*generations} - {1})))


async def inspect_topics(
    config: KafkaConfig, *, topics: Topics | None = None, generations: Iterable[int] = ()
) -> Cluster:
    """Compare the cluster's topics with the table.

    Args:
        config: The cluster.
        topics: The table, if not the default one.
        generations: Further generations of derivations, each with a topic of its own.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        ConfigurationError: The broker refuses: login, TLS.
    """
    async with connected(config, "inspecting topics") as admin:
        cluster_id = (await admin.describe_cluster()).get("cluster_id")
        table = _table(topics or Topics(config.prefix), generations)
        described = await _described(admin, [spec.name for spec in table])
        present = [name for name, topic in described.items() if topic["error_code"] == 0]
        configs = await _configs(admin, present)
        states = tuple(_state(config, spec, described[spec.name], configs.get(spec.name)) for spec in table)
    counts = {state.partitions for state in states if state.partitions and state.spec.kind == "agent"}
    return Cluster(cluster_id, max(counts, default=0), states)


async def generations_of(config: KafkaConfig, topics: Topics) -> dict[int, int]:
    """The generations of derivations that have a topic: the number of partitions of each.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        ConfigurationError: The broker refuses: login, TLS.
    """
    named = re.compile(re.escape(topics.derived_of(1)[:-1]) + r"([1-9]\d{0,8})")
    async with connected(config, "looking for generations") as admin:
        found = {int(match[1]): name for name in await admin.list_topics() if (match := named.fullmatch(name))}
        described = await admin.describe_topics([*found.values()]) if found else []
    counts = {topic["topic"]: len(topic["partitions"]) for topic in described}
    return {generation: counts[name] for generation, name in found.items()}


async def _configs(admin: AIOKafkaAdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    """Configurations by topic; a topic whose configuration we may not see is left out."""
    if not names:
        return {}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    configs: dict[str, dict[str, str]] = {}
    for response in await admin.describe_configs(resources):
        for code, _message, _kind, name, entries in response.resources:
            if code != TopicAuthorizationFailedError.errno:
                configs[name] = {entry[0]: entry[1] for entry in entries if entry[1] is not None}
    return configs


async def set_topic_config(config: KafkaConfig, topic: str, changes: Mapping[str, str]) -> None:
    """Change a topic's configuration; what else was set of it stays.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        ConfigurationError: Kafka refuses.
    """
    async with connected(config, f"configuring {topic}") as admin:
        kept: dict[str, str] = {}
        for response in await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)]):
            for code, _message, _kind, _name, entries in response.resources:
                if code:
                    raise for_code(code)
                kept |= {e[0]: e[1] for e in entries if e[3] == _SET_FOR_TOPIC and e[1] is not None}
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={**kept, **changes})
        for response in await admin.alter_configs([resource]):
            for code, message, *_ in response.resources:
                if code:
                    raise ConfigurationError(
                        f"Kafka refuses to configure {topic!r}: {for_code(code).__name__}: {message} "
                        f"({config.security.principal} needs AlterConfigs on it)"
                    )


def _state(kafka: KafkaConfig, spec: TopicSpec, described: dict[str, Any], config: dict[str, str] | None) -> TopicState:
    code, who = described["error_code"], kafka.security.principal
    if code == TopicAuthorizationFailedError.errno:
        problem = f"Kafka's ACLs: {who} must not see the topic {spec.name!r} (grant Describe; Read and Write imply it)"
        return TopicState(spec, problems=(problem,))
    partitions = described["partitions"]
    if code or not partitions:
        return TopicState(spec, problems=(f"the topic {spec.name!r} does not exist: run 'engramlog topics create'",))
    problems: list[str] = []
    remarks: list[str] = []
    if config is None:
        unseen = f"Kafka's ACLs: {who} must not see how the topic {spec.name!r} is configured (grant DescribeConfigs)"
        (problems if spec.kind == "agent" else remarks).append(unseen)
    for name, wanted in spec.config.items():
        actual = (config or {}).get(name)
        if actual is None or actual == wanted:
            continue
        if spec.kind == "agent" and name in MUST_HOLD:
            problems.append(
                f"the agent topic {spec.name!r} has {name}={actual} and would forget or misdate memory: "
                f"set it to {wanted} (kafka-configs.sh --alter --topic {spec.name} --add-config {name}={wanted})"
            )
        else:
            remarks.append(f"{name}={actual}, the table says {wanted}")
    replicas = len(partitions[0]["replicas"])
    return TopicState(spec, len(partitions), replicas, config or {}, tuple(problems), tuple(remarks))
