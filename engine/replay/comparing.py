"""Comparing the live version of a projection with one that is built from the log, while traffic goes on.

Both are looked at where they stand at the same positions: the live one first, in one transaction; then the build goes
exactly there. A compaction of the log can come in between, and take a copy away whose successor lies beyond those
positions. So what differs is looked at again, at fresh positions, and counts only if it still differs.

The vectors cannot be read in one transaction: see :mod:`engramlog.engine.replay.points`.
"""

import asyncio
import json
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from engramlog.engine.history import History
from engramlog.engine.history.digest import KINDS, Agent, AgentRows, Digest, Examined, RowKey
from engramlog.engine.history.versions import HISTORY
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
    require_equal,
)
from engramlog.engine.replay.opening import Workshop
from engramlog.engine.replay.points import compare_vectors

__all__ = ["Comparison", "Difference", "compare_history", "compare_vectors", "require_equal"]

KEPT_BYTES: Final = 64_000_000
"""So many bytes of an agent's rows are kept to tell what differs."""
_LOOK_EVERY_S: Final = 0.05
_NEVER: Final = (
    f"after {WAIT_S:g} s the live version has still not passed what was built: is 'store' running ('engramlog status')?"
)
_RESTLESS: Final = "what differs was another thing each time that it was looked at; try again"


async def compare_history(place: Workshop, build: Build, *, only: Only | None = None) -> Comparison:
    """Compare the live history with one under construction, which goes to the positions of the live one.

    Of another generation the derivations are not compared.

    Args:
        place: Where the live one is.
        build: Builds the other: its target has a ``history``.
        only: Compare these agents only; None: all.

    Raises:
        ReplayStopped: The build stopped at an event.
        StoreUnavailable: A store does not answer.
        BrokerUnavailable: Kafka does not answer.
    """
    target: Any = build.target
    active = (await place.history.versions.active())[HISTORY]
    same = active.generation == build.target.version.generation
    kinds = KINDS if same else tuple(kind for kind in KINDS if kind != "derived")
    return await _Histories(place.history, target.history, build, only, kinds).compare()


@dataclass(slots=True)
class _Histories:
    """A live history and one under construction.

    Attributes:
        live: The live one.
        rebuilt: The other.
        build: Builds it.
        only: Which agents are compared; None: all.
        kinds: Which kinds of rows.
    """

    live: History
    rebuilt: History
    build: Build
    only: Only | None
    kinds: Collection[str]
    found: list[Difference] = field(default_factory=list)
    different: int = 0
    uncounted: int = 0

    async def compare(self) -> Comparison:
        """Look until it is equal, or the same thing differs twice."""
        if not await self._live_is_ahead():
            return Comparison("history", why_not=_NEVER)
        compared = await self._digests()
        for _ in range(LOOKS):
            unequal = [agent for agent, pair in compared.agents.items() if not pair.equal]
            if not unequal:
                return compared
            compared = await self._digests()
            unequal = [agent for agent in unequal if agent in compared.agents and not compared.agents[agent].equal]
            for agent in unequal:
                await self._rows(agent)
            if self.different:
                differences = tuple(self.found)
                return replace(compared, differences=differences, different=self.different, uncounted=self.uncounted)
        return replace(compared, why_not=_RESTLESS)

    async def _digests(self) -> Comparison:
        """The digests of all agents at the same positions."""
        live = await self.live.examined(kinds=self.kinds)
        positions = await self._go_to(live.checkpoints)
        rebuilt = await self.rebuilt.examined(kinds=self.kinds)
        return Comparison("history", positions, dict(_pairs(live, rebuilt, self.only)))

    async def _go_to(self, checkpoints: Mapping[Place, int]) -> dict[Place, int]:
        """Bring the build to where the live version stands."""
        positions = {place: checkpoints[place] for place in self.build.progress.next if place in checkpoints}
        await self.build.advance(until=positions)
        return positions

    async def _rows(self, agent: Agent) -> None:
        """Find which rows of an agent differ: what does so twice counts."""
        if self.different >= LISTED:
            self.uncounted += 1
            return
        before: dict[RowKey, Difference] | None = None
        for _ in range(2):
            live = await self.live.rows_examined(agent, kinds=self.kinds, max_bytes=KEPT_BYTES)
            await self._go_to(live.checkpoints)
            rebuilt = await self.rebuilt.rows_examined(agent, kinds=self.kinds, max_bytes=KEPT_BYTES)
            unlike = [key for key in _unlike(live, rebuilt) if before is None or key in before]
            before = {key: difference(agent, key, _value(live, key), _value(rebuilt, key)) for key in unlike}
        differences = before or {}
        self.different += len(differences)
        self.found += list(differences.values())[: LISTED - len(self.found)]

    async def _live_is_ahead(self) -> bool:
        """Wait until the live version has passed the build; whether it has."""
        until = time.monotonic() + WAIT_S
        while True:
            reached = await self.live.next_offsets()
            topics = {topic for topic, _ in reached}
            built = {place: offset for place, offset in self.build.progress.next.items() if place[0] in topics}
            if all(offset <= reached.get(place, 0) for place, offset in built.items()):
                return True
            if time.monotonic() > until:
                return False
            await asyncio.sleep(_LOOK_EVERY_S)


def _pairs(live: Examined, rebuilt: Examined, only: Only | None) -> Iterator[tuple[Agent, Pair]]:
    for agent in sorted({*live.by_agent, *rebuilt.by_agent}):
        if only is None or only(agent):
            yield agent, Pair(live.by_agent.get(agent, Digest()), rebuilt.by_agent.get(agent, Digest()))


def _unlike(live: AgentRows, rebuilt: AgentRows) -> list[RowKey]:
    """What is not the same on both sides."""
    keys = sorted({*live.rows, *rebuilt.rows})
    return [
        key
        for key in keys
        if key not in live.rows or key not in rebuilt.rows or live.rows[key].hash != rebuilt.rows[key].hash
    ]


def _value(rows: AgentRows, key: RowKey) -> Mapping[str, Any] | None:
    """A row's values; empty: they were not kept."""
    kept = rows.rows.get(key)
    if kept is None:
        return None
    values: Mapping[str, Any] = {} if kept.line is None else json.loads(kept.line.decode("utf-8", "surrogatepass"))[1]
    return values
