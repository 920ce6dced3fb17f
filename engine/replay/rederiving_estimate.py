"""What deriving anew will cost, before it is done: the log is read and counted, a sample is derived and timed."""

import base64
import random
import time
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np

from engramlog.engine import texts, tokens
from engramlog.engine.client.log_reader import log_reader
from engramlog.engine.decoding import Decoder
from engramlog.engine.derivation import DeriveConfig, Folding, address_of, is_degraded, message_of
from engramlog.engine.derivers.llm import PROMPT
from engramlog.engine.embedders import chosen, embedder_of
from engramlog.engine.embedding import Embedded, embed
from engramlog.engine.history.deriving import SessionFold
from engramlog.engine.log import Entry
from engramlog.engine.ports import Embedder
from engramlog.engine.replay.opening import Workshop
from engramlog.engine.settings import Settings
from engramlog.schemas import derived as d
from engramlog.schemas.codec import Codec, derived_codec, records_codec
from engramlog.schemas.envelope import RecordWritten
from engramlog.schemas.errors import InvalidEvent

SAMPLE: Final = 200
_READ_AT_ONCE: Final = 2_000
_POLL_MS: Final = 200
_HERE: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(slots=True)
class Estimate:
    """What deriving a whole log takes.

    Attributes:
        events: Events of the topic of records.
        records: Records with a text, which are embedded; every copy that the log has counts.
        chars: Characters of those texts.
        tokens: Their tokens (o200k_base), counted exactly, without the turn before that some are embedded with.
        llm_tokens: Tokens that a language model would read: texts and instructions; None: none is asked.
        paid: The remote models that will be asked, by what they are for; empty: everything is computed here.
        sampled: How many records were derived for the timing.
        seconds: How long it will take at the speed of the sample; None: not timed, because a model is remote.
        topic_bytes: How large the new topic will be, without what Kafka saves by compression and compaction.
    """

    events: int = 0
    records: int = 0
    chars: int = 0
    tokens: int = 0
    llm_tokens: int | None = None
    paid: dict[str, str] = field(default_factory=dict)
    sampled: int = 0
    seconds: float | None = None
    topic_bytes: int = 0


def remote_models(settings: Settings) -> dict[str, str]:
    """The models behind a network that these settings ask, by what they are for; those on this machine cost nothing."""
    found: dict[str, str] = {}
    if chosen(settings) == "openai" and not _is_here(settings.embedding_urls):
        found["embedding"] = settings.embedding_model or "the default model"
    if settings.deriver == "llm" and not _is_here(settings.llm_urls):
        found["deriving"] = settings.llm_model or "the default model"
    return found


def _is_here(urls: str | None) -> bool:
    named = [url.strip() for url in (urls or "").split(",") if url.strip()]
    return bool(named) and all(urlsplit(url).hostname in _HERE for url in named)


async def degraded_in(place: Workshop, generation: int) -> set[tuple[int, int]]:
    """Where the records lie (partition, offset) that a generation holds in a simpler way than configured.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    topic = place.topics.derived_of(generation)
    places: set[tuple[int, int]] = set()
    async with aclosing(_entries(place, {topic: derived_codec()})) as entries:
        async for entry, partition in entries:
            if isinstance(entry.event, d.RecordDerived):
                where = partition, entry.event.data.offset
                (places.add if is_degraded(entry.event.data) else places.discard)(where)
    return places


async def estimate(
    place: Workshop, settings: Settings, *, sample: int = SAMPLE, only: Collection[tuple[int, int]] | None = None
) -> Estimate:
    """Read and count the records, then derive a sample of them. Nothing is written, and no remote model is asked.

    Args:
        place: Where the log is.
        settings: With the new models.
        sample: How many records are derived for the timing.
        only: Where the records lie (partition, offset) that are derived; None: all are.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    found = Estimate(paid=remote_models(settings))
    kept = await _counted(place, found, sample=sample, only=only)
    if settings.deriver == "llm":
        prompt = files("engramlog.engine.derivers").joinpath("prompts", PROMPT).read_text("utf-8")
        found.llm_tokens = found.records * tokens.count_text(prompt) + found.tokens
    if kept:
        await _timed(settings, found, kept)
    return found


async def _counted(
    place: Workshop, found: Estimate, *, sample: int, only: Collection[tuple[int, int]] | None
) -> list[tuple[Entry, RecordWritten]]:
    """Count the log; a sample of its records, taken evenly."""
    chance = random.Random(0)  # noqa: S311 - no secret: each run takes the same
    kept: list[tuple[Entry, RecordWritten]] = []
    async with aclosing(_entries(place, {place.topics.records: records_codec()})) as entries:
        async for entry, partition in entries:
            found.events += 1
            wanted = only is None or (partition, entry.offset) in only
            if wanted and isinstance(entry.event, RecordWritten) and _count(found, entry.event):
                _keep(kept, (entry, entry.event), found.records, sample, chance)
    return kept


async def _entries(place: Workshop, codecs: Mapping[str, Codec[Any]]) -> AsyncGenerator[tuple[Entry, int], None]:
    """What can be read of a topic up to its end, each with its partition."""
    partitions = place.cluster.partitions
    decoder = Decoder(codecs, partitions)
    async with log_reader(place.settings.kafka(), codecs, partitions=partitions) as reader:
        ends = await reader.ends()
        reader.seek(dict.fromkeys(ends, 0))
        at = dict.fromkeys(ends, 0)
        while any(at[where] < end for where, end in ends.items()):
            for batch in await reader.read(timeout_ms=_POLL_MS, max_records=_READ_AT_ONCE):
                at[batch.place] = batch.next
                for message in batch.messages:
                    try:
                        entry = decoder.entry(message)
                    except InvalidEvent:
                        continue
                    yield entry, batch.place[1]


def _count(found: Estimate, event: RecordWritten) -> bool:
    text = texts.embeddable(event.data, None)
    if not text.strip() or event.data.origin == "recall":
        return False
    found.records += 1
    found.chars += len(text)
    found.tokens += tokens.count_text(text)
    return True


def _keep(
    kept: list[tuple[Entry, RecordWritten]],
    one: tuple[Entry, RecordWritten],
    seen: int,
    sample: int,
    chance: random.Random,
) -> None:
    """Keep each of all that were seen with the same chance."""
    if len(kept) < sample:
        kept.append(one)
    elif (place := chance.randrange(seen)) < sample:
        kept[place] = one


async def _timed(settings: Settings, found: Estimate, kept: Sequence[tuple[Entry, RecordWritten]]) -> None:
    """Derive the sample as the lane will, without publishing; remote models are left out, and then it is not timed."""
    embedder = None if "embedding" in found.paid else embedder_of(settings)
    events = [event for _, event in kept]
    if embedder is not None:
        await embedder.start()
        await embed(embedder, [(events[0].data, "")])  # what comes first is slow for other reasons
    try:
        began = time.perf_counter()
        sizes = await _derived(settings, embedder, kept)
        took = time.perf_counter() - began
    finally:
        if embedder is not None:
            await embedder.stop()
    found.sampled = len(kept)
    found.topic_bytes = round(sum(sizes) / len(kept) * found.records)
    if not found.paid:
        chars = sum(len(texts.embeddable(event.data, None)) for event in events)
        found.seconds = round(took * found.chars / max(1, chars), 1)


async def _derived(
    settings: Settings, embedder: Embedder | None, kept: Sequence[tuple[Entry, RecordWritten]]
) -> list[int]:
    """The sizes of what is derived of some records."""
    folding = Folding({address_of(event): SessionFold() for _, event in kept})
    tasks = [task for entry, event in kept if (task := folding.begin(entry, event)) is not None]
    if embedder is not None:
        embedded = await embed(embedder, [(task.event.data, task.previous) for task in tasks])
    else:
        embedded = [_stand_in(settings, task.text) for task in tasks]
    for task, one in zip(tasks, embedded, strict=True):
        task.embedded = one
    config = DeriveConfig(metadata_keys=settings.filter_keys())
    folding.understand(tasks, rules=config.rules)
    return [len(key) + len(value or b"") for key, value in (message_of(task, config) for task in tasks)]


def _stand_in(settings: Settings, text: str) -> Embedded:
    """As large as the vector that a remote model would give; 1,536 components where the settings do not tell."""
    dimension = settings.embedding_dimensions or 1_536
    zeros = np.zeros(dimension, dtype="<f4")
    values = base64.b64encode(zeros.tobytes()).decode()
    spans = ((0, len(text)),)
    return Embedded(d.Vectors(model="x", dimension=dimension, values=values, spans=spans), zeros)
