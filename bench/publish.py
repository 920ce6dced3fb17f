"""Publishing through the client, against raw aiokafka with the same events and the same encoding."""

import argparse
import asyncio
import time
from typing import Any

from aiokafka import AIOKafkaProducer

from bench.common import Place, make_event, make_records, median, place, run
from engramlog.engine.client import MemoryClient
from engramlog.schemas.codec import records_codec
from engramlog.schemas.keys import partition_for
from engramlog.schemas.records import MemoryRecord


async def raw(where: Place, records: list[MemoryRecord]) -> float:
    """Build, encode and send with nothing but aiokafka; records a second."""
    topics, codec = where.topics, records_codec()
    producer = AIOKafkaProducer(**where.kafka.producer())
    await producer.start()
    try:
        began = time.perf_counter()
        events = [make_event(i, record) for i, record in enumerate(records)]
        futures = [
            await producer.send(
                topics.records,
                codec.encode(e),
                key=e.key(),
                partition=partition_for(e.tenantid, e.agentid, topics.partitions),
            )
            for e in events
        ]
        await asyncio.gather(*futures)
        return len(records) / (time.perf_counter() - began)
    finally:
        await producer.stop()


async def ours(where: Place, records: list[MemoryRecord]) -> float:
    """The same through ``MemoryClient``; records a second."""
    async with MemoryClient(where.kafka, timeout_s=120) as client:
        await client.publish_events([make_event(0, records[0])])
        began = time.perf_counter()
        await client.publish_events([make_event(i, record) for i, record in enumerate(records)])
        return len(records) / (time.perf_counter() - began)


async def one_by_one(where: Place, count: int) -> tuple[float, float]:
    """Latency of one acknowledged record, raw and through the client; medians in milliseconds."""
    topics, codec = where.topics, records_codec()
    took: dict[str, list[float]] = {"raw": [], "ours": []}
    producer = AIOKafkaProducer(**where.kafka.producer())
    await producer.start()
    async with MemoryClient(where.kafka) as client:
        try:
            for i, record in enumerate(make_records(count)):
                event = make_event(i, record)
                partition = partition_for(event.tenantid, event.agentid, topics.partitions)
                began = time.perf_counter()
                await producer.send_and_wait(topics.records, codec.encode(event), key=event.key(), partition=partition)
                between = time.perf_counter()
                await client.publish_events([event])
                took["raw"].append(between - began)
                took["ours"].append(time.perf_counter() - between)
        finally:
            await producer.stop()
    return median(took["raw"]) * 1000, median(took["ours"]) * 1000


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Both in turn, several times; medians."""
    async with place() as where:
        await raw(where, make_records(2_000))
        rates: dict[str, list[float]] = {"raw": [], "ours": []}
        for _ in range(args.rounds):
            rates["raw"].append(await raw(where, make_records(args.records)))
            rates["ours"].append(await ours(where, make_records(args.records)))
        raw_ms, ours_ms = await one_by_one(where, 300)
    raw_rate, our_rate = median(rates["raw"]), median(rates["ours"])
    return {
        "rows": [
            {"what": "raw aiokafka, same encoding", "records/s": raw_rate, "one at a time, ms": raw_ms},
            {"what": "MemoryClient.publish", "records/s": our_rate, "one at a time, ms": ours_ms},
        ],
        "share_of_raw": round(our_rate / raw_rate, 3),
        "aim": "0.8 or more",
    }


def arguments(parser: argparse.ArgumentParser) -> None:
    """How much to measure."""
    parser.add_argument("--records", type=int, default=30_000, help="records in a round (30000)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each (5)")


if __name__ == "__main__":
    run("publish: client against raw aiokafka", measure, arguments=arguments)
