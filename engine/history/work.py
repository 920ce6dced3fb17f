"""What the parts of one transaction share, and the statements that they build on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, and_, delete, select

from engramlog.engine.history.database import Database
from engramlog.engine.history.tables import AnyRow, Tables
from engramlog.engine.log import Run
from engramlog.schemas.records import MemoryRecord

RecordKey = tuple[str, str, str]
"""Tenant, agent, record id."""

Address = tuple[str, str, str, str]
"""Tenant, agent, session or '', user or ''."""

T = TypeVar("T")

HEADS = frozenset({"system", "developer"})
"""Roles of those who instruct."""

RECORD, EVENT = 0, 1
"""What an id in the table of erased ids is."""

_CHUNK = 500  # below the 999 parameters that any SQLite takes


@dataclass(frozen=True, slots=True)
class Bulk:
    """Inserts many rows fast: ``executemany`` on SQLite, one statement over arrays on PostgreSQL."""

    database: Database
    statement: str

    @classmethod
    def into(
        cls, database: Database, table: Table, columns: Mapping[str, str], *, zero: str = "", conflict: str
    ) -> "Bulk":
        """Prepare an insert.

        Args:
            database: The database.
            table: Where to.
            columns: Columns that get values, with their PostgreSQL types.
            zero: Columns that get 0, separated by commas.
            conflict: What stands behind ON CONFLICT.
        """
        names = ", ".join(columns) + (f", {zero}" if zero else "")
        zeros = ", 0" * (zero.count(",") + 1) if zero else ""
        if database.is_sqlite:
            values = f"VALUES ({', '.join('?' * len(columns))}{zeros})"
        else:
            arrays = ", ".join(f"%s::{kind}[]" for kind in columns.values())
            values = f"SELECT u.*{zeros} FROM unnest({arrays}) AS u"  # noqa: S608 - our own names only
        return cls(database, f"INSERT INTO {table.name} ({names}) {values} ON CONFLICT {conflict}")

    def __call__(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> int:
        """Insert the rows.

        Returns:
            How many rows were inserted or updated.
        """
        if not rows:
            return 0
        if self.database.is_sqlite:
            return (connection.exec_driver_sql(self.statement, list(rows))).rowcount
        arrays = tuple(list(column) for column in zip(*rows, strict=True))
        return (connection.exec_driver_sql(self.statement, arrays)).rowcount


@dataclass(frozen=True, slots=True)
class Statements:
    """The prepared inserts of a version.

    Attributes:
        records: Records that do not exist yet; rows as in :data:`RECORD_COLUMNS`.
        sessions: Adds to the counts of sessions.
        derived: Derivations, each in the place of an earlier one; rows as in :data:`DERIVED_COLUMNS`, one a record.
    """

    records: Bulk
    sessions: Bulk
    derived: Bulk

    @classmethod
    def of(cls, database: Database, tables: Tables) -> "Statements":
        """Prepare them."""
        sessions = tables.sessions.name
        return cls(
            records=Bulk.into(
                database,
                tables.records,
                RECORD_COLUMNS,
                zero="hidden, marked",
                conflict="(tenant, agent, record_id) DO NOTHING",
            ),
            sessions=Bulk.into(
                database,
                tables.sessions,
                dict.fromkeys(("tenant", "agent", "session_id", "user_id"), "text")
                | dict.fromkeys(("records", "visible"), "bigint"),
                conflict="(tenant, agent, session_id, user_id) DO UPDATE SET "
                f"records = {sessions}.records + excluded.records, visible = {sessions}.visible + excluded.visible",
            ),
            derived=Bulk.into(
                database,
                tables.derived,
                DERIVED_COLUMNS,
                conflict="(tenant, agent, record_id) DO UPDATE SET "
                + ", ".join(f"{name} = excluded.{name}" for name in list(DERIVED_COLUMNS)[3:]),
            ),
        )


DERIVED_COLUMNS: Mapping[str, str] = {
    "tenant": "text",
    "agent": "text",
    "record_id": "text",
    "session_id": "text",
    "user_id": "text",
    "partition": "bigint",
    "position": "bigint",
    "sequence": "bigint",
    "topic": "text",
    "importance": "double precision",
    "language": "text",
    "happened_us": "bigint",
}
RECORD_COLUMNS: Mapping[str, str] = {
    "tenant": "text",
    "agent": "text",
    "record_id": "text",
    "session_id": "text",
    "user_id": "text",
    "position": "bigint",
    "recorded_ms": "bigint",
    "happened_us": "bigint",
    "body": "bytea",
    "tool": "smallint",
    "kept": "smallint",
}


def is_kept(record: MemoryRecord) -> bool:
    """Whether a record is never summarised away: pinned memories, and instructions."""
    return record.layer == "core" or record.role in HEADS


@dataclass(frozen=True, slots=True)
class Work:
    """One transaction over one run.

    Attributes:
        connection: The transaction.
        database: Its database.
        tables: The tables of the version.
        statements: Its prepared inserts.
        partition: The run's partition.
        partitions: Number of partitions of the topic.
        erasing: Tenants of the run that have a ledger: for them, ids are looked up before they are taken.
        counts: Changes of sessions' counts (records, visible) that are not yet written.
    """

    connection: Connection
    database: Database
    tables: Tables
    statements: Statements
    partition: int
    partitions: int
    erasing: set[str]
    counts: dict[Address, list[int]] = field(default_factory=dict)

    def count(self, address: Address, *, records: int = 0, visible: int = 0) -> None:
        """Note a change; zeros make the session known."""
        change = self.counts.setdefault(address, [0, 0])
        change[0] += records
        change[1] += visible

    def write_counts(self) -> None:
        """Write the noted changes."""
        if self.counts:
            rows = [(*address, records, visible) for address, (records, visible) in self.counts.items()]
            self.counts.clear()
            self.statements.sessions(self.connection, rows)

    def stored(self, keys: Sequence[RecordKey]) -> list[AnyRow]:
        """The rows of these records that exist: key, ``session_id``, ``user_id``, ``position``, ``hidden``.

        Callers sift them: with another condition here, SQLite may take an index that walks through the agent.
        """
        c = self.tables.records.c
        wanted = select(c.tenant, c.agent, c.record_id, c.session_id, c.user_id, c.position, c.hidden)
        found: list[AnyRow] = []
        for (tenant, agent), ids in by_agent(keys):
            query = wanted.where(c.tenant == tenant, c.agent == agent, c.record_id.in_(ids))
            found += self.connection.execute(query).all()
        return found

    def delete_records(self, rows: Sequence[AnyRow]) -> None:
        """Delete records as :meth:`stored` gave them, and note the counts."""
        c = self.tables.records.c
        for row in rows:
            self.count((row.tenant, row.agent, row.session_id, row.user_id), records=-1, visible=row.hidden - 1)
        for (tenant, agent), ids in by_agent([(row.tenant, row.agent, row.record_id) for row in rows]):
            condition = and_(c.tenant == tenant, c.agent == agent, c.record_id.in_(ids))
            self.connection.execute(delete(self.tables.records).where(condition))

    def erased(self, what: int, keys: Sequence[RecordKey]) -> set[RecordKey]:
        """Which of these ids were erased."""
        c = self.tables.erased.c
        found: set[RecordKey] = set()
        for (tenant, agent), ids in by_agent([key for key in keys if key[0] in self.erasing]):
            query = select(c.id).where(c.tenant == tenant, c.agent == agent, c.what == what, c.id.in_(ids))
            found.update((tenant, agent, i) for i in self.connection.execute(query).scalars())
        return found


def by_agent(keys: Sequence[RecordKey]) -> Iterator[tuple[tuple[str, str], list[str]]]:
    """Ids by tenant and agent, not too many at once: a list of whole keys would make SQLite scan the table."""
    agents: dict[tuple[str, str], list[str]] = {}
    for tenant, agent, i in keys:
        agents.setdefault((tenant, agent), []).append(i)
    for place, ids in agents.items():
        for chunk in chunks(ids, _CHUNK):
            yield place, chunk


def chunks(items: Sequence[T], size: int) -> Iterator[list[T]]:
    """Cut a sequence into lists of at most ``size``."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk


def find_ledgers(work: Work, run: Run) -> None:
    """Note which tenants of the run have erasures: the one check that every run pays."""
    c = work.tables.ledger.c
    tenants = {entry.key.tenant for entry in run.entries}
    query = select(c.tenant).where(c.tenant.in_(sorted(t for t in tenants if "\0" not in t))).distinct()
    work.erasing.update((work.connection.execute(query)).scalars())
