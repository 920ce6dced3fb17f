"""Whether two agent topics hold the same memory: agent by agent, without their positions.

Compared are the last copies of all keys: each agent's in their order, with log times and values; what a value says in
offsets of the records as the number of the agent's last copies below. Ledger entries without an agent count for every
agent of the tenant that has something before them. Watermarks are not compared. Memory: the keys of one partition, and
for each agent a hash and 8 bytes a record.
"""

import hashlib
import json
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from engramlog.engine.client.copying.ordering import AgentTopic, everywhere, is_watermark
from engramlog.engine.client.copying.translating import at_of
from engramlog.engine.client.reader import Decoded, Message, decode, read
from engramlog.schemas.derived import RecallChangedEvent, RecordDerived
from engramlog.schemas.keys import parse_key
from engramlog.schemas.summaries import SummaryCreatedEvent, SummaryFailedEvent

Agent = tuple[str, str]

_EVERYWHERE = b"//"  # in the key of what names no agent
_AT = b'"at"'  # in what may be a mark


@dataclass(slots=True)
class Fingerprint:
    """What an agent topic holds.

    Attributes:
        agents: By tenant and agent, how many last copies there are, and their hash.
        places: By tenant and agent, the offsets of the last copies.
        bad: What no consumer could read, by reason.
    """

    agents: dict[Agent, tuple[int, bytes]] = field(default_factory=dict)
    places: "dict[Agent, array[int]]" = field(default_factory=dict)
    bad: Counter[str] = field(default_factory=Counter)

    def differs_from(self, other: "Fingerprint") -> list[Agent]:
        """The agents that differ."""
        both = self.agents.keys() | other.agents.keys()
        return sorted(agent for agent in both if self.agents.get(agent) != other.agents.get(agent))


async def fingerprint(
    topic: AgentTopic,
    *,
    records: "Mapping[Agent, array[int]] | None" = None,
    until: Mapping[int, int] | None = None,
    on_read: Callable[[int], None] = lambda _: None,
) -> Fingerprint:
    """Read an agent topic twice, and tell what it holds.

    Args:
        topic: The topic.
        records: The places of the records, for any other topic. None: these are the records.
        until: By partition, the first offset that does not count; None: its end.
        on_read: Called with the number of messages that were read, again and again.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    found = Fingerprint()
    for partition in range(topic.partitions):
        end = None if until is None else until[partition]
        last: dict[bytes, int] = {}
        async for message in _messages(topic, partition, end, on_read):
            decoded = decode(message, topic.codec, partitions=topic.partitions)
            if decoded.error is not None:
                found.bad[decoded.error.reason] += 1
            elif decoded.key is not None and is_watermark(decoded.key):
                continue
            elif (name := _name(decoded)) is None:
                last[message.key or b""] = message.position.offset
            else:
                last.setdefault(name, message.position.offset)
        chains = _Chains(records)
        async for message in _messages(topic, partition, end, on_read):
            decoded = _looked_at_again(message, topic, all_of_them=records is not None)
            name = _name(decoded) if decoded.key is not None and not decoded.key.agent else message.key
            if last.get(name or b"") == message.position.offset:
                chains.add(decoded)
        found.agents |= {agent: (len(places), chains.hashes[agent]) for agent, places in chains.places.items()}
        found.places |= chains.places
    return found


def _name(decoded: Decoded) -> bytes | None:
    key = decoded.message.key or b""
    name = everywhere(parse_key(key), decoded.event, key)
    return None if name is None else name.encode()


def _looked_at_again(message: Message, topic: AgentTopic, *, all_of_them: bool) -> Decoded:
    """A message that is known; it is decoded only where something in it is needed."""
    key = message.key or b""
    if all_of_them or _EVERYWHERE in key or _AT in (message.value or b""):
        return decode(message, topic.codec, partitions=topic.partitions)
    return Decoded(message)


async def _messages(
    topic: AgentTopic, partition: int, end: int | None, on_read: Callable[[int], None]
) -> AsyncGenerator[Message, None]:
    async with aclosing(read(topic.kafka, topic.name, partitions=[partition])) as messages:
        async for message in messages:
            if end is not None and message.position.offset >= end:
                return
            on_read(1)
            yield message


@dataclass(slots=True)
class _Chains:
    """The agents of one partition: where their last copies lie, and the hash so far."""

    records: "Mapping[Agent, array[int]] | None" = None
    places: dict[Agent, "array[int]"] = field(default_factory=lambda: defaultdict(lambda: array("q")))
    hashes: dict[Agent, bytes] = field(default_factory=lambda: defaultdict(bytes))
    tenants: dict[str, list[Agent]] = field(default_factory=lambda: defaultdict(list))

    def add(self, decoded: Decoded) -> None:
        """Take the next last copy of the partition."""
        key, message = parse_key(decoded.message.key), decoded.message
        if not key.agent:
            for agent in self.tenants[key.tenant]:
                self._chain(agent, decoded, _name(decoded) or b"")
            return
        agent = key.tenant, key.agent
        if self._is_of_nothing(agent, decoded):
            return
        if agent not in self.places:
            self.tenants[key.tenant].append(agent)
        recorded_ms = round(message.recorded.timestamp() * 1000)
        self._chain(agent, decoded, message.key or b"", str(recorded_ms).encode(), self._value(agent, decoded))

    def _is_of_nothing(self, agent: Agent, decoded: Decoded) -> bool:
        """Whether it is a derivation of what is no last copy: such are not copied when that is gone."""
        if self.records is None or not isinstance(decoded.event, RecordDerived):
            return False
        places, offset = self.records.get(agent, array("q")), decoded.event.data.offset
        found = bisect_left(places, offset)
        return found == len(places) or places[found] != offset

    def _chain(self, agent: Agent, decoded: Decoded, *parts: bytes) -> None:
        chained = hashlib.blake2b(self.hashes[agent], digest_size=32)
        for part in parts:
            chained.update(len(part).to_bytes(8, "big") + part)
        self.hashes[agent] = chained.digest()
        self.places[agent].append(decoded.message.position.offset)

    def _value(self, agent: Agent, decoded: Decoded) -> bytes:
        value = decoded.message.value
        if value is None:
            return b"null"
        places = self.places.get(agent) if self.records is None else self.records.get(agent)
        numbers = _numbers(decoded.event, places if places is not None else array("q"))
        if not numbers:
            return value
        document = json.loads(value)
        for field_name, number in numbers.items():
            outer, _, inner = field_name.partition(".")
            (document["data"][outer] if inner else document["data"])[inner or outer] = number
        return json.dumps(document, sort_keys=True).encode()


def _numbers(event: Any, places: "array[int]") -> dict[str, int]:
    """What an event says in offsets of the records, as numbers of last copies below (or up to) there, by field."""
    if isinstance(event, RecordDerived):
        return {"offset": bisect_right(places, event.data.offset)}
    if isinstance(event, RecallChangedEvent):
        return {"before": bisect_left(places, event.data.before)}
    if isinstance(event, (SummaryCreatedEvent, SummaryFailedEvent)):
        covers = event.data.covers
        found = {"covers.first": bisect_left(places, covers.first), "covers.last": bisect_right(places, covers.last)}
        return found | {"at": bisect_left(places, event.data.at)} if isinstance(event, SummaryCreatedEvent) else found
    at = at_of(event)
    return {} if at is None else {"at": bisect_left(places, at)}
