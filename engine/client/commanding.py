"""What the client commands: one effect and one answer for each request id."""

from engramlog.engine.client.asking import Asking
from engramlog.engine.client.reading import read_records
from engramlog.schemas import queries as q
from engramlog.schemas.errors import RequestRefused
from engramlog.schemas.scope import Position, Scope


async def taken(
    ask: Asking, scope: Scope, query: q.Command, *, request_id: str | None, limit_s: float
) -> list[q.StoredRecord]:
    """Give a command that takes records out; returns them, oldest first. ``limit_s`` is that of each request."""
    answer = await _command(ask, scope, query, request_id=request_id, limit_s=limit_s)
    return await read_records(ask, scope, answer.ids, limit_s=limit_s) if answer.ids else []


async def done(ask: Asking, scope: Scope, query: q.Command, *, request_id: str | None, limit_s: float) -> Position:
    """Give a command that becomes one event; returns where that lies."""
    answer = await _command(ask, scope, query, request_id=request_id, limit_s=limit_s)
    if answer.event is None:
        raise RequestRefused("not_found", "what the command was about has been erased since")
    return Position(answer.event.topic, answer.event.partition, answer.event.offset)


async def _command(
    ask: Asking, scope: Scope, query: q.Command, *, request_id: str | None, limit_s: float
) -> q.CommandAnswer:
    answer, _ = await ask(scope, query, q.CommandAnswer, limit_s=limit_s, request_id=request_id)
    if answer.event is not None:
        position = Position(answer.event.topic, answer.event.partition, answer.event.offset)
        ask.wrote((scope.tenant, scope.agent), position)
    return answer
