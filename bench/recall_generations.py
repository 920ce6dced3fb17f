"""Two generations of derivations over one log: how well each is recalled, and what readers notice of the change.

``--compare NAME``: the talks are published to an engine, then derived anew by the embedder NAME while it runs and
readers ask on; every question is asked before and after. ``--generation N …``: of a log that exists (``ENGRAMLOG_*``
names it, and its engine does not run if its vectors are embedded), each generation is asked where it lies.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bench.common import median, percentile, place
from bench.recall_inside import TENANT
from bench.recall_metrics import DEEPEST, mean, measures
from bench.recall_talks import Talk
from engramlog.consumers.app import Consumers
from engramlog.engine.client import MemoryClient, Position, Scope
from engramlog.engine.expansion import expanded
from engramlog.engine.history.versions import HISTORY, READY, VECTORS, Projected, Version
from engramlog.engine.replay.opening import Building, Workshop, workshop
from engramlog.engine.replay.rederiving import choose, rederive
from engramlog.engine.retrieve import Retrieval
from engramlog.engine.settings import Settings
from engramlog.engine.wiring import opened_version
from engramlog.schemas.errors import ConfigurationError, EngramlogError
from engramlog.schemas.recalls import RecallQuery

READERS = 4
PAUSE_S = 0.1
SHOWN = ("recall@10", "ndcg@10")
"""In the table; the figures have all measures."""

Ask = Callable[[Talk, str], Awaitable[list[str]]]
Rankings = dict[tuple[str, int], list[str]]


def asked_at(talk: Talk) -> datetime:
    """Questions are asked when the talk has just ended: ages are those that they were then."""
    return max(record.timestamp for _, record in talk.records())


def asking(client: MemoryClient) -> Ask:
    """Questions through a running engine."""

    async def ask(talk: Talk, text: str) -> list[str]:
        found = await client.recall(Scope(TENANT, talk.name), text, limit=DEEPEST, now=asked_at(talk))
        return [hit.stored.record.record_id for hit in found.hits]

    return ask


async def ask_all(ask: Ask, talks: Sequence[Talk]) -> tuple[Rankings, list[float]]:
    """Every question once: the rankings, and how long each took in milliseconds."""
    found, took = {}, []
    for talk in talks:
        for number, question in enumerate(talk.questions):
            began = time.perf_counter()
            found[talk.name, number] = await ask(talk, question.text)
            took.append((time.perf_counter() - began) * 1_000)
    return found, took


async def publish(client: MemoryClient, talks: Sequence[Talk], *, timeout_s: float) -> None:
    """Publish the talks, and wait until all of them can be found."""
    for talk in talks:
        for session, records in talk.sessions:
            await client.publish(Scope(TENANT, talk.name, session), list(records))
    until = time.monotonic() + timeout_s
    for talk in talks:
        # The client waits for what it wrote: until an answer has seen it all, or time is up.
        while (await client.recall(Scope(TENANT, talk.name), talk.questions[0].text)).seen.stale:
            if time.monotonic() > until:
                raise TimeoutError(f"{talk.name} was not indexed within {timeout_s:g} s")


@dataclass(slots=True)
class Readers:
    """Who asks on while everything is derived anew, each with the positions that it has seen."""

    client: MemoryClient
    talks: Sequence[Talk]
    took_ms: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    stale: int = 0

    async def read(self, number: int) -> None:
        """Ask until cancelled."""
        seen: dict[tuple[str, int], int] = {}
        count = number
        while True:
            talk = self.talks[count % len(self.talks)]
            question = talk.questions[count % len(talk.questions)]
            known = [Position(topic, partition, offset) for (topic, partition), offset in seen.items()]
            began = time.perf_counter()
            try:
                found = await self.client.recall(Scope(TENANT, talk.name), question.text, min_positions=known)
            except EngramlogError as error:
                self.failed.append(str(error))
            else:
                self.took_ms.append((time.perf_counter() - began) * 1_000)
                self.stale += found.seen.stale
                seen |= {(p.topic, p.partition): p.offset for p in found.seen.positions}
            count += READERS
            await asyncio.sleep(PAUSE_S)

    def figures(self) -> dict[str, Any]:
        """What they noticed."""
        took = self.took_ms or [0.0]
        return {
            "reads": len(self.took_ms) + len(self.failed),
            "failed": len(self.failed),
            "stale": self.stale,
            "p50_ms": round(median(took), 1),
            "p99_ms": round(percentile(took, 0.99), 1),
            "max_ms": round(max(took), 1),
        }


@asynccontextmanager
async def reading(readers: Readers) -> AsyncIterator[None]:
    """The readers, at work."""
    tasks = [asyncio.create_task(readers.read(n)) for n in range(READERS)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def compared(talks: Sequence[Talk], embedder: str, *, timeout_s: float) -> dict[str, Any]:
    """Ask, derive anew by another embedder under load, and ask again."""
    async with (
        place(partitions=3) as where,
        Consumers(where.settings, ("store", "derive", "index", "answer")),
        MemoryClient(where.kafka, timeout_s=timeout_s) as client,
    ):
        await publish(client, talks, timeout_s=timeout_s)
        before, _ = await ask_all(asking(client), talks)
        readers = Readers(client, talks)
        async with reading(readers), workshop(where.settings) as work:
            began = time.monotonic()
            chosen = await choose(work, where.settings.model_copy(update={"embedder": embedder}))
            done = await rederive(work, chosen, Building.beside(where.settings))
            took_s = time.monotonic() - began
        after, _ = await ask_all(asking(client), talks)
        figures = report(talks, {1: before, done.made.number: after})
        return {
            **figures,
            "rederive_s": round(took_s, 1),
            "derive_s": round(done.lane.seconds, 1),
            "records_per_s": round(done.lane.events_per_s, 1),
            "switch_s": done.outcome.switched_s,
            "readers": readers.figures(),
        }


async def of_generations(talks: Sequence[Talk], numbers: Sequence[int]) -> dict[str, Any]:
    """Ask each generation of a log that exists."""
    settings, rankings = Settings(), dict[int, Rankings]()
    async with workshop(settings) as work:
        for number in numbers:
            async with AsyncExitStack() as stack:
                retrieval = await _retrieval(work, number, stack)

                async def ask(talk: Talk, text: str, retrieval: Retrieval = retrieval) -> list[str]:
                    query = RecallQuery(text=text, limit=DEEPEST, now=asked_at(talk))
                    answer = await retrieval.recall(Scope(TENANT, talk.name), query, max_bytes=10_000_000)
                    return [hit.stored.record.record_id for hit in answer.hits]

                rankings[number], _ = await ask_all(ask, talks)
    return report(talks, rankings)


async def _retrieval(work: Workshop, number: int, stack: AsyncExitStack) -> Retrieval:
    every = await work.history.versions.all()
    history, vectors = (_newest(every, projection, number) for projection in (HISTORY, VECTORS))
    opened, embedder = await opened_version(work.settings, work.history, vectors, stack)
    keys = work.settings.filter_keys()
    return Retrieval(opened, embedder, work.history.of(history), rules=expanded, metadata_keys=keys)


def _newest(every: Sequence[Version], projection: Projected, number: int) -> Version:
    ready = [v for v in every if (v.projection, v.generation, v.state, v.name) == (projection, number, READY, "")]
    if not ready:
        raise ConfigurationError(f"there are no {projection} of generation {number}: engramlog versions")
    return ready[-1]


def report(talks: Sequence[Talk], rankings: dict[int, Rankings]) -> dict[str, Any]:
    """A row a category, with a column a generation of each measure."""
    scored = {
        generation: [
            (question.category, measures(found[talk.name, number], question.expected))
            for talk in talks
            for number, question in enumerate(talk.questions)
        ]
        for generation, found in rankings.items()
    }
    categories = sorted({category for rows in scored.values() for category, _ in rows})
    figures: dict[str, Any] = {}
    for what in ("all", *(categories if len(categories) > 1 else ())):
        figures[what] = {
            f"g{generation}": mean([m for category, m in rows if what in {"all", category}])
            for generation, rows in scored.items()
        }
    rows = [
        {
            "what": what if what == "all" else f"category {what}",
            **{f"{name} {generation}": found[name] for name in SHOWN for generation, found in by.items()},
        }
        for what, by in figures.items()
    ]
    return {"rows": rows, "by_category": figures, "questions": sum(len(talk.questions) for talk in talks)}
