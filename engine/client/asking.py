"""Request and reply over Kafka: the client's half."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from engramlog.engine.client import tracing
from engramlog.engine.client.connection import KafkaConfig
from engramlog.engine.client.publisher import Outgoing, Publisher
from engramlog.engine.client.replies import Replies
from engramlog.schemas import queries as q
from engramlog.schemas.codec import invalid, queries_codec, replies_codec
from engramlog.schemas.errors import DeadlineExceeded, EngramlogError, RequestRefused, StoreUnavailable
from engramlog.schemas.keys import murmur2, partition_for
from engramlog.schemas.records import Wire, new_id
from engramlog.schemas.scope import Position, Scope
from engramlog.schemas.topics import Topics

REMEMBERED = 10_000
"""For how many agents a client remembers what it has written."""
A = TypeVar("A", bound=Wire)
Q = TypeVar("Q", bound=q.Query)


@dataclass(frozen=True, slots=True)
class Seen:
    """What an answer was read from.

    Attributes:
        positions: What it has seen: give them as ``min_positions`` to see no less the next time.
        stale: It has not seen all that was asked for (own writes, ``min_positions``): time ran out.
    """

    positions: tuple[Position, ...]
    stale: bool


class Asking:
    """Asks the engine, and remembers what must be in the answers: what this client has written.

    Args:
        kafka: The cluster.
        publisher: What sends the requests.
        source: Who asks: the CloudEvents ``source``.
        projection: The name of the read-only projection that is asked; None: memory as it is.
    """

    def __init__(self, kafka: KafkaConfig, publisher: Publisher, *, source: str, projection: str | None = None) -> None:
        self._kafka = kafka
        self._topics = Topics(kafka.prefix)
        self._publisher = publisher
        self._source = source
        self._projection = projection
        self._replies: Replies | None = None
        self._opening = asyncio.Lock()
        self._partitions: dict[str, int] = {}
        self._written: OrderedDict[tuple[str, str], Position] = OrderedDict()

    async def stop(self) -> None:
        """Stop listening for replies; calls that wait for one are cancelled."""
        if self._replies is not None:
            await self._replies.stop()

    async def partitions_of(self, topic: str) -> int:
        """Number of partitions of a topic."""
        if topic not in self._partitions:
            self._partitions[topic] = await self._publisher.partitions(topic)
        return self._partitions[topic]

    def wrote(self, agent: tuple[str, str], position: Position) -> None:
        """From now on answers about this (tenant, agent) must have seen the position."""
        before = self._written.pop(agent, None)
        self._written[agent] = max(before, position) if before else position
        if len(self._written) > REMEMBERED:
            self._written.popitem(last=False)

    async def __call__(
        self,
        scope: Scope,
        query: q.Query,
        kind: type[A],
        *,
        limit_s: float,
        min_positions: Sequence[Position] = (),
        request_id: str | None = None,
    ) -> tuple[A, Seen]:
        """Ask, and wait for the answer.

        Args:
            scope: Whose memory, as which user sees it.
            query: What is asked.
            kind: The answer that it has.
            limit_s: How long to wait, in seconds.
            min_positions: What the answer must have seen besides own writes.
            request_id: The identity of the request; a new one by default.

        Raises:
            RequestRefused: The engine refuses the request.
            StoreUnavailable: The engine cannot answer now.
            DeadlineExceeded: No answer in time.
        """
        own = self._written.get((scope.tenant, scope.agent))
        wanted = [*min_positions, *([own] if own and self._projection is None else [])]
        request = q.QueryAsked(
            id=request_id or new_id(),
            source=self._source,
            tenantid=scope.tenant,
            agentid=scope.agent,
            sessionid=scope.session,
            userid=scope.user,
            data=query.model_copy(
                update={
                    "timeout_ms": max(1, min(600_000, int(limit_s * 1000))),
                    "min_positions": tuple(_reached(p) for p in wanted),
                    "projection": self._projection,
                }
            ),
        )
        ask = request.data.ask
        with tracing.span(f"ask {ask}", kind="client", messaging__system="kafka", engramlog__ask=ask) as span:
            async with deadline(limit_s, f"no answer to '{ask}': is 'answer' running?"):
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
        partitions = await self.partitions_of(topic)
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
                partition = murmur2(new_id().encode()) % await self.partitions_of(topic)
                self._replies = Replies(self._kafka, topic, partition)
                self._replies.start()
            return self._replies


@asynccontextmanager
async def deadline(limit_s: float, message: str) -> AsyncIterator[None]:
    """Like ``asyncio.timeout``, but raises :class:`DeadlineExceeded`, which says what was waited for."""
    timeout = asyncio.timeout(limit_s)
    try:
        async with timeout:
            yield
    except TimeoutError:
        if not timeout.expired():
            raise
        raise DeadlineExceeded(f"{message} ({limit_s:g} s)") from None


def query_of(kind: type[Q], scope: Scope, **fields: Any) -> Q:
    """A request of a kind, as the scope sees memory.

    Raises:
        RequestRefused: A field is out of range.
    """
    try:
        return kind(users=scope.users, **fields)
    except ValidationError as error:
        raise RequestRefused("bad_request", str(invalid(error))) from None


def _reached(position: Position) -> q.Reached:
    return q.Reached(topic=position.topic, partition=position.partition, offset=position.offset)
