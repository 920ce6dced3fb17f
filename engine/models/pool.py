"""Several endpoints as one: in turn, with failover, retries, deadlines and circuit breakers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from engramlog.engine.models.breaker import Breaker
from engramlog.engine.models.dialects import Dialect
from engramlog.engine.models.openai_endpoint import Endpoint, Overloaded
from engramlog.schemas.errors import ModelUnavailable, Permanent

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

ROUNDS = 4
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 8.0


@dataclass(slots=True)
class Slot:
    """An endpoint and what is known about it.

    Attributes:
        endpoint: The endpoint.
        breaker: Whether it may be asked.
        not_before: When it wants to be asked again (``Retry-After``), on the pool's clock.
        dialect: How it takes questions for structured answers.
    """

    endpoint: Endpoint
    breaker: Breaker = field(default_factory=Breaker)
    not_before: float = 0.0
    dialect: Dialect = field(default_factory=Dialect)


class Pool:
    """Asks the endpoints in turn until one answers.

    A round asks every endpoint that may be asked once; between rounds there is a pause of 0.25 s that doubles up to
    8 s, half of it random, and at least until the first ``Retry-After`` has passed. After four rounds, or when the
    next pause would end behind the deadline, or when all endpoints rest, it is :class:`ModelUnavailable`.

    Args:
        endpoints: At least one.
        concurrency: How many questions are under way at once.
        clock: Monotonic seconds.
        sleep: Waits for so many seconds.
        chance: A random number from 0 to 1, for the pauses.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        *,
        concurrency: int,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        chance: Callable[[], float],
    ) -> None:
        self.slots = tuple(Slot(endpoint) for endpoint in endpoints)
        self._free = asyncio.Semaphore(concurrency)
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._turn = 0

    def now(self) -> float:
        """The pool's clock, in seconds."""
        return self._clock()

    async def ask(self, question: Callable[[Slot], Awaitable[Answer]], *, timeout_s: float) -> Answer:
        """The first answer.

        Raises:
            ModelUnavailable: None within ``timeout_s``.
            Permanent: What an endpoint refused for good, as ``question`` raises it; no other one is asked.
        """
        deadline = self._clock() + timeout_s
        last: ModelUnavailable | None = None
        for attempt in range(ROUNDS):
            for slot in self._in_turn():
                try:
                    return await self._asked(slot, question, deadline)
                except ModelUnavailable as error:
                    last = error
            await self._pause(attempt, deadline, last)
        raise _exhausted(f"no answer in {ROUNDS} rounds", last)

    def _in_turn(self) -> list[Slot]:
        """Those that may be asked now; another one begins each time."""
        start, now = self._turn, self._clock()
        self._turn = (start + 1) % len(self.slots)
        slots = self.slots[start:] + self.slots[:start]
        return [slot for slot in slots if slot.not_before <= now and slot.breaker.allows(now)]

    async def _pause(self, attempt: int, deadline: float, last: ModelUnavailable | None) -> None:
        now = self._clock()
        awake = [slot for slot in self.slots if slot.breaker.allows(now)]
        if not awake:
            raise _exhausted("every endpoint rests after failures", last)
        if attempt == ROUNDS - 1:
            return
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**attempt)
        pause = max(longest * (1 + self._chance()) / 2, min(slot.not_before for slot in awake) - now)
        if now + pause >= deadline:
            raise _exhausted(f"the next try would be in {pause:.1f} s, behind the deadline", last)
        await self._sleep(pause)

    async def _asked(self, slot: Slot, question: Callable[[Slot], Awaitable[Answer]], deadline: float) -> Answer:
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock())):
                await self._free.acquire()
        except TimeoutError:
            raise ModelUnavailable("too many questions wait for the model endpoints") from None
        try:
            now = self._clock()
            if not slot.breaker.allows(now):  # it failed for others while we waited
                raise ModelUnavailable(f"{slot.endpoint.name} rests after failures")
            return await self._timed(slot, question, self._share(slot, deadline - now, now))
        finally:
            self._free.release()

    def _share(self, slot: Slot, remaining_s: float, now: float) -> float:
        """How long this one may take: half of what is left while another could take over."""
        others = any(other is not slot and other.breaker.allows(now) for other in self.slots)
        return max(0.0, remaining_s / 2 if others else remaining_s)

    async def _timed(self, slot: Slot, question: Callable[[Slot], Awaitable[Answer]], limit_s: float) -> Answer:
        slot.breaker.begin()
        try:
            async with asyncio.timeout(limit_s):
                answer = await question(slot)
        except (TimeoutError, ModelUnavailable) as error:
            self._failed(slot, error)
            if isinstance(error, ModelUnavailable):
                raise
            raise ModelUnavailable(f"{slot.endpoint.name} gave no answer within {limit_s:.1f} s") from None
        except Permanent:
            slot.breaker.succeeded()
            raise
        except BaseException:
            slot.breaker.gave_up()
            raise
        slot.breaker.succeeded()
        return answer

    def _failed(self, slot: Slot, error: Exception) -> None:
        now = self._clock()
        slot.breaker.failed(now)
        if isinstance(error, Overloaded) and error.retry_after_s is not None:
            slot.not_before = now + error.retry_after_s
        if not slot.breaker.allows(now):
            log.warning("%s does not answer and rests", slot.endpoint.name)


def _exhausted(why: str, last: ModelUnavailable | None) -> ModelUnavailable:
    return ModelUnavailable(why if last is None else f"{last} ({why})")
