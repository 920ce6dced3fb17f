"""Subscribing to ``memory.summaries``: each summary as it is made, or as it was."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Literal, Self, TypeAlias

from engramlog.engine.client import reader
from engramlog.engine.client.connection import KafkaConfig
from engramlog.engine.client.following import Follower
from engramlog.engine.client.reader import Decoded, Message, decode
from engramlog.schemas.codec import summaries_codec
from engramlog.schemas.errors import RequestRefused
from engramlog.schemas.keys import partition_for
from engramlog.schemas.scope import Position
from engramlog.schemas.summaries import SummaryCreated, SummaryCreatedEvent, SummaryFailed, SummaryFailedEvent

_log = logging.getLogger(__name__)

Start: TypeAlias = Literal["now", "beginning"] | datetime | Sequence[Position]
"""Where a subscription begins: the end as it is now, the oldest summary, an instant of the log's clock, or behind
positions of summaries that were received before (a partition without one: at its beginning)."""

_MAX_GROUP_CHARS = 200


@dataclass(frozen=True, slots=True)
class SummaryReceived:
    """A summary, or its failure, as it came.

    Attributes:
        kind: ``created``, or ``failed``.
        summary: What it says. ``reason``, ``replaces`` and ``generation`` tell how it came to be.
        tenant: Its tenant.
        agent: Its agent.
        session: Its session.
        user: Its user; None: shared.
        position: Where it lies: begin behind it the next time.
        recorded: When it was appended.
        event_id: Its identity: by it repeats can be dropped. A summary that is made anew keeps it.
    """

    kind: Literal["created", "failed"]
    summary: SummaryCreated | SummaryFailed
    tenant: str
    agent: str
    session: str | None
    user: str | None
    position: Position
    recorded: datetime
    event_id: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which summaries are passed on. None: any.

    Attributes:
        tenant: Only this tenant's.
        agent: Only this agent's.
        user: Only this user's.
        session: Only this session's.
        level: Only of this level.
        active_only: See :meth:`MemoryClient.summaries`.
        failures: Whether failures are passed on, too.
    """

    tenant: str
    agent: str | None = None
    user: str | None = None
    session: str | None = None
    level: int | None = None
    active_only: bool = True
    failures: bool = False

    def partitions(self, count: int) -> range:
        """Where they can lie."""
        if self.agent is None:
            return range(count)
        only = partition_for(self.tenant, self.agent, count)
        return range(only, only + 1)

    def __call__(self, event: SummaryCreatedEvent | SummaryFailedEvent) -> bool:
        """Whether one is wanted."""
        if event.tenantid != self.tenant or self.agent not in {None, event.agentid}:
            return False
        if self.user not in {None, event.userid} or self.session not in {None, event.sessionid}:
            return False
        if isinstance(event, SummaryFailedEvent):
            return self.failures and self.level is None
        return self.level in {None, event.data.level}


@dataclass(slots=True)
class PassedOver:
    """What a subscription has not passed on.

    Attributes:
        tombstones: What was deleted.
        undecodable: What cannot be read, or lies where it must not.
        replaced: Old summaries that a later one replaces or repeats, and failures that are made good.
    """

    tombstones: int = 0
    undecodable: int = 0
    replaced: int = 0


@dataclass(slots=True)
class _Past:
    """What is known of the part of a partition that lay there when it was opened.

    Attributes:
        end: Where it ends.
        last: The last place of each event, by agent and id.
        replaced: Summaries that others replace.
    """

    end: int
    last: dict[tuple[str, str], int] = field(default_factory=dict)
    replaced: set[tuple[str, str]] = field(default_factory=set)

    def note(self, event: SummaryCreatedEvent | SummaryFailedEvent, offset: int) -> None:
        self.last[event.agentid, event.id] = offset
        if isinstance(event, SummaryCreatedEvent):
            self.replaced.update((event.agentid, summary_id) for summary_id in event.data.replaces)

    def outdated(self, event: SummaryCreatedEvent | SummaryFailedEvent, offset: int) -> bool:
        if self.last.get((event.agentid, event.id), offset) > offset:
            return True
        if isinstance(event, SummaryFailedEvent):
            return (event.agentid, event.data.summary_id) in self.last
        return (event.agentid, event.id) in self.replaced


class SummaryStream:
    """A subscription: an async iterator that never ends by itself. See :meth:`MemoryClient.summaries`.

    ``async with`` opens it at once, and closes it; without, it is opened when the first summary is asked for.

    Args:
        config: The cluster.
        topic: Full name of the topic of summaries.
        partitions: Tells how many partitions it has.
        wanted: Which summaries are passed on.
        group: Full id of the consumer group; None: none.
        start: Where to begin.

    Attributes:
        passed_over: What was not passed on, and was none of those that the filters leave out.
    """

    def __init__(
        self,
        config: KafkaConfig,
        topic: str,
        partitions: Callable[[], Awaitable[int]],
        wanted: Wanted,
        *,
        group: str | None,
        start: Start,
    ) -> None:
        self.passed_over = PassedOver()
        self._config = config
        self._topic = topic
        self._count_partitions = partitions
        self._wanted = wanted
        self._group = group
        self._start = _checked(start, topic)
        self._count = 0
        self._follower: Follower | None = None
        self._past: dict[int, _Past] = {}
        self._received: AsyncGenerator[SummaryReceived, None] | None = None

    @property
    def waiting(self) -> int:
        """How many messages were fetched and wait; bounded, however slow the caller is."""
        return 0 if self._follower is None else self._follower.waiting

    async def open(self) -> None:
        """Find the place to begin at: summaries that are made from now on are not missed.

        Raises:
            ConfigurationError: The topic does not exist, or the broker refuses.
            BrokerUnavailable: Kafka does not answer.
        """
        if self._follower is not None:
            return
        self._count = await self._count_partitions()
        partitions = range(self._count) if self._group is not None else self._wanted.partitions(self._count)
        start = self._start if isinstance(self._start, (str, datetime)) else _behind(self._start, partitions)
        follower = Follower(self._config, self._topic, partitions, group=self._group, start=start)
        await follower.open()
        self._follower = follower

    async def acknowledge(self) -> None:
        """The work on the summary that was received last is done: a group commits it now, not with the next one."""
        if self._follower is not None:
            await self._follower.acknowledge()

    async def aclose(self) -> None:
        """Let go of Kafka. A group goes on, the next time, with the summary that was not asked beyond."""
        if self._received is not None:
            await self._received.aclose()
            self._received = None
        if self._follower is not None:
            await self._follower.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SummaryReceived:
        if self._received is None:
            self._received = self._receive()
        return await anext(self._received)

    async def _receive(self) -> AsyncGenerator[SummaryReceived, None]:
        await self.open()
        assert self._follower is not None, "it was opened"
        messages = self._follower.messages()
        try:
            async for message in messages:
                event = self._decoded(message)
                if event is None or not self._wanted(event):
                    continue
                if self._wanted.active_only and await self._is_outdated(message, event):
                    self.passed_over.replaced += 1
                    continue
                yield _received(message, event)
        finally:
            await messages.aclose()
            await self._follower.close()

    def _decoded(self, message: Message) -> SummaryCreatedEvent | SummaryFailedEvent | None:
        """The event of a message; None: it is passed over."""
        found = decode(message, summaries_codec(), partitions=self._count)
        if found.error is not None:
            self.passed_over.undecodable += 1
            _log.warning("passed over %s: %s", message.position, found.error.reason)
        elif found.event is None:
            self.passed_over.tombstones += 1
        return _summary_of(found)

    async def _is_outdated(self, message: Message, event: SummaryCreatedEvent | SummaryFailedEvent) -> bool:
        """Whether the past, as it was when the partition was opened, has something newer in the place of an event."""
        assert self._follower is not None, "it was opened"
        partition, offset = message.position.partition, message.position.offset
        end = self._follower.ends.get(partition, 0)
        if offset >= end:
            self._past.pop(partition, None)
            return False
        past = self._past.get(partition)
        if past is None or past.end != end:
            past = self._past[partition] = await self._look_ahead(partition, offset, end)
        return past.outdated(event, offset)

    async def _look_ahead(self, partition: int, offset: int, end: int) -> _Past:
        """Read the past once beforehand: ids alone are kept."""
        past = _Past(end)
        ahead = reader.read(self._config, self._topic, partitions=[partition], start={partition: offset})
        async for message in ahead:
            event = _summary_of(decode(message, summaries_codec(), partitions=self._count))
            if event is not None and event.tenantid == self._wanted.tenant and message.position.offset < end:
                past.note(event, message.position.offset)
        return past


def group_id(prefix: str, group: str | None) -> str | None:
    """The consumer group of a durable subscription.

    Raises:
        RequestRefused: Kafka takes no such name.
    """
    if group is None:
        return None
    if not group.strip() or len(group) > _MAX_GROUP_CHARS or not group.isprintable():
        raise RequestRefused("bad_request", f"group {group!r}: 1 to {_MAX_GROUP_CHARS} characters that can be printed")
    return f"{prefix}.subscriber.{group}"


def _checked(start: Start, topic: str) -> Start:
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise RequestRefused("bad_request", f"'start' {start.isoformat()} has no offset, so it names no instant")
        return start
    if isinstance(start, str):
        if start not in {"now", "beginning"}:
            raise RequestRefused("bad_request", f"'start' {start!r}: 'now', 'beginning', an instant or positions")
        return start
    foreign = [position for position in start if position.topic != topic]
    if foreign:
        raise RequestRefused("bad_request", f"'start' names {foreign[0]}: give positions of summaries, in {topic}")
    return tuple(start)


def _behind(positions: Sequence[Position], partitions: range) -> dict[int, int]:
    """Where to go on behind positions."""
    starts = dict.fromkeys(partitions, 0)
    for position in positions:
        if position.partition in starts:
            starts[position.partition] = max(starts[position.partition], position.offset + 1)
    return starts


def _summary_of(decoded: Decoded) -> SummaryCreatedEvent | SummaryFailedEvent | None:
    event = decoded.event
    return event if isinstance(event, (SummaryCreatedEvent, SummaryFailedEvent)) else None


def _received(message: Message, event: SummaryCreatedEvent | SummaryFailedEvent) -> SummaryReceived:
    return SummaryReceived(
        kind="created" if isinstance(event, SummaryCreatedEvent) else "failed",
        summary=event.data,
        tenant=event.tenantid,
        agent=event.agentid,
        session=event.sessionid,
        user=event.userid,
        position=message.position,
        recorded=message.recorded,
        event_id=event.id,
    )
