"""A real Apache Kafka on this machine: what it acknowledged is kept, and a directory has one owner."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from engramlog.deploy.local_kafka import (
    DataDirInUse,
    DistributionUnavailable,
    JavaNotFound,
    LocalKafka,
    PortTaken,
    StartFailed,
    Status,
    start_detached,
    status,
    stop,
)
from engramlog.deploy.local_kafka.distribution import find_distribution
from engramlog.deploy.local_kafka.java import find_java
from engramlog.deploy.local_kafka.ownership import acquire, read_owner

pytestmark = pytest.mark.kafka
TOPIC = TopicPartition("kept", 0)


@pytest.fixture(scope="module", autouse=True)
def _kafka_is_here() -> None:
    try:
        find_distribution(find_java(), print)
    except (JavaNotFound, DistributionUnavailable) as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[LocalKafka]:
    kafka = LocalKafka(data_dir=tmp_path / "kafka", overrides={"log.cleaner.backoff.ms": "100"})
    yield kafka
    await kafka.stop()


async def create_topic(bootstrap_servers: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    configs = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    await admin.start()
    try:
        await admin.create_topics([NewTopic(TOPIC.topic, 1, 1, topic_configs=configs)])
    finally:
        await admin.close()


async def produce(bootstrap_servers: str, values: Sequence[bytes]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers, enable_idempotence=True, acks="all") as producer:
        for value in values:
            await producer.send_and_wait(TOPIC.topic, value, key=b"key of " + value)


async def records(bootstrap_servers: str) -> list[tuple[int, int, int, bytes | None]]:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap_servers) as consumer:
        consumer.assign([TOPIC])
        await consumer.seek_to_beginning(TOPIC)
        end = (await consumer.end_offsets([TOPIC]))[TOPIC]
        found = []
        while await consumer.position(TOPIC) < end:
            record = await consumer.getone()
            found.append((record.offset, record.timestamp, record.timestamp_type, record.value))
        return found


async def test_what_was_acknowledged_outlives_a_stop_and_a_kill(broker: LocalKafka) -> None:
    address = await broker.start()
    await create_topic(address)
    values = [b"%d" % n for n in range(50)]
    await produce(address, values)
    before = await records(address)
    assert [value for *_, value in before] == values
    assert {kind for _, _, kind, _ in before} == {1}  # log append time

    await broker.stop()
    assert broker.pid is None
    assert await broker.start() == address
    assert await records(address) == before

    await produce(address, [b"last words"])
    broker.kill()
    assert await broker.restart() == address
    after = await records(address)
    assert after[:-1] == before
    assert after[-1][-1] == b"last words"


async def test_a_second_owner_is_told_who_is_the_first(tmp_path: Path) -> None:
    port = free_port()
    ends = await asyncio.gather(*(start_detached(data_dir=tmp_path, port=port) for _ in "12"), return_exceptions=True)
    try:
        (first,) = [end for end in ends if isinstance(end, Status)]
        assert [type(end) for end in ends if end is not first] == [DataDirInUse]  # of two at once, one wins
        assert first.running
        assert first.ready
        assert first.pid is not None
        second = LocalKafka(data_dir=tmp_path)
        with pytest.raises(DataDirInUse, match=f"pid {first.pid} .*{first.bootstrap_servers}") as refused:
            await second.start()
        assert refused.value.pid == first.pid
        with pytest.raises(DataDirInUse):
            await start_detached(data_dir=tmp_path)
        (tmp_path / "owner.lock").unlink()  # even then the record of a live process is believed
        with pytest.raises(DataDirInUse):
            await second.start()
        assert await status(tmp_path) == first
    finally:
        assert await stop(tmp_path)
    after = await status(tmp_path)
    assert (after.running, after.ready, after.pid) == (False, False, None)
    assert after.kafka_version == first.kafka_version
    assert not await stop(tmp_path)


async def test_an_orphan_is_stopped_and_its_records_are_kept(broker: LocalKafka, tmp_path: Path) -> None:
    script = f"""
import asyncio, os, pathlib, signal
from engramlog.deploy.local_kafka import LocalKafka
asyncio.run(LocalKafka(data_dir=pathlib.Path({str(broker.data_dir)!r})).start())
os.kill(os.getpid(), signal.SIGKILL)
"""
    starter = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    assert await starter.wait() == -9
    orphan = read_owner(broker.data_dir)
    assert orphan is not None
    assert orphan.alive
    assert orphan.orphaned
    await create_topic(orphan.bootstrap_servers)
    await produce(orphan.bootstrap_servers, [b"of the orphan"])

    address = await broker.start()
    assert not orphan.alive
    assert broker.pid != orphan.pid
    assert [value for *_, value in await records(address)] == [b"of the orphan"]


async def test_a_taken_port_is_named_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"(?s)port {port} .*{tmp_path / 'server.log'}"):
            await LocalKafka(data_dir=tmp_path, port=port).start()
    assert not (tmp_path / "owner.json").exists()


async def test_an_unwanted_start_leaves_nothing_running(broker: LocalKafka) -> None:
    owner_file = broker.data_dir / "owner.json"
    start = asyncio.create_task(broker.start())
    async with asyncio.timeout(60):
        while not owner_file.exists():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
    cancelled = read_owner(broker.data_dir)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert cancelled is not None
    assert not cancelled.alive

    broken = LocalKafka(data_dir=broker.data_dir, overrides={"log.cleaner.dedupe.buffer.size": "1"})
    with pytest.raises(StartFailed, match=rf"(?s)its process ended\nlog: {broker.log_file}\n.*dedupe") as failed:
        await broken.start()
    assert len(str(failed.value).splitlines()) > 3  # the log's last lines
    assert broken.pid is None
    assert not owner_file.exists()
    os.close(await acquire(broker.data_dir, patience_s=0))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
