"""What a comparison with the log tells of vectors that were tampered with, on every engine."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from qdrant_client import models

from engramlog.engine.ports import Upsert
from engramlog.engine.replay import points
from engramlog.engine.replay.differences import Comparison, require_equal
from engramlog.engine.replay.live_points import Opened, points_of
from engramlog.engine.vectors import selecting
from engramlog.engine.vectors.changes import Dropped
from engramlog.engine.vectors.points import DENSE, point_id
from engramlog.engine.vectors.vectors import Change, Vectors
from tests.vector_engines import ENGINES, opened_vectors
from tests.vector_model import assorted, derived, direction, embedded, written

DERIVED = ("memory.derived.g1", 0)
ODD = 'r/:|"()-记录👋'


def log() -> list[Change]:
    """What lies in the derived topic: two tenants, a record of every kind."""
    events = assorted(60)
    return written(*events, derived(ODD, topic="猫", embedding=embedded(direction(5)), terms={"猫": 2}, length=2))


class Building:
    """Stands for a build: applies the log up to where it is told to."""

    def __init__(self, vectors: Vectors, changes: list[Change], *, reached: int) -> None:
        self._changes = changes
        self.target = SimpleNamespace(vectors=vectors, applied_live=self._applied_live)
        self.progress = SimpleNamespace(next={DERIVED: 0})
        self.reached = reached

    async def _applied_live(self, _place: Any) -> int:
        return self.reached

    async def advance(self, until: Mapping[Any, int] | None = None) -> None:
        done, goal = self.progress.next[DERIVED], len(self._changes) if until is None else until[DERIVED]
        if goal > done:
            await self.target.vectors.apply(self._changes[done:goal])
            self.progress.next = {DERIVED: goal}


@pytest.fixture(params=ENGINES)
async def live(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Vectors]:
    async with opened_vectors(request.param, tmp_path / "live") as vectors:
        await vectors.apply(log())
        yield vectors


@pytest.fixture
async def rebuilt(tmp_path: Path) -> AsyncIterator[Vectors]:
    async with opened_vectors("edge", tmp_path / "rebuilt") as vectors:
        yield vectors


async def compared(live: Vectors, build: Any, *, only: Any = None) -> Comparison:
    history: Any = SimpleNamespace()
    return await points._Collections(Opened(live, history), build.target.vectors, build, only).compare()


def building(rebuilt: Vectors) -> Building:
    return Building(rebuilt, log(), reached=len(log()))


async def test_untouched_they_are_what_the_log_says(live: Vectors, rebuilt: Vectors) -> None:
    found = await compared(live, building(rebuilt))
    assert found.equal
    assert str(found.side("live")) == str(found.side("rebuilt")) == await live.digest()
    assert {tenant for tenant, _ in found.agents} == {"acme", "acme-corp"}
    require_equal(found)


async def test_points_come_in_the_order_of_their_ids(live: Vectors) -> None:
    ids = [point.id async for point in points_of(live, None)]
    assert ids == sorted(ids)
    assert len(ids) == len(log())


async def test_a_changed_payload_is_named(live: Vectors, rebuilt: Vectors) -> None:
    where = selecting.with_ids(selecting.of_tenant("acme"), [point_id("acme", "bot", ODD)])
    await live._engine.set_payload({"topic": "狗"}, where)
    found = await compared(live, building(rebuilt))
    (one,) = found.differences
    assert (one.tenant, one.agent, one.kind, one.id, one.fields) == ("acme", "bot", "point", ODD, ("topic",))
    assert (one.live, one.rebuilt) == ({"topic": "狗"}, {"topic": "猫"})
    assert (found.different, found.equal) == (1, False)


async def test_one_changed_component_is_named(live: Vectors, rebuilt: Vectors) -> None:
    where = selecting.with_ids(selecting.of_tenant("acme"), [point_id("acme", "bot", ODD)])
    ((point,), _) = await live._engine.scroll(where, limit=1, vectors=True)
    vectors: Any = point.vector
    rows = np.array(vectors[DENSE], dtype=np.float32)
    rows[0, 3] += 1e-3
    await live._engine.delete(where)
    changed = models.PointStruct.model_construct(id=point.id, vector=vectors | {DENSE: rows}, payload=point.payload)
    await live._engine.upsert([Upsert(changed, point.payload["sequence"])])
    found = await compared(live, building(rebuilt))
    (one,) = found.differences
    assert (one.id, one.fields) == (ODD, ("dense vector",))


async def test_a_deleted_point_and_one_too_many_are_told(live: Vectors, rebuilt: Vectors) -> None:
    await live.apply([Dropped("acme", "bot", ODD, sequence=10**6)])
    await live.apply(written(derived("intruder", tenant="corp", agent="other")))
    found = await compared(live, building(rebuilt))
    told_of = {(one.tenant, one.id): (one.live is None, one.rebuilt is None) for one in found.differences}
    assert told_of == {("acme", ODD): (True, False), ("corp", "intruder"): (False, True)}
    unequal = {agent for agent, pair in found.agents.items() if not pair.equal}
    assert unequal == {("acme", "bot"), ("corp", "other")}


async def test_a_hint_is_no_difference(live: Vectors, rebuilt: Vectors) -> None:
    await live._engine.set_payload({"left": "1"}, selecting.of_tenant("acme"))
    assert (await compared(live, building(rebuilt))).equal


async def test_what_was_written_since_is_counted_and_not_compared(live: Vectors, rebuilt: Vectors) -> None:
    end = len(log())
    await live.apply(written(derived("new"), derived(ODD, topic="newer"), start=end))
    found = await compared(live, building(rebuilt))
    assert (found.equal, found.moved_on) == (True, 2)


async def test_what_was_deleted_before_the_checkpoint_moved_is_counted_and_not_compared(
    live: Vectors, rebuilt: Vectors
) -> None:
    changes: list[Change] = [*log(), Dropped("acme", "bot", ODD, sequence=len(log()))]
    await live.apply(changes[-1:])  # not flushed yet: the checkpoint stands before it
    found = await compared(live, Building(rebuilt, changes, reached=len(log())))
    assert (found.equal, found.moved_on) == (True, 1)
    assert found.side("live").counts == {"point": len(log()) - 1}
    assert str(found.side("live")) == str(found.side("rebuilt")) == await live.digest()


async def test_a_point_that_is_missing_is_told_although_the_log_goes_on(
    live: Vectors, rebuilt: Vectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(points, "WAIT_S", 0.0)
    await live.apply([Dropped("acme", "bot", ODD, sequence=10**6)])
    more = written(derived("new"), start=len(log()))
    found = await compared(live, Building(rebuilt, [*log(), *more], reached=len(log())))
    assert [(one.id, one.live) for one in found.differences] == [(ODD, None)]


async def test_only_what_is_meant_is_compared(live: Vectors, rebuilt: Vectors, monkeypatch: pytest.MonkeyPatch) -> None:
    await live._engine.set_payload({"topic": "x"}, selecting.of_tenant("acme-corp"))

    async def agents(_self: Any) -> list[tuple[str, str]]:
        return []

    monkeypatch.setattr(Opened, "agents", agents)
    build = building(rebuilt)
    assert (await compared(live, build, only=lambda agent: agent[0] == "acme")).equal
    assert not (await compared(live, build, only=lambda agent: agent[0] == "acme-corp")).equal
