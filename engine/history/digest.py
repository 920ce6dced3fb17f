"""A digest of the state that does not depend on the order of rows, nor on the database."""

import hashlib
import json
from typing import Any

from sqlalchemy import Connection, Select, select, text

from engramlog.engine.history.tables import Tables

_BITS = 256


def digest_of(connection: Connection, tables: Tables, *, positions: bool) -> str:
    """The sum of the rows' hashes, modulo 2^256; streams, so that memory stays small."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL statement_timeout = 0"))
    total = 0
    for name, query in _queries(tables, positions=positions):
        with connection.execute(query.execution_options(yield_per=500)) as rows:
            for row in rows:
                total += _hash(name, row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
    return f"{total % (1 << _BITS):064x}"


def _queries(tables: Tables, *, positions: bool) -> list[tuple[str, Select[Any]]]:
    r, m, e = tables.records.c, tables.marks.c, tables.ledger.c
    record = [r.tenant, r.agent, r.session_id, r.user_id, r.hidden, r.body]
    mark = [m.tenant, m.agent, m.kind, m.body]
    entry = [e.tenant, e.agent, e.event_id, e.scope, e.session_id, e.user_id, e.record_ids]
    if positions:
        record += [r.position, r.recorded_ms, r.hidden_at, r.hidden_ms]
        mark += [m.position, m.lies_at, m.recorded_ms]
        entry += [e.partition, e.position, e.recorded_ms]
    columns = {"record": record, "mark": mark, "ledger": entry}
    return [(name, select(*wanted)) for name, wanted in columns.items()]


def _hash(name: str, row: Any) -> int:
    values = {key: json.loads(value) if key == "body" else value for key, value in row.items()}
    line = json.dumps([name, values], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return int.from_bytes(hashlib.blake2b(line.encode(), digest_size=_BITS // 8).digest())
