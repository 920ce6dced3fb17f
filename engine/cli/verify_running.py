"""Carrying out ``engramlog verify``."""

from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from engramlog.engine.cli import output
from engramlog.engine.cli.failures import FOUND, OK, UNAVAILABLE
from engramlog.engine.cli.replay_planning import chosen, require_history
from engramlog.engine.cli.replay_showing import Showing
from engramlog.engine.cli.verify_showing import show_comparison, show_digests
from engramlog.engine.history.digest import Agent, Digest
from engramlog.engine.history.versions import HISTORY, VECTORS, Projected
from engramlog.engine.replay.building import ReplayStopped
from engramlog.engine.replay.comparing import Comparison, compare_history, compare_vectors
from engramlog.engine.replay.differences import Place
from engramlog.engine.replay.live_points import live_points
from engramlog.engine.replay.opening import Building, Workshop, workshop
from engramlog.engine.replay.scratch import scratch_build, scratch_directory
from engramlog.engine.settings import Settings


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for.

    Attributes:
        settings: The settings.
        what: ``history``, ``vectors`` or ``all``.
        tenant: This one only; None: all.
        agent: Of the tenant this one only; None: all.
        scratch: Where to rebuild.
        as_json: JSON lines instead of tables.
    """

    settings: Settings
    what: str
    tenant: str | None
    agent: str | None
    scratch: Path
    as_json: bool

    def includes(self, agent: Agent) -> bool:
        """Whether an agent is meant. An erasure of all of a tenant's agents belongs to each."""
        return self.tenant in {None, agent[0]} and (self.agent is None or agent[1] in {self.agent, ""})


async def compare(wanted: Wanted) -> int:
    """Rebuild, and compare. Returns the exit code."""
    require_history(wanted.settings)
    found: list[Comparison] = []
    with Showing(as_json=wanted.as_json) as showing:
        async with AsyncExitStack() as stack:
            place = await stack.enter_async_context(workshop(wanted.settings))
            directory = await stack.enter_async_context(scratch_directory(wanted.scratch))
            for projection in await _that_exist(place, chosen(wanted.what)):
                try:
                    found.append(await _compared(place, projection, directory, showing, wanted))
                except ReplayStopped as stopped:
                    showing.stopped(stopped)
                    return FOUND
    for comparison in found:
        show_comparison(comparison, as_json=wanted.as_json)
    if any(comparison.why_not for comparison in found):
        return UNAVAILABLE
    return OK if all(comparison.equal for comparison in found) else FOUND


async def _compared(
    place: Workshop, projection: Projected, directory: Path, showing: Showing, wanted: Wanted
) -> Comparison:
    only = None if wanted.tenant is None else wanted.includes
    async with scratch_build(place, projection, directory, Building(report=showing.progress)) as build:
        if projection == HISTORY:
            return await compare_history(place, build, only=only)
        return await compare_vectors(place, build, only=only)


async def digests(wanted: Wanted, *, positions: bool) -> int:
    """Print the digests of what is live. Returns the exit code."""
    require_history(wanted.settings)
    async with workshop(wanted.settings) as place:
        for projection in await _that_exist(place, chosen(wanted.what)):
            if projection == HISTORY:
                examined = await place.history.examined(positions=positions)
                by_agent, checkpoints = examined.by_agent, examined.checkpoints
            elif positions:
                by_agent, checkpoints = await _digests_of_vectors(place)
            else:
                continue
            told = {agent: digest for agent, digest in sorted(by_agent.items()) if wanted.includes(agent)}
            show_digests(projection, told, checkpoints, positions=positions, as_json=wanted.as_json)
    return OK


async def _digests_of_vectors(place: Workshop) -> tuple[Mapping[Agent, Digest], Mapping[Place, int]]:
    """Of the points, with the checkpoints before they were read: while they move on, it may hold more."""
    version = (await place.history.versions.active())[VECTORS]
    reached = {(c.topic, c.partition): c.next for c in (await place.history.all_checkpoints())["vectors"]}
    by_agent: dict[Agent, Digest] = {}
    async with live_points(place, version) as live:
        parts: Iterable[Agent | None] = await live.agents() if live.by_agent else [None]
        for part in parts:
            async for point in live.points(part):
                by_agent.setdefault(point.agent, Digest()).add("point", point.hash)
    return by_agent, reached


async def _that_exist(place: Workshop, wanted: tuple[Projected, ...]) -> tuple[Projected, ...]:
    """Without the vectors, where nothing was ever derived: there are none then."""
    version = (await place.history.versions.active())[VECTORS]
    if len(wanted) == 1 or version.generation in await place.history.generations.all():
        return wanted
    output.say("there are no vectors: nothing was derived yet")
    return tuple(projection for projection in wanted if projection != VECTORS)
