"""An OpenAI chat message as the fields of a record; what a record has no field for is kept in its metadata."""

from collections.abc import Mapping
from typing import Any

_SAME = ("role", "reasoning_content", "tool_call_id", "name")
_TIMES = ("timestamp",)
_KNOWN = frozenset({*_SAME, *_TIMES, "content", "tool_calls"})
METADATA = "openai"


def record_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the record; the caller validates them."""
    record = {name: message[name] for name in (*_SAME, *_TIMES) if message.get(name) is not None}
    content = message.get("content")
    if isinstance(content, list):
        record["parts"] = [_part(part) for part in content]
        record["content"] = "\n".join(p["text"] for p in record["parts"] if p["type"] == "text")
    elif content is not None:
        record["content"] = content
    if message.get("tool_calls"):
        record["tool_calls"] = message["tool_calls"]
    if rest := {name: value for name, value in message.items() if name not in _KNOWN and value is not None}:
        record["metadata"] = {METADATA: rest}
    return record


def _part(part: Any) -> dict[str, Any]:
    """A content part: by its type, with what else is known of it as detail."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = part.get("type")
    if kind == "text":
        return {"type": "text", "text": part["text"]}
    if kind == "image_url":
        detail = dict(part["image_url"])
        return {"type": "image", "url": detail.pop("url"), "detail": detail}
    if kind == "input_audio":
        audio = part["input_audio"]
        kind_of_audio = f"audio/{audio['format']}"
        return {"type": "audio", "url": f"data:{kind_of_audio};base64,{audio['data']}", "media_type": kind_of_audio}
    if kind == "file":
        detail = dict(part["file"])
        url = detail.pop("file_data", None) or f"openai:file/{detail.get('file_id', '')}"
        return {"type": "file", "url": url, "detail": detail}
    return {"type": kind, **{k: v for k, v in part.items() if k != "type"}}  # unknown: validation says so
