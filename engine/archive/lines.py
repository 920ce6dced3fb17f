"""The lines of an archive.

An archive is JSON lines, compressed with zstd. The first line is the manifest, the last one the footer; between them
lies a line for each message::

    {"archive":"engramlog","version":1,"created":"…","cluster":"…","prefix":"memory","partitions":12,
     "topics":[{"role":"records","name":"memory.records","begin":[0,…],"end":[17,…]},…],"filter":{}}
    {"topic":"records","partition":3,"offset":7,"recorded_ms":1767225600000,"key":"acme/helper/r1","event":{…}}
    {"footer":{"messages":{"records":4711,…},"undecodable":0,"blake2b":"…"}}

``event`` is the last member of its line and holds the message's own bytes (line breaks between tokens are spaces);
``null`` is a tombstone. Bytes that are no event of ours are there as ``bytes`` in base64, with a ``reason``. The order
is that of :class:`~engramlog.engine.client.copying.ordering.Ordered`, topic after topic, records first: one pass is
enough to copy it. The checksum is over all lines before the footer.
"""

import base64
import binascii
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engramlog.engine.client.reader import Message
from engramlog.schemas.codec import invalid
from engramlog.schemas.errors import InvalidEvent, Permanent
from engramlog.schemas.scope import Position

VERSION = 1
MAX_LINE_BYTES = 16_000_000
"""No line of an archive is longer: a message is at most 1 MiB, and base64 and headers add to it."""
_EVENT = b',"event":'


class BadArchive(Permanent):
    """A file that is no whole archive of a version that we know; the message says what is wrong, and where."""

    reason = "bad_archive"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class TopicSpan(_Part):
    """A topic of an archive.

    Attributes:
        role: ``records``, ``derived.gN`` or ``summaries``.
        name: Its full name in its cluster.
        begin: By partition, its first offset when the archive was begun.
        end: By partition, its end then: what came later is not in the archive.
    """

    role: Annotated[str, Field(pattern=r"^(records|summaries|derived\.g[1-9][0-9]{0,8})$")]
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
    begin: tuple[int, ...]
    end: tuple[int, ...]


class Filter(_Part):
    """What an archive was restricted to; empty: nothing."""

    tenant: str | None = None
    agent: str | None = None
    generation: int | None = None


class Manifest(_Part):
    """The first line."""

    archive: Literal["engramlog"]
    version: int
    created: datetime
    cluster: Annotated[str, Field(pattern=r"^[^/]{0,256}$")] = ""
    prefix: str
    partitions: Annotated[int, Field(ge=1, le=100_000)]
    topics: Annotated[tuple[TopicSpan, ...], Field(min_length=1, max_length=1_000)]
    filter: Filter = Filter()

    def line(self) -> bytes:
        """Its line."""
        return self.model_dump_json(exclude_none=True).encode() + b"\n"


class Footer(_Part):
    """The last line.

    Attributes:
        messages: By topic, how many messages there are.
        undecodable: How many of them are no events of ours.
        blake2b: Over all lines before, 32 bytes in hexadecimal.
    """

    messages: dict[str, int]
    undecodable: int
    blake2b: str

    def line(self) -> bytes:
        """Its line."""
        return b'{"footer":' + self.model_dump_json().encode() + b"}\n"


@dataclass(frozen=True, slots=True)
class Line:
    """A line with a message.

    Attributes:
        topic: The role of its topic.
        message: The message; the topic of its position is the role.
    """

    topic: str
    message: Message


def manifest_of(line: bytes) -> Manifest:
    """The manifest.

    Raises:
        BadArchive: It is none, or of a version that we do not know.
    """
    try:
        known = json.loads(line)
        version = known.get("version") if isinstance(known, dict) and known.get("archive") == "engramlog" else None
    except (ValueError, RecursionError):
        version = None
    if version is None:
        raise BadArchive("line 1 is no manifest: this is no archive of engramlog")
    if version != VERSION:
        raise BadArchive(f"the archive has the format version {version!r}, this engramlog reads {VERSION}: update it")
    try:
        return Manifest.model_validate_json(line)
    except ValidationError as error:
        raise BadArchive(f"line 1: {invalid(error)}") from None


def footer_of(line: bytes) -> Footer | None:
    """The footer; None: the line is something else."""
    if not line.startswith(b'{"footer":'):
        return None
    try:
        return Footer.model_validate(json.loads(line)["footer"])
    except (ValueError, RecursionError, ValidationError, KeyError, TypeError):
        return None


def line_of(topic: str, message: Message, reason: str | None) -> bytes:
    """The line of a message.

    Args:
        topic: The role of its topic.
        message: The message.
        reason: Why it is no event of ours; None: it is one.
    """
    head: dict[str, Any] = {
        "topic": topic,
        "partition": message.position.partition,
        "offset": message.position.offset,
        "recorded_ms": round(message.recorded.timestamp() * 1000),
    }
    key = message.key
    if message.headers:
        head["headers"] = [[name, _base64(value)] for name, value in message.headers]
    if reason is not None:
        head |= {"key_bytes": _base64(key), "reason": reason, "bytes": _base64(message.value)}
        return _dumped(head) + b"\n"
    head["key"] = None if key is None else key.decode()
    value = message.value or b"null"
    if b"\n" in value or b"\r" in value:  # white space between tokens: within a string it is escaped
        value = value.replace(b"\n", b" ").replace(b"\r", b" ")
    return _dumped(head)[:-1] + _EVENT + value + b"}\n"


def parse_line(line: bytes, number: int) -> Line:
    """The message of a line.

    Raises:
        BadArchive: It holds none.
    """
    start = line.find(_EVENT)
    end = len(line) - 1 if line.endswith(b"\n") else len(line)
    try:
        if start >= 0:
            if line[end - 1 : end] != b"}":
                raise BadArchive(f"line {number} is cut off")
            return _line(json.loads(line[:start] + b"}"), line[start + len(_EVENT) : end - 1])
        return _line(json.loads(line), None)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, InvalidEvent) as error:
        raise BadArchive(f"line {number} is no message of an archive: {type(error).__name__}: {error}") from None


def _line(head: dict[str, Any], event: bytes | None) -> Line:
    topic, partition, offset = head["topic"], _number(head["partition"]), _number(head["offset"])
    if event is None:
        key, value = _bytes(head["key_bytes"]), _bytes(head["bytes"])
    else:
        key, value = head["key"].encode(), None if event.strip() == b"null" else event
    headers = tuple((str(name), _bytes(text)) for name, text in head.get("headers", ()))
    recorded = datetime.fromtimestamp(_number(head["recorded_ms"]) / 1000, UTC)
    return Line(str(topic), Message(Position(str(topic), partition, offset), recorded, key, value, headers))


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r} is no offset, partition or time")
    return value


def _dumped(head: dict[str, Any]) -> bytes:
    return json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"no base64: {error}") from None
