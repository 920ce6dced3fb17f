"""What commands need of the history: which records they mean, and what a request was resolved to before."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, select

from engramlog.engine.history.database import Database
from engramlog.engine.history.prepared import Snapshot
from engramlog.engine.history.reading import head_position
from engramlog.engine.history.tables import Tables
from engramlog.engine.history.view import View
from engramlog.engine.history.window import Cut, rows_in, streams_of
from engramlog.engine.history.work import EVENT
from engramlog.schemas.codec import records_codec
from engramlog.schemas.scope import Scope

NOTHING = b""
"""The claim of a command that had nothing to do."""

_KEPT_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Known:
    """What a request was resolved to.

    Attributes:
        body: The encoded event; :data:`NOTHING`: there was nothing to do, or what it was about is erased.
        offset: Where the event lies in the agent's partition; None: it is not known to be published.
        ids: The records that it names.
    """

    body: bytes
    offset: int | None = None
    ids: tuple[str, ...] = ()


def newest(snapshot: Snapshot, scope: Scope, count: int) -> tuple[str, ...]:
    """The newest records of the window without its protected head, oldest first."""
    streams, view = streams_of(snapshot, scope), View()
    head = head_position(snapshot, scope, view, streams)
    rows = rows_in(snapshot, streams, view, Cut(limit=count, above=head)) if count else []
    return tuple(row.record_id for row in reversed(rows))


def at_indices(snapshot: Snapshot, scope: Scope, indices: Sequence[int]) -> tuple[str, ...]:
    """The records at these indices of the window, oldest first; costs the largest index that is asked for."""
    wanted = sorted({i for i in indices if i >= 0})
    if not wanted:
        return ()
    streams, view = streams_of(snapshot, scope), View()
    head = head_position(snapshot, scope, view, streams)
    most = wanted[-1] + 1
    stats = snapshot.tables.sessions.c
    query = select(stats.visible).where(stats.tenant == scope.tenant, stats.agent == scope.agent)
    most = min(most, sum(snapshot.connection.execute(query).scalars()))
    rows = rows_in(snapshot, streams, view, Cut(limit=most, newest=False)) if most else []
    return tuple(rows[i].record_id for i in wanted if i < len(rows) and rows[i].position != head)


def tool_calls(snapshot: Snapshot, scope: Scope, limit: int) -> tuple[str, ...]:
    """Visible records of tools and of those who call them, oldest first."""
    c, streams = snapshot.tables.records.c, streams_of(snapshot, scope)
    query = select(c.record_id).where(c.tenant == scope.tenant, c.agent == scope.agent, c.tool == 1, c.hidden == 0)
    if scope.session is not None:
        query = query.where(c.session_id == scope.session)
    if streams.users is not None:
        query = query.where(c.user_id.in_(streams.users))
    return tuple(snapshot.connection.execute(query.order_by(c.position).limit(limit)).scalars())


def find(connection: Connection, tables: Tables, tenant: str, agent: str, request_id: str) -> Known | None:
    """What a request was resolved to; None: it was not seen."""
    m, e, x, k = tables.marks.c, tables.ledger.c, tables.erased.c, tables.claims.c
    mark = select(m.body, m.lies_at).where(m.tenant == tenant, m.agent == agent, m.event_id == request_id)
    for body, lies_at in connection.execute(mark):
        return Known(bytes(body), lies_at, _ids(bytes(body)))
    entry = select(e.position, e.record_ids).where(e.tenant == tenant, e.agent == agent, e.request_id == request_id)
    for position, record_ids in connection.execute(entry):
        return Known(b"{}", position, tuple(json.loads(record_ids)))
    erased = select(x.id).where(x.tenant == tenant, x.agent == agent, x.what == EVENT, x.id == request_id)
    if connection.execute(erased).first() is not None:
        return Known(NOTHING)
    claim = select(k.body).where(k.tenant == tenant, k.agent == agent, k.request_id == request_id)
    for (body,) in connection.execute(claim):
        return Known(bytes(body), None, _ids(bytes(body)))
    return None


def claim(
    connection: Connection,
    database: Database,
    tables: Tables,
    row: tuple[str, str, str, bytes],
    *,
    now_ms: int,
) -> Known:
    """Claim the resolution of a request (tenant, agent, request id, body); the first claim counts."""
    tenant, agent, request_id, body = row
    k = tables.claims
    values = {"tenant": tenant, "agent": agent, "request_id": request_id, "body": body, "made_ms": now_ms}
    connection.execute(delete(k).where(k.c.made_ms < now_ms - _KEPT_MS))
    connection.execute(database.insert(k).values(values).on_conflict_do_nothing())
    found = select(k.c.body).where(k.c.tenant == tenant, k.c.agent == agent, k.c.request_id == request_id)
    first = bytes(connection.execute(found).scalar_one())
    return Known(first, None, _ids(first))


def _ids(body: bytes) -> tuple[str, ...]:
    """The records that an event names."""
    if body == NOTHING:
        return ()
    data = records_codec().decode(body).data
    named = getattr(data, "ids", None) or getattr(data, "record_ids", None)
    if named is not None:
        return tuple(named)
    one = getattr(data, "id", None)
    return () if one is None else (one,)
