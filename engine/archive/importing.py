"""An archive into a log. The log gets new positions: compare with digests that are free of positions."""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from engramlog.engine.archive.exporting import role_of
from engramlog.engine.archive.files import Reader, opened
from engramlog.engine.archive.lines import BadArchive, Line, Manifest
from engramlog.engine.client.copying.copier import Copied
from engramlog.engine.client.copying.logs import copy_log, plan_log
from engramlog.engine.client.copying.topics import Log, LogTopic, codec_of
from engramlog.engine.client.reader import Message
from engramlog.schemas.codec import Codec
from engramlog.schemas.errors import ConfigurationError
from engramlog.schemas.keys import agent_prefix

OnRead = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did, or would do.

    Attributes:
        manifest: The archive's first line.
        topics: By topic of the archive, what became of it.
    """

    manifest: Manifest
    topics: dict[str, Copied]


async def check(path: str, log: Log, *, on_read: OnRead = lambda _: None) -> Imported:
    """Read an archive to its end: checksum, counts, every event; and what importing it would do. Nothing is written.

    Args:
        path: The archive.
        log: The log that it would go to.
        on_read: Called with 1 for each message.

    Raises:
        BadArchive: It is no archive, damaged, cut off, or of another format version.
        ConfigurationError: The log holds something about the same agents that is no copy from this archive's log.
        BrokerUnavailable: Kafka does not answer.
    """
    with opened(path) as reader:
        parts, target = _parts(reader, log, on_read)
        planned = await plan_log(parts, [one.topic for one in target.all])
        _must_be_whole(reader)
        return Imported(reader.manifest, _by_role(reader, planned))


async def import_archive(path: str, log: Log, *, timeout_s: float, on_read: OnRead = lambda _: None) -> Imported:
    """Copy an archive into a log. :func:`check` it first: what is damaged is noticed only at its end.

    Each agent's events keep their order, keys and log times. Their positions are new, and so is what events say in
    positions. Copying again copies nothing; interrupted, it goes on. Arguments and errors as for :func:`check`.
    """
    with opened(path) as reader:
        parts, target = _parts(reader, log, on_read)
        copied = await copy_log(parts, target, beside=True, timeout_s=timeout_s)
        _must_be_whole(reader)
        return Imported(reader.manifest, _by_role(reader, copied))


@dataclass(slots=True)
class _Lines:
    """The lines of an archive, topic after topic."""

    groups: Iterator[tuple[str, Iterator[Line]]]
    on_read: OnRead
    held: tuple[str, Iterator[Line]] | None = None

    def of(self, topic: str) -> Iterator[Message]:
        """The messages of the next topic; none if the archive has none of it."""
        self.held = self.held or next(self.groups, None)
        if self.held is None or self.held[0] != topic:
            return
        lines, self.held = self.held[1], None
        for line in lines:
            self.on_read(1)
            yield line.message


@dataclass(frozen=True, slots=True)
class _Part:
    """A topic of an archive, as the originals of a copy."""

    name: str
    partitions: int
    codec: Codec[Any]
    role: str
    lines: _Lines

    async def messages(self) -> AsyncGenerator[Message, None]:
        """Its messages."""
        for message in self.lines.of(self.role):
            yield message


def _parts(reader: Reader, log: Log, on_read: OnRead) -> tuple[list[_Part], Log]:
    """The topics of an archive, and those of the log that they go to."""
    manifest = reader.manifest
    there: dict[str, LogTopic] = {role_of(one): one for one in log.all}
    roles = [topic.role for topic in manifest.topics]
    if roles[0] != "records" or len({*roles}) != len(roles):
        raise ConfigurationError("the archive does not begin with its records, or names a topic twice")
    if missing := [role for role in roles if role not in there]:
        raise ConfigurationError(f"there is no topic {log.topics.prefix}.{missing[0]}: create it")
    lines = _Lines(groupby(reader, key=lambda line: line.topic), on_read)
    parts = [
        _Part(_name(manifest, topic.name), manifest.partitions, codec_of(there[topic.role].role), topic.role, lines)
        for topic in manifest.topics
    ]
    return parts, Log(log.cluster_id, log.topics, tuple(there[role] for role in roles))


def _name(manifest: Manifest, topic: str) -> str:
    """What copies call an archived log: the same for all archives of it that hold the same agents."""
    whose = manifest.filter
    if whose.tenant is None and whose.agent is None:
        return f"{manifest.cluster}/{topic}"
    return f"{manifest.cluster}/{topic}/{agent_prefix(whose.tenant or '~', whose.agent)}"


def _must_be_whole(reader: Reader) -> None:
    """The last topic ends at the footer, where all is checked."""
    if reader.footer is None:
        raise BadArchive("something lies between the last message and the footer")


def _by_role(reader: Reader, copied: Sequence[Copied]) -> dict[str, Copied]:
    return {topic.role: done for topic, done in zip(reader.manifest.topics, copied, strict=True)}
