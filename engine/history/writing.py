"""Applying a run: records in batches, everything else in its place between them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import update

from engramlog.engine.history import erasure, lineage, marks
from engramlog.engine.history.checkpoints import write_refused
from engramlog.engine.history.view import microseconds
from engramlog.engine.history.work import RECORD, RecordKey, Work, find_ledgers, is_kept
from engramlog.engine.log import Entry, Run
from engramlog.schemas.envelope import AgentEvent, RecordWritten, ScopeErasedEvent
from engramlog.schemas.records import MemoryRecord

TOOL_ROLES = ("tool", "function")
UNSAID = ("extracted", "summary")
"""Origins of records that nobody said: they are recalled, and never in the window."""


class _Batch(dict[RecordKey, tuple[Any, ...] | None]):
    """Rows by key, None for a tombstone; which are core; and, of those that nobody said, what they were made from."""

    def __init__(self) -> None:
        super().__init__()
        self.unsaid: dict[RecordKey, tuple[str, ...]] = {}
        self.core: set[RecordKey] = set()

    def put(self, key: RecordKey, row: tuple[Any, ...] | None, record: MemoryRecord | None = None) -> None:
        """Put a row in the place of whatever the key had."""
        self[key] = row
        self.unsaid.pop(key, None)
        self.core.discard(key)
        if record is not None and record.origin in UNSAID:
            self.unsaid[key] = record.derived_from
        if record is not None and record.layer == "core":
            self.core.add(key)

    def clear(self) -> None:
        """Empty it."""
        super().clear()
        self.unsaid.clear()
        self.core.clear()


def write(work: Work, run: Run) -> bool:
    """Apply the entries of a run, in order.

    Returns:
        Whether content was deleted: by an erasure or a tombstone.
    """
    find_ledgers(work, run)
    batch = _Batch()
    deleted = False
    for entry in run.entries:
        event, key = entry.event, entry.key
        if isinstance(event, RecordWritten):
            place = key.tenant, key.agent, key.record_id or event.data.record_id
            batch.put(place, _row(entry, event), event.data)
        elif event is None and key.record_id is not None:
            deleted = True
            if "\0" not in f"{key.tenant}{key.agent}{key.record_id}":  # nothing is stored under such an id
                batch.put((key.tenant, key.agent, key.record_id), None)
        else:
            deleted |= event is None or isinstance(event, ScopeErasedEvent)
            _flush(work, batch)
            _write_other(work, entry)
    _flush(work, batch)
    work.write_counts()
    write_refused(work.connection, work.database, work.tables, run)
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
        int(is_kept(event.data)),
    )


def _write_other(work: Work, entry: Entry) -> None:
    event, key = entry.event, entry.key
    if event is None:
        if key.event_id is not None and "\0" not in f"{key.tenant}{key.agent}{key.event_id}":
            marks.remove(work, key.tenant, key.agent, key.event_id)
    elif isinstance(event, ScopeErasedEvent):
        work.erasing.add(event.tenantid)
        erasure.apply(work, entry, event)
    elif isinstance(event, AgentEvent) and not isinstance(event, RecordWritten):
        marks.put(work, entry, event)


def _flush(work: Work, batch: _Batch) -> None:
    """Write a batch of records and tombstones, of which the last of each key counts."""
    if not batch:
        return
    gone = work.erased(RECORD, list(batch)) if work.erasing else set()
    orphans = _orphans(work, batch.unsaid, gone) if work.erasing and batch.unsaid else set()
    gone |= orphans
    rows = [row for key, row in batch.items() if row is not None and key not in gone]
    dead = [key for key, row in batch.items() if row is None]
    unsaid = {key: sources for key, sources in batch.unsaid.items() if key not in gone}
    core = sorted(batch.core - gone)
    batch.clear()
    if dead:
        work.delete_records(work.stored(dead))
        lineage.forget(work, set(dead) - (work.erased(RECORD, dead) if work.erasing else set()))
    inserted = work.statements.records(work.connection, rows)
    if inserted < len(rows):
        _replace(work, rows)
    for address, number in Counter((row[0], row[1], row[3], row[4]) for row in rows).items():
        work.count(address, records=number, visible=number)
    if core:
        named = [dict(zip(("tenant", "agent", "record_id"), key, strict=True)) for key in core]
        work.connection.execute(work.database.insert(work.tables.core).on_conflict_do_nothing(), named)
    if unsaid:
        _keep_out(work, [row for row in rows if row[:3] in unsaid])
        lineage.trace(work, unsaid)
    for tenant, agent, record_id in sorted(orphans):
        erasure.erase_named(work, tenant, agent, [record_id])


def _orphans(work: Work, unsaid: Mapping[RecordKey, Sequence[str]], gone: set[RecordKey]) -> set[RecordKey]:
    """Which of these were made from what is erased, also by way of each other: nothing of it is taken.

    Their ids are erased, too: an id stands for what it was made from. Somebody who says something else under the id of
    such a fact is not heard, until compaction has taken the fact's own copy and the history is rebuilt.
    """
    sources = {key: [(key[0], key[1], source) for source in made_from] for key, made_from in unsaid.items()}
    lost = work.erased(RECORD, sorted({source for named in sources.values() for source in named}))
    found: set[RecordKey] = set()
    while True:
        more = {key for key, named in sources.items() if any(s in lost or s in gone or s in found for s in named)}
        if more <= found:
            return found - gone
        found |= more


def _keep_out(work: Work, rows: list[tuple[Any, ...]]) -> None:
    """Keep rows out of every window: they are hidden from where they lie."""
    c = work.tables.records.c
    for tenant, agent, record_id, session, user, position, recorded_ms, *_ in rows:
        work.count((tenant, agent, session, user), visible=-1)
        work.connection.execute(
            update(work.tables.records)
            .where(c.tenant == tenant, c.agent == agent, c.record_id == record_id)
            .values(hidden=1, hidden_at=position, hidden_ms=recorded_ms)
        )


def _replace(work: Work, rows: list[tuple[Any, ...]]) -> None:
    """Put the rows of a batch in the place of older copies that kept them from being inserted."""
    first = min(row[5] for row in rows)
    stored = work.stored([(row[0], row[1], row[2]) for row in rows])
    older = [row for row in stored if row.position < first]
    work.delete_records(older)
    keys = {(row.tenant, row.agent, row.record_id) for row in older}
    lineage.forget(work, keys)
    work.statements.records(work.connection, [row for row in rows if row[:3] in keys])
