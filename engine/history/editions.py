"""The versions of the history as a transaction works with them: tables, and the statements made for them."""

import time
from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from engramlog.engine.history.database import Database
from engramlog.engine.history.prepared import Prepared
from engramlog.engine.history.tables import Tables, tables_of
from engramlog.engine.history.versions import HISTORY, PROJECTED, READY, Version
from engramlog.engine.history.work import Statements

_ACTIVE = "SELECT active_version FROM projections WHERE name = 'history'"


@dataclass(frozen=True, slots=True)
class Edition:
    """One version, made ready.

    Attributes:
        number: Its number.
        generation: The generation of derivations that it holds.
        tables: Its tables.
        statements: Its prepared inserts.
        prepared: Its compiled queries.
    """

    number: int
    generation: int
    tables: Tables
    statements: Statements
    prepared: Prepared = field(default_factory=Prepared)


class Editions:
    """The versions of a history that were used so far, by number.

    Args:
        database: The database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[int, Edition] = {}

    async def create(self, version: Version | None) -> None:
        """Create the tables of a version, by default of the active one, which at first is the first."""
        shared = tables_of(1)
        names = {shared.projections.name, shared.versions.name}
        tables = [table for name, table in shared.metadata.tables.items() if name in names]

        def active(connection: Connection) -> int:
            for projection in PROJECTED:
                p, v = shared.projections, shared.versions
                row = {"name": projection, "active_version": 1}
                first = {
                    "projection": projection,
                    "number": 1,
                    "generation": 1,
                    "state": READY,
                    "name": "",
                    "until": "",
                    "made_ms": round(time.time() * 1000),
                    "current_ms": 0,
                }
                # Not by the row count, whether it was there: PostgreSQL's driver does not tell for such an insert.
                connection.execute(self._database.insert(p).values(row).on_conflict_do_nothing())
                connection.execute(self._database.insert(v).values(first).on_conflict_do_nothing())
            return int(connection.exec_driver_sql(_ACTIVE).scalar_one())

        number = await self._database.create(shared.metadata, tables, active)
        if version is not None:
            number = version.number
        metadata = tables_of(number).metadata
        await self._database.create(metadata, list(metadata.tables.values()), lambda _: None)

    def forget(self) -> None:
        """What was known of the versions has changed."""
        self._known.clear()

    def of(self, connection: Connection, version: Version | None) -> Edition:
        """A version, by default the one that is active in this transaction."""
        number = int(connection.exec_driver_sql(_ACTIVE).scalar_one()) if version is None else version.number
        found = self._known.get(number)
        if found is None:
            tables = tables_of(number)
            v = tables.versions.c
            query = select(v.generation).where(v.projection == HISTORY, v.number == number)
            generation = int(connection.execute(query).scalar_one())
            found = Edition(number, generation, tables, Statements.of(self._database, tables))
            self._known[number] = found
        return found
