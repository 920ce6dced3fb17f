"""CAMEL's memory records: what CAMEL itself wrote comes out as it went in, also through the log."""

import copy
import json
import math
import re
import uuid
from datetime import UTC, datetime
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from engramlog.schemas import errors
from engramlog.schemas.codec import records_codec
from engramlog.schemas.envelope import RecordWritten
from engramlog.schemas.formats import from_camel, from_openai, to_camel, to_openai
from engramlog.schemas.json_values import MAX_JSON_DEPTH
from engramlog.schemas.records import MemoryRecord, Part

GOLDEN = json.loads(Path(__file__).with_name("camel_records.json").read_text(encoding="utf-8"))
"""Made by CAMEL itself: see camel_records.py beside it."""

RECORDS: dict[str, dict[str, Any]] = {item["name"]: item["record"] for item in GOLDEN["records"]}
SENT: dict[str, dict[str, Any]] = {item["name"]: item["openai"] for item in GOLDEN["records"] if item["openai"]}


def through_the_log(record: MemoryRecord) -> MemoryRecord:
    event = RecordWritten.of(record, source="urn:test", tenant="acme", agent="a")
    data: MemoryRecord = records_codec().decode(records_codec().encode(event)).data
    return data


def exactly(value: Any) -> str:
    """JSON tells 1, 1.0 and true apart, where Python does not."""
    return json.dumps(value, sort_keys=True)


def altered(name: str, /, *, message: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    data = copy.deepcopy(RECORDS[name])
    data["message"] |= message or {}
    return data | more


@pytest.mark.parametrize("name", RECORDS)
def test_what_camel_wrote_comes_out_as_it_went_in(name: str) -> None:
    data = copy.deepcopy(RECORDS[name])
    record = from_camel(data)
    assert data == RECORDS[name]
    assert exactly(to_camel(record)) == exactly(data)
    assert exactly(to_camel(through_the_log(record))) == exactly(data)
    assert record.record_id == data["uuid"]


OTHER: dict[str, dict[str, Any]] = {
    "any id": altered("user", uuid="sess/1 客服 👋"),
    "an id and nothing else of note": altered("system", uuid="not a uuid"),
    "a uuid in capitals": altered("system", uuid="0190163D-8694-739B-AEA5-966C26F8AD91"),
    "a long id": altered("user", uuid="x" * 5_000),
    "an id with a control character": altered("user", uuid="a\x00b"),
    "an empty id": altered("user", uuid=""),
    "time as an integer": altered("user", timestamp=1_772_323_200),
    "time before 1970": altered("user", timestamp=-1.1),
    "time by nanoseconds": altered("user", timestamp=1_772_323_200_123_456_789 / 1_000_000_000),
    "time, minus nothing": altered("user", timestamp=-0.0),
    "time, smallest": altered("user", timestamp=5e-324),
    "info that is not text": altered("user", extra_info={"a": 1, "b": None}),
    "info under our key": altered("user", extra_info={"_camel": "x", "_openai": "y"}),
    "info null": altered("user", extra_info=None),
    "no agent, no info": {
        key: value for key, value in RECORDS["user"].items() if key not in {"agent_id", "extra_info"}
    },
    "keys of the future": altered("user", message={"citations": [{"url": "u"}]}, version=2),
    "role as enum": altered("user", role_at_backend={"__enum__": "OpenAIBackendRole.USER"}),
    "role type as enum": altered("user", message={"role_type": {"__enum__": "RoleType.USER"}}),
    "result by role as enum": altered("result, text", role_at_backend={"__enum__": "OpenAIBackendRole.FUNCTION"}),
    "images of old": altered("user", message={"image_list": ["aGVsbG8=", ""]}),
    "images, odd": altered("user", message={"image_list": [{"type": "base64"}, 5, None]}),
    "image with more": altered("user", message={"image_list": [{"type": "url", "data": "u", "alt": {"a": 1}}]}),
    "image, odd format": altered("user", message={"image_list": [{"data": "a;base64,b", "format": "P N,G"}]}),
    "image without type": altered("user", message={"image_list": [{"data": "a;base64,b", "type": None}]}),
    "images null": altered("user", message={"image_list": None, "video_bytes": None}),
    "details null": altered("images by url", message={"image_detail": None, "video_detail": 5}),
    "video, odd": altered("user", message={"video_bytes": [1, 2]}),
    "content null": altered("user", message={"content": None}),
    "content a list": altered("user", message={"content": [{"type": "text", "text": "hi"}]}),
    "role name null": altered("user", message={"role_name": None}),
    "role name long": altered("user", message={"role_name": "n" * 300}),
    "call with odd args": altered("call", message={"args": [1]}),
    "call with args null": altered("call", message={"args": None}),
    "call with an odd id": altered("call", message={"tool_call_id": 7}),
    "call with an empty id": altered("call", message={"tool_call_id": ""}),
    "call with a long id": altered("call", message={"tool_call_id": "c" * 300}),
    "call of nothing": altered("call", message={"func_name": ""}),
    "call, extra null": altered("call", message={"extra_content": None}),
    "result 1": altered("result, text", message={"result": 1}),
    "result 1.0": altered("result, text", message={"result": 1.0}),
    "result null": altered("result, text", message={"result": None}),
    "result, name long": altered("result, text", message={"func_name": "f" * 300}),
    "result, id empty": altered("result, text", message={"tool_call_id": ""}),
    "meta calls, odd": altered("user", message={"tool_calls": [1]}),
    "meta calls, none": altered("assistant", message={"tool_calls": []}),
    "meta calls of a user": altered("user", message={"tool_calls": [{"id": "c"}]}),
    "bare": {"uuid": "u", "message": {"__class__": "BaseMessage"}, "role_at_backend": "user", "timestamp": 0.0},
}


@pytest.mark.parametrize("data", OTHER.values(), ids=OTHER)
def test_what_others_wrote_comes_out_as_it_went_in(data: dict[str, Any]) -> None:
    record = from_camel(data)
    assert exactly(to_camel(record)) == exactly(data)
    assert exactly(to_camel(through_the_log(record))) == exactly(data)


@pytest.mark.parametrize("name", SENT)
def test_openai_is_sent_what_camel_sends(name: str) -> None:
    """Save for three: content null beside calls, ids of more than 256 characters, and a line for an image of a tool."""
    message, sent = to_openai(from_camel(RECORDS[name])), dict(SENT[name])
    if "tool_calls" in message:
        sent["content"] = sent["content"] or None
    if name == "result and all else":
        assert len(message.pop("tool_call_id")) < len(sent.pop("tool_call_id"))
        assert message["content"].pop() == {"type": "text", "text": "[image: https://example.org/a.png]"}
        sent["content"] = [{"type": "text", "text": sent["content"]}]
    assert message == sent


WHAT_IS_SEEN: dict[str, dict[str, Any]] = {
    "user": {"role": "user", "role_name": "User", "content": "Hello 👋 世界", "tool_calls": (), "origin": "dialogue"},
    "developer": {"role": "developer", "content": "Be brief."},
    "as tool": {"role": "tool", "content": "42"},
    "as function": {"role": "function", "content": "42"},
    "result, text": {"role": "tool", "content": "sunny", "name": "f", "tool_call_id": "call_1", "origin": "tool"},
    "result, number": {"role": "tool", "content": "2.5"},
    "result, none": {"role": "tool", "content": "None"},
    "result, masked": {"role": "tool", "content": "[MASKED]"},
    "result without id": {"tool_call_id": "null"},
    "call": {
        "role": "assistant",
        "content": "",
        "tool_calls": (
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "北京", "n": 1.5}'},
            },
        ),
    },
    "meta named as a field": {"reasoning_content": "why"},
}


@pytest.mark.parametrize("name", WHAT_IS_SEEN)
def test_what_a_message_says_stands_in_the_fields(name: str) -> None:
    record = from_camel(RECORDS[name])
    assert {field: getattr(record, field) for field in WHAT_IS_SEEN[name]} == WHAT_IS_SEEN[name]


def test_parallel_calls_are_tool_calls() -> None:
    assert [call["id"] for call in from_camel(RECORDS["parallel calls"]).tool_calls] == ["call_0", "call_1", "call_2"]


def test_info_is_metadata_to_filter_by() -> None:
    record = from_camel(altered("user", extra_info={"project_id": "p1"}))
    assert record.metadata["project_id"] == "p1"


def test_images_and_video_are_parts() -> None:
    images = from_camel(RECORDS["images by pixel"]).parts
    assert [part.media_type for part in images] == ["image/png", "image/jpeg", "image/png", "image/gif", "image/png"]
    assert images[0].url == "data:image/png;base64," + RECORDS["images by pixel"]["message"]["image_list"][0]["data"]
    assert {part.detail["detail"] for part in images} == {"low"}
    (video,) = from_camel(RECORDS["video"]).parts
    assert (video.type, video.detail["detail"]) == ("video", "low")


TIMES = {0.0: (1970, 1, 1), 1772323200.123456: (2026, 3, 1, 0, 0, 0, 123456), 1772323200.9999998: (2026, 3, 1, 0, 0, 1)}


@pytest.mark.parametrize("seconds", TIMES)
def test_a_time_is_an_instant_by_the_microsecond(seconds: float) -> None:
    record = from_camel(altered("user", timestamp=seconds))
    assert record.timestamp == datetime(*TIMES[seconds], tzinfo=UTC)
    assert to_camel(record)["timestamp"] == seconds


def test_a_call_with_a_long_id_and_its_result_find_each_other() -> None:
    long = {"tool_call_id": "c" * 300}
    call, result = from_camel(altered("call", message=long)), from_camel(altered("result, text", message=long))
    assert call.tool_calls[0]["id"] == result.tool_call_id


@pytest.mark.parametrize("name", ["meta", "images by pixel", "parallel calls", "call, signed", "result and all else"])
def test_who_edits_a_dict_edits_no_record(name: str) -> None:
    def spoil(value: Any) -> None:
        for item in list(value.values() if isinstance(value, dict) else value):
            if isinstance(item, (dict, list)):
                spoil(item)
        value.clear()

    data = copy.deepcopy(RECORDS[name])
    record = from_camel(data)
    spoil(data)
    spoil(to_camel(record))
    assert to_camel(record) == RECORDS[name]


# --- Python objects ---------------------------------------------------------------------------------------------------


class RoleType(Enum):
    USER = "user"


class Level(IntEnum):
    HIGH = 3


class Weather(BaseModel):
    city: str
    shade: tuple[int, ...] = (1, 2)


class Prompt(str):
    """As CAMEL's TextPrompt."""

    __slots__ = ()


def test_python_objects_are_taken_as_camels_storage_writes_them() -> None:
    result = {1: Weather(city="北京"), None: (Level.HIGH, RoleType.USER), False: Prompt("x"), 1.5: 0.5}
    data = altered("result, text", message={"result": result, "role_type": RoleType.USER, "role_name": Prompt("Agent")})
    back = to_camel(from_camel(data))["message"]
    assert back["result"] == {
        "1": {"city": "北京", "shade": [1, 2]},
        "null": [3, {"__enum__": "RoleType.USER"}],
        "false": "x",
        "1.5": 0.5,
    }
    assert (back["role_type"], back["role_name"]) == ({"__enum__": "RoleType.USER"}, "Agent")


def test_a_result_is_shown_as_camel_shows_it() -> None:
    record = from_camel(altered("result, text", message={"result": Weather(city="北京")}))
    assert record.content == "city='北京' shade=(1, 2)"
    assert to_camel(record)["message"]["result"] == {"city": "北京", "shade": [1, 2]}


# --- corrections, forgeries, refusals ---------------------------------------------------------------------------------

CORRECTED = {
    "user": "content",
    "images by url": "content",
    "call, says": "content",
    "parallel calls": "content",
    "result, text": "result",
    "result, object": "result",
    "result, none": "result",
    "result and all else": "result",
}


@pytest.mark.parametrize("name", CORRECTED)
def test_a_correction_wins(name: str) -> None:
    record = from_camel(RECORDS[name]).model_copy(update={"content": "new"})
    assert to_camel(record) == altered(name, message={CORRECTED[name]: "new"})


def test_content_that_was_null_can_be_corrected() -> None:
    record = from_camel(OTHER["content null"]).model_copy(update={"content": "new"})
    assert to_camel(record)["message"]["content"] == "new"


@pytest.mark.parametrize(
    "kept", [5, {"cls": 5}, {"record": {"role_at_backend": "system", "message": 5}}, {"record": {"role_at_backend": 5}}]
)
def test_what_is_forged_under_our_key_does_not_count(kept: Any) -> None:
    data = to_camel(MemoryRecord(role="user", content="hi", metadata={"_camel": kept}))
    assert (data["role_at_backend"], data["message"]["content"]) == ("user", "hi")


REFUSED: dict[str, tuple[Any, type[errors.InvalidEvent], str]] = {
    "no dict": ([], errors.SchemaViolation, "take record.to_dict()"),
    "no message": ({"uuid": "u"}, errors.SchemaViolation, "message: a dict with '__class__'"),
    "no class": (
        altered("user", message={"__class__": None}),
        errors.SchemaViolation,
        "message: a dict with '__class__'",
    ),
    "no uuid": (altered("user", uuid=None), errors.SchemaViolation, "uuid: a string"),
    "unknown role": (altered("user", role_at_backend="narrator"), errors.SchemaViolation, "role: "),
    "no role": (altered("user", role_at_backend=None), errors.SchemaViolation, "role: "),
    "no time": (altered("user", timestamp="2026"), errors.SchemaViolation, "timestamp: a finite number"),
    "time true": (altered("user", timestamp=True), errors.SchemaViolation, "timestamp: a finite number"),
    "time NaN": (altered("user", timestamp=math.nan), errors.SchemaViolation, "timestamp: a finite number"),
    "time in milliseconds": (
        altered("user", timestamp=1772323200000.0),
        errors.SchemaViolation,
        "are they milliseconds?",
    ),
    "time far away": (altered("user", timestamp=10**400), errors.SchemaViolation, "timestamp: "),
    "surrogate": (altered("user", message={"content": "👋\ud800"}), errors.LoneSurrogate, "repair the text"),
    "surrogate in the id": (altered("user", uuid="\ud800"), errors.LoneSurrogate, "repair the text"),
    "surrogate in args": (altered("call", message={"args": {"a": "\ud800"}}), errors.LoneSurrogate, "repair the text"),
    "surrogate in a result": (
        altered("result, object", message={"result": ["\ud800"]}),
        errors.LoneSurrogate,
        "repair",
    ),
    "surrogate in meta": (altered("user", message={"\ud800": 1}), errors.LoneSurrogate, "repair the text"),
    "NaN in args": (altered("call", message={"args": {"a": math.nan}}), errors.SchemaViolation, "NaN and infinity"),
    "NaN in a result": (
        altered("result, text", message={"result": math.inf}),
        errors.SchemaViolation,
        "NaN and infinity",
    ),
    "NaN in meta": (altered("user", message={"a": [math.nan]}), errors.SchemaViolation, "NaN and infinity"),
    "bytes": (altered("user", message={"video_bytes": b"\x00"}), errors.SchemaViolation, "metadata"),
    "a number too long": (
        altered("result, text", message={"result": 10**5000}),
        errors.SchemaViolation,
        "message.result",
    ),
    "an object": (altered("result, text", message={"result": object()}), errors.SchemaViolation, "metadata"),
    "a key of another kind": (
        altered("call", message={"args": {(1, 2): 1}}),
        errors.SchemaViolation,
        "JSON's keys are strings",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named(name: str) -> None:
    data, error, words = REFUSED[name]
    with pytest.raises(error, match=re.escape(words)):
        from_camel(data)


def test_what_is_nested_too_deep_or_in_itself_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(MAX_JSON_DEPTH):
        deep = {"a": deep}
    itself: list[Any] = []
    itself.append(itself)
    for extra in (deep, itself):
        with pytest.raises(errors.TooDeep):
            from_camel(altered("user", message={"extra": extra}))


# --- any record gives a dict ------------------------------------------------------------------------------------------


def test_a_record_by_hand_is_what_camel_would_write() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    when = datetime(2026, 3, 1, tzinfo=UTC)
    parts = (
        Part(type="text", text="see"),
        Part(type="image", url="data:image/jpeg;base64,/9g=", media_type="image/jpeg", detail={"detail": "high"}),
        Part(type="image", url="https://example.org/a.png"),
        Part(type="video", url="data:video/mp4;base64,AAAA"),
        Part(type="video", url="https://example.org/b.mp4"),
        Part(type="audio", url="data:audio/wav;base64,UklG", media_type="audio/wav"),
    )
    user = MemoryRecord(record_id="r-1", role="user", timestamp=when, parts=parts, metadata={"a": "b", "n": [1, "世"]})
    assert to_camel(user) == {
        "uuid": str(uuid.uuid5(uuid.UUID("5f0f6e1c-3a52-5d5e-9a37-0f6f4b1f1c90"), "r-1")),
        "message": {
            "__class__": "BaseMessage",
            "role_name": "User",
            "role_type": "user",
            "content": "see\n[video: https://example.org/b.mp4]\n[audio: audio/wav, inline]",
            "image_list": [
                {"type": "base64", "data": "/9g=", "format": "JPEG"},
                {"type": "url", "data": "https://example.org/a.png"},
            ],
            "image_detail": "high",
            "video_bytes": "AAAA",
            "video_detail": "auto",
        },
        "role_at_backend": "user",
        "extra_info": {"a": "b", "n": '[1, "世"]'},
        "timestamp": 1772323200.0,
        "agent_id": "",
    }
    calling = to_camel(MemoryRecord(role="assistant", tool_calls=(call,)))["message"]
    assert calling["__class__"] == "FunctionCallingMessage"
    assert (calling["func_name"], calling["args"], calling["tool_call_id"]) == ("f", {"a": 1}, "c")
    custom = {"id": "c", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    assert to_camel(MemoryRecord(role="assistant", tool_calls=(custom,)))["message"]["tool_calls"] == [custom]
    both = to_camel(MemoryRecord(role="assistant", tool_calls=(call, call)))["message"]
    assert (both["__class__"], both["tool_calls"]) == ("BaseMessage", [call, call])
    result = to_camel(MemoryRecord(role="tool", content="1", tool_call_id="c", name="f"))
    assert result["role_at_backend"] == "function"
    assert {"func_name": "f", "result": "1", "tool_call_id": "c", "content": ""}.items() <= result["message"].items()
    assert to_camel(MemoryRecord(role="developer"))["role_at_backend"] == "system"  # CAMEL cannot send developers


@pytest.mark.parametrize("arguments", ["", "[1]", "{", '{"a": NaN}', "[" * 100_000, None])
def test_calls_whose_arguments_are_no_object_stay_tool_calls(arguments: str | None) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    message = to_camel(MemoryRecord(role="assistant", tool_calls=(call,)))["message"]
    assert (message["__class__"], message["tool_calls"]) == ("BaseMessage", [call])


def test_from_openai_to_camel() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO", "detail": "low"}}
    record = from_openai({"role": "user", "content": [{"type": "text", "text": "look"}, picture]})
    data = to_camel(record)
    assert data["uuid"] == record.record_id
    assert data["extra_info"] == {}
    assert data["message"]["content"] == "look"
    assert data["message"]["image_detail"] == "low"
    assert data["message"]["image_list"] == [{"type": "base64", "data": "iVBO", "format": "PNG"}]


# --- generated --------------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["", "世界", "👋🏽", ";base64,"]
)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=3)
urls = texts | st.sampled_from(["https://example.org/a.png", "data:image/png;base64,iVBO"])
levels = st.sampled_from(["auto", "low", "high"])
images = st.one_of(
    st.fixed_dictionaries({"type": st.just("url"), "data": urls}),
    st.fixed_dictionaries(
        {"type": st.just("base64"), "data": urls}, optional={"format": st.sampled_from(["PNG"]) | values}
    ),
    urls,
    objects,
)
tool_call_ids = texts | st.integers(250, 260).map("c".__mul__)
calls = st.builds(
    lambda call_id, arguments: {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}},
    tool_call_ids,
    texts | objects.map(json.dumps),
)
base = {
    "role_name": texts,
    "role_type": st.sampled_from(["assistant", "user", "system", "critic", "embodiment", "default"]),
    "content": texts,
    "image_detail": levels,
    "video_detail": levels,
}
media = {
    "image_list": st.lists(images, max_size=3),
    "video_bytes": st.binary(max_size=9).map(lambda b: b.hex()) | texts,
}
future = {"parsed": values, "reasoning_content": texts, "tool_calls": st.lists(calls, max_size=3) | values}
calling = {"func_name": texts | st.none(), "mask_output": st.booleans() | st.none()}
of_calling = {"args": objects, "result": values, "tool_call_id": tool_call_ids, "extra_content": objects}


def message_of(cls: str, required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    made = st.fixed_dictionaries({"__class__": st.just(cls), **required}, optional=optional)
    return st.builds(lambda message, meta: {**meta, **message}, made, st.just({}) | objects)


messages = st.one_of(
    message_of("BaseMessage", base, media | future),
    message_of("FunctionCallingMessage", base | calling, media | future | of_calling),
    message_of("OurMessage", {}, {key: value | values for key, value in (base | calling | media | of_calling).items()}),
)
times = st.floats(-6e10, 2.5e11) | st.floats(1.7e9, 1.8e9) | st.integers(-(10**9), 10**10)
kept_apart = {"uuid": st.uuids().map(str) | texts, "timestamp": times, "message": messages}
data_of_camel = st.fixed_dictionaries(
    {
        **kept_apart,
        "role_at_backend": st.sampled_from(["assistant", "system", "developer", "user", "function", "tool"]),
        "extra_info": st.dictionaries(texts, texts, max_size=3) | objects,
        "agent_id": texts,
    }
)


@settings(max_examples=1000)
@given(data_of_camel)
def test_any_record_of_camel_comes_out_as_it_went_in(data: dict[str, Any]) -> None:
    record = from_camel(data)
    assert exactly(to_camel(record)) == exactly(data)
    assert exactly(to_camel(through_the_log(record))) == exactly(data)
    assert to_openai(record)["role"] == record.role
