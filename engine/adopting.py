"""A database that is new, on a log that is not: it begins with the generation of derivations that the log is in.

Which generation is in use stands in the database. Where that was lost, the log still tells: once another generation has
taken over, the live deriver writes to its topic alone. So the one that was derived furthest is in use; of several, the
one by the configured model, else the newest. What it holds is recovered from there, without a model.
"""

import logging
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from engramlog.engine.client.admin import generations_of
from engramlog.engine.client.reader import spans
from engramlog.engine.derived_topic import DerivedTopic
from engramlog.engine.history import History
from engramlog.engine.recorded import decoded, passed
from engramlog.engine.settings import Settings
from engramlog.schemas.derived import RecordDerived, Vectors

_log = logging.getLogger(__name__)
_LOOKED_AT = 1_000
"""So many messages of a partition are looked through for a vector."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A generation, as the log has it.

    Attributes:
        number: Its number.
        derived: Up to how many offsets of the records it was derived, all partitions together.
        vectors: Some of its vectors; None: none was found.
    """

    number: int
    derived: int
    vectors: Vectors | None


async def adopt(settings: Settings, history: History, *, model: str | None) -> int:
    """Let a new database begin with the generation that the log is in.

    Args:
        settings: The cluster and the topics.
        history: The database; it was started.
        model: The embedding model that is configured; None: nobody here needs one.

    Returns:
        The number of the generation that the database begins with, or goes on with.

    Raises:
        ConfigurationError: Kafka refuses.
        BrokerUnavailable: Kafka does not answer.
        StoreUnavailable: The database does not answer.
    """
    if await history.is_new():
        found = [held for held in await _generations(settings) if held.derived]
        best = max(found, key=lambda one: (one.derived, _model(one.vectors) == model, one.number), default=None)
        if best is not None and await history.adopt(best.number):
            _log.info("the database is new: it begins with generation %d of derivations, as the log does", best.number)
    return (await history.versions.active())["vectors"].generation


async def recorded_vectors(settings: Settings, generation: int) -> Vectors | None:
    """Some vectors of a generation, as the log has them: of which model, and how many components. None: there are none.

    Raises:
        ConfigurationError: Kafka refuses.
        BrokerUnavailable: Kafka does not answer.
    """
    return next((held.vectors for held in await _generations(settings) if held.number == generation), None)


async def _generations(settings: Settings) -> list[_Held]:
    """Those of which something lies in the log."""
    kafka, topics = settings.kafka(), settings.topics()
    counts = await generations_of(kafka, topics)
    held = await spans(kafka, {topics.derived_of(number): count for number, count in counts.items()})
    filled: dict[int, list[int]] = {}
    for number, count in counts.items():
        name = topics.derived_of(number)
        if there := [p for p in range(count) if held[name, p].end > held[name, p].begin]:
            filled[number] = there
    return [
        await _held(DerivedTopic(kafka, topics.derived_of(number)), number, there)
        for number, there in sorted(filled.items())
    ]


async def _held(topic: DerivedTopic, number: int, partitions: Sequence[int]) -> _Held:
    reached = {partition: await passed(topic, partition) for partition in partitions}
    vectors = None
    for partition in partitions:
        vectors = vectors or await _vectors(topic, partition)
    return _Held(number, sum(reached.values()), vectors)


async def _vectors(topic: DerivedTopic, partition: int) -> Vectors | None:
    """The first vectors of a partition."""
    begin, _ = await topic.span(partition)
    looked = 0
    async with aclosing(topic.read(partition, begin)) as messages:
        async for message in messages:
            event = decoded(message)
            if isinstance(event, RecordDerived) and event.data.embedding is not None:
                return event.data.embedding
            looked += 1
            if looked == _LOOKED_AT:
                break
    return None


def _model(vectors: Vectors | None) -> str | None:
    return None if vectors is None else vectors.model
