"""Real log compaction, forced: a history that is rebuilt from what is left is the one that was live."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from engramlog.deploy.local_kafka import LocalKafka
from engramlog.engine.client import MemoryRecord, Position
from engramlog.engine.history import History
from engramlog.schemas.keys import partition_for, record_key
from tests.brokers import Rig, rig_on

pytestmark = pytest.mark.kafka
FORCED = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "100",
    "delete.retention.ms": "0",
    "file.delete.delay.ms": "0",
}
AGENTS = ("one", "two", "three")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A rig on a broker that cleans as often as it can."""
    kafka = LocalKafka(data_dir=tmp_path / "kafka", overrides={"log.cleaner.backoff.ms": "100"})
    async with kafka, rig_on(kafka.bootstrap_servers, tmp_path) as made:
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
        await admin.start()
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, made.topics.records, configs=FORCED)])
        await admin.close()
        yield made


def said(text: str, **more: str) -> MemoryRecord:
    return MemoryRecord.model_validate({"role": "user", "content": text, **more})


async def live(rig: Rig) -> str:
    """A past with everything in it that compaction can take away; the digest of its history."""
    async with rig.consumers(), rig.client() as client:
        for agent in AGENTS:
            scope = rig.scope(agent, session="s1")
            first = [said(f"{agent} {n}", record_id=f"r{n}") for n in range(30)]
            await client.publish(scope, first)
            await client.pop(scope, 4)
            await client.publish(scope, [said(f"{agent} again {n}", record_id=f"r{n}") for n in range(0, 30, 3)])
            await client.correct(scope, "r1", "corrected")
            await client.correct(scope, "r1", "corrected again")
            await client.invalidate(scope, "r2")
            await client.remove(scope, [0, 1])
            await client.clear(rig.scope(agent, session="s1", user="ada"))
            await client.publish(scope, [said(f"{agent} anew {n}", record_id=f"r{n}") for n in range(0, 30, 5)])
            await client.erase(scope, "record", record_ids=["r7", "r8"])
            partition = partition_for(rig.tenant, agent, rig.partitions)
            for gone in ("r7", "r8", "r9", "r12"):
                last = await rig.put(None, key=record_key(rig.tenant, agent, gone), partition=partition)
            await client.stats(scope, min_positions=[last])
        history = History(rig.settings.effective_history_url(), topics=rig.topics)
        await history.start()
        ticks = await tick(rig)
        await client.stats(rig.scope(), min_positions=ticks)
        digest = await history.digest()
        await history.stop()
        return digest


async def tick(rig: Rig) -> list[Position]:
    """Append until the broker rolled and cleaned: no key but the ticks' own is there twice, and no tombstone."""
    async with rig.client() as client, asyncio.timeout(120):
        while True:
            ticks = [
                await client.publish(rig.scope(ticker(rig, partition)), said("tick", record_id="tick"))
                for partition in range(rig.partitions)
            ]
            await asyncio.sleep(0.3)
            messages = [m for m in await rig.read(rig.topics.records) if b"/tick" not in m.key]
            doubled = len(messages) - len({m.key for m in messages})
            if not doubled and not any(m.value is None for m in messages):
                return ticks


def ticker(rig: Rig, partition: int) -> str:
    """An agent in a partition."""
    return next(f"t{n}" for n in range(99) if partition_for(rig.tenant, f"t{n}", rig.partitions) == partition)


async def test_rebuilt_from_what_compaction_left_it_is_the_same(rig: Rig) -> None:
    digest = await live(rig)
    messages = await rig.read(rig.topics.records)
    assert len(messages) < 0.75 * sum(max(m.offset for m in messages if m.partition == p) + 1 for p in range(3))
    assert await rig.rebuilt() == digest
