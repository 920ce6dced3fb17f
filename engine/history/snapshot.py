"""A copy of a SQLite history, made ready for another node: the active versions, and nothing of others."""

import sqlite3
from contextlib import closing
from pathlib import Path

from engramlog.engine.history.tables import tables_of
from engramlog.engine.history.versions import HISTORY, VECTORS, own_tables


def strip(copy: Path, *, before: Path) -> None:
    """Leave only the active versions in a copy, and take over what an earlier copy knows of its vectors.

    The vectors of a snapshot are not those of the live node: how far they have come, the database beside them knows.

    Args:
        copy: The copy, of a node.
        before: The database that lies beside the vectors of the snapshot; may be missing.
    """
    with closing(sqlite3.connect(copy, isolation_level=None)) as database:
        active = dict(database.execute("SELECT name, active_version FROM projections"))
        numbers = [n for (n,) in database.execute("SELECT number FROM versions WHERE projection = ?", (HISTORY,))]
        database.execute("BEGIN")
        for number in numbers:
            if number != active[HISTORY]:
                for table in own_tables(tables_of(number), number):
                    database.execute(f'DROP TABLE IF EXISTS "{table}"')
                forget = "DELETE FROM {} WHERE projection = ?"
                for table in ("checkpoints", "refused"):
                    database.execute(forget.format(table), (f"{HISTORY}_v{number}",))
        for projection, number in active.items():
            others = "DELETE FROM versions WHERE projection = ? AND number <> ?"
            database.execute(others, (projection, number))
        database.execute("DELETE FROM checkpoints WHERE projection LIKE ?", (f"{VECTORS}_v%",))
        database.execute("DELETE FROM refused WHERE projection LIKE ?", (f"{VECTORS}_v%",))
        database.execute("COMMIT")
        if before.exists():
            _take_over(database, before, number=active[VECTORS])
        database.execute("VACUUM")


def _take_over(database: sqlite3.Connection, before: Path, *, number: int) -> None:
    database.execute("ATTACH ? AS before", (str(before),))
    database.execute("BEGIN")
    for table in ("checkpoints", "refused"):
        database.execute(
            f"INSERT INTO main.{table} SELECT * FROM before.{table} WHERE projection LIKE ?",  # noqa: S608 - our names
            (f"{VECTORS}_v{number}_g%",),
        )
    database.execute("COMMIT")
    database.execute("DETACH before")
