"""Reads of the running engine while versions are switched: what its users would notice, measured."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Literal, Self

from engramlog.engine.client import MemoryClient, Position, Scope
from engramlog.engine.client.asking import Seen
from engramlog.engine.client.connection import KafkaConfig
from engramlog.engine.client.reader import read
from engramlog.schemas.errors import EngramlogError, InvalidEvent
from engramlog.schemas.keys import parse_key

FIRST_ANSWER_S = 2.0
"""Whoever does not answer the first read in this time, in seconds, does not run."""
PER_SECOND = 20
TIMEOUT_S = 10.0
AFTER_S = 3.0
"""For how long after a switch reads go on, in seconds."""
AGENTS = 6
_LOOKED_AT = 2_000
_SLOWEST_KEPT = 20_000

Moment = Literal["before", "during", "after"]
Kind = Literal["history", "stats", "recall"]


@dataclass(slots=True)
class Counted:
    """Reads of one span of time.

    Attributes:
        reads: How many.
        errors: How many were not answered, or refused.
        stale: How many had not seen what an earlier one had seen.
        backwards: How many went back in time for a reader that carries positions, without saying so.
        said: The first few errors.
    """

    reads: int = 0
    errors: int = 0
    stale: int = 0
    backwards: int = 0
    said: list[str] = field(default_factory=list)
    _took_ms: deque[float] = field(default_factory=lambda: deque(maxlen=_SLOWEST_KEPT))

    def took(self, seconds: float) -> None:
        """Count an answer."""
        self._took_ms.append(seconds * 1000)

    def percentile(self, share: float) -> float | None:
        """The latency that this share of the answered reads does not exceed, in ms; None: there were none."""
        ordered = sorted(self._took_ms)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


class Probing:
    """Reads of a few agents that exist, about twenty a second, each with the positions that the last one has seen.

    Args:
        kafka: The cluster.
        records: The topic of the records.
        partitions: Its partitions.
        recall: Whether there are vectors to be asked.

    Attributes:
        why_not: Why there are no reads; None: there are.
        found: What was counted: before the switch, during it, and after.
    """

    def __init__(self, kafka: KafkaConfig, records: str, *, partitions: int, recall: bool) -> None:
        self._kafka = kafka
        self._records = records
        self._partitions = partitions
        self._kinds: tuple[Kind, ...] = ("history", "stats", "recall") if recall else ("history", "stats")
        self._client = MemoryClient(kafka, timeout_s=TIMEOUT_S)
        self._seen: dict[Scope, dict[tuple[str, int], int]] = {}
        self._moment: Moment = "before"
        self._task: asyncio.Task[None] | None = None
        self._switched: float | None = None
        self.why_not: str | None = "there was no switch"
        self.found: Mapping[Moment, Counted] = {"before": Counted(), "during": Counted(), "after": Counted()}

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._client.__aexit__(None, None, None)

    async def start(self) -> None:
        """Begin to read, if somebody answers."""
        scopes = await agents_of(self._kafka, self._records, partitions=self._partitions)
        if not scopes:
            self.why_not = "there is nothing to read yet"
            return
        try:
            await self._client.history(scopes[0], window=1, timeout_s=FIRST_ANSWER_S)
        except EngramlogError as error:
            self.why_not = f"no 'answer' runs ({error})"
            return
        self.why_not = None
        self._task = asyncio.create_task(self._read_on(scopes), name="engramlog-probing")

    def switching(self) -> None:
        """What is read from now on is read during the switch."""
        self._moment = "during"

    def switched(self) -> None:
        """What is read from now on is read after it."""
        self._moment, self._switched = "after", time.monotonic()

    async def finish(self) -> None:
        """Go on for a while after the switch, then stop; every read that was begun is counted."""
        if self._task is None:
            return
        if self._switched is not None:
            await asyncio.sleep(max(0.0, self._switched + AFTER_S - time.monotonic()))
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _read_on(self, scopes: Sequence[Scope]) -> None:
        pending = set[asyncio.Task[None]]()
        number = 0
        try:
            while True:
                scope = scopes[number % len(scopes)]
                kind = self._kinds[number // len(scopes) % len(self._kinds)]
                # A read counts where it begins: one that a switch holds up is one of the switch.
                task = asyncio.create_task(self._read(scope, kind, self.found[self._moment]))
                pending.add(task)
                task.add_done_callback(pending.discard)
                number += 1
                await asyncio.sleep(1 / PER_SECOND)
        finally:
            await asyncio.gather(*pending, return_exceptions=True)

    async def _read(self, scope: Scope, kind: Kind, counted: Counted) -> None:
        before = dict(self._seen.get(scope, {}))
        known = [Position(topic, partition, offset) for (topic, partition), offset in before.items()]
        reads: dict[Kind, Callable[[], Awaitable[Seen | None]]] = {
            "history": lambda: self._history(scope, known),
            "stats": lambda: self._stats(scope, known),
            "recall": lambda: self._recall(scope, known),
        }
        counted.reads += 1
        began = time.monotonic()
        try:
            seen = await reads[kind]()
        except EngramlogError as error:
            counted.errors += 1
            if len(counted.said) < 3:  # noqa: PLR2004 - the first few tell enough
                counted.said.append(f"{kind}: {error}")
            return
        counted.took(time.monotonic() - began)
        if seen is None:
            return
        counted.stale += seen.stale
        here = {(p.topic, p.partition): p.offset for p in seen.positions}
        counted.backwards += not seen.stale and any(here.get(at, offset) < offset for at, offset in before.items())
        best = self._seen.setdefault(scope, {})
        for place, offset in here.items():
            if place[0] == self._records:  # those of other topics are another generation's after a switch
                best[place] = max(offset, best.get(place, -1))

    async def _history(self, scope: Scope, known: Sequence[Position]) -> Seen:
        return (await self._client.history(scope, window=5, min_positions=known)).seen

    async def _stats(self, scope: Scope, known: Sequence[Position]) -> None:
        await self._client.stats(scope, min_positions=known)

    async def _recall(self, scope: Scope, known: Sequence[Position]) -> Seen:
        return (await self._client.recall(scope, "name", limit=3, min_positions=known)).seen


async def agents_of(kafka: KafkaConfig, topic: str, *, partitions: int) -> list[Scope]:
    """A few agents that are in the log, each as somebody who sees all of it.

    Args:
        kafka: The cluster.
        topic: The topic of the records.
        partitions: Its partitions.
    """
    found: dict[tuple[str, str], Scope] = {}
    async with aclosing(read(kafka, topic, partitions=range(partitions))) as messages:
        looked = 0
        async for message in messages:
            looked += 1
            with suppress(InvalidEvent):
                key = parse_key(message.key)
                if key.agent and message.value is not None:
                    found.setdefault((key.tenant, key.agent), Scope(key.tenant, key.agent, users="all"))
            if len(found) >= AGENTS or looked >= _LOOKED_AT:
                break
    return list(found.values())
