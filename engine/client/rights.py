"""Which rights we have on topics and groups: asked before a process starts, for Kafka tells of some only much later.

A consumer that may see a topic but not read it joins its group, is assigned partitions and then never gets a message.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    TopicAuthorizationFailedError,
    for_code,
)

from engramlog.engine.client.admin import connected, coordinator_of
from engramlog.engine.client.connection import KafkaConfig
from engramlog.engine.client.requests import GroupsRequest, MetadataRequest
from engramlog.schemas.errors import ConfigurationError

_LOOKS, _PAUSE_S = 50, 0.1


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
    answer = (await client.send(client.get_random_node(), MetadataRequest(sorted(names)))).to_object()
    denied = TopicAuthorizationFailedError.errno
    return {
        topic["topic"]: 0 if topic["error_code"] == denied else topic["authorized_operations"]
        for topic in answer["topics"]
        if topic["error_code"] in {0, denied}
    }


async def _of_group(admin: AIOKafkaAdminClient, group: str) -> int | None:
    for _ in range(_LOOKS):
        try:
            node = await coordinator_of(admin, group)
            answer = await admin._client.send(node, GroupsRequest([group]))  # noqa: SLF001 - as above
        except GroupAuthorizationFailedError:
            return 0
        described = answer.to_object()["groups"][0]
        error = for_code(described["error_code"])
        if error is GroupAuthorizationFailedError:
            return 0
        if not error.retriable:
            break
        await asyncio.sleep(_PAUSE_S)  # its coordinator is just reading the groups
    bits = described["authorized_operations"]
    return bits if isinstance(bits, int) and bits >= 0 else None
