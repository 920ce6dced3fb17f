"""Commands: requests that change memory, each with exactly one effect and one answer.

A command is resolved to ids and to the offset at which it was resolved; that is published, never a count or an index.
Steps, one command of an agent at a time:

1. wait until the history covers the end of the agent's partition;
2. look whether the request was resolved before, else resolve it and *claim* the resolution in the history's database:
   of several processes that resolve the same request (one may be a stale owner that woke up) the first claim counts,
   and no claim counts that was resolved without knowing of another command of the agent;
3. publish the claimed event under the request's id: published again it is the same event, and touches nothing that
   was recorded after it was resolved;
4. wait until the history has applied it, and answer.

A process may die between any two steps: the request is delivered again, or asked again, and goes on from the claim.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakValueDictionary

from engramlog.engine.history import History
from engramlog.engine.history.commands import NOTHING, Claim, Known
from engramlog.engine.positions import PositionWatch
from engramlog.schemas import envelope as e
from engramlog.schemas import queries as q
from engramlog.schemas import records as r
from engramlog.schemas.codec import records_codec
from engramlog.schemas.errors import RequestRefused, StoreUnavailable

SOURCE = "engramlog/answer"


class AgentLog(Protocol):
    """``memory.records``, as far as one agent's events go.

    Attributes:
        topic: Full name of the topic.
    """

    topic: str

    def partition(self, tenant: str, agent: str) -> int:
        """The partition that holds an agent's events."""

    async def last(self, tenant: str, agent: str) -> q.Reached | None:
        """Its last position; None: it is empty."""

    async def publish(self, event: e.AgentEvent | e.ScopeErasedEvent) -> q.Reached:
        """Publish an event, and wait until all in-sync replicas have it."""


@dataclass(frozen=True, slots=True)
class Commands:
    """Carries out commands.

    Attributes:
        history: The history store.
        watch: What waits for positions.
        log: Where events are published.
    """

    history: History
    watch: PositionWatch
    log: AgentLog
    _locks: "WeakValueDictionary[tuple[str, str], asyncio.Lock]" = field(default_factory=WeakValueDictionary)

    async def __call__(self, query: q.QueryAsked, *, until: float) -> q.CommandAnswer:
        """Carry out a command.

        Args:
            query: The request; its id is the command's identity.
            until: Deadline, in the running loop's time.

        Raises:
            RequestRefused: It cannot be carried out as it stands.
            StoreUnavailable: It was not done in time, or may not be; asking again under the same id is safe.
        """
        agent = (query.tenantid, query.agentid)
        lock = self._locks.setdefault(agent, asyncio.Lock())
        try:
            async with asyncio.timeout_at(until), lock:
                return await self._carry_out(query, until)
        except TimeoutError:
            raise StoreUnavailable(
                "the command was not done in time; ask again with the same request id: it has one effect"
            ) from None

    async def _carry_out(self, query: q.QueryAsked, until: float) -> q.CommandAnswer:
        tenant, agent = query.tenantid, query.agentid
        while True:
            last = await self.log.last(tenant, agent)
            await self._applied(last, until)
            known = await self.history.find_command(tenant, agent, query.id)
            if known is not None:
                return await self._finish(query, known, until)
            at = 0 if last is None else last.offset + 1
            event = await self._resolve(query, at=at)
            body = NOTHING if event is None else records_codec().encode(event)
            claimed = await self.history.claim_command(Claim(tenant, agent, query.id, at, body))
            if isinstance(claimed, Known):
                return await self._finish(query, claimed, until)
            if claimed.pending is not None:  # its process died, or is still at it: published twice it is the same
                await self._finish(query, claimed.pending, until)
                await self.history.settle_command(tenant, agent, claimed.request_id)

    async def _finish(self, query: q.QueryAsked, known: Known, until: float) -> q.CommandAnswer:
        """Publish what was claimed, unless the history has it, and wait until it has."""
        tenant, agent = query.tenantid, query.agentid
        if known.body == NOTHING:
            return q.CommandAnswer(kind="command")
        if known.offset is not None:
            position = q.Reached(topic=self.log.topic, partition=self.log.partition(tenant, agent), offset=known.offset)
            return q.CommandAnswer(kind="command", ids=known.ids, event=position)
        event = records_codec().decode(known.body)
        if isinstance(event, e.ScopeErasedEvent):
            # Under an id of its own each time: of the entries of one request the first counts, for ever. Under one id
            # the last would, and erase what was recorded in between.
            event = event.model_copy(update={"id": r.new_id()})
        position = await self.log.publish(event)
        await self._applied(position, until)
        return q.CommandAnswer(kind="command", ids=known.ids, event=position)

    async def _applied(self, position: q.Reached | None, until: float) -> None:
        if position is not None and not await self.watch.wait([position], until=until):
            raise TimeoutError

    async def _resolve(self, query: q.QueryAsked, *, at: int) -> e.AgentEvent | e.ScopeErasedEvent | None:  # noqa: C901, PLR0911 - a command a line
        """The event that a command comes to; None: there is nothing to do."""
        scope, frame = query.scope(), _frame(query)
        match query.data:
            case q.PopCommand() as ask:
                return _removed(frame, ask, await self.history.select_newest(scope, ask.count), at)
            case q.RemoveCommand() as ask:
                return _removed(frame, ask, await self.history.select_indices(scope, ask.indices), at)
            case q.CleanToolCallsCommand() as ask:
                return _removed(frame, ask, await self.history.select_tool_calls(scope, q.MAX_IDS), at)
            case q.ClearCommand() as ask:
                return e.HistoryClearedEvent(**frame, data=r.HistoryCleared(scope=ask.leave, users=ask.users, at=at))
            case q.CorrectCommand() as ask:
                await self._must_exist(query, ask.record_id)
                data = r.RecordCorrected(id=ask.record_id, content=ask.content, reason=ask.reason, at=at)
                return e.RecordCorrectedEvent(**frame, data=data)
            case q.InvalidateCommand() as ask:
                await self._must_exist(query, ask.record_id)
                invalidated = r.RecordInvalidated(
                    id=ask.record_id, reason=ask.reason, replaced_by=ask.replaced_by, at=at
                )
                return e.RecordInvalidatedEvent(**frame, data=invalidated)
            case q.EndSessionCommand() as ask:
                if query.sessionid is None:
                    raise RequestRefused("bad_request", "name the session to end")
                return e.SessionEndedEvent(**frame, data=r.SessionEnded(reason=ask.reason))
            case q.SummariseCommand():
                if query.sessionid is None:
                    raise RequestRefused("bad_request", "name the session to summarise")
                return e.SessionIdledEvent(**frame, data=r.SessionIdled(idle_s=0.0))
            case q.EraseCommand() as ask:
                return _erased(query, frame, ask)
        raise RequestRefused("bad_request", f"{query.data.ask!r} is not a command")

    async def _must_exist(self, query: q.QueryAsked, record_id: str) -> None:
        read = await self.history.read_records(query.scope(), [record_id], max_bytes=1)
        if read.answer.missing:
            raise RequestRefused("not_found", f"no record {record_id!r} in this scope")


def _frame(query: q.QueryAsked) -> dict[str, Any]:
    """The envelope of a command's event: the request's scope and id."""
    return {
        "id": query.id,
        "source": SOURCE,
        "tenantid": query.tenantid,
        "agentid": query.agentid,
        "sessionid": query.sessionid,
        "userid": query.userid,
        "correlationid": query.id,
        "time": query.time,
    }


def _removed(
    frame: dict[str, Any], ask: q.PopCommand | q.RemoveCommand | q.CleanToolCallsCommand, ids: Sequence[str], at: int
) -> e.RecordsRemovedEvent | None:
    if not ids:
        return None
    removed = r.RecordsRemoved(ids=tuple(ids), scope=ask.leave, cause=ask.ask, request_id=frame["id"], at=at)
    return e.RecordsRemovedEvent(**frame, data=removed)


def _erased(query: q.QueryAsked, frame: dict[str, Any], ask: q.EraseCommand) -> e.ScopeErasedEvent:
    if (ask.what == "record") != bool(ask.record_ids):
        raise RequestRefused("bad_request", "'record_ids' goes with 'record', and with nothing else")
    if ask.what == "session" and query.sessionid is None:
        raise RequestRefused("bad_request", "name the session to erase")
    if ask.what == "user" and query.userid is None:
        raise RequestRefused("bad_request", "name the user to erase")
    data = r.ScopeErased(scope=ask.what, record_ids=ask.record_ids, request_id=query.id)
    session = query.sessionid if ask.what == "session" else None
    user = query.userid if ask.what == "user" else None
    return e.ScopeErasedEvent(**{**frame, "sessionid": session, "userid": user}, data=data)
