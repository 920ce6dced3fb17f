"""The derived topic in SQL: topic, importance and language of each record, joined to the records on reading.

It comes from another topic than the records, so neither side waits for the other: a derivation may arrive before its
record, and what an erasure covers is deleted here by the erasure that ``derive`` passes on.
"""

from typing import Any

from sqlalchemy import ColumnElement, and_, delete

from engramlog.engine.history.checkpoints import cover, write_refused
from engramlog.engine.history.view import microseconds
from engramlog.engine.history.work import RECORD, RecordKey, Work, by_agent, find_ledgers
from engramlog.engine.log import Entry, Run
from engramlog.schemas.derived import RecallChangedEvent, RecordDerived, WatermarkPassed


def write(work: Work, run: Run, *, records: str, now_ms: int) -> None:
    """Apply a run of the derived topic, in order.

    Args:
        work: The transaction.
        run: The run.
        records: The topic of the records, which the watermarks speak of.
        now_ms: For the checkpoint's ``updated_ms``.
    """
    find_ledgers(work, run)
    passed = [entry.event.data.next for entry in run.entries if isinstance(entry.event, WatermarkPassed)]
    batch: dict[RecordKey, tuple[Any, ...] | None] = {}
    for entry in run.entries:
        event, key = entry.event, entry.key
        if isinstance(event, RecordDerived):
            batch[key.tenant, key.agent, event.data.record_id] = _row(work, entry, event)
        elif event is None and key.record_id is not None:
            if "\0" not in f"{key.tenant}{key.agent}{key.record_id}":  # nothing is stored under such an id
                batch[key.tenant, key.agent, key.record_id] = None
        elif isinstance(event, RecallChangedEvent) and event.data.cause == "erased":
            _flush(work, batch)
            work.connection.execute(delete(work.tables.derived).where(_covered(work, event)))
    _flush(work, batch)
    if passed:
        cover(work.connection, work.database, work.tables, (records, run.partition), passed[-1], now_ms=now_ms)
    write_refused(work.connection, work.database, work.tables, run)


def _row(work: Work, entry: Entry, event: RecordDerived) -> tuple[Any, ...]:
    """A row as in DERIVED_COLUMNS."""
    data = event.data
    return (
        event.tenantid,
        event.agentid,
        data.record_id,
        event.sessionid or "",
        event.userid or "",
        work.partition,
        data.offset,
        entry.offset,
        data.topic or "",
        data.importance,
        data.language or "",
        microseconds(data.timestamp),
    )


def _flush(work: Work, batch: dict[RecordKey, tuple[Any, ...] | None]) -> None:
    """Write a batch of derivations and tombstones, of which the last of each key counts."""
    gone = work.erased(RECORD, list(batch)) if work.erasing and batch else set()
    work.statements.derived(work.connection, [row for key, row in batch.items() if row is not None and key not in gone])
    c = work.tables.derived.c
    for (tenant, agent), ids in by_agent([key for key, row in batch.items() if row is None]):
        here = and_(c.tenant == tenant, c.agent == agent, c.record_id.in_(ids))
        work.connection.execute(delete(work.tables.derived).where(here))
    batch.clear()


def _covered(work: Work, event: RecallChangedEvent) -> ColumnElement[bool]:
    """The rows that an erasure covers."""
    c, data = work.tables.derived.c, event.data
    where = [c.tenant == event.tenantid, c.partition == work.partition, c.position < data.before]
    if event.agentid is not None:
        where.append(c.agent == event.agentid)
    if data.scope == "session":
        where.append(c.session_id == (event.sessionid or ""))
    if data.scope == "user":
        where.append(c.user_id == (event.userid or ""))
    if data.scope == "record":
        where.append(c.record_id.in_(data.ids))
    return and_(*where)
