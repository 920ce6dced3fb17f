"""The history's tables, written to with nothing between: what limits are measured with."""

import sqlite3
from pathlib import Path
from typing import Final

from sqlalchemy import create_engine

from engramlog.engine.history.tables import tables_of

RECORDS: Final = (
    "INSERT INTO history_v1_records (tenant, agent, record_id, session_id, user_id, position, recorded_ms, "
    "happened_us, body, hidden, tool, kept, marked) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0)"
)
DERIVED: Final = (
    "INSERT INTO history_v1_derived (tenant, agent, record_id, session_id, user_id, partition, position, "
    "sequence, topic, importance, language, happened_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def raw_database(path: Path) -> sqlite3.Connection:
    """A new database of the history, set up as ours is."""
    path.unlink(missing_ok=True)
    engine = create_engine(f"sqlite:///{path}")
    tables_of(1).metadata.create_all(engine)
    engine.dispose()
    db = sqlite3.connect(path)
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "secure_delete=ON"):
        db.execute(f"PRAGMA {pragma}")
    return db
