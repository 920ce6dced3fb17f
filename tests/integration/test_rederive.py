"""Another embedder: a new generation of derivations beside live reads and writes, the switch, and the way back."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiokafka.admin import AIOKafkaAdminClient

from engramlog.engine.adopting import adopt
from engramlog.engine.client import MemoryClient, MemoryRecord, Position, Scope
from engramlog.engine.history import History
from engramlog.engine.history.versions import PROJECTED, VECTORS
from engramlog.engine.replay.opening import Building, workshop
from engramlog.engine.replay.rederiving import Rederived, choose, rederive, rolled_back
from engramlog.engine.settings import Settings
from engramlog.schemas.codec import derived_codec
from engramlog.schemas.derived import RecordDerived
from engramlog.schemas.errors import ConfigurationError, EngramlogError
from tests.brokers import Rig, eventually, rig_on
from tests.model_server import ModelServer, model_server
from tests.processes import Command, environment

pytestmark = pytest.mark.kafka

EVERYTHING = ("store", "derive", "index", "answer")
TENANT = "acme"
WRITERS, READERS = 10, 20
SAID = (
    "My cat is called Miso and she sleeps on the radiator. 👋",
    "我的猫叫味噌,今年三岁,喜欢吃鱼。",
    "The deploy key lies in the vault, and it is rotated on Mondays.",
    "我下周三要去大连出差,住三天。",
    "Lunch was fine, thank you; the soup had too much salt.",
)


@dataclass
class Models:
    """Two embedding models of different dimensions."""

    old: ModelServer
    new: ModelServer

    def by(self, server: ModelServer) -> dict[str, Any]:
        name = "old" if server is self.old else "new"
        return {"embedder": "openai", "embedding_urls": server.url, "embedding_model": name}


@pytest.fixture
def models() -> Iterator[Models]:
    with ExitStack() as stack:
        old, new = stack.enter_context(model_server()), stack.enter_context(model_server())
        old.dimension, new.dimension = 64, 48
        yield Models(old, new)


def directory(path: Path) -> Path:
    path.mkdir()
    return path


async def anew(settings: Settings, **options: Any) -> Rederived:
    """Derive anew with these settings, beside whatever runs."""
    async with workshop(settings) as place:
        chosen = await choose(place, settings)
        return await rederive(place, chosen, Building.beside(settings), **options)


def with_model(rig: Rig, models: Models, server: ModelServer) -> Settings:
    return rig.settings.model_copy(update=models.by(server))


@dataclass
class Traffic:
    """Writers that remember positions, and readers that carry what they have seen."""

    client: MemoryClient
    scopes: list[Scope]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    reads: int = 0
    failed: list[str] = field(default_factory=list)

    async def write(self, number: int) -> None:
        scope, count = self.scopes[number % len(self.scopes)], 0
        while not self.stop.is_set():
            text = f"writer{number} said thing{count}: {SAID[count % len(SAID)]}"
            try:
                await self.client.publish(scope, MemoryRecord(role="user", content=text))
            except EngramlogError as error:
                self.failed.append(f"write: {error}")
            count += 1
            await asyncio.sleep(0.6)

    async def read(self, number: int) -> None:
        """Each read must have seen what the last one had, and must not know less."""
        scope, seen, known = self.scopes[number % len(self.scopes)], dict[tuple[str, int], int](), 0
        while not self.stop.is_set():
            positions = [Position(topic, partition, offset) for (topic, partition), offset in seen.items()]
            try:
                if number % 2:
                    found = await self.client.recall(scope, "Miso the cat 味噌", limit=5, min_positions=positions)
                else:
                    window = await self.client.history(scope, min_positions=positions)
                    found = window
                    if len(window.records) < known:
                        self.failed.append(f"history went back from {known} to {len(window.records)}")
                    known = len(window.records)
                self._check(found.seen, seen)
            except EngramlogError as error:
                self.failed.append(f"read: {error}")
            self.reads += 1
            await asyncio.sleep(0.4)

    def _check(self, found: Any, seen: dict[tuple[str, int], int]) -> None:
        if found.stale:
            self.failed.append("stale")
        for position in found.positions:
            place = position.topic, position.partition
            if position.offset < seen.get(place, -1) and not found.stale:
                self.failed.append(f"back in time: {position} after {seen[place]}")
            seen[place] = max(position.offset, seen.get(place, -1))


async def vectors_of(settings: Settings) -> tuple[int, dict[tuple[str, str], Any]]:
    """Dimension, and the vector of each record of the active version, while nobody has it open."""
    async with workshop(settings) as place:
        version = (await place.history.versions.active())[VECTORS]
        made = (await place.history.generations.all())[version.generation]
        topic, partitions = place.topics.derived_of(version.generation), place.cluster.partitions
    found: dict[tuple[str, str], Any] = {}
    rig = Rig(settings, partitions, None)  # type: ignore[arg-type]
    for message in await rig.read(topic):
        event = None if message.value is None else derived_codec().decode(message.value)
        if isinstance(event, RecordDerived) and event.data.embedding is not None:
            vectors = event.data.embedding
            assert (vectors.model, vectors.dimension) == (made.model, made.dimension)
            found[event.agentid, event.data.record_id] = np.frombuffer(vectors.packed(), dtype="<f4")
    return made.dimension, found


async def points_of(settings: Settings) -> int:
    """How many points the active vectors have, while nobody has them open."""
    async with workshop(settings) as place:
        version = (await place.history.versions.active())[VECTORS]
        async with place.vectors(version) as vectors:
            return await vectors.count(TENANT)


def same(one: dict[Any, Any], other: dict[Any, Any]) -> bool:
    return one.keys() == other.keys() and all(np.allclose(one[key], other[key], atol=1e-6) for key in one)


async def vectors_of_a_fresh_engine(rig: Rig, models: Models, data: Path) -> dict[tuple[str, str], Any]:
    """The vectors that an engine makes of the same records which never had another model."""
    async with rig_on(rig.config.bootstrap_servers, data, **models.by(models.new)) as other:
        last = dict[int, int]()
        for message in await rig.read(rig.topics.records):
            at = await other.put(message.value, key=message.key, partition=message.partition)
            last[at.partition] = at.offset + 1
        async with other.consumers("store", "derive"), workshop(other.settings) as place:

            async def derived() -> bool:
                return {c.partition: c.next for c in await place.history.derived_checkpoints(1) if c.next} == last

            await eventually(derived, within_s=60)
        return (await vectors_of(other.settings))[1]


async def test_a_rederive_beside_readers_and_writers_is_noticed_by_nobody(
    kafka: str, tmp_path: Path, models: Models
) -> None:
    async with rig_on(kafka, directory(tmp_path / "one"), **models.by(models.old)) as rig:
        scopes = [rig.scope(f"agent-{n}", session="s1") for n in range(5)]
        async with rig.consumers(*EVERYTHING), rig.client(timeout_s=30) as client:
            traffic = Traffic(client, scopes)
            for scope in scopes:
                await client.publish(scope, [MemoryRecord(role="user", content=text) for text in SAID * 4])
            tasks = [asyncio.create_task(traffic.write(n)) for n in range(WRITERS)]
            tasks += [asyncio.create_task(traffic.read(n)) for n in range(READERS)]
            before = len(await rig.read(rig.topics.derived))
            done = await anew(with_model(rig, models, models.new))
            assert done.made.number == 2
            assert done.outcome.switched_s is not None
            read = traffic.reads

            async def goes_on() -> bool:
                return traffic.reads > read + 3 * READERS

            await eventually(goes_on)
            traffic.stop.set()
            await asyncio.gather(*tasks)
            assert traffic.failed == []
            for n, scope in enumerate(scopes):
                text = f"A zebra crossed the street of number {n}. 斑马"
                await client.publish(scope, MemoryRecord(record_id=f"zebra{n}", role="user", content=text))
                assert f"zebra{n}" in await found_by(client, scope, "Which zebra 斑马 crossed the street?")
            assert before < len(await rig.read(rig.topics.derived))  # the live deriver worked on until the switch
        assert await rig.dead_letters() == []
        dimension, found = await vectors_of(rig.settings)
        assert dimension == models.new.dimension
        written = {m.key for m in await rig.read(rig.topics.records) if b"/~" not in (m.key or b"")}
        assert len(found) == len(written) == await points_of(rig.settings)
        assert same(found, await vectors_of_a_fresh_engine(rig, models, directory(tmp_path / "fresh")))


async def test_a_rollback_first_derives_what_came_since_in_the_old_generation(
    kafka: str, tmp_path: Path, models: Models
) -> None:
    """Also what was said by summaries, corrected, or erased since; and the way there again costs no model call."""
    async with rig_on(kafka, directory(tmp_path / "data"), **models.by(models.old)) as rig:
        async with rig.consumers(*EVERYTHING), rig.client(timeout_s=60) as client:
            scope = rig.scope()
            await client.publish(scope, [MemoryRecord(record_id=f"r{n}", role="user", content=t) for n, t in said()])
            summary = MemoryRecord(record_id="sum", role="user", content="Miso, the cat, and Dalian.", origin="summary")
            await client.publish(scope, [summary])
            await client.recall(scope, "Miso")
            await anew(with_model(rig, models, models.new))
            assert "sum" in await found_by(client, scope, "Miso, the cat, and Dalian.")
            await client.publish(scope, MemoryRecord(record_id="late", role="user", content="A late one: 晚了 👋"))
            await client.correct(scope, "r0", "My dog is called Rex, and he barks at night.")
            await client.erase(scope, "record", record_ids=["r3"])
            assert "late" in await found_by(client, scope, "A late one: 晚了")
            async with workshop(rig.settings) as place:
                outcome = await rolled_back(place, PROJECTED, Building.beside(rig.settings))
                assert outcome.switched_s is not None
                active = await place.history.versions.active()
                assert {version.generation for version in active.values()} == {1}
                with pytest.raises(ConfigurationError, match="no older version"):
                    await rolled_back(place, PROJECTED, Building.beside(rig.settings))
            assert "late" in await found_by(client, scope, "A late one: 晚了")
            assert "r0" in await found_by(client, scope, "My dog is called Rex, and he barks at night.")
            await client.publish(
                scope, MemoryRecord(record_id="last", role="user", content="The last one says goodbye.")
            )
            assert "last" in await found_by(client, scope, "The last one says goodbye.")
        dimension, old = await vectors_of(rig.settings)
        assert dimension == models.old.dimension
        assert {record for _, record in old} >= {"r0", "r1", "sum", "late", "last"}
        assert await begun_with(rig, tmp_path / "new.db") == 1  # a new database would begin where the log goes on
        asked = models.new.count("embeddings")
        done = await anew(with_model(rig, models, models.new))
        assert done.made.number == 2
        texts = [text for call in models.new.calls[asked:] for text in call.body["input"]]
        assert sorted(set(texts)) == ["The last one says goodbye.", "dimension"]  # the rest was derived before


async def begun_with(rig: Rig, file: Path) -> int:
    """The generation that a new database begins with."""
    history = History(f"sqlite:///{file}", topics=rig.topics)
    await history.start()
    try:
        return await adopt(rig.settings, history, model=None)
    finally:
        await history.stop()


def said() -> list[tuple[int, str]]:
    return list(enumerate(SAID))


async def found_by(client: MemoryClient, scope: Scope, text: str) -> set[str]:
    return {hit.stored.record.record_id for hit in (await client.recall(scope, text, limit=10)).hits}


async def test_kill_9_in_the_middle_and_the_same_command_goes_on(kafka: str, tmp_path: Path, models: Models) -> None:
    async with rig_on(kafka, directory(tmp_path / "data"), **models.by(models.old)) as rig:
        scopes = [rig.scope(f"agent-{n}") for n in range(3)]
        async with rig.consumers("store", "derive", "index"), rig.client(timeout_s=60) as client:
            for scope in scopes:
                texts = [f"{n}: {SAID[n % len(SAID)]}" for n in range(60)]
                await client.publish(scope, [MemoryRecord(role="user", content=text) for text in texts])
            async with workshop(rig.settings) as place:

                async def stored() -> bool:
                    return sum((await place.history.next_offsets()).values()) >= 180

                await eventually(stored, within_s=60)
                env = environment(with_model(rig, models, models.new))
                args = ("rederive", "--embedder", "openai", "--batch", "5", "--yes", "--json")
                plan = Command(*args, "--dry-run", env=env, log=tmp_path / "plan.log")
                assert plan.process.wait(60) == 0
                told = json.loads(plan.said().splitlines()[-1])
                assert (told["records"], told["sampled"], told["paid"]) == (180, 180, {})
                assert told["tokens"] > 180
                assert set(await place.history.generations.all()) == {1}
                assert rig.topics.derived_of(2) not in await topic_names(rig)

                for more in (10, 60):

                    async def further(more: int = more) -> bool:
                        known = await place.history.derived_checkpoints(2)
                        return sum(point.next for point in known) >= more

                    running = Command(*args, env=env, log=tmp_path / "log")
                    await eventually(further, within_s=60)
                    running.kill_all()
                    assert (await place.history.versions.active())[VECTORS].generation == 1
                    assert await begun_with(rig, tmp_path / f"new{more}.db") == 1
                assert Command(*args, env=env, log=tmp_path / "log").process.wait(90) == 0
                assert (await place.history.versions.active())[VECTORS].generation == 2
                assert await begun_with(rig, tmp_path / "new.db") == 2
                again = Command(*args, env=env, log=tmp_path / "again.log")
                assert again.process.wait(60) != 0
                assert "--again" in again.said()
        _, found = await vectors_of(rig.settings)
        assert len(found) == 180 == await points_of(rig.settings)
        copies = [m.key for m in await rig.read(rig.topics.derived_of(2)) if b"~" not in (m.key or b"~")]
        assert len(copies) <= 180 + 2 * 5  # of a run that was cut off between publish and checkpoint: nothing else


async def test_a_database_that_is_lost_begins_with_the_generation_that_the_log_is_in(
    kafka: str, tmp_path: Path, models: Models
) -> None:
    """The log tells which one that is, and by which model: nothing is derived again, and nothing is mixed."""
    async with rig_on(kafka, directory(tmp_path / "data"), **models.by(models.old)) as rig:
        scope, rederived = rig.scope(), with_model(rig, models, models.new)
        async with rig.consumers(*EVERYTHING), rig.client(timeout_s=60) as client:
            await client.publish(scope, [MemoryRecord(record_id=f"r{n}", role="user", content=t) for n, t in said()])
            await client.recall(scope, "Miso")
            await anew(rederived)
            await client.publish(scope, MemoryRecord(record_id="late", role="user", content="A late one: 晚了 👋"))
            assert "late" in await found_by(client, scope, "A late one: 晚了")
        _, before = await vectors_of(rig.settings)
        wrong = Rig(at(rig.settings, tmp_path / "wrong"), rig.partitions, rig.raw)
        with pytest.raises(ConfigurationError, match=r"generation 2 .*48 components.*64"):
            async with wrong.consumers(*EVERYTHING):
                pass
        lost = Rig(at(rederived, tmp_path / "lost"), rig.partitions, rig.raw)
        asked = models.new.count("embeddings")
        async with lost.consumers(*EVERYTHING), lost.client(timeout_s=60) as client:
            seen = await lost.ends()
            assert len((await client.history(scope, min_positions=seen)).records) == len(SAID) + 1
            hits = (await client.recall(scope, "A late one: 晚了", limit=10, min_positions=seen)).hits
            assert "late" in {hit.stored.record.record_id for hit in hits}
        texts = {text for call in models.new.calls[asked:] for text in call.body["input"]}
        assert texts <= {"A late one: 晚了", "dimension"}  # the question, and how many components there are
        dimension, after = await vectors_of(lost.settings)
        assert dimension == models.new.dimension
        assert same(before, after)
        async with workshop(lost.settings) as place:
            assert {version.generation for version in (await place.history.versions.active()).values()} == {2}


def at(settings: Settings, path: Path) -> Settings:
    """The same engine on another, empty disk."""
    return settings.model_copy(update={"data_dir": directory(path)})


async def topic_names(rig: Rig) -> set[str]:
    admin = AIOKafkaAdminClient(bootstrap_servers=rig.config.bootstrap_servers)
    await admin.start()
    try:
        return set(await admin.list_topics())
    finally:
        await admin.close()


async def test_a_process_with_the_old_setting_uses_the_new_model_and_an_unknown_one_is_refused(
    kafka: str, tmp_path: Path, models: Models, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig_on(kafka, directory(tmp_path / "data"), **models.by(models.old)) as rig:
        async with rig.consumers(*EVERYTHING), rig.client(timeout_s=60) as client:
            await client.publish(rig.scope(), MemoryRecord(record_id="r0", role="user", content=SAID[0]))
            await client.recall(rig.scope(), "Miso")
        refused = Rig(with_model(rig, models, models.new), rig.partitions, rig.raw)
        with pytest.raises(ConfigurationError, match=r"64 components.*with 48.*engramlog rederive --embedder"):
            async with refused.consumers(*EVERYTHING):
                pass
        async with rig.consumers("store"):
            await anew(with_model(rig, models, models.new))
        caplog.clear()
        async with rig.consumers(*EVERYTHING), rig.client(timeout_s=60) as client:
            assert "it is used, not the configured old" in caplog.text
            await client.publish(rig.scope(), MemoryRecord(record_id="r1", role="user", content=SAID[1]))
            assert "r1" in await found_by(client, rig.scope(), SAID[1])
        assert (await vectors_of(rig.settings))[0] == models.new.dimension
