"""Connections and transactions: one writer and several readers, the same for SQLite and PostgreSQL.

Drivers are used synchronously, in threads that belong to the database: a transaction is one function that runs in one
of them. An asynchronous driver of SQLite is threads as well, but hops between them several times a statement.
"""

import asyncio
import logging
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, MetaData, Table, create_engine, event, make_url, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, OperationalError

from engramlog.engine.history.errors import is_busy, mapped, waited_for_a_lock
from engramlog.schemas.errors import ConfigurationError, StoreUnavailable

_log = logging.getLogger(__name__)
T = TypeVar("T")

_DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "sqlite+aiosqlite": "sqlite+pysqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
}
IDLE_S = 15.0
"""PostgreSQL ends a transaction in which nothing was asked for so long: its process was stopped, and holds locks.

By then its consumer is out of its group as well, and another one waits to go on.
"""
_APPLICATION = "engramlog"
_END_STOPPED = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE usename = current_user AND datname = current_database() AND application_name = :application"
    " AND state = 'active' AND wait_event_type = 'Client'"
    " AND query_start < clock_timestamp() - :idle_s * interval '1 second'"
)
"""End connections of ours whose process was stopped in the middle of several statements that it sent as one.

PostgreSQL waits for the rest of them for ever: its own limit (``IDLE_S``) counts between statements only.
"""
_WRITE = "BEGIN IMMEDIATE"
_LOOK_S = 0.001
_CREATING = zlib.crc32(b"engramlog")
"""The advisory lock of PostgreSQL under which tables are created."""


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
    if parsed.drivername == "sqlite+pysqlite" and parsed.database in {None, "", ":memory:"}:
        raise ConfigurationError("a SQLite history needs a file (sqlite:///file): readers have their own connections")
    return parsed


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


class Database:
    """One database of projections.

    Args:
        url: Where it is.
        timeout_s: How long to wait for a lock, a free connection or a reading PostgreSQL statement.
        readers: How many reads at once.
    """

    def __init__(self, url: str, *, timeout_s: float, readers: int) -> None:
        self.url = full_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.insert = sqlite.insert if self.is_sqlite else postgresql.insert
        self._timeout_s = timeout_s
        self._timeout_ms = round(timeout_s * 1000)
        self._readers = readers
        self._writer = self._engine(connections=1, begin=_WRITE, isolation="READ COMMITTED")
        self._reader = self._engine(connections=readers, begin="BEGIN", isolation="REPEATABLE READ")
        self._writing: ThreadPoolExecutor | None = None
        self._reading: ThreadPoolExecutor | None = None

    def __str__(self) -> str:
        return self.url.render_as_string(hide_password=True)

    def _engine(self, *, connections: int, begin: str, isolation: str) -> Engine:
        pool: dict[str, Any] = {
            "hide_parameters": True,
            "pool_size": connections,
            "max_overflow": 0,
            "pool_timeout": self._timeout_s,
        }
        if not self.is_sqlite:
            connect = {
                "application_name": _APPLICATION,
                "connect_timeout": max(2, round(self._timeout_s)),
                "tcp_user_timeout": self._timeout_ms,
            }
            engine = create_engine(
                self.url, isolation_level=isolation, pool_pre_ping=True, connect_args=connect, **pool
            )
            # A writer may work for long (an erasure), but never waits for long; a reader does neither.
            limit = "lock_timeout" if begin == _WRITE else "statement_timeout"
            idle = f"SET idle_in_transaction_session_timeout = {round(IDLE_S * 1000)}"
            event.listen(engine, "connect", self._preparing([f"SET {limit} = {self._timeout_ms}", idle]))
            return engine
        engine = create_engine(self.url, connect_args={"isolation_level": None, "check_same_thread": False}, **pool)
        pragmas = (f"busy_timeout={self._timeout_ms}", "journal_mode=WAL", "synchronous=NORMAL", "secure_delete=ON")
        event.listen(engine, "connect", self._preparing([f"PRAGMA {pragma}" for pragma in pragmas]))
        event.listen(engine, "begin", self._begin_writing if begin == _WRITE else _begin)
        return engine

    def _begin_writing(self, connection: Connection) -> None:
        """Begin. While the file is locked, look again every millisecond.

        SQLite's own waiting looks ever less often: a rebuild beside it, which writes most of the time, would starve it.
        """
        until = time.monotonic() + self._timeout_s
        connection.exec_driver_sql("PRAGMA busy_timeout=0")
        while True:
            try:
                connection.exec_driver_sql(_WRITE)
            except OperationalError as error:
                if not is_busy(error) or time.monotonic() > until:
                    raise
                time.sleep(_LOOK_S)
            else:
                connection.exec_driver_sql(f"PRAGMA busy_timeout={self._timeout_ms}")
                return

    def _preparing(self, statements: Sequence[str]) -> Callable[[Any, Any], None]:
        def prepare(connection: Any, _record: Any) -> None:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            cursor.close()
            if not self.is_sqlite:
                connection.commit()

        return prepare

    def open(self) -> None:
        """Make the threads; connections are made when they are needed."""
        if self._writing is None:
            self._writing = ThreadPoolExecutor(1, thread_name_prefix="history-write")
            self._reading = ThreadPoolExecutor(self._readers, thread_name_prefix="history-read")

    async def close(self) -> None:
        """Let what runs come to its end, then close every connection."""
        threads, self._writing, self._reading = (self._writing, self._reading), None, None
        for pool in threads:
            if pool is not None:
                await asyncio.to_thread(pool.shutdown)
        for engine in (self._reader, self._writer):  # the writer last: it empties SQLite's write-ahead log
            await asyncio.to_thread(engine.dispose)

    async def write(self, do: Callable[[Connection], T]) -> T:
        """Run a function in a transaction that writes: committed at its end, rolled back by any exception.

        A caller that is cancelled does not stop the function: whether it was committed, the checkpoint tells.

        Raises:
            StoreUnavailable: The database cannot be reached, or is locked for longer than we wait.
            Unprocessable: It cannot hold a value.
        """
        try:
            return await self._run(self._writing, self._writer, do)
        except StoreUnavailable as error:
            if waited_for_a_lock(error):
                await self._end_stopped()
            raise

    async def read(self, do: Callable[[Connection], T]) -> T:
        """Run a function in a transaction that reads one snapshot.

        Raises:
            StoreUnavailable: As for :meth:`write`.
        """
        return await self._run(self._reading, self._reader, do)

    async def _run(self, threads: ThreadPoolExecutor | None, engine: Engine, do: Callable[[Connection], T]) -> T:
        if threads is None:
            raise RuntimeError("the history is not started")

        def transaction() -> T:
            with mapped(), engine.begin() as connection:
                return do(connection)

        return await asyncio.get_running_loop().run_in_executor(threads, transaction)

    async def _end_stopped(self) -> None:
        def end(connection: Connection) -> int:
            found = connection.execute(_END_STOPPED, {"application": _APPLICATION, "idle_s": IDLE_S})
            return len(found.all())

        try:
            ended = await self._run(self._writing, self._writer, end)
        except StoreUnavailable as error:
            _log.warning("connections of stopped processes were not looked for: %s", error)
            return
        if ended:
            _log.warning("%d connections to the database were ended: their processes had stopped, with locks", ended)

    async def create(self, metadata: MetaData, tables: Sequence[Table], then: Callable[[Connection], T]) -> T:
        """Create tables that are missing, and do something in the same transaction. Several processes may at once."""

        def create(connection: Connection) -> T:
            if not self.is_sqlite:
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_CREATING})"))
            metadata.create_all(connection, tables)
            return then(connection)

        return await self.write(create)

    async def copy_to(self, file: Path) -> None:
        """Write a copy of a SQLite database as it is at one moment. Readers and writers go on.

        Raises:
            ConfigurationError: It is no SQLite database.
            StoreUnavailable: The copy cannot be written.
        """
        if not self.is_sqlite or self._reading is None:
            raise ConfigurationError("only a SQLite history can be copied; PostgreSQL has pg_dump")

        def copy() -> None:
            with mapped():
                connection = self._reader.raw_connection()
                try:
                    connection.cursor().execute("VACUUM INTO ?", (str(file),))
                except self._reader.dialect.loaded_dbapi.Error as error:
                    raise StoreUnavailable(f"the copy {file} cannot be written: {error}") from error
                finally:
                    connection.close()

        await asyncio.get_running_loop().run_in_executor(self._reading, copy)

    async def truncate_log(self) -> None:
        """Take deleted text out of SQLite's write-ahead log, as far as no reader is in the way.

        PostgreSQL's log and backups are its operator's.
        """
        await self._maintain("PRAGMA wal_checkpoint(TRUNCATE)")

    async def scrub(self) -> None:
        """Write a SQLite file anew; see :meth:`History.scrub`."""
        await self._maintain("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)")

    async def _maintain(self, *statements: str) -> None:
        if self.is_sqlite and self._writing is not None:
            await asyncio.get_running_loop().run_in_executor(self._writing, self._outside_transactions, statements)

    def _outside_transactions(self, statements: Sequence[str]) -> None:
        with mapped():
            connection = self._writer.raw_connection()
            try:
                for statement in statements:
                    connection.cursor().execute(statement)
            except self._writer.dialect.loaded_dbapi.Error as error:
                raise StoreUnavailable(f"the database does not answer: {error}") from error
            finally:
                connection.close()
