"""What every request carries; positions on the wire, and as a token; points in the past."""

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field, StringConstraints, ValidationError, model_validator

from engramlog.schemas.errors import RequestRefused
from engramlog.schemas.instants import Instant
from engramlog.schemas.records import Wire
from engramlog.schemas.scope import Users

Topic = Annotated[str, StringConstraints(min_length=1, max_length=249)]
Offset = Annotated[int, Field(ge=0, strict=True)]
MAX_WINDOW = 1_000_000
MAX_POSITIONS = 5_000
"""How many partitions a point in the past may name."""
MAX_IDS = 10_000
"""How many records one command may name."""
ProjectionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
"""What a read-only projection may be called."""
Reason = Annotated[str, StringConstraints(max_length=10_000)]


class Reached(Wire):
    """A position on the wire: everything up to and including ``offset`` is meant.

    Attributes:
        topic: Full topic name.
        partition: Partition.
        offset: Offset of the last event.
    """

    topic: Topic
    partition: Offset
    offset: Offset


class AsOf(Wire):
    """Memory as it was: exactly one of four axes.

    The engine answers from what it has now. So a record that was sent again since is absent (its last copy, which is
    newer, is the only one); what was erased stays erased; topic, importance and the vectors that are searched are those
    of the last derivation, also where an earlier text is shown. A replay until a token builds memory as it was, as far
    as the compacted log can tell.

    Attributes:
        offset: Recorded axis: as of this offset of the agent's partition, inclusive.
        recorded: Recorded axis: as of this log time, inclusive.
        happened: Happened axis: of what is remembered now, what happened until this instant, inclusive.
        positions: Recorded axis: as of one position a partition, inclusive, e.g. those of a token. The one of the
            agent's partition of the records counts. A partition that is not named held nothing yet: memory was empty.
            Positions that name topics, but not the records of this engine, are refused.
    """

    offset: Offset | None = None
    recorded: Instant | None = None
    happened: Instant | None = None
    positions: Annotated[tuple[Reached, ...], Field(max_length=MAX_POSITIONS)] | None = None

    @model_validator(mode="after")
    def _names_one_axis(self) -> "AsOf":
        if sum(v is not None for v in (self.offset, self.recorded, self.happened, self.positions)) != 1:
            raise ValueError("name exactly one of 'offset', 'recorded', 'happened' and 'positions'")
        places = [(p.topic, p.partition) for p in self.positions or ()]
        if len(set(places)) != len(places):
            raise ValueError("'positions' names a partition twice: one position a partition")
        return self


class Page(Wire):
    """Where the next page of a long history goes on: as given by the page before, never made up.

    Attributes:
        before: Only records at lower offsets.
        rank: How many records of the window were already given (the next one scores ``keep_rate ** rank``).
        as_of: The offset at which the first page was read; all pages show the same memory.
    """

    before: Offset
    rank: Offset
    as_of: Offset


class Query(Wire):
    """What every query carries.

    Attributes:
        users: Whose records are seen: the envelope's user's and the shared ones, or everybody's.
        timeout_ms: For how long the caller waits, from the moment the broker took the request; later, nobody answers.
        min_positions: What the answer must have seen; it waits for it, until shortly before the deadline.
        projection: The name of a read-only projection to be asked, memory as it was; None: memory as it is.
    """

    users: Users = "own"
    timeout_ms: Annotated[int, Field(ge=1, le=600_000, strict=True)] = 10_000
    min_positions: Annotated[tuple[Reached, ...], Field(max_length=64)] = ()
    projection: ProjectionName | None = None


POSITIONS_PREFIX: Final = "p1."
"""What every token of positions begins with: its version. No time and no offset begins so."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]*")
_MOST_BYTES: Final = 1_000_000
_CRC_BYTES: Final = 4


def positions_token(positions: Iterable[Reached]) -> str:
    """Positions as one short text, which goes through URLs, shells and chats unharmed; of equal positions it is equal.

    Without its prefix it is base64url (RFC 4648, no padding) of the CRC-32 (big-endian) of a JSON object, and of that
    object, deflated (RFC 1950): for each topic a flat list of partitions that are skipped and the offset that follows
    the position, in turns. 36 partitions take 150 to 400 characters.

    Args:
        positions: At most one a partition; of a partition where nothing lies there is none.

    Raises:
        ValueError: A partition is named twice.
    """
    topics: dict[str, list[int]] = {}
    lasts: dict[str, int] = {}
    for at in sorted(positions, key=lambda p: (p.topic, p.partition)):
        skipped = at.partition - lasts.get(at.topic, -1) - 1
        if skipped < 0:
            raise ValueError(f"{at.topic}/{at.partition} is named twice: one position a partition")
        topics.setdefault(at.topic, []).extend((skipped, at.offset + 1))
        lasts[at.topic] = at.partition
    plain = json.dumps(topics, separators=(",", ":"), ensure_ascii=False).encode()
    packed = zlib.crc32(plain).to_bytes(_CRC_BYTES, "big") + zlib.compress(plain, 9)
    return POSITIONS_PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def positions_of(token: str) -> tuple[Reached, ...]:
    """The positions of a token, by topic and partition.

    Raises:
        RequestRefused: It is none, of a version that is not known here, or damaged.
    """
    text = token.strip()
    if not text.startswith(POSITIONS_PREFIX):
        raise RequestRefused(
            "bad_request",
            f"{token[:40]!r} is no token of positions that is known here; one begins with {POSITIONS_PREFIX!r}: see "
            "'engramlog status --token'",
        )
    try:
        return _unpacked(text.removeprefix(POSITIONS_PREFIX))
    except (ValueError, TypeError, AttributeError, zlib.error) as error:
        message = f"the token {text[:12]}… is damaged ({error}): a character is missing or was changed; copy it again"
        raise RequestRefused("bad_request", message) from None


def _unpacked(body: str) -> tuple[Reached, ...]:
    if not _TOKEN.fullmatch(body):  # the decoder would pass over what does not belong there
        raise ValueError("it holds a character that no token has")
    try:
        packed = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
    if base64.urlsafe_b64encode(packed).decode().rstrip("=") != body:
        raise ValueError("its last character is another")
    inflate = zlib.decompressobj()
    plain = inflate.decompress(packed[_CRC_BYTES:], _MOST_BYTES)
    if not inflate.eof or inflate.unused_data or zlib.crc32(plain).to_bytes(_CRC_BYTES, "big") != packed[:_CRC_BYTES]:
        raise ValueError("its checksum is wrong")
    found = []
    for topic, flat in json.loads(plain).items():
        last = -1
        for skipped, following in zip(flat[::2], flat[1::2], strict=True):
            last += skipped + 1
            found.append(Reached(topic=topic, partition=last, offset=following - 1))
    return tuple(found)


PointInTime: TypeAlias = AsOf | datetime | str
"""A point in the past as people and programs give it: a time is one of the recorded axis; a text is such a time, an
offset of the agent's partition, or a token."""


def point_of(given: PointInTime | None) -> AsOf | None:
    """A point in the past, however it was given; None: now.

    Raises:
        RequestRefused: It is no time, offset or token; or a time without an offset, which names no instant.
    """
    if given is None or isinstance(given, AsOf):
        return given
    if isinstance(given, datetime):
        return _as_of(given, recorded=given)
    if given.strip().startswith(POSITIONS_PREFIX):
        return _as_of(given, positions=positions_of(given))
    if given.isascii() and given.isdecimal():
        return _as_of(given, offset=int(given))
    try:
        return _as_of(given, recorded=datetime.fromisoformat(given))
    except ValueError:
        message = (
            f"{given[:40]!r} is no time (2026-03-01T00:00:00Z), no offset and no token of 'engramlog status --token'"
        )
        raise RequestRefused("bad_request", message) from None


def _as_of(given: PointInTime, **axis: Any) -> AsOf:
    try:
        return AsOf(**axis)
    except ValidationError as error:
        why = error.errors(include_url=False)[0]["msg"]
        raise RequestRefused("bad_request", f"as of {str(given)[:40]!r}: {why}") from None
