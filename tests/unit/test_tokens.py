"""Tokens of texts, messages and media."""

import base64
import importlib.util
import struct
import sys
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engramlog.engine import tokens
from engramlog.engine.tokens import (
    O200K,
    Encoding,
    count_message,
    count_messages,
    count_text,
    encoding_for,
    prepare,
    record_tokens,
)
from engramlog.engine.tokens_media import IMAGE_UNKNOWN, image_size, image_tokens
from engramlog.schemas.errors import ConfigurationError
from engramlog.schemas.formats import from_openai
from tests.unit.context_material import said, tokens_of

CL100K = Encoding("cl100k_base", exact=True)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (None, "o200k_base"),
        ("gpt-4o", "o200k_base"),
        ("gpt-4o-mini-2024-07-18", "o200k_base"),
        ("chatgpt-4o-latest", "o200k_base"),
        ("gpt-4.1-nano", "o200k_base"),
        ("gpt-4.5-preview", "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("gpt-5.1-codex", "o200k_base"),
        ("o1", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("o4-mini", "o200k_base"),
        ("gpt-oss-120b", "o200k_base"),
        ("OpenAI/GPT-4o", "o200k_base"),
        ("ft:gpt-4o-mini:acme::x1", "o200k_base"),
        ("o200k_base", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-4-32k", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("gpt-35-turbo", "cl100k_base"),
        ("text-embedding-3-small", "cl100k_base"),
        ("text-embedding-ada-002", "cl100k_base"),
        ("cl100k_base", "cl100k_base"),
    ],
)
def test_the_encoding_of_a_known_model(model: str | None, name: str) -> None:
    assert encoding_for(model) == Encoding(name, exact=True)


@pytest.mark.parametrize(
    "model", ["claude-sonnet-4", "qwen3-32b", "llama3.1", "o100", "gpt-40", "my-gpt-4o", "", "模型"]
)
def test_an_unknown_model_counts_with_o200k_and_says_so(model: str) -> None:
    assert encoding_for(model) == Encoding("o200k_base", exact=False)


def test_known_counts() -> None:
    assert count_text("hello world") == 2
    assert count_text("你好世界") == 2
    assert count_text("你好世界", CL100K) == 5
    assert count_text("") == 0
    assert count_text("👋🏽") == 4
    assert count_text("<|endoftext|>") == 7  # text, no special token
    assert count_text("a" * 100_000) == 12_500


@given(st.text(max_size=300), st.sampled_from([O200K, CL100K]))
def test_a_text_counts_as_the_public_encoder_says(text: str, encoding: Encoding) -> None:
    expected = tokens_of([{"role": text}], encoding.name) - 6
    assert count_text(text, encoding) == expected
    assert count_text(text, encoding) == expected  # from memory, where it is long enough


@pytest.mark.parametrize("text", ["x y" * 300_000, "你好吗？" * 225_000, " " * 900_000, "a" * 3_000_000])
def test_long_texts_are_counted(text: str) -> None:
    assert 0 < count_text(text) <= len(text.encode())


def test_half_a_character_counts_as_a_replacement_character() -> None:
    assert count_text("wave 👋\ud800") == count_text("wave 👋\ufffd")


def test_messages_cost_three_each_one_for_a_name_and_three_for_the_list() -> None:
    message = {"role": "user", "content": "hello world"}
    assert count_message(message) == 3 + 1 + 2
    assert count_message({**message, "name": "Ann"}) == 3 + 1 + 2 + count_text("Ann") + 1
    assert count_messages([message, message]) == 2 * 6 + 3
    assert count_messages([]) == 3
    assert count_message({"role": "assistant", "content": None}) == 4


def test_a_tool_call_costs_its_texts_and_eight() -> None:
    function = {"name": "look_up", "arguments": '{"town": "Köln"}'}
    call = {"id": "call_1", "type": "function", "function": function}
    texts = sum(map(count_text, ["call_1", "look_up", '{"town": "Köln"}']))
    assert count_message({"role": "assistant", "content": None, "tool_calls": [call]}) == 4 + texts + 8
    assert count_message({"role": "assistant", "content": None, "tool_calls": [call, call]}) == 4 + 2 * (texts + 8)
    legacy = {"role": "assistant", "content": None, "function_call": function}
    assert count_message(legacy) == 4 + texts - count_text("call_1") + 8
    answer = {"role": "tool", "tool_call_id": "call_1", "content": "21 °C"}
    assert count_message(answer) == 3 + count_text("tool") + count_text("call_1") + count_text("21 °C")


def test_what_is_not_known_counts_as_json() -> None:
    assert count_message({"role": "user", "content": 7, "more": {"a": [1]}}) == 4 + 1 + count_text('{"a":[1]}')
    unknown = {"type": "hologram", "hologram": 3}
    counted = count_text('{"type":"hologram","hologram":3}')
    assert count_message({"role": "user", "content": [unknown, "loose"]}) == 4 + counted + count_text("loose")


def part_tokens(part: dict[str, Any]) -> int:
    return count_message({"role": "user", "content": [part]}) - 4


def image(url: str, **more: Any) -> int:
    return part_tokens({"type": "image_url", "image_url": {"url": url, **more}})


def inline(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def png(width: int, height: int) -> bytes:
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))


@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [(1, 1, 255), (512, 512, 255), (513, 512, 425), (1024, 1024, 765), (2048, 4096, 1105), (9999, 100, 765)],
)
def test_an_image_counts_by_its_tiles(width: int, height: int, expected: int) -> None:
    assert image_tokens(width, height) == expected
    assert image("https://example.org/a.png", width=width, height=height) == expected
    assert image(inline("image/png", png(width, height))) == expected


def test_an_image_of_unknown_size_counts_the_most_and_one_of_low_detail_85() -> None:
    assert image("https://example.org/a.png") == IMAGE_UNKNOWN == 1_445
    assert image("https://example.org/a.png", detail="low") == 85
    assert image("data:image/png;base64,!!!!") == IMAGE_UNKNOWN
    assert image("data:image/png;base64,") == IMAGE_UNKNOWN
    assert image("https://example.org/a.png", width=True, height=0) == IMAGE_UNKNOWN
    assert max(image_tokens(w, h) for w in range(1, 5000, 97) for h in range(1, 5000, 89)) <= IMAGE_UNKNOWN


def test_the_size_of_an_image_is_read_from_its_head() -> None:
    exif = b"\xff\xe1" + struct.pack(">H", 6_002) + b"x" * 6_000
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 17, 8, 480, 640, 3) + bytes(9)
    assert image_size(b"\xff\xd8" + exif + b"\xff" + frame) == (640, 480)
    assert image_size(b"GIF89a" + struct.pack("<HH", 320, 200) + b"...") == (320, 200)
    extended = b"VP8X" + bytes(8) + (799).to_bytes(3, "little") + (599).to_bytes(3, "little")
    assert image_size(b"RIFF\x00\x00\x00\x00WEBP" + extended) == (800, 600)
    lossless = b"VP8L" + bytes(4) + b"\x2f" + (799 | 599 << 14).to_bytes(4, "little") + bytes(9)
    assert image_size(b"RIFF\x00\x00\x00\x00WEBP" + lossless) == (800, 600)
    lossy = b"VP8 " + bytes(7) + b"\x9d\x01\x2a" + struct.pack("<HH", 800, 600) + bytes(4)
    assert image_size(b"RIFF\x00\x00\x00\x00WEBP" + lossy) == (800, 600)
    assert image_size(b"BM nothing we know") == (0, 0)


@given(
    st.sampled_from([b"\xff\xd8", b"GIF89a", b"\x89PNG\r\n\x1a\n", b"RIFF1234WEBPVP8L", b""]), st.binary(max_size=64)
)
def test_no_head_of_an_image_breaks_the_count(start: bytes, rest: bytes) -> None:
    assert 85 <= image(inline("image/jpeg", start + rest)) <= IMAGE_UNKNOWN


def test_sound_counts_by_its_seconds() -> None:
    head = b"RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00" + struct.pack("<HHIIHH", 1, 1, 24_000, 48_000, 2, 16)
    ten_seconds = base64.b64encode(head + bytes(480_000)).decode()
    assert 100 <= part_tokens({"type": "input_audio", "input_audio": {"data": ten_seconds, "format": "wav"}}) <= 101
    mp3 = base64.b64encode(bytes(40_000)).decode()
    assert 100 <= part_tokens({"type": "input_audio", "input_audio": {"data": mp3, "format": "mp3"}}) <= 101
    assert part_tokens({"type": "audio_url", "audio_url": {"url": "https://example.org/a.mp3"}}) == 1_200


def test_files_and_videos_count_by_rule() -> None:
    text = "Ein Satz. " * 100
    assert part_tokens({"type": "file", "file": {"file_data": inline("text/plain", text.encode())}}) == count_text(text)
    assert part_tokens({"type": "file", "file": {"file_data": inline("application/pdf", bytes(4_000))}}) == 1_001
    assert part_tokens({"type": "file", "file": {"file_data": "AAAA"}}) == 200
    assert part_tokens({"type": "file", "file": {"file_id": "file-1"}}) == 2_000
    assert part_tokens({"type": "video_url", "video_url": {"url": "https://example.org/a.mp4"}}) == 6_000


def test_an_inline_image_is_not_counted_as_text() -> None:
    assert image(inline("image/png", png(512, 512) + bytes(100_000))) == 255


def test_a_record_counts_as_its_message() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "看"}, {"type": "refusal", "refusal": "no"}]}
    assert record_tokens(from_openai(message)) == count_message(message) == 4 + 1 + 1
    record = said("r", "assistant", "hello world", name="Ann Lee", reasoning_content="not sent")
    assert record_tokens(record) == count_message({"role": "assistant", "content": "hello world", "name": "Ann_Lee"})


def test_counts_are_remembered_up_to_a_limit() -> None:
    counts = tokens._Counts(limit_bytes=10_000)
    counts.put("o200k_base", "x" * 3_000, 1)
    assert counts.get("o200k_base", "x" * 3_000) is None  # a quarter of the limit at most
    for i in range(50):
        counts.put("o200k_base", f"{i} " + "y" * 100, i)
        assert counts.held() <= 10_000
    assert counts.get("o200k_base", "49 " + "y" * 100) == 49
    assert counts.get("cl100k_base", "49 " + "y" * 100) is None
    assert counts.get("o200k_base", "0 " + "y" * 100) is None


def test_without_bpe_openai_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_counters", {})
    monkeypatch.delitem(sys.modules, "bpe_openai._bindings", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"engramlog\[engine\]"):
        prepare()
