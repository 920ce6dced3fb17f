# ruff: noqa: PLR2004 - offsets in file formats
"""What images, sound and files count in a message. Rules, because no offline count of them is exact.

- An image with ``detail: "low"``: 85. Else by tiles, as OpenAI describes it for GPT-4o: scaled to fit into 2,048 x
  2,048, then its shorter side down to 768; 85, and 170 for each begun tile of 512 x 512. Its size is read from
  ``width`` and ``height`` beside its URL, or from the head of an inline PNG, JPEG, GIF or WebP. Unknown: 1,445, the
  most that there can be by this rule (eight tiles).
- Sound: 10 tokens a second. The seconds of WAV are told by its head; other sound is taken for 32 kbit/s, the least in
  use. By reference: 1,200 (two minutes).
- A file: inline text counts as its text; any other one token for 4 bytes, at least 200. By reference: 2,000.
- A video: 6,000.
"""

import base64
import binascii
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

IMAGE_LOW: Final = 85
IMAGE_TILE: Final = 170
IMAGE_UNKNOWN: Final = IMAGE_LOW + 8 * IMAGE_TILE
SOUND_PER_SECOND: Final = 10
SOUND_UNKNOWN: Final = 1_200
FILE_UNKNOWN: Final = 2_000
FILE_LEAST: Final = 200
VIDEO: Final = 6_000

_LONGER_SIDE = 2_048
_SHORTER_SIDE = 768
_TILE = 512
_SOUND_BYTES_PER_SECOND = 4_000
_FILE_BYTES_PER_TOKEN = 4
_HEAD_CHARS = 4 * 2**16  # base64 of 192 KiB: the size of a JPEG stands behind its thumbnail


def media_tokens(part: Mapping[str, Any], *, count: Callable[[str], int]) -> int | None:
    """The tokens of a content part that is no text; None: it is none of those that this module knows.

    Args:
        part: A content part of an OpenAI message.
        count: Counts the tokens of a text.
    """
    kind = part.get("type")
    inner = part.get(kind) if isinstance(kind, str) else None
    inner = {"url": inner} if isinstance(inner, str) else inner
    if not isinstance(inner, Mapping):
        return None
    if kind == "image_url":
        return _image(inner)
    if kind in {"input_audio", "audio_url"}:
        return _sound(inner)
    if kind == "file":
        return _file(inner, count)
    return VIDEO if kind == "video_url" else None


def image_tokens(width: int, height: int) -> int:
    """The tokens of an image of so many pixels in high detail."""
    scale = min(1.0, _LONGER_SIDE / max(width, height))
    scale = min(scale, _SHORTER_SIDE / min(width, height))
    tiles = math.ceil(width * scale / _TILE) * math.ceil(height * scale / _TILE)
    return IMAGE_LOW + IMAGE_TILE * tiles


def _image(inner: Mapping[str, Any]) -> int:
    if inner.get("detail") == "low":
        return IMAGE_LOW
    width, height = inner.get("width"), inner.get("height")
    if not (_is_size(width) and _is_size(height)):
        url = inner.get("url")
        width, height = image_size(_inline(url)) if isinstance(url, str) else (0, 0)
    if not (_is_size(width) and _is_size(height)):
        return IMAGE_UNKNOWN
    assert isinstance(width, int)
    assert isinstance(height, int)
    return image_tokens(width, height)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and 0 < value < 2**31


def _sound(inner: Mapping[str, Any]) -> int:
    data = inner.get("data", inner.get("url"))
    if not isinstance(data, str):
        return SOUND_UNKNOWN
    if data.startswith("data:"):
        data = data.partition(",")[2]
    elif "://" in data[:16]:
        return SOUND_UNKNOWN
    head = _decoded(data[:64])
    rate = _SOUND_BYTES_PER_SECOND
    if head[:4] == b"RIFF" and head[8:16] == b"WAVEfmt " and len(head) >= 32:
        rate = struct.unpack_from("<I", head, 28)[0] or rate
    return math.ceil(_bytes_in(data) / rate * SOUND_PER_SECOND)


def _file(inner: Mapping[str, Any], count: Callable[[str], int]) -> int:
    data = inner.get("file_data")
    if not isinstance(data, str):
        return FILE_UNKNOWN
    head, _, body = data.rpartition(",") if data.startswith("data:") else ("", "", data)
    if head.startswith("data:text/") and head.endswith(";base64"):
        return count(_decoded(body).decode("utf-8", "replace"))
    return max(FILE_LEAST, math.ceil(_bytes_in(body) / _FILE_BYTES_PER_TOKEN))


def _inline(url: str) -> bytes:
    """The beginning of what an inline image holds; empty: it is none."""
    if not url.startswith("data:"):
        return b""
    head, _, body = url.partition(",")
    return _decoded(body[:_HEAD_CHARS]) if head.endswith(";base64") else b""


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text[: len(text) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""


def _bytes_in(text: str) -> int:
    return len(text) * 3 // 4


# --- the size of an image ---------------------------------------------------------------------------------------------


def image_size(head: bytes) -> tuple[int, int]:
    """Width and height in pixels of an image that begins like this; (0, 0): it does not say."""
    if head[:8] == b"\x89PNG\r\n\x1a\n" and len(head) >= 24:
        return _pair(">II", head, 16)
    if head[:6] in {b"GIF87a", b"GIF89a"} and len(head) >= 10:
        return _pair("<HH", head, 6)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP" and len(head) >= 30:
        return _webp(head)
    return _jpeg(head) if head[:2] == b"\xff\xd8" else (0, 0)


def _pair(layout: str, data: bytes, at: int) -> tuple[int, int]:
    first, second = struct.unpack_from(layout, data, at)
    return int(first), int(second)


def _webp(head: bytes) -> tuple[int, int]:
    if head[12:16] == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if head[12:16] == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = _pair("<HH", head, 26)
    return width & 0x3FFF, height & 0x3FFF


_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def _jpeg(head: bytes) -> tuple[int, int]:
    """The size that the first frame header states (ITU T.81, B.2.2)."""
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if marker == 0xFF:  # fill
            at += 1
        elif marker in _FRAMES:
            height, width = _pair(">HH", head, at + 5)
            return width, height
        else:
            at += 2 + max(2, int.from_bytes(head[at + 2 : at + 4], "big"))
    return 0, 0
