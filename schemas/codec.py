"""Bytes to events and back, with limits, and one clear error for each way of being wrong."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

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
from engramlog.schemas.json_values import MAX_DEPTH
from engramlog.schemas.queries import QueryAsked, QueryReplied
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
        if not value:
            raise EmptyValue("the value has no bytes; a tombstone is a null value, an event is a JSON object")
        if len(value) > self.max_bytes:
            raise TooLarge(f"{len(value):,} bytes, allowed are {self.max_bytes:,}: {_SHRINK}")
        if value.count(b"{") + value.count(b"[") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
            raise TooDeep(f"nested deeper than {MAX_DEPTH} levels; store the document elsewhere and link it")
        try:
            return self._adapter.validate_json(value)
        except ValidationError as error:
            return self._second_look(value, error)

    def _second_look(self, value: bytes, error: ValidationError) -> E:
        event = _parse(value)
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            raise NotAnEvent("the value is not a CloudEvents object: it needs specversion, id, type, source, data, …")
        if not self._lift.needs(event["type"]):
            raise _explain(error) from None
        lifted = self._lift(event)
        try:
            return self._adapter.validate_json(json.dumps(lifted))
        except ValidationError as lifted_error:
            raise _explain(lifted_error) from None

    def encode(self, event: E) -> bytes:
        """Encode one event.

        Raises:
            TooLarge: It has more bytes than an event may have.
        """
        body = event.__pydantic_serializer__.to_json(event, exclude_defaults=self._sparse, exclude_none=True)
        if self._sparse:  # CloudEvents requires these two, default or not
            kind: str = type(event).model_fields["type"].default
            body = b'{"specversion":"1.0","type":"' + kind.encode() + b'",' + body[1:]
        value: bytes = body
        if len(value) > self.max_bytes:
            raise TooLarge(f"{len(value):,} bytes, allowed are {self.max_bytes:,}: {_SHRINK}")
        return value


_SHRINK = "split the text, or pass large parts by reference (a URL) instead of inline"


def _types_of(union: Any) -> list[str]:
    inner = get_args(union)[0] if get_args(union) else union
    classes = get_args(inner) or (inner,)
    return [cls.model_fields["type"].default for cls in classes]


def _depth(value: bytes) -> int:
    """Deepest nesting of brackets outside of strings."""
    deepest = depth = 0
    in_string = escaped = False
    for byte in value:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:  # backslash
                escaped = True
            elif byte == 0x22:  # quote
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in b"{[":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"}]":
            depth -= 1
    return deepest


def _parse(value: bytes) -> Any:
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise NotUtf8(f"byte {error.start} is not UTF-8 ({error.reason}); encode events as UTF-8") from None
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotJson(f"the value is not JSON: {error}") from None
    try:
        json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise LoneSurrogate(
            f"a string holds half a character ({error.object[error.start]!r}): it was cut inside an emoji, or not "
            "decoded as UTF-16; repair the text before it is published"
        ) from None
    return parsed


def _explain(error: ValidationError) -> InvalidEvent:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"] if not str(part).startswith("engramlog."))
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "timezone_aware":
        return NaiveTime(f"{where}: a time needs an offset, e.g. 2026-03-01T00:00:00Z or +08:00{more}")
    return SchemaViolation(f"{where}: {first['msg']}{more}")


def invalid(error: ValidationError) -> InvalidEvent:
    """The error of a model that was built in Python, as the codec would have named it."""
    if any("surrogate" in e["msg"] or e["type"] == "string_unicode" for e in error.errors(include_url=False)):
        where = ".".join(str(part) for part in error.errors(include_url=False)[0]["loc"])
        return LoneSurrogate(f"{where}: a string holds half a character; repair the text before it is published")
    return _explain(error)


@lru_cache(maxsize=1)
def records_codec() -> Codec[Any]:
    """The codec of ``memory.records``."""
    return Codec(RecordEvent)


@lru_cache(maxsize=1)
def queries_codec() -> Codec[QueryAsked]:
    """The codec of ``memory.queries``."""
    return Codec(QueryAsked, sparse=False)


@lru_cache(maxsize=1)
def replies_codec() -> Codec[QueryReplied]:
    """The codec of ``memory.replies``."""
    return Codec(QueryReplied, sparse=False)


def json_schema(model: type[BaseModel] | Any) -> dict[str, Any]:
    """The JSON Schema of what the codec accepts."""
    return TypeAdapter(model).json_schema(mode="validation")
