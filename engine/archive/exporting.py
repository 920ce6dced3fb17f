"""A log into an archive."""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime

from engramlog.engine.archive.files import Writer
from engramlog.engine.archive.lines import VERSION, Filter, Footer, Manifest, TopicSpan, line_of
from engramlog.engine.archive.narrowing import narrowed
from engramlog.engine.client.copying.ordering import Ordered
from engramlog.engine.client.copying.topics import Log, LogTopic
from engramlog.engine.client.reader import Message, decode, spans
from engramlog.schemas.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written.

    Attributes:
        manifest: The first line.
        footer: The last line.
    """

    manifest: Manifest
    footer: Footer


def role_of(topic: LogTopic) -> str:
    """What an archive calls a topic: ``records``, ``derived.gN``, ``summaries``."""
    return topic.role if topic.generation is None else f"{topic.role}.g{topic.generation}"


def chosen(log: Log, generation: int | None) -> Log:
    """The log with one generation of derivations only; None: with all.

    Raises:
        ConfigurationError: There is no such generation.
    """
    if generation is None:
        return log
    kept = tuple(one for one in log.all if one.generation in {None, generation})
    if not any(one.generation == generation for one in kept):
        raise ConfigurationError(f"there is no generation {generation} of derivations")
    return replace(log, all=kept)


async def export(
    log: Log, out: Writer, *, wanted: Filter, created: datetime, on_read: Callable[[int], None] = lambda _: None
) -> Exported:
    """Write what a log holds now: what comes while it is written is not in the archive. Memory stays small.

    Args:
        log: The log.
        out: The archive.
        wanted: Whose memory. With an agent, entries of the erasure ledger about the whole tenant are written as entries
            about this agent, so that whoever reads the archive erases nothing of others.
        created: When it is written.
        on_read: Called with the number of messages that were read or skipped, again and again.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        ConfigurationError: There is no such generation.
    """
    log = chosen(log, wanted.generation)
    ends = await log.ends()
    manifest = await _manifest(log, ends, wanted, created)
    out.manifest(manifest)
    for one, until in zip(log.all, ends, strict=True):
        async with aclosing(Ordered(one.topic, until, on_read).messages()) as messages:
            async for message in messages:
                _write(out, one, message, wanted)
    return Exported(manifest, out.footer())


def _write(out: Writer, one: LogTopic, message: Message, wanted: Filter) -> None:
    decoded = decode(message, one.topic.codec, partitions=one.topic.partitions)
    role = role_of(one)
    if decoded.error is not None or decoded.key is None:
        whose = decoded.key
        if wanted.tenant is None and wanted.agent is None:
            kept = True
        else:
            kept = whose is not None and wanted.tenant in {None, whose.tenant} and wanted.agent in {None, whose.agent}
        if kept:
            reason = decoded.error.reason if decoded.error else ""
            out.message(role, line_of(role, message, reason), decodable=False)
        return
    found = narrowed(decoded, wanted, partitions=one.topic.partitions)
    if found is not None:
        out.message(role, line_of(role, found, None), decodable=True)


async def _manifest(log: Log, ends: Sequence[dict[int, int]], wanted: Filter, created: datetime) -> Manifest:
    held = await spans(log.all[0].topic.kafka, {one.topic.name: one.topic.partitions for one in log.all})
    topics = tuple(
        TopicSpan(
            role=role_of(one),
            name=one.topic.name,
            begin=tuple(held[one.topic.name, n].begin for n in range(one.topic.partitions)),
            end=tuple(until[n] for n in range(one.topic.partitions)),
        )
        for one, until in zip(log.all, ends, strict=True)
    )
    return Manifest(
        archive="engramlog",
        version=VERSION,
        created=created,
        cluster=log.cluster_id or "",
        prefix=log.topics.prefix,
        partitions=log.topics.partitions,
        topics=topics,
        filter=wanted,
    )
