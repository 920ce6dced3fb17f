"""Marks: what is said about records afterwards. They touch earlier positions only, and can move or go.

A mark is kept as a row, with a row for each record that it names. What leaves the window is also written into the
records (``hidden_at`` is the first mark that hides them), so that reading a window never meets a hidden row.
A mark that is sent again counts at its later place; a tombstone takes it back. A command's mark takes effect as of the
offset at which it was resolved, wherever it lies: that offset is the position that is stored for it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, delete, func, select, update

from engramlog.engine.history.tables import AnyRow
from engramlog.engine.history.work import EVENT, RECORD, Work, chunks
from engramlog.engine.log import Entry
from engramlog.schemas.envelope import (
    AgentEvent,
    HistoryClearedEvent,
    RecordCorrectedEvent,
    RecordInvalidatedEvent,
    RecordsRemovedEvent,
)

HIDING = ("window", "both")
"""Scopes of marks that take records out of the window."""

_CHUNK = 300
_REHIDE = 1_000


def kind_of(event: AgentEvent) -> str:
    """The short name that a mark is stored under: ``cleared``, ``removed``, ``corrected`` and so on."""
    return str(type(event).model_fields["type"].default).split(".")[-2]


def named_by(event: AgentEvent) -> tuple[str, ...]:
    """The records that a mark names; none for a clear and the marks of sessions."""
    if isinstance(event, RecordsRemovedEvent):
        return tuple(dict.fromkeys(event.data.ids))
    if isinstance(event, (RecordInvalidatedEvent, RecordCorrectedEvent)):
        return (event.data.id,)
    return ()


def effective(entry: Entry, event: AgentEvent) -> int:
    """The position before which a mark touches records: where it was resolved, never later than where it lies."""
    at: int | None = getattr(getattr(event, "data", None), "at", None)
    return entry.offset if at is None else min(at, entry.offset)


def put(work: Work, entry: Entry, event: AgentEvent) -> None:
    """Apply a mark; an older copy of it is taken back first."""
    ids = named_by(event)
    if event.tenantid in work.erasing:
        if work.erased(EVENT, [(event.tenantid, event.agentid, event.id)]):
            return
        gone = work.erased(RECORD, [(event.tenantid, event.agentid, i) for i in ids])
        left = tuple(i for i in ids if (event.tenantid, event.agentid, i) not in gone)
        if ids and not left:
            remove(work, event.tenantid, event.agentid, event.id)
            return
        ids = left
    insert = work.database.insert(work.tables.marks).values(_row(entry, event)).on_conflict_do_nothing()
    if (work.connection.execute(insert)).rowcount != 1:
        remove(work, event.tenantid, event.agentid, event.id)
        work.connection.execute(insert)
    if ids:
        work.connection.execute(work.tables.targets.insert(), _target_rows(entry, event, ids))
    work.count((event.tenantid, event.agentid, event.sessionid or "", event.userid or ""))
    if isinstance(event, HistoryClearedEvent) and event.data.scope in HIDING:
        _clear(work, entry, event)
    elif isinstance(event, RecordsRemovedEvent) and event.data.scope in HIDING:
        _hide(work, entry, event, ids)
    elif isinstance(event, (RecordInvalidatedEvent, RecordCorrectedEvent)):
        _flag(work, event, ids[0])


def _row(entry: Entry, event: AgentEvent) -> dict[str, Any]:
    data = getattr(event, "data", None)
    return {
        "tenant": event.tenantid,
        "agent": event.agentid,
        "event_id": event.id,
        "kind": kind_of(event),
        "scope": getattr(data, "scope", ""),
        "users": getattr(data, "users", ""),
        "session_id": event.sessionid or "",
        "user_id": event.userid or "",
        "position": effective(entry, event),
        "lies_at": entry.offset,
        "recorded_ms": entry.recorded_ms,
        "body": entry.value,
    }


def _target_rows(entry: Entry, event: AgentEvent, ids: Iterable[str]) -> list[dict[str, Any]]:
    mark = _row(entry, event)
    shared = {k: mark[k] for k in ("tenant", "agent", "event_id", "kind", "scope", "position", "recorded_ms")}
    return [shared | {"record_id": i} for i in ids]


def _clear(work: Work, entry: Entry, event: HistoryClearedEvent) -> None:
    """Hide what is visible in the address."""
    work.write_counts()
    r, at = work.tables.records, effective(entry, event)
    hidden = {"hidden": 1, "hidden_at": at, "hidden_ms": entry.recorded_ms}
    address = _address(r.c, event)
    if at == entry.offset:  # every stored row lies before it
        work.connection.execute(update(r).where(*address, r.c.hidden == 0).values(hidden))
        s = work.tables.sessions
        work.connection.execute(update(s).where(*_address(s.c, event)).values(visible=0))
        return
    address.append(r.c.position < at)
    visible = (*address, r.c.hidden == 0)
    counted = select(r.c.session_id, r.c.user_id, func.count()).where(*visible).group_by(r.c.session_id, r.c.user_id)
    for session_id, user_id, number in work.connection.execute(counted).all():
        work.count((event.tenantid, event.agentid, session_id, user_id), visible=-number)
    work.connection.execute(update(r).where(*visible).values(hidden))
    work.connection.execute(update(r).where(*address, r.c.hidden_at > at).values(hidden_at=at))


def _address(c: Any, event: HistoryClearedEvent) -> list[ColumnElement[bool]]:
    address: list[ColumnElement[bool]] = [c.tenant == event.tenantid, c.agent == event.agentid]
    if event.sessionid is not None:
        address.append(c.session_id == event.sessionid)
    if event.data.users == "own":
        address.append(c.user_id == (event.userid or ""))
    return address


def _hide(work: Work, entry: Entry, event: RecordsRemovedEvent, ids: Sequence[str]) -> None:
    c, at = work.tables.records.c, effective(entry, event)
    rows = [row for row in work.stored([(event.tenantid, event.agentid, i) for i in ids]) if row.position < at]
    for row in rows:
        if not row.hidden:
            work.count((row.tenant, row.agent, row.session_id, row.user_id), visible=-1)
    for chunk in chunks([row.record_id for row in rows], _CHUNK):
        named = update(work.tables.records).where(
            c.tenant == event.tenantid, c.agent == event.agentid, c.record_id.in_(chunk), c.position < at
        )
        hidden = {"hidden": 1, "hidden_at": at, "hidden_ms": entry.recorded_ms}
        if at < entry.offset:
            work.connection.execute(named.where(c.hidden_at > at).values(hidden_at=at))
        work.connection.execute(named.where(c.hidden == 0).values(hidden))


def _flag(work: Work, event: AgentEvent, record_id: str) -> None:
    c = work.tables.records.c
    work.connection.execute(
        update(work.tables.records)
        .where(c.tenant == event.tenantid, c.agent == event.agentid, c.record_id == record_id)
        .values(marked=1)
    )


def remove(work: Work, tenant: str, agent: str, event_id: str) -> None:
    """Take a mark back, if there is one under this id. Costs what it had hidden."""
    m, t = work.tables.marks, work.tables.targets
    key = and_(m.c.tenant == tenant, m.c.agent == agent, m.c.event_id == event_id)
    old = (work.connection.execute(select(m.c.kind, m.c.scope, m.c.position).where(key))).one_or_none()
    if old is None:
        return
    work.connection.execute(delete(t).where(t.c.tenant == tenant, t.c.agent == agent, t.c.event_id == event_id))
    work.connection.execute(delete(m).where(key))
    if old.kind in {"cleared", "removed"} and old.scope in HIDING:
        _rehide(work, tenant, agent, old.position)


def _rehide(work: Work, tenant: str, agent: str, taken_back: int) -> None:
    """Find the next mark that hides what the mark at ``taken_back`` had hidden; without one it is visible again."""
    c = work.tables.records.c
    clears = _clears(work, tenant, agent)
    after = -1
    while True:
        rows = (
            work.connection.execute(
                select(c.record_id, c.session_id, c.user_id, c.position)
                .where(c.tenant == tenant, c.agent == agent)
                .where(c.hidden_at == taken_back, c.position > after, c.position < taken_back)
                .order_by(c.position)
                .limit(_REHIDE)
            )
        ).all()
        if not rows:
            return
        after = rows[-1].position
        removals = _removals(work, tenant, agent, [row.record_id for row in rows])
        changes = []
        for row in rows:
            hiding = [m for m in removals.get(row.record_id, []) if m.position > row.position]
            hiding += [m for m in clears if _covers(m, row)]
            if not hiding:
                work.count((tenant, agent, row.session_id, row.user_id), visible=1)
            changes.append(
                {
                    "id": row.record_id,
                    "to": int(bool(hiding)),
                    "at": min((m.position for m in hiding), default=None),
                    "ms": min((m.recorded_ms for m in hiding), default=None),
                }
            )
        work.connection.execute(
            update(work.tables.records)
            .where(c.tenant == tenant, c.agent == agent, c.record_id == bindparam("id"))
            .values(hidden=bindparam("to"), hidden_at=bindparam("at"), hidden_ms=bindparam("ms")),
            changes,
        )


def _covers(clear: AnyRow, row: AnyRow) -> bool:
    return (
        clear.position > row.position
        and clear.session_id in {"", row.session_id}
        and (clear.users == "all" or clear.user_id == row.user_id)
    )


def _clears(work: Work, tenant: str, agent: str) -> Sequence[AnyRow]:
    c = work.tables.marks.c
    query = select(c.session_id, c.user_id, c.users, c.position, c.recorded_ms).where(
        c.tenant == tenant, c.agent == agent, c.kind == "cleared", c.scope.in_(HIDING)
    )
    return (work.connection.execute(query)).all()


def _removals(work: Work, tenant: str, agent: str, ids: Sequence[str]) -> dict[str, list[AnyRow]]:
    c = work.tables.targets.c
    found: dict[str, list[AnyRow]] = {}
    for chunk in chunks(ids, _CHUNK):
        query = select(c.record_id, c.position, c.recorded_ms).where(
            c.tenant == tenant, c.agent == agent, c.kind == "removed", c.scope.in_(HIDING), c.record_id.in_(chunk)
        )
        for row in work.connection.execute(query):
            found.setdefault(row.record_id, []).append(row)
    return found
