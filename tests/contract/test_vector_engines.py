"""The vector engines: identity, conditions, counts; and the embedded one's process, killed at any moment."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from qdrant_client import models

from engramlog.engine.ports import Upsert, VectorEngine
from engramlog.engine.vectors import loading
from engramlog.engine.vectors.edge import EdgeEngine
from engramlog.engine.vectors.framing import Found, NewPoint
from engramlog.engine.vectors.points import point_id
from engramlog.engine.vectors.selecting import among, between, equals, of_tenant, with_term
from engramlog.engine.vectors.server import ServerEngine
from engramlog.engine.vectors.shard import FLUSH_AFTER_S, MOST_UNFLUSHED, TIDY_AFTER_S, WRITE_CHUNK, Opening, Shard
from engramlog.engine.vectors.translate import Collection
from engramlog.schemas.errors import ConfigurationError, StoreUnavailable, Unprocessable
from tests.vector_engines import ENGINES, opened, server_url
from tests.vector_model import DIMENSION, SPEC, direction


def upsert(key: str, sequence: int, *, tenant: str = "acme", dense: Any = None, **payload: Any) -> Upsert:
    """A point with little in it."""
    vector = {} if dense is None else {"dense": np.asarray(dense, dtype=np.float32)}
    terms = payload.get("terms", [])
    if terms:
        vector["terms"] = models.SparseVector(indices=terms, values=[1.0] * len(terms))
    payload |= {"tenant": tenant, "record_id": key, "sequence": sequence}
    point = models.PointStruct.model_construct(id=point_id(tenant, "bot", key), vector=vector, payload=payload)
    return Upsert(point, sequence)


async def sequences(engine: VectorEngine, tenant: str = "acme") -> dict[str, int]:
    """What is there, by record."""
    records, _ = await engine.scroll(of_tenant(tenant), limit=100_000)
    return {r.payload["record_id"]: r.payload["sequence"] for r in records if r.payload}


async def eventually(done: Callable[[], Any], *, timeout_s: float = 30.0) -> None:
    """Wait for a condition that nobody announces."""
    async with asyncio.timeout(timeout_s):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.fixture(params=ENGINES)
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorEngine]:
    async with opened(request.param, tmp_path) as made:
        yield made


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[EdgeEngine]:
    async with opened("edge", tmp_path) as made:
        assert isinstance(made, EdgeEngine)
        yield made


async def test_a_point_is_written_when_it_is_missing_or_older(engine: VectorEngine) -> None:
    await engine.upsert([upsert("a", 5), upsert("b", 5), upsert("c", 5), upsert("c", 4), upsert("d", 1)])
    await engine.upsert([upsert("a", 4), upsert("b", 5, topic="same"), upsert("c", 6), upsert("d", 2), upsert("d", 3)])
    assert await sequences(engine) == {"a": 5, "b": 5, "c": 6, "d": 3}
    assert await engine.count([models.Filter(must=[equals("tenant", "acme"), equals("topic", "same")])]) == [0]
    await engine.upsert([])


def point(key: str, sequence: int, **fields: Any) -> models.PointStruct:
    """As :func:`upsert`, to be loaded."""
    return upsert(key, sequence, **fields).point


async def test_what_is_loaded_counts_whatever_was_there(engine: VectorEngine) -> None:
    await engine.upsert([upsert("a", 5, dense=direction(1), terms=[1]), upsert("b", 5)])
    await engine.load([point("a", 4), point("c", 1), point("c", 2, terms=[2])])
    await engine.load([point("d", 1)])
    await engine.load([])
    assert await sequences(engine) == {"a": 4, "b": 5, "c": 2, "d": 1}
    assert await engine.count([with_term("acme", 1), with_term("acme", 2), of_tenant("acme")]) == [0, 1, 4]
    await engine.load([point("e", 1, terms=[2])])
    await engine.delete(models.Filter(must=[equals("tenant", "acme"), equals("record_id", "d")]))
    await engine.load([point("c", 3, terms=[1])])
    assert await engine.count([with_term("acme", 1), with_term("acme", 2), of_tenant("acme")]) == [1, 1, 4]
    await engine.load([point("a", 1)])
    await engine.upsert([upsert("a", 2)])
    await engine.flush()
    assert await sequences(engine) == {"a": 2, "b": 5, "c": 3, "e": 1}


async def test_nothing_is_loaded_of_a_batch_that_holds_what_cannot_be_kept(engine: VectorEngine) -> None:
    for wrong in ([[float("nan")] * DIMENSION], [[1.0] * 16], np.zeros((0, DIMENSION))):
        with pytest.raises(Unprocessable):
            await engine.load([point("a", 1), point("b", 1, dense=wrong)])
    assert await sequences(engine) == {}


async def test_loading_goes_on_behind_the_call_and_survives_the_death_of_the_child(
    edge: EdgeEngine, tmp_path: Path
) -> None:
    pid = edge.child_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    for i in range(4):
        await edge.load([point(f"r{n}", i, dense=direction(n)) for n in range(300)])
    files = tmp_path / SPEC.name / "loading"
    assert len([*files.iterdir()]) == 4
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: edge.child_pid not in {None, pid})
    assert await sequences(edge) == {f"r{n}": 3 for n in range(300)}
    assert not [*files.iterdir()]


async def test_no_more_is_under_way_than_is_allowed(
    edge: EdgeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(loading, "MOST_BYTES", 0)
    for i in range(5):
        await edge.load([point(f"r{n}", i, dense=direction(n)) for n in range(10)])
        assert len([*(tmp_path / SPEC.name / "loading").iterdir()]) == 1
    assert await sequences(edge) == {f"r{n}": 4 for n in range(10)}


async def test_what_the_child_refuses_later_is_told_by_every_call_after_it(edge: EdgeEngine, tmp_path: Path) -> None:
    spoilt = point("a", 1, importance=float("inf"))  # only Edge itself finds this
    await edge.load([spoilt])
    await edge.load([point("b", 1)])
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"loaded before cannot be written.*inf"):
            await edge.flush()
        with pytest.raises(StoreUnavailable, match="loaded before"):
            await edge.count([of_tenant("acme")])
    assert len([*(tmp_path / SPEC.name / "loading").iterdir()]) == 2
    await edge.stop()
    later = EdgeEngine(tmp_path)
    await later.start(SPEC)
    assert await sequences(later) == {"b": 1}
    await later.stop()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
async def test_what_is_no_number_is_refused_and_nothing_of_its_batch_is_written(
    engine: VectorEngine, number: float
) -> None:
    with pytest.raises(Unprocessable, match="NaN or infinity"):
        await engine.upsert([upsert("a", 1), upsert("b", 1, dense=[[number] * DIMENSION])])
    sparse = upsert("c", 1, terms=[1])
    sparse.point.vector["terms"].values[0] = number  # type: ignore[index,union-attr,call-overload]
    with pytest.raises(Unprocessable, match="NaN or infinity"):
        await engine.upsert([upsert("a", 1), sparse])
    assert await sequences(engine) == {}


async def test_a_vector_of_another_dimension_is_refused_with_both_numbers(engine: VectorEngine) -> None:
    with pytest.raises(Unprocessable, match=r"16 dimensions.*8 dimensions"):
        await engine.upsert([upsert("a", 1), upsert("b", 1, dense=[[1.0] * 16])])
    assert await sequences(engine) == {}


async def test_an_engine_that_is_not_open_is_unavailable(tmp_path: Path) -> None:
    for engine in (EdgeEngine(tmp_path), ServerEngine(":memory:"), ServerEngine("http://localhost:1")):
        with pytest.raises(StoreUnavailable):
            await engine.count([of_tenant("acme")])
        await engine.stop()


async def test_a_server_that_does_not_answer_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await ServerEngine("http://127.0.0.1:1").start(SPEC)


async def test_points_are_scrolled_in_pages_each_once(engine: VectorEngine) -> None:
    await engine.upsert([upsert(f"r{i}", i, dense=direction(i, 2), terms=[7, 4_294_967_295]) for i in range(25)])
    await engine.upsert([upsert("other", 1, tenant="acme-corp")])
    seen: list[Any] = []
    offset = None
    while True:
        page, offset = await engine.scroll(of_tenant("acme"), limit=10, offset=offset, vectors=True)
        assert len(page) <= 10
        seen += page
        if offset is None:
            break
    assert sorted(r.payload["record_id"] for r in seen) == sorted(f"r{i}" for i in range(25))
    for record in seen:
        expected = direction(record.payload["sequence"], 2)
        assert np.array_equal(np.asarray(record.vector["dense"], dtype=np.float32), expected)
        assert list(record.vector["terms"].indices) == [7, 4_294_967_295]


async def test_the_embedded_store_keeps_what_it_has_and_opens_for_the_same_vectors_only(tmp_path: Path) -> None:
    async with opened("edge", tmp_path) as engine:
        assert engine.spec == SPEC
        await engine.upsert([upsert("a", 1, dense=direction(1))])
    for other in (
        replace(SPEC, dimension=16),
        replace(SPEC, model="model-b"),
        replace(SPEC, extra={"generation": "2"}),
    ):
        wanted = rf"{SPEC.model} with 8 dimensions, generation 1.*{other.model} with {other.dimension} dimensions"
        with pytest.raises(ConfigurationError, match=wanted):
            await EdgeEngine(tmp_path).start(other)
    later = EdgeEngine(tmp_path)
    assert not await later.start(replace(SPEC, keyword_keys=(*SPEC.keyword_keys, "metadata.later")))
    assert await sequences(later) == {"a": 1}
    await later.stop()


async def test_a_new_store_is_told_to_be_empty(tmp_path: Path) -> None:
    engine = EdgeEngine(tmp_path)
    assert await engine.start(SPEC)
    await engine.stop()


async def test_a_server_refuses_a_collection_of_other_vectors() -> None:
    url = server_url()
    async with opened("server", Path()) as engine:
        assert engine.spec is not None
        with pytest.raises(ConfigurationError, match=r"8 dimensions.*16 dimensions"):
            await ServerEngine(url).start(replace(engine.spec, dimension=16))
        same = ServerEngine(url)
        assert await same.start(engine.spec)
        await same.stop()


async def test_a_store_that_is_in_use_is_not_opened_by_a_second_process(edge: EdgeEngine, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"in use by another process \\(pid {edge.child_pid}\\)"):
        await EdgeEngine(tmp_path, lock_timeout_s=0.2).start(SPEC)
    other = replace(SPEC, name="memory-g2", dimension=16)  # another collection beside it is free
    beside = EdgeEngine(tmp_path)
    await beside.start(other)
    await beside.stop()


TERMS = st.lists(st.integers(1, 4), max_size=3, unique=True)
TENANTS = st.sampled_from(("acme", "acme-corp"))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), TENANTS, st.sampled_from("abcdef"), st.integers(0, 20), TERMS),
        st.tuples(st.just("write"), TENANTS, st.sampled_from("abcdef"), st.integers(0, 20), TERMS),
        st.tuples(st.just("delete"), TENANTS, st.sampled_from("abcdef")),
        st.tuples(st.just("hint"), TENANTS, st.sampled_from("abcdef")),
        st.tuples(st.just("ask")),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, batch=st.booleans())
async def test_counts_from_memory_are_those_of_a_look(edge: EdgeEngine, steps: list[Any], *, batch: bool) -> None:
    for tenant in ("acme", "acme-corp"):
        await edge.delete(of_tenant(tenant))
    for step in [*steps, ("ask",)]:
        match step:
            case ("write", tenant, key, sequence, terms):
                one = upsert(key, sequence, tenant=tenant, terms=terms)
                await edge.upsert([one, upsert(key, sequence + 1, tenant=tenant, terms=terms[:1])] if batch else [one])
            case ("delete", tenant, key):
                await edge.delete(models.Filter(must=[equals("tenant", tenant), equals("record_id", key)]))
            case ("hint", tenant, key):
                where = models.Filter(must=[equals("tenant", tenant), equals("record_id", key)])
                await edge.set_payload({"left": "1"}, where)
            case _:
                await _compare(edge)


async def _compare(edge: EdgeEngine) -> None:
    remembered = [of_tenant(t) for t in ("acme", "acme-corp")]
    remembered += [with_term(t, x) for t in ("acme", "acme-corp") for x in range(1, 5)]
    looked = [models.Filter(must=[where]) for where in remembered]  # of another form: counted each time
    assert await edge.count(remembered) == await edge.count(looked)


async def test_reads_are_served_between_the_parts_of_a_long_write(edge: EdgeEngine) -> None:
    many = [upsert(f"r{i}", i, dense=direction(i % 50), terms=[i % 7]) for i in range(4_000)]
    writing = asyncio.create_task(edge.upsert(many))
    partly = 0
    while not writing.done():
        (there,) = await edge.count([models.Filter(must=[of_tenant("acme")])])
        partly += 0 < there < len(many)
    await writing
    assert partly > 2
    assert len(await sequences(edge)) == len(many)


async def test_a_killed_child_loses_nothing_that_was_acknowledged_and_comes_back(edge: EdgeEngine) -> None:
    written = 0
    for batches in (0, 1, 3):
        written = await _kill_after(edge, batches, start=written)
        there = await sequences(edge)
        assert there.items() >= {f"r{i}": i for i in range(written)}.items()
        await edge.flush()
    await edge.upsert([upsert("last", 1)])
    assert "last" in await sequences(edge)


async def _kill_after(edge: EdgeEngine, batches: int, *, start: int) -> int:
    """Kill the child in the middle of a batch; returns how many points were acknowledged, once there is a new child."""
    pid, done = edge.child_pid, start
    assert pid is not None
    for batch in range(batches + 1):
        points = [upsert(f"r{i}", i, dense=direction(i % 50)) for i in range(done, done + 300)]
        writing = asyncio.create_task(edge.upsert(points))
        if batch == batches:
            await edge.count([of_tenant("acme")])  # answered in the middle of the write, or before it
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(StoreUnavailable):
                await writing
        else:
            await writing
            done += 300
    await eventually(lambda: edge.child_pid not in {None, pid})
    return done


async def test_what_was_flushed_survives_a_power_cut(tmp_path: Path) -> None:
    """Simulated: of the shard only what a real flush wrote, and of its log what was synced."""
    directory = tmp_path / SPEC.name
    async with opened("edge", tmp_path):
        pass
    shutil.copytree(directory / "shard", tmp_path / "segments")
    async with opened("edge", tmp_path) as engine:
        await engine.upsert([upsert(f"r{i}", i, dense=direction(i), terms=[i % 5]) for i in range(500)])
        await engine.delete(models.Filter(must=[equals("tenant", "acme"), among("record_id", ["r1", "r2"])]))
        await engine.set_payload({"left": "1"}, models.Filter(must=[equals("tenant", "acme"), equals("terms", 3)]))
        await engine.upsert([upsert("r2", 1_000), upsert("r3", 1_000)])
        await engine.flush()
        shutil.copytree(directory / "shard" / "wal", tmp_path / "log")
        before = await sequences(engine)
    shutil.rmtree(directory / "shard")
    shutil.copytree(tmp_path / "segments", directory / "shard")
    shutil.rmtree(directory / "shard" / "wal")
    shutil.copytree(tmp_path / "log", directory / "shard" / "wal")
    async with opened("edge", tmp_path) as engine:
        assert await sequences(engine) == before
        hinted = models.Filter(must=[equals("tenant", "acme"), equals("left", "1")])
        assert await engine.count([hinted, of_tenant("acme")]) == [99, 499]


PARENT = """
import asyncio, sys
from pathlib import Path
from engramlog.engine.vectors.edge import EdgeEngine
from tests.contract.test_vector_engines import upsert
from tests.vector_model import SPEC, direction

async def main():
    engine = EdgeEngine(Path(sys.argv[1]))
    await engine.start(SPEC)
    await engine.upsert([upsert("a", 1)])
    await engine.flush()
    print(engine.child_pid, flush=True)
    n = 0
    while True:
        await engine.upsert([upsert(f"r{i}", i, dense=direction(i % 9)) for i in range(n, n + 500)])
        n += 500

asyncio.run(main())
"""


async def test_the_child_of_a_killed_parent_goes_and_gives_the_directory_free(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    parent = subprocess.Popen(  # noqa: ASYNC220 - it is not waited for
        [sys.executable, "-c", textwrap.dedent(PARENT), str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert parent.stdout is not None
    child = int(await asyncio.to_thread(parent.stdout.readline))
    parent.kill()
    await asyncio.to_thread(parent.wait)
    parent.stdout.close()
    engine = EdgeEngine(tmp_path)
    assert not await engine.start(SPEC)
    assert "a" in await sequences(engine)
    await engine.stop()
    await eventually(lambda: not _runs(child))


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # ended, and not waited for by whoever inherited it


def test_an_idle_shard_is_flushed_then_tidied_and_says_the_same(tmp_path: Path) -> None:
    collection: Collection = {"dimension": 2, "keywords": ["tenant"], "integers": [], "floats": [], "times": []}
    opening: Opening = {
        "directory": str(tmp_path),
        "lock_timeout_s": 0.0,
        "identity": {},
        "collection": collection,
    }
    shard = Shard(opening)
    rows = np.asarray([[1.0, 0.0]], dtype="<f4").tobytes()
    new = [NewPoint(point_id("a", "b", str(i)), i, {"tenant": "acme", "n": i}, rows, 1, None) for i in range(3_000)]
    assert len(list(shard.upsert(new))) == -(-3_000 // WRITE_CHUNK)
    shard.delete({"must": [{"key": "n", "range": {"lt": 2_000}}]})
    everything = [{"must": [{"key": "tenant", "match": {"value": "acme"}}]}]
    shard.idle(FLUSH_AFTER_S - 1)
    assert not shard.must_flush()
    for idle_s in (FLUSH_AFTER_S, TIDY_AFTER_S, TIDY_AFTER_S):
        shard.idle(idle_s)
        assert shard.count(everything) == [1_000]
    ids = {found[0] for page in _pages(shard) for found in page}
    assert ids == {point.id for point in new[2_000:]}
    for i in range(MOST_UNFLUSHED):
        shard.set_payload({"left": str(i)}, {"must": [{"key": "n", "match": {"value": 2_500}}]})
    assert shard.must_flush()
    shard.flush()
    assert not shard.must_flush()
    shard.close()


def _pages(shard: Shard) -> Iterator[list[Found]]:
    offset = None
    while True:
        page, offset = shard.scroll(None, 400, offset, vectors=False)
        yield page
        if offset is None:
            return


async def test_a_question_that_was_given_up_disturbs_nobody(edge: EdgeEngine) -> None:
    await edge.upsert([upsert("a", 1)])
    for _ in range(20):
        asked = asyncio.create_task(edge.count([of_tenant("acme")]))
        await asyncio.sleep(0)
        asked.cancel()
    assert await edge.count([of_tenant("acme"), models.Filter(must=[between("sequence", lt=1)])]) == [1, 0]


async def test_a_request_that_edge_does_not_take_is_refused_and_the_child_lives(edge: EdgeEngine) -> None:
    pid = edge.child_pid
    phrase = models.FieldCondition(key="topic", match=models.MatchPhrase(phrase="x"))
    with pytest.raises(Unprocessable, match="phrase"):
        await edge.count([models.Filter(must=[phrase])])
    wrong = models.QueryRequest(query=models.NearestQuery(nearest=[[1.0, 0.0]]), using="dense", limit=1)
    with pytest.raises(Unprocessable, match="dimension"):
        await edge.query([wrong])
    assert edge.child_pid == pid
    assert await edge.count([of_tenant("acme")]) == [0]
