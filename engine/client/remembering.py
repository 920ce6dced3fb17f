"""What the client writes to the log: records, events, and the entries of the erasure ledger for a whole tenant."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from engramlog.engine.client import tracing
from engramlog.engine.client.asking import Asking, deadline, query_of
from engramlog.engine.client.publisher import Outgoing, Publisher
from engramlog.schemas import queries as q
from engramlog.schemas import records as r
from engramlog.schemas.codec import records_codec
from engramlog.schemas.envelope import AgentEvent, RecordWritten, ScopeErasedEvent
from engramlog.schemas.errors import StoreUnavailable
from engramlog.schemas.keys import partition_for
from engramlog.schemas.records import MemoryRecord
from engramlog.schemas.scope import Position, Scope

_POSITIONS = 60
"""How many positions one request waits for."""


@dataclass(frozen=True, slots=True)
class Remembering:
    """Writes to ``memory.records``.

    Attributes:
        ask: What remembers what was written, and asks.
        publisher: What sends.
        topic: Full name of the topic.
        source: Who writes: the CloudEvents ``source``.
    """

    ask: Asking
    publisher: Publisher
    topic: str
    source: str

    def written(self, scope: Scope, records: Iterable[MemoryRecord]) -> list[AgentEvent]:
        """The events that say that records were written in a scope."""
        return [
            RecordWritten.of(
                record,
                source=self.source,
                tenant=scope.tenant,
                agent=scope.agent,
                sessionid=scope.session,
                userid=scope.user,
            )
            for record in records
        ]

    async def publish(self, events: Sequence[AgentEvent], *, limit_s: float) -> list[Position]:
        """See :meth:`MemoryClient.publish_events`."""
        codec = records_codec()
        partitions = await self._partitions(limit_s)
        messages = [
            Outgoing(self.topic, partition_for(e.tenantid, e.agentid, partitions), e.key(), codec.encode(e))
            for e in events
        ]
        with tracing.span(
            f"send {self.topic}",
            kind="producer",
            messaging__system="kafka",
            messaging__operation__type="send",
            messaging__operation__name="send",
            messaging__destination__name=self.topic,
            messaging__batch__message_count=len(messages),
        ):
            context = tracing.headers()
            positions = await self.publisher.publish(
                [replace(message, headers=context) for message in messages] if context else messages,
                timeout_s=limit_s,
            )
        for event, position in zip(events, positions, strict=True):
            self.ask.wrote((event.tenantid, event.agentid), position)
        return positions

    async def erase_tenant(
        self, tenant: str, *, user: str | None, request_id: str | None, limit_s: float
    ) -> list[Position]:
        """See :meth:`MemoryClient.erase_tenant`."""
        partitions = await self._partitions(limit_s)
        erased = r.ScopeErased(scope="tenant" if user is None else "user", request_id=request_id or r.new_id())
        event = ScopeErasedEvent(source=self.source, tenantid=tenant, userid=user, data=erased)
        value = records_codec().encode(event)
        messages = [Outgoing(self.topic, partition, event.key(), value) for partition in range(partitions)]
        positions = await self.publisher.publish(messages, timeout_s=limit_s)
        anyone = Scope(tenant, "-")
        for some in range(0, len(positions), _POSITIONS):
            query = query_of(q.StatsQuery, anyone)
            wanted = positions[some : some + _POSITIONS]
            _, seen = await self.ask(anyone, query, q.StatsAnswer, limit_s=limit_s, min_positions=wanted)
            if seen.stale:
                raise StoreUnavailable("the erasure is in the log, but not yet applied everywhere; ask again")
        return positions

    async def _partitions(self, limit_s: float) -> int:
        async with deadline(limit_s, "Kafka did not tell about the topic"):
            return await self.ask.partitions_of(self.topic)
