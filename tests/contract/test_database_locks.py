"""Locks of a process that does not go on."""

import time
from typing import Any

import pytest
from sqlalchemy import text

from engramlog.engine.history import database
from engramlog.engine.history.database import Database
from engramlog.schemas.errors import StoreUnavailable
from tests.postgres import Server

pytestmark = pytest.mark.postgres


async def test_postgresql_frees_what_a_process_holds_that_was_stopped_in_a_transaction(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "IDLE_S", 0.5)
    url = postgres.fresh()
    stopped, other = (Database(url, timeout_s=10.0, readers=1) for _ in range(2))
    for one in (stopped, other):
        one.open()
    try:
        await other.write(lambda connection: connection.execute(text("CREATE TABLE t (n integer)")))
        await other.write(lambda connection: connection.execute(text("INSERT INTO t VALUES (1)")))

        def stop(connection: Any) -> None:
            connection.execute(text("UPDATE t SET n = 2"))
            time.sleep(1.5)
            connection.execute(text("UPDATE t SET n = 3"))

        with pytest.raises(StoreUnavailable):
            await stopped.write(stop)
        await other.write(lambda connection: connection.execute(text("UPDATE t SET n = n + 3")))
        assert await stopped.read(lambda connection: connection.execute(text("SELECT n FROM t")).scalar()) == 4
        await stopped.write(lambda connection: connection.execute(text("UPDATE t SET n = 5")))
        assert await other.read(lambda connection: connection.execute(text("SELECT n FROM t")).scalar()) == 5
    finally:
        for one in (stopped, other):
            await one.close()
