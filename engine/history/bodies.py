"""From rows to records: decoded, corrected and invalidated as a point of view has it."""

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import Connection, func, select

from engramlog.engine.history.tables import AnyRow, Tables
from engramlog.engine.history.window import View
from engramlog.schemas.codec import records_codec
from engramlog.schemas.queries import Invalidation, StoredRecord
from engramlog.schemas.scope import Scope

_CHUNK = 500
_CHANGING = ("corrected", "invalidated")


def load(
    connection: Connection, tables: Tables, scope: Scope, ids: Sequence[str], view: View
) -> dict[str, StoredRecord]:
    """Records of the scope's agent by id, as the view has them. Visibility was checked by who found the ids."""
    c = tables.records.c
    found: dict[str, StoredRecord] = {}
    for i in range(0, len(ids), _CHUNK):
        query = select(
            c.record_id, c.session_id, c.user_id, c.position, c.recorded_ms, c.hidden_at, c.hidden_ms, c.marked, c.body
        ).where(c.tenant == scope.tenant, c.agent == scope.agent, c.record_id.in_(ids[i : i + _CHUNK]))
        rows = (connection.execute(query)).all()
        marked = {row.record_id: row.position for row in rows if row.marked}
        marks = _marks(connection, tables, scope, marked, view) if marked else {}
        for row in rows:
            found[row.record_id] = _stored(row, view, marks.get(row.record_id, {}))
    return found


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


def _marks(
    connection: Connection, tables: Tables, scope: Scope, positions: dict[str, int], view: View
) -> dict[str, dict[str, AnyRow]]:
    """The last correction and invalidation of each record, within the view and later than the record itself."""
    t, m = tables.targets.c, tables.marks.c
    where = [
        t.tenant == scope.tenant,
        t.agent == scope.agent,
        t.record_id.in_(list(positions)),
        t.kind.in_(_CHANGING),
        *view.mark_limits(t),
    ]
    newest = select(func.max(t.position)).where(*where).group_by(t.record_id, t.kind)
    last = list((connection.execute(newest)).scalars())
    if not last:
        return {}
    query = (
        select(t.record_id, t.kind, t.position, m.body)
        .join(tables.marks, (m.tenant == t.tenant) & (m.agent == t.agent) & (m.event_id == t.event_id))
        .where(*where, t.position.in_(last))
    )
    found: dict[str, dict[str, AnyRow]] = {}
    for row in connection.execute(query):
        if row.position > positions[row.record_id]:
            found.setdefault(row.record_id, {})[row.kind] = row
    return found


def instant(ms: int) -> datetime:
    """Milliseconds since the epoch as an instant."""
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)
