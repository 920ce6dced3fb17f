"""Dead letters, as operators handle them: found, put together again, sent anew, purged.

A letter is known by its origin and by who gave up on it: written twice (a crash between publishing and committing) it
is one letter. Nothing here moves a checkpoint, and nothing is committed.
"""

import base64
import binascii
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby

from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from pydantic import ValidationError

from engramlog.engine.client.admin import connected
from engramlog.engine.client.connection import KafkaConfig
from engramlog.engine.client.publisher import Outgoing, Publisher
from engramlog.engine.client.reader import Message, read
from engramlog.schemas.dead_letters import HEADER, DeadLetter
from engramlog.schemas.errors import WrongKey
from engramlog.schemas.keys import Key, parse_key, partition_for
from engramlog.schemas.scope import Position
from engramlog.schemas.topics import MAX_MESSAGE_BYTES

PREVIEW_BYTES = 200
_CHUNK_BYTES = 32_000_000
_BATCH_BYTES, _BATCH_MESSAGES = 4_000_000, 500
_FRAME_BYTES = 512
"""What Kafka adds to a message, generously."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter, without its raw value.

    Attributes:
        about: What is known of it.
        places: Where the pieces of its raw value lie in the dead-letter topic.
        size: Bytes of the raw value.
        preview: The first bytes of it; None: it is a tombstone.
    """

    about: DeadLetter
    places: tuple[Position, ...]
    size: int
    preview: bytes | None

    @property
    def origin(self) -> str:
        """``topic/partition/offset``, where it came from."""
        return self.about.origin().decode()

    @property
    def key(self) -> bytes | None:
        """Its key, as far as it was kept."""
        return None if self.about.key is None else base64.b64decode(self.about.key)

    @property
    def whose(self) -> Key | None:
        """Tenant and agent, where the key tells."""
        try:
            return parse_key(self.key)
        except WrongKey:
            return None

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """Its headers, as far as they were kept."""
        return tuple((name, None if v is None else base64.b64decode(v)) for name, v in self.about.headers)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which letters are meant; whatever is empty or None is not asked about.

    Attributes:
        reasons: Reason codes.
        consumers: Who gave up.
        topics: Full names of the topics that they came from.
        partition: The partition that they came from.
        since: Not before this time of death.
        until: Before this time of death.
        tenant: The tenant, where the key tells.
        agent: The agent, where the key tells.
        origins: ``topic/partition/offset``.
    """

    reasons: frozenset[str] = frozenset()
    consumers: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    partition: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    tenant: str | None = None
    agent: str | None = None
    origins: frozenset[str] = frozenset()

    def __call__(self, letter: Letter) -> bool:
        """Whether a letter is meant."""
        about = letter.about
        return (
            (not self.reasons or about.reason in self.reasons)
            and (not self.consumers or about.consumer in self.consumers)
            and (not self.topics or about.topic in self.topics)
            and self.partition in {None, about.partition}
            and (self.since is None or about.died >= self.since)
            and (self.until is None or about.died < self.until)
            and (not self.origins or letter.origin in self.origins)
            and self._is_theirs(letter)
        )

    def _is_theirs(self, letter: Letter) -> bool:
        if self.tenant is None and self.agent is None:
            return True
        whose = letter.whose
        return whose is not None and self.tenant in {None, whose.tenant} and self.agent in {None, whose.agent}


@dataclass(slots=True)
class Assembly:
    """Puts letters together from the messages of the dead-letter topic, each letter once.

    Attributes:
        unreadable: Messages that are no dead letters.
    """

    unreadable: int = 0
    _seen: set[tuple[object, ...]] = field(default_factory=set)
    _pieces: dict[tuple[object, ...], dict[int, Message]] = field(default_factory=dict)

    @property
    def incomplete(self) -> int:
        """Letters of which pieces are missing: retention took them, or their consumer died in between."""
        return len(self._pieces)

    def add(self, message: Message) -> Letter | None:
        """Take one message; the letter that it completes, if it does."""
        about = _about(message)
        if about is None:
            self.unreadable += 1
            return None
        same = (about.topic, about.partition, about.offset, about.recorded_ms, about.consumer)
        if same in self._seen:
            return None
        pieces = self._pieces.setdefault(same, {})
        pieces.setdefault(about.part, message)
        if len(pieces) < about.parts:
            return None
        del self._pieces[same]
        self._seen.add(same)
        parts = [pieces[number] for number in sorted(pieces)]
        return Letter(
            about.model_copy(update={"part": 1}),
            tuple(part.position for part in parts),
            sum(len(part.value or b"") for part in parts),
            None if about.tombstone else (parts[0].value or b"")[:PREVIEW_BYTES],
        )


def _about(message: Message) -> DeadLetter | None:
    value = dict(message.headers).get(HEADER)
    try:
        about = DeadLetter.model_validate_json(value or b"")
        for packed in (about.key, *(v for _, v in about.headers)):
            base64.b64decode(packed or "", validate=True)
    except (ValidationError, binascii.Error):
        return None
    return about if about.part <= about.parts else None


@dataclass(frozen=True, slots=True)
class Found:
    """What lies in the dead-letter topic.

    Attributes:
        letters: Those that are meant, oldest first.
        unreadable: Messages that are no dead letters.
        incomplete: Letters of which pieces are missing.
    """

    letters: list[Letter]
    unreadable: int
    incomplete: int


async def find(config: KafkaConfig, topic: str, *, partitions: int, wanted: Wanted) -> Found:
    """Read all dead letters; their raw values are not kept.

    Args:
        config: The cluster.
        topic: Full name of the dead-letter topic.
        partitions: Number of its partitions.
        wanted: Which ones.

    Raises:
        ConfigurationError: The topic does not exist.
        BrokerUnavailable: Kafka does not answer.
    """
    assembly = Assembly()
    letters: list[Letter] = []
    async with aclosing(read(config, topic, partitions=range(partitions))) as messages:
        async for message in messages:
            letter = assembly.add(message)
            if letter is not None and wanted(letter):
                letters.append(letter)
    letters.sort(key=lambda letter: (letter.about.died, _by_origin(letter)))
    return Found(letters, assembly.unreadable, assembly.incomplete)


def _by_origin(letter: Letter) -> tuple[str, int, int]:
    return letter.about.topic, letter.about.partition, letter.about.offset


async def raw_values(
    config: KafkaConfig, letters: Iterable[Letter], *, chunk_bytes: int = _CHUNK_BYTES
) -> AsyncGenerator[tuple[Letter, bytes | None], None]:
    """The raw values of letters, in the order of their origins. Letters that retention took meanwhile are left out.

    Args:
        config: The cluster.
        letters: As :func:`find` gave them.
        chunk_bytes: How much is held in memory at once.
    """
    for chunk in _chunks(sorted(letters, key=_by_origin), chunk_bytes):
        pieces = await _messages(config, [place for letter in chunk for place in letter.places])
        for letter in chunk:
            if letter.about.tombstone:
                yield letter, None
            elif all(place in pieces for place in letter.places):
                yield letter, b"".join(pieces[place] for place in letter.places)


def _chunks(letters: Iterable[Letter], limit: int) -> Iterator[list[Letter]]:
    chunk: list[Letter] = []
    room = limit
    for letter in letters:
        if chunk and letter.size > room:
            yield chunk
            chunk, room = [], limit
        chunk.append(letter)
        room -= letter.size
    if chunk:
        yield chunk


async def _messages(config: KafkaConfig, places: Sequence[Position]) -> dict[Position, bytes]:
    """The values at some places of one topic."""
    missing = set(places)
    found: dict[Position, bytes] = {}
    start: dict[int, int] = {}
    for place in places:
        start[place.partition] = min(place.offset, start.get(place.partition, place.offset))
    async with aclosing(read(config, places[0].topic, partitions=start, start=start)) as messages:
        async for message in messages:
            if message.position in missing:
                missing.remove(message.position)
                found[message.position] = message.value or b""
                if not missing:
                    break
    return found


@dataclass(frozen=True, slots=True)
class Refusal:
    """A letter that cannot be sent anew.

    Attributes:
        letter: The letter.
        why: Why, for people.
    """

    letter: Letter
    why: str


Plan = Callable[[Letter, bytes | None], Outgoing | Refusal]
"""What becomes of a letter that is sent anew."""


def plan(
    letter: Letter, value: bytes | None, *, partitions: Mapping[str, int], agent_topics: Iterable[str]
) -> Outgoing | Refusal:
    """What a letter is when it is sent anew: its raw bytes, its key and headers, at the end of its topic.

    In an agent topic it goes to its agent's partition where the key tells that; otherwise to where it was.

    Args:
        letter: The letter.
        value: Its raw value.
        partitions: Number of partitions of each topic that exists.
        agent_topics: Which of them are agent topics.
    """
    about = letter.about
    count = partitions.get(about.topic, 0)
    if not count:
        return Refusal(letter, f"the topic {about.topic!r} is none of this engine's")
    if about.key_bytes_left_out:
        return Refusal(letter, f"{about.key_bytes_left_out:,} bytes of its key were not kept")
    partition, whose = about.partition, letter.whose
    if about.topic in agent_topics and whose is not None and whose.agent:
        partition = partition_for(whose.tenant, whose.agent, count)
    if partition >= count:
        return Refusal(letter, f"the topic {about.topic!r} has no partition {partition}")
    size = letter.size + len(letter.key or b"") + sum(len(n) + len(v or b"") for n, v in letter.headers) + _FRAME_BYTES
    if size > MAX_MESSAGE_BYTES:
        return Refusal(letter, f"{size:,} bytes: a producer of ours may send {MAX_MESSAGE_BYTES:,}")
    return Outgoing(about.topic, partition, letter.key, value, letter.headers)


def once_each(letters: Iterable[Letter]) -> list[Letter]:
    """One letter for each origin, in the order of origins: several consumers may have given up on one message."""
    return [next(same) for _, same in groupby(sorted(letters, key=_by_origin), key=lambda letter: letter.origin)]


async def send_anew(
    config: KafkaConfig,
    letters: Iterable[Letter],
    plan: Plan,
    *,
    timeout_s: float,
    on_sent: Callable[[list[Position]], None] = lambda _: None,
) -> list[Refusal]:
    """Publish letters anew, in the order of their origins: at the log's end, where consumers find them.

    Args:
        config: The cluster.
        letters: As :func:`find` gave them; each origin once.
        plan: What becomes of each.
        timeout_s: Limit of each batch, in seconds.
        on_sent: Called after each batch that was acknowledged, with the new positions.

    Returns:
        What could not be sent.

    Raises:
        DeadlineExceeded: A batch was not acknowledged in time; sending it again is safe.
        BrokerUnavailable: Kafka does not answer.
    """
    publisher = Publisher(config)
    refused: list[Refusal] = []
    batch: list[Outgoing] = []
    size = 0

    async def flush() -> None:
        if batch:
            on_sent(await publisher.publish(batch, timeout_s=timeout_s))
            batch.clear()

    try:
        async with aclosing(raw_values(config, letters)) as found:
            async for letter, value in found:
                planned = plan(letter, value)
                if isinstance(planned, Refusal):
                    refused.append(planned)
                    continue
                if len(batch) >= _BATCH_MESSAGES or size > _BATCH_BYTES:
                    await flush()
                    size = 0
                batch.append(planned)
                size += letter.size
        await flush()
    finally:
        await publisher.stop()
    return refused


async def purge(config: KafkaConfig, topic: str, before: Mapping[int, int]) -> None:
    """Delete the messages of a topic below given offsets. A Kafka log can be cut off at its old end, nowhere else.

    Args:
        config: The cluster.
        topic: Full name; no compacted topic.
        before: By partition, the first offset that is kept.

    Raises:
        ConfigurationError: Kafka refuses: ACLs (the right to Delete), or the topic does not exist.
        BrokerUnavailable: Kafka does not answer.
    """
    if not before:
        return
    async with connected(config, f"purging {topic}") as admin:
        await admin.delete_records({TopicPartition(topic, n): RecordsToDelete(end) for n, end in before.items()})
