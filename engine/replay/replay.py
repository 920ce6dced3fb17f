"""Replay: projections rebuilt beside the live ones, then put in their place."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Literal

from engramlog.engine.history.versions import BUILDING, READY, VECTORS, Projected, Version
from engramlog.engine.replay.building import Build, Progress
from engramlog.engine.replay.differences import Comparison
from engramlog.engine.replay.opening import Building, Workshop
from engramlog.engine.replay.switching import take_over
from engramlog.engine.replay.targets import Place
from engramlog.engine.vectors.opening import collection_of, vector_engine_of
from engramlog.schemas.errors import ConfigurationError, EngramlogError, Permanent

_log = logging.getLogger(__name__)

LEAST_RETENTION_MS = 3_600_000
"""For shorter than this nobody needs to rebuild, even if the topics forget their tombstones sooner."""
RELEASED_WITHIN_S = 20.0
"""How long it may take until the running processes have closed a collection that was taken over from."""
_LOOK_S = 0.5

Phase = Literal["building", "comparing", "catching_up", "switching", "switched", "dropping"]
OnPhase = Callable[[Phase, Version | None], Awaitable[None]]
"""Is told what begins now, and with which version; None: with all of them."""


Compare = Callable[[Build], Awaitable[Comparison | None]]
"""Compares a version that is nearly complete with the live one, at the same positions; None: there is nothing live."""


class VersionsDiffer(Permanent):
    """A new version does not hold what the live one holds, and was not let take over."""

    reason = "versions_differ"

    def __init__(self, version: Version, found: Comparison) -> None:
        self.version = version
        self.found = found
        what = f"could not be compared with the live version ({found.why_not})"
        if not found.why_not:
            live, new = str(found.side("live")), str(found.side("rebuilt"))
            what = f"does not hold what the live version holds: digest {new[:16]}… instead of {live[:16]}…"
        super().__init__(
            f"{version} {what}. Nothing was switched, and what was built is kept. All differences: engramlog verify "
            f"{version.projection}. The log is the truth: let the new version take over with --accept-differences"
        )


@dataclass(slots=True)
class Outcome:
    """What a replay did.

    Attributes:
        built: What was built, with how it went.
        before: What was active before.
        compared: What was compared, and how.
        switched_s: How long the switch took, in seconds; None: nothing was switched.
        dropped: Old versions that were dropped.
        undropped: Old versions that could not be dropped, and why.
    """

    built: list[tuple[Version, Progress]] = field(default_factory=list)
    before: Mapping[Projected, Version] = field(default_factory=dict)
    compared: dict[Projected, Comparison] = field(default_factory=dict)
    switched_s: float | None = None
    dropped: list[Version] = field(default_factory=list)
    undropped: list[tuple[Version, str]] = field(default_factory=list)


async def _silent(_phase: Phase, _version: Version | None) -> None:
    """Nobody is told."""


async def replay(
    place: Workshop,
    projections: Sequence[Projected],
    building: Building,
    *,
    generation: int | None = None,
    compare: Compare | None = None,
    accept_differences: bool = False,
    keep: int = 1,
    switch: bool = True,
    on_phase: OnPhase = _silent,
) -> Outcome:
    """Build the next version of projections, and let them take over, all in one moment.

    Interrupted, it goes on where it stood when it is called again.

    Args:
        place: Where it is built.
        projections: Which.
        building: How.
        generation: Of which generation of derivations; None: of the active one.
        compare: Compares each with the live one before it takes over.
        accept_differences: Whether it takes over all the same where they differ.
        keep: How many older versions of each are kept for a rollback; those before them are dropped.
        switch: Whether they take over; else they stay where the log ends now, and the next call goes on there.
        on_phase: Is told what it is doing.

    Raises:
        ReplayStopped: An event cannot be processed. Nothing was switched.
        VersionsDiffer: A new version holds something else, or could not be compared. Nothing was switched; it is kept.
        NeverAhead: The live versions could not be overtaken in time. Nothing was switched.
    """
    outcome = Outcome(before=await place.history.versions.active())
    async with AsyncExitStack() as stack:
        builds = []
        for projection in projections:
            version = await _begun(place, projection, generation)
            await on_phase("building", version)
            build = await stack.enter_async_context(place.build(version, building))
            builds.append(build)
            outcome.built.append((version, build.progress))
            await build.advance(await _positions_of_live(place, build))
            if compare is not None:
                await on_phase("comparing", version)
                found = await compare(build)
                if found is not None:
                    outcome.compared[projection] = found
                    if not found.equal and not accept_differences:
                        raise VersionsDiffer(version, found)
        if not switch:
            return outcome
        await _switch(place, builds, outcome, on_phase)
    await on_phase("dropping", None)
    outcome.dropped, outcome.undropped = await drop_older(place, projections, keep=keep)
    return outcome


async def replay_until(
    place: Workshop,
    projections: Sequence[Projected],
    building: Building,
    *,
    name: str,
    until: Mapping[Place, int],
    on_phase: OnPhase = _silent,
) -> Outcome:
    """Build read-only versions of projections that end at given offsets. They never take over.

    Interrupted, it goes on where it stood when it is called again with the same name and offsets.

    Args:
        place: Where it is built.
        projections: Which.
        building: How.
        name: What they are called.
        until: By topic and partition, the offset they end at, exclusive; of what is not named they hold nothing.
        on_phase: Is told what it is doing.

    Raises:
        ConfigurationError: There is another version of that name, or the log does not reach so far.
        ReplayStopped: An event cannot be processed.
    """
    outcome = Outcome(before=await place.history.versions.active())
    for projection in projections:
        version = await place.begin(projection, name=name, until=until)
        await on_phase("building", version)
        async with place.build(version, building) as build:
            outcome.built.append((version, build.progress))
            ends = await build.reader.ends()
            wanted = {where: until.get(where, 0) for where in ends}
            if far := sorted(where for where, offset in wanted.items() if offset > ends[where]):
                raise ConfigurationError(f"the log ends before that point, in {far[0][0]}/{far[0][1]}: another log?")
            await build.advance(wanted)
        if version.state != READY:
            await place.history.versions.ready(version)
    return outcome


async def _begun(place: Workshop, projection: Projected, generation: int | None) -> Version:
    """A version to be built. One that was begun so long ago that it may have missed tombstones is begun anew."""
    version = await place.begin(projection, generation=generation)
    if _away_ms(version) > _kept_ms(place):
        _log.warning("%s was begun too long ago: it may hold what was erased since, and is begun anew", version)
        await drop(place, version)
        version = await place.begin(projection, generation=generation)
    return version


async def _switch(place: Workshop, builds: Sequence[Build], outcome: Outcome, on_phase: OnPhase) -> None:
    await on_phase("catching_up", None)
    for build in builds:
        await build.advance()
    await on_phase("switching", None)
    outcome.switched_s = await take_over(place.history.versions, builds)
    await on_phase("switched", None)


async def _positions_of_live(place: Workshop, build: Build) -> Mapping[Place, int]:
    """Where the live version stands: never behind the log's end, where a new one could not be compared with it."""
    version = (await place.history.versions.active())[build.target.version.projection]
    ends = await build.reader.ends()
    other = version.generation != build.target.version.generation  # its derivations are unknown to the live version
    own = place.topics.derived_of(build.target.version.generation) if other else None
    return {
        where: end if where[0] == own else min(end, await build.target.applied_live(where))
        for where, end in ends.items()
    }


async def drop_older(
    place: Workshop, projections: Sequence[Projected], *, keep: int
) -> tuple[list[Version], list[tuple[Version, str]]]:
    """Drop the versions before the active one, but for the last ``keep`` that were active; named ones stay.

    What is still being built stays, too: somebody may be at it.

    Returns:
        What was dropped; and what could not be, with the reason: a process still has it open.
    """
    dropped, undropped = list[Version](), list[tuple[Version, str]]()
    every = await place.history.versions.all()
    for projection in projections:
        older = _before_active(every, projection)
        for version in older[: max(0, len(older) - keep)]:
            try:
                await _dropped_when_free(place, version)
                dropped.append(version)
            except EngramlogError as error:
                undropped.append((version, str(error)))
    return dropped, undropped


async def _dropped_when_free(place: Workshop, version: Version) -> None:
    """Drop a version; one that was taken over from is closed by the running processes a little later."""
    until = time.monotonic() + RELEASED_WITHIN_S
    while True:
        try:
            return await drop(place, version)
        except EngramlogError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(_LOOK_S)


def _before_active(every: Sequence[Version], projection: Projected) -> list[Version]:
    """The complete versions before the active one; last the one that was active last."""
    ours = [v for v in every if v.projection == projection and not v.name and v.state != BUILDING]
    active = next(v for v in ours if v.active)
    return sorted((v for v in ours if v.number < active.number), key=lambda v: (v.current_ms or v.made_ms, v.number))


async def drop(place: Workshop, version: Version) -> None:
    """Drop a version with all that it holds.

    Raises:
        ConfigurationError: It is the active one, or a process has its collection open.
        StoreUnavailable: A store does not answer.
    """
    active = (await place.history.versions.active())[version.projection]
    if active.number == version.number:
        raise ConfigurationError(f"{version} is the active one: switch to another version first")
    made = (await place.history.generations.all()).get(version.generation)
    if version.projection == VECTORS and made is not None:
        spec = collection_of(place.settings, model=made.model, dimension=made.dimension, version=version)
        await vector_engine_of(place.settings).remove(spec)
    await place.history.versions.drop(version)


async def roll_back(
    place: Workshop, projections: Sequence[Projected], building: Building, *, on_phase: OnPhase = _silent
) -> Outcome:
    """Let the versions before the active ones take over again, once they have caught up with the log.

    Raises:
        ConfigurationError: There is no version before, or it has been away for longer than tombstones are kept.
        ReplayStopped: It cannot process an event that came meanwhile. Nothing was switched.
        NeverAhead: The live versions could not be overtaken in time. Nothing was switched.
    """
    outcome = Outcome(before=await place.history.versions.active())
    wanted = await versions_before(place, projections)
    async with AsyncExitStack() as stack:
        builds = []
        for version in wanted:
            await on_phase("building", version)
            build = await _opened_when_free(stack, place, version, building)
            builds.append(build)
            outcome.built.append((version, build.progress))
        await _switch(place, builds, outcome, on_phase)
    return outcome


async def versions_before(place: Workshop, projections: Sequence[Projected]) -> list[Version]:
    """The versions that a rollback of projections goes back to.

    Raises:
        ConfigurationError: There is none; or it has been away for longer than tombstones are kept; or history and
            vectors would be of different generations of derivations.
    """
    every = await place.history.versions.all()
    after = {version.projection: version for version in every if version.active}
    for projection in projections:
        before = _before_active(every, projection)
        if not before:
            raise ConfigurationError(f"there is no older version of {projection} to go back to")
        after[projection] = before[-1]
        check_age(place, before[-1])
    if len({version.generation for version in after.values()}) > 1:
        told = ", ".join(f"{version} is of generation {version.generation}" for version in after.values())
        raise ConfigurationError(f"history and vectors must hold the same derivations ({told}): engramlog rollback all")
    return [after[projection] for projection in projections]


async def _opened_when_free(stack: AsyncExitStack, place: Workshop, version: Version, building: Building) -> Build:
    """Open a version that may have been active a moment ago: a process that still answers from it closes it soon."""
    until = time.monotonic() + RELEASED_WITHIN_S
    while True:
        try:
            return await stack.enter_async_context(place.build(version, building))
        except EngramlogError as error:
            if version.projection != VECTORS or time.monotonic() > until:
                raise
            _log.info("waiting for %s: %s", version, error)
            await asyncio.sleep(_LOOK_S)


def check_age(place: Workshop, version: Version) -> None:
    """Refuse a version that may have missed tombstones.

    Raises:
        ConfigurationError: It was last known to hold all of the log longer ago than the topics keep tombstones.
    """
    kept_ms, away_ms = _kept_ms(place), _away_ms(version)
    if away_ms > kept_ms:
        raise ConfigurationError(
            f"{version} was last known to hold all of the log {away_ms / 86_400_000:.1f} days ago, and tombstones are "
            f"kept for {kept_ms / 86_400_000:g} days: it may hold what was erased since. Rebuild instead: engramlog "
            f"replay {version.projection}"
        )


def _kept_ms(place: Workshop) -> float:
    return max(place.cluster.delete_retention_ms(place.topics.records), LEAST_RETENTION_MS)


def _away_ms(version: Version) -> float:
    return time.time() * 1000 - (version.current_ms or version.made_ms)
