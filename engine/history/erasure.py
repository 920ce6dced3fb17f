"""The erasure ledger: permanent, and applied to what is stored and to whatever arrives later.

An erasure deletes the records that it covers and remembers their ids: no later copy of one is ever taken. With the
records go what was extracted from them, the summaries that cover them, the marks that only named them, and the marks
that were published within what is erased: a correction by an erased user goes although the record that it corrected
stays. A removal stays as long as it names a record that stays, and a clear of everybody's records stays when one of the
users is erased: neither holds content.

A ledger entry does not go: not by a tombstone for its key, and not by another event under its id. Of the entries of one
request only the first counts: a command that is published again must not erase what was recorded in between.
"""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, insert, literal, or_, select
from sqlalchemy.sql.selectable import ScalarSelect, Select

from engramlog.engine.history.lineage import made_from
from engramlog.engine.history.marks import remove
from engramlog.engine.history.tables import Tables
from engramlog.engine.history.work import EVENT, RECORD, Work, chunks
from engramlog.engine.log import Entry
from engramlog.schemas.envelope import ScopeErasedEvent
from engramlog.schemas.keys import partition_for

_CHUNK = 300
_WITH_CONTENT = ("corrected", "invalidated", "ended")
"""Marks that hold text: their ids are remembered too, so that no import brings them back."""


def apply(work: Work, entry: Entry, event: ScopeErasedEvent) -> None:
    """Enter an erasure into the ledger and delete what it covers. Every stored row lies before it."""
    if _is_repeated(work, event):
        return
    work.write_counts()
    _enter(work, entry, event)
    if event.agentid is not None:
        remove(work, event.tenantid, event.agentid, event.id)
        work.write_counts()
    for agent in _agents(work, event):
        if event.data.scope == "record":
            erase_named(work, event.tenantid, agent, event.data.record_ids)
        else:
            _erase_scope(work, agent, event)


def _is_repeated(work: Work, event: ScopeErasedEvent) -> bool:
    """Whether its request has an entry already, under another id."""
    if event.data.request_id is None:
        return False
    c = work.tables.ledger.c
    query = select(c.event_id).where(
        c.tenant == event.tenantid,
        c.agent == (event.agentid or ""),
        c.partition == work.partition,
        c.request_id == event.data.request_id,
        c.event_id != event.id,
    )
    return work.connection.execute(query).first() is not None


def _enter(work: Work, entry: Entry, event: ScopeErasedEvent) -> None:
    row: dict[str, Any] = {
        "tenant": event.tenantid,
        "agent": event.agentid or "",
        "event_id": event.id,
        "partition": work.partition,
        "scope": event.data.scope,
        "session_id": event.sessionid or "",
        "user_id": event.userid or "",
        "record_ids": json.dumps(sorted(set(event.data.record_ids))),
        "request_id": event.data.request_id or "",
        "position": entry.offset,
        "recorded_ms": entry.recorded_ms,
    }
    keys = ("tenant", "agent", "event_id", "partition")
    new = work.database.insert(work.tables.ledger).values(row)
    changes = {k: v for k, v in row.items() if k not in keys}
    work.connection.execute(new.on_conflict_do_update(index_elements=keys, set_=changes))


def _agents(work: Work, event: ScopeErasedEvent) -> list[str]:
    """The agents that the entry speaks of: without one in the event, all of the tenant in this partition."""
    if event.agentid is not None:
        return [event.agentid]
    c = work.tables.sessions.c
    query = select(c.agent).where(c.tenant == event.tenantid).distinct()
    if event.data.scope == "user":
        query = query.where(c.user_id == event.userid)
    agents = (work.connection.execute(query)).scalars().all()
    return [a for a in agents if partition_for(event.tenantid, a, work.partitions) == work.partition]


def erase_named(work: Work, tenant: str, agent: str, named: Sequence[str]) -> None:
    """Erase records by id, the summaries that cover them, and all that was made from either."""
    ids = {*named, *made_from(work.connection, work.tables, tenant, agent, named)}
    _drop_summaries(work, tenant, agent, sorted(ids))
    _remember(work, [{"tenant": tenant, "agent": agent, "what": RECORD, "id": i} for i in ids])
    work.delete_records(work.stored([(tenant, agent, i) for i in ids]))
    t = work.tables.targets.c
    for chunk in chunks(sorted(ids), _CHUNK):
        _drop_targets(work, and_(t.tenant == tenant, t.agent == agent, t.record_id.in_(chunk)))


def _drop_summaries(work: Work, tenant: str, agent: str, ids: Sequence[str]) -> None:
    """What they stood for is in the window again, and what they had replaced is active again."""
    for table, column in ((work.tables.summaries, "summary_id"), (work.tables.replaced, "by")):
        for chunk in chunks(ids, _CHUNK):
            c = table.c
            work.connection.execute(delete(table).where(c.tenant == tenant, c.agent == agent, c[column].in_(chunk)))


def _erase_scope(work: Work, agent: str, event: ScopeErasedEvent) -> None:
    r, t, m, s = work.tables.records, work.tables.targets, work.tables.marks, work.tables.sessions
    tenant, execute = event.tenantid, work.connection.execute
    covered = _covered(r.c, tenant, agent, event)
    _remember_found(work, RECORD, select(r.c.tenant, r.c.agent, literal(RECORD), r.c.record_id).where(covered))
    named = select(r.c.record_id).where(covered).scalar_subquery()
    made = _made_from_any(work, tenant, agent, named)
    _drop_targets(work, and_(t.c.tenant == tenant, t.c.agent == agent, t.c.record_id.in_(named)))
    execute(delete(r).where(covered))
    marks = _covered(m.c, tenant, agent, event)
    if event.data.scope in {"session", "user"}:
        marks = and_(marks, m.c.kind != "removed")
    if event.data.scope == "user":
        marks = and_(marks, or_(m.c.kind != "cleared", m.c.users != "all"))
    content = select(m.c.tenant, m.c.agent, literal(EVENT), m.c.event_id).where(marks, m.c.kind.in_(_WITH_CONTENT))
    _remember_found(work, EVENT, content)
    gone = select(m.c.event_id).where(marks).scalar_subquery()
    execute(delete(t).where(t.c.tenant == tenant, t.c.agent == agent, t.c.event_id.in_(gone)))
    execute(delete(m).where(marks))
    execute(delete(s).where(_covered(s.c, tenant, agent, event)))
    own = work.tables.summaries.c
    made |= set(execute(select(own.summary_id).where(_covered(own, tenant, agent, event))).scalars())
    if made:  # wherever it lies
        erase_named(work, tenant, agent, sorted(made))


def _made_from_any(work: Work, tenant: str, agent: str, named: ScalarSelect[Any]) -> set[str]:
    """What was made from what a query finds."""
    found: set[str] = set()
    for table, made in ((work.tables.lineage, "record_id"), (work.tables.covering, "summary_id")):
        c = table.c
        query = select(c[made]).where(c.tenant == tenant, c.agent == agent, c.source_id.in_(named))
        found.update(work.connection.execute(query).scalars())
    return found


def _covered(columns: Any, tenant: str, agent: str, event: ScopeErasedEvent) -> ColumnElement[bool]:
    """The rows of the agent that lie in the erased scope; any table with an address."""
    condition = and_(columns.tenant == tenant, columns.agent == agent)
    if event.data.scope == "session":
        condition = and_(condition, columns.session_id == event.sessionid)
    elif event.data.scope == "user":
        condition = and_(condition, columns.user_id == event.userid)
    return condition


def _remember(work: Work, rows: list[dict[str, Any]]) -> None:
    work.connection.execute(work.database.insert(work.tables.erased).on_conflict_do_nothing(), rows)


def _remember_found(work: Work, what: int, found: Select[Any]) -> None:
    """Remember what a query finds, in the database, however much that is."""
    e = work.tables.erased
    known = e.alias()
    rows = found.subquery()
    columns = list(rows.c)
    fresh = select(*columns).where(
        ~exists().where(
            known.c.tenant == columns[0],
            known.c.agent == columns[1],
            known.c.what == what,
            known.c.id == columns[3],
        )
    )
    work.connection.execute(insert(e).from_select(["tenant", "agent", "what", "id"], fresh))


def _drop_targets(work: Work, condition: ColumnElement[bool]) -> None:
    """Delete targets, and the marks that name nothing any more."""
    t, m = work.tables.targets, work.tables.marks
    query = select(t.c.tenant, t.c.agent, t.c.event_id).where(condition).distinct()
    touched = (work.connection.execute(query)).all()
    work.connection.execute(delete(t).where(condition))
    for (tenant, agent), ids in _by_agent(touched).items():
        for chunk in chunks(ids, _CHUNK):
            empty = and_(
                m.c.tenant == tenant,
                m.c.agent == agent,
                m.c.event_id.in_(chunk),
                ~exists().where(t.c.tenant == tenant, t.c.agent == agent, t.c.event_id == m.c.event_id),
            )
            content = select(m.c.tenant, m.c.agent, literal(EVENT), m.c.event_id)
            _remember_found(work, EVENT, content.where(empty, m.c.kind.in_(_WITH_CONTENT)))
            work.connection.execute(delete(m).where(empty))


def _by_agent(rows: Sequence[Any]) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        found.setdefault((row.tenant, row.agent), []).append(row.event_id)
    return found


def in_ledger(connection: Connection, tables: Tables, tenant: str, agent: str | None, event_id: str) -> bool:
    """Whether an erasure is in the ledger; a repetition of an earlier request is not."""
    c = tables.ledger.c
    found = exists().where(c.tenant == tenant, c.agent == (agent or ""), c.event_id == event_id)
    return bool(connection.execute(select(found)).scalar_one())
