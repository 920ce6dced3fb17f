"""What a log says of certain records now: so that what it says already is not written again."""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import aclosing

from engramlog.engine.client.copying.ordering import AgentTopic
from engramlog.engine.client.reader import decode, read
from engramlog.schemas.envelope import RecordCorrectedEvent, RecordWritten
from engramlog.schemas.keys import partition_for

Name = tuple[str, str, str]
"""Tenant, agent, record id."""


async def standing(records: AgentTopic, names: Iterable[Name]) -> dict[Name, str]:
    """The texts of these records, as they were last written or corrected; those that do not exist are missing.

    Costs a reading of the partitions of their agents.

    Args:
        records: The topic of records.
        names: The records.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    wanted: dict[int, set[Name]] = defaultdict(set)
    for name in names:
        wanted[partition_for(name[0], name[1], records.partitions)].add(name)
    found: dict[Name, str] = {}
    for partition, here in wanted.items():
        async with aclosing(read(records.kafka, records.name, partitions=[partition])) as messages:
            async for message in messages:
                decoded = decode(message, records.codec, partitions=records.partitions)
                key, event = decoded.key, decoded.event
                if decoded.error is not None or key is None:
                    continue
                named = _named(event)
                if isinstance(event, (RecordWritten, RecordCorrectedEvent)) and named is not None and named in here:
                    found[named] = event.data.content
                elif message.value is None and key.record_id is not None:
                    found.pop((key.tenant, key.agent, key.record_id), None)
    return found


def _named(event: object) -> Name | None:
    """The record that an event gives a text to."""
    if isinstance(event, RecordWritten):
        return event.tenantid, event.agentid, event.data.record_id
    if isinstance(event, RecordCorrectedEvent):
        return event.tenantid, event.agentid, event.data.id
    return None
