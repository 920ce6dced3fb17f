"""``stall``: what a talk notices of a language model that stalls: publish, history and recall, healthy and stalled."""

import argparse
import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from bench.common import Place, median, percentile, place, run
from engramlog.consumers.app import Consumers
from engramlog.engine.client import MemoryClient, MemoryRecord, Scope
from tests.model_server import ModelServer, model_server

SCOPE = Scope("acme", "agent-1", "s1")
ANYWHERE = Scope("acme", "agent-1")
KNOWN = 500
"""Records that are indexed before anything is measured."""
ANSWER = {
    "topic": "travel",
    "importance": 0.5,
    "keywords": ["travel"],
    "entities": [],
    "relations": [],
    "language": "en",
}
CITIES = ("Porto", "大连", "Vienna", "北京", "Oslo", "Lima", "上海", "Nairobi")
Took = Mapping[str, Sequence[float]]


def said(number: int) -> MemoryRecord:
    """Something that is told."""
    city = CITIES[number % len(CITIES)]
    return MemoryRecord(role="user", content=f"{number}: I will travel to {city} and stay in hotel {number % 97}.")


class Talk:
    """One client that tells, and one that asks for what is known already: it waits for nothing that was just told."""

    def __init__(self, teller: MemoryClient, asker: MemoryClient) -> None:
        self._teller, self._asker = teller, asker
        self._numbers = itertools.count(KNOWN)

    async def go_on(self, seconds: float, *, each_s: float) -> Took:
        """Milliseconds of each call, one round every ``each_s`` seconds."""
        took: dict[str, list[float]] = defaultdict(list)
        ends = time.monotonic() + seconds
        while (began := time.monotonic()) < ends:
            for name, call in self._round(next(self._numbers)).items():
                took[name].append(await _timed(call))
            await asyncio.sleep(max(0.0, began + each_s - time.monotonic()))
        return took

    def _round(self, number: int) -> dict[str, Callable[[], Awaitable[Any]]]:
        question = f"who stays in hotel {number % 89} in {CITIES[number % len(CITIES)]}?"
        return {
            "publish": lambda: self._teller.publish(SCOPE, said(number)),
            "own words read (store)": lambda: self._teller.history(SCOPE, window=1),
            "history(20)": lambda: self._asker.history(SCOPE, window=20),
            "recall": lambda: self._asker.recall(ANYWHERE, question),
        }


async def _timed(call: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    await call()
    return (time.perf_counter() - began) * 1000


async def phases(where: Place, server: ModelServer, args: argparse.Namespace) -> tuple[Took, Took, float]:
    """Healthy, then stalled; and how long it took afterwards until everything was derived and could be found."""
    async with (
        Consumers(where.settings),
        MemoryClient(where.kafka, timeout_s=120) as teller,
        MemoryClient(where.kafka, timeout_s=120) as asker,
    ):
        await teller.publish(SCOPE, [said(number) for number in range(KNOWN)])
        found = await teller.recall(ANYWHERE, "hotel", timeout_s=600)
        assert not found.seen.stale
        talk = Talk(teller, asker)
        await talk.go_on(3.0, each_s=args.each_s)
        healthy = await talk.go_on(args.seconds, each_s=args.each_s)
        server.stall_s = args.stall_s
        stalled = await talk.go_on(args.seconds, each_s=args.each_s)
        server.resume()
        began = time.monotonic()
        while (await teller.recall(ANYWHERE, "hotel", timeout_s=60)).seen.stale:
            pass
        return healthy, stalled, time.monotonic() - began


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Both phases in one run, so that they meet the same machine."""
    with model_server() as server:
        server.chat = lambda _body: ANSWER
        llm = {"deriver": "llm", "llm_urls": server.url, "llm_model": "pseudo"}
        async with place(partitions=3, embedder=args.embedder, **llm) as where:
            healthy, stalled, caught_up_s = await phases(where, server, args)
    rows = []
    for name, values in healthy.items():
        row: dict[str, Any] = {"what": name, "n": len(values)}
        for share, of in (("p50", median), ("p99", lambda v: percentile(v, 0.99))):
            row |= {f"{share} healthy, ms": of(values), f"{share} stalled, ms": of(stalled[name])}
            row[f"{share} ratio"] = of(stalled[name]) / of(values)
        rows.append(row)
    return {
        "rows": rows,
        "caught_up_s": round(caught_up_s, 2),
        "stall_s": args.stall_s,
        "asked_of_the_model": server.count("chat/completions"),
        "aim": "1.5 times at p99; derive catches up by itself",
    }


def arguments(parser: argparse.ArgumentParser) -> None:
    """How much to measure."""
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each phase (30)")
    parser.add_argument("--stall-s", type=float, default=30.0, help="how long the stalled model lets wait (30)")
    parser.add_argument("--each-s", type=float, default=0.1, help="one round every so many seconds (0.1)")
    parser.add_argument("--embedder", default="auto", help="the embedder (auto)")


if __name__ == "__main__":
    run("stall: what a talk notices of a language model that stalls", measure, arguments=arguments)
