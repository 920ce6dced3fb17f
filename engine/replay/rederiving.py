"""Deriving anew: a new generation of derivations of the whole log, and projections of it beside the live ones.

1. The generation is entered with the settings that its models are made of, and gets its topic.
2. A lane (:mod:`engramlog.engine.replay.rederiving_lane`) derives the records, from the first to the last, then
   follows the log.
3. History and vectors of the new generation are built from its topic, and take over in one transaction.
4. The running processes go over to it: the lane works on until their deriver has taken its place.

Live indexing, subscribers and the live deriver notice nothing of 1 and 2. Nothing of the old generation is touched.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from engramlog.engine.client.admin import create_topics, inspect_topics
from engramlog.engine.client.groups import inspect_groups
from engramlog.engine.client.reader import spans
from engramlog.engine.embedders import embedder_of
from engramlog.engine.history.generations import Generation
from engramlog.engine.history.versions import HISTORY, PROJECTED, VECTORS, Projected
from engramlog.engine.replay.building import Build, Progress
from engramlog.engine.replay.comparing import compare_history
from engramlog.engine.replay.differences import Comparison
from engramlog.engine.replay.opening import Building, Workshop
from engramlog.engine.replay.rederiving_lane import BATCH, followed, lane, was_fenced
from engramlog.engine.replay.replay import LEAST_RETENTION_MS, OnPhase, Outcome, replay, roll_back, versions_before
from engramlog.engine.settings import Settings
from engramlog.engine.wiring import settings_of
from engramlog.schemas.errors import ConfigurationError

HANDOVER_S = 15.0
"""How long after a switch a lane goes on for a live deriver that is only just going over."""

_LOOK_S = 0.2

T = TypeVar("T")
OnDeriving = Callable[[Generation], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The generation that is to be derived.

    Attributes:
        made: It.
        resumed: Whether it was begun before.
    """

    made: Generation
    resumed: bool


@dataclass(slots=True)
class Rederived:
    """What was done.

    Attributes:
        made: The generation.
        lane: How its derivation went.
        outcome: What became of the projections.
    """

    made: Generation
    lane: Progress
    outcome: Outcome = field(default_factory=Outcome)


async def active_generation(place: Workshop) -> Generation:
    """The generation that is in use.

    Raises:
        ConfigurationError: Nothing was ever derived in this database.
    """
    number = (await place.history.versions.active())[VECTORS].generation
    made = (await place.history.generations.all()).get(number)
    if made is None:
        raise ConfigurationError(
            "nothing was derived yet: set ENGRAMLOG_EMBEDDER, and run the engine ('engramlog up'); there is nothing "
            "to derive anew"
        )
    return made


async def choose(place: Workshop, settings: Settings, *, again: bool = False) -> Chosen:
    """Which generation these settings are to make: one that was begun with them, else the next. Nothing is written.

    Args:
        place: Where.
        settings: With the new models.
        again: Whether to derive anew also if the generation in use is made with exactly these.

    Raises:
        ConfigurationError: It is, and ``again`` was not said; or the model cannot be used.
        ModelUnavailable: The embedding endpoint does not answer.
    """
    embedder = embedder_of(settings)
    await embedder.start()
    model, dimension = embedder.model, embedder.dimension
    await embedder.stop()
    wanted, active = settings_of(settings), await active_generation(place)
    known = await place.history.generations.all()
    same = [one for one in known.values() if one.holds(model, dimension) and dict(one.settings) == wanted]
    begun = [one for one in same if one.number > active.number and not await _is_too_old(place, one)]
    if begun:
        return Chosen(begun[-1], resumed=True)
    if active in same and not again:
        raise ConfigurationError(
            f"generation {active.number}, which is in use, is made with exactly this ({model}, {dimension} "
            "components): nothing to do. To derive everything anew all the same: --again"
        )
    number = await _free_number(place, max(known) + 1)
    return Chosen(Generation(number, model, dimension, wanted), resumed=False)


async def enter(place: Workshop, chosen: Chosen) -> None:
    """Give a generation its topic, and note it down.

    Raises:
        ConfigurationError: Kafka refuses the topic, or it is not as the table wants it.
        BrokerUnavailable: Kafka does not answer.
    """
    settings, number = place.settings, chosen.made.number
    like = next(state for state in place.cluster.states if state.spec.name == place.topics.derived)
    in_sync = int(like.config.get("min.insync.replicas", "0")) or None
    await create_topics(
        settings.kafka(),
        topics=place.topics,
        generations=[number],
        replication=settings.replication or like.replication,
        min_insync_replicas=settings.min_insync_replicas or in_sync,
    )
    found = (await inspect_topics(settings.kafka(), topics=place.topics, generations=[number])).require()
    name = place.topics.derived_of(number)
    if found.partitions_of(name) != place.cluster.partitions:
        raise ConfigurationError(
            f"the topic {name!r} has {found.partitions_of(name)} partitions, every agent topic must have "
            f"{place.cluster.partitions}: delete it, and run the same command again"
        )
    await place.history.generations.enter(chosen.made)


async def rederive(
    place: Workshop,
    chosen: Chosen,
    building: Building,
    *,
    batch: int = BATCH,
    switch: bool = True,
    accept_differences: bool = False,
    keep: int = 1,
    keep_of: int | None = None,
    on_deriving: OnDeriving | None = None,
    on_phase: OnPhase | None = None,
) -> Rederived:
    """Derive a generation, build the projections of it, and let them take over.

    Interrupted or killed, it goes on where it stood when it is called again.

    Args:
        place: Where.
        chosen: The generation, see :func:`choose`.
        building: How projections are built.
        batch: How many records are derived at once.
        switch: Whether they take over; else the next call lets them.
        accept_differences: Whether they do also if the new history does not hold what was said as the live one does.
        keep: How many older versions are kept.
        keep_of: See :func:`~engramlog.engine.replay.rederiving_lane.lane`.
        on_deriving: Is told when the lane begins.
        on_phase: Is told what else is being done.

    Raises:
        ReplayStopped: An event cannot be processed. Nothing was switched.
        VersionsDiffer: The new history holds something else. Nothing was switched.
        NeverAhead: The live versions could not be overtaken in time. Nothing was switched.
        ConfigurationError: Somebody else derives the same generation.
        ModelUnavailable: A model is away for too long.
    """
    await enter(place, chosen)
    made = chosen.made

    async def compare(build: Build) -> Comparison | None:
        return await _compared(place, build)

    async def work() -> Outcome:
        told: dict[str, Any] = {} if on_phase is None else {"on_phase": on_phase}
        return await replay(
            place,
            PROJECTED,
            building,
            generation=made.number,
            compare=compare,
            accept_differences=accept_differences,
            keep=keep,
            switch=switch,
            **told,
        )

    return await _beside_a_lane(place, made, replace(building, batch=batch), work, on_deriving, keep_of=keep_of)


async def rolled_back(
    place: Workshop,
    projections: Sequence[Projected],
    building: Building,
    *,
    batch: int = BATCH,
    on_deriving: OnDeriving | None = None,
    on_phase: OnPhase | None = None,
) -> Outcome:
    """As :func:`~engramlog.engine.replay.replay.roll_back`, also to versions of an earlier generation of derivations.

    What came since is first derived in that generation, with its own models: readers never go back in time.
    """
    told: dict[str, Any] = {} if on_phase is None else {"on_phase": on_phase}
    wanted = await versions_before(place, projections)
    number = wanted[0].generation
    if number == (await place.history.versions.active())[VECTORS].generation:
        return await roll_back(place, projections, building, **told)
    made = (await place.history.generations.all())[number]
    lane_building = replace(building, batch=batch)
    rederived = await _beside_a_lane(
        place, made, lane_building, lambda: roll_back(place, projections, building, **told), on_deriving
    )
    return rederived.outcome


async def _beside_a_lane(
    place: Workshop,
    made: Generation,
    building: Building,
    work: Callable[[], Coroutine[Any, Any, Outcome]],
    on_deriving: OnDeriving | None,
    *,
    keep_of: int | None = None,
) -> Rederived:
    """Bring a generation up to the log, and keep it there while something is done with it."""
    if on_deriving is not None:
        await on_deriving(made)
    async with lane(place, made, building, keep_of=keep_of) as build:
        await build.advance()
        (live,) = await inspect_groups(place.settings.kafka(), [f"{place.settings.prefix}.derive"])
        async with followed(build) as (_, following):
            outcome = await _unless_it_fails(place, made, following, work())
            if outcome.switched_s is not None and live.members:
                await _hand_over(place, following)
        return Rederived(made, build.progress, outcome)


async def _unless_it_fails(
    place: Workshop, made: Generation, following: "asyncio.Task[None]", work: Coroutine[Any, Any, T]
) -> T:
    """Do something; give it up if the lane fails meanwhile, other than by a live deriver that takes its place."""
    working = asyncio.create_task(work, name="engramlog-rederive")
    try:
        await asyncio.wait({working, following}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done() and (error := following.exception()) is not None:
            active = (await place.history.versions.active())[VECTORS]
            if active.generation != made.number or not was_fenced(error):
                raise error
        return await working
    finally:
        if not working.done():
            working.cancel()
            await asyncio.wait([working])


async def _hand_over(place: Workshop, following: "asyncio.Task[None]") -> None:
    """Let the lane go on until a live deriver, if there is one, has gone over to its generation.

    It joins its group anew for that. Both at once would do no harm, but work for nothing: one fences the other.
    """
    kafka, group_id = place.settings.kafka(), f"{place.settings.prefix}.derive"
    until, away = time.monotonic() + HANDOVER_S, False
    while not following.done() and time.monotonic() < until:
        (group,) = await inspect_groups(kafka, [group_id])
        stable = group.state == "Stable" and any(member.owns for member in group.members)
        if away and stable:
            return
        away = away or not stable
        await asyncio.wait([following], timeout=_LOOK_S)


async def _compared(place: Workshop, build: Build) -> Comparison | None:
    """What was said must be the same; what is derived from it is not."""
    return await compare_history(place, build) if build.target.version.projection == HISTORY else None


async def _is_too_old(place: Workshop, made: Generation) -> bool:
    """Whether a generation may hold what was erased since: it was left alone for longer than tombstones are kept."""
    records = place.topics.records
    ends = await spans(place.settings.kafka(), {records: place.cluster.partitions})
    oldest_ms = time.time() * 1000 - _kept_ms(place)
    return any(
        0 < point.next < ends[records, point.partition].end and point.updated_ms < oldest_ms
        for point in await place.history.derived_checkpoints(made.number)
    )


def _kept_ms(place: Workshop) -> float:
    return max(place.cluster.delete_retention_ms(place.topics.records), LEAST_RETENTION_MS)


async def _free_number(place: Workshop, number: int) -> int:
    """The first number from this one on whose topic holds nothing: an earlier database may have made some."""
    kafka, topics = place.settings.kafka(), place.topics
    while True:
        state = (await inspect_topics(kafka, topics=topics, generations=[number])).states[-1]
        if not state.partitions:
            return number
        held = await spans(kafka, {state.spec.name: state.partitions})
        if not any(span.end for span in held.values()):
            return number
        number += 1
