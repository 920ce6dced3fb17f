"""What goes over the pipe between the embedded engine and its child: frames of pickled plain values.

Both ends are the same program on the same machine, one the other's child: pickle is safe, and faster than JSON for
vectors, which travel as bytes. A frame is the length of its body, four bytes little-endian, then the body.
"""

import pickle
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Literal, NamedTuple

_LENGTH = struct.Struct("<I")
HEAD_BYTES: Final = _LENGTH.size

Operation = Literal["open", "upsert", "load", "set_payload", "delete", "query", "count", "scroll", "flush", "stop"]
Fault = Literal["configuration", "unavailable", "unprocessable"]


class NewPoint(NamedTuple):
    """A point to write unless one with the same or a higher sequence is there.

    Attributes:
        id: Its id.
        sequence: See above.
        payload: Its payload.
        dense: Little-endian float32, row after row; None: it has no dense vector.
        rows: How many rows that is.
        sparse: Indices and values of the sparse vector; None: it has none.
    """

    id: str
    sequence: int
    payload: dict[str, Any]
    dense: bytes | None
    rows: int
    sparse: tuple[list[int], list[float]] | None


class Asked(NamedTuple):
    """A query: nearest to one of the vectors, or what the filter finds in the order of ids.

    Attributes:
        limit: At most so many.
        where: The filter, in the form of Qdrant's REST interface.
        dense: Little-endian float32, row after row.
        rows: How many rows that is.
        sparse: Indices and values.
        payload: Whether the payload is wanted, or which keys of it.
        vectors: Whether vectors are wanted, or which ones.
    """

    limit: int
    where: dict[str, Any] | None
    dense: bytes | None
    rows: int
    sparse: tuple[list[int], list[float]] | None
    payload: bool | list[str]
    vectors: bool | list[str]


PlainVectors = dict[str, tuple[Any, Any]]
"""Vectors by name: little-endian float32 and how many rows that is, or indices and values of a sparse one."""

Found = tuple[str, float, dict[str, Any] | None, PlainVectors | None]
"""A point that was found: id, score (0.0 for what was not scored), payload and vectors, if wanted.

Tuples without a class: pickle makes no call for each of them.
"""


@dataclass(frozen=True, slots=True)
class Request:
    """A request; its reply bears the same number."""

    number: int
    operation: Operation
    argument: Any


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply.

    Attributes:
        number: The request's number.
        result: What it gave.
        fault: Why it failed; None: it did not.
        message: The fault, for people.
    """

    number: int
    result: Any = None
    fault: Fault | None = None
    message: str = ""


def framed(message: Request | Reply) -> bytes:
    """A message as a frame."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


def body_bytes(head: bytes) -> int:
    """Length of the body that follows a head."""
    return int(_LENGTH.unpack(head)[0])


def parsed(body: bytes) -> Any:
    """The message in a frame's body."""
    return pickle.loads(body)  # noqa: S301 - see the module's text


def packed(points: Sequence[NewPoint]) -> bytes:
    """Points as the content of a file. Tuples without a class: pickle makes no call for each of them."""
    return pickle.dumps([tuple(point) for point in points], pickle.HIGHEST_PROTOCOL)


def unpacked(content: bytes) -> list[NewPoint]:
    """The points of a file."""
    return [NewPoint._make(values) for values in pickle.loads(content)]  # noqa: S301 - see the module's text


def read_frame(stream: BinaryIO) -> Request | None:
    """The next message of a blocking stream; None at its end, also in the middle of a frame."""
    head = stream.read(HEAD_BYTES)
    if len(head) < HEAD_BYTES:
        return None
    body = stream.read(body_bytes(head))
    return parsed(body) if len(body) == body_bytes(head) else None
