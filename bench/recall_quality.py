"""How well memories are found: LoCoMo's questions, or facts with paraphrased questions, through the running engine.

Talks are published as events, one agent each; questions are asked over the reply topic. BM25 alone, vectors alone and
their reciprocal rank fusion come from the same terms and vectors, searched directly. ``--offline`` leaves Kafka out.
``--compare`` and ``--generation`` compare generations of derivations: see :mod:`bench.recall_generations`.
"""

import argparse
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.common import median, percentile, place, run
from bench.recall_generations import Ask, ask_all, asked_at, asking, compared, of_generations, publish
from bench.recall_inside import TENANT, Everything, KeptEmbedder, filled, single_ways
from bench.recall_metrics import DEEPEST, mean, measures
from bench.recall_talks import Talk, load
from engramlog.consumers.app import Consumers
from engramlog.engine.client import MemoryClient, Scope
from engramlog.engine.embedders import embedder_of
from engramlog.engine.ports import Embedder
from engramlog.engine.retrieve import Retrieval
from engramlog.engine.settings import Settings
from engramlog.engine.vectors.vectors import Vectors
from engramlog.schemas.recalls import RecallQuery

ARMS = ("ours", "bm25", "dense", "rrf")


@asynccontextmanager
async def running(talks: Sequence[Talk], *, timeout_s: float) -> AsyncIterator[Ask]:
    """The engine, with the talks published to it."""
    async with (
        place(partitions=3) as where,
        Consumers(where.settings),
        MemoryClient(where.kafka, timeout_s=timeout_s) as client,
    ):
        await publish(client, talks, timeout_s=timeout_s)
        yield asking(client)


def inside(talks: Sequence[Talk], vectors: Vectors, embedder: Embedder) -> Ask:
    """The retrieval itself, without Kafka."""
    retrieval = Retrieval(vectors, embedder, Everything(talks))

    async def ask(talk: Talk, text: str) -> list[str]:
        query = RecallQuery(text=text, limit=DEEPEST, now=asked_at(talk))
        answer = await retrieval.recall(Scope(TENANT, talk.name), query, max_bytes=10_000_000)
        return [hit.stored.record.record_id for hit in answer.hits]

    return ask


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All arms over all questions."""
    talks = load(args.data, args.questions)
    if args.limit is not None:
        talks = [Talk(t.name, t.sessions, t.questions[: args.limit]) for t in talks]
    if args.talks is not None:
        talks = talks[: args.talks]
    if args.generation:
        return await of_generations(talks, args.generation)
    if args.compare is not None:
        return await compared(talks, args.compare, timeout_s=args.timeout_s)
    embedder = KeptEmbedder(embedder_of(Settings()), args.cache)
    await embedder.start()
    with tempfile.TemporaryDirectory(prefix="engramlog-bench-") as name:
        async with filled(talks, embedder, Path(name)) as vectors:
            rankings = {
                (talk.name, number): await single_ways(vectors, embedder, talk, question.text)
                for talk in talks
                for number, question in enumerate(talk.questions)
            }
            if args.offline:
                ours, took = await ask_all(inside(talks, vectors, embedder), talks)
    await embedder.stop()
    if not args.offline:
        async with running(talks, timeout_s=args.timeout_s) as ask:
            ours, took = await ask_all(ask, talks)
    for key, ranking in ours.items():
        rankings[key]["ours"] = ranking
    return report(talks, rankings, took)


def report(
    talks: Sequence[Talk], rankings: dict[tuple[str, int], dict[str, list[str]]], took: Sequence[float]
) -> dict[str, Any]:
    """The table (all arms, then ours by category and by talk), and the figures."""
    scored = [
        (arm, talk.name, question.category, measures(rankings[talk.name, number][arm], question.expected))
        for arm in ARMS
        for talk in talks
        for number, question in enumerate(talk.questions)
    ]
    figures: dict[str, Any] = {arm: mean([m for a, _, _, m in scored if a == arm]) for arm in ARMS}
    categories = sorted({category for _, _, category, _ in scored})
    figures["by_category"] = {
        category: {arm: mean([m for a, _, c, m in scored if (a, c) == (arm, category)]) for arm in ARMS}
        for category in categories
    }
    figures["by_talk"] = {
        talk.name: mean([m for a, name, _, m in scored if (a, name) == ("ours", talk.name)]) for talk in talks
    }
    rows = [{"what": arm, **figures[arm]} for arm in ARMS]
    if len(categories) > 1:
        rows += [
            {"what": f"{arm}, category {category}", **figures["by_category"][category][arm]}
            for category in categories
            for arm in ARMS
        ]
        rows += [{"what": f"ours, {name}", **row} for name, row in figures["by_talk"].items()]
    latency = {"p50_ms": round(median(took), 1), "p99_ms": round(percentile(took, 0.99), 1)}
    return {"rows": rows, **figures, "latency": latency, "questions": len(took)}


def arguments(parser: argparse.ArgumentParser) -> None:
    """What to measure."""
    parser.add_argument("--data", type=Path, required=True, help="LoCoMo's JSON, or facts as JSON lines")
    parser.add_argument("--questions", type=Path, help="questions to the facts (default: beside them)")
    parser.add_argument("--offline", action="store_true", help="without Kafka: the retrieval over the embedded store")
    parser.add_argument("--cache", type=Path, help="file to keep vectors in between runs (.npz)")
    parser.add_argument("--limit", type=int, help="at most so many questions of each talk")
    parser.add_argument("--talks", type=int, help="at most so many talks")
    parser.add_argument("--compare", metavar="NAME", help="then derive anew by this embedder, and ask again")
    parser.add_argument("--generation", type=int, nargs="+", metavar="N", help="ask these of the log that exists")
    parser.add_argument("--timeout-s", type=float, default=600.0, help="limit of publishing and indexing (600)")


if __name__ == "__main__":
    run("recall: how well memories are found", measure, arguments=arguments)
