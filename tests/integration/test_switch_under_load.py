"""While a replay runs and takes over, and goes back: fifty readers and ten writers see no error, and no step back."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engramlog.engine.client import MemoryClient, MemoryRecord, Position
from engramlog.engine.history.versions import PROJECTED, VECTORS
from engramlog.engine.replay.opening import Building, workshop
from engramlog.engine.replay.replay import replay, roll_back
from tests.acceptance.test_kill_recall import by, model
from tests.brokers import Rig, eventually, rig_on
from tests.model_server import ModelServer

__all__ = ["model"]

pytestmark = pytest.mark.kafka
READERS, WRITERS = 50, 10
BEFORE = 600
"""Records that lie in the log before anybody reads."""


@dataclass
class Crowd:
    """Readers and writers, until they are told to stop.

    Attributes:
        rig: The engine.
        stop: Tells them.
        written: How many records each writer's agent has.
        reads: How many reads were answered, by what was asked.
    """

    rig: Rig
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    written: dict[str, int] = field(default_factory=dict)
    reads: dict[str, int] = field(default_factory=dict)

    async def write(self, client: MemoryClient, number: int) -> None:
        """Say something, again and again, and see it."""
        scope = self.rig.scope(f"agent-{number}")
        while not self.stop.is_set():
            count = self.written.get(scope.agent, 0)
            await client.publish(scope, MemoryRecord(role="user", content=f"{count} 你好 from {number} 👋"))
            self.written[scope.agent] = count + 1
            window = await client.history(scope, window=1)
            assert window.records[-1].record.content.startswith(f"{count} "), "its own words are there"
            await asyncio.sleep(0.05)

    async def read(self, client: MemoryClient, number: int) -> None:
        """Look at an agent, with the positions that were seen before: never less than before."""
        scope, kind = self.rig.scope(f"agent-{number % WRITERS}"), ("stats", "history", "recall")[number % 3]
        seen: dict[tuple[str, int], Position] = {}
        most = 0
        while not self.stop.is_set():
            wanted = list(seen.values())
            positions: tuple[Position, ...] = ()
            if kind == "stats":
                count = (await client.stats(scope)).visible
            elif kind == "history":
                window = await client.history(scope, min_positions=wanted)
                count, positions, stale = len(window.records), window.seen.positions, window.seen.stale
                assert not stale, f"{kind} gave up waiting for {wanted}"
            else:
                found = await client.recall(scope, "你好", limit=5, min_positions=wanted)
                count, positions, stale = len(found.hits), found.seen.positions, found.seen.stale
                assert not stale, f"{kind} gave up waiting for {wanted}"
            assert count >= most, f"{kind} went back from {most} to {count}"
            for position in positions:
                known = seen.get((position.topic, position.partition))
                assert known is None or position.offset >= known.offset, f"{kind} went back"
                seen[position.topic, position.partition] = position
            most, self.reads[kind] = count, self.reads.get(kind, 0) + 1
            await asyncio.sleep(0.1)


async def test_nobody_notices_a_replay_and_its_switch(kafka: str, tmp_path: Path, model: ModelServer) -> None:
    async with (
        rig_on(kafka, tmp_path, **by(model)) as rig,
        rig.consumers("store", "derive", "index", "answer"),
        rig.client(timeout_s=60) as writing,
        rig.client(timeout_s=60) as reading,
    ):
        crowd = Crowd(rig)
        for n in range(BEFORE):
            agent = f"agent-{n % WRITERS}"
            await writing.publish(rig.scope(agent), MemoryRecord(role="user", content=f"{n // WRITERS} 你好, early"))
            crowd.written[agent] = n // WRITERS + 1
        tasks = [asyncio.create_task(crowd.write(writing, n)) for n in range(WRITERS)]
        tasks += [asyncio.create_task(crowd.read(reading, n)) for n in range(READERS)]

        async def more(by_reads: int) -> None:
            """The crowd goes on, and nobody has failed."""
            before = sum(crowd.reads.values())

            async def went_on() -> bool:
                for task in tasks:
                    if task.done():
                        task.result()
                return sum(crowd.reads.values()) >= before + by_reads

            await eventually(went_on, within_s=60)

        async with workshop(rig.settings) as place:
            await more(100)
            first = await replay(place, PROJECTED, Building(batch=500, pause_s=0.003))
            await more(200)
            second = await roll_back(place, [VECTORS], Building(batch=500))
            await more(100)
            active = await place.history.versions.active()
            assert {name: version.number for name, version in active.items()} == {"history": 2, "vectors": 1}
            assert first.switched_s is not None
            assert second.switched_s is not None
        crowd.stop.set()
        await asyncio.gather(*tasks)
        assert all(crowd.reads[kind] > 20 for kind in ("stats", "history", "recall"))
        for agent, count in crowd.written.items():
            assert (await reading.stats(rig.scope(agent))).visible == count
        assert await rig.dead_letters() == []
