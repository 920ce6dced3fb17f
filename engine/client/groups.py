"""Looking at consumer groups: who is in them, what each member owns, what was committed."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
    for_code,
)

from engramlog.engine.client.admin import connected, coordinator_of
from engramlog.engine.client.connection import KafkaConfig

_LOOKS = 50
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Member:
    """A process in a consumer group.

    Attributes:
        client_id: How it calls itself.
        host: Where the broker sees it.
        owns: Topics and partitions that are assigned to it.
    """

    client_id: str
    host: str
    owns: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group.

    Attributes:
        group_id: Its id.
        state: As the broker calls it: ``Stable``, ``Empty``, ``Dead`` (there is none), ``PreparingRebalance``, …
        members: Who is in it.
        committed: Committed offsets by topic and partition.
    """

    group_id: str
    state: str
    members: tuple[Member, ...]
    committed: dict[tuple[str, int], int]


async def inspect_groups(config: KafkaConfig, group_ids: Sequence[str]) -> list[Group]:
    """Look at consumer groups; one that does not exist has no members and the state ``Dead``.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    async with connected(config, "looking at consumer groups") as admin:
        return [await _group(admin, group_id) for group_id in group_ids]


async def _group(admin: AIOKafkaAdminClient, group_id: str) -> Group:
    """One group. A broker that has just started finds the coordinators of groups only a moment later."""
    for _ in range(_LOOKS):
        try:
            return await _look(admin, group_id)
        except (GroupCoordinatorNotAvailableError, GroupLoadInProgressError, NotCoordinatorForGroupError):
            await asyncio.sleep(_PAUSE_S)
    return await _look(admin, group_id)


async def _look(admin: AIOKafkaAdminClient, group_id: str) -> Group:
    node = await coordinator_of(admin, group_id)
    (response,) = await admin.describe_consumer_groups([group_id], group_coordinator_id=node)
    described = response.to_object()["groups"][0]
    if described["error_code"] and described["state"] != "Dead":
        raise for_code(described["error_code"])(group_id)
    committed = await admin.list_consumer_group_offsets(group_id, group_coordinator_id=node)
    members = tuple(
        Member(member["client_id"], member["client_host"], _owned(member["member_assignment"]))
        for member in described["members"]
    )
    offsets = {(tp.topic, tp.partition): found.offset for tp, found in committed.items() if found.offset >= 0}
    return Group(group_id, described["state"], members, offsets)


def _owned(assignment: bytes) -> tuple[tuple[str, int], ...]:
    if not assignment:  # it has just joined
        return ()
    decoded = ConsumerProtocol.ASSIGNMENT.decode(assignment)
    return tuple((topic, partition) for topic, partitions in decoded.assignment for partition in sorted(partitions))
