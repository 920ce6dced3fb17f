"""Topics: made from the table, and checked against it before any process runs on them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError as AlreadyExists
from aiokafka.errors import for_code

from engramlog.engine.client.connection import KafkaConfig, kafka_errors
from engramlog.engine.client.reach import reach
from engramlog.schemas.errors import ConfigurationError
from engramlog.schemas.topics import DEFAULT_PARTITIONS, MUST_HOLD, Topics, TopicSpec

_GOOD_REPLICATION = 3
_LOOKS, _PAUSE_S = 50, 0.1


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


async def create_topics(config: KafkaConfig, *, partitions: int = DEFAULT_PARTITIONS) -> list[str]:
    """Create the topics that are missing; those that exist are left as they are.

    Replication is 3 and ``min.insync.replicas`` 2 where there are brokers for it, else as many as there are.

    Args:
        config: The cluster.
        partitions: Partitions of each new topic. Agent topics can never change it.

    Returns:
        The names of those that were created.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        ConfigurationError: Kafka refuses to create one.
    """
    created: list[str] = []
    async with connected(config, "creating topics") as admin:
        existing = set(await admin.list_topics())
        brokers = len((await admin.describe_cluster())["brokers"])
        replication = min(_GOOD_REPLICATION, brokers)
        for spec in Topics(config.prefix, partitions).table():
            if spec.name in existing:
                continue
            settings = {**spec.config, "min.insync.replicas": "2" if replication >= _GOOD_REPLICATION else "1"}
            new = NewTopic(spec.name, spec.partitions, replication, topic_configs=settings)
            response = await admin.create_topics([new])
            code, message = response.topic_errors[0][1], response.topic_errors[0][2]
            error = for_code(code)
            if code and error is not AlreadyExists:
                raise ConfigurationError(f"Kafka refuses to create {spec.name!r}: {error.__name__}: {message}")
            created.append(spec.name)
        await _wait_for(admin, created)
    return created


async def _wait_for(admin: AIOKafkaAdminClient, created: list[str]) -> None:
    """Wait until new topics are known: a broker tells of them a little later than it makes them."""
    for _ in range(_LOOKS):
        known = await admin.describe_topics(created) if created else []
        if all(topic["error_code"] == 0 and topic["partitions"] for topic in known):
            return
        await asyncio.sleep(_PAUSE_S)


async def inspect_topics(config: KafkaConfig) -> Cluster:
    """Compare the cluster's topics with the table.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    async with connected(config, "inspecting topics") as admin:
        cluster_id = (await admin.describe_cluster()).get("cluster_id")
        table = Topics(config.prefix).table()
        existing = set(await admin.list_topics())
        present = [spec.name for spec in table if spec.name in existing]
        described = {t["topic"]: t for t in await admin.describe_topics(present)} if present else {}
        configs = await _configs(admin, present)
        states = tuple(_state(spec, described.get(spec.name), configs.get(spec.name, {})) for spec in table)
    counts = {state.partitions for state in states if state.partitions and state.spec.kind == "agent"}
    return Cluster(cluster_id, max(counts, default=0), states)


async def _configs(admin: AIOKafkaAdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    if not names:
        return {}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    configs: dict[str, dict[str, str]] = {}
    for response in await admin.describe_configs(resources):
        for _code, _message, _kind, name, entries in response.resources:
            configs[name] = {entry[0]: entry[1] for entry in entries if entry[1] is not None}
    return configs


def _state(spec: TopicSpec, described: dict[str, object] | None, config: dict[str, str]) -> TopicState:
    if described is None:
        problem = f"the topic {spec.name!r} does not exist: run 'engramlog topics create'"
        return TopicState(spec, problems=(problem,))
    partitions = described["partitions"]
    assert isinstance(partitions, list)
    problems: list[str] = []
    remarks: list[str] = []
    for name, wanted in spec.config.items():
        actual = config.get(name)
        if actual is None or actual == wanted:
            continue
        if spec.kind == "agent" and name in MUST_HOLD:
            problems.append(
                f"the agent topic {spec.name!r} has {name}={actual} and would forget or misdate memory: "
                f"set it to {wanted} (kafka-configs.sh --alter --topic {spec.name} --add-config {name}={wanted})"
            )
        else:
            remarks.append(f"{name}={actual}, the table says {wanted}")
    return TopicState(spec, len(partitions), len(partitions[0]["replicas"]), config, tuple(problems), tuple(remarks))
