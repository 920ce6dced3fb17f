"""Two ``store`` processes, rebalances, and a stale owner that wakes up: nothing lost, doubled or written late."""

import asyncio
import os
import signal
import sqlite3
from pathlib import Path

import pytest

from engramlog.engine.client import MemoryRecord, Position
from engramlog.engine.history import History
from engramlog.schemas.topics import Topics
from tests.brokers import Rig, eventually, rig_on
from tests.processes import Command, environment

pytestmark = pytest.mark.kafka
AGENTS = 8
ROUNDS = 40
BURST = 20


async def load(rig: Rig, begun: asyncio.Event, *, until: asyncio.Event) -> tuple[dict[str, list[str]], list[Position]]:
    """Publish bursts to several agents until told to stop; the ids of each agent, in order."""
    published: dict[str, list[str]] = {f"agent-{i}": [] for i in range(AGENTS)}
    last: dict[str, Position] = {}
    async with rig.client() as client:
        rounds = 0
        while rounds < ROUNDS or not until.is_set():
            for agent, ids in published.items():
                records = [MemoryRecord(role="user", content=f"{len(ids) + n} 你好 👋") for n in range(BURST)]
                positions = await client.publish(rig.scope(agent), records)
                ids.extend(r.record_id for r in records)
                last[agent] = positions[-1]
            rounds += 1
            begun.set()
            await asyncio.sleep(0.05)
    return published, list(last.values())


def stopped_between_transactions(store: Command, database: Path) -> bool:
    """Stop a process; when it holds SQLite's lock, let it go on: nobody could take over from it before it wakes up."""
    store.signal(signal.SIGSTOP)
    os.waitpid(store.process.pid, os.WUNTRACED)  # until its last thread stands still
    if database.exists():
        connection = sqlite3.connect(database, isolation_level=None, timeout=2.0)  # the other store writes, but briefly
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            store.signal(signal.SIGCONT)
            return False
        finally:
            connection.close()
    return True


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_a_stale_owner_writes_nothing(
    database: str, kafka: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path / 'history.db'}"
    if database == "postgres":
        url = request.getfixturevalue("postgres_url")
    async with rig_on(kafka, tmp_path, partitions=4, history_url=url) as rig:
        env = environment(rig.settings)
        first = Command("run", "store", env=env, log=tmp_path / "first.log")
        second = Command("run", "store", env=env, log=tmp_path / "second.log")
        watching = History(url, topics=Topics(rig.settings.prefix, rig.partitions))
        try:
            begun, enough = asyncio.Event(), asyncio.Event()
            loading = asyncio.create_task(load(rig, begun, until=enough))
            await begun.wait()
            await watching.start()

            async def both_own_partitions() -> bool:
                return all("is open at" in process.said() for process in (first, second))

            await eventually(both_own_partitions, within_s=60)

            async def first_is_stopped() -> bool:
                return await asyncio.to_thread(stopped_between_transactions, first, tmp_path / "history.db")

            await eventually(first_is_stopped, within_s=60)

            async def all_are_with_the_second() -> bool:
                owned = {
                    line.split(" is open at ")[0].split()[-1]
                    for line in second.said().splitlines()
                    if f"{rig.topics.records}-" in line and " is open at " in line
                }
                return len(owned) == rig.partitions

            # Stopped in the middle of a transaction, PostgreSQL frees what it holds after a while.
            await eventually(all_are_with_the_second, within_s=120)
            first.signal(signal.SIGCONT)
            enough.set()
            published, positions = await loading

            # Up to the log's end: what was sent again after a slow answer lies behind the positions that were told.
            ends = {(m.topic, m.partition): m.offset + 1 for m in await rig.read(rig.topics.records)}

            async def all_applied() -> bool:
                reached = {(c.topic, c.partition): c.next for c in await watching.checkpoints()}
                return all(reached.get(place, 0) >= end for place, end in ends.items())

            await eventually(all_applied, within_s=90)
            async with rig.consumers("answer"), rig.client() as client:
                for agent, ids in published.items():
                    window = await client.history(rig.scope(agent), min_positions=positions)
                    assert [c.record.record_id for c in window.records] == ids
            live = await watching.digest()
        finally:
            await watching.stop()
            codes = [process.stop() for process in (first, second)]
        assert codes == [130, 130], (first.said()[-3000:], second.said()[-3000:])
        assert await rig.dead_letters() == []

        # What was written live is what one undisturbed owner writes.
        rebuilt_settings = rig.settings.model_copy(
            update={"history_url": f"sqlite:///{tmp_path / 'again.db'}", "prefix": rig.settings.prefix}
        )
        again = History(rebuilt_settings.effective_history_url(), topics=Topics(rig.settings.prefix, rig.partitions))
        undisturbed = Rig(rebuilt_settings, rig.partitions, rig.raw)
        await again.start()
        try:
            async with undisturbed.consumers("store"):

                async def rebuilt() -> bool:
                    reached = {(c.topic, c.partition): c.next for c in await again.checkpoints()}
                    return all(reached.get(place, 0) >= end for place, end in ends.items())

                await eventually(rebuilt, within_s=60)
            assert await again.digest() == live
        finally:
            await again.stop()
