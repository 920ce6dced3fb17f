"""The client: what an agent uses to remember and to be reminded."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from pydantic import ValidationError

from engramlog.engine.client import tracing
from engramlog.engine.client.connection import KafkaConfig
from engramlog.engine.client.publisher import Outgoing, Publisher
from engramlog.engine.client.replies import Replies
from engramlog.schemas import queries as q
from engramlog.schemas.codec import invalid, queries_codec, records_codec, replies_codec
from engramlog.schemas.envelope import AgentEvent, RecordWritten
from engramlog.schemas.errors import DeadlineExceeded, EngramlogError, RequestRefused, StoreUnavailable
from engramlog.schemas.keys import murmur2, partition_for
from engramlog.schemas.records import MemoryRecord, Wire, new_id
from engramlog.schemas.scope import Position, Scope
from engramlog.schemas.topics import Topics

_log = logging.getLogger(__name__)
_REMEMBERED_AGENTS = 10_000
A = TypeVar("A", bound=Wire)


@dataclass(frozen=True, slots=True)
class Seen:
    """What an answer was read from.

    Attributes:
        positions: What it has seen: give them as ``min_positions`` to see no less the next time.
        stale: It has not seen all that was asked for (own writes, ``min_positions``): time ran out.
    """

    positions: tuple[Position, ...]
    stale: bool


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
        self._replies: Replies | None = None
        self._opening = asyncio.Lock()
        self._partitions: dict[str, int] = {}
        self._written: OrderedDict[tuple[str, str], Position] = OrderedDict()
        self._warned: OrderedDict[Scope, None] = OrderedDict()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Send what is buffered and let go of Kafka. Calls that wait for an answer are cancelled."""
        if self._replies is not None:
            await self._replies.stop()
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
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        async with _deadline(limit_s, "Kafka did not tell about the topic"):
            partitions = await self._partitions_of(topic)
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
            self._remember_write((event.tenantid, event.agentid), position)
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
            answer, seen = await self._ask(scope, query, q.HistoryAnswer, min_positions, timeout_s)
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
        answer, _ = await self._ask(scope, query, q.RecordsAnswer, min_positions, timeout_s)
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
            answer, _ = await self._ask(scope, query, q.RecordsAnswer, min_positions, timeout_s)
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
        answer, _ = await self._ask(scope, _query(q.StatsQuery, scope), q.StatsAnswer, min_positions, timeout_s)
        return answer

    async def _ask(
        self, scope: Scope, query: q.Query, kind: type[A], min_positions: Sequence[Position], timeout_s: float | None
    ) -> tuple[A, Seen]:
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        own = self._written.get((scope.tenant, scope.agent))
        wanted = [*min_positions, *([own] if own else [])]
        request = q.QueryAsked(
            source=self._source,
            tenantid=scope.tenant,
            agentid=scope.agent,
            sessionid=scope.session,
            userid=scope.user,
            data=query.model_copy(
                update={
                    "timeout_ms": max(1, min(600_000, int(limit_s * 1000))),
                    "min_positions": tuple(_reached(p) for p in wanted),
                }
            ),
        )
        ask = request.data.ask
        with tracing.span(f"ask {ask}", kind="client", messaging__system="kafka", engramlog__ask=ask) as span:
            async with _deadline(limit_s, f"no answer to '{ask}': is 'answer' running?"):
                reply = await self._request(request, limit_s)
            if reply.error is not None:
                span.fail(reply.error.code)
            span.set(engramlog__stale=reply.stale)
        if reply.error is not None:
            if reply.error.code == "unavailable":
                raise StoreUnavailable(reply.error.message)
            raise RequestRefused(reply.error.code, reply.error.message)
        if not isinstance(reply.answer, kind):
            raise EngramlogError(f"the engine answered with {reply.answer!r} where {kind.__name__} was asked for")
        seen = tuple(Position(p.topic, p.partition, p.offset) for p in reply.positions)
        return reply.answer, Seen(seen, reply.stale)

    async def _request(self, request: q.QueryAsked, limit_s: float) -> q.Reply:
        replies = await self._open_replies()
        await replies.ready()
        topic = self._topics.queries
        partitions = await self._partitions_of(topic)
        future = replies.expect(request.id)
        try:
            await self._publisher.publish(
                [
                    Outgoing(
                        topic,
                        partition_for(request.tenantid, request.agentid, partitions),
                        request.key(),
                        queries_codec().encode(request),
                        (
                            (q.REPLY_TOPIC, replies.topic.encode()),
                            (q.REPLY_PARTITION, str(replies.partition).encode()),
                            (q.CORRELATION_ID, request.id.encode()),
                            *tracing.headers(),
                        ),
                    )
                ],
                timeout_s=limit_s,
            )
            return replies_codec().decode(await future).data
        finally:
            replies.forget(request.id)

    async def _open_replies(self) -> Replies:
        async with self._opening:
            if self._replies is None:
                topic = self._topics.replies
                partition = murmur2(new_id().encode()) % await self._partitions_of(topic)
                self._replies = Replies(self._kafka, topic, partition)
                self._replies.start()
            return self._replies

    async def _partitions_of(self, topic: str) -> int:
        if topic not in self._partitions:
            self._partitions[topic] = await self._publisher.partitions(topic)
        return self._partitions[topic]

    def _remember_write(self, agent: tuple[str, str], position: Position) -> None:
        before = self._written.pop(agent, None)
        self._written[agent] = max(before, position) if before else position
        if len(self._written) > _REMEMBERED_AGENTS:
            self._written.popitem(last=False)

    def _warn_truncated(self, scope: Scope, window: int | None) -> None:
        if scope not in self._warned:
            _log.warning("the history of %s is longer than the window of %s; said once for each scope", scope, window)
            self._warned[scope] = None
            if len(self._warned) > _REMEMBERED_AGENTS:
                self._warned.popitem(last=False)


@asynccontextmanager
async def _deadline(limit_s: float, message: str) -> AsyncIterator[None]:
    """Like ``asyncio.timeout``, but raises :class:`DeadlineExceeded`, which says what was waited for."""
    timeout = asyncio.timeout(limit_s)
    try:
        async with timeout:
            yield
    except TimeoutError:
        if not timeout.expired():
            raise
        raise DeadlineExceeded(f"{message} ({limit_s:g} s)") from None


def _reached(position: Position) -> q.Reached:
    return q.Reached(topic=position.topic, partition=position.partition, offset=position.offset)


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
