"""The content parts of OpenAI's messages to parts of a record and back.

What a part says beyond the fields is kept in ``detail["_openai"]`` (:class:`_KeptItem`), for every part that came from
OpenAI: so it comes out as it was, whoever said it, while a part by hand comes out as OpenAI accepts it.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from engramlog.schemas.errors import SchemaViolation
from engramlog.schemas.formats.making import OPENAI, joined, kept_as, make_part, media_type, note
from engramlog.schemas.records import MemoryRecord, Part

_FILE_ID = "openai-file:"


class _KeptItem(BaseModel):
    """A content part without its text or URL.

    Attributes:
        item: The part as it was, without what stands in the record's part.
        at: Where in it the text or the URL belongs; nowhere: a part that we do not know, kept in whole.
        cut: How many characters of the URL were put in front of what stood there, to make it one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    item: dict[str, JsonValue] = Field(default={"type": "text"})
    at: Annotated[tuple[str, ...], Field(max_length=2)] = ("text",)
    cut: Annotated[int, Field(ge=0)] = 0


_PLACES: dict[str, tuple[str, tuple[str, ...]]] = {
    "text": ("text", ("text",)),
    "refusal": ("text", ("refusal",)),
    "image_url": ("image", ("image_url", "url")),
    "video_url": ("video", ("video_url", "url")),  # vLLM, OpenRouter
    "audio_url": ("audio", ("audio_url", "url")),  # vLLM
    "input_audio": ("audio", ("input_audio", "data")),
    "file": ("file", ("file", "file_data")),
}
"""Which part a content part is, and where its text or URL stands."""

_TOLD = ("detail", "filename", "format")
"""What a content part says of its content and any reader of the record understands: it stands in ``Part.detail``."""

_AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}


def part_of(item: object) -> Part:
    """The part of a content part.

    Raises:
        InvalidEvent: A subclass: no object, or one that no event can hold.
    """
    if not isinstance(item, dict):
        raise SchemaViolation(f"content: a part is an object, not {type(item).__name__}")
    kind = item.get("type")
    kind, at = _PLACES.get(kind, ("", ())) if isinstance(kind, str) else ("", ())
    if kind == "file" and isinstance(item.get("file"), dict) and "file_data" not in item["file"]:
        at = ("file", "file_id")
    holder = item.get(at[0]) if len(at) > 1 else item
    if not kind or not isinstance(holder, dict) or not isinstance(holder.get(at[-1]), str):
        return make_part({"type": "text", "text": "", "detail": {OPENAI: {"item": item, "at": []}}})
    value = holder[at[-1]]
    if kind == "text":
        return _marked({"type": "text", "text": value}, item, at, cut=0)
    prefix = _prefix(at, holder, value)
    url = prefix + value
    return _marked({"type": kind, "url": url, "media_type": media_type(url)}, item, at, cut=len(prefix))


def _prefix(at: tuple[str, ...], holder: dict[str, Any], value: str) -> str:
    """What makes the value a URL: OpenAI has audio as bare base64, files as a ``data:`` URL, bare, or by id."""
    if at[-1] == "file_id":
        return _FILE_ID
    if at[-1] == "data":
        audio = holder.get("format")
        known = _AUDIO_TYPES.get(audio) if isinstance(audio, str) else None
        return f"data:{known or 'application/octet-stream'};base64,"
    return "data:application/octet-stream;base64," if at[-1] == "file_data" and not value.startswith("data:") else ""


def _marked(fields: dict[str, Any], item: dict[str, Any], at: tuple[str, ...], *, cut: int) -> Part:
    holder = item[at[0]] if len(at) > 1 else {}
    told = {key: holder[key] for key in _TOLD if isinstance(holder.get(key), str)}
    left = {key: value for key, value in item.items() if key != at[0]}
    if len(at) > 1:
        left[at[0]] = {key: value for key, value in holder.items() if key != at[1] and key not in told}
    kept: dict[str, Any] = {"item": left, "at": list(at)} if left != {"type": "text"} else {}
    kept |= {"cut": cut} if cut else {}
    return make_part({**fields, "detail": {**told, OPENAI: kept}})


def items_of(record: MemoryRecord) -> list[dict[str, Any]]:
    """The content parts; text that the parts do not say, by hand or by a correction, stands in place of theirs."""
    parts = record.parts
    came = any(OPENAI in part.detail for part in parts)
    if record.content != joined(parts) and (record.content or came):
        first = next((place for place, part in enumerate(parts) if part.text), 0)
        said = [make_part({"type": "text", "text": record.content})] if record.content else []
        parts = (*_wordless(parts[:first]), *said, *_wordless(parts[first:]))
    return [_item(part, record.role) for part in parts]


def _wordless(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    return tuple(part for part in parts if not part.text)


def _item(part: Part, role: str) -> dict[str, Any]:
    kept = kept_as(_KeptItem, part.detail.get(OPENAI))
    if kept is not None:
        return _exact_item(part, kept)
    item = _user_item(part) if role == "user" else None
    return item or {"type": "text", "text": note(part)}


def _exact_item(part: Part, kept: _KeptItem) -> dict[str, Any]:
    if not kept.at:  # a part that we do not know
        return kept.item
    value = part.text if part.type == "text" else (part.url or "")[kept.cut :]
    if len(kept.at) == 1:
        return {**kept.item, kept.at[0]: value}
    told = {key: part.detail[key] for key in _TOLD if key in part.detail}
    inner = kept.item.get(kept.at[0])
    return {**kept.item, kept.at[0]: {**(inner if isinstance(inner, dict) else {}), **told, kept.at[1]: value}}


def _user_item(part: Part) -> dict[str, Any] | None:
    """A part as a user may say it, or None where OpenAI has no such part."""
    url, detail = part.url or "", part.detail
    if part.type == "image" and url.startswith(("https://", "http://", "data:")):
        level = {"detail": detail["detail"]} if detail.get("detail") in {"auto", "low", "high"} else {}
        return {"type": "image_url", "image_url": {"url": url, **level}}
    if part.type == "audio" and (audio := _AUDIO_FORMATS.get(media_type(url) or "")):
        return {"type": "input_audio", "input_audio": {"data": url.partition(",")[2], "format": audio}}
    if part.type == "file" and url.startswith(_FILE_ID):
        return {"type": "file", "file": {"file_id": url.removeprefix(_FILE_ID)}}
    if part.type == "file" and url.startswith("data:"):
        return {"type": "file", "file": {"file_data": url, "filename": str(detail.get("filename") or "file")}}
    return None


_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
