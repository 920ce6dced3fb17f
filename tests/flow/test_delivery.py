"""Delivery on a real broker: stores that fail, events that poison, databases that do not belong."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from engramlog.engine.client import MemoryRecord
from engramlog.engine.history import History
from engramlog.engine.log import Run
from engramlog.schemas.codec import records_codec
from engramlog.schemas.envelope import RecordWritten
from engramlog.schemas.errors import ConfigurationError, Fenced, StoreUnavailable, Unprocessable
from engramlog.schemas.keys import partition_for
from engramlog.schemas.topics import Topics
from tests.brokers import Rig, eventually

pytestmark = pytest.mark.kafka
real_apply = History.apply


def said(text: str) -> MemoryRecord:
    return MemoryRecord(role="user", content=text)


def contents(run: Run) -> list[str]:
    return [e.event.data.content for e in run.entries if isinstance(e.event, RecordWritten)]


def agents_apart(rig: Rig) -> tuple[str, str]:
    """Two agents in different partitions."""
    names = [f"agent-{n}" for n in range(50)]
    first = partition_for(rig.tenant, names[0], rig.partitions)
    return names[0], next(n for n in names if partition_for(rig.tenant, n, rig.partitions) != first)


async def test_a_store_that_is_down_loses_nothing_and_holds_up_no_other_partition(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    down, up = agents_apart(rig)
    broken = partition_for(rig.tenant, down, rig.partitions)
    healthy = asyncio.Event()

    async def apply(self: History, run: Run) -> None:
        if run.partition == broken and not healthy.is_set():
            raise StoreUnavailable("the database is being restarted")
        await real_apply(self, run)

    monkeypatch.setattr(History, "apply", apply)
    async with rig.consumers(), rig.client() as client:
        records = [said(str(n)) for n in range(20)]
        await client.publish(rig.scope(down), records)
        await client.publish(rig.scope(up), said("fine"))
        assert len((await client.history(rig.scope(up))).records) == 1
        behind = await client.history(rig.scope(down), timeout_s=2)
        assert (behind.records, behind.seen.stale) == ((), True)
        healthy.set()
        window = await client.history(rig.scope(down))
        assert [c.record for c in window.records] == records
        assert not window.seen.stale
    assert await rig.dead_letters() == []


async def test_what_the_store_cannot_hold_is_one_dead_letter_among_many_records(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def apply(self: History, run: Run) -> None:
        if "poison" in contents(run):
            raise Unprocessable("the database has no place for 'poison'")
        await real_apply(self, run)

    monkeypatch.setattr(History, "apply", apply)
    texts = [str(n) if n not in {7, 40, 41} else "poison" for n in range(60)]
    async with rig.client() as client:
        records = [said(text) for text in texts]
        positions = await client.publish(rig.scope(), records)
        async with rig.consumers():
            window = await client.history(rig.scope())
    assert [c.record.content for c in window.records] == [t for t in texts if t != "poison"]
    letters = await rig.dead_letters()
    assert sorted(letter.offset for letter, _ in letters) == [positions[n].offset for n in (7, 40, 41)]
    assert {letter.reason for letter, _ in letters} == {"unprocessable"}
    assert all(b"poison" in (value or b"") for _, value in letters)


async def test_a_fault_of_ours_halts_the_partition_and_skips_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fixed = asyncio.Event()

    async def apply(self: History, run: Run) -> None:
        if not fixed.is_set():
            raise ZeroDivisionError("a bug")
        await real_apply(self, run)

    monkeypatch.setattr(History, "apply", apply)
    async with rig.consumers(), rig.client() as client:
        await client.publish(rig.scope(), said("hello"))

        async def halted() -> bool:
            return "halts at offset 0: a bug" in caplog.text

        await eventually(halted)
        fixed.set()
        assert len((await client.history(rig.scope())).records) == 1
    assert await rig.dead_letters() == []


async def test_a_fenced_owner_reads_its_checkpoint_anew(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another owner applied the run first: it is not applied again, and what follows is."""
    raced: list[Run] = []

    async def apply(self: History, run: Run) -> None:
        if not raced:
            raced.append(run)
            await real_apply(self, run)  # the other owner
        await real_apply(self, run)

    monkeypatch.setattr(History, "apply", apply)
    async with rig.consumers(), rig.client() as client:
        first = said("first")
        await client.publish(rig.scope(), first)
        assert [c.record for c in (await client.history(rig.scope())).records] == [first]
        second = said("second")
        await client.publish(rig.scope(), second)
        assert [c.record for c in (await client.history(rig.scope())).records] == [first, second]
    assert raced


async def test_a_database_ahead_of_its_log_is_refused(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    topics = Topics(rig.settings.prefix, rig.partitions)
    history = History(rig.settings.effective_history_url(), topics=topics)
    await history.start()
    partition = partition_for(rig.tenant, "helper", rig.partitions)
    await history.open_partition(topics.records, partition, cluster_id=None, topic_id=None, end_offset=0)
    await history.apply(Run(topics.records, partition, 0, 10_000))
    async with rig.consumers(), rig.client() as client:
        await client.publish(rig.scope(), said("hello"))

        async def told() -> bool:
            return "ahead of its log" in caplog.text

        await eventually(told)
        (checkpoint,) = [
            c for c in await history.checkpoints() if (c.topic, c.partition) == (topics.records, partition)
        ]
        assert checkpoint.next == 10_000
    await history.stop()


async def test_no_process_runs_on_a_topic_that_would_forget(rig: Rig) -> None:
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    admin = AIOKafkaAdminClient(bootstrap_servers=rig.config.bootstrap_servers)
    await admin.start()
    changed = {"cleanup.policy": "delete", "retention.ms": "1000"}
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, rig.topics.records, configs=changed)])
    await admin.close()
    with pytest.raises(ConfigurationError, match="would forget or misdate memory: set it to compact"):
        async with rig.consumers():
            pass


async def test_restarting_goes_on_where_the_checkpoint_is(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    applied: list[tuple[int, int, int]] = []

    async def apply(self: History, run: Run) -> None:
        await real_apply(self, run)
        applied.append((run.partition, run.expected, run.next))

    monkeypatch.setattr(History, "apply", apply)
    texts: list[str] = []
    async with rig.client() as client:
        for turn in range(4):
            async with rig.consumers():
                texts.append(f"turn {turn}")
                await client.publish(rig.scope(), said(texts[-1]))
                window = await client.history(rig.scope())
                assert [c.record.content for c in window.records] == texts
    for partition in {p for p, _, _ in applied}:
        runs = [(a, b) for p, a, b in applied if p == partition]
        assert all(before[1] == after[0] for before, after in pairwise(runs))


async def test_the_transaction_that_is_fenced_writes_nothing(rig: Rig) -> None:
    topics = Topics(rig.settings.prefix, rig.partitions)
    history = History(rig.settings.effective_history_url(), topics=topics)
    await history.start()
    try:
        await history.open_partition(topics.records, 0, cluster_id=None, topic_id=None, end_offset=5)
        before: Any = await history.digest()
        with pytest.raises(Fenced):
            await history.apply(Run(topics.records, 0, 3, 5))
        assert await history.digest() == before
    finally:
        await history.stop()


async def test_producers_with_transactions(rig: Rig) -> None:
    """What they take back is never remembered, and the markers that they leave in the log hold up nobody."""
    scope, partition = rig.scope(), partition_for(rig.tenant, "helper", rig.partitions)

    def message(text: str) -> tuple[bytes, bytes]:
        made = RecordWritten.of(said(text), source="elsewhere", tenant=rig.tenant, agent="helper")
        return made.key(), records_codec().encode(made)

    producer = AIOKafkaProducer(bootstrap_servers=rig.config.bootstrap_servers, transactional_id=rig.settings.prefix)
    await producer.start()
    try:
        async with rig.consumers(), rig.client() as client:
            for text in ("kept", "taken back", "kept, too"):
                await producer.begin_transaction()
                key, value = message(text)
                await producer.send_and_wait(rig.topics.records, value, key=key, partition=partition)
                await (producer.abort_transaction() if text == "taken back" else producer.commit_transaction())
            # A command waits for the end of the log, where the marker of the last transaction lies.
            assert [s.record.content for s in await client.pop(scope, 1)] == ["kept, too"]
            assert [c.record.content for c in (await client.history(scope)).records] == ["kept"]
            assert (await client.stats(scope)).records == 2
    finally:
        await producer.stop()
    assert await rig.dead_letters() == []
