"""Taking over: new versions follow the log closely, until one moment finds none of them behind the live ones."""

import asyncio
import logging
import time
from collections.abc import Sequence

from engramlog.engine.history.versions import Version, Versions
from engramlog.engine.replay.building import Build
from engramlog.schemas.errors import Transient

_log = logging.getLogger(__name__)

PAUSE_S = 0.005
LIMIT_S = 120.0
"""How long they may run behind the live ones, in seconds."""


class NeverAhead(Transient):
    """The new versions did not catch up with the live ones in time; they are complete, and may try again."""


async def take_over(versions: Versions, builds: Sequence[Build], *, limit_s: float = LIMIT_S) -> float:
    """Switch to the versions that were built, all at once.

    Meanwhile they follow the log. The switch is one SQL transaction that does nothing while one of them is behind the
    version it takes over from: readers never go back in time.

    Args:
        versions: The versions.
        builds: What was built, up to nearly the log's end.
        limit_s: For how long it is tried.

    Returns:
        How long it took, in seconds.

    Raises:
        NeverAhead: They were behind all the time.
        ReplayStopped: An event cannot be processed; nothing was switched.
    """
    wanted: list[Version] = [build.target.version for build in builds]
    began, stop = time.monotonic(), asyncio.Event()
    following = [asyncio.create_task(build.follow(stop), name="engramlog-follow") for build in builds]
    try:
        while missing := await versions.switch(wanted):
            if failed := next((task for task in following if task.done()), None):
                failed.result()
            if time.monotonic() - began > limit_s:
                raise NeverAhead(
                    f"after {limit_s:g} s the new versions are still {sum(missing.values()):,} offsets behind the live "
                    "ones; run the same command again when there is less to write"
                )
            await asyncio.sleep(PAUSE_S)
        switched_s = time.monotonic() - began
        await versions.current(wanted)
    finally:
        stop.set()
        ends = await asyncio.gather(*following, return_exceptions=True)
    for error in ends:  # they lost their partitions to the consumers, which go over to the new versions at once
        if isinstance(error, BaseException):
            _log.info("the last of what was followed is left to the consumers: %s", error)
    return switched_s
