"""What meaning costs: ``derive`` against the bare model, ``index`` against the bare store, ``recall`` by size.

``python -m bench.meaning [--sizes 1000 10000 100000] [--json FILE]``. No Kafka: runs are handed over in memory, so that
the figures are those of the work itself. Vectors of the large stores are random; texts are sentences of many words, so
that terms are as rare and as common as in talk.
"""

import argparse
import base64
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import qdrant_edge

from bench.common import percentile, run
from engramlog.engine.derivation import DeriveConfig, Outgoing
from engramlog.engine.derive import Deriving
from engramlog.engine.embedders import embedder_of
from engramlog.engine.history import History
from engramlog.engine.index import Indexing
from engramlog.engine.log import Entry, Run
from engramlog.engine.ports import CollectionSpec, Embedder, Matrix
from engramlog.engine.retrieve import Retrieval
from engramlog.engine.settings import Settings
from engramlog.engine.terms import term_counts
from engramlog.engine.vectors import translate
from engramlog.engine.vectors.edge import EdgeEngine, new_points
from engramlog.engine.vectors.points import FLOATS, INTEGERS, KEYWORDS, TIMES, upsert_of
from engramlog.engine.vectors.vectors import Vectors
from engramlog.schemas.codec import derived_codec, records_codec
from engramlog.schemas.derived import Derived, RecordDerived, Watermark, WatermarkPassed
from engramlog.schemas.derived import Vectors as Packed
from engramlog.schemas.envelope import RecordWritten
from engramlog.schemas.keys import Key
from engramlog.schemas.recalls import RecallQuery
from engramlog.schemas.records import MemoryRecord
from engramlog.schemas.scope import Scope
from engramlog.schemas.topics import Topics

START = datetime(2026, 3, 1, tzinfo=UTC)
TOPICS = Topics("memory", 1)
BATCH = 500
DERIVED_AT_ONCE = 64
QUESTIONS = 100


def sentences(count: int, *, seed: int) -> list[str]:
    """Sentences whose words are as common as words are (Zipf)."""
    rng = np.random.default_rng(seed)
    words = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "ai") for c in "bdfgklmnprstvz"]
    ranks = np.minimum(rng.zipf(1.2, size=(count, 14)) - 1, 50_000)
    return [
        f"{i}: " + " ".join(f"{words[r % len(words)]}{r // len(words) or ''}" for r in row)
        for i, row in enumerate(ranks)
    ]


def written(texts: Sequence[str]) -> list[RecordWritten]:
    """Records of fifty sessions' length each."""
    return [
        RecordWritten.of(
            MemoryRecord(
                record_id=f"r{i}",
                role="user" if i % 2 == 0 else "assistant",
                content=text,
                timestamp=START + timedelta(minutes=i),
            ),
            source="bench",
            tenant="acme",
            agent="helper",
            sessionid=f"s{i // 50}",
            time=START,
        )
        for i, text in enumerate(texts)
    ]


def runs(topic: str, events: Sequence[Any], size: int) -> Iterator[Run]:
    """The events as runs of a partition."""
    for begin in range(0, len(events), size):
        part = events[begin : begin + size]
        entries = tuple(
            Entry(
                begin + n,
                round(START.timestamp() * 1000) + begin + n,
                Key("acme", "helper", record_id=getattr(event.data, "record_id", None) or event.id),
                event,
                (records_codec() if isinstance(event, RecordWritten) else derived_codec()).encode(event),
            )
            for n, event in enumerate(part)
        )
        yield Run(topic, 0, begin, begin + len(part), entries)


@dataclass
class MemoryLog:
    """Takes what is derived."""

    messages: list[Outgoing] = field(default_factory=list)

    async def publish(self, _partition: int, messages: Sequence[Outgoing]) -> None:
        """Take it."""
        self.messages += messages


async def opened(directory: Path) -> History:
    """A history."""
    history = History(f"sqlite:///{directory}/history.db", topics=TOPICS)
    await history.start()
    return history


async def measure_derive(embedder: Embedder, count: int, directory: Path) -> dict[str, Any]:
    """Records a second through ``derive``, and texts a second through the model alone, twice each, taking turns."""
    events = written(sentences(count, seed=1))
    texts = [event.data.content for event in events]
    history = await opened(directory)
    rates: dict[str, list[float]] = {"derive": [], "model": []}
    for turn in range(2):
        began = time.perf_counter()
        for i in range(0, count, DERIVED_AT_ONCE):
            await embedder.passages(texts[i : i + DERIVED_AT_ONCE])
        rates["model"].append(count / (time.perf_counter() - began))
        deriving = Deriving(history, embedder, MemoryLog(), DeriveConfig(generation=turn + 1))
        await deriving.open_partition(TOPICS.records, 0, cluster_id=None, topic_id=None, end_offset=count)
        began = time.perf_counter()
        for one in runs(TOPICS.records, events, DERIVED_AT_ONCE):
            await deriving.apply(one)
        rates["derive"].append(count / (time.perf_counter() - began))
        await deriving.stop()
    await history.stop()
    ours, limit = max(rates["derive"]), max(rates["model"])
    return {
        "what": f"derive ({embedder.model}), {count:,} records",
        "rate/s": ours,
        "limit/s": limit,
        "share": ours / limit,
    }


def derived(count: int, vectors: Matrix, *, seed: int) -> list[RecordDerived]:
    """What would have been derived of random sentences."""
    chance = random.Random(seed)
    found: list[RecordDerived] = []
    for i, event in enumerate(written(sentences(count, seed=seed))):
        terms, length = term_counts(event.data.content)
        data = Derived(
            record_id=event.data.record_id,
            offset=i,
            turn=i % 50,
            role=event.data.role,
            timestamp=event.data.timestamp,
            topic=f"topic {i // 20}",
            importance=chance.random(),
            embedding=Packed(
                model="random",
                dimension=vectors.shape[1],
                values=base64.b64encode(vectors[i].tobytes()).decode(),
                spans=((0, 80),),
            ),
            terms=terms,
            length=length,
            deriver="bench",
        )
        found.append(
            RecordDerived(
                id=f"d{i}",
                source="bench",
                time=START,
                tenantid="acme",
                agentid="helper",
                sessionid=event.sessionid,
                data=data,
            )
        )
    return found


def random_vectors(count: int, dimension: int, *, seed: int) -> Matrix:
    """Unit vectors."""
    rows = np.random.default_rng(seed).standard_normal((count, dimension)).astype("<f4")
    found: Matrix = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found


def bare_shard(directory: Path, dimension: int) -> Any:
    """A Qdrant Edge of this process with the indexes that ours has: what limits are measured with."""
    collection: translate.Collection = {
        "dimension": dimension,
        "keywords": list(KEYWORDS),
        "integers": list(INTEGERS),
        "floats": list(FLOATS),
        "times": list(TIMES),
    }
    directory.mkdir()
    shard = qdrant_edge.EdgeShard.create(str(directory), translate.config_of(collection))
    for key, kind in translate.indexes_of(collection).items():
        shard.update(qdrant_edge.UpdateOperation.create_field_index(key, kind))
    return shard


def bare_upserts(events: Sequence[RecordDerived], dimension: int, directory: Path) -> float:
    """Points a second into Qdrant Edge in this process: same points and indexes, no condition, no process between."""
    spec = CollectionSpec("bare", "random", dimension)
    shard = bare_shard(directory, dimension)
    upserts = [upsert_of(event, sequence=i, partition=0, metadata_keys=()) for i, event in enumerate(events)]
    points = [translate.point_of(p) for p in new_points(upserts, spec)]
    began = time.perf_counter()
    for i in range(0, len(points), BATCH):
        shard.update(qdrant_edge.UpdateOperation.upsert_points(points[i : i + BATCH]))
    shard.flush()
    rate = len(points) / (time.perf_counter() - began)
    shard.close()
    return rate


async def measure_index(count: int, dimension: int, directory: Path) -> dict[str, Any]:
    """Points a second through ``index`` into the embedded store, flushed; and into a bare Edge."""
    events = derived(count, random_vectors(count, dimension, seed=2), seed=2)
    limit = bare_upserts(events, dimension, directory / "bare")
    history = await opened(directory)
    engine = EdgeEngine(directory / "vectors")
    await engine.start(CollectionSpec("bench", "random", dimension))
    indexing = Indexing(Vectors(engine), history.vectors("vectors_v1_g1"), records=TOPICS.records)
    await indexing.open_partition(TOPICS.derived, 0, cluster_id=None, topic_id=None, end_offset=count)
    began = time.perf_counter()
    for one in runs(TOPICS.derived, events, BATCH):
        await indexing.apply(one)
    await indexing.flush()
    ours = count / (time.perf_counter() - began)
    await indexing.stop()
    await engine.stop()
    await history.stop()
    return {"what": f"index, {count:,} records", "rate/s": ours, "limit/s": limit, "share": ours / limit}


class Answered:
    """An embedder whose questions cost nothing: what recall takes without the model's own time."""

    def __init__(self, inner: Embedder, vectors: dict[str, Matrix]) -> None:
        self.model, self.dimension, self.chunk_chars = inner.model, inner.dimension, inner.chunk_chars
        self._vectors = vectors

    async def start(self) -> None:
        """Nothing to start."""

    async def stop(self) -> None:
        """Nothing to stop."""

    async def passages(self, texts: Sequence[str]) -> Matrix:
        """As they were made before."""
        return np.vstack([self._vectors[text] for text in texts])

    async def query(self, text: str) -> Matrix:
        """As it was made before."""
        return self._vectors[text]


async def measure_recall(embedder: Embedder, count: int, directory: Path) -> list[dict[str, Any]]:
    """``recall`` among ``count`` records of one tenant, with the history that decides; with the model and without."""
    events = derived(count, random_vectors(count, embedder.dimension, seed=3), seed=3)
    records = written(sentences(count, seed=3))
    history = await opened(directory)
    await history.open_partition(TOPICS.records, 0, cluster_id=None, topic_id=None, end_offset=count)
    for one in runs(TOPICS.records, records, 2_000):
        await history.apply(one)
    engine = EdgeEngine(directory / "vectors")
    await engine.start(CollectionSpec("bench", "random", embedder.dimension))
    vectors = Vectors(engine)
    indexing = Indexing(vectors, history.vectors("vectors_v1_g1"), records=TOPICS.records)
    await indexing.open_partition(TOPICS.derived, 0, cluster_id=None, topic_id=None, end_offset=count + 1)
    for one in runs(TOPICS.derived, events, BATCH):
        await indexing.apply(one)
    mark = WatermarkPassed(id="w", source="bench", time=START, data=Watermark(partition=0, next=count))
    await indexing.apply(
        Run(TOPICS.derived, 0, count, count + 1, (Entry(count, 0, Key("~", "", event_id="0"), mark, b""),))
    )
    await indexing.flush()
    questions = [" ".join(text.split()[1:6]) for text in sentences(QUESTIONS, seed=4)]
    known = {question: await embedder.query(question) for question in questions}
    ways = {
        "without the model": Retrieval(vectors, Answered(embedder, known), history),
        "with the model": Retrieval(vectors, embedder, history),
    }
    times: dict[str, list[float]] = {what: [] for what in ways}
    for n, question in enumerate(questions):  # taking turns, each first every other time: caches favour who is second
        for what in sorted(ways, reverse=n % 2 == 0):
            asked = question if what == "without the model" else f"{question} {n}"  # not one that is cached
            began = time.perf_counter()
            await ways[what].recall(Scope("acme", "helper"), RecallQuery(text=asked, now=START), max_bytes=700_000)
            times[what].append((time.perf_counter() - began) * 1000)
    found = [
        {
            "what": f"recall among {count:,}, {what}",
            "p50 ms": percentile(took[5:], 0.5),
            "p99 ms": percentile(took[5:], 0.99),
        }
        for what, took in times.items()
    ]
    await indexing.stop()
    await engine.stop()
    await history.stop()
    return found


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All of it."""
    embedder = embedder_of(Settings(embedder=args.embedder))
    await embedder.start()
    rows: list[dict[str, Any]] = []
    try:
        no_times = {"p50 ms": "", "p99 ms": ""}
        with tempfile.TemporaryDirectory(prefix="engramlog-bench-") as name:
            rows.append(await measure_derive(embedder, args.texts, Path(name)) | no_times)
        with tempfile.TemporaryDirectory(prefix="engramlog-bench-") as name:
            rows.append(await measure_index(args.points, embedder.dimension, Path(name)) | no_times)
        for size in args.sizes:
            with tempfile.TemporaryDirectory(prefix="engramlog-bench-") as name:
                blank = {"what": "", "rate/s": "", "limit/s": "", "share": ""}
                rows += [blank | row for row in await measure_recall(embedder, size, Path(name))]
    finally:
        await embedder.stop()
    return {"rows": rows}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The benchmark's own arguments."""
    parser.add_argument("--embedder", default="auto", help="as ENGRAMLOG_EMBEDDER")
    parser.add_argument("--texts", type=int, default=300, help="records for derive")
    parser.add_argument("--points", type=int, default=10_000, help="records for index")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="records for recall")


if __name__ == "__main__":
    run("What meaning costs", measure, arguments=arguments)
