"""Brokers for the tests: a real Apache Kafka, started once, and topics of its own for each test.

The broker is, in this order: the one that ``ENGRAMLOG_TEST_KAFKA`` names (``host:port``); a container, when it says
``testcontainers``; else one that the project's own launcher starts. A Kafka that cannot be had skips a test on a
developer's machine, and fails it in CI.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from faststream.kafka import KafkaBroker

from engramlog.consumers.app import Consumers
from engramlog.deploy.local_kafka import LocalKafka, LocalKafkaError
from engramlog.engine.client import KafkaConfig, MemoryClient, Position, Scope
from engramlog.engine.client.admin import create_topics
from engramlog.engine.client.reader import spans
from engramlog.engine.history import History
from engramlog.engine.settings import Settings
from engramlog.schemas.dead_letters import HEADER, DeadLetter
from engramlog.schemas.topics import Topics

IN_CI = os.environ.get("CI") == "true"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def kafka(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Bootstrap servers of a real Apache Kafka."""
    named = os.environ.get("ENGRAMLOG_TEST_KAFKA")
    if named == "testcontainers":
        from testcontainers.kafka import KafkaContainer

        with KafkaContainer("apache/kafka:4.3.1") as container:
            yield container.get_bootstrap_server()
        return
    if named:
        yield named
        return
    broker = LocalKafka(data_dir=tmp_path_factory.mktemp("kafka"), port=None)
    try:
        await broker.start()
    except LocalKafkaError as error:
        if IN_CI:
            raise
        pytest.skip(f"no Apache Kafka: {error}")
    try:
        yield broker.bootstrap_servers
    finally:
        await broker.stop()


@dataclass
class Rig:
    """An engine of its own for one test: topics with a prefix of their own, a history of its own."""

    settings: Settings
    partitions: int
    raw: AIOKafkaProducer
    tenant: str = "acme"
    started: list[Any] = field(default_factory=list)

    @property
    def topics(self) -> Topics:
        return Topics(self.settings.prefix, self.partitions)

    @property
    def config(self) -> KafkaConfig:
        return self.settings.kafka()

    def consumers(self, *names: str) -> Consumers:
        return Consumers(self.settings, names or ("store", "answer"))

    def client(self, **options: Any) -> MemoryClient:
        return MemoryClient(self.config, **{"timeout_s": 30.0, **options})

    async def put(
        self,
        value: bytes | None,
        *,
        key: bytes | None,
        partition: int,
        headers: Sequence[tuple[str, bytes | None]] = (),
        topic: str | None = None,
    ) -> Position:
        """Produce raw bytes, as any producer might."""
        topic = topic or self.topics.records
        meta = await self.raw.send_and_wait(topic, value, key=key, partition=partition, headers=list(headers))
        return Position(topic, partition, meta.offset)

    async def ends(self) -> list[Position]:
        """The newest record of every partition: what an answer has seen that has seen everything."""
        found = await spans(self.config, {self.topics.records: self.partitions})
        return [Position(topic, n, span.end - 1) for (topic, n), span in found.items() if span.end]

    async def read(self, topic: str) -> list["ConsumerRecord[Any, Any]"]:
        """Everything that lies in a topic now."""
        consumer = AIOKafkaConsumer(**self.config.reader())
        await consumer.start()
        try:
            found = sorted(TopicPartition(topic, p) for p in range(self.partitions))
            consumer.assign(found)
            ends = await consumer.end_offsets(found)
            await consumer.seek_to_beginning(*found)
            messages: list[ConsumerRecord[Any, Any]] = []
            while any([await consumer.position(tp) < ends[tp] for tp in found]):
                for batch in (await consumer.getmany(timeout_ms=200)).values():
                    messages.extend(batch)
            return messages
        finally:
            await consumer.stop()

    async def dead_letters(self) -> list[tuple[DeadLetter, bytes | None]]:
        """The dead letters, in order of death."""
        letters = [
            (DeadLetter.model_validate_json(dict(m.headers)[HEADER]), m.value)
            for m in await self.read(self.topics.dead_letters)
        ]
        return sorted(letters, key=lambda pair: pair[0].died)

    def broker(self) -> KafkaBroker:
        """A FastStream broker, not started."""
        return KafkaBroker(
            self.config.bootstrap_servers,
            acks="all",
            enable_idempotence=True,
            allow_auto_create_topics=False,
            logger=None,
        )

    async def rebuilt(self) -> str:
        """The digest of a history that is built anew from the log as it is now."""
        topics = self.topics
        settings = self.settings.model_copy(
            update={"history_url": f"sqlite:///{self.settings.data_dir / f'{uuid.uuid4().hex}.db'}"}
        )
        history = History(settings.effective_history_url(), topics=topics)
        await history.start()
        consumer = AIOKafkaConsumer(**self.config.reader())
        await consumer.start()
        names = (topics.records, topics.derived_of(1), topics.summaries)
        found = [TopicPartition(name, p) for name in names for p in range(self.partitions)]
        ends = {(tp.topic, tp.partition): end for tp, end in (await consumer.end_offsets(found)).items()}
        await consumer.stop()
        try:
            async with Consumers(settings, ["store"]):

                async def caught_up() -> bool:
                    reached = {(c.topic, c.partition): c.next for c in await history.checkpoints()}
                    return all(reached.get(place, 0) >= end for place, end in ends.items())

                await eventually(caught_up, within_s=60)
            return await history.digest()
        finally:
            await history.stop()

    def scope(self, agent: str = "helper", **more: Any) -> Scope:
        return Scope(more.pop("tenant", self.tenant), agent, **more)


@asynccontextmanager
async def rig_on(bootstrap: str, tmp_path: Path, *, partitions: int = 3, **settings: Any) -> AsyncIterator[Rig]:
    """A rig on a broker; its topics are deleted afterwards."""
    made = Settings(
        bootstrap_servers=bootstrap,
        prefix=f"t{uuid.uuid4().hex[:10]}",
        partitions=partitions,
        data_dir=tmp_path,
        session_timeout_ms=6_000,
        **settings,
    )
    names = await create_topics(made.kafka(), partitions=partitions)
    raw = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", max_request_size=8_000_000)
    await raw.start()
    try:
        yield Rig(made, partitions, raw)
    finally:
        await raw.stop()
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.delete_topics(names)
        await admin.close()


@pytest_asyncio.fixture
async def rig(kafka: str, tmp_path: Path) -> AsyncIterator[Rig]:
    """A rig on the real Apache Kafka, with SQLite."""
    async with rig_on(kafka, tmp_path) as made:
        yield made


async def eventually(condition: Any, *, within_s: float = 30.0) -> None:
    """Wait until an awaitable condition holds: for what no position tells."""
    async with asyncio.timeout(within_s):
        while not await condition():  # noqa: ASYNC110 - the condition lies outside this process
            await asyncio.sleep(0.02)
