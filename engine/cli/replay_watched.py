"""Work on versions as it is watched: what is shown of it, and what readers of the engine notice meanwhile."""

from collections.abc import Awaitable
from typing import TypeVar

from engramlog.engine.cli.replay_showing import Showing
from engramlog.engine.history.versions import Version
from engramlog.engine.replay.building import ReplayStopped
from engramlog.engine.replay.opening import Workshop
from engramlog.engine.replay.probing import Probing
from engramlog.engine.replay.replay import OnPhase, Phase, VersionsDiffer
from engramlog.engine.settings import Settings

T = TypeVar("T")


async def shown(work: Awaitable[T], showing: Showing) -> T | None:
    """What the work comes to; None: it stopped at an event, or at a difference, which is shown."""
    try:
        return await work
    except ReplayStopped as stopped:
        showing.stopped(stopped)
    except VersionsDiffer as differ:
        showing.differ(differ)
    return None


def probing_of(settings: Settings, place: Workshop, *, command: str) -> Probing:
    """Readers of the running engine. A context manager."""
    return Probing(
        settings.kafka(client_id=f"engramlog.{command}.probing"),
        place.topics.records,
        partitions=place.cluster.partitions,
        recall=settings.vectors_are_served(),
    )


def telling(showing: Showing, probing: Probing) -> OnPhase:
    """Tells each phase, and lets the readers know: they read from the catching up on."""

    async def on_phase(phase: Phase, version: Version | None) -> None:
        showing.phase(phase, version)
        if phase == "catching_up":
            await probing.start()
        elif phase == "switching":
            probing.switching()
        elif phase == "switched":
            probing.switched()

    return on_phase
