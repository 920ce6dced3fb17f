"""Applying a run: records in batches, everything else in its place between them."""

from collections import Counter
from typing import Any

from sqlalchemy import select

from engramlog.engine.history import erasure, marks
from engramlog.engine.history.view import microseconds
from engramlog.engine.history.work import RECORD, RecordKey, Work
from engramlog.engine.log import Entry, Run
from engramlog.schemas.envelope import RecordWritten, ScopeErasedEvent

TOOL_ROLES = ("tool", "function")

_Batch = dict[RecordKey, tuple[Any, ...] | None]


def write(work: Work, run: Run) -> bool:
    """Apply the entries of a run, in order.

    Returns:
        Whether content was deleted: by an erasure or a tombstone.
    """
    _find_ledgers(work, run)
    batch: _Batch = {}
    deleted = False
    for entry in run.entries:
        event, key = entry.event, entry.key
        if isinstance(event, RecordWritten):
            batch[key.tenant, key.agent, key.record_id or event.data.record_id] = _row(entry, event)
        elif event is None and key.record_id is not None:
            deleted = True
            if "\0" not in f"{key.tenant}{key.agent}{key.record_id}":  # nothing is stored under such an id
                batch[key.tenant, key.agent, key.record_id] = None
        else:
            deleted |= event is None or isinstance(event, ScopeErasedEvent)
            _flush(work, batch)
            _write_other(work, entry)
    _flush(work, batch)
    work.write_counts()
    _write_refused(work, run)
    return deleted


def _row(entry: Entry, event: RecordWritten) -> tuple[Any, ...]:
    """A row as in RECORD_COLUMNS."""
    key = entry.key
    return (
        key.tenant,
        key.agent,
        key.record_id,
        event.sessionid or "",
        event.userid or "",
        entry.offset,
        entry.recorded_ms,
        microseconds(event.data.timestamp),
        entry.value,
        int(event.data.role in TOOL_ROLES or bool(event.data.tool_calls)),
    )


def _write_other(work: Work, entry: Entry) -> None:
    event, key = entry.event, entry.key
    if event is None:
        if key.event_id is not None and "\0" not in f"{key.tenant}{key.agent}{key.event_id}":
            marks.remove(work, key.tenant, key.agent, key.event_id)
    elif isinstance(event, ScopeErasedEvent):
        work.erasing.add(event.tenantid)
        erasure.apply(work, entry, event)
    elif not isinstance(event, RecordWritten):
        marks.put(work, entry, event)


def _flush(work: Work, batch: _Batch) -> None:
    """Write a batch of records and tombstones, of which the last of each key counts."""
    if not batch:
        return
    gone = work.erased(RECORD, list(batch)) if work.erasing else set()
    rows = [row for key, row in batch.items() if row is not None and key not in gone]
    dead = [key for key, row in batch.items() if row is None]
    batch.clear()
    if dead:
        work.delete_records(work.stored(dead))
    inserted = work.statements.records(work.connection, rows)
    if inserted < len(rows):
        _replace(work, rows)
    for address, number in Counter((row[0], row[1], row[3], row[4]) for row in rows).items():
        work.count(address, records=number, visible=number)


def _replace(work: Work, rows: list[tuple[Any, ...]]) -> None:
    """Put the rows of a batch in the place of older copies that kept them from being inserted."""
    first = min(row[5] for row in rows)
    stored = work.stored([(row[0], row[1], row[2]) for row in rows])
    older = [row for row in stored if row.position < first]
    work.delete_records(older)
    keys = {(row.tenant, row.agent, row.record_id) for row in older}
    work.statements.records(work.connection, [row for row in rows if row[:3] in keys])


def _find_ledgers(work: Work, run: Run) -> None:
    """Note which tenants of the run have erasures: the one check that every run pays."""
    c = work.tables.ledger.c
    tenants = {entry.key.tenant for entry in run.entries}
    query = select(c.tenant).where(c.tenant.in_(sorted(t for t in tenants if "\0" not in t))).distinct()
    work.erasing.update((work.connection.execute(query)).scalars())


def _write_refused(work: Work, run: Run) -> None:
    if run.refused:
        rows = [
            {"topic": run.topic, "partition": run.partition, "position": r.offset, "reason": r.reason.replace("\0", "")}
            for r in run.refused
        ]
        work.connection.execute(work.database.insert(work.tables.refused).on_conflict_do_nothing(), rows)
