"""``history``: request/reply against a bare echo over Kafka, and its cost as the history grows."""

import argparse
import asyncio
import sys
import time
from contextlib import suppress
from functools import partial
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from bench.common import TEXT, Place, median, percentile, place, run
from engramlog.consumers.app import Consumers
from engramlog.engine.client import MemoryClient, MemoryRecord, Scope
from engramlog.engine.history import History
from engramlog.engine.log import Entry, Run
from engramlog.schemas import envelope, records
from engramlog.schemas.codec import records_codec
from engramlog.schemas.keys import parse_key
from engramlog.schemas.queries import HistoryQuery
from engramlog.schemas.topics import Topics

SIZES = (1_000, 100_000, 1_000_000)
SCOPE = Scope("acme", "agent-1", "s1")
QUIET_S = 3.0
LEFT = 500
"""Records that stay in the window of the large histories; the others are cleared."""


class Echo:
    """The least that request/reply over Kafka can cost: raw aiokafka, the same topics, a body of the same size."""

    def __init__(self, where: Place, body: bytes) -> None:
        self._where, self._body = where, body
        self._producer = AIOKafkaProducer(**where.kafka.producer())

    async def _reader(self, topic: str) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(**self._where.kafka.reader())
        await consumer.start()
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, (await consumer.end_offsets([partition]))[partition])
        await consumer.position(partition)
        return consumer

    async def __aenter__(self) -> Self:
        await self._producer.start()
        self._requests = await self._reader(self._where.topics.queries)
        self._replies = await self._reader(self._where.topics.replies)
        self._server = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.cancel()
        with suppress(asyncio.CancelledError):
            await self._server
        for client in (self._requests, self._replies, self._producer):
            await client.stop()

    async def _serve(self) -> None:
        async for request in self._requests:
            await self._producer.send_and_wait(
                self._where.topics.replies, self._body, key=request.key, partition=0, headers=list(request.headers)
            )

    async def ask(self) -> None:
        """One round trip."""
        await self._producer.send_and_wait(self._where.topics.queries, b"?" * 400, key=b"k", partition=0)
        await self._replies.getone()


async def timed(ask: Any, rounds: int) -> list[float]:
    """Milliseconds of each call."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        await ask()
        took.append((time.perf_counter() - began) * 1000)
    return took


async def settled(client: MemoryClient) -> None:
    """Wait until all can be found by meaning, and no summary has come for some seconds."""
    print("waiting until the engine has derived, indexed and summarised …", file=sys.stderr)
    while (await client.recall(SCOPE, "the meeting", limit=1)).seen.stale:
        pass
    known, until = -1, 0.0
    while time.perf_counter() < until or known < 0:
        found = len((await client.list_summaries(SCOPE)).summaries)
        if found != known:
            known, until = found, time.perf_counter() + QUIET_S
        await asyncio.sleep(0.2)


async def round_trips(where: Place, rounds: int) -> dict[str, list[float]]:
    """Echo and history in turn, so that both meet the same machine; the models have done their work before."""
    took: dict[str, list[float]] = {"echo": [], "history": []}
    async with Consumers(where.settings), MemoryClient(where.kafka, timeout_s=60) as client:
        await client.publish(SCOPE, [MemoryRecord(role="user", content=TEXT) for _ in range(1_000)])
        await settled(client)
        window = await client.history(SCOPE, window=20)
        body = b"x" * sum(len(r.model_dump_json(exclude_none=True)) for r in window.records)
        async with Echo(where, body) as echo:
            await timed(echo.ask, 50)
            for _ in range(10):
                took["echo"] += await timed(echo.ask, rounds // 10)
                took["history"] += await timed(lambda: client.history(SCOPE, window=20), rounds // 10)
    return took


async def fill(history: History, topics: Topics, size: int) -> None:
    """``size`` records of one session, all but the last :data:`LEFT` cleared (of a small history: none)."""
    codec, scope = records_codec(), {"tenant": "acme", "agent": "agent-1", "sessionid": "s1"}
    await history.open_partition(topics.records, 0, cluster_id=None, topic_id=None, end_offset=size + 1)
    offset = 0
    clear_at = size - LEFT if size > 2 * LEFT else None

    async def apply(events: list[Any]) -> None:
        nonlocal offset
        entries = tuple(
            Entry(offset + i, 1_700_000_000_000 + offset + i, parse_key(e.key()), e, codec.encode(e))
            for i, e in enumerate(events)
        )
        await history.apply(Run(topics.records, 0, offset, offset + len(events), entries))
        offset += len(events)

    def written() -> Any:
        return envelope.RecordWritten.of(MemoryRecord(role="user", content=TEXT), source="bench", **scope)

    done = 0
    while done < size:
        count = min(2_000, (clear_at if clear_at and done < clear_at else size) - done)
        await apply([written() for _ in range(count)])
        done += count
        if done == clear_at:
            cleared = envelope.HistoryClearedEvent(
                source="bench", tenantid="acme", agentid="agent-1", sessionid="s1", data=records.HistoryCleared()
            )
            await apply([cleared])


async def by_size(where: Place, sizes: tuple[int, ...], rounds: int) -> list[dict[str, Any]]:
    """The cost of reading ``history(20)`` from SQLite at each size."""
    topics, rows = Topics("bench", 1), []
    for size in sizes:
        history = History(f"sqlite:///{where.directory / f'{size}.db'}", topics=topics)
        await history.start()
        try:
            await fill(history, topics, size)
            read = partial(history.read_history, SCOPE, HistoryQuery(window=20), max_bytes=700_000)
            await read()
            took = await timed(read, rounds)
            rows.append({"stored": size, "p50": median(took), "p99": percentile(took, 0.99)})
        finally:
            await history.stop()
    return rows


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Round trips first, then sizes."""
    async with place(partitions=3) as where:
        took = await round_trips(where, args.rounds)
        sizes = await by_size(where, tuple(args.sizes), 300)
    p50 = {name: median(values) for name, values in took.items()}
    p99 = {name: percentile(values, 0.99) for name, values in took.items()}
    return {
        "rows": [
            {"what": "bare echo over Kafka", "p50, ms": p50["echo"], "p99, ms": p99["echo"]},
            {"what": "history(20) over Kafka", "p50, ms": p50["history"], "p99, ms": p99["history"]},
            *(
                {"what": f"history(20) in SQLite, {r['stored']:,} stored", "p50, ms": r["p50"], "p99, ms": r["p99"]}
                for r in sizes
            ),
        ],
        "times_echo_p50": round(p50["history"] / p50["echo"], 2),
        "times_echo_p99": round(p99["history"] / p99["echo"], 2),
        "largest_against_smallest": round(sizes[-1]["p50"] / sizes[0]["p50"], 2),
        "aim": "1.5 times the echo; flat with size",
    }


def arguments(parser: argparse.ArgumentParser) -> None:
    """How much to measure."""
    parser.add_argument("--rounds", type=int, default=1_000, help="round trips of each (1000)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="stored records (1000 100000 1000000)")


if __name__ == "__main__":
    run("history: request/reply, and its cost as the history grows", measure, arguments=arguments)
