"""From rows to records: decoded, corrected and invalidated as a point of view has it."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, bindparam, func, select

from engramlog.engine.history.prepared import Snapshot, padded
from engramlog.engine.history.tables import AnyRow, Tables
from engramlog.engine.history.view import View, instant
from engramlog.schemas.codec import records_codec
from engramlog.schemas.queries import Invalidation, StoredRecord
from engramlog.schemas.scope import Scope

_CHUNK = 256
_CHANGING = ("corrected", "invalidated")


def load(snapshot: Snapshot, scope: Scope, ids: Sequence[str], view: View) -> dict[str, StoredRecord]:
    """Records of the scope's agent by id, as the view has them. Visibility was checked by who found the ids."""
    found: dict[str, StoredRecord] = {}
    for i in range(0, len(ids), _CHUNK):
        names = padded(list(ids[i : i + _CHUNK]), prefix="id")
        values = {"tenant": scope.tenant, "agent": scope.agent} | names
        rows = snapshot.rows(("bodies", len(names)), lambda: _statement(snapshot.tables, names), values)  # noqa: B023 - it is called at once
        marked = {row.record_id: row.position for row in rows if row.marked}
        marks = _marks(snapshot, scope, marked, view) if marked else {}
        for row in rows:
            found[row.record_id] = _stored(row, view, marks.get(row.record_id, {}))
    return found


def _statement(tables: Tables, names: dict[str, str]) -> Select[Any]:
    c = tables.records.c
    return select(
        c.record_id, c.session_id, c.user_id, c.position, c.recorded_ms, c.hidden_at, c.hidden_ms, c.marked, c.body
    ).where(
        c.tenant == bindparam("tenant"), c.agent == bindparam("agent"), c.record_id.in_([bindparam(n) for n in names])
    )


def _stored(row: AnyRow, view: View, marks: dict[str, AnyRow]) -> StoredRecord:
    record = records_codec().decode(row.body).data
    corrected, invalidated = marks.get("corrected"), marks.get("invalidated")
    if corrected is not None:
        record = record.model_copy(update={"content": records_codec().decode(corrected.body).data.content})
    invalidation = None
    if invalidated is not None:
        data = records_codec().decode(invalidated.body).data
        invalidation = Invalidation(offset=invalidated.position, reason=data.reason, replaced_by=data.replaced_by)
    return StoredRecord(
        record=record,
        session=row.session_id or None,
        user=row.user_id or None,
        offset=row.position,
        recorded=instant(row.recorded_ms),
        removed_at=row.hidden_at if row.hidden_at is not None and not view.before(row) else None,
        corrected_at=corrected.position if corrected is not None else None,
        invalidated=invalidation,
    )


def _marks(snapshot: Snapshot, scope: Scope, positions: dict[str, int], view: View) -> dict[str, dict[str, AnyRow]]:
    """The last correction and invalidation of each record, within the view and later than the record itself."""
    t, m = snapshot.tables.targets.c, snapshot.tables.marks.c
    where = [
        t.tenant == scope.tenant,
        t.agent == scope.agent,
        t.record_id.in_(list(positions)),
        t.kind.in_(_CHANGING),
        *view.mark_limits(t),
    ]
    newest = select(func.max(t.position)).where(*where).group_by(t.record_id, t.kind)
    last = list(snapshot.connection.execute(newest, view.values()).scalars())
    if not last:
        return {}
    query = (
        select(t.record_id, t.kind, t.position, m.body)
        .join(snapshot.tables.marks, (m.tenant == t.tenant) & (m.agent == t.agent) & (m.event_id == t.event_id))
        .where(*where, t.position.in_(last))
        .order_by(t.position, t.recorded_ms, t.event_id)
    )
    found: dict[str, dict[str, AnyRow]] = {}
    for row in snapshot.connection.execute(query, view.values()):
        if row.position > positions[row.record_id]:
            found.setdefault(row.record_id, {})[row.kind] = row
    return found
