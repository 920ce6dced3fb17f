"""``store``: log to SQLite, against its limit: raw ``getmany``, decode, and raw SQLite writes of the same rows."""

import argparse
import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from bench import raw_history
from bench.common import Place, make_messages, median, place, run
from engramlog.consumers.app import Consumers
from engramlog.engine.client.publisher import Publisher
from engramlog.engine.history import History
from engramlog.schemas.codec import records_codec

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def limit(where: Place, count: int, *, decode: bool, database: Path | None) -> float:
    """The least that any projection must do; messages a second."""
    codec = records_codec()
    db = raw_history.raw_database(database) if database else None
    consumer = AIOKafkaConsumer(**where.kafka.reader())
    await consumer.start()
    try:
        partitions = [TopicPartition(where.topics.records, p) for p in range(where.topics.partitions)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        seen, began = 0, time.perf_counter()
        while seen < count:
            batches = await consumer.getmany(timeout_ms=1000, max_records=where.settings.max_poll_records)
            for messages in batches.values():
                seen += len(messages)
                if not decode:
                    continue
                rows = []
                for m in messages:
                    event = codec.decode(m.value)
                    happened = (event.data.timestamp - EPOCH) // timedelta(microseconds=1)
                    address = (event.tenantid, event.agentid, event.id, event.sessionid or "", event.userid or "")
                    rows.append((*address, m.offset, m.timestamp, happened, m.value))
                if db is not None:
                    with db:
                        db.executemany(raw_history.RECORDS, rows)
        return count / (time.perf_counter() - began)
    finally:
        await consumer.stop()
        if db is not None:
            db.close()


async def ours(where: Place, count: int, path: Path) -> float:
    """The ``store`` consumer, from the beginning of the log to its end; messages a second."""
    settings = where.settings.model_copy(update={"history_url": f"sqlite:///{path}"})
    watching = History(settings.effective_history_url(), topics=where.topics)
    await watching.start()
    try:
        async with Consumers(settings, ["store"]):
            began, first = None, 0
            while True:
                done = sum(c.next for c in await watching.checkpoints())
                now = time.perf_counter()
                if began is None and done:
                    began, first = now, done
                if done >= count:
                    assert began is not None, "nothing was measured: more records, please"
                    return (done - first) / (now - began)
                await asyncio.sleep(0.05)
    finally:
        await watching.stop()


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Each in turn, several times; medians."""
    rates: dict[str, list[float]] = {"getmany": [], "decode": [], "sqlite": [], "ours": []}
    async with place() as where:
        publisher = Publisher(where.kafka)
        messages = make_messages(where.topics, args.records)
        for i in range(0, len(messages), 10_000):
            await publisher.publish(messages[i : i + 10_000], timeout_s=120)
        await publisher.stop()
        for i in range(args.rounds):
            rates["getmany"].append(await limit(where, args.records, decode=False, database=None))
            rates["decode"].append(await limit(where, args.records, decode=True, database=None))
            rates["sqlite"].append(
                await limit(where, args.records, decode=True, database=where.directory / f"raw{i}.db")
            )
            rates["ours"].append(await ours(where, args.records, where.directory / f"ours{i}.db"))
    medians = {name: median(values) for name, values in rates.items()}
    return {
        "rows": [
            {"what": "raw getmany", "messages/s": medians["getmany"]},
            {"what": "+ decode", "messages/s": medians["decode"]},
            {"what": "+ raw SQLite: the limit", "messages/s": medians["sqlite"]},
            {"what": "store", "messages/s": medians["ours"]},
        ],
        "share_of_limit": round(medians["ours"] / medians["sqlite"], 3),
        "aim": "0.5, then 0.7",
    }


def arguments(parser: argparse.ArgumentParser) -> None:
    """How much to measure."""
    parser.add_argument("--records", type=int, default=100_000, help="records in the log (100000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each (3)")


if __name__ == "__main__":
    run("store: log to SQLite, against the limit", measure, arguments=arguments)
