"""Reading named projections: memory as it was, built by a replay that ended at given positions."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from engramlog.engine.contexts import Contexts
from engramlog.engine.history import History
from engramlog.engine.history.versions import HISTORY, READY, VECTORS, Projected, Version
from engramlog.engine.retrieve import Retrieval
from engramlog.schemas.errors import EngramlogError, RequestRefused

_log = logging.getLogger(__name__)

IDLE_S = 60.0
"""A collection that nobody asked for so long is closed: whoever wants to drop it can."""

OpenRetrieval = Callable[[AsyncExitStack, History, Version], Awaitable[Retrieval]]
"""Opens the vectors of a version; what is to be closed goes onto the stack."""


@dataclass(slots=True)
class Reading:
    """A named projection that is open.

    Attributes:
        history: Its history.
        contexts: What makes contexts from it.
        retrieval: What searches it; None: it has no vectors, or this process cannot open them.
        numbers: The versions that it consists of.
        used_at: When it was last asked, in the running loop's time.
        stack: What is closed with it.
    """

    history: History
    contexts: Contexts
    retrieval: Retrieval | None
    numbers: tuple[int, ...]
    used_at: float
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)


class Named:
    """The named projections that are being asked.

    Args:
        history: The history that is in use.
        open_retrieval: Opens the vectors of a version; None: this process has no vectors.
    """

    def __init__(self, history: History, open_retrieval: OpenRetrieval | None) -> None:
        self._history = history
        self._open_retrieval = open_retrieval
        self._open: dict[str, Reading] = {}
        self._opening = asyncio.Lock()
        self._closer: asyncio.Task[None] | None = None

    async def reading(self, name: str) -> Reading:
        """A projection, opened if it is not.

        Raises:
            RequestRefused: There is none of that name.
            StoreUnavailable: It cannot be opened now.
        """
        found = await self._history.versions.named(name)
        history = found.get(HISTORY)
        if history is None or history.state != READY:
            raise RequestRefused(
                "not_found",
                f"there is no projection {name!r}; 'engramlog versions' lists them, 'engramlog replay --until … --name "
                f"{name}' builds one",
            )
        numbers = tuple(version.number for version in found.values())
        async with self._opening:
            known = self._open.get(name)
            if known is not None and known.numbers != numbers:  # dropped, and built anew under the same name
                await self._close(name)
                known = None
            if known is None:
                known = await self._opened(history, found, numbers)
                self._open[name] = known
        known.used_at = asyncio.get_running_loop().time()
        if self._closer is None or self._closer.done():
            self._closer = asyncio.create_task(self._close_idle(), name="engramlog-named")
        return known

    async def _opened(self, history: Version, found: dict[Projected, Version], numbers: tuple[int, ...]) -> Reading:
        stack, pinned, retrieval = AsyncExitStack(), self._history.of(history), None
        vectors = found.get(VECTORS)
        if vectors is not None and vectors.state == READY and self._open_retrieval is not None:
            try:
                retrieval = await self._open_retrieval(stack, pinned, vectors)
            except BaseException:
                await stack.aclose()
                raise
        return Reading(pinned, Contexts(pinned, retrieval), retrieval, numbers, 0.0, stack)

    async def stop(self) -> None:
        """Close them all."""
        if self._closer is not None:
            self._closer.cancel()
            await asyncio.gather(self._closer, return_exceptions=True)
        for name in list(self._open):
            await self._close(name)

    async def _close(self, name: str) -> None:
        try:
            await self._open.pop(name).stack.aclose()
        except EngramlogError as error:
            _log.warning("closing the projection %r: %s", name, error)

    async def _close_idle(self) -> None:
        while self._open:
            await asyncio.sleep(IDLE_S / 4)
            async with self._opening:
                now = asyncio.get_running_loop().time()
                for name in [name for name, one in self._open.items() if now - one.used_at > IDLE_S]:
                    await self._close(name)
