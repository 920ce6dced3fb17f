"""The topic of summaries in SQL: which ones there are, which are active, and up to where they stand for records."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, delete, exists, not_, or_, select

from engramlog.engine.history.checkpoints import write_refused
from engramlog.engine.history.erasure import erase_named
from engramlog.engine.history.marks import HIDING
from engramlog.engine.history.prepared import Snapshot
from engramlog.engine.history.tables import AnyRow, Tables
from engramlog.engine.history.view import NOW, View, instant
from engramlog.engine.history.window import Cut, Stood, Streams, one_stream, rows_in, users_of
from engramlog.engine.history.work import RECORD, Work, chunks, find_ledgers
from engramlog.engine.log import Entry, Run
from engramlog.schemas.codec import summaries_codec
from engramlog.schemas.contexts import StoredSummary, SummariesAnswer, SummariesQuery
from engramlog.schemas.scope import Scope
from engramlog.schemas.summaries import SummaryCreatedEvent

_CHUNK = 300


def write(work: Work, run: Run) -> None:
    """Apply a run of the topic of summaries, in order."""
    find_ledgers(work, run)
    for entry in run.entries:
        if isinstance(entry.event, SummaryCreatedEvent):
            _put(work, entry, entry.event)
        elif entry.event is None and entry.key.event_id is not None:
            _delete(work, entry.key.tenant, entry.key.agent, entry.key.event_id)
    write_refused(work.connection, work.database, work.tables, run)


def _put(work: Work, entry: Entry, event: SummaryCreatedEvent) -> None:
    data, tenant, agent = event.data, event.tenantid, event.agentid
    sources = dict.fromkeys((*data.covers.record_ids, *data.covers.summary_ids))
    named = [(tenant, agent, i) for i in (*sources, data.summary_id)]
    if tenant in work.erasing and work.erased(RECORD, named):  # it holds what was erased since
        erase_named(work, tenant, agent, [data.summary_id])
        return
    _delete(work, tenant, agent, data.summary_id)
    row: dict[str, Any] = {
        "tenant": tenant,
        "agent": agent,
        "summary_id": data.summary_id,
        "session_id": event.sessionid or "",
        "user_id": event.userid or "",
        "partition": work.partition,
        "level": data.level,
        "first": data.covers.first,
        "last": data.covers.last,
        "at": data.at,
        "lies_at": entry.offset,
        "recorded_ms": entry.recorded_ms,
        "body": entry.value,
    }
    work.connection.execute(work.tables.summaries.insert(), row)
    address = {"tenant": tenant, "agent": agent}
    if sources:
        rows = [address | {"source_id": source, "summary_id": data.summary_id} for source in sources]
        work.connection.execute(work.tables.covering.insert(), rows)
    replaced = [address | {"summary_id": old, "by": data.summary_id} for old in dict.fromkeys(data.replaces)]
    if replaced:
        work.connection.execute(work.tables.replaced.insert(), replaced)


def _delete(work: Work, tenant: str, agent: str, summary_id: str) -> None:
    """Forget a copy of a summary."""
    tables, execute = work.tables, work.connection.execute
    c = tables.summaries.c
    same = and_(c.tenant == tenant, c.agent == agent, c.summary_id == summary_id)
    old = execute(select(c.body).where(same)).scalar_one_or_none()
    if old is None:
        return
    execute(delete(tables.summaries).where(same))
    c = tables.replaced.c
    execute(delete(tables.replaced).where(c.tenant == tenant, c.agent == agent, c.by == summary_id))
    covers = summaries_codec().decode(old).data.covers
    c = tables.covering.c
    for chunk in chunks((*covers.record_ids, *covers.summary_ids), _CHUNK):
        execute(
            delete(tables.covering).where(
                c.tenant == tenant, c.agent == agent, c.source_id.in_(chunk), c.summary_id == summary_id
            )
        )


def is_active(tables: Tables, view: View = NOW) -> ColumnElement[bool]:
    """Whether a summary is neither replaced nor cleared away in a view, as a condition on the table of summaries."""
    s, r, m = tables.summaries.c, tables.replaced.c, tables.marks.c
    newer = tables.summaries.alias()
    replaced = exists().where(
        r.tenant == s.tenant,
        r.agent == s.agent,
        r.summary_id == s.summary_id,
        newer.c.tenant == r.tenant,
        newer.c.agent == r.agent,
        newer.c.summary_id == r.by,
        *_due(newer.c, view),
    )
    cleared = exists().where(
        m.tenant == s.tenant,
        m.agent == s.agent,
        m.kind == "cleared",
        m.scope.in_(HIDING),
        or_(m.session_id == "", m.session_id == s.session_id),
        or_(m.users == "all", m.user_id == s.user_id),
        m.position > s.last,
        *view.mark_limits(m),
    )
    return and_(not_(replaced), not_(cleared))


def _due(s: Any, view: View) -> list[ColumnElement[bool]]:
    """That a summary was due, and recorded, in a view."""
    found: list[ColumnElement[bool]] = []
    if view.at is not None:
        found.append(s.at <= bindparam("at"))
    if view.ms is not None:
        found.append(s.recorded_ms <= bindparam("ms"))
    return found


def covered_of(snapshot: Snapshot, streams: Streams, view: View) -> tuple[Stood, ...]:
    """For each stream of a session: what summaries stand for; empty: nothing.

    A point of view before a summary was due still sees the records. What lies between two summaries and is in none (the
    rest of one that an erasure took along) is seen.
    """
    scope = streams.scope
    if scope.session is None or streams.users is None or view.us is not None or view.hidden_too:
        return ()
    s = snapshot.tables.summaries.c
    query = select(s.user_id, s.first, s.last).where(
        s.tenant == scope.tenant, s.agent == scope.agent, s.session_id == scope.session, *_due(s, view)
    )
    found: dict[str, list[tuple[int, int]]] = {}
    for user, first, last in snapshot.connection.execute(query.order_by(s.first), view.values()):
        ranges = found.setdefault(user, [])
        if ranges and first <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
        else:
            ranges.append((first, last))
    if not found:
        return ()
    return tuple(
        _stood(snapshot, one_stream(streams, n), view, found[user]) if user in found else Stood()
        for n, user in enumerate(streams.users)
    )


def _stood(snapshot: Snapshot, stream: Streams, view: View, ranges: list[tuple[int, int]]) -> Stood:
    """Ranges as one, as far as nothing is seen between them. Costs a look for each."""
    below = -1
    while ranges:
        rows = rows_in(snapshot, stream, view, Cut(limit=1, newest=False, above=below, said=True))
        if not rows:
            return Stood(ranges[-1][1])
        ranges = [one for one in ranges if one[1] >= rows[0].position]
        if not ranges or rows[0].position < ranges[0][0]:
            break
        below = ranges.pop(0)[1]
    return Stood(below, tuple(ranges))


def summaries_of(snapshot: Snapshot, scope: Scope, query: SummariesQuery, *, view: View = NOW) -> SummariesAnswer:
    """The summaries of a scope in a view, oldest first: see :class:`SummariesQuery`."""
    s = snapshot.tables.summaries.c
    active = is_active(snapshot.tables, view)
    wanted = select(s.session_id, s.user_id, s.recorded_ms, s.lies_at, s.body, active.label("active")).where(
        s.tenant == scope.tenant, s.agent == scope.agent, *_due(s, view)
    )
    if scope.session is not None:
        wanted = wanted.where(s.session_id == scope.session)
    if scope.users == "own":
        wanted = wanted.where(s.user_id.in_(users_of(scope)))
    if query.level is not None:
        wanted = wanted.where(s.level == query.level)
    if query.active:
        wanted = wanted.where(active)
    newest_first = wanted.order_by(s.last.desc(), s.level, s.summary_id).limit(query.limit + 1)
    rows = snapshot.connection.execute(newest_first, view.values()).all()
    return SummariesAnswer(
        kind="summaries",
        summaries=tuple(_stored(row) for row in reversed(rows[: query.limit])),
        truncated=len(rows) > query.limit,
    )


def named(snapshot: Snapshot, scope: Scope, ids: Sequence[str]) -> list[StoredSummary]:
    """Summaries of the scope's agent by id, in the order of what they cover."""
    s = snapshot.tables.summaries.c
    wanted = select(
        s.session_id, s.user_id, s.recorded_ms, s.lies_at, s.body, is_active(snapshot.tables).label("active")
    )
    rows: list[AnyRow] = []
    for chunk in chunks(ids, _CHUNK):
        query = wanted.where(s.tenant == scope.tenant, s.agent == scope.agent, s.summary_id.in_(chunk))
        rows += snapshot.connection.execute(query).all()
    return sorted((_stored(row) for row in rows), key=lambda stored: stored.summary.covers.first)


def all_made(snapshot: Snapshot, scope: Scope) -> bool:
    """Whether every summary that is due in a session is made, and in the history."""
    d, s = snapshot.tables.due.c, snapshot.tables.summaries.c
    here = exists().where(s.tenant == d.tenant, s.agent == d.agent, s.summary_id == d.summary_id)
    missing = select(d.summary_id).where(
        d.tenant == scope.tenant, d.agent == scope.agent, d.session_id == (scope.session or ""), ~here
    )
    if scope.users == "own":
        missing = missing.where(d.user_id.in_(users_of(scope)))
    return snapshot.connection.execute(missing.limit(1)).first() is None


def _stored(row: AnyRow) -> StoredSummary:
    event = summaries_codec().decode(row.body)
    return StoredSummary(
        summary=event.data,
        session=row.session_id or None,
        user=row.user_id or None,
        active=bool(row.active),
        recorded=instant(row.recorded_ms),
        offset=row.lies_at,
    )
