"""kill -9 of derive and index, again and again amid the work: nothing without vector, nothing twice, the same end."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from engramlog.consumers.app import Consumers
from engramlog.deploy.local_kafka import LocalKafka
from engramlog.engine.client import MemoryClient, MemoryRecord, Scope
from engramlog.engine.history import History
from engramlog.engine.history.versions import VECTORS, Version
from engramlog.engine.settings import Settings
from engramlog.engine.vectors.edge import EdgeEngine
from engramlog.engine.vectors.opening import collection_of
from engramlog.engine.vectors.points import DENSE, TERMS, point_id
from engramlog.engine.vectors.vectors import Vectors
from engramlog.schemas import envelope as e
from engramlog.schemas import records as r
from engramlog.schemas.codec import derived_codec
from engramlog.schemas.derived import RecordDerived
from engramlog.schemas.recalls import RecallFilter
from engramlog.schemas.records import Embedding
from tests.brokers import Rig, eventually, rig_on
from tests.model_server import ModelServer, model_server
from tests.processes import Command, environment

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]

MODEL, DIMENSION = "pseudo", 64
START = datetime(2026, 3, 1, tzinfo=UTC)
KILLS = 10
AGENTS = (("acme", "helper"), ("acme-corp", "helper"), ("acme", 'a/b:|"()-'), ("租户", "客服"))
RECORDS = 300
SLICES = 2 * KILLS
TEXTS = (
    "I moved to Porto in {n} and I like it.",
    "我下周要去大连出差,编号{n}。",
    "👋🏽 number {n} 🎉",
    "def function_{n}(value): return value + {n}",
    "The invoice {n} is due on May 5, please pay it.",
    "{n}: " + "a rather long story about a lighthouse keeper and the sea. " * 60,
)
Key = tuple[str, str, str]


@dataclass
class Script:
    """What is published, and what must be left of it.

    Attributes:
        events: In order.
        texts: The records that have a text at the end, by key; erased ones, too.
        erased: Those that were erased.
        gone: Those that left recall, erased ones included.
    """

    events: list[e.AgentEvent] = field(default_factory=list)
    texts: dict[Key, str] = field(default_factory=dict)
    erased: set[Key] = field(default_factory=set)
    gone: set[Key] = field(default_factory=set)

    def slices(self) -> Iterator[list[e.AgentEvent]]:
        """As many parts as there are kills."""
        size = -(-len(self.events) // SLICES)
        yield from (self.events[i : i + size] for i in range(0, len(self.events), size))


def script() -> Script:
    """Records of several tenants, and everything that can happen to them."""
    made, chance = Script(), random.Random(4)
    for n in range(RECORDS):
        tenant, agent = AGENTS[n % len(AGENTS)]
        address = {"tenantid": tenant, "agentid": agent, "sessionid": f"s{n % 3}", "source": "test", "time": START}
        key, text = (tenant, agent, f"记录/{n}"), f"mark{n:04} " + TEXTS[n % len(TEXTS)].format(n=n)
        _writes(made, key, text, n, address, own=n % 21 != 0)
        earlier = [k for k in made.texts if k[:2] == key[:2] and k not in made.gone and k != key]
        if n > 40 and n % 5 == 0 and earlier:
            _happens(made, chance.choice(earlier), n, address)
        if n == RECORDS // 3:
            _clears_recall(made, AGENTS[2])
        if n == RECORDS * 2 // 3:
            _erases_session(made, AGENTS[0])
    return made


def _writes(made: Script, key: Key, text: str, n: int, address: dict[str, Any], *, own: bool) -> None:
    vector = np.random.default_rng(n).standard_normal(DIMENSION)
    record = MemoryRecord(
        record_id=key[2],
        role=("user", "assistant")[n % 2],
        content=text,
        timestamp=START + timedelta(minutes=n),
        embedding=Embedding.of(MODEL, list(map(float, vector))) if own else None,
    )
    made.events.append(e.RecordWritten(id=record.record_id, data=record, **address))
    made.texts[key] = text


def _happens(made: Script, key: Key, n: int, address: dict[str, Any]) -> None:
    """Something happens to an earlier record; an event's id is always the same."""
    to, target = {**address, "id": f"e{n}"}, key[2]
    address = {**address, "sessionid": f"s{int(target.removeprefix('记录/')) % 3}"}  # it stays in its session
    match n // 5 % 6:
        case 0:
            made.events.append(e.RecordsRemovedEvent(data=r.RecordsRemoved(ids=(target,), scope="recall"), **to))
            made.gone.add(key)
        case 1:
            made.events.append(e.RecordInvalidatedEvent(data=r.RecordInvalidated(id=target, reason="moved"), **to))
            made.gone.add(key)
        case 2:
            text = made.texts[key].split()[0] + " was corrected: the train leaves at ten."
            made.events.append(e.RecordCorrectedEvent(data=r.RecordCorrected(id=target, content=text), **to))
            made.texts[key] = text
        case 3:
            made.events.append(e.ScopeErasedEvent(data=r.ScopeErased(scope="record", record_ids=(target,)), **to))
            made.erased.add(key)
            made.gone.add(key)
        case 4:  # the same record again, in another place
            _writes(made, key, made.texts[key].split()[0] + " 又说了一遍。", n, address, own=True)
        case _:  # nothing is left of it
            _writes(made, key, " \n", n, address, own=False)
            del made.texts[key]


def _written(made: Script, agent: tuple[str, str], session: str) -> set[Key]:
    return {
        (event.tenantid, event.agentid, event.data.record_id)
        for event in made.events
        if isinstance(event, e.RecordWritten)
        and (event.tenantid, event.agentid) == agent
        and event.sessionid == session
    }


def _clears_recall(made: Script, agent: tuple[str, str]) -> None:
    to = {"tenantid": agent[0], "agentid": agent[1], "sessionid": "s1", "source": "test", "time": START}
    made.gone |= _written(made, agent, "s1")
    made.events.append(e.HistoryClearedEvent(id="clear", data=r.HistoryCleared(scope="recall"), **to))


def _erases_session(made: Script, agent: tuple[str, str]) -> None:
    covered = _written(made, agent, "s0")
    to = {"tenantid": agent[0], "agentid": agent[1], "sessionid": "s0", "source": "test", "time": START}
    made.events.append(e.ScopeErasedEvent(id="whole-session", data=r.ScopeErased(scope="session"), **to))
    made.erased |= covered
    made.gone |= covered


@dataclass
class Progress:
    """How far everything is."""

    rig: Rig
    history: History
    consumer: AIOKafkaConsumer

    async def ends(self, topic: str) -> int:
        """The sum of a topic's end offsets."""
        found = await self.consumer.end_offsets([TopicPartition(topic, p) for p in range(self.rig.partitions)])
        return sum(found.values())

    async def derived(self) -> int:
        """What 'derive' has published."""
        return await self.ends(self.rig.topics.derived)

    async def saved(self) -> int:
        """What it has noted down as done."""
        return await self._of("derive")

    async def covered(self) -> int:
        """What 'index' has written."""
        return sum((await self.history.vectors(Version(VECTORS, 1, 1, "ready").checkpoints).covered()).values())

    async def flushed(self) -> int:
        """What it has flushed."""
        return await self._of("vectors")

    async def _of(self, projection: str) -> int:
        return sum(c.next for c in (await self.history.all_checkpoints()).get(projection, []))

    async def done(self) -> bool:
        """Everything is derived and indexed."""
        records, derived = await self.ends(self.rig.topics.records), await self.derived()
        return await self.saved() == records and await self.flushed() == derived


@pytest.fixture
async def kafka_with_short_sessions(tmp_path: Path) -> AsyncIterator[str]:
    """A killed member of a group is missed after a second: ten kills of each do not take ten minutes."""
    overrides = {"group.min.session.timeout.ms": "500", "group.initial.rebalance.delay.ms": "0"}
    async with LocalKafka(data_dir=tmp_path / "kafka", overrides=overrides) as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """An embedder that is quick to start, and gives a text the same bytes in every batch."""
    with model_server() as server:
        server.dimension = DIMENSION
        yield server


def by(model: ModelServer) -> dict[str, Any]:
    return {"embedder": "openai", "embedding_urls": model.url, "embedding_model": MODEL}


async def progress_of(rig: Rig) -> Progress:
    rig.settings.data_dir.mkdir(exist_ok=True)
    history = History(rig.settings.effective_history_url(), topics=rig.topics)
    await history.start()
    consumer = AIOKafkaConsumer(**rig.config.reader())
    await consumer.start()
    return Progress(rig, history, consumer)


async def killed_again_and_again(
    command: tuple[str, ...], env: dict[str, str], log: Path, moments: list[Callable[[], Awaitable[int]]], feed: Any
) -> Command:
    """Start, give it work, and kill it as soon as it got a little further, by one measure or another."""
    running = Command("run", *command, env=env, log=log)
    for kill in range(KILLS):
        measure = moments[kill % len(moments)]
        before = await measure()
        await feed()

        async def moved(before: int = before, measure: Callable[[], Awaitable[int]] = measure) -> bool:
            return await measure() > before

        try:
            await eventually(moved, within_s=90)
        except TimeoutError:
            running.kill_all()
            pytest.fail(f"{command} got no further: {running.said()[-3000:]}")
        running.kill_all()
        running = Command("run", *command, env=env, log=log)
    return running


async def scrolled(settings: Settings) -> tuple[dict[str, Any], str]:
    """All points of an embedded store that nobody has open, and their digest."""
    engine = EdgeEngine(settings.data_dir / "vectors")
    first = Version(VECTORS, 1, 1, "ready")
    assert not await engine.start(collection_of(settings, model=MODEL, dimension=DIMENSION, version=first))
    try:
        vectors = Vectors(engine, metadata_keys=settings.filter_keys())
        points: list[Any] = []
        offset = None
        while True:
            page, offset = await engine.scroll(None, limit=100, offset=offset, vectors=True)
            points += page
            if offset is None:
                break
        found = {str(point.id): point for point in points}
        assert len(found) == len(points)
        for tenant in {tenant for tenant, _ in AGENTS}:
            assert await vectors.count(tenant) == sum(p.payload["tenant"] == tenant for p in points)
        return found, await vectors.digest()
    finally:
        await engine.stop()


async def indexed_anew(rig: Rig, directory: Path) -> str:
    """The digest of vectors that are made of nothing but the derived topic."""
    settings = rig.settings.model_copy(update={"data_dir": directory})
    progress = await progress_of(Rig(settings, rig.partitions, rig.raw))
    async with Consumers(settings, ["index"]):

        async def caught_up() -> bool:
            return await progress.flushed() == await progress.derived()

        await eventually(caught_up, within_s=90)
    await progress.history.stop()
    await progress.consumer.stop()
    return (await scrolled(settings))[1]


async def calm_run(kafka: str, directory: Path, made: Script, model: ModelServer) -> dict[str, Any]:
    """The points of the same records when nothing is killed."""
    async with rig_on(kafka, directory, **by(model)) as rig, rig.client(timeout_s=60) as client:
        progress = await progress_of(rig)
        async with Consumers(rig.settings, ["store", "derive", "index"]):
            for events in made.slices():
                await client.publish_events(events)
            await eventually(progress.done, within_s=90)
        await progress.history.stop()
        await progress.consumer.stop()
        return (await scrolled(rig.settings))[0]


async def test_nothing_is_lost_doubled_or_different_through_kills_of_derive_and_index(
    kafka_with_short_sessions: str, tmp_path: Path, model: ModelServer
) -> None:
    made = script()
    parts, turn = made.slices(), asyncio.Lock()
    kafka = kafka_with_short_sessions
    async with rig_on(kafka, tmp_path / "killed", **by(model)) as rig, rig.client(timeout_s=60) as client:
        env = environment(rig.settings, ENGRAMLOG_SESSION_TIMEOUT_MS="1500")
        progress = await progress_of(rig)

        async def feed() -> None:
            async with turn:
                await client.publish_events(next(parts))

        store = Command("run", "store", env=env, log=tmp_path / "store.log")
        logs = tmp_path / "derive.log", tmp_path / "index.log"
        try:
            moments = [progress.derived, progress.saved], [progress.covered, progress.flushed]
            derive, index = await asyncio.gather(
                killed_again_and_again(("derive",), env, logs[0], moments[0], feed),
                killed_again_and_again(("index", "answer"), env, logs[1], moments[1], feed),
            )
            assert next(parts, None) is None
            await eventually(progress.done, within_s=120)
            await everything_is_recalled(client, made)
        finally:
            codes = [process.stop() for process in (derive, index, store)]
            await progress.history.stop()
            await progress.consumer.stop()
        assert codes == [130, 130, 130]
        assert await rig.dead_letters() == []
        await each_was_derived_once(rig, made)
        points, digest = await scrolled(rig.settings)
        assert points.keys() == {point_id(*key) for key in made.texts.keys() - made.erased}
        assert all(DENSE in point.vector and TERMS in point.vector for point in points.values())
        assert digest == await indexed_anew(rig, tmp_path / "anew")
    the_same(points, await calm_run(kafka, tmp_path / "calm", made, model))


async def test_derive_and_index_go_on_after_the_broker_was_killed(tmp_path: Path, model: ModelServer) -> None:
    """They live on, in one process with everything else; what they were just publishing comes through."""
    made = script()
    parts = made.slices()
    async with (
        LocalKafka(data_dir=tmp_path / "kafka") as kafka,
        rig_on(kafka.bootstrap_servers, tmp_path / "data", **by(model)) as rig,
        rig.client(timeout_s=150) as client,
    ):
        progress = await progress_of(rig)
        async with rig.consumers("store", "derive", "index", "answer"):
            for _ in range(2):
                before = await progress.derived()
                for _ in range(SLICES // 3):
                    await client.publish_events(next(parts))

                async def moved(before: int = before) -> bool:
                    return await progress.derived() > before

                await eventually(moved, within_s=90)
                kafka.kill()
                await kafka.start()
            for events in parts:
                await client.publish_events(events)
            await eventually(progress.done, within_s=120)
            await everything_is_recalled(client, made)
            await each_was_derived_once(rig, made)
            assert await rig.dead_letters() == []
        await progress.history.stop()
        await progress.consumer.stop()
        points, _ = await scrolled(rig.settings)
        assert points.keys() == {point_id(*key) for key in made.texts.keys() - made.erased}


async def everything_is_recalled(client: MemoryClient, made: Script) -> None:
    """Each record is found with its last text, unless it left recall; what left is never shown."""
    found: set[Key] = set()
    for tenant, agent in AGENTS:
        for session in range(3):
            here = RecallFilter(sessions=(f"s{session}",))
            recall = await client.recall(Scope(tenant, agent), "the sea, 大连", limit=200, candidates=200, filter=here)
            assert (recall.seen.stale, recall.unread, recall.degraded) == (False, 0, ())
            for hit in recall.hits:
                key = (tenant, agent, hit.stored.record.record_id)
                assert hit.stored.record.content == made.texts[key]
                found.add(key)
    assert found == made.texts.keys() - made.gone


async def each_was_derived_once(rig: Rig, made: Script) -> None:
    """The last copies of the derived topic: one for each record with a text, of its last place."""
    last = {message.key: message for message in await rig.read(rig.topics.derived)}
    events = [derived_codec().decode(m.value) for m in last.values() if m.value is not None]
    derived = [event for event in events if isinstance(event, RecordDerived)]
    places = {message.key: message.offset for message in await rig.read(rig.topics.records)}
    assert sorted((d.tenantid, d.agentid, d.data.record_id) for d in derived) == sorted(made.texts)
    assert [d.data.offset for d in derived] == [places[d.key()] for d in derived]
    assert {d.data.degraded for d in derived} == {()}
    turns: dict[tuple[str, str, str | None], set[int]] = {}
    for d in derived:
        known = turns.setdefault((d.tenantid, d.agentid, d.sessionid), set())
        assert d.data.turn not in known
        known.add(d.data.turn)


def the_same(points: dict[str, Any], calm: dict[str, Any]) -> None:
    """Equal to the last byte, but for their places in the derived topic."""
    assert points.keys() == calm.keys()
    for key, point in points.items():
        mine, other = ({**p.payload, "sequence": 0} for p in (point, calm[key]))
        assert mine == other
        assert point.vector[TERMS].indices == calm[key].vector[TERMS].indices
        assert point.vector[TERMS].values == calm[key].vector[TERMS].values
        assert np.array_equal(point.vector[DENSE], calm[key].vector[DENSE])
