"""Consumers that are stopped at a bad moment: while the broker does not answer them, or before they did anything."""

import asyncio
import time

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaConnectionError

from engramlog.consumers.app import Consumers
from tests.brokers import Rig

pytestmark = pytest.mark.kafka

BACKOFF_MS = 60_000
"""How long aiokafka waits after a failed fetch; here long enough for every stop to come in between."""


async def _failing(consumer: AIOKafkaConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait until the consumer waits after a failed fetch."""
    failed = asyncio.Event()

    async def send(*_: object, **__: object) -> None:
        failed.set()
        raise KafkaConnectionError("gone")

    client = consumer._client
    monkeypatch.setattr(client, "send", send)
    await asyncio.wait_for(failed.wait(), timeout=30)
    await asyncio.sleep(0.1)


async def test_a_reader_is_stopped_while_its_fetches_fail(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = AIOKafkaConsumer(**{**rig.config.reader(), "fetch_max_wait_ms": 10}, retry_backoff_ms=BACKOFF_MS)
    await consumer.start()
    try:
        partition = TopicPartition(rig.topics.records, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        await _failing(consumer, monkeypatch)
    finally:
        begun = time.monotonic()
        await consumer.stop()
    assert time.monotonic() - begun < BACKOFF_MS / 1000 / 2


async def test_a_reader_is_stopped_before_it_did_anything(rig: Rig) -> None:
    consumer = AIOKafkaConsumer(**rig.config.reader())
    await consumer.start()
    await consumer.stop()


async def test_what_cannot_be_stopped_keeps_nothing_else_running(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    before = asyncio.all_tasks()
    consumers = await Consumers(rig.settings, ["store", "answer"]).__aenter__()
    subscription = next(s for s in consumers.health._subscriptions if s.consumer == "store")
    consumer = subscription.subscriber.consumer
    assert consumer is not None
    stop = consumer.stop

    async def fails() -> None:
        monkeypatch.undo()
        await stop()
        raise KafkaConnectionError("gone")

    monkeypatch.setattr(consumer, "stop", fails)
    with pytest.raises(KafkaConnectionError, match="gone"):
        await consumers.__aexit__(None, None, None)
    await asyncio.sleep(0)
    assert [task for task in asyncio.all_tasks() - before if not task.done()] == []
