"""Consumers that can be stopped at any moment.

aiokafka cancels its background tasks and awaits them. Two of them let the cancellation out: a fetch that pauses after
the broker failed it, and the task of a consumer without a group that has not yet run. ``consumer.stop()`` then raises
``CancelledError``, though nobody cancelled its caller, and leaves the connections open. Here they end as aiokafka's
other tasks do.
"""

import asyncio
from typing import Any

from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.group_coordinator import NoGroupCoordinator

_fetch = Fetcher._proc_fetch_request  # noqa: SLF001 - aiokafka has no setting for it
_close = NoGroupCoordinator.close


def tolerate() -> None:
    """From now on, consumers of this process stop so. May be called any number of times."""
    Fetcher._proc_fetch_request = _cancellable_fetch  # noqa: SLF001 - as above
    NoGroupCoordinator.close = _close_before_it_ran


async def _cancellable_fetch(self: Fetcher, *request: Any) -> bool:
    try:
        fetched: bool = await _fetch(self, *request)
    except asyncio.CancelledError:  # it is stopped or has lost the partition, as when it waits for the broker
        return False
    return fetched


async def _close_before_it_ran(self: NoGroupCoordinator) -> None:
    task = asyncio.current_task()
    cancelled = task.cancelling() if task is not None else 0
    try:
        await _close(self)
    except asyncio.CancelledError:
        if task is not None and task.cancelling() > cancelled:
            raise
