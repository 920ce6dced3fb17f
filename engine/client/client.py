"""The client: what an agent uses to remember and to be reminded."""

import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload

from pydantic import ValidationError

from engramlog.engine.client import tracing
from engramlog.engine.client.asking import REMEMBERED, Asking, Seen, deadline
from engramlog.engine.client.connection import KafkaConfig
from engramlog.engine.client.publisher import Outgoing, Publisher
from engramlog.schemas import queries as q
from engramlog.schemas import records as r
from engramlog.schemas.codec import invalid, records_codec
from engramlog.schemas.envelope import AgentEvent, RecordWritten, ScopeErasedEvent
from engramlog.schemas.errors import RequestRefused, StoreUnavailable
from engramlog.schemas.keys import partition_for
from engramlog.schemas.records import MemoryRecord
from engramlog.schemas.scope import Position, Scope
from engramlog.schemas.topics import Topics

_log = logging.getLogger(__name__)
_POSITIONS = 60
"""How many positions one request waits for."""


@dataclass(frozen=True, slots=True)
class History:
    """A window of an agent's history.

    Attributes:
        records: The protected head, then oldest to newest.
        truncated: Older records exist that the window left out.
        seen: What it was read from.
    """

    records: tuple[q.ContextRecord, ...]
    truncated: bool
    seen: Seen


class MemoryClient:
    """Publishes memory to Kafka and asks the engine for it. Safe to share between tasks of one event loop.

    ::

        async with MemoryClient("localhost:9092") as memory:
            scope = Scope(tenant="acme", agent="helper", session="s1")
            await memory.publish(scope, MemoryRecord(role="user", content="My name is Ada."))
            window = await memory.history(scope, window=20)

    A client reads its own writes: what it has published to an agent is in every later answer about that agent, or the
    answer says ``stale``.

    Args:
        kafka: The cluster: bootstrap servers, or a whole configuration.
        source: Who publishes: the CloudEvents ``source`` of its events.
        timeout_s: Default limit of a call, in seconds.
    """

    def __init__(self, kafka: KafkaConfig | str, *, source: str = "engramlog/client", timeout_s: float = 10.0) -> None:
        self._kafka = KafkaConfig(kafka) if isinstance(kafka, str) else kafka
        self._topics = Topics(self._kafka.prefix)
        self._source = source
        self._timeout_s = timeout_s
        self._publisher = Publisher(self._kafka)
        self._ask = Asking(self._kafka, self._publisher, source=source)
        self._warned: OrderedDict[Scope, None] = OrderedDict()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Send what is buffered and let go of Kafka. Calls that wait for an answer are cancelled."""
        await self._ask.stop()
        await self._publisher.stop()

    @overload
    async def publish(self, scope: Scope, records: MemoryRecord, *, timeout_s: float | None = None) -> Position: ...

    @overload
    async def publish(
        self, scope: Scope, records: Iterable[MemoryRecord], *, timeout_s: float | None = None
    ) -> list[Position]: ...

    async def publish(
        self, scope: Scope, records: MemoryRecord | Iterable[MemoryRecord], *, timeout_s: float | None = None
    ) -> Position | list[Position]:
        """Remember one record, or any number in order.

        Publishing a record again (same ``record_id``) never doubles it: the last copy counts.

        Args:
            scope: Whose memory; its session and user are stamped on the records.
            records: What to remember.
            timeout_s: Limit in seconds, for all of them.

        Returns:
            Where each record lies in the log, once all in-sync replicas have it.

        Raises:
            InvalidEvent: A record is too large or not valid; nothing was published.
            DeadlineExceeded: Not all were acknowledged in time; publishing them again is safe.
            ConfigurationError: The topics do not exist.
        """
        one = isinstance(records, MemoryRecord)
        events = [
            RecordWritten.of(
                record,
                source=self._source,
                tenant=scope.tenant,
                agent=scope.agent,
                sessionid=scope.session,
                userid=scope.user,
            )
            for record in ([records] if isinstance(records, MemoryRecord) else records)
        ]
        positions = await self.publish_events(events, timeout_s=timeout_s)
        return positions[0] if one else positions

    async def publish_events(self, events: Sequence[AgentEvent], *, timeout_s: float | None = None) -> list[Position]:
        """Publish events of ``memory.records`` as they are: records or mutations.

        Args:
            events: The events; those of one agent keep their order.
            timeout_s: Limit in seconds, for all of them.

        Returns:
            Where each event lies in the log.

        Raises:
            InvalidEvent: An event is too large; nothing was published.
            DeadlineExceeded: Not all were acknowledged in time; publishing them again is safe.
            ConfigurationError: The topics do not exist.
        """
        codec, topic = records_codec(), self._topics.records
        limit_s = self._limit_s(timeout_s)
        async with deadline(limit_s, "Kafka did not tell about the topic"):
            partitions = await self._ask.partitions_of(topic)
        messages = [
            Outgoing(topic, partition_for(e.tenantid, e.agentid, partitions), e.key(), codec.encode(e)) for e in events
        ]
        with tracing.span(
            f"send {topic}",
            kind="producer",
            messaging__system="kafka",
            messaging__operation__type="send",
            messaging__operation__name="send",
            messaging__destination__name=topic,
            messaging__batch__message_count=len(messages),
        ):
            context = tracing.headers()
            positions = await self._publisher.publish(
                [replace(message, headers=context) for message in messages] if context else messages,
                timeout_s=limit_s,
            )
        for event, position in zip(events, positions, strict=True):
            self._ask.wrote((event.tenantid, event.agentid), position)
        return positions

    async def history(
        self,
        scope: Scope,
        *,
        window: int | None = None,
        keep_rate: float = 0.9,
        as_of: q.AsOf | None = None,
        min_positions: Sequence[Position] = (),
        timeout_s: float | None = None,
    ) -> History:
        """The newest records of a session, or of all sessions of the agent in log order.

        The newest scores 1.0, each step back ``keep_rate`` times as much. A leading system or developer record is
        protected: it comes first, scores 1.0 and does not count as one of the window.

        Args:
            scope: Whose history, as which user sees it.
            window: How many records besides the protected head. None: all. 0: only the head.
            keep_rate: Decay for each step back, 0 to 1.
            as_of: Memory as it was.
            min_positions: What the answer must have seen besides this client's own writes.
            timeout_s: Limit in seconds, for each page of a long history.

        Raises:
            RequestRefused: A parameter is out of range.
            DeadlineExceeded: No answer in time.
        """
        pages: list[tuple[q.ContextRecord, ...]] = []
        page: q.Page | None = None
        while True:
            query = _query(q.HistoryQuery, scope, window=window, keep_rate=keep_rate, as_of=as_of, page=page)
            answer, seen = await self._ask(
                scope, query, q.HistoryAnswer, limit_s=self._limit_s(timeout_s), min_positions=min_positions
            )
            pages.append(answer.records)
            page = answer.next_page
            if page is None:
                break
        if answer.truncated:
            self._warn_truncated(scope, window)
        return History(_joined(pages), answer.truncated, seen)

    async def record(
        self,
        scope: Scope,
        record_id: str,
        *,
        min_positions: Sequence[Position] = (),
        timeout_s: float | None = None,
    ) -> q.StoredRecord:
        """One record by its id, also when it was removed from the window.

        Raises:
            RequestRefused: With code ``not_found`` when the scope has no such record.
            DeadlineExceeded: No answer in time.
        """
        query = _query(q.RecordQuery, scope, record_id=record_id)
        answer, _ = await self._ask(
            scope, query, q.RecordsAnswer, limit_s=self._limit_s(timeout_s), min_positions=min_positions
        )
        return answer.records[0]

    async def records(
        self,
        scope: Scope,
        record_ids: Iterable[str],
        *,
        min_positions: Sequence[Position] = (),
        timeout_s: float | None = None,
    ) -> list[q.StoredRecord]:
        """Records by their ids, also removed ones, in the order asked; ids that do not exist are left out.

        Raises:
            DeadlineExceeded: No answer in time.
        """
        wanted = list(dict.fromkeys(record_ids))
        found: list[q.StoredRecord] = []
        while wanted:
            query = _query(q.RecordsQuery, scope, record_ids=tuple(wanted[:1000]))
            answer, _ = await self._ask(
                scope, query, q.RecordsAnswer, limit_s=self._limit_s(timeout_s), min_positions=min_positions
            )
            found.extend(answer.records)
            wanted = [*answer.unread, *wanted[1000:]]
        return found

    async def stats(
        self, scope: Scope, *, min_positions: Sequence[Position] = (), timeout_s: float | None = None
    ) -> q.StatsAnswer:
        """How much is remembered in the scope.

        Raises:
            DeadlineExceeded: No answer in time.
        """
        answer, _ = await self._ask(
            scope,
            _query(q.StatsQuery, scope),
            q.StatsAnswer,
            limit_s=self._limit_s(timeout_s),
            min_positions=min_positions,
        )
        return answer

    # -- commands: one effect and one answer for each request id ------------------------------------------------------

    async def pop(
        self,
        scope: Scope,
        count: int,
        *,
        leave: r.MarkScope = "window",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> list[q.StoredRecord]:
        """Take the newest records out of the window; never the protected head.

        Like every command it has one effect and one answer for a ``request_id``, however often it is asked: after a
        :class:`DeadlineExceeded` or :class:`StoreUnavailable` ask again under the same id. Ids are made up by default.

        Args:
            scope: Whose window.
            count: How many, 0 to 10,000.
            leave: What they leave: the window (they can still be recalled), recall, or both.
            request_id: The identity of the command.
            timeout_s: Limit in seconds.

        Returns:
            The records that were taken out, oldest first.

        Raises:
            RequestRefused: ``count`` is negative.
            DeadlineExceeded: No answer in time.
            StoreUnavailable: The engine could not do it now.
        """
        return await self._taken(scope, _query(q.PopCommand, scope, count=count, leave=leave), request_id, timeout_s)

    async def remove(
        self,
        scope: Scope,
        indices: Iterable[int],
        *,
        leave: r.MarkScope = "window",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> list[q.StoredRecord]:
        """Take records out of the window by their indices in it, from 0 for the oldest.

        Duplicates count once; the protected head and indices outside of the window are passed over. See :meth:`pop`.
        """
        query = _query(q.RemoveCommand, scope, indices=tuple(indices), leave=leave)
        return await self._taken(scope, query, request_id, timeout_s)

    async def clean_tool_calls(
        self,
        scope: Scope,
        *,
        leave: r.MarkScope = "window",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> list[q.StoredRecord]:
        """Take tool and function records, and assistant records with tool calls, out of the window. See :meth:`pop`."""
        query = _query(q.CleanToolCallsCommand, scope, leave=leave)
        return await self._taken(scope, query, request_id, timeout_s)

    async def clear(
        self,
        scope: Scope,
        *,
        leave: r.MarkScope = "window",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Position:
        """Begin a new epoch: what was recorded so far leaves the view; ``as_of`` an earlier position still shows it.

        A scope with a user clears that user's records, one without clears the shared ones, ``users="all"`` both.

        Returns:
            Where the event lies. See :meth:`pop` for the rest.
        """
        return await self._done(scope, _query(q.ClearCommand, scope, leave=leave), request_id, timeout_s)

    async def correct(
        self,
        scope: Scope,
        record_id: str,
        content: str,
        *,
        reason: str = "",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Position:
        """Give a record new content in its old place; ``as_of`` an earlier position still shows the old content.

        Returns:
            Where the event lies.

        Raises:
            RequestRefused: With code ``not_found`` when the scope has no such record. See :meth:`pop` for the rest.
        """
        query = _query(q.CorrectCommand, scope, record_id=record_id, content=content, reason=reason)
        return await self._done(scope, query, request_id, timeout_s)

    async def invalidate(
        self,
        scope: Scope,
        record_id: str,
        *,
        reason: str = "",
        replaced_by: str | None = None,
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Position:
        """Say that a record is no longer true: it stays in the history and leaves recall. See :meth:`correct`."""
        query = _query(q.InvalidateCommand, scope, record_id=record_id, reason=reason, replaced_by=replaced_by)
        return await self._done(scope, query, request_id, timeout_s)

    async def end_session(
        self, scope: Scope, *, reason: str = "", request_id: str | None = None, timeout_s: float | None = None
    ) -> Position:
        """Say that the scope's session is over. See :meth:`clear`."""
        return await self._done(scope, _query(q.EndSessionCommand, scope, reason=reason), request_id, timeout_s)

    async def erase(
        self,
        scope: Scope,
        what: Literal["record", "session", "user", "agent"],
        *,
        record_ids: Iterable[str] = (),
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Position:
        """Erase for ever: named records, the scope's session, its user's records with this agent, or the agent.

        From the answer on, nothing shows what was recorded before the returned position; what is published after it is
        there. Of an erased record no later copy is ever taken.

        Returns:
            Where the entry of the erasure ledger lies. See :meth:`pop` for the rest.
        """
        query = _query(q.EraseCommand, scope, what=what, record_ids=tuple(record_ids))
        return await self._done(scope, query, request_id, timeout_s)

    async def erase_tenant(
        self, tenant: str, *, user: str | None = None, request_id: str | None = None, timeout_s: float | None = None
    ) -> list[Position]:
        """Erase a whole tenant, or one user with all of the tenant's agents, for ever.

        Args:
            tenant: The tenant.
            user: Only this user's records; None: everything of the tenant.
            request_id: The identity of the command: asked again under the same id it erases nothing more.
            timeout_s: Limit in seconds.

        Returns:
            Where the entries of the erasure ledger lie, one in each partition. From now on nothing shows what was
            recorded before them.

        Raises:
            DeadlineExceeded: Not done in time; ask again under the same id.
            StoreUnavailable: The entries are in the log, but not yet applied everywhere.
        """
        limit_s, topic = self._limit_s(timeout_s), self._topics.records
        async with deadline(limit_s, "Kafka did not tell about the topic"):
            partitions = await self._ask.partitions_of(topic)
        erased = r.ScopeErased(scope="tenant" if user is None else "user", request_id=request_id or r.new_id())
        event = ScopeErasedEvent(source=self._source, tenantid=tenant, userid=user, data=erased)
        value = records_codec().encode(event)
        messages = [Outgoing(topic, partition, event.key(), value) for partition in range(partitions)]
        positions = await self._publisher.publish(messages, timeout_s=limit_s)
        anyone = Scope(tenant, "-")
        for some in range(0, len(positions), _POSITIONS):
            query = _query(q.StatsQuery, anyone)
            wanted = positions[some : some + _POSITIONS]
            _, seen = await self._ask(anyone, query, q.StatsAnswer, limit_s=limit_s, min_positions=wanted)
            if seen.stale:
                raise StoreUnavailable("the erasure is in the log, but not yet applied everywhere; ask again")
        return positions

    async def _taken(
        self, scope: Scope, query: q.Command, request_id: str | None, timeout_s: float | None
    ) -> list[q.StoredRecord]:
        answer = await self._command(scope, query, request_id, timeout_s)
        return await self.records(scope, answer.ids, timeout_s=timeout_s) if answer.ids else []

    async def _done(self, scope: Scope, query: q.Command, request_id: str | None, timeout_s: float | None) -> Position:
        answer = await self._command(scope, query, request_id, timeout_s)
        if answer.event is None:
            raise RequestRefused("not_found", "what the command was about has been erased since")
        return Position(answer.event.topic, answer.event.partition, answer.event.offset)

    async def _command(
        self, scope: Scope, query: q.Command, request_id: str | None, timeout_s: float | None
    ) -> q.CommandAnswer:
        limit_s = self._limit_s(timeout_s)
        answer, _ = await self._ask(scope, query, q.CommandAnswer, limit_s=limit_s, request_id=request_id)
        if answer.event is not None:
            position = Position(answer.event.topic, answer.event.partition, answer.event.offset)
            self._ask.wrote((scope.tenant, scope.agent), position)
        return answer

    def _limit_s(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else timeout_s

    def _warn_truncated(self, scope: Scope, window: int | None) -> None:
        if scope not in self._warned:
            _log.warning("the history of %s is longer than the window of %s; said once for each scope", scope, window)
            self._warned[scope] = None
            if len(self._warned) > REMEMBERED:
                self._warned.popitem(last=False)


Q = TypeVar("Q", bound=q.Query)


def _query(kind: type[Q], scope: Scope, **fields: Any) -> Q:
    try:
        return kind(users=scope.users, **fields)
    except ValidationError as error:
        raise RequestRefused("bad_request", str(invalid(error))) from None


def _joined(pages: list[tuple[q.ContextRecord, ...]]) -> tuple[q.ContextRecord, ...]:
    """The pages in order of time; the first one begins with the protected head, if there is one."""
    first, *rest = pages
    older = [page for page in rest if page]
    if not older:
        return first
    head = first[:1] if first and first[0].stored.offset < older[-1][0].stored.offset else ()
    return (*head, *(record for page in (*reversed(older), first[len(head) :]) for record in page))
