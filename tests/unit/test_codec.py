"""The codec: every event comes out as it went in, and every way of being wrong has its own error."""

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engramlog.schemas import envelope as ev
from engramlog.schemas import errors
from engramlog.schemas import records as r
from engramlog.schemas.codec import MAX_EVENT_BYTES, invalid, queries_codec, records_codec, replies_codec
from engramlog.schemas.json_values import MAX_DEPTH, MAX_JSON_DEPTH

# --- round trip -------------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(["你好，世界", "👋🏽", "a\x00b", "\u2028"])
ids = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=128) | st.sampled_from(
    ['a-:/\\|"()%~b', "~", "/", "%2F", "客服-一", "acme", "acme-corp", "👋", "e\u0301"]
)
tags = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
instants = st.datetimes(timezones=st.timezones() | st.just(UTC) | st.just(timezone(timedelta(hours=8))))
shares = st.floats(0, 1)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
json_objects = st.dictionaries(texts, json_values, max_size=4)
parts = st.builds(r.Part, type=st.just("text"), text=texts, detail=json_objects) | st.builds(
    r.Part, type=st.sampled_from(["image", "audio", "video", "file"]), url=texts, media_type=st.none() | tags
)
embeddings = st.builds(
    r.Embedding.of, ids, st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1)
)
records = st.builds(
    r.MemoryRecord,
    record_id=ids,
    role=st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"]),
    role_name=st.none() | tags,
    content=texts,
    parts=st.lists(parts, max_size=2).map(tuple),
    reasoning_content=st.none() | texts,
    tool_calls=st.lists(json_objects, max_size=2).map(tuple),
    timestamp=instants,
    layer=st.sampled_from([None, "core", "working", "long_term"]),
    importance=st.none() | shares,
    topic=st.none() | tags,
    embedding=st.none() | embeddings,
    tags=st.lists(tags, max_size=2).map(tuple),
    metadata=json_objects,
    expires_at=st.none() | instants,
    derived_from=st.lists(ids, max_size=2).map(tuple),
)
envelopes = {
    "source": st.just("urn:test"),
    "time": instants,
    "tenantid": ids,
    "sessionid": st.none() | ids,
    "userid": st.none() | ids,
    "correlationid": st.none() | ids,
    "causationid": st.none() | ids,
    "subject": st.none() | tags,
}
id_lists = st.lists(ids, min_size=1, max_size=3).map(tuple)
marks = st.sampled_from(["window", "recall", "both"])
by_agent = envelopes | {"id": ids, "agentid": ids}
in_session = by_agent | {"sessionid": ids}
written = records.flatmap(
    lambda record: st.builds(
        ev.RecordWritten, **envelopes, id=st.just(record.record_id), agentid=ids, data=st.just(record)
    )
)
mutations: dict[type[ev.Envelope], tuple[dict[str, st.SearchStrategy[Any]], st.SearchStrategy[Any]]] = {
    ev.HistoryClearedEvent: (by_agent, st.builds(r.HistoryCleared, scope=marks, users=st.sampled_from(["own", "all"]))),
    ev.RecordsRemovedEvent: (by_agent, st.builds(r.RecordsRemoved, ids=id_lists, scope=marks, cause=st.none() | tags)),
    ev.RecordInvalidatedEvent: (
        by_agent,
        st.builds(r.RecordInvalidated, id=ids, reason=texts, replaced_by=st.none() | ids),
    ),
    ev.RecordCorrectedEvent: (by_agent, st.builds(r.RecordCorrected, id=ids, content=texts, reason=texts)),
    ev.SessionIdledEvent: (in_session, st.builds(r.SessionIdled, idle_s=st.floats(0, 1e9))),
    ev.SessionEndedEvent: (in_session, st.builds(r.SessionEnded, reason=texts)),
    ev.ScopeErasedEvent: (by_agent, st.builds(r.ScopeErased, scope=st.just("record"), record_ids=id_lists)),
}
events = st.one_of(written, *(st.builds(kind, **base, data=data) for kind, (base, data) in mutations.items()))


@given(events)
def test_every_event_comes_out_as_it_went_in(event: Any) -> None:
    encoded = records_codec().encode(event)
    assert records_codec().decode(encoded) == event
    assert json.loads(encoded.decode())["type"] == event.type  # any JSON parser of any language reads it


def test_all_kinds_of_events_are_covered() -> None:
    assert {*mutations} | {ev.RecordWritten} == {*get_args(get_args(ev.RecordEvent)[0])}


@given(json_objects)
def test_metadata_keeps_its_nulls_its_types_and_its_order(metadata: dict[str, Any]) -> None:
    event = ev.RecordWritten.of(r.MemoryRecord(role="user", metadata=metadata), source="s", tenant="t", agent="a")
    decoded = records_codec().decode(records_codec().encode(event))
    assert json.dumps(decoded.data.metadata) == json.dumps(metadata)


def test_what_only_has_defaults_is_small() -> None:
    event = ev.RecordWritten.of(r.MemoryRecord(role="user", content="hi"), source="s", tenant="t", agent="a")
    assert set(json.loads(records_codec().encode(event))) == {
        *("specversion", "type", "id", "source", "time", "tenantid", "agentid", "data")
    }


# --- ways of being wrong ----------------------------------------------------------------------------------------------


def event(**changes: Any) -> dict[str, Any]:
    data = {"record_id": "r1", "role": "user", "content": "hi", "timestamp": "2026-03-01T00:00:00Z"}
    return {
        "specversion": "1.0",
        "id": "r1",
        "source": "urn:test",
        "type": "engramlog.record.written.v1",
        "time": "2026-03-01T00:00:00Z",
        "tenantid": "acme",
        "agentid": "helper",
        "data": data | changes.pop("data", {}),
    } | changes


def encoded(**changes: Any) -> bytes:
    return json.dumps(event(**changes)).encode()


def without(name: str) -> bytes:
    return json.dumps({key: value for key, value in event().items() if key != name}).encode()


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


RAW_SURROGATE = encoded(data={"content": "CUT"}).replace(b"CUT", b"\xed\xa0\x80")
BAD_BASE64 = {"embedding": {"model": "m", "dimension": 1, "values": "!!"}}
SHORT_VECTOR = {"embedding": {"model": "m", "dimension": 2, "values": "AACAPw=="}}
ERASED = {"type": "engramlog.scope.erased.v1", "data": {"scope": "session"}}

WRONG = {
    "no bytes": (b"", errors.EmptyValue, "a tombstone is a null value"),
    "3 MB": (encoded(data={"content": "x" * 3_000_000}), errors.TooLarge, "allowed are 900,000: split the text"),
    "depth 200": (encoded(data={"metadata": nested(200)}), errors.TooDeep, "store the document elsewhere"),
    "depth 100,000": (b"[" * 100_000, errors.TooDeep, "store the document elsewhere"),
    "metadata too deep": (encoded(data={"metadata": nested(MAX_JSON_DEPTH + 1)}), errors.TooDeep, "data.metadata: "),
    "no UTF-8": (b"\xff{", errors.NotUtf8, "byte 0 is not UTF-8 (invalid start byte); encode events as UTF-8"),
    "surrogate as bytes": (RAW_SURROGATE, errors.NotUtf8, "encode events as UTF-8"),
    "surrogate escaped": (encoded(data={"content": "👋\ud800"}), errors.LoneSurrogate, "repair the text"),
    "surrogate in a key": (encoded(data={"metadata": {"\udc00": 1}}), errors.LoneSurrogate, "repair the text"),
    "surrogate in a field we ignore": (encoded(other="\ud800"), errors.LoneSurrogate, "repair the text"),
    "no JSON": (b"hello", errors.NotJson, "the value is not JSON"),
    "half of it": (encoded()[:-5], errors.NotJson, "the value is not JSON"),
    "two of it": (encoded() * 2, errors.NotJson, "the value is not JSON"),
    "NaN": (encoded(data={"metadata": {"a": float("nan")}}), errors.NotJson, "use null or a string"),
    "infinity": (encoded(data={"importance": float("inf")}), errors.NotJson, "use null or a string"),
    "beyond double": (
        encoded(data={"metadata": {"a": 7}}).replace(b'"a": 7', b'"a": 1e400'),
        errors.SchemaViolation,
        "use null",
    ),
    "a list": (b"[1]", errors.NotAnEvent, "it needs specversion, id, type, source, data"),
    "null": (b"null", errors.NotAnEvent, "it needs specversion"),
    "no type": (without("type"), errors.NotAnEvent, "it needs specversion"),
    "CloudEvents 0.3": (encoded(specversion="0.3"), errors.NotAnEvent, "write CloudEvents 1.0"),
    "unknown type": (encoded(type="engramlog.record.dreamt.v1"), errors.UnknownType, "known are engramlog.history"),
    "type without version": (encoded(type="engramlog.record.written"), errors.UnknownType, "end in its version"),
    "newer version": (encoded(type="engramlog.record.written.v2"), errors.NewerVersion, "knows v1: upgrade it first"),
    "naive time": (encoded(time="2026-03-01T00:00:00"), errors.NaiveTime, "time: a time needs an offset"),
    "naive timestamp": (
        encoded(data={"timestamp": "2026-03-01T00:00:00"}),
        errors.NaiveTime,
        "data.timestamp: a time needs an offset",
    ),
    "time as a number": (encoded(time=1772323200), errors.SchemaViolation, "time: a time is a string as in RFC 3339"),
    "time as digits": (encoded(time="1772323200"), errors.SchemaViolation, "time: a time is a string as in RFC 3339"),
    "a date": (encoded(data={"timestamp": "2026-03-01"}), errors.SchemaViolation, "data.timestamp: a time is a string"),
    "no such day": (encoded(time="2026-02-30T00:00:00Z"), errors.SchemaViolation, "time: "),
    "no specversion": (without("specversion"), errors.SchemaViolation, "specversion: missing; the publisher must set"),
    "no id": (without("id"), errors.SchemaViolation, "'data.record_id'"),
    "no time": (without("time"), errors.SchemaViolation, "time: missing; the publisher must set it"),
    "no tenant": (without("tenantid"), errors.SchemaViolation, "tenantid: "),
    "no data": (without("data"), errors.SchemaViolation, "data: "),
    "two ids": (encoded(id="r2"), errors.SchemaViolation, "make them the same"),
    "unknown field": (encoded(data={"contnet": "hi"}), errors.SchemaViolation, "put data of your own into 'metadata'"),
    "unknown role": (encoded(data={"role": "robot"}), errors.SchemaViolation, "data.role: "),
    "number as text": (encoded(data={"importance": "0.5"}), errors.SchemaViolation, "data.importance: "),
    "importance 2": (encoded(data={"importance": 2}), errors.SchemaViolation, "less than or equal to 1"),
    "long id": (encoded(tenantid="x" * 129), errors.SchemaViolation, "tenantid: "),
    "control character": (encoded(agentid="a\n"), errors.SchemaViolation, "agentid: "),
    "no base64": (encoded(data=BAD_BASE64), errors.SchemaViolation, "data.embedding: 'values' is not base64"),
    "short vector": (encoded(data=SHORT_VECTOR), errors.SchemaViolation, "2 float32 are 8 bytes, but there are 4"),
    "erasure of nothing": (json.dumps(event() | ERASED).encode(), errors.SchemaViolation, "needs 'sessionid'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named_and_the_message_says_what_to_do(case: str) -> None:
    value, kind, advice = WRONG[case]
    with pytest.raises(errors.InvalidEvent, match=re.escape(advice)) as caught:
        records_codec().decode(value)
    assert type(caught.value) is kind
    str(caught.value).encode()  # the message itself is valid Unicode


def test_every_error_of_the_codec_is_covered_and_has_its_own_reason() -> None:
    kinds = errors.InvalidEvent.__subclasses__()
    elsewhere = {errors.WrongKey, errors.WrongPartition, errors.NotAdmitted}
    assert {kind for _, kind, _ in WRONG.values()} == {*kinds} - elsewhere
    assert len({kind.reason for kind in kinds}) == len(kinds)


@given(
    st.binary(max_size=200)
    | st.text().map(lambda t: t.encode(errors="replace"))
    | json_values.map(json.dumps).map(str.encode)
)
def test_whatever_comes_in_nothing_but_an_invalid_event_comes_out(value: bytes) -> None:
    with pytest.raises(errors.InvalidEvent):
        records_codec().decode(value)


@given(st.data())
def test_one_changed_byte_gives_an_event_or_an_invalid_event(data: st.DataObject) -> None:
    value = bytearray(encoded(data={"metadata": {"a": [None, 1.5, '你👋\\"']}}))
    value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    try:
        records_codec().decode(bytes(value))
    except errors.InvalidEvent as error:
        assert str(error)  # noqa: PT017 - either outcome is right


@pytest.mark.parametrize("name", ["record_id", "timestamp"])
def test_a_record_carries_its_own_id_and_time(name: str) -> None:
    value = event(id="r1")
    del value["data"][name]
    with pytest.raises(errors.SchemaViolation, match=name):
        records_codec().decode(json.dumps(value).encode())


def test_unknown_extensions_of_the_envelope_are_ignored() -> None:
    assert records_codec().decode(encoded(traceparent="00-1", other={"a": 1})) == records_codec().decode(encoded())


# --- times ------------------------------------------------------------------------------------------------------------


def test_the_same_instant_is_equal_whatever_its_offset() -> None:
    utc = records_codec().decode(encoded(time="2026-03-01T00:00:00Z"))
    shanghai = records_codec().decode(encoded(time="2026-03-01T08:00:00+08:00"))
    assert utc == shanghai
    assert utc != records_codec().decode(encoded(time="2026-03-01T00:00:00+08:00"))


def test_a_naive_time_is_refused_in_python_too() -> None:
    with pytest.raises(ValidationError) as caught:
        r.MemoryRecord(role="user", timestamp=datetime(2026, 3, 1))  # noqa: DTZ001 - the point of the test
    assert type(invalid(caught.value)) is errors.NaiveTime


# --- limits -----------------------------------------------------------------------------------------------------------


def test_what_python_accepts_the_log_accepts() -> None:
    deepest = r.MemoryRecord(
        role="user",
        metadata=nested(MAX_JSON_DEPTH),
        tool_calls=(nested(MAX_JSON_DEPTH),),
        parts=(r.Part(type="text", text="", detail=nested(MAX_JSON_DEPTH)),),
    )
    event = ev.RecordWritten.of(deepest, source="s", tenant="t", agent="a")
    assert records_codec().decode(records_codec().encode(event)) == event


def test_brackets_in_strings_are_no_depth() -> None:
    content = '[{"' * 500 + "\\" + '\\"[' * 500
    assert records_codec().decode(encoded(data={"content": content})).data.content == content


def test_the_deepest_event_is_just_not_too_deep() -> None:
    def ignored(levels: int) -> bytes:
        return encoded(extension=nested(levels))

    assert records_codec().decode(ignored(MAX_DEPTH - 1))
    with pytest.raises(errors.TooDeep):
        records_codec().decode(ignored(MAX_DEPTH))


def test_too_large_is_refused_before_it_is_published() -> None:
    event = ev.RecordWritten.of(r.MemoryRecord(role="user", content="你" * 300_000), source="s", tenant="t", agent="a")
    with pytest.raises(errors.TooLarge, match="pass large parts by reference"):
        records_codec().encode(event)


def test_an_event_of_exactly_the_limit_passes() -> None:
    event = ev.RecordWritten.of(r.MemoryRecord(role="user"), source="s", tenant="t", agent="a")
    room = MAX_EVENT_BYTES - len(records_codec().encode(event)) - len(',"content":""')
    full = event.model_copy(update={"data": event.data.model_copy(update={"content": "x" * room})})
    value = records_codec().encode(full)
    assert len(value) == MAX_EVENT_BYTES
    assert records_codec().decode(value) == full


# --- models built in Python -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"content": "👋\ud800"},
        {"record_id": "\ud800"},
        {"tags": ("fine", "\udfff")},
        {"reasoning_content": "\ud83d"},
        {"metadata": {"a": ["\ud800"]}},
        {"metadata": {"\ud800": None}},
        {"tool_calls": ({"function": {"arguments": "\ud800"}},)},
        {"parts": ({"type": "text", "text": "\ud800"},)},
        {"content": "\ud800", "importance": 7},
    ],
    ids=str,
)
def test_half_a_character_is_refused_when_the_record_is_built(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        r.MemoryRecord(role="user", **fields)
    refused = invalid(caught.value)
    assert type(refused) is errors.LoneSurrogate
    assert str(refused).startswith(next(iter(fields)))
    assert "repair the text" in str(refused)


def test_half_a_character_put_in_past_validation_is_refused_when_encoding() -> None:
    event = ev.RecordWritten.of(r.MemoryRecord(role="user"), source="s", tenant="t", agent="a")
    event.data.metadata["late"] = "\ud800"
    with pytest.raises(errors.LoneSurrogate, match="repair the text"):
        records_codec().encode(event)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"metadata": nested(MAX_JSON_DEPTH + 1)}, errors.TooDeep),
        ({"metadata": nested(3_000)}, errors.TooDeep),
        ({"metadata": {"a": float("nan")}}, errors.SchemaViolation),
        ({"importance": float("nan")}, errors.SchemaViolation),
        ({"surprise": 1}, errors.SchemaViolation),
        ({"embedding": {"model": "m", "dimension": 1, "values": "!!"}}, errors.SchemaViolation),
        ({"timestamp": "2026-03-01T00:00:00Z"}, errors.SchemaViolation),
    ],
    ids=["deep", "very deep", "nan", "nan importance", "unknown", "base64", "text as time"],
)
def test_what_is_wrong_in_python_has_the_same_names(fields: dict[str, Any], kind: type[errors.InvalidEvent]) -> None:
    with pytest.raises(ValidationError) as caught:
        r.MemoryRecord(role="user", **fields)
    assert type(invalid(caught.value)) is kind
    assert len(str(invalid(caught.value))) < 500


@pytest.mark.parametrize("vector", [[], [float("nan")], [float("-inf")], [1e300]], ids=str)
def test_a_vector_is_finite_and_not_empty(vector: list[float]) -> None:
    with pytest.raises(ValueError):
        r.Embedding.of("model", vector)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_a_vector_keeps_its_float32s(vector: list[float]) -> None:
    assert list(r.Embedding.of("model", vector).vector()) == vector


@pytest.mark.parametrize("codec", [records_codec, queries_codec, replies_codec])
def test_codecs_are_made_once(codec: Any) -> None:
    assert codec() is codec()
