"""Carrying out a replay or a rollback: built, compared, switched, and what readers noticed of it."""

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from engramlog.engine.cli import output
from engramlog.engine.cli.failures import FOUND, OK
from engramlog.engine.cli.replay_planning import (
    MAY_BE_MISSING,
    Until,
    chosen,
    offsets_until,
    require_history,
    topics_of,
)
from engramlog.engine.cli.replay_showing import Showing
from engramlog.engine.cli.replay_watched import probing_of, shown, telling
from engramlog.engine.history.versions import BUILDING, HISTORY, VECTORS, Projected, Version
from engramlog.engine.replay.building import Build
from engramlog.engine.replay.comparing import Comparison, compare_history, compare_vectors
from engramlog.engine.replay.opening import Building, Workshop, workshop
from engramlog.engine.replay.rederiving import rolled_back
from engramlog.engine.replay.replay import OnPhase, Outcome, Phase, replay, replay_until
from engramlog.engine.settings import Settings
from engramlog.schemas.errors import ConfigurationError, Transient


@dataclass(frozen=True, slots=True)
class Run:
    """What was asked for.

    Attributes:
        settings: The settings.
        what: ``history``, ``vectors`` or ``all``.
        batch: Events a transaction; None: as suits the database.
        dead_letter_new: See :class:`~engramlog.engine.replay.opening.Building`.
        as_json: JSON lines instead of a bar and a table.
    """

    settings: Settings
    what: str
    batch: int | None
    dead_letter_new: bool
    as_json: bool


Work = Callable[[Workshop, tuple[Projected, ...], Building, OnPhase], Awaitable[Outcome]]


async def rebuild(run: Run, *, keep: int, accept_differences: bool) -> int:
    """Build the next versions and switch to them. Returns the exit code."""

    async def work(
        place: Workshop, projections: tuple[Projected, ...], building: Building, on_phase: OnPhase
    ) -> Outcome:
        return await replay(
            place,
            projections,
            building,
            compare=functools.partial(_compared, place),
            accept_differences=accept_differences,
            keep=keep,
            on_phase=on_phase,
        )

    return await _switched(run, work, _that_can_be_built)


async def _compared(place: Workshop, build: Build) -> Comparison | None:
    projection = build.target.version.projection
    try:
        if projection == HISTORY:
            return await compare_history(place, build)
        return await compare_vectors(place, build)
    except ConfigurationError as error:
        output.say(f"{build.target.version} is not compared: {error}")
        return None
    except Transient as error:
        return Comparison(projection, why_not=str(error))


async def go_back(run: Run) -> int:
    """Switch to the versions before. Returns the exit code."""

    async def work(
        place: Workshop, projections: tuple[Projected, ...], building: Building, on_phase: OnPhase
    ) -> Outcome:
        return await rolled_back(place, projections, building, on_phase=on_phase)

    return await _switched(run, work, _that_can_go_back)


async def build_named(run: Run, *, until: Until, name: str) -> int:
    """Build read-only versions that end at a point in the past. Returns the exit code."""
    require_history(run.settings)
    with Showing(as_json=run.as_json) as showing:
        async with workshop(run.settings) as place:
            projections = await _that_can_be_built(place, chosen(run.what))
            active = await place.history.versions.active()
            names = tuple(dict.fromkeys(t for p in projections for t in topics_of(place.topics, active[p])))
            ends = await offsets_until(run.settings, names, place.cluster.partitions, until)

            async def on_phase(phase: Phase, version: Version | None) -> None:
                showing.phase(phase, version)

            work = replay_until(place, projections, _building(run, showing), name=name, until=ends, on_phase=on_phase)
            if (outcome := await shown(work, showing)) is None:
                return FOUND
        showing.named(outcome, name, MAY_BE_MISSING)
    return OK


async def _switched(
    run: Run, work: Work, those_of: Callable[[Workshop, tuple[Projected, ...]], Awaitable[tuple[Projected, ...]]]
) -> int:
    require_history(run.settings)
    with Showing(as_json=run.as_json) as showing:
        async with workshop(run.settings) as place:
            projections = await those_of(place, chosen(run.what))
            async with probing_of(run.settings, place, command="replay") as probing:
                doing = work(place, projections, _building(run, showing), telling(showing, probing))
                if (outcome := await shown(doing, showing)) is None:
                    return FOUND
                await probing.finish()
        showing.done(outcome, probing)
    return OK


def _building(run: Run, showing: Showing) -> Building:
    return Building.beside(run.settings, batch=run.batch, dead_letter_new=run.dead_letter_new, report=showing.progress)


async def _that_can_be_built(place: Workshop, wanted: tuple[Projected, ...]) -> tuple[Projected, ...]:
    """Without the vectors, where nothing was ever derived: there are none then."""
    version = (await place.history.versions.active())[VECTORS]
    if len(wanted) == 1 or version.generation in await place.history.generations.all():
        return wanted
    output.say("there are no vectors to build: nothing was derived yet")
    return tuple(projection for projection in wanted if projection != VECTORS)


async def _that_can_go_back(place: Workshop, wanted: tuple[Projected, ...]) -> tuple[Projected, ...]:
    """Those that have an older version, if several are meant."""
    every = await place.history.versions.all()
    active = {v.projection: v.number for v in every if v.active}
    older = {v.projection for v in every if v.number < active[v.projection] and v.state != BUILDING and not v.name}
    if len(wanted) == 1:
        return wanted
    if not older:
        raise ConfigurationError("there is no older version to go back to ('engramlog versions')")
    for projection in wanted:
        if projection not in older:
            output.say(f"{projection} stays: there is no older version of it")
    return tuple(projection for projection in wanted if projection in older)
