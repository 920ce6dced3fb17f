"""Which batches a partition takes: none that would skip what lies before them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import IllegalStateError

from engramlog.consumers import ownership as module
from engramlog.consumers.ownership import Ownership
from engramlog.engine.log import Run
from engramlog.schemas.errors import StoreUnavailable

P = TopicPartition("memory.records", 0)


class FakeConsumer:
    """Positions, seeks and pauses; nothing else of a consumer is used."""

    def __init__(self) -> None:
        self.assigned = True
        self.at = 0
        self.paused: set[TopicPartition] = set()

    def _check(self) -> None:
        if not self.assigned:
            raise IllegalStateError("not assigned")

    async def position(self, _partition: TopicPartition) -> int:
        self._check()
        return self.at

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 1_000)

    def seek(self, _partition: TopicPartition, offset: int) -> None:
        self._check()
        self.at = offset

    def pause(self, partition: TopicPartition) -> None:
        self._check()
        self.paused.add(partition)

    def resume(self, partition: TopicPartition) -> None:
        self._check()
        self.paused.discard(partition)


class FakeProjection:
    def __init__(self, checkpoint: int) -> None:
        self.checkpoint = checkpoint
        self.down = False
        self.given_away: list[tuple[str, int]] = []

    async def open_partition(self, _topic: str, _partition: int, **_: Any) -> int:
        if self.down:
            raise StoreUnavailable("down")
        return self.checkpoint

    def close_partition(self, topic: str, partition: int) -> None:
        self.given_away.append((topic, partition))

    async def apply(self, run: Run) -> None:
        self.checkpoint = run.next


@pytest.fixture
def consumer() -> FakeConsumer:
    return FakeConsumer()


@pytest.fixture
async def ownership(consumer: FakeConsumer) -> AsyncIterator[Ownership]:
    made = Ownership(FakeProjection(100), cluster_id=None)
    await made.open_all([P], consumer)
    yield made
    await made.stop()


async def test_an_open_partition_is_read_from_its_checkpoint(ownership: Ownership, consumer: FakeConsumer) -> None:
    assert consumer.at == 100
    consumer.at = 150  # 100 to 149 were handed over
    assert await ownership.span(P, 149) == (100, 150)


async def test_a_batch_fetched_before_the_seek_is_not_taken_for_the_next_one(
    ownership: Ownership, consumer: FakeConsumer
) -> None:
    """After an assignment the consumer first reads from the group's offset; such a batch may still be on its way."""
    consumer.at = 100  # the seek came after 300 to 349 were fetched
    assert await ownership.span(P, 349) is None
    assert ownership.next[P] == 100


async def test_a_batch_with_gaps_is_taken(ownership: Ownership, consumer: FakeConsumer) -> None:
    consumer.at = 400  # compaction left 130 and 250 only, and nothing after 250
    assert await ownership.span(P, 250) == (100, 400)


async def test_a_revoked_partition_expects_nothing(ownership: Ownership, consumer: FakeConsumer) -> None:
    consumer.at = 150
    consumer.assigned = False
    assert await ownership.span(P, 149) is None
    ownership.forget([P])
    assert await ownership.span(P, 149) is None


async def test_a_closed_partition_is_rewound_and_opened_when_the_store_is_back(consumer: FakeConsumer) -> None:
    projection = FakeProjection(100)
    projection.down = True
    ownership = Ownership(projection, cluster_id=None)
    await ownership.open_all([P], consumer)
    assert consumer.paused == {P}
    consumer.at = 500
    assert await ownership.span(P, 499) is None
    projection.down = False
    assert ownership._task is not None
    await ownership._task
    assert (consumer.paused, consumer.at, ownership.next) == (set(), 100, {P: 100})
    assert ownership.closed == {}
    ownership.close(P, "the disk is full", rewind_to=100)
    assert (consumer.paused, consumer.at, ownership.next) == ({P}, 100, {})
    assert ownership.closed == {P: "the disk is full"}
    await ownership.stop()


async def test_a_rebalance_does_not_wait_for_each_partition_of_a_database_that_is_locked(
    consumer: FakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped owner may hold SQLite's lock: a member that waits for it too long would be put out of its group."""
    monkeypatch.setattr(module, "OPEN_S", 0.05)
    monkeypatch.setattr(module, "REOPEN_S", 0.0)
    unlocked = asyncio.Event()
    one_writer = asyncio.Lock()

    class Locked(FakeProjection):
        async def open_partition(self, _topic: str, _partition: int, **_: Any) -> int:
            async with one_writer:
                await unlocked.wait()
            return self.checkpoint

    ownership = Ownership(Locked(100), cluster_id=None)
    partitions = {TopicPartition("memory.records", number) for number in range(100)}
    async with asyncio.timeout(0.05 * len(partitions) / 2):
        await ownership.open_all(partitions, consumer)
    assert (set(ownership.closed), consumer.paused) == (partitions, partitions)
    assert set(ownership.closed.values()) == {"its checkpoint could not be read within 0.05 s"}
    unlocked.set()
    assert ownership._task is not None
    await ownership._task
    assert (set(ownership.next), ownership.closed, consumer.paused) == (partitions, {}, set())
