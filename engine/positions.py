"""Waiting until the history has passed given positions: how a client reads its own writes."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from engramlog.engine.history import History
from engramlog.schemas.errors import StoreUnavailable
from engramlog.schemas.queries import Reached

_log = logging.getLogger(__name__)
POLL_S = 0.004
"""Pause between two looks at the checkpoints, while somebody waits."""


class PositionWatch:
    """Looks at the checkpoints while somebody waits; one look serves all who wait.

    Args:
        history: The history store.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._next: dict[tuple[str, int], int] = {}
        self._waiting = 0
        self._looked = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def wait(self, wanted: Sequence[Reached], *, until: float) -> bool:
        """Wait for positions.

        Args:
            wanted: What must have been applied.
            until: Deadline, in the running loop's time.

        Returns:
            Whether all of it has been applied; False: time ran out.
        """
        if self._passed(wanted):
            return True
        self._waiting += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look(), name="engramlog-positions")
        try:
            async with asyncio.timeout_at(until), self._looked:
                await self._looked.wait_for(lambda: self._passed(wanted))
        except TimeoutError:
            return False
        else:
            return True
        finally:
            self._waiting -= 1

    async def stop(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def _passed(self, wanted: Sequence[Reached]) -> bool:
        return all(self._next.get((p.topic, p.partition), 0) > p.offset for p in wanted)

    async def _look(self) -> None:
        while self._waiting:
            try:
                self._next = await self._history.next_offsets()
            except StoreUnavailable as error:
                _log.warning("cannot look at the checkpoints: %s", error)
            else:
                async with self._looked:
                    self._looked.notify_all()
            await asyncio.sleep(POLL_S)
