"""Locks of a process that does not go on."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text

from engramlog.engine.history import database
from engramlog.engine.history.database import Database
from engramlog.schemas.errors import StoreUnavailable
from tests.postgres import Server

pytestmark = pytest.mark.postgres


@pytest.fixture
async def two(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Database, Database]]:
    """Two processes' connections to one database with a table of one row."""
    monkeypatch.setattr(database, "IDLE_S", 0.5)
    url = postgres.fresh()
    stopped, other = (Database(url, timeout_s=1.0, readers=1) for _ in range(2))
    for one in (stopped, other):
        one.open()
    await other.write(lambda connection: connection.execute(text("CREATE TABLE t (n integer)")))
    await other.write(lambda connection: connection.execute(text("INSERT INTO t VALUES (1)")))
    yield stopped, other
    for one in (stopped, other):
        await one.close()


async def number(of: Database) -> Any:
    return await of.read(lambda connection: connection.execute(text("SELECT n FROM t")).scalar())


async def test_postgresql_frees_what_a_process_holds_that_was_stopped_in_a_transaction(
    two: tuple[Database, Database],
) -> None:
    stopped, other = two

    def stop(connection: Any) -> None:
        connection.execute(text("UPDATE t SET n = 2"))
        time.sleep(1.5)
        connection.execute(text("UPDATE t SET n = 3"))

    with pytest.raises(StoreUnavailable):
        await stopped.write(stop)
    await other.write(lambda connection: connection.execute(text("UPDATE t SET n = n + 3")))
    assert await number(stopped) == 4
    await stopped.write(lambda connection: connection.execute(text("UPDATE t SET n = 5")))
    assert await number(other) == 5


async def test_who_waits_in_vain_frees_what_a_process_holds_that_was_stopped_between_two_packets(
    two: tuple[Database, Database],
) -> None:
    stopped, other = two
    holding, go_on = threading.Event(), threading.Event()

    def stop(connection: Any) -> None:
        """Like ``executemany``: statements in a pipeline, whose last packet never comes."""
        sent = connection.connection.driver_connection.pgconn
        connection.execute(text("SELECT 1"))  # the transaction begins
        sent.enter_pipeline_mode()
        sent.send_query_params(b"UPDATE t SET n = 2", None)
        sent.send_flush_request()
        sent.flush()
        holding.set()
        go_on.wait(30)
        raise StoreUnavailable("it woke up")

    waking = asyncio.create_task(stopped.write(stop))
    try:
        await asyncio.to_thread(holding.wait, 10)
        add = text("UPDATE t SET n = n + 3")
        with pytest.raises(StoreUnavailable, match="lock"):
            await other.write(lambda connection: connection.execute(add))
        await other.write(lambda connection: connection.execute(add))
        assert await number(other) == 4
    finally:
        go_on.set()
        with pytest.raises(StoreUnavailable):
            await waking
    await stopped.write(lambda connection: connection.execute(text("UPDATE t SET n = 5")))
    assert await number(other) == 5


async def test_who_only_works_for_long_keeps_its_locks(two: tuple[Database, Database]) -> None:
    busy, other = two

    def work(connection: Any) -> None:
        connection.execute(text("UPDATE t SET n = 2"))
        connection.execute(text("SELECT pg_sleep(3)"))

    working = asyncio.create_task(busy.write(work))
    await asyncio.sleep(0.3)
    with pytest.raises(StoreUnavailable, match="lock"):
        await other.write(lambda connection: connection.execute(text("UPDATE t SET n = n + 3")))
    await working
    assert await number(other) == 2
