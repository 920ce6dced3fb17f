"""Bytes to events and back, with limits, and one clear error for each way of being wrong."""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Generic, NoReturn, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError

from engramlog.schemas.derived import DerivedEvent
from engramlog.schemas.envelope import Envelope, RecordEvent
from engramlog.schemas.errors import (
    EmptyValue,
    InvalidEvent,
    LoneSurrogate,
    NaiveTime,
    NotAnEvent,
    NotJson,
    NotUtf8,
    SchemaViolation,
    TooDeep,
    TooLarge,
)
from engramlog.schemas.json_values import MAX_DEPTH, SHALLOWER, WHOLE_TEXT
from engramlog.schemas.queries import QueryAsked, QueryReplied
from engramlog.schemas.summaries import SummaryEvent
from engramlog.schemas.upcasters import UPCASTERS, Lift, Upcaster

MAX_EVENT_BYTES = 900_000
"""Default size limit of an encoded event: below the 1 MiB that a broker takes by default."""

E = TypeVar("E", bound=Envelope)


class Codec(Generic[E]):
    """Decodes the events of one topic.

    A good event of the newest version is parsed and validated in one pass. Only what fails that is looked at closer:
    to lift an old version, or to name what is wrong.

    Args:
        union: The events, a union discriminated by ``type`` or a single event class.
        upcasters: What lifts older versions.
        max_bytes: Size limit of an encoded event.
        sparse: Whether fields at their defaults are left out when encoding.

    Raises:
        ConfigurationError: The chain of upcasters has a hole.
    """

    def __init__(
        self,
        union: Any,
        upcasters: Mapping[str, Upcaster] = UPCASTERS,
        *,
        max_bytes: int = MAX_EVENT_BYTES,
        sparse: bool = True,
    ) -> None:
        self._adapter: TypeAdapter[E] = TypeAdapter(union)
        self._lift = Lift(_types_of(union), upcasters)
        self._sparse = sparse
        self.max_bytes = max_bytes

    def decode(self, value: bytes) -> E:
        """Decode one event, in its newest version.

        Raises:
            InvalidEvent: A subclass says what is wrong with the bytes.
        """
        return self.decode_current(value)[0]

    def decode_current(self, value: bytes) -> tuple[E, bytes]:
        """Decode one event; also its bytes in its newest version, which are ``value`` itself unless it was lifted.

        Raises:
            InvalidEvent: A subclass says what is wrong with the bytes.
        """
        _check_limits(value, self.max_bytes)
        try:
            event, current = self._adapter.validate_json(value), value
        except ValidationError as error:
            event, current = self._second_look(value, error)
        if unsaid := event.unsaid():
            raise SchemaViolation(
                f"{', '.join(sorted(unsaid))}: missing; the publisher must set it, or every reading "
                "of the log would make up another value"
            )
        return event, current

    def _second_look(self, value: bytes, error: ValidationError) -> tuple[E, bytes]:
        event = _parse(value)
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            raise NotAnEvent("the value is not a CloudEvents object: it needs specversion, id, type, source, data, …")
        if event.get("specversion") != "1.0":
            raise NotAnEvent(f"specversion is {event.get('specversion')!r}: write CloudEvents 1.0, specversion '1.0'")
        if not self._lift.needs(event["type"]):
            raise invalid(error) from None
        lifted = json.dumps(self._lift(event), ensure_ascii=False).encode()
        try:
            return self._adapter.validate_json(lifted), lifted
        except ValidationError as lifted_error:
            raise invalid(lifted_error) from None

    def encode(self, event: E) -> bytes:
        """Encode one event.

        Raises:
            TooLarge: It has more bytes than an event may have.
            LoneSurrogate: A string, put in past validation, is not valid Unicode.
        """
        try:
            body = event.__pydantic_serializer__.to_json(event, exclude_defaults=self._sparse, exclude_none=True)
        except PydanticSerializationError as error:
            raise LoneSurrogate(f"a string holds half a character; {WHOLE_TEXT} ({error})") from None
        if self._sparse:  # CloudEvents requires these two, default or not
            kind: str = type(event).model_fields["type"].default
            body = b'{"specversion":"1.0","type":"' + kind.encode() + b'",' + body[1:]
        value: bytes = body
        if len(value) > self.max_bytes:
            raise TooLarge(f"{len(value):,} bytes, allowed are {self.max_bytes:,}: {_SHRINK}")
        return value


def parse_json(value: bytes, *, max_bytes: int = MAX_EVENT_BYTES) -> Any:
    """Parse JSON from a stranger, within the limits of an event.

    Raises:
        InvalidEvent: A subclass says what is wrong with the bytes.
    """
    _check_limits(value, max_bytes)
    return _parse(value)


def _check_limits(value: bytes, max_bytes: int) -> None:
    if not value:
        raise EmptyValue("the value has no bytes; a tombstone is a null value, an event is a JSON object")
    if len(value) > max_bytes:
        raise TooLarge(f"{len(value):,} bytes, allowed are {max_bytes:,}: {_SHRINK}")
    if value.count(b"{") + value.count(b"[") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise TooDeep(f"nested deeper than {MAX_DEPTH} levels; {SHALLOWER}")


_SHRINK = "split the text, or pass large parts by reference (a URL) instead of inline"


def _types_of(union: Any) -> list[str]:
    inner = get_args(union)[0] if get_args(union) else union
    classes = get_args(inner) or (inner,)
    return [cls.model_fields["type"].default for cls in classes]


_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))


def _depth(value: bytes) -> int:
    """Deepest nesting of brackets outside of strings."""
    deepest = depth = 0
    for bracket in _STRING.sub(b"", value).translate(None, _NO_BRACKETS):
        depth += 1 if bracket in b"{[" else -1
        deepest = max(deepest, depth)
    return deepest


def _parse(value: bytes) -> Any:
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise NotUtf8(f"byte {error.start} is not UTF-8 ({error.reason}); encode events as UTF-8") from None
    try:
        parsed = json.loads(text, parse_constant=_not_json)
    except ValueError as error:
        raise NotJson(f"the value is not JSON: {error}") from None
    try:
        json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise LoneSurrogate(
            f"a string holds half a character ({error.object[error.start]!r}): it was cut inside an emoji, or not "
            f"decoded as UTF-16; {WHOLE_TEXT}"
        ) from None
    return parsed


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number; use null or a string")


_SURROGATES = {"lone_surrogate", "string_unicode"}
_DEPTHS = {"too_deep", "recursion_loop", "recursion_depth_exceeded"}
_HINTS = {
    "missing": "; the field is required",
    "extra_forbidden": "; check its spelling, and put data of your own into 'metadata'",
}
_SHOWN_PARTS = 8


def invalid(error: ValidationError) -> InvalidEvent:
    """What a validation found wrong, as the one error that says it best: for bytes and for models built in Python."""
    details = error.errors(include_url=False, include_input=False, include_context=False)
    first = next((d for d in details if d["type"] in _SURROGATES | _DEPTHS), details[0])
    where = _where(first)
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    if first["type"] in _SURROGATES:
        return LoneSurrogate(f"{where}a string holds half a character; {WHOLE_TEXT}{more}")
    if first["type"] in _DEPTHS:
        return TooDeep(f"{where}nested too deep; {SHALLOWER}{more}")
    if first["type"] == "timezone_aware":
        return NaiveTime(f"{where}a time needs an offset, e.g. 2026-03-01T00:00:00Z or +08:00{more}")
    if first["type"] == "json_invalid":
        return NotJson(f"the value is not JSON: {first['msg']}")
    message = first["msg"].removeprefix("Value error, ")
    return SchemaViolation(f"{where}{message}{_HINTS.get(first['type'], '')}{more}")


def _where(detail: ErrorDetails) -> str:
    parts = [str(part) for part in detail["loc"]]
    if parts and parts[0].startswith("engramlog."):  # the member of the union, no field
        parts = parts[1:]
    shown = ".".join(parts[:_SHOWN_PARTS]) + (".…" if len(parts) > _SHOWN_PARTS else "")
    return f"{shown}: " if shown else ""


@lru_cache(maxsize=1)
def records_codec() -> Codec[Any]:
    """The codec of ``memory.records``."""
    return Codec(RecordEvent)


@lru_cache(maxsize=1)
def derived_codec() -> Codec[Any]:
    """The codec of ``memory.derived.gN``."""
    return Codec(DerivedEvent)


@lru_cache(maxsize=1)
def summaries_codec() -> Codec[Any]:
    """The codec of ``memory.summaries``."""
    return Codec(SummaryEvent)


@lru_cache(maxsize=1)
def queries_codec() -> Codec[QueryAsked]:
    """The codec of ``memory.queries``."""
    return Codec(QueryAsked, sparse=False)


@lru_cache(maxsize=1)
def replies_codec() -> Codec[QueryReplied]:
    """The codec of ``memory.replies``."""
    return Codec(QueryReplied)
