"""What the formats share: records with our errors, what is kept beside fields, text that stands for a part."""

import hashlib
import re
from typing import Any, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from engramlog.schemas.codec import invalid
from engramlog.schemas.records import MemoryRecord, Part

OPENAI = "_openai"
CAMEL = "_camel"
RESERVED = frozenset({CAMEL, OPENAI})
"""Keys of ``metadata`` and of a part's ``detail`` that belong to a format."""

K = TypeVar("K", bound=BaseModel)

_TAG_CHARACTERS = 256
_MEDIA_TYPE = re.compile(r"data:([\w.+-]{1,100}/[\w.+-]{1,100})[;,]", re.ASCII)


def make_record(fields: dict[str, Any]) -> MemoryRecord:
    """A record of these fields.

    Raises:
        InvalidEvent: A subclass says what no event can hold (NaN, half characters, too deep, out of range).
    """
    try:
        return MemoryRecord(**fields)
    except ValidationError as error:
        raise invalid(error) from None


def make_part(fields: dict[str, Any]) -> Part:
    """A part of these fields; raises like :func:`make_record`."""
    try:
        return Part(**fields)
    except ValidationError as error:
        raise invalid(error) from None


def kept_as(model: type[K], kept: JsonValue) -> K | None:
    """What a format kept under its key; None: nothing, or nothing of ours, for a publisher may write anything there."""
    if kept is None:
        return None
    try:
        return model.model_validate(kept)
    except ValidationError:
        return None


def fits(value: object) -> bool:
    """Whether a value can stand in a field such as ``name``: a string of 1 to 256 characters."""
    return isinstance(value, str) and 0 < len(value) <= _TAG_CHARACTERS


def short(call_id: str) -> str:
    """A tool call's id, or what stands for one of more than 256 characters: some gateways hide a signature in it.

    The same for the call and for its result, so that they still find each other.
    """
    if len(call_id) <= _TAG_CHARACTERS:
        return call_id
    return f"sha256:{hashlib.sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()}"


def joined(parts: tuple[Part, ...]) -> str:
    """The text of the text parts: what ``content`` says of a record whose text is in its parts."""
    return "\n".join(part.text for part in parts if part.type == "text" and part.text)


def media_type(url: str) -> str | None:
    """The MIME type that a ``data:`` URL states."""
    found = _MEDIA_TYPE.match(url)
    return found[1] if found else None


def note(part: Part) -> str:
    """A line that stands for a part where a format has no place for it, e.g. ``[video: https://example.org/a.mp4]``."""
    if part.type == "text":
        return part.text or ""
    url = part.url or ""
    known = (part.detail.get("filename"), part.media_type, "inline" if url.startswith("data:") else url)
    return f"[{part.type}: {', '.join(str(item) for item in known if item)}]"
