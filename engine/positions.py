"""Waiting until a projection has passed given positions: how a client reads its own writes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from engramlog.schemas.errors import StoreUnavailable
from engramlog.schemas.queries import Reached

_log = logging.getLogger(__name__)
POLL_S = 0.004
"""Least pause between two looks at the checkpoints, while somebody waits."""
POLL_SHARE = 0.05
"""Of the time that the newest of them has waited: what a pause grows to. Derivations can be long in coming, and looking
for them all the time takes the processor from what makes them."""
SLOWEST_POLL_S = 0.1
WAIT_S = 10.0
"""How long a consumer waits for the history that must have passed what it applies, before it tries again."""


class PositionWatch:
    """Looks at the checkpoints while somebody waits; one look serves all who wait.

    Args:
        look: Tells the next offset of every (topic, partition) of the projection.

    Attributes:
        look: The same, for whoever wants to know now.
    """

    def __init__(self, look: Callable[[], Awaitable[Mapping[tuple[str, int], int]]]) -> None:
        self.look = look
        self._next: Mapping[tuple[str, int], int] = {}
        self._waiting = 0
        self._asked_at = 0.0
        self._asked = asyncio.Event()
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
        self._asked_at = asyncio.get_running_loop().time()
        self._asked.set()
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

    async def passed(self, topic: str, partition: int, offset: int) -> None:
        """Wait until the history has passed an offset.

        Raises:
            StoreUnavailable: It has not in 10 s.
        """
        place = Reached(topic=topic, partition=partition, offset=offset)
        if not await self.wait([place], until=asyncio.get_running_loop().time() + WAIT_S):
            raise StoreUnavailable(f"the history has not passed {topic}/{partition}@{offset} yet")

    def forget(self) -> None:
        """What was seen was seen of something else: look again."""
        self._next = {}

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
            self._asked.clear()
            try:
                self._next = await self.look()
            except StoreUnavailable as error:
                _log.warning("cannot look at the checkpoints: %s", error)
            else:
                async with self._looked:
                    self._looked.notify_all()
            await self._pause()

    async def _pause(self) -> None:
        """A pause that grows as long as nobody new comes to wait."""
        await asyncio.sleep(POLL_S)
        waited_s = asyncio.get_running_loop().time() - self._asked_at
        with suppress(TimeoutError):
            async with asyncio.timeout(min(SLOWEST_POLL_S, POLL_SHARE * waited_s) - POLL_S):
                await self._asked.wait()
