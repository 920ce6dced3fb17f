"""CAMEL's memory records (``MemoryRecord.to_dict()`` of camel-ai 0.2.90) to records and back, lossless.

:func:`to_camel` first says what the record's fields say (:func:`_said`), then lays over it what
``metadata["_camel"]`` kept (:class:`_Kept`): only what differs is kept. ``extra_info`` is the record's metadata, so
that recall can filter by it. CAMEL lays ``meta_dict`` open into the message; its keys are kept as they are there.
"""

import hashlib
import json
import math
import re
import uuid
from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from engramlog.schemas.errors import SchemaViolation, TooDeep
from engramlog.schemas.formats.camel_media import images_of, inline, level_of, parts_of, video_of
from engramlog.schemas.formats.making import CAMEL, RESERVED, fits, joined, kept_as, make_record, note, short
from engramlog.schemas.json_values import SHALLOWER
from engramlog.schemas.records import MemoryRecord

_CALLING = "FunctionCallingMessage"
_NO_CALL_ID = "null"
"""What CAMEL itself writes to OpenAI for a call without an id; so that call and result still find each other."""

_MASKED = "[MASKED]"
_IDS = uuid.UUID("5f0f6e1c-3a52-5d5e-9a37-0f6f4b1f1c90")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IDENTIFIER = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,128}")


class _Kept(BaseModel):
    """What differs from what the record's fields say.

    Attributes:
        cls: The message's class, where it is not the one that a record with these fields gets.
        record: Keys of the record.
        message: Keys of the message.
        absent: Keys that the record does not have.
        message_absent: Keys that the message does not have.
        text: Digest of the content that belongs to a kept content or result; with another, corrected later, those
            kept do not count.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    cls: str | None = None
    record: dict[str, JsonValue] = Field(default_factory=dict)
    message: dict[str, JsonValue] = Field(default_factory=dict)
    absent: tuple[str, ...] = ()
    message_absent: tuple[str, ...] = ()
    text: str | None = None


def from_camel(data: dict[str, Any]) -> MemoryRecord:
    """The record of what ``MemoryRecord.to_dict()`` gives in CAMEL. ``to_camel`` of it equals ``data``.

    ``uuid`` becomes the record's id as it is. A function's result becomes a record of the role ``tool`` whose content
    is what CAMEL shows the model: ``str(result)``, or ``[MASKED]``; a call becomes a tool call as in OpenAI's format.
    Python objects are taken as CAMEL's ``JsonStorage`` writes them: enums as ``{"__enum__": …}``, pydantic models as
    dicts, tuples as lists.

    Raises:
        InvalidEvent: A subclass: no such dict (``SchemaViolation``), or one that no event can hold: NaN, half
            characters, deeper than 48 levels, objects that CAMEL's ``JsonStorage`` cannot write either.
    """
    try:
        plain = as_json(data)
    except RecursionError:
        raise TooDeep(f"nested too deep, or in itself; {SHALLOWER}") from None
    message = _checked(plain)
    shown = _shown(data["message"].get("result"))  # of the object itself, not of what JSON makes of it
    data, fields = plain, _fields(plain, message, shown)
    record = make_record(fields)
    kept = _kept(record, data)
    if not kept:
        return record
    return make_record(fields | {"metadata": {**fields["metadata"], CAMEL: kept}})


def to_camel(record: MemoryRecord) -> dict[str, Any]:
    """The dict of a record, for CAMEL's ``MemoryRecord.from_dict()``.

    For one that came from CAMEL, the dict that it came from, with later corrections of its content. Any other becomes
    what CAMEL would have written for it: an id that is no UUID becomes one made from it, metadata becomes
    ``extra_info`` (what is no string as JSON), and what CAMEL has no place for (audio, files) a line of the content;
    layer, kind, tags and their like have no place there.
    """
    kept = kept_as(_Kept, record.metadata.get(CAMEL))
    if kept is None:
        return _said(record, cls=None)
    said = _said(record, cls=kept.cls)
    top = {key: value for key, value in kept.record.items() if key != "message"}
    if _told_apart(top.get("role_at_backend")) != _told_apart(said["role_at_backend"]):
        top.pop("role_at_backend", None)  # whoever writes a record may write anything under our key
    message = _laid_over(said["message"], kept, corrected=kept.text not in {None, _digest(record.content)})
    return {key: value for key, value in said.items() if key not in kept.absent} | {"message": message} | top


def _laid_over(said: dict[str, Any], kept: _Kept, *, corrected: bool) -> dict[str, Any]:
    mine = {_says(said)} if corrected else set()
    absent = {*kept.message_absent} - mine
    laid = {key: value for key, value in kept.message.items() if key not in mine}
    return {key: value for key, value in said.items() if key not in absent} | laid


def _says(said: dict[str, Any]) -> str:
    """The key that holds the record's content."""
    return "result" if "result" in said else "content"


# --- from CAMEL -------------------------------------------------------------------------------------------------------


def as_json(value: Any) -> Any:
    """What CAMEL's ``JsonStorage`` makes of Python objects; JSON values stay what they are."""
    if isinstance(value, Enum):
        plain = isinstance(value, (str, int))
        return value.value if plain else {"__enum__": f"{type(value).__name__}.{value.name}"}
    if isinstance(value, BaseModel):
        return as_json(value.model_dump())
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {_as_key(key): as_json(item) for key, item in value.items()}
    for plain_type in (bool, str, int, float):  # subclasses too, such as CAMEL's TextPrompt and numpy's floats
        if isinstance(value, plain_type):
            return value if type(value) is plain_type else plain_type(value)
    return value


def _as_key(key: object) -> str:
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, (bool, int, float)):
        return json.dumps(key)
    raise SchemaViolation(f"a key of type {type(key).__name__}: JSON's keys are strings")


def _shown(result: object) -> str:
    try:
        return str(result)
    except ValueError as error:  # an integer of more digits than Python writes
        raise SchemaViolation(f"message.result: {error}") from None


def _checked(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise SchemaViolation(f"a record of CAMEL is a dict, not {type(data).__name__}: take record.to_dict()")
    message = data.get("message")
    if not isinstance(message, dict) or not isinstance(message.get("__class__"), str):
        raise SchemaViolation("message: a dict with '__class__', as CAMEL's MemoryRecord.to_dict() writes it")
    if not isinstance(data.get("uuid"), str):
        raise SchemaViolation("uuid: a string; it becomes the record's id")
    time = data.get("timestamp")
    finite = math.isfinite(time) if isinstance(time, float) else isinstance(time, int) and not isinstance(time, bool)
    if not finite:
        raise SchemaViolation("timestamp: a finite number, seconds since 1970")
    return message


def _fields(data: dict[str, Any], message: dict[str, Any], shown: str) -> dict[str, Any]:
    role = _role(data.get("role_at_backend"))
    calling = message["__class__"] == _CALLING
    info = data.get("extra_info")
    lifted = isinstance(info, dict) and not RESERVED & info.keys() and all(isinstance(v, str) for v in info.values())
    fields: dict[str, Any] = {
        "record_id": data["uuid"] if _IDENTIFIER.fullmatch(data["uuid"]) else str(uuid.uuid5(_IDS, repr(data["uuid"]))),
        "role": "tool" if calling and role == "function" else role,
        "timestamp": _instant(data["timestamp"]),
        "metadata": dict(info) if lifted and info else {},
        "parts": parts_of(message),
    }
    if fits(message.get("role_name")):
        fields["role_name"] = message["role_name"]
    if isinstance(message.get("content"), str):
        fields["content"] = message["content"]
    if isinstance(message.get("reasoning_content"), str):
        fields["reasoning_content"] = message["reasoning_content"]
    if fields["role"] in _RESULT_ROLES:
        fields["origin"] = "tool"
    if calling and fields["role"] == "tool":
        fields |= _result(message, shown)
    elif calling and role == "assistant" and _is_call(message):
        fields["tool_calls"] = (_call(message),)
    elif isinstance(calls := message.get("tool_calls"), list) and all(isinstance(call, dict) for call in calls):
        fields["tool_calls"] = tuple(calls)
    return fields


def _role(role: object) -> str | None:
    """The role at the back end; older files have it as an enum."""
    if isinstance(role, Mapping) and isinstance(name := role.get("__enum__"), str):
        return name.rpartition(".")[2].lower()
    return role if isinstance(role, str) else None


def _told_apart(role: object) -> str | None:
    """The role, as far as a record tells roles apart: CAMEL writes tool as function, and has no use for developer."""
    name = _role(role)
    return {"function": "tool", "developer": "system"}.get(name, name) if name else None


def _instant(seconds: float) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        raise SchemaViolation(
            f"timestamp: {seconds} is no time in seconds since 1970; are they milliseconds?"
        ) from None


def _result(message: dict[str, Any], shown: str) -> dict[str, Any]:
    call_id, name = message.get("tool_call_id"), message.get("func_name")
    fields: dict[str, Any] = {"content": _MASKED if message.get("mask_output") else shown}
    fields["tool_call_id"] = short(call_id) if isinstance(call_id, str) and call_id else _NO_CALL_ID
    return fields | ({"name": name} if fits(name) else {})


def _is_call(message: dict[str, Any]) -> bool:
    name, args, call_id = (message.get(key) for key in ("func_name", "args", "tool_call_id"))
    return bool(name) and isinstance(name, str) and isinstance(args, dict) and isinstance(call_id, (str, type(None)))


def _call(message: dict[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(message["args"], ensure_ascii=False)
    call: dict[str, Any] = {
        "id": short(message.get("tool_call_id") or _NO_CALL_ID),
        "type": "function",
        "function": {"name": message["func_name"], "arguments": arguments},
    }
    extra = message.get("extra_content")
    return call if extra is None else {**call, "extra_content": extra}


def _kept(record: MemoryRecord, data: dict[str, Any]) -> dict[str, Any]:
    """What the fields do not say, or say otherwise."""
    message = data["message"]
    cls = message["__class__"] if message["__class__"] != _said(record, cls=None)["message"]["__class__"] else None
    said = _said(record, cls=cls)
    kept: dict[str, Any] = {
        "cls": cls,
        "record": _differing({k: v for k, v in data.items() if k != "message"}, said),
        "message": _differing(message, said["message"]),
        "absent": [key for key in said if key not in data],
        "message_absent": [key for key in said["message"] if key not in message],
    }
    kept = {key: value for key, value in kept.items() if value}
    if _says(said["message"]) in {*kept.get("message", ()), *kept.get("message_absent", ())}:
        kept["text"] = _digest(record.content)
    return kept


def _differing(there: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in there.items() if key not in said or not _same(value, said[key])}


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: for Python ``1``, ``1.0`` and ``True`` are equal too."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one.hex() == other.hex() if isinstance(one, float) else bool(one == other)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# --- to CAMEL ---------------------------------------------------------------------------------------------------------


def _said(record: MemoryRecord, *, cls: str | None) -> dict[str, Any]:
    """What the fields alone say."""
    call = _only_call(record)
    cls = cls or (_CALLING if record.role in _RESULT_ROLES or call else "BaseMessage")
    result = cls == _CALLING and record.role in _RESULT_ROLES
    message: dict[str, Any] = {
        "__class__": cls,
        "role_name": record.role_name or _ROLE_NAMES[record.role],
        "role_type": _ROLE_TYPES.get(record.role, "assistant"),
        "content": "" if result else _text(record),
        "image_detail": level_of(record, "image"),
        "video_detail": level_of(record, "video"),
    }
    if images := images_of(record):
        message["image_list"] = images
    if (video := video_of(record)) is not None:
        message["video_bytes"] = inline(video)
    if record.reasoning_content is not None:
        message["reasoning_content"] = record.reasoning_content
    if result:
        message |= {"func_name": record.name or "tool", "result": _text(record), "mask_output": False}
        message["tool_call_id"] = record.tool_call_id or _NO_CALL_ID
    elif cls == _CALLING and call:
        message |= call
    elif record.tool_calls:
        message["tool_calls"] = list(deepcopy(record.tool_calls))
    return {
        "uuid": _as_uuid(record.record_id),
        "message": message,
        "role_at_backend": "function" if result else "system" if record.role == "developer" else record.role,
        "extra_info": {k: _as_text(v) for k, v in record.metadata.items() if k not in RESERVED},
        "timestamp": record.timestamp.timestamp(),
        "agent_id": "",
    }


_RESULT_ROLES = frozenset({"tool", "function"})
_ROLE_NAMES = {
    "system": "System",
    "developer": "System",
    "user": "User",
    "assistant": "Assistant",
    "tool": "Assistant",
    "function": "Assistant",
}
_ROLE_TYPES = {"system": "system", "developer": "system", "user": "user"}


def _only_call(record: MemoryRecord) -> dict[str, Any] | None:
    """A single call of a function with arguments that are an object, as ``FunctionCallingMessage`` has it."""
    if record.role != "assistant" or len(record.tool_calls) != 1:
        return None
    call = deepcopy(record.tool_calls[0])
    function = call.get("function")
    if call.get("type") != "function" or not isinstance(function, dict) or not fits(function.get("name")):
        return None
    try:
        args = json.loads(str(function.get("arguments")), parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None
    if not isinstance(args, dict):
        return None
    said = {"func_name": function["name"], "args": args, "tool_call_id": call.get("id"), "mask_output": False}
    return said | ({"extra_content": call["extra_content"]} if "extra_content" in call else {})


def _no_number(constant: str) -> NoReturn:
    raise ValueError(constant)


def _text(record: MemoryRecord) -> str:
    """The content, and a line for each part that CAMEL has no place for."""
    video = video_of(record)
    lines = [note(part) for part in record.parts if part.type not in {"text", "image"} and part is not video]
    text = record.content or joined(record.parts)
    return "\n".join(line for line in (text, *lines) if line)


def _as_text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _as_uuid(record_id: str) -> str:
    try:
        return str(uuid.UUID(record_id))
    except ValueError:
        return str(uuid.uuid5(_IDS, record_id))
