"""What a replay works with: the log, the database, and the collections that it fills."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self

from engramlog.engine.client.admin import Cluster, inspect_topics
from engramlog.engine.client.log_reader import log_reader
from engramlog.engine.client.publisher import Outgoing, Publisher
from engramlog.engine.decoding import Decoder
from engramlog.engine.history import History
from engramlog.engine.history.versions import HISTORY, VECTORS, Projected, Version
from engramlog.engine.replay.building import Build, DeadLetter, Report
from engramlog.engine.replay.targets import HistoryTarget, Place, Target, VectorsTarget
from engramlog.engine.settings import Settings
from engramlog.engine.vectors.opening import collection_of, vector_engine_of
from engramlog.engine.vectors.vectors import Vectors
from engramlog.schemas.dead_letters import HEADER, letter_of, messages
from engramlog.schemas.errors import ConfigurationError, InvalidEvent, Unprocessable
from engramlog.schemas.topics import Topics

CONSUMER = "replay"
"""Who gave up, as dead letters say it."""
PUBLISH_TIMEOUT_S = 30.0
BATCH = 2_000
SQLITE_BATCH = 1_000
"""Of one file there is one writer at a time: a transaction of so many events holds it for 30 to 50 ms."""
SQLITE_PAUSE_S = 0.003
"""Others look for the lock every millisecond: in this pause one of them gets it."""


@dataclass(frozen=True, slots=True)
class Building:
    """How versions are built.

    Attributes:
        batch: How many messages are taken at once.
        dead_letter_new: Whether an event that only the new version cannot process becomes a dead letter; else it stops
            the build.
        report: Who is told about progress.
        pause_s: Pause after each run, in seconds: other writers of a SQLite file get their turn.
    """

    batch: int = BATCH
    dead_letter_new: bool = False
    report: Report | None = None
    pause_s: float = 0.0

    @classmethod
    def beside(
        cls,
        settings: Settings,
        *,
        batch: int | None = None,
        dead_letter_new: bool = False,
        report: Report | None = None,
    ) -> Self:
        """How to build beside an engine that runs on the same database, so that its writes go on.

        Args:
            settings: They name the database.
            batch: See the attributes; None: as suits the database.
            dead_letter_new: See the attributes.
            report: See the attributes.
        """
        one_writer = settings.effective_history_url().startswith("sqlite")
        return cls(
            batch or (SQLITE_BATCH if one_writer else BATCH),
            dead_letter_new,
            report,
            SQLITE_PAUSE_S if one_writer else 0.0,
        )


@dataclass(frozen=True, slots=True)
class Workshop:
    """Where versions are built. Made by :func:`workshop`.

    Attributes:
        settings: The settings.
        cluster: The cluster and its topics.
        topics: Their names.
        history: The history that is in use.
    """

    settings: Settings
    cluster: Cluster
    topics: Topics
    history: History

    async def begin(
        self,
        projection: Projected,
        *,
        generation: int | None = None,
        name: str = "",
        until: Mapping[Place, int] | None = None,
    ) -> Version:
        """Begin a version, or go on with the one that was begun for the same, and create its tables.

        Args:
            projection: Of which projection.
            generation: The generation of derivations that it holds; None: that of the active version.
            name: Its name, for a read-only one.
            until: Where a read-only one ends.

        Raises:
            ConfigurationError: There is another version of that name.
        """
        active = (await self.history.versions.active())[projection]
        wanted = active.generation if generation is None else generation
        version = await self.history.versions.begin(projection, generation=wanted, name=name, until=until)
        if projection == HISTORY:
            await self.history.of(version).prepare()
        return version

    @asynccontextmanager
    async def vectors(self, version: Version, *, settings: Settings | None = None) -> AsyncIterator[Vectors]:
        """The collection of a version of the vectors. No model is loaded: its dimension is known.

        Args:
            version: The version.
            settings: Where it lies, if elsewhere than the settings say.

        Raises:
            ConfigurationError: Another process has it open, or nothing was ever derived in its generation.
            StoreUnavailable: It cannot be opened now.
        """
        made = (await self.history.generations.all()).get(version.generation)
        if made is None:
            raise ConfigurationError(
                f"nothing is known of generation {version.generation} of derivations in this database: run the engine "
                "on it once ('engramlog up' or 'engramlog run derive')"
            )
        where = settings or self.settings
        spec = collection_of(where, model=made.model, dimension=made.dimension, version=version)
        engine = vector_engine_of(where)
        created = await engine.start(spec)
        try:
            if created:
                await self.history.vectors(version.checkpoints).restart()
            yield Vectors(engine, metadata_keys=where.filter_keys())
        finally:
            await engine.stop()

    @asynccontextmanager
    async def build(self, version: Version, building: Building) -> AsyncIterator[Build]:
        """A build of a version, opened where it stands.

        Args:
            version: The version, as :meth:`begin` gave it.
            building: How.
        """
        async with AsyncExitStack() as stack:
            target: Target
            if version.projection == HISTORY:
                target = HistoryTarget(self.history, version, self.topics)
            else:
                before = (await self.history.versions.active())[VECTORS]
                collection = await stack.enter_async_context(self.vectors(version))
                target = VectorsTarget(collection, self.history, version, before, self.topics)
            build = await stack.enter_async_context(self.build_of(target, building))
            yield build

    @asynccontextmanager
    async def build_of(self, target: Target, building: Building) -> AsyncIterator[Build]:
        """A build of a target that is made already, opened where it stands."""
        partitions = self.cluster.partitions
        kafka = self.settings.kafka(client_id="engramlog.replay")
        async with AsyncExitStack() as stack:
            dead_letter: DeadLetter | None = None
            if building.dead_letter_new:
                publisher = Publisher(kafka)
                stack.push_async_callback(publisher.stop)
                dead_letter = _dead_letters(publisher, self.topics, self.cluster)
            reader = await stack.enter_async_context(log_reader(kafka, target.codecs, partitions=partitions))
            build = Build(
                target,
                reader,
                Decoder(target.codecs, partitions),
                cluster_id=self.cluster.cluster_id,
                batch=building.batch,
                dead_letter=dead_letter,
                report=building.report,
                pause_s=building.pause_s,
            )
            await build.open()
            yield build


@asynccontextmanager
async def workshop(settings: Settings) -> AsyncIterator[Workshop]:
    """Open the database and look at the cluster.

    Raises:
        ConfigurationError: A topic is missing or would forget.
        BrokerUnavailable: Kafka does not answer.
        StoreUnavailable: The database does not answer.
    """
    cluster = (await inspect_topics(settings.kafka(), topics=settings.topics())).require()
    topics = replace(settings.topics(), partitions=cluster.partitions)
    history = History(settings.effective_history_url(), topics=topics)
    await history.start()
    try:
        yield Workshop(settings, cluster, topics, history)
    finally:
        await history.stop()


def _dead_letters(publisher: Publisher, topics: Topics, cluster: Cluster) -> DeadLetter:
    partitions = cluster.partitions_of(topics.dead_letters)

    async def publish(message: Any, error: InvalidEvent | Unprocessable) -> None:
        letter = letter_of(message, error, consumer=CONSUMER, died=datetime.now(UTC))
        outgoing = [
            Outgoing(
                topics.dead_letters,
                message.partition % partitions,
                letter.origin(),
                chunk or b"",
                (("reason", letter.reason.encode()), (HEADER, part.model_dump_json(exclude_none=True).encode())),
            )
            for chunk, part in messages(letter, message.value)
        ]
        await publisher.publish(outgoing, timeout_s=PUBLISH_TIMEOUT_S)

    return publish
