"""Whether a process tells the truth about itself: closed partitions, lost stores, dead tasks, taken ports."""

import asyncio
import logging
import socket
from dataclasses import replace
from typing import Any

import pytest

from engramlog.consumers import health as health_module
from engramlog.consumers.app import Consumers
from engramlog.consumers.health import Health
from engramlog.consumers.metrics import Metrics
from engramlog.consumers.probes import Probes, serving
from engramlog.engine.client import MemoryRecord
from engramlog.engine.history import History
from engramlog.engine.log import Run
from engramlog.schemas.errors import ConfigurationError, StoreUnavailable
from engramlog.schemas.keys import partition_for
from tests.brokers import Rig, eventually
from tests.watching import get, probe, scrape

pytestmark = pytest.mark.kafka
real_apply, real_checkpoints = History.apply, History.all_checkpoints


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "LOOK_EVERY_S", 0.05)


def said(text: str) -> MemoryRecord:
    return MemoryRecord(role="user", content=text)


async def until_ready(consumers: Consumers, *, wanted: bool = True) -> list[str]:
    async def told() -> bool:
        return consumers.health.ready()[0] is wanted

    await eventually(told)
    problems: list[str] = consumers.health.ready()[1]["problems"]
    return problems


async def test_a_closed_partition_is_named_with_its_reason_and_its_lag(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    well = asyncio.Event()

    async def apply(self: History, run: Run) -> None:
        if not well.is_set():
            raise StoreUnavailable("the database is being restarted")
        await real_apply(self, run)

    monkeypatch.setattr(History, "apply", apply)
    partition = partition_for(rig.tenant, "helper", rig.partitions)
    consumers = rig.consumers("store")
    async with serving(consumers.probes, host="127.0.0.1", port=0) as url, consumers, rig.client() as client:
        assert url is not None
        await until_ready(consumers)
        await client.publish(rig.scope(), [said("one"), said("two")])
        await until_ready(consumers, wanted=False)

        async def closed() -> bool:
            status, told = await probe(url, "/ready")
            found = [
                {
                    "topic": rig.topics.records,
                    "partition": partition,
                    "projection": "history",
                    "state": "closed",
                    "reason": "the database is being restarted",
                    "lag": 2,
                }
            ]
            return status == 503 and told["consumers"][0]["unready"] == found

        await eventually(closed)
        _, told = await probe(url, "/ready")
        where = f"history at {rig.topics.records}/{partition}"
        assert told["problems"] == [f"store: {where} is closed (2 offsets behind): the database is being restarted"]
        seen = await scrape(url)
        assert seen.total("engramlog_partition_open", topic=rig.topics.records, partition=str(partition)) == 0
        assert seen.total("engramlog_run_failures_total", consumer="store") >= 1
        assert (await probe(url, "/live"))[0] == 200
        well.set()
        await until_ready(consumers)

        async def caught_up() -> bool:
            return (await scrape(url)).total("engramlog_projection_lag_offsets") == 0

        await eventually(caught_up)


async def test_a_consumer_that_is_started_on_another_topic_during_a_look_does_not_end_the_looking(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when another generation of derivations takes over."""
    async with rig.consumers("store") as consumers:
        await until_ready(consumers)
        (store,) = consumers.health._subscriptions
        looks = 0

        async def checkpoints(self: History) -> Any:
            nonlocal looks
            looks += 1
            found = await real_checkpoints(self)
            if looks == 1:
                consumers.health.watch(replace(store, topics=(*store.topics, rig.topics.derived_of(2))))
            return found

        monkeypatch.setattr(History, "all_checkpoints", checkpoints)

        async def goes_on() -> bool:
            if looks > 1:
                consumers.health._subscriptions[:] = [store]
            return looks > 3

        await eventually(goes_on)
        await until_ready(consumers)
        assert consumers.health.live()[0]


async def test_lag_above_the_limit_is_not_ready(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asyncio.Event()

    async def apply(self: History, run: Run) -> None:
        await gate.wait()
        await real_apply(self, run)

    monkeypatch.setattr(History, "apply", apply)
    settings = rig.settings.model_copy(update={"ready_max_lag": 1})
    async with Consumers(settings, ["store"]) as consumers, rig.client() as client:
        await until_ready(consumers)
        await client.publish(rig.scope(), [said("one"), said("two")])
        problems = await until_ready(consumers, wanted=False)
        partition = partition_for(rig.tenant, "helper", rig.partitions)
        where = f"history at {rig.topics.records}/{partition}"
        assert problems == [f"store: {where} is 2 offsets behind, the limit is 1"]
        gate.set()
        await until_ready(consumers)


async def test_a_database_that_does_not_answer_is_told_and_logged_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "engramlog.consumers.health")
    well = asyncio.Event()
    looks = 0

    async def checkpoints(self: History) -> object:
        nonlocal looks
        looks += 1
        if not well.is_set():
            raise StoreUnavailable("the history cannot be reached")
        return await real_checkpoints(self)

    monkeypatch.setattr(History, "all_checkpoints", checkpoints)
    async with rig.consumers("answer") as consumers:

        async def looked() -> bool:
            return looks > 3

        await eventually(looked)
        assert "history: the history cannot be reached" in consumers.health.ready()[1]["problems"]
        well.set()
        await until_ready(consumers)
    assert caplog.text.count("not ready: history: the history cannot be reached") == 1
    assert caplog.text.count("history answers again") == 1


async def test_a_consume_task_that_died_shows(rig: Rig) -> None:
    consumers = rig.consumers()
    async with serving(consumers.probes, host="127.0.0.1", port=0) as url, consumers:
        assert url is not None
        await until_ready(consumers)
        assert await probe(url, "/live") == (200, {"live": True, "state": "running", "problems": []})
        subscription = next(s for s in consumers.health._subscriptions if s.consumer == "store")
        subscription.subscriber.tasks[-1].cancel()
        await until_ready(consumers, wanted=False)
        status, told = await probe(url, "/live")
        assert (status, told["problems"]) == (503, ["the task of 'store' has died: restart this process"])
        assert (await scrape(url)).total("engramlog_consumer_alive", consumer="store") == 0
        assert (await scrape(url)).total("engramlog_consumer_alive", consumer="answer") == 1


async def test_a_consume_task_that_failed_and_was_started_again_is_alive(rig: Rig) -> None:
    async with rig.consumers("store") as consumers:
        await until_ready(consumers)
        (subscription,) = consumers.health._subscriptions
        consumer = subscription.subscriber.consumer
        assert consumer is not None
        real = consumer.getmany

        async def fail_once(**_: object) -> None:
            consumer.getmany = real
            raise ValueError("a bug in a library")

        consumer.getmany = fail_once

        async def restarted() -> bool:
            return subscription.restarts == 1

        await eventually(restarted)
        assert consumers.health.live()[0]


async def test_before_and_after_it_runs_it_is_not_ready_but_lives(rig: Rig) -> None:
    consumers = rig.consumers("store")
    async with serving(consumers.probes, host="127.0.0.1", port=0) as url:
        assert url is not None
        assert (await probe(url, "/ready"))[0] == 503
        assert (await probe(url, "/live"))[0] == 200
        async with consumers:
            await until_ready(consumers)
        status, told = await probe(url, "/ready")
        assert (status, told["problems"]) == (503, ["the process is stopping"])
        assert (await probe(url, "/live"))[0] == 200


async def test_a_kafka_that_is_not_there_is_a_problem_by_name(rig: Rig) -> None:
    from engramlog.engine.client import KafkaConfig
    from engramlog.engine.client.ends import LogEnds

    health = Health(Metrics(), max_lag=1)
    history = History(rig.settings.effective_history_url(), topics=rig.topics)
    await history.start()
    ends = LogEnds(KafkaConfig("localhost:1"), timeout_s=1.0)
    health.start(ends, history, records=rig.topics.records, partitions={rig.topics.records: 3})
    try:

        async def told() -> bool:
            return any(p.startswith("kafka: ") and "localhost:1" in p for p in health.ready()[1]["problems"])

        await eventually(told)
    finally:
        await health.stop()
        await history.stop()


async def test_what_is_not_there_is_404_and_a_port_that_is_taken_is_named() -> None:
    metrics = Metrics()
    probes = Probes(Health(metrics, max_lag=1), metrics.registry)
    async with serving(probes, host="127.0.0.1", port=0) as url:
        assert url is not None
        assert (await asyncio.to_thread(get, f"{url}/other"))[0] == 404
        port = int(url.rpartition(":")[2])
        with pytest.raises(ConfigurationError, match=rf"port {port} .*ENGRAMLOG_HEALTH_PORT"):
            async with serving(probes, host="127.0.0.1", port=port):
                pass
    with socket.socket() as free, pytest.raises(ConnectionRefusedError):
        free.connect(("127.0.0.1", port))
