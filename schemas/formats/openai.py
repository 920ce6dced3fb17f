"""OpenAI chat messages (Chat Completions and its dialects) to records and back, lossless.

What has no field is kept in ``metadata["_openai"]`` (:class:`_Kept`), and for a part in ``detail["_openai"]``
(:class:`_KeptItem`); a plain message needs neither.
"""

import re
from copy import deepcopy
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from engramlog.schemas.errors import SchemaViolation
from engramlog.schemas.formats.making import fits, joined, make_part, make_record, media_type, note, short
from engramlog.schemas.records import MemoryRecord, Part

KEY = "_openai"
_FILE_ID = "openai-file:"
_TOOL_ROLES = frozenset({"tool", "function"})
_FIELDS = frozenset({"role", "content"})

K = TypeVar("K", bound=BaseModel)


class _Kept(BaseModel):
    """What a message says beyond the record's fields.

    Attributes:
        keys: Keys that have no field, or a value that does not fit it (``name: null``), as they were.
        content: How a message without text said so; without it the key is there and holds the text.
        said_in: Where the text stood instead: the refusal, or the audio's transcript.
        reasoning: The key that held the reasoning.
        function_call: The one tool call was a legacy ``function_call``.
        ids: Ids of tool calls that are too long, by what stands for them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: dict[str, JsonValue] = Field(default_factory=dict)
    content: Literal["absent", "null", "empty", "list"] | None = None
    said_in: Literal["refusal", "transcript"] | None = None
    reasoning: Literal["reasoning_content", "reasoning"] | None = None
    function_call: bool = False
    ids: dict[str, str] = Field(default_factory=dict)


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


def from_openai(
    message: dict[str, Any], *, timestamp: datetime | None = None, record_id: str | None = None
) -> MemoryRecord:
    """The record of a message. ``to_openai`` of it equals the message.

    Args:
        message: A message of the Chat Completions API as a dict: any role, any content, unknown keys too.
        timestamp: When it was said, aware; now by default, for a message does not know it.
        record_id: The record's id; a new one by default.

    Raises:
        InvalidEvent: A subclass: no message (``SchemaViolation``), or one that no event can hold: NaN, half
            characters, deeper than 48 levels, more than 256 parts or tool calls. Its size is the codec's affair.
    """
    fields, kept = _read(message)
    fields |= {"timestamp": timestamp} if timestamp is not None else {}
    fields |= {"record_id": record_id} if record_id is not None else {}
    record = make_record(fields)
    if to_openai(record) == message:
        return record
    # The id and the time made up meanwhile stay.
    return make_record(
        {**fields, "record_id": record.record_id, "timestamp": record.timestamp, "metadata": {KEY: kept}}
    )


def to_openai(record: MemoryRecord) -> dict[str, Any]:
    """The message of a record.

    For one that came from OpenAI, the message that it came from, with later corrections of its content. For any other
    a message that OpenAI's API accepts: what the role or the API has no place for (a video, an image said by a tool, a
    file by reference) stands as a line of text; reasoning, which the API refuses in a request, is left out.
    """
    kept = _parsed(_Kept, record.metadata.get(KEY))
    message = _accepted(record) if kept is None else _exact(record, kept)
    return {key: value for key, value in message.items() if value is not ...}


# --- from a message ---------------------------------------------------------------------------------------------------


def _read(message: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The record's fields, and what is kept beside them."""
    if not isinstance(message, dict):
        raise SchemaViolation(
            f"a message is a dict, not {type(message).__name__}; of an object of OpenAI's library take "
            "message.model_dump(exclude_unset=True)"
        )
    rest = dict(message)
    fields: dict[str, Any] = {"role": rest.pop("role")} if "role" in rest else {}
    if isinstance(fields.get("role"), str) and fields["role"] in _TOOL_ROLES:
        fields["origin"] = "tool"
    kept: dict[str, Any] = {}
    _read_content(rest, fields, kept)
    _read_reasoning(rest, fields, kept)
    _read_calls(rest, fields, kept)
    if fits(rest.get("name")):
        fields["name"] = rest.pop("name")
    if rest:
        kept["keys"] = rest
    return fields, kept


def _read_content(rest: dict[str, Any], fields: dict[str, Any], kept: dict[str, Any]) -> None:
    content = rest.pop("content", ...)
    if isinstance(content, list) and content:
        fields["parts"] = tuple(_part(item) for item in content)
        fields["content"] = joined(fields["parts"])
    elif isinstance(content, str) and content:
        fields["content"] = content
    elif content is not ... and content is not None and not isinstance(content, (str, list)):
        raise SchemaViolation(f"content: a string, a list of parts, null or absent, not {type(content).__name__}")
    else:
        kept["content"] = _wordless_content(content)
        _read_said_elsewhere(rest, fields, kept)


def _wordless_content(content: object) -> str:
    if content is ...:
        return "absent"
    return "null" if content is None else "empty" if content == "" else "list"


def _read_said_elsewhere(rest: dict[str, Any], fields: dict[str, Any], kept: dict[str, Any]) -> None:
    """A refusal and an audio answer have their text elsewhere; it is what was said all the same."""
    audio = rest.get("audio")
    if isinstance(rest.get("refusal"), str) and rest["refusal"]:
        kept["said_in"], fields["content"] = "refusal", rest.pop("refusal")
    elif isinstance(audio, dict) and isinstance(audio.get("transcript"), str) and audio["transcript"]:
        kept["said_in"], fields["content"] = "transcript", audio["transcript"]
        rest["audio"] = {key: value for key, value in audio.items() if key != "transcript"}


def _read_reasoning(rest: dict[str, Any], fields: dict[str, Any], kept: dict[str, Any]) -> None:
    for key in ("reasoning_content", "reasoning"):
        if isinstance(rest.get(key), str):
            kept["reasoning"], fields["reasoning_content"] = key, rest.pop(key)
            return


def _read_calls(rest: dict[str, Any], fields: dict[str, Any], kept: dict[str, Any]) -> None:
    calls, legacy = rest.get("tool_calls"), rest.get("function_call")
    if calls is not None and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
        raise SchemaViolation("tool_calls: a list of objects")
    ids: dict[str, str] = {}
    if calls:
        fields["tool_calls"] = tuple(_shortened(call, "id", ids) for call in rest.pop("tool_calls"))
    elif isinstance(legacy, dict):
        fields["tool_calls"] = ({"type": "function", "function": rest.pop("function_call")},)
        kept["function_call"] = True
    answered = rest.get("tool_call_id")
    if isinstance(answered, str) and answered:
        fields["tool_call_id"] = _shortened({"id": rest.pop("tool_call_id")}, "id", ids)["id"]
    if ids:
        kept["ids"] = ids


def _shortened(call: dict[str, Any], key: str, ids: dict[str, str]) -> dict[str, Any]:
    call_id = call.get(key)
    if not isinstance(call_id, str) or short(call_id) == call_id:
        return call
    ids[short(call_id)] = call_id
    return {**call, key: short(call_id)}


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


def _part(item: object) -> Part:
    if not isinstance(item, dict):
        raise SchemaViolation(f"content: a part is an object, not {type(item).__name__}")
    kind = item.get("type")
    kind, at = _PLACES.get(kind, ("", ())) if isinstance(kind, str) else ("", ())
    if kind == "file" and isinstance(item.get("file"), dict) and "file_data" not in item["file"]:
        at = ("file", "file_id")
    holder = item.get(at[0]) if len(at) > 1 else item
    if not kind or not isinstance(holder, dict) or not isinstance(holder.get(at[-1]), str):
        return make_part({"type": "text", "text": "", "detail": {KEY: {"item": item, "at": []}}})
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
    return make_part({**fields, "detail": {**told, KEY: kept}})


# --- to a message -----------------------------------------------------------------------------------------------------


def _exact(record: MemoryRecord, kept: _Kept) -> dict[str, Any]:
    """The message that the record came from."""
    message: dict[str, Any] = {"role": record.role, "content": _exact_content(record, kept)}
    if kept.reasoning and record.reasoning_content is not None:
        message[kept.reasoning] = record.reasoning_content
    calls = [_long(call, kept.ids) for call in deepcopy(record.tool_calls)]
    if kept.function_call and len(calls) == 1:
        message["function_call"] = calls[0].get("function")
    elif calls:
        message["tool_calls"] = calls
    if record.tool_call_id is not None:
        message["tool_call_id"] = kept.ids.get(record.tool_call_id, record.tool_call_id)
    if record.name is not None:
        message["name"] = record.name
    message = {key: value for key, value in kept.keys.items() if key not in _FIELDS} | message
    if kept.said_in == "refusal":
        message["refusal"] = record.content
    elif kept.said_in == "transcript" and isinstance(audio := message.get("audio"), dict):
        message["audio"] = {**audio, "transcript": record.content}
    return message


def _exact_content(record: MemoryRecord, kept: _Kept) -> Any:
    if record.parts:
        return _items(record)
    if record.content and not kept.said_in:
        return record.content
    return {"absent": ..., "null": None, "empty": "", "list": []}.get(kept.content or "empty")


def _long(call: dict[str, Any], ids: dict[str, str]) -> dict[str, Any]:
    call_id = call.get("id")
    return {**call, "id": ids[call_id]} if isinstance(call_id, str) and call_id in ids else call


def _accepted(record: MemoryRecord) -> dict[str, Any]:
    """A message that OpenAI accepts, whatever the record."""
    message: dict[str, Any] = {"role": record.role, "content": record.content}
    if record.parts:
        items = _items(record)
        message["content"] = (
            items if record.role != "function" else "\n".join(str(item.get("text", "")) for item in items)
        )
    if record.name is not None and record.role != "tool":  # the call names the tool
        message["name"] = _NOT_IN_NAMES.sub("_", record.name)[:_NAME_CHARACTERS]
    if record.role == "assistant" and record.tool_calls:
        message["tool_calls"] = list(
            deepcopy(record.tool_calls)
        )  # the record stays as it is, whoever edits the message
        message["content"] = message["content"] or None
    if record.role == "tool":
        message["tool_call_id"] = record.tool_call_id or record.record_id
    if record.role == "function":
        message.setdefault("name", "function")
    return message


_NAME_CHARACTERS = 64
_NOT_IN_NAMES = re.compile(r"[\s<|\\/>]")


def _items(record: MemoryRecord) -> list[dict[str, Any]]:
    """The content parts; text that the parts do not say, by hand or by a correction, stands in place of theirs."""
    parts = record.parts
    came = any(KEY in part.detail for part in parts)
    if record.content != joined(parts) and (record.content or came):
        first = next((place for place, part in enumerate(parts) if part.text), 0)
        said = [make_part({"type": "text", "text": record.content})] if record.content else []
        parts = (*_wordless(parts[:first]), *said, *_wordless(parts[first:]))
    return [_item(part, record.role) for part in parts]


def _wordless(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    return tuple(part for part in parts if not part.text)


def _item(part: Part, role: str) -> dict[str, Any]:
    kept = _parsed(_KeptItem, part.detail.get(KEY))
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


def _parsed(model: type[K], kept: JsonValue) -> K | None:
    """What was kept, or None: whoever writes a record may write anything under our key."""
    if kept is None:
        return None
    try:
        return model.model_validate(kept)
    except ValidationError:
        return None
