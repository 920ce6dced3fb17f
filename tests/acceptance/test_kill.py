"""kill -9 of everything, broker included, amid 20,000 publishes: nothing lost, nothing doubled, all in order."""

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from engramlog.deploy import local_kafka
from engramlog.deploy.local_kafka.readiness import free_port
from engramlog.engine.client import MemoryClient, MemoryRecord, Scope
from engramlog.engine.settings import Settings
from engramlog.schemas.errors import ConfigurationError, DeadlineExceeded
from tests.processes import Command, environment

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]

AGENTS = 8
RECORDS = 20_000
BATCH = 50
KILLS = 3


class Writer:
    """Publishes the records of one agent in order, for as long as it takes."""

    def __init__(self, client: MemoryClient, number: int) -> None:
        self.client = client
        self.scope = Scope("acme", f"agent-{number}", "s1")
        self.records = [
            MemoryRecord(role="user", content=f"{n}: 记住这个 👋 {'x' * 200}") for n in range(RECORDS // AGENTS)
        ]
        self.done = 0

    async def run(self) -> None:
        """Publish again, with the same ids, what was not acknowledged."""
        while self.done < len(self.records):
            batch = self.records[self.done : self.done + BATCH]
            with suppress(DeadlineExceeded, ConfigurationError):
                await self.client.publish(self.scope, batch, timeout_s=20)
                self.done += len(batch)


async def up(env: dict[str, str], port: int, log: Path) -> Command:
    """Start what keeps records, and wait until it says that it is ready. ``test_kill_recall`` kills the others."""
    seen = len(log.read_text()) if log.exists() else 0  # noqa: ASYNC240 - a small file of this test
    command = Command("up", "admit", "store", "answer", "--port", str(port), "--json", env=env, log=log)
    began = time.monotonic()
    while '"ready"' not in command.said()[seen:]:
        assert command.process.poll() is None, command.said()[-3000:]
        assert time.monotonic() - began < 90, command.said()[-3000:]
        await asyncio.sleep(0.1)
    return command


async def kill_everything(command: Command, data_dir: Path) -> None:
    """SIGKILL for the engine, and for the broker that it started."""
    broker = (await local_kafka.status(data_dir / "kafka")).pid
    command.kill_all()
    if broker is not None:
        with suppress(ProcessLookupError):
            os.kill(broker, signal.SIGKILL)


async def test_nothing_is_lost_or_doubled_through_kill_9_of_everything(tmp_path: Path) -> None:
    port = free_port()
    settings = Settings(bootstrap_servers=None, data_dir=tmp_path / "data", partitions=4, session_timeout_ms=6_000)
    env, log = environment(settings), tmp_path / "up.log"
    command = await up(env, port, log)
    try:
        async with MemoryClient(f"127.0.0.1:{port}", timeout_s=60) as client:
            writers = [Writer(client, n) for n in range(AGENTS)]
            writing = [asyncio.create_task(writer.run()) for writer in writers]
            for kill in range(1, KILLS + 1):
                while sum(w.done for w in writers) < RECORDS * kill // (KILLS + 1):
                    assert not any(task.done() and task.exception() for task in writing)
                    await asyncio.sleep(0.01)
                await kill_everything(command, settings.data_dir)
                command = await up(env, port, log)
            await asyncio.gather(*writing)
            total = 0
            for writer in writers:
                window = await client.history(writer.scope)
                assert [c.record for c in window.records] == writer.records
                assert not window.seen.stale
                stats = await client.stats(writer.scope)
                assert stats.records == stats.visible == len(writer.records)
                total += stats.records
            assert total == RECORDS
    finally:
        code = command.stop()
    assert code == 130, command.said()[-3000:]

    # And once more, after a clean stop: the same.
    command = await up(env, port, log)
    try:
        async with MemoryClient(f"127.0.0.1:{port}", timeout_s=60) as client:
            window = await client.history(writers[0].scope, window=20)
            assert [c.record for c in window.records] == writers[0].records[-20:]
    finally:
        command.stop()
