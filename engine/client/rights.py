"""Which rights we have on topics and groups: asked before a process starts, for Kafka tells of some only much later.

A consumer that may see a topic but not read it joins its group, is assigned partitions and then never gets a message.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupAuthorizationFailedError, IncompatibleBrokerVersion, TopicAuthorizationFailedError
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Bytes, Int16, Int32, Schema, String

from engramlog.engine.client.admin import connected, coordinator_of
from engramlog.engine.client.connection import KafkaConfig
from engramlog.schemas.errors import ConfigurationError

_TEXT = String("utf-8")


class Right(IntEnum):
    """Kafka's ACL operations, by their numbers in the protocol."""

    READ = 3
    WRITE = 4
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a process must be allowed to do.

    Attributes:
        reads: Topics that it reads.
        writes: Topics that it writes.
        groups: Consumer groups that it joins.
    """

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


async def missing_rights(config: KafkaConfig, wanted: Wanted) -> list[str]:
    """Ask the broker which of the wanted rights we do not have.

    Returns:
        One line for each, with the command that grants it; empty also for a broker that cannot tell.

    Raises:
        ConfigurationError: The broker refuses: login, TLS.
        BrokerUnavailable: Kafka does not answer.
    """
    async with connected(config, "asking for our rights") as admin:
        try:
            topics = await _of_topics(admin, {*wanted.reads, *wanted.writes})
            groups = {group: await _of_group(admin, group) for group in wanted.groups}
        except (NotImplementedError, IncompatibleBrokerVersion):
            return []
    who = config.security.principal
    return [
        *_lacking(who, "topic", wanted.reads, Right.READ, topics),
        *_lacking(who, "topic", wanted.writes, Right.WRITE, topics),
        *_lacking(who, "group", wanted.groups, Right.READ, groups),
    ]


async def require_rights(config: KafkaConfig, wanted: Wanted) -> None:
    """Refuse to start without the wanted rights.

    Raises:
        ConfigurationError: Some are missing: the message names them all.
        BrokerUnavailable: Kafka does not answer.
    """
    if missing := await missing_rights(config, wanted):
        raise ConfigurationError(f"Kafka's ACLs are not enough: {'; '.join(missing)}")


def _lacking(who: str, kind: str, names: Iterable[str], right: Right, found: Mapping[str, int | None]) -> list[str]:
    """The names on which a right is missing; None, or a negative number as Tansu has it: the broker did not say."""
    return [
        f"{who} needs {right.name.title()} on the {kind} {name!r} "
        f"(kafka-acls.sh --add --allow-principal {who} --operation {right.name.title()} --{kind} {name})"
        for name in names
        if (bits := found.get(name)) is not None and bits >= 0 and not bits >> right & 1
    ]


async def _of_topics(admin: AIOKafkaAdminClient, names: Iterable[str]) -> dict[str, int | None]:
    client = admin._client  # noqa: SLF001 - aiokafka's admin client has no public way to send a request
    answer = (await client.send(client.get_random_node(), _MetadataRequest(sorted(names)))).to_object()
    denied = TopicAuthorizationFailedError.errno
    return {
        topic["topic"]: 0 if topic["error_code"] == denied else topic["authorized_operations"]
        for topic in answer["topics"]
        if topic["error_code"] in {0, denied}
    }


async def _of_group(admin: AIOKafkaAdminClient, group: str) -> int | None:
    try:
        node = await coordinator_of(admin, group)
        answer = await admin._client.send(node, _GroupsRequest([group]))  # noqa: SLF001 - as above
    except GroupAuthorizationFailedError:
        return 0
    described = answer.to_object()["groups"][0]
    if described["error_code"] == GroupAuthorizationFailedError.errno:
        return 0
    bits = described["authorized_operations"]
    return bits if isinstance(bits, int) and bits >= 0 else None


# Two requests that aiokafka 0.14 lacks: it stops at Metadata 5, and reads DescribeGroups 3 as if it were 2.


class _MetadataResponse(Response):
    API_KEY = 3
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", Array(("node_id", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT))),
        ("cluster_id", _TEXT),
        ("controller_id", Int32),
        (
            "topics",
            Array(
                ("error_code", Int16),
                ("topic", _TEXT),
                ("is_internal", Boolean),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", Array(Int32)),
                        ("isr", Array(Int32)),
                        ("offline_replicas", Array(Int32)),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
        ("authorized_operations", Int32),
    )


class _MetadataStruct(RequestStruct):
    API_KEY = 3
    API_VERSION = 8
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        ("topics", Array(_TEXT)),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
    )


class _MetadataRequest(Request[_MetadataStruct]):
    API_KEY = 3

    def __init__(self, topics: list[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_MetadataStruct]) -> _MetadataStruct:
        return request_struct_class(self._topics, False, False, True)  # noqa: FBT003 - in the schema's order


class _GroupsResponse(Response):
    API_KEY = 15
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            Array(
                ("error_code", Int16),
                ("group", _TEXT),
                ("state", _TEXT),
                ("protocol_type", _TEXT),
                ("protocol", _TEXT),
                (
                    "members",
                    Array(
                        ("member_id", _TEXT),
                        ("client_id", _TEXT),
                        ("client_host", _TEXT),
                        ("metadata", Bytes),
                        ("assignment", Bytes),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
    )


class _GroupsStruct(RequestStruct):
    API_KEY = 15
    API_VERSION = 3
    RESPONSE_TYPE = _GroupsResponse
    SCHEMA = Schema(("groups", Array(_TEXT)), ("include_authorized_operations", Boolean))


class _GroupsRequest(Request[_GroupsStruct]):
    API_KEY = 15

    def __init__(self, groups: list[str]) -> None:
        self._groups = groups

    def build(self, request_struct_class: type[_GroupsStruct]) -> _GroupsStruct:
        return request_struct_class(self._groups, True)  # noqa: FBT003 - in the schema's order
