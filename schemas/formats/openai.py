"""OpenAI chat messages (Chat Completions and its dialects) to records and back, lossless.

What has no field is kept in ``metadata["_openai"]`` (:class:`_Kept`); a plain message needs none of it.
"""

import re
from copy import deepcopy
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from engramlog.schemas.errors import SchemaViolation
from engramlog.schemas.formats.making import OPENAI, fits, joined, kept_as, make_record, short
from engramlog.schemas.formats.openai_parts import items_of, part_of
from engramlog.schemas.records import MemoryRecord

_TOOL_ROLES = frozenset({"tool", "function"})
_FIELDS = frozenset({"role", "content"})


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
        {**fields, "record_id": record.record_id, "timestamp": record.timestamp, "metadata": {OPENAI: kept}}
    )


def to_openai(record: MemoryRecord) -> dict[str, Any]:
    """The message of a record.

    For one that came from OpenAI, the message that it came from, with later corrections of its content. For any other
    a message that OpenAI's API accepts: what the role or the API has no place for (a video, an image said by a tool, a
    file by reference) stands as a line of text; reasoning, which the API refuses in a request, is left out.
    """
    kept = kept_as(_Kept, record.metadata.get(OPENAI))
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
        fields["parts"] = tuple(part_of(item) for item in content)
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
        return items_of(record)
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
        items = items_of(record)
        plain = "\n".join(str(item.get("text", "")) for item in items)
        message["content"] = plain if record.role == "function" else items
    if record.name is not None and record.role != "tool":  # the call names the tool
        message["name"] = _NOT_IN_NAMES.sub("_", record.name)[:_NAME_CHARACTERS]
    if record.role == "assistant" and record.tool_calls:
        message["tool_calls"] = list(deepcopy(record.tool_calls))  # whoever edits the message edits no record
        message["content"] = message["content"] or None
    if record.role == "tool":
        message["tool_call_id"] = record.tool_call_id or record.record_id
    if record.role == "function":
        message.setdefault("name", "function")
    return message


_NAME_CHARACTERS = 64
_NOT_IN_NAMES = re.compile(r"[\s<|\\/>]")
