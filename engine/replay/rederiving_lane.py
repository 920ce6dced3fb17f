"""A lane: one generation of derivations that is brought up to the log beside the live one, and kept there.

It is the live deriver's own :class:`~engramlog.engine.derive.Deriving`, at another checkpoint, on another topic. So it
can be killed at any time and goes on where it stood, and the live deriver goes on where the lane ended.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from engramlog.engine.client.publisher import Outgoing as Message
from engramlog.engine.client.publisher import Publisher
from engramlog.engine.derivation import DeriveConfig, Outgoing
from engramlog.engine.derive import Deriving
from engramlog.engine.derived_topic import DerivedTopic
from engramlog.engine.derivers import rules
from engramlog.engine.embedders import embedder_of
from engramlog.engine.history import History
from engramlog.engine.history.generations import Generation
from engramlog.engine.history.versions import VECTORS, Version
from engramlog.engine.log import Run
from engramlog.engine.replay.building import Build
from engramlog.engine.replay.opening import Building, Workshop
from engramlog.engine.replay.targets import Place
from engramlog.engine.wiring import opened_refiner
from engramlog.schemas.codec import Codec, records_codec
from engramlog.schemas.errors import ConfigurationError, Fenced, Transient
from engramlog.schemas.topics import Topics

_log = logging.getLogger(__name__)

BATCH = 256
"""Records that are derived at once: enough to fill the batches of any model."""
PUBLISH_TIMEOUT_S = 30.0
PATIENCE_S = 600.0
"""How long a model, a store or Kafka may be away before the lane gives up; the same command then goes on."""
STOP_S = 10.0
"""How long the run that is under way may take when the lane is stopped."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 15.0
DERIVATIONS = "derivations"
"""What progress calls a lane."""


@dataclass(frozen=True, slots=True)
class PublishedLog:
    """The derived topic of a generation, written outside of the consumers.

    Attributes:
        publisher: What writes.
        topic: Its full name.
    """

    publisher: Publisher
    topic: str

    async def publish(self, partition: int, messages: Sequence[Outgoing]) -> None:
        """Publish messages in order; return when all in-sync replicas have them.

        Raises:
            DeadlineExceeded: Kafka does not take them in time.
            BrokerUnavailable: Kafka does not answer.
        """
        outgoing = [Message(self.topic, partition, key, value) for key, value in messages]
        await self.publisher.publish(outgoing, timeout_s=PUBLISH_TIMEOUT_S)


class LaneTarget:
    """A generation of derivations, as a :class:`~engramlog.engine.replay.building.Build` fills it.

    Args:
        live: The history that is in use: erasures and corrections wait for it, and it knows what was dead-lettered.
        deriving: What derives.
        generation: The generation.
        topics: The engine's topics.
    """

    def __init__(self, live: History, deriving: Deriving, generation: int, topics: Topics) -> None:
        # A build wants to be told which version it makes; a lane is none, and is never written down as one.
        self.version = Version(VECTORS, generation, generation, "")
        self.closely = False
        self.codecs: Mapping[str, Codec[Any]] = {topics.records: records_codec()}
        self.deriving = deriving
        self._live = live

    async def open_partition(self, place: Place, *, cluster_id: str | None, end_offset: int) -> int:
        """Where to go on; what was derived before is recovered, and not derived again."""
        return await self.deriving.open_partition(*place, cluster_id=cluster_id, topic_id=None, end_offset=end_offset)

    async def apply(self, run: Run) -> None:
        """Derive and publish a run. Models, stores and Kafka are waited for.

        Raises:
            Fenced: Somebody else derives the same generation.
            Unprocessable: The database cannot hold what comes of the run.
            Transient: Something is away for too long.
        """
        loop = asyncio.get_running_loop()
        until, pause_s = loop.time() + PATIENCE_S, _FIRST_PAUSE_S
        while True:
            try:
                return await self.deriving.apply(run)
            except Fenced:
                raise
            except Transient as error:
                if loop.time() > until:
                    raise
                _log.warning("trying again in %.1f s: %s", pause_s, error)
                await asyncio.sleep(pause_s)
                pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)

    async def flush(self) -> None:
        """Every run was durable at once."""

    async def refused_live(self, place: Place) -> Mapping[int, str]:
        """What the live history could not read, the live deriver could not either."""
        return await self._live.refused(*place)

    async def applied_live(self, place: Place) -> int:
        """The offset that the live history wants next."""
        return (await self._live.next_offsets()).get(place, 0)


def was_fenced(error: BaseException) -> bool:
    """Whether a lane ended because somebody else derives its generation: after a switch that is the live deriver."""
    return isinstance(error, ConfigurationError) and isinstance(error.__cause__, Fenced)


@asynccontextmanager
async def lane(
    place: Workshop, made: Generation, building: Building, *, keep_of: int | None = None
) -> AsyncIterator[Build]:
    """A lane of a generation, opened where it stands. Its progress is told under the name ``derivations``.

    Args:
        place: Where.
        made: The generation: its models are loaded, which its settings name.
        building: How. Its batch is how many records are derived at once.
        keep_of: The generation by the same models of which stands what is not degraded; None: all is derived.

    Raises:
        ConfigurationError: A model is missing, or gives other vectors than the generation holds.
        ModelUnavailable: The embedding endpoint does not answer.
        StoreUnavailable: The database does not answer.
        BrokerUnavailable: Kafka does not answer.
    """
    settings = place.settings.model_copy(update=dict(made.settings))
    async with AsyncExitStack() as stack:
        embedder = embedder_of(settings)
        await embedder.start()
        stack.push_async_callback(embedder.stop)
        if not made.holds(embedder.model, embedder.dimension):
            raise ConfigurationError(
                f"generation {made.number} holds vectors of {made.model!r} with {made.dimension} components, but here "
                f"is {embedder.model!r} with {embedder.dimension}: is another version of the model installed?"
            )
        refiner, endpoints = opened_refiner(settings)
        if endpoints is not None:
            stack.push_async_callback(endpoints.stop)
        await asyncio.to_thread(rules.prepare)
        config = settings.kafka(client_id="engramlog.rederive")
        publisher = Publisher(config)
        stack.push_async_callback(publisher.stop)
        log = PublishedLog(publisher, place.topics.derived_of(made.number))
        before = DerivedTopic(config, log.topic)
        how = DeriveConfig(metadata_keys=settings.filter_keys(), generation=made.number)
        kept = None if keep_of is None else DerivedTopic(config, place.topics.derived_of(keep_of))
        deriving = Deriving(place.history, embedder, log, how, refiner=refiner, before=before, kept=kept)
        stack.push_async_callback(deriving.stop)
        target = LaneTarget(place.history, deriving, made.number, place.topics)
        build = await stack.enter_async_context(place.build_of(target, building))
        build.progress.projection = DERIVATIONS
        yield build


@asynccontextmanager
async def followed(build: Build) -> AsyncIterator[tuple[asyncio.Event, "asyncio.Task[None]"]]:
    """A lane that follows the log meanwhile.

    Yields:
        What stops it, and its task: whoever waits for something else must look whether that failed.
    """
    stop = asyncio.Event()
    task = asyncio.create_task(build.follow(stop), name="engramlog-lane")
    try:
        yield stop, task
    finally:
        stop.set()
        await asyncio.wait([task], timeout=STOP_S)
        task.cancel()  # as good as a kill, which a lane survives
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.info("the lane ended: %s", error)
