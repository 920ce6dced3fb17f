"""However memory came about, its digest is the same: live, with kills, replayed, replayed with kills, compacted."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from engramlog.deploy.local_kafka import LocalKafka
from engramlog.engine.history.versions import PROJECTED, VECTORS
from engramlog.engine.replay.opening import Building, workshop
from engramlog.engine.replay.replay import replay
from engramlog.engine.settings import Settings
from engramlog.schemas.records import MemoryRecord
from tests.acceptance.test_kill_recall import (
    SLICES,
    Progress,
    Script,
    by,
    everything_is_recalled,
    model,
    progress_of,
    script,
)
from tests.brokers import Rig, eventually, rig_on
from tests.integration.test_compaction import FORCED, ticker
from tests.model_server import ModelServer
from tests.processes import Command, environment

__all__ = ["model"]

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1200)]
LIVE_KILLS = 30
REPLAY_KILLS = 10
EVERYTHING = ("store", "derive", "index", "answer")


@pytest.fixture
async def kafka_of_its_own(tmp_path: Path) -> AsyncIterator[str]:
    """A killed member of a group is missed after a second, and the log is cleaned as often as can be."""
    overrides = {
        "group.min.session.timeout.ms": "500",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.backoff.ms": "100",
    }
    async with LocalKafka(data_dir=tmp_path / "kafka", overrides=overrides) as kafka:
        yield kafka.bootstrap_servers


async def digests(settings: Settings) -> tuple[str, str]:
    """Of the active history and the active vectors, while nobody has them open."""
    async with workshop(settings) as place:
        version = (await place.history.versions.active())[VECTORS]
        async with place.vectors(version) as vectors:
            return await place.history.digest(), await vectors.digest()


async def replayed(settings: Settings, batch: int) -> tuple[str, str]:
    """The digests after a replay of everything."""
    async with workshop(settings) as place:
        before = await place.history.versions.active()
        await replay(place, PROJECTED, Building(batch=batch), keep=0)
        after = await place.history.versions.active()
        assert {v.number for v in after.values()}.isdisjoint({v.number for v in before.values()})
    return await digests(settings)


async def settled(rig: Rig, made: Script) -> None:
    """Everything that was published is derived, indexed and recalled."""
    progress = await progress_of(rig)
    try:
        async with rig.consumers(*EVERYTHING), rig.client(timeout_s=60) as client:
            await eventually(progress.done, within_s=120)
            await everything_is_recalled(client, made)
            await eventually(lambda: stored(rig, progress), within_s=60)
    finally:
        await progress.history.stop()
        await progress.consumer.stop()


async def stored(rig: Rig, progress: Progress) -> bool:
    """The history has passed the ends of its topics."""
    known = await progress.history.next_offsets()
    topics = (rig.topics.records, rig.topics.derived, rig.topics.summaries)
    return all([sum(n for (t, _), n in known.items() if t == topic) == await progress.ends(topic) for topic in topics])


async def lived_with_kills(rig: Rig, made: Script, log: Path) -> None:
    """The whole engine as one process, killed again and again while it works."""
    env = environment(rig.settings, ENGRAMLOG_SESSION_TIMEOUT_MS="1500")
    progress, parts = await progress_of(rig), made.slices()
    moments = (progress.derived, progress.saved, progress.covered, progress.flushed)
    running = Command("run", *EVERYTHING, env=env, log=log)
    try:
        async with rig.client(timeout_s=60) as client:
            for kill in range(LIVE_KILLS):
                measure = moments[kill % len(moments)]
                before = await measure()
                # When all is said, somebody goes on talking.
                more = next(parts, None)
                if more is not None:
                    await client.publish_events(more)
                else:
                    await client.publish(rig.scope(), MemoryRecord(role="user", content=f"still here, {kill} 还在"))

                async def moved(before: int = before, measure: object = measure) -> bool:
                    return bool(await measure() > before)  # type: ignore[operator]

                await eventually(moved, within_s=90)
                running.kill_all()
                running = Command("run", *EVERYTHING, env=env, log=log)
            for more in parts:
                await client.publish_events(more)
        await eventually(progress.done, within_s=120)
    finally:
        running.stop()
        await progress.history.stop()
        await progress.consumer.stop()


async def replayed_with_kills(rig: Rig, log: Path) -> tuple[str, str]:
    """A replay by the command line, killed again and again as soon as it got further, then left alone."""
    env = environment(rig.settings)
    progress = await progress_of(rig)
    args = ("replay", "all", "--batch", "1", "--keep", "0", "--json")

    async def built() -> int:
        """How much the versions under construction have applied, by their checkpoints."""
        versions = [v for v in await progress.history.versions.all() if not v.active]
        found = 0
        for version in versions:
            if version.projection == VECTORS:
                found += sum((await progress.history.vectors(version.checkpoints).covered()).values())
            else:
                found += sum((await progress.history.of(version).next_offsets()).values())
        return found

    try:
        for kill in range(REPLAY_KILLS):
            before = await built()
            running = Command(*args, env=env, log=log)

            async def further(before: int = before, running: Command = running) -> bool:
                return await built() > before or running.process.poll() is not None

            await eventually(further, within_s=60)
            assert running.process.poll() is None, f"kill {kill} came too late: {running.said()[-2000:]}"
            running.kill_all()
        running = Command(*args, env=env, log=log)
        assert await asyncio.to_thread(running.process.wait, 120) == 0, running.said()[-3000:]
    finally:
        await progress.history.stop()
        await progress.consumer.stop()
    return await digests(rig.settings)


async def compacted(rig: Rig) -> None:
    """Append and wait until the broker has cleaned all agent topics: no key is there twice, and no tombstone."""
    topics = (rig.topics.records, rig.topics.derived)
    admin = AIOKafkaAdminClient(bootstrap_servers=rig.config.bootstrap_servers)
    await admin.start()
    for topic in (*topics, rig.topics.summaries):
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=FORCED)])
    await admin.close()
    async with rig.consumers(*EVERYTHING), rig.client(timeout_s=60) as client, asyncio.timeout(180):
        while True:
            for partition in range(rig.partitions):
                scope = rig.scope(ticker(rig, partition))
                await client.publish(scope, MemoryRecord(record_id="tick", role="user", content="tick"))
                await client.recall(scope, "tick")
            await asyncio.sleep(0.3)
            read = [await rig.read(topic) for topic in topics]
            left = [[m for m in found if b"/tick" not in m.key and b"~" not in m.key] for found in read]
            if all(len(found) == len({m.key for m in found}) and all(m.value for m in found) for found in left):
                return


async def test_all_ways_lead_to_the_same_memory(kafka_of_its_own: str, tmp_path: Path, model: ModelServer) -> None:
    made = script()
    async with rig_on(kafka_of_its_own, tmp_path / "data", **by(model)) as rig:
        await lived_with_kills(rig, made, tmp_path / "live.log")
        await settled(rig, made)
        live = await digests(rig.settings)
        asked = model.count("embeddings")
        for batch in (1, 5_000):
            assert await replayed(rig.settings, batch) == live, f"in batches of {batch}"
        assert await replayed_with_kills(rig, tmp_path / "replay.log") == live
        assert model.count("embeddings") == asked, "a replay asks no model"
        assert await rig.dead_letters() == []

        await settled(rig, made)
        await compacted(rig)
        await settled(rig, made)
        live = await digests(rig.settings)
        for batch in (1, 5_000):
            assert await replayed(rig.settings, batch) == live, f"compacted, in batches of {batch}"
        assert SLICES < LIVE_KILLS
