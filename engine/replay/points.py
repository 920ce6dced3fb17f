"""Comparing live vectors with those that are built from the log.

A collection cannot be read as it is at one moment. While it is read it stands somewhere between its durable checkpoint
and the end of the log: points are found before they are flushed. So the build is looked at twice, there and there. What
the live collection has from beyond the checkpoint (each point says which offset in the derived topic it was made from),
or what is the other way round at the log's end, has moved on: it is counted, and not compared. What then still differs
is looked at again, when the live collection has passed that end, and counts only if it differs again.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from engramlog.engine.history.digest import Agent, Digest
from engramlog.engine.history.versions import VECTORS
from engramlog.engine.replay.building import Build
from engramlog.engine.replay.differences import (
    LISTED,
    LOOKS,
    WAIT_S,
    Comparison,
    Difference,
    Only,
    Pair,
    Place,
    difference,
)
from engramlog.engine.replay.live_points import LivePoints, live_points, points_named, points_of
from engramlog.engine.replay.opening import Workshop
from engramlog.engine.vectors.digest import Point
from engramlog.engine.vectors.vectors import Vectors

Key = tuple[Agent, str]
"""Agent and record id."""

_MOST: Final = 10_000
"""So many points that may differ are looked at again."""
_LOOK_EVERY_S: Final = 0.1
_NEVER: Final = f"after {WAIT_S:g} s the live vectors have still not passed what was built: is 'index' running?"


async def compare_vectors(place: Workshop, build: Build, *, only: Only | None = None) -> Comparison:
    """Compare the live vectors with those under construction, which go on to the positions of the live ones.

    Args:
        place: Where the live ones are. An embedded store that a running engine has open is looked at through its
            consumer ``answer``.
        build: Builds the others: its target has ``vectors``.
        only: Compare these agents only; None: all.

    Raises:
        ConfigurationError: The live collection is not there, or is another version than the active one.
        ReplayStopped: The build stopped at an event.
        StoreUnavailable: A store does not answer, or nobody answers for it.
        BrokerUnavailable: Kafka does not answer.
    """
    target: Any = build.target
    active = (await place.history.versions.active())[VECTORS]
    if active.generation != build.target.version.generation:
        ours = build.target.version.generation
        return Comparison("vectors", why_not=f"the live ones are of generation {active.generation}, these of {ours}")
    async with live_points(place, active) as live:
        return await _Collections(live, target.vectors, build, only).compare()


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A point that differs at the checkpoint.

    Attributes:
        live: The live one; None: there is none.
        rebuilt: The other.
    """

    live: Point | None
    rebuilt: Point | None


@dataclass(slots=True)
class _Collections:
    """A live collection and one under construction.

    Attributes:
        live: The live one.
        rebuilt: The other.
        build: Builds it.
        only: Which agents are compared; None: all.
    """

    live: LivePoints
    rebuilt: Vectors
    build: Build
    only: Only | None
    agents: dict[Agent, Pair] = field(default_factory=dict)
    doubtful: dict[Key, _Doubt] = field(default_factory=dict)
    uncounted: int = 0
    moved_on: int = 0
    at: dict[Place, int] = field(default_factory=dict)

    async def compare(self) -> Comparison:
        """Look at everything once, and at what differs again."""
        if not await self._meet():
            return Comparison("vectors", why_not=_NEVER)
        positions = dict(self.at)
        await self._look_at_all()
        await self._go_on()
        for _ in range(LOOKS - 1):
            if not self.doubtful or not await self._meet():  # nobody writes to it: it stays as it is
                break
            await self._look_again()
            await self._go_on()
        for doubt in self.doubtful.values():
            self._count(doubt.live, doubt.rebuilt)
        found = [_difference(key, doubt) for key, doubt in self.doubtful.items()]
        return Comparison(
            "vectors",
            positions,
            dict(sorted(self.agents.items())),
            differences=tuple(found[:LISTED]),
            different=len(found) + self.uncounted,
            moved_on=self.moved_on,
        )

    async def _meet(self) -> bool:
        """Bring the build to where the live vectors are durable; whether those came to where the build is, in time."""
        places = list(self.build.progress.next)
        reached = {place: await self.build.target.applied_live(place) for place in places}
        await self.build.advance(until=reached)
        until = time.monotonic() + WAIT_S
        while any([await self.build.target.applied_live(p) < self.build.progress.next[p] for p in places]):
            if time.monotonic() > until:
                return False
            await asyncio.sleep(_LOOK_EVERY_S)
        self.at = dict(self.build.progress.next)
        return True

    async def _look_at_all(self) -> None:
        """Both collections in the order of ids, side by side."""
        for part in await self._parts():
            async with aclosing(self.live.points(part)) as live, aclosing(points_of(self.rebuilt, part)) as rebuilt:
                async for one, other in merged(live, rebuilt):
                    self._compare(one, other)

    async def _parts(self) -> list[Agent | None]:
        """Whose points are looked at, one after the other; None: everybody's at once."""
        if not self.live.by_agent and self.only is None:
            return [None]
        agents = {*await self.live.agents(), *await _agents_of(self.rebuilt)}
        return [agent for agent in sorted(agents) if self.only is None or self.only(agent)]

    def _compare(self, live: Point | None, rebuilt: Point | None) -> None:
        """Compare a point where the build is at the live checkpoint."""
        if live is not None and self._is_beyond(live):
            self.moved_on += 1
        elif live is not None and rebuilt is not None and live.hash == rebuilt.hash:
            self._count(live, rebuilt)
        elif len(self.doubtful) < _MOST:
            self.doubtful[_key_of(live, rebuilt)] = _Doubt(live, rebuilt)
        else:
            self.uncounted += 1
            self._count(live, rebuilt)

    async def _go_on(self) -> None:
        """Let the build go to the end of the log: what is there as it is live has moved on."""
        if not self.doubtful:
            return
        await self.build.advance()
        before, self.doubtful = self.doubtful, {}
        for agent, ids in _by_agent(before).items():
            known = await points_named(self.rebuilt, agent, ids)
            for record_id in ids:
                live, later = before[agent, record_id].live, known.get(record_id)
                same = (live and live.hash) == (later and later.hash)
                if same or (later is not None and self._is_beyond(later)):
                    self.moved_on += 1
                else:
                    self.doubtful[agent, record_id] = _Doubt(live, later or before[agent, record_id].rebuilt)

    async def _look_again(self) -> None:
        """Look at what is doubtful once more, further on."""
        before, self.doubtful = self.doubtful, {}
        for agent, ids in _by_agent(before).items():
            live = await self.live.named(agent, ids)
            rebuilt = await points_named(self.rebuilt, agent, ids)
            for record_id in ids:
                if record_id in live or record_id in rebuilt:  # else it was deleted on both sides
                    self._compare(live.get(record_id), rebuilt.get(record_id))

    def _is_beyond(self, point: Point) -> bool:
        """Whether a point was made from what lies beyond the positions that are compared."""
        return any(point.sequence >= end for (_, partition), end in self.at.items() if partition == point.partition)

    def _count(self, live: Point | None, rebuilt: Point | None) -> None:
        """Add a point to the digests of both sides."""
        pair = self.agents.setdefault(_key_of(live, rebuilt)[0], Pair(Digest(), Digest()))
        for digest, point in ((pair.live, live), (pair.rebuilt, rebuilt)):
            if point is not None:
                digest.add("point", point.hash)


def _key_of(live: Point | None, rebuilt: Point | None) -> Key:
    either = live or rebuilt
    assert either is not None
    return either.agent, either.record_id


def _by_agent(keys: Iterable[Key]) -> dict[Agent, list[str]]:
    found: dict[Agent, list[str]] = {}
    for agent, record_id in keys:
        found.setdefault(agent, []).append(record_id)
    return found


def _difference(key: Key, doubt: _Doubt) -> Difference:
    agent, record_id = key
    return difference(agent, ("point", record_id), _values(doubt.live), _values(doubt.rebuilt))


async def merged(
    one: AsyncIterator[Point], other: AsyncIterator[Point]
) -> AsyncIterator[tuple[Point | None, Point | None]]:
    """Points of two collections by id, each in the order of ids; None: the other does not have it."""
    a, b = await anext(one, None), await anext(other, None)
    while a is not None or b is not None:
        if b is None or (a is not None and a.id < b.id):
            yield a, None
            a = await anext(one, None)
        elif a is None or b.id < a.id:
            yield None, b
            b = await anext(other, None)
        else:
            yield a, b
            a, b = await anext(one, None), await anext(other, None)


async def _agents_of(vectors: Vectors) -> set[Agent]:
    found: set[Agent] = set()
    async with aclosing(points_of(vectors, None)) as points:
        async for point in points:
            found.add(point.agent)
    return found


def _values(point: Point | None) -> Mapping[str, Any] | None:
    """What a difference tells of a point."""
    if point is None:
        return None
    return {**point.payload, "dense vector": point.dense, "term weights": point.terms}
