"""Connections and transactions: one writer and several readers, the same for SQLite and PostgreSQL."""

import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import event, make_url, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from engramlog.engine.history.errors import mapped
from engramlog.engine.history.tables import PROJECTION, Tables
from engramlog.schemas.errors import ConfigurationError

_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
_WRITE = "BEGIN IMMEDIATE"


def full_url(url: str) -> URL:
    """The URL with the driver that we use.

    Raises:
        ConfigurationError: It is not a URL of a SQLite file or of a PostgreSQL database.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise ConfigurationError(f"not a database URL ({error}); write sqlite:///file or postgresql://…") from None
    parsed = parsed.set(drivername=_DRIVERS.get(parsed.drivername, parsed.drivername))
    if parsed.drivername not in _DRIVERS.values():
        raise ConfigurationError(f"no support for {parsed.drivername!r}; write sqlite:///file or postgresql://…")
    if parsed.drivername == "sqlite+aiosqlite" and parsed.database in {None, "", ":memory:"}:
        raise ConfigurationError("a SQLite history needs a file (sqlite:///file): readers have their own connections")
    return parsed


class Database:
    """One database of projections.

    Args:
        url: Where it is.
        timeout_s: How long to wait for a lock, a free connection or a PostgreSQL statement.
        readers: How many readers at once.
    """

    def __init__(self, url: str, *, timeout_s: float, readers: int) -> None:
        self.url = full_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.insert = sqlite.insert if self.is_sqlite else postgresql.insert
        self._timeout_s = timeout_s
        self._timeout_ms = round(timeout_s * 1000)
        self._writer = self._engine(connections=1, begin=_WRITE, isolation="READ COMMITTED")
        self._reader = self._engine(connections=readers, begin="BEGIN", isolation="REPEATABLE READ")

    def __str__(self) -> str:
        return self.url.render_as_string(hide_password=True)

    def _engine(self, *, connections: int, begin: str, isolation: str) -> AsyncEngine:
        pool = {"pool_size": connections, "max_overflow": 0, "pool_timeout": self._timeout_s}
        if not self.is_sqlite:
            connect = {"connect_timeout": max(2, round(self._timeout_s)), "tcp_user_timeout": self._timeout_ms}
            engine = create_async_engine(
                self.url, isolation_level=isolation, pool_pre_ping=True, connect_args=connect, **pool
            )
            # A writer may work for long (an erasure), but never waits for long; a reader does neither.
            limit = "lock_timeout" if begin == _WRITE else "statement_timeout"
            event.listen(engine.sync_engine, "connect", self._preparing([f"SET {limit} = {self._timeout_ms}"]))
            return engine
        engine = create_async_engine(self.url, connect_args={"isolation_level": None}, **pool)
        pragmas = (f"busy_timeout={self._timeout_ms}", "journal_mode=WAL", "synchronous=NORMAL", "secure_delete=ON")
        event.listen(engine.sync_engine, "connect", self._preparing([f"PRAGMA {pragma}" for pragma in pragmas]))
        event.listen(engine.sync_engine, "begin", lambda connection: connection.exec_driver_sql(begin))
        return engine

    def _preparing(self, statements: Sequence[str]) -> Callable[[Any, Any], None]:
        def prepare(connection: Any, _record: Any) -> None:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            cursor.close()
            if not self.is_sqlite:
                connection.commit()

        return prepare

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that writes: committed at the end, rolled back by any exception.

        Raises:
            StoreUnavailable: The database cannot be reached, or is locked for longer than we wait.
            Unprocessable: It cannot hold a value.
        """
        async with mapped(), self._writer.begin() as connection:
            yield connection

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that reads one snapshot.

        Raises:
            StoreUnavailable: As for :meth:`write`.
        """
        async with mapped(), self._reader.connect() as connection:
            yield connection

    async def create(self, tables: Tables, *, version: int) -> None:
        """Create what is missing. Several processes may do so at once."""
        async with self.write() as connection:
            if not self.is_sqlite:
                lock = zlib.crc32(tables.projection.encode())
                await connection.execute(text(f"SELECT pg_advisory_xact_lock({lock})"))
            await connection.run_sync(tables.metadata.create_all)
            row = {"name": PROJECTION, "active_version": version}
            await connection.execute(self.insert(tables.projections).values(row).on_conflict_do_nothing())

    async def truncate_log(self) -> None:
        """Take deleted text out of SQLite's write-ahead log, as far as no reader is in the way.

        PostgreSQL's log and backups are its operator's.
        """
        if self.is_sqlite:
            async with mapped(), self._writer.connect() as connection:
                driver: Any = (await connection.get_raw_connection()).driver_connection
                await driver.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")

    def placeholders(self, statement: str) -> str:
        """A statement written with ``?`` in the driver's style."""
        return statement if self.is_sqlite else statement.replace("?", "%s")

    async def close(self) -> None:
        """Close every connection."""
        async with mapped():
            await self._reader.dispose()
            await self._writer.dispose()
