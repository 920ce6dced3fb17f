"""The images and the video of CAMEL's messages to parts of a record and back."""

import re
from copy import deepcopy
from typing import Any

from engramlog.schemas.formats.making import CAMEL, make_part, media_type
from engramlog.schemas.records import MemoryRecord, Part

_BASE64 = ";base64,"


def parts_of(message: dict[str, Any]) -> tuple[Part, ...]:
    """Images and the video, as parts; what is shaped otherwise is kept with the rest."""
    parts = []
    images = message.get("image_list")
    if isinstance(images, list) and all(_is_image(item) for item in images):
        parts = [_image(item, message.get("image_detail")) for item in images]
    if isinstance(video := message.get("video_bytes"), str):
        detail = _level(message.get("video_detail"))
        url = f"data:application/octet-stream{_BASE64}{video}"
        parts.append(make_part({"type": "video", "url": url, "detail": {**detail, CAMEL: {}}}))
    return tuple(parts)


def _is_image(item: object) -> bool:
    return isinstance(item, str) or (isinstance(item, dict) and isinstance(item.get("data"), str))


def _image(item: dict[str, Any] | str, level: object) -> Part:
    """An image: by URL, or the bytes of the file that PIL wrote; older versions of CAMEL wrote the bytes alone."""
    data = item if isinstance(item, str) else item["data"]
    left = None if isinstance(item, str) else {key: value for key, value in item.items() if key != "data"}
    url = data if left is not None and left.get("type") == "url" else f"data:{_mime(left)}{_BASE64}{data}"
    detail = {**_level(level), CAMEL: left}
    return make_part({"type": "image", "url": url, "media_type": media_type(url), "detail": detail})


def _level(level: object) -> dict[str, str]:
    return {"detail": level} if isinstance(level, str) else {}


def _mime(left: dict[str, Any] | None) -> str:
    name = (left or {}).get("format")
    known = isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9.+-]{1,40}", name)
    return f"image/{name.lower()}" if known and isinstance(name, str) else "application/octet-stream"


def images_of(record: MemoryRecord) -> list[dict[str, Any] | str]:
    """``image_list``: each image as it was, or as CAMEL would write it."""
    return [_as_image(part) for part in record.parts if part.type == "image"]


def video_of(record: MemoryRecord) -> Part | None:
    """The one video that CAMEL has a place for: the first whose bytes are here."""
    return next((part for part in record.parts if part.type == "video" and _is_inline(part)), None)


def inline(part: Part) -> str:
    """The bytes of a part, as base64; empty where they are not here."""
    return (part.url or "").partition(_BASE64)[2]


def level_of(record: MemoryRecord, kind: str) -> str:
    """``image_detail`` or ``video_detail``: what the first such part says."""
    levels = (part.detail.get("detail") for part in record.parts if part.type == kind)
    return next((level for level in levels if isinstance(level, str)), "auto")


def _is_inline(part: Part) -> bool:
    url = part.url or ""
    return url.startswith("data:") and _BASE64 in url[:256]


def _as_image(part: Part) -> dict[str, Any] | str:
    url = part.url or ""
    left = deepcopy(part.detail.get(CAMEL, ...))
    if left is None:
        return inline(part)
    if isinstance(left, dict):
        return {**left, "data": url if left.get("type") == "url" else inline(part)}
    if not _is_inline(part):
        return {"type": "url", "data": url}
    return {
        "type": "base64",
        "data": inline(part),
        "format": (media_type(url) or "image/png").partition("/")[2].upper(),
    }
