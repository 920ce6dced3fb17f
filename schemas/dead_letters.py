"""Dead letters: what could not be processed, byte by byte, and why.

The message's value is the raw value as it came (no bytes for a tombstone), so that any Kafka tool shows it and nothing
is lost in translation; what is known about it is JSON in the header :data:`HEADER`. Its key names its origin, so that a
dead letter written twice (a crash between publishing and committing) can be told from two dead letters. A value that
does not fit into one message comes in several, numbered by ``part`` of ``parts``.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from engramlog.schemas.codec import MAX_EVENT_BYTES
from engramlog.schemas.errors import InvalidEvent, Unprocessable
from engramlog.schemas.instants import Instant
from engramlog.schemas.records import Wire

HEADER = "dead-letter"
_ERROR_CHARACTERS = 2_000
_KEY_BYTES = 32_768
_HEADERS_BYTES = 32_768


class DeadLetter(Wire):
    """Everything but the raw value.

    Attributes:
        reason: Code of what was wrong (``InvalidEvent.reason``, ``unprocessable`` or ``retries_exhausted``).
        error: What was wrong, for people, and what to do; at most 2,000 characters.
        attempts: How often it was tried.
        consumer: Who gave up.
        died: When.
        topic: Where it came from.
        partition: Likewise.
        offset: Likewise.
        recorded_ms: When the broker had appended it there, milliseconds since the epoch.
        key: Its key, base64; None: it had none. At most its first 32 KiB.
        key_bytes_left_out: How many bytes of it are missing.
        headers: Its headers, base64 values (None as they were); headers beyond 32 KiB of JSON are left out.
        headers_left_out: How many those are.
        tombstone: The raw value was null.
        part: Which piece of the raw value this message holds, from 1.
        parts: How many pieces there are.
    """

    reason: str
    error: str
    attempts: Annotated[int, Field(ge=1)] = 1
    consumer: str
    died: Instant
    topic: str
    partition: int
    offset: int
    recorded_ms: int
    key: str | None = None
    key_bytes_left_out: Annotated[int, Field(ge=0)] = 0
    headers: tuple[tuple[str, str | None], ...] = ()
    headers_left_out: int = 0
    tombstone: bool = False
    part: Annotated[int, Field(ge=1)] = 1
    parts: Annotated[int, Field(ge=1)] = 1

    def origin(self) -> bytes:
        """The key of the dead letter: ``topic/partition/offset``."""
        return f"{self.topic}/{self.partition}/{self.offset}".encode()


def letter_of(message: Any, error: InvalidEvent | Unprocessable, *, consumer: str, died: datetime) -> DeadLetter:
    """What is known about a message that cannot be processed.

    Args:
        message: The message, as aiokafka gives it.
        error: What is wrong with it.
        consumer: Who gave up.
        died: When.
    """
    key, key_bytes_left_out = packed_key(message.key)
    headers, left_out = packed_headers(message.headers)
    return DeadLetter(
        reason=error.reason,
        error=shown(error),
        consumer=consumer,
        died=died,
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        recorded_ms=message.timestamp,
        key=key,
        key_bytes_left_out=key_bytes_left_out,
        headers=headers,
        headers_left_out=left_out,
    )


def shown(error: BaseException) -> str:
    """An error as a dead letter shows it: bounded, and always valid Unicode."""
    text = str(error) or type(error).__name__
    return _whole(text[:_ERROR_CHARACTERS])[:_ERROR_CHARACTERS]


def packed_key(key: bytes | None) -> tuple[str | None, int]:
    """A key in base64, and how many bytes of it were left out: a dead letter must always fit into a message."""
    if key is None:
        return None, 0
    return base64.b64encode(key[:_KEY_BYTES]).decode(), len(key[_KEY_BYTES:])


def packed_headers(headers: Sequence[tuple[str, bytes | None]]) -> tuple[tuple[tuple[str, str | None], ...], int]:
    """Headers in base64, and how many were left out because there are too many bytes of them."""
    kept: list[tuple[str, str | None]] = []
    room = _HEADERS_BYTES
    for name, value in headers:
        packed = _whole(name), None if value is None else base64.b64encode(value).decode()
        room -= len(json.dumps(packed))
        if room < 0:
            break
        kept.append(packed)
    return tuple(kept), len(headers) - len(kept)


def _whole(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def messages(letter: DeadLetter, value: bytes | None) -> Iterator[tuple[bytes | None, DeadLetter]]:
    """The messages that carry a dead letter: usually one, more where the value is large."""
    if value is None or len(value) <= MAX_EVENT_BYTES:
        yield value, letter.model_copy(update={"tombstone": value is None})
        return
    parts = -(-len(value) // MAX_EVENT_BYTES)
    for part in range(parts):
        chunk = value[part * MAX_EVENT_BYTES : (part + 1) * MAX_EVENT_BYTES]
        yield chunk, letter.model_copy(update={"part": part + 1, "parts": parts})
