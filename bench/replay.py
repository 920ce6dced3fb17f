"""Replay of history and vectors, in events a second, against its limits in the same run.

``python -m bench.replay --records 100000 [--sizes 10000 300000] [--only vectors] [--json FILE]``. The log lies in a
real Apache Kafka: records, and what would have been derived of them (random unit vectors; texts whose words are as
common as words are).

- The limit of the history: raw ``getmany`` of the same topics, decoding, and raw SQLite writes of the same rows.
- The limit of the vectors: raw ``getmany``, decoding, and plain upserts into Qdrant Edge in this process.
- Digests: each replay's, in batches of several sizes, and those of what live consumers do, must be equal.
"""

import argparse
import asyncio
import base64
import shutil
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import qdrant_edge
from aiokafka import AIOKafkaConsumer, TopicPartition

from bench import raw_history
from bench.common import Place, agent_name, median, place, run
from bench.meaning import bare_shard, random_vectors, sentences
from engramlog.consumers.app import Consumers
from engramlog.engine.client.publisher import Outgoing, Publisher
from engramlog.engine.decoding import Decoder
from engramlog.engine.history import History
from engramlog.engine.history.generations import Generation
from engramlog.engine.history.versions import HISTORY, VECTORS, Projected
from engramlog.engine.history.view import microseconds
from engramlog.engine.ports import CollectionSpec
from engramlog.engine.replay.opening import Building, Workshop, workshop
from engramlog.engine.terms import term_counts
from engramlog.engine.vectors import translate
from engramlog.engine.vectors.edge import new_points
from engramlog.engine.vectors.points import upsert_of
from engramlog.schemas.codec import derived_codec, records_codec
from engramlog.schemas.derived import Derived, RecordDerived, Vectors, Watermark, WatermarkPassed
from engramlog.schemas.envelope import RecordWritten
from engramlog.schemas.keys import partition_for
from engramlog.schemas.records import MemoryRecord

MODEL = "random"
CHUNK = 5_000
BATCHES = (2_000, 500, 5_000)
START = datetime(2026, 3, 1, tzinfo=UTC)
RAW_BATCH = 500


@dataclass
class Log:
    """The log that is replayed; it grows.

    Attributes:
        where: The cluster and its topics.
        dimension: Components of the vectors.
        records: How many records it has.
        ends: How many there are in each partition.
    """

    where: Place
    dimension: int
    records: int = 0
    ends: dict[int, int] = field(default_factory=dict)

    async def grow(self, count: int) -> None:
        """Publish until there are so many records, each with its derivation."""
        publisher = Publisher(self.where.kafka)
        while self.records < count:
            size = min(CHUNK, count - self.records)
            print(f"publishing {self.records + size:,} of {count:,} records …", end="\r", file=sys.stderr)
            await publisher.publish(self._chunk(size), timeout_s=300)
            self.records += size
        await publisher.stop()
        print(file=sys.stderr)

    def _chunk(self, size: int) -> list[Outgoing]:
        topics, found = self.where.topics, list[Outgoing]()
        texts = sentences(size, seed=self.records)
        vectors = random_vectors(size, self.dimension, seed=self.records)
        for n, text in enumerate(texts):
            i = self.records + n
            agent = agent_name(i)
            partition = partition_for("acme", agent, topics.partitions)
            record = MemoryRecord(
                record_id=f"r{i}",
                role="user" if i % 2 == 0 else "assistant",
                content=f"{i} {text}",
                timestamp=START + timedelta(seconds=i),
            )
            session = f"s{i // 2_000}"
            written = RecordWritten.of(
                record, source="bench", tenant="acme", agent=agent, sessionid=session, time=START
            )
            offset = self.ends.get(partition, 0)
            self.ends[partition] = offset + 1
            terms, length = term_counts(record.content)
            derived = RecordDerived(
                id=f"d{i}",
                source="bench",
                time=START,
                tenantid="acme",
                agentid=agent,
                sessionid=session,
                data=Derived(
                    record_id=record.record_id,
                    offset=offset,
                    turn=i % 50,
                    role=record.role,
                    timestamp=record.timestamp,
                    topic=f"topic {i // 20}",
                    importance=0.5,
                    embedding=Vectors(
                        model=MODEL,
                        dimension=self.dimension,
                        values=base64.b64encode(vectors[n].tobytes()).decode(),
                        spans=((0, len(record.content)),),
                    ),
                    terms=terms,
                    length=length,
                    deriver="bench",
                ),
            )
            found.append(Outgoing(topics.records, partition, written.key(), records_codec().encode(written)))
            found.append(Outgoing(topics.derived, partition, derived.key(), derived_codec().encode(derived)))
        for partition, end in self.ends.items():
            mark = WatermarkPassed(
                id=f"watermark-{partition}", source="bench", time=START, data=Watermark(partition=partition, next=end)
            )
            found.append(Outgoing(topics.derived, partition, mark.key(), derived_codec().encode(mark)))
        return found


@asynccontextmanager
async def raw(where: Place, names: Sequence[str]) -> AsyncIterator[Any]:
    """Batches of raw messages of topics, from their beginnings to their ends."""
    consumer = AIOKafkaConsumer(**where.kafka.reader() | {"max_partition_fetch_bytes": 8 * 1024 * 1024})
    await consumer.start()

    async def batches() -> AsyncIterator[Sequence[Any]]:
        partitions = [TopicPartition(name, p) for name in names for p in range(where.topics.partitions)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        await consumer.seek_to_beginning(*partitions)
        pending = {tp for tp in partitions if ends[tp]}
        while pending:
            for tp, messages in (await consumer.getmany(timeout_ms=1000, max_records=BATCHES[0])).items():
                yield messages
                if await consumer.position(tp) >= ends[tp]:
                    pending.discard(tp)

    try:
        yield batches()
    finally:
        await consumer.stop()


async def history_limit(where: Place, file: Path, *, write: bool) -> float:
    """Events a second: the least that a replay of the history must do."""
    decoder = Decoder(
        {where.topics.records: records_codec(), where.topics.derived: derived_codec()}, where.topics.partitions
    )
    db = raw_history.raw_database(file) if write else None
    seen, began = 0, time.perf_counter()
    async with raw(where, [where.topics.records, where.topics.derived]) as batches:
        async for messages in batches:
            seen += len(messages)
            entries = [decoder.entry(message) for message in messages]
            if db is not None:
                _write(db, entries)
    spent = time.perf_counter() - began
    if db is not None:
        db.close()
    return seen / spent


def _write(db: sqlite3.Connection, entries: Sequence[Any]) -> None:
    records, derived = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    for entry in entries:
        event, key = entry.event, entry.key
        address = (key.tenant, key.agent, key.record_id)
        if isinstance(event, RecordWritten):
            times = (entry.recorded_ms, microseconds(event.data.timestamp))
            records.append((*address, event.sessionid or "", event.userid or "", entry.offset, *times, entry.value))
        elif isinstance(event, RecordDerived):
            data = event.data
            where = (event.sessionid or "", event.userid or "", 0, data.offset, entry.offset)
            told = (data.topic or "", data.importance, data.language or "", microseconds(data.timestamp))
            derived.append((*address, *where, *told))
    with db:
        db.executemany(raw_history.RECORDS, records)
        db.executemany(raw_history.DERIVED, derived)


async def vectors_limit(log: Log, directory: Path, *, write: bool) -> float:
    """Events a second: the least that a replay of the vectors must do."""
    where, spec = log.where, CollectionSpec("bare", MODEL, log.dimension)
    decoder = Decoder({where.topics.derived: derived_codec()}, where.topics.partitions)
    shard = bare_shard(directory, log.dimension) if write else None
    seen, began = 0, time.perf_counter()
    async with raw(where, [where.topics.derived]) as batches:
        async for messages in batches:
            seen += len(messages)
            entries = [decoder.entry(message) for message in messages]
            if shard is None:
                continue
            upserts = [
                upsert_of(entry.event, sequence=entry.offset, partition=0)
                for entry in entries
                if isinstance(entry.event, RecordDerived)
            ]
            for i in range(0, len(upserts), RAW_BATCH):
                points = [translate.point_of(point) for point in new_points(upserts[i : i + RAW_BATCH], spec)]
                shard.update(qdrant_edge.UpdateOperation.upsert_points(points))
    if shard is not None:
        shard.flush()
    spent = time.perf_counter() - began
    if shard is not None:
        shard.close()
    return seen / spent


@asynccontextmanager
async def node(log: Log, directory: Path) -> AsyncIterator[Workshop]:
    """An empty node in a directory."""
    await asyncio.to_thread(directory.mkdir)
    where = log.where.settings.model_copy(update={"data_dir": directory, "history_url": None})
    async with workshop(where) as found:
        await found.history.generations.enter(Generation(1, MODEL, log.dimension))
        yield found
    shutil.rmtree(directory)


async def ours(
    log: Log, directory: Path, projection: Projected, batch: int, *, closely: bool = False
) -> tuple[float, str]:
    """Events a second of a replay, and the digest of what it built."""
    async with node(log, directory) as found:
        version = await found.begin(projection)
        async with found.build(version, Building(batch=batch)) as build:
            build.target.closely = closely
            began = time.perf_counter()
            await build.advance()
            rate = sum(build.progress.next.values()) / (time.perf_counter() - began)
            digest = await _digest(found, build)
    return rate, digest


async def _digest(found: Workshop, build: Any) -> str:
    version = build.target.version
    if version.projection == HISTORY:
        return await found.history.of(version).digest()
    return str(await build.target.vectors.digest())


async def live_history(log: Log, directory: Path) -> str:
    """The digest of what the running ``store`` makes of the log."""
    await asyncio.to_thread(directory.mkdir)
    settings = log.where.settings.model_copy(update={"data_dir": directory, "history_url": None})
    history = History(settings.effective_history_url(), topics=log.where.topics)
    await history.start()
    try:
        async with Consumers(settings, ["store"]):
            wanted = 2 * log.records
            while sum((await history.next_offsets()).values()) < wanted:  # noqa: ASYNC110 - a database has no event
                await asyncio.sleep(0.1)
            await asyncio.sleep(1)  # the last watermarks
        return await history.digest()
    finally:
        await history.stop()
        shutil.rmtree(directory)


@dataclass
class Measured:
    """A projection, at one size of log.

    Attributes:
        projection: Which.
        records: How many records the log had.
        rates: Events a second of each round: ``ours``, the ``limit``, and what ``read``ing and decoding alone make.
        digests: What each replay had built.
    """

    projection: Projected
    records: int
    rates: dict[str, list[float]] = field(default_factory=dict)
    digests: set[str] = field(default_factory=set)

    @property
    def share(self) -> float:
        """Ours, of the limit."""
        return median(self.rates["ours"]) / median(self.rates["limit"])

    def row(self) -> dict[str, Any]:
        """As it is shown."""
        return {
            "what": f"{self.projection}, {self.records:,} records",
            "events/s": median(self.rates["ours"]),
            "limit/s": median(self.rates["limit"]),
            "share": self.share,
            "read+decode/s": median(self.rates["read"]),
        }

    async def round(self, log: Log, batch: int) -> None:
        """Measure once: ours after the limit, so that both meet the same machine."""
        root, history = log.where.directory, self.projection == HISTORY
        for name, write in (("read", False), ("limit", True)):
            store = root / f"raw-{self.projection}"
            limit = history_limit(log.where, store, write=write) if history else vectors_limit(log, store, write=write)
            self.rates.setdefault(name, []).append(await limit)
        await asyncio.to_thread(_remove, store)
        rate, digest = await ours(log, root / f"ours-{self.projection}", self.projection, batch)
        self.rates.setdefault("ours", []).append(rate)
        self.digests.add(digest)


def _remove(store: Path) -> None:
    shutil.rmtree(store) if store.is_dir() else store.unlink()


async def measure_size(log: Log, rounds: int, *, main: bool, only: Sequence[Projected]) -> list[Measured]:
    """One size of log."""
    found = [Measured(projection, log.records) for projection in only]
    for i in range(rounds):
        print(f"{log.records:,} records, round {i + 1} of {rounds} …", file=sys.stderr)
        for measured in found:
            await measured.round(log, BATCHES[i % len(BATCHES)] if main else BATCHES[0])
    return found


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Each size in turn; the shares are those of ``--records``."""
    only: Sequence[Projected] = (HISTORY, VECTORS) if args.only is None else (args.only,)
    every: list[Measured] = []
    async with place() as where:
        log = Log(where, args.dimension)
        for size in sorted({*args.sizes, args.records}):
            await log.grow(size)
            main = size == args.records
            found = await measure_size(log, args.rounds if main else 1, main=main, only=only)
            every += found
            for measured in found if main else ():
                await _as_live(log, measured)
            if not main and any(len(measured.digests) != 1 for measured in found):
                raise RuntimeError("replays of one log differ")
    chosen = [measured for measured in every if measured.records == args.records]
    return {
        "rows": [measured.row() for measured in every],
        **{f"{one.projection}_share_of_limit": round(one.share, 3) for one in chosen},
        "digests_equal": all(len(one.digests) == 1 for one in chosen),
        "events_per_s": {measured.row()["what"]: round(measured.row()["events/s"]) for measured in every},
        "dimension": args.dimension,
        "aim": "history 0.5, vectors 0.7, flat from 10,000 to 300,000",
    }


async def _as_live(log: Log, measured: Measured) -> None:
    """Add the digest of what is made of the log as it is live."""
    root = log.where.directory
    if measured.projection == HISTORY:
        measured.digests.add(await live_history(log, root / "live"))
    else:
        _, digest = await ours(log, root / "live-vectors", VECTORS, 500, closely=True)
        measured.digests.add(digest)


def arguments(parser: argparse.ArgumentParser) -> None:
    """How much to measure."""
    parser.add_argument("--records", type=int, default=100_000, help="records of the main measurement (100000)")
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=[10_000, 300_000], help="other sizes of log (10000 300000)"
    )
    parser.add_argument("--only", choices=[HISTORY, VECTORS], help="one projection only (both)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the main measurement (3)")
    parser.add_argument("--dimension", type=int, default=384, help="components of the vectors (384)")


if __name__ == "__main__":
    run("replay: history and vectors from the log, against the limits", measure, arguments=arguments)
