"""What commands need of the history: which records they mean, and what a request was resolved to before."""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, delete, select, text, update

from engramlog.engine.history.database import Database
from engramlog.engine.history.prepared import Snapshot
from engramlog.engine.history.reading import head_position
from engramlog.engine.history.summaries import covered_of
from engramlog.engine.history.tables import Tables
from engramlog.engine.history.view import View
from engramlog.engine.history.window import Cut, rows_in, streams_of
from engramlog.engine.history.work import EVENT
from engramlog.schemas.codec import records_codec
from engramlog.schemas.scope import Scope

NOTHING = b""
"""The claim of a command that had nothing to do."""

_LOCKS = 20_261
"""The class of our advisory locks in PostgreSQL."""
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
    streams = replace(streams, covered=covered_of(snapshot, streams, view))
    rows = rows_in(snapshot, streams, view, Cut(limit=count, above=head)) if count else []
    return tuple(row.record_id for row in reversed(rows))


def at_indices(snapshot: Snapshot, scope: Scope, indices: Sequence[int]) -> tuple[str, ...]:
    """The records at these indices of the window, oldest first; costs the largest index that is asked for."""
    wanted = sorted({i for i in indices if i >= 0})
    if not wanted:
        return ()
    streams, view = streams_of(snapshot, scope), View()
    head = head_position(snapshot, scope, view, streams)
    streams = replace(streams, covered=covered_of(snapshot, streams, view))
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
    applied = _applied(connection, tables, tenant, agent, request_id)
    if applied is not None:
        return applied
    k = tables.claims.c
    claims = select(k.body).where(k.tenant == tenant, k.agent == agent, k.request_id == request_id)
    for (body,) in connection.execute(claims):
        return Known(bytes(body), None, _ids(bytes(body)))
    return None


def _applied(connection: Connection, tables: Tables, tenant: str, agent: str, request_id: str) -> Known | None:
    """What the history has of a request's event."""
    m, e, x = tables.marks.c, tables.ledger.c, tables.erased.c
    mark = select(m.body, m.lies_at).where(m.tenant == tenant, m.agent == agent, m.event_id == request_id)
    for body, lies_at in connection.execute(mark):
        return Known(bytes(body), lies_at, _ids(bytes(body)))
    entry = select(e.position, e.record_ids).where(e.tenant == tenant, e.agent == agent, e.request_id == request_id)
    for position, record_ids in connection.execute(entry):
        return Known(b"{}", position, tuple(json.loads(record_ids)))
    erased = select(x.id).where(x.tenant == tenant, x.agent == agent, x.what == EVENT, x.id == request_id)
    return None if connection.execute(erased).first() is None else Known(NOTHING)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request was resolved to, to be claimed.

    Attributes:
        tenant: The tenant.
        agent: The agent.
        request_id: The command's identity.
        at: As of which offset of the agent's partition it was resolved: all before it had been applied.
        body: The encoded event, or :data:`NOTHING`.
    """

    tenant: str
    agent: str
    request_id: str
    at: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Outdated:
    """A claim that came too late: another command of the agent was claimed that this one has not seen.

    Attributes:
        request_id: That command.
        pending: What it was resolved to, if it may not have been published yet: publish it, settle it, resolve anew.
    """

    request_id: str
    pending: Known | None


def claim(connection: Connection, database: Database, tables: Tables, made: Claim, *, now_ms: int) -> Known | Outdated:
    """Claim a resolution: of several of one request the first counts, and none counts that missed another command."""
    if not database.is_sqlite:
        lock = zlib.crc32(f"{made.tenant}/{made.agent}".encode())
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCKS}, {lock - 2**31})"))
    k = tables.claims
    known = find(connection, tables, made.tenant, made.agent, made.request_id)
    if known is not None:
        return known
    own = (k.c.tenant == made.tenant, k.c.agent == made.agent)
    latest = select(k.c.request_id, k.c.body).where(*own, k.c.body != NOTHING).order_by(k.c.at.desc()).limit(1)
    for request_id, body in connection.execute(latest).all():
        applied = _applied(connection, tables, made.tenant, made.agent, request_id)
        if applied is None:
            return Outdated(request_id, Known(bytes(body), None, _ids(bytes(body))))
        if applied.offset is not None and applied.offset >= made.at:
            return Outdated(request_id, None)
    connection.execute(delete(k).where(k.c.made_ms < now_ms - _KEPT_MS))
    values = {"tenant": made.tenant, "agent": made.agent, "request_id": made.request_id}
    connection.execute(database.insert(k).values(**values, at=made.at, body=made.body, made_ms=now_ms))
    return Known(made.body, None, _ids(made.body))


def settle(connection: Connection, tables: Tables, tenant: str, agent: str, request_id: str) -> None:
    """The event of a claim was published and passed: if the history has nothing of it, what it was about is erased."""
    if _applied(connection, tables, tenant, agent, request_id) is None:
        k = tables.claims
        own = (k.c.tenant == tenant, k.c.agent == agent, k.c.request_id == request_id)
        connection.execute(update(k).where(*own).values(body=NOTHING))


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
