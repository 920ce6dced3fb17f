"""Queries and replies: what can be asked, and that an answer can carry any record."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engramlog.schemas import queries as q
from engramlog.schemas.codec import queries_codec, replies_codec
from engramlog.schemas.instants import now
from engramlog.schemas.json_values import MAX_JSON_DEPTH, JsonObject
from engramlog.schemas.records import MemoryRecord, Part
from engramlog.schemas.scope import Scope

reached = st.builds(q.Reached, topic=st.just("memory.records"), partition=st.integers(0, 99), offset=st.integers(0))
as_of = st.one_of(
    st.builds(q.AsOf, offset=st.integers(0)),
    st.builds(q.AsOf, recorded=st.just(now())),
    st.builds(q.AsOf, happened=st.just(now())),
    st.builds(q.AsOf, positions=st.lists(reached, max_size=3, unique_by=lambda p: p.partition).map(tuple)),
)
points = st.none() | as_of
base = {
    "users": st.sampled_from(["own", "all"]),
    "timeout_ms": st.integers(1, 600_000),
    "min_positions": st.lists(reached, max_size=3).map(tuple),
}
pages = st.builds(q.Page, before=st.integers(0), rank=st.integers(0), as_of=st.integers(0))
asked = st.one_of(
    st.builds(
        q.HistoryQuery,
        **base,
        window=st.none() | st.integers(0, q.MAX_WINDOW),
        keep_rate=st.floats(0, 1),
        as_of=st.none() | as_of,
        page=st.none() | pages,
    ),
    st.builds(q.RecordQuery, **base, record_id=st.just('a-:/\\|"()%~b👋')),
    st.builds(q.RecordsQuery, **base, record_ids=st.just(("r1", "记录"))),
    st.builds(q.StatsQuery, **base),
    st.builds(q.RecallQuery, **base, text=st.just("猫 👋"), as_of=points),
    st.builds(q.SimilarQuery, **base, text=st.just("cats?"), as_of=points),
    st.builds(q.TopicsQuery, **base, as_of=points),
    st.builds(q.ContextQuery, **base, as_of=points),
    st.builds(q.SummariesQuery, **base, as_of=st.none() | st.builds(q.AsOf, offset=st.integers(0))),
)


@given(asked)
def test_a_query_comes_out_as_it_went_in(query: Any) -> None:
    event = q.QueryAsked(source="s", tenantid="租户", agentid="a/b", sessionid="s1", userid="u", data=query)
    assert queries_codec().decode(queries_codec().encode(event)) == event
    assert event.scope() == Scope("租户", "a/b", "s1", "u", query.users)


@pytest.mark.parametrize(
    "query",
    [
        {"ask": "history", "window": -1},
        {"ask": "history", "window": True},
        {"ask": "history", "window": "5"},
        {"ask": "history", "keep_rate": 1.01},
        {"ask": "history", "keep_rate": -0.1},
        {"ask": "history", "as_of": {}},
        {"ask": "history", "as_of": {"offset": 1, "happened": "2026-03-01T00:00:00Z"}},
        {"ask": "history", "as_of": {"recorded": "2026-03-01T00:00:00"}},
        {"ask": "recall", "text": "猫", "as_of": {"positions": [{"topic": "t", "partition": 0, "offset": 1}] * 2}},
        {"ask": "context", "as_of": {"offset": 1, "positions": []}},
        {"ask": "summaries", "as_of": {"happened": "2026-03-01T00:00:00Z"}},
        {"ask": "history", "limit": 5},
        {"ask": "record"},
        {"ask": "records", "record_ids": ["r"] * 1_001},
        {"ask": "stats", "timeout_ms": 0},
        {"ask": "stats", "min_positions": [{"topic": "t", "partition": 0, "offset": -1}]},
        {"ask": "gossip"},
        {},
    ],
    ids=str,
)
def test_what_cannot_be_asked_is_refused(query: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        q.QueryAsked.model_validate({"source": "s", "tenantid": "t", "agentid": "a", "data": query})


def nested(levels: int) -> JsonObject:
    value: JsonObject = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def test_a_reply_carries_the_deepest_record_that_can_be_written() -> None:
    deep = nested(MAX_JSON_DEPTH)
    record = MemoryRecord(
        role="user", metadata=deep, tool_calls=(deep,), parts=(Part(type="text", text="", detail=deep),)
    )
    stored = q.StoredRecord(record=record, offset=7, recorded=now(), invalidated=q.Invalidation(offset=9))
    answers: list[Any] = [
        q.HistoryAnswer(kind="history", records=(q.ContextRecord(stored=stored, score=1.0),), truncated=True),
        q.RecordsAnswer(kind="records", records=(stored,), missing=("r2",), unread=("r3",)),
    ]
    for answer in answers:
        reply = q.QueryReplied(source="s", tenantid="t", correlationid="q1", data=q.Reply(answer=answer))
        assert replies_codec().decode(replies_codec().encode(reply)) == reply


def test_a_failure_has_a_code_for_programs_and_words_for_people() -> None:
    failure = q.Reply(error=q.Failure(code="unavailable", message="the history store does not answer; try again"))
    reply = q.QueryReplied(source="s", tenantid="t", data=failure)
    assert replies_codec().decode(replies_codec().encode(reply)) == reply
    with pytest.raises(ValidationError):
        q.Failure.model_validate({"code": "oops", "message": ""})


def test_a_context_record_shows_its_record_and_when_it_happened() -> None:
    record = MemoryRecord(role="user", content="hi")
    context = q.ContextRecord(stored=q.StoredRecord(record=record, offset=0, recorded=now()), score=0.9)
    assert (context.record, context.timestamp) == (record, record.timestamp)
