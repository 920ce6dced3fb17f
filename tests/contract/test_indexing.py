"""Indexing runs of the derived topic: any cut, done again, by two owners, after a loss: always the same vectors."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engramlog.engine import index
from engramlog.engine.history import History
from engramlog.engine.index import Indexing
from engramlog.engine.log import Entry, Run
from engramlog.engine.ports import VectorEngine
from engramlog.engine.vectors.edge import EdgeEngine
from engramlog.engine.vectors.selecting import of_tenant
from engramlog.engine.vectors.vectors import Vectors
from engramlog.schemas.codec import derived_codec
from engramlog.schemas.derived import Watermark, WatermarkPassed
from engramlog.schemas.errors import Fenced, StoreUnavailable, Unprocessable
from engramlog.schemas.keys import parse_key, record_key
from tests.vector_engines import opened
from tests.vector_model import KEYS, SPEC, START, derived, direction, embedded, left

TOPIC, RECORDS = "memory.derived.g1", "memory.records"
PLACE = (RECORDS, 0)
NAMES = ("r0", "r1", "👋", '记录/:|"()-')


@dataclass(frozen=True)
class Places:
    """The store of one test; ``lose`` gives an empty one in its place."""

    engine: VectorEngine
    vectors: Vectors


@pytest.fixture(params=["edge", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Places]:
    async with opened(request.param, tmp_path / "vectors") as engine:
        yield Places(engine, Vectors(engine, metadata_keys=KEYS))


@pytest.fixture
async def history(tmp_path: Path) -> AsyncIterator[History]:
    made = History(f"sqlite:///{tmp_path / 'history.db'}")
    await made.start()
    yield made
    await made.stop()


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is flushed in between: each test says when."""
    monkeypatch.setattr(index, "FLUSH_EVERY_S", 3_600.0)


class DerivedLog:
    """The derived topic of partition 0, in memory."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def _append(self, key: bytes, event: Any) -> None:
        value = b"" if event is None else derived_codec().encode(event)
        self.entries.append(Entry(len(self.entries), 1_772_323_200_000, parse_key(key), event, value))

    def writes(self, name: str, seed: int, **fields: Any) -> None:
        """A record was derived; the n-th entry is of the n-th record."""
        rows = direction(seed, 1 + seed % 2)
        event = derived(name, offset=len(self.entries), embedding=embedded(rows), terms={"猫": 1 + seed % 3}, **fields)
        self._append(event.key(), event)

    def drops(self, name: str) -> None:
        """Nothing is derived from it any more."""
        self._append(record_key("acme", "bot", name), None)

    def leaves(self, cause: str, **fields: Any) -> None:
        """Records leave recall."""
        event = left(cause, before=len(self.entries), **fields).event
        self._append(event.key(), event)

    def takes_back(self) -> None:
        """A mark is gone."""
        self._append(b"acme/bot/~e1", None)

    def marks(self, following: int) -> None:
        """How far the records were derived."""
        event = WatermarkPassed(source="test", time=START, data=Watermark(partition=0, next=following))
        self._append(event.key(), event)

    def run(self, begin: int, end: int) -> Run:
        """A part of it."""
        return Run(TOPIC, 0, begin, end, tuple(self.entries[begin:end]))

    def runs(self, borders: Sequence[int], *, begin: int = 0) -> list[Run]:
        """It, cut there."""
        cuts = [begin, *sorted({b for b in borders if begin < b < len(self.entries)}), len(self.entries)]
        return [self.run(a, b) for a, b in itertools.pairwise(cuts) if b > a]


def eventful() -> DerivedLog:
    """Everything that can happen to a record, twice."""
    log = DerivedLog()
    for n in range(6):
        log.writes(NAMES[n % 4], n, session=f"s{n % 2}", user=("ada", None)[n % 2])
    log.drops("r0")
    log.leaves("invalidated", ids=("r1",))
    log.marks(9)
    log.leaves("erased", scope="user", user="ada")
    log.writes("r0", 11, session="s0")
    log.writes("👋", 12, session="s1", metadata={"project_id": "p1"})
    log.leaves("removed", ids=("👋",))
    log.takes_back()
    log.leaves("erased", scope="record", ids=(NAMES[3],))
    log.writes("r1", 13)
    log.drops("👋")
    log.marks(17)
    return log


def indexing(store: Places, history: History) -> Indexing:
    return Indexing(store.vectors, history.vectors("vectors_v1_g1"), records=RECORDS)


async def opened_at(made: Indexing, log: DerivedLog) -> int:
    return await made.open_partition(TOPIC, 0, cluster_id="c", topic_id="t", end_offset=len(log.entries))


async def bring(made: Indexing, log: DerivedLog, borders: Sequence[int] = ()) -> None:
    """Index the log from where it stands."""
    begin = await opened_at(made, log)
    for run in log.runs(borders, begin=begin):
        await made.apply(run)
    await made.stop()


async def emptied(store: Places) -> None:
    await store.engine.delete(of_tenant("acme"))


async def expected(store: Places, history: History, log: DerivedLog) -> str:
    """The digest of the log applied one by one to an empty store, under another name; the store is emptied again."""
    whole = Indexing(store.vectors, history.vectors("vectors_v9_g1"), records="others")
    await bring(whole, log, range(len(log.entries)))
    digest = await store.vectors.digest()
    await emptied(store)
    await history.vectors("vectors_v9_g1").restart()
    return digest


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(borders=st.sets(st.integers(1, 17), max_size=6), again=st.integers(0, 17))
async def test_any_cut_of_the_log_gives_the_same_vectors(
    store: Places, history: History, borders: set[int], again: int
) -> None:
    log = eventful()
    wanted = await expected(store, history, log)
    checkpoints = history.vectors("vectors_v1_g1")
    await checkpoints.restart()
    killed = indexing(store, history)  # it was killed at some border, and had flushed nothing
    await opened_at(killed, log)
    for run in [r for r in log.runs([*borders, again]) if r.next <= again]:
        await killed.apply(run)
    await bring(indexing(store, history), log, sorted(borders))
    assert await store.vectors.digest() == wanted
    assert await checkpoints.current(TOPIC, 0) == len(log.entries)
    await emptied(store)


async def test_a_kill_between_writing_and_flushing_is_made_up_for(store: Places, history: History) -> None:
    log = eventful()
    wanted = await expected(store, history, log)
    checkpoints = history.vectors("vectors_v1_g1")
    killed = indexing(store, history)
    await opened_at(killed, log)
    await killed.apply(log.run(0, 5))
    await killed.flush()
    await killed.apply(log.run(5, 14))
    assert await checkpoints.current(TOPIC, 0) == 5  # what was not flushed does not count
    await bring(indexing(store, history), log)
    assert await store.vectors.digest() == wanted


async def test_a_run_that_is_not_the_next_one_is_refused(store: Places, history: History) -> None:
    log = eventful()
    made = indexing(store, history)
    with pytest.raises(Fenced):  # nobody opened it
        await made.apply(log.run(0, 3))
    await opened_at(made, log)
    await made.apply(log.run(0, 3))
    before = await store.vectors.digest()
    for begin, end in ((0, 3), (2, 5), (4, 6)):
        with pytest.raises(Fenced, match="not at"):
            await made.apply(log.run(begin, end))
    assert await store.vectors.digest() == before
    await made.apply(log.run(3, 6))
    await made.stop()


async def test_an_old_owner_that_writes_last_brings_nothing_back(store: Places, history: History) -> None:
    """It was paused with a run in its hands; in the meantime the new owner passed an erasure of the same record."""
    log = DerivedLog()
    log.writes("secret", 1)
    log.writes("kept", 2)
    log.leaves("erased", scope="record", ids=("secret",))
    log.writes("later", 3)
    wanted = await expected(store, history, log)
    checkpoints = history.vectors("vectors_v1_g1")
    old, new = indexing(store, history), indexing(store, history)
    for owner in (old, new):
        await opened_at(owner, log)
    await new.apply(log.run(0, 3))
    await new.flush()
    await old.apply(log.run(0, 2))
    assert await store.vectors.digest() != wanted  # the erased one is there again
    reopened: list[int] = []

    async def reopen(topic: str, partition: int) -> None:
        assert (topic, partition) == (TOPIC, 0)
        reopened.append(await opened_at(new, log))

    new.when_lost(reopen)
    await old.flush()
    assert await checkpoints.current(TOPIC, 0) == 0
    await new.apply(log.run(3, 4))
    await new.flush()
    assert reopened == [0]
    for run in log.runs([2]):
        await new.apply(run)
    await new.stop()
    assert await store.vectors.digest() == wanted
    assert await checkpoints.current(TOPIC, 0) == 4
    await old.stop()
    assert await checkpoints.current(TOPIC, 0) == 4


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_two_owners_in_any_order_end_in_the_same_state(
    store: Places, history: History, data: st.DataObject
) -> None:
    """Both had opened the partition at the same place; the old one gets no more messages at some point."""
    log = eventful()
    wanted = await expected(store, history, log)
    checkpoints = history.vectors("vectors_v1_g1")
    await checkpoints.restart()
    old, new = indexing(store, history), indexing(store, history)
    at = {"old": await opened_at(old, log), "new": await opened_at(new, log)}

    async def reopen(_topic: str, _partition: int) -> None:
        at["new"] = await opened_at(new, log)

    new.when_lost(reopen)
    ends = {"old": data.draw(st.integers(1, len(log.entries)), "old owner's end"), "new": len(log.entries)}
    for who, step in data.draw(st.lists(st.tuples(st.sampled_from(("old", "new")), st.integers(0, 4)), max_size=12)):
        owner = old if who == "old" else new
        end = min(at[who] + step, ends[who])
        try:
            if end > at[who]:
                await owner.apply(log.run(at[who], end))
                at[who] = end
            else:
                await owner.flush()
        except Fenced:
            ends["old"] = 0  # the old owner reopens nothing: the partition is not its any more
    await old.stop()
    while at["new"] < len(log.entries) or await checkpoints.current(TOPIC, 0) < len(log.entries):
        if at["new"] < len(log.entries):
            await new.apply(log.run(at["new"], len(log.entries)))
            at["new"] = len(log.entries)
        await new.flush()
    assert await store.vectors.digest() == wanted
    await emptied(store)


async def test_what_is_covered_moves_at_once_and_never_back(store: Places, history: History) -> None:
    log = DerivedLog()
    log.writes("a", 1)
    log.marks(5)
    log.marks(3)  # an old owner of 'derive' was late
    log.writes("b", 2)
    checkpoints = history.vectors("vectors_v1_g1")
    made = indexing(store, history)
    await opened_at(made, log)
    await made.apply(log.run(0, 1))
    assert (await checkpoints.covered()).get(PLACE, 0) == 0
    await made.apply(log.run(1, 2))
    assert (await checkpoints.covered())[PLACE] == 5
    assert await checkpoints.current(TOPIC, 0) == 0  # not for good yet
    await made.apply(log.run(2, 4))
    assert (await checkpoints.covered())[PLACE] == 5
    again = indexing(store, history)  # killed, and everything once more
    await opened_at(again, log)
    await again.apply(log.run(0, 3))
    assert (await checkpoints.covered())[PLACE] == 5
    await made.flush()
    assert (await checkpoints.covered())[PLACE] == 5


async def test_a_lost_collection_is_filled_from_the_log_again(tmp_path: Path, history: History) -> None:
    log = eventful()
    checkpoints = history.vectors("vectors_v1_g1")
    digests = []
    for directory in ("first", "second"):  # the second is empty, as after a loss
        engine = EdgeEngine(tmp_path / directory)
        assert await engine.start(SPEC)
        known = await checkpoints.restart()
        assert known is (directory == "second")
        assert await checkpoints.covered() == {}
        store = Places(engine, Vectors(engine, metadata_keys=KEYS))
        await bring(indexing(store, history), log, [4, 9])
        assert (await checkpoints.covered())[PLACE] == 17
        digests.append(await store.vectors.digest())
        await engine.stop()
    assert digests[0] == digests[1]
    engine = EdgeEngine(tmp_path / "second")
    assert not await engine.start(SPEC)  # nothing was lost: nothing is forgotten
    await engine.stop()
    assert await checkpoints.current(TOPIC, 0) == len(log.entries)


async def test_a_point_of_another_dimension_is_refused_and_spoils_nothing(store: Places, history: History) -> None:
    log = DerivedLog()
    log.writes("good", 1)
    bad = derived("bad", offset=1, embedding=embedded([[1.0, 0.0]]), terms={"猫": 1})
    log._append(bad.key(), bad)
    log.writes("fine", 2)
    made = indexing(store, history)
    await opened_at(made, log)
    before = await store.vectors.digest()
    with pytest.raises(Unprocessable, match=r"2 dimensions.*8"):
        await made.apply(log.run(0, 3))
    assert await store.vectors.digest() == before
    await made.apply(log.run(0, 1))  # as the delivery does: in halves, the bad one then without entries
    await made.apply(Run(TOPIC, 0, 1, 2, ()))
    await made.apply(log.run(2, 3))
    await made.stop()
    assert await store.vectors.count("acme") == 2


async def test_a_store_that_is_away_loses_nothing(tmp_path: Path, history: History) -> None:
    log = eventful()
    engine = EdgeEngine(tmp_path / "vectors")
    await engine.start(SPEC)
    store = Places(engine, Vectors(engine, metadata_keys=KEYS))
    wanted = await expected(store, history, log)
    made = indexing(store, history)
    await opened_at(made, log)
    await made.apply(log.run(0, 7))
    child = engine._child
    assert child is not None
    await child.kill()  # the child that owns the shard
    with pytest.raises(StoreUnavailable):
        await made.apply(log.run(7, 12))
    async with asyncio.timeout(30):
        while True:
            try:
                await made.apply(log.run(7, 12))
                break
            except StoreUnavailable:
                await asyncio.sleep(0.01)
    await made.apply(log.run(12, len(log.entries)))
    await made.stop()
    assert await store.vectors.digest() == wanted
    await engine.stop()
