"""The edge ticker: it says on the log when nothing was said in a session for a while, so that a replay agrees."""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress

from engramlog.engine.history.summarising import Idle, SummarisingState
from engramlog.engine.making import SummaryLog
from engramlog.engine.summaries import SOURCE
from engramlog.schemas.envelope import SessionIdledEvent
from engramlog.schemas.errors import EngramlogError
from engramlog.schemas.records import SessionIdled

_log = logging.getLogger(__name__)

TICK_S = 10.0
_LOOK_BACK_MS = 24 * 60 * 60 * 1000
"""How long ago a session may have fallen idle while no process ran."""
_NAMESPACE = uuid.UUID("c1f2c7d4-4d6e-5c39-9b0a-2f6b7f9a1e55")


class Ticker:
    """Publishes ``session.idled`` for the partitions that this process owns.

    An event's id is a function of the session's newest turn: published again after a restart it is the same event.

    Args:
        state: Knows when each session's newest turn was recorded.
        log: Where the events go.
        partitions: The partitions that this process owns, as they are at each look.
        idle_s: After how long a session is idle, in seconds.
        tick_s: Pause between two looks, in seconds.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        state: SummarisingState,
        log: SummaryLog,
        partitions: Callable[[], Collection[int]],
        *,
        idle_s: float,
        tick_s: float = TICK_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state, self._log, self._partitions = state, log, partitions
        self._idle_s, self._tick_s, self._clock = idle_s, tick_s, clock
        self._looked_ms: int | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look, if it was not begun."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="engramlog-ticker")

    async def stop(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def tick(self) -> int:
        """Look once.

        Returns:
            How many sessions fell idle since the last look.

        Raises:
            StoreUnavailable: The state cannot be read.
            BrokerUnavailable: The log does not take an event; the next look sees the same sessions.
        """
        until_ms = round((self._clock() - self._idle_s) * 1000)
        after_ms = until_ms - _LOOK_BACK_MS if self._looked_ms is None else self._looked_ms
        partitions = self._partitions()
        if not partitions or until_ms <= after_ms:
            return 0
        idle = await self._state.fell_idle(partitions, after_ms=after_ms, until_ms=until_ms)
        for session in idle:
            await self._log.publish(session.partition, None, [self._event(session)])
        self._looked_ms = until_ms
        return len(idle)

    def _event(self, session: Idle) -> SessionIdledEvent:
        name = "\0".join((session.tenant, session.agent, session.session, str(session.position)))
        return SessionIdledEvent(
            id=str(uuid.uuid5(_NAMESPACE, name)),
            source=SOURCE,
            tenantid=session.tenant,
            agentid=session.agent,
            sessionid=session.session,
            data=SessionIdled(idle_s=self._idle_s),
        )

    async def _run(self) -> None:
        while True:
            try:
                await self.tick()
            except EngramlogError as error:
                _log.warning("idle sessions are looked for again: %s", error)
            await asyncio.sleep(self._tick_s)
