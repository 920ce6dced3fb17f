"""``answer``: answers the requests of ``memory.queries`` from the history."""

import asyncio

from engramlog.consumers.agent_log import KafkaAgentLog
from engramlog.consumers.requests import Requests
from engramlog.consumers.wire import Wiring, subscribe
from engramlog.engine.answer import Answers
from engramlog.engine.commands import Commands
from engramlog.engine.positions import PositionWatch
from engramlog.schemas.codec import queries_codec

NAME = "answer"


def register(wiring: Wiring) -> Requests:
    """Subscribe the history to the queries."""
    watch = PositionWatch(wiring.history)
    log = KafkaAgentLog(wiring.settings.kafka(), wiring.broker, wiring.topics.records, wiring.cluster.partitions)
    reads = asyncio.Semaphore(wiring.settings.answer_concurrency)

    async def stop() -> None:
        await watch.stop()
        await log.stop()

    requests = Requests(
        broker=wiring.broker,
        reply_topic=wiring.topics.replies,
        reply_partitions=wiring.cluster.partitions_of(wiring.topics.replies),
        codec=queries_codec(),
        handler=Answers(wiring.history, watch, reads, Commands(wiring.history, watch, log)),
        dead_letters=wiring.dead_letters(NAME),
        observer=wiring.observer(NAME),
        on_stop=stop,
    )
    subscribe(wiring, NAME, wiring.topics.queries, requests, max_records=wiring.settings.max_poll_records)
    return requests
