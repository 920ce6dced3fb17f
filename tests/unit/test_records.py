"""MemoryRecord and the events about it: what they take, what they refuse, and whose key they have."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engramlog.schemas import envelope as ev
from engramlog.schemas import records as r
from engramlog.schemas.codec import records_codec
from engramlog.schemas.scope import Position, Scope

ADDRESS = {"source": "urn:test", "tenantid": "acme", "agentid": "helper"}


def test_a_record_needs_no_more_than_its_role() -> None:
    before = datetime.now(UTC)
    one, other = r.MemoryRecord(role="user"), r.MemoryRecord(role="user")
    assert one.record_id < other.record_id  # UUIDv7: sortable by time
    assert before <= one.timestamp <= other.timestamp
    assert (one.kind, one.origin, one.content, one.layer, one.importance) == ("turn", "dialogue", "", None, None)


def test_an_openai_message_goes_in_and_comes_out_unchanged() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": null}'}, "index": 0}
    record = r.MemoryRecord(
        role="assistant",
        reasoning_content="hm",
        tool_calls=(call,),
        name="bob",
        parts=(r.Part(type="image", url="data:image/png;base64,AA==", detail={"detail": "low", "x": None}),),
        metadata={"extra_info": {"nested": [None, 1, 1.0, True]}, "backend_role": "ASSISTANT"},
    )
    event = ev.RecordWritten.of(record, source="s", tenant="t", agent="a")
    decoded = records_codec().decode(records_codec().encode(event)).data
    assert decoded.tool_calls[0] == call
    assert decoded.model_dump(mode="json") == record.model_dump(mode="json")


def test_records_are_immutable_and_closed() -> None:
    record = r.MemoryRecord(role="user")
    with pytest.raises(ValidationError):
        record.content = "other"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        r.MemoryRecord(role="user", extra=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("record_id", ["", "x" * 129, "a\x00", "a\n", "a\x7f", "\x85"])
def test_an_id_has_1_to_128_characters_that_can_be_seen(record_id: str) -> None:
    with pytest.raises(ValidationError):
        r.MemoryRecord(role="user", record_id=record_id)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=128))
def test_any_other_string_is_an_id_and_stays_as_it_is(record_id: str) -> None:
    assert r.MemoryRecord(role="user", record_id=record_id).record_id == record_id


@pytest.mark.parametrize(
    "part", [{"type": "text"}, {"type": "text", "url": "x"}, {"type": "image"}, {"type": "image", "text": "x"}], ids=str
)
def test_a_part_holds_what_its_type_says(part: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="needs"):
        r.Part(**part)


@pytest.mark.parametrize("share", [-0.01, 1.01, float("nan"), "0.5", True])
def test_importance_and_confidence_are_numbers_from_0_to_1(share: Any) -> None:
    for name in ("importance", "confidence"):
        with pytest.raises(ValidationError):
            r.MemoryRecord.model_validate({"role": "user", name: share})


def test_local_mean_time_keeps_its_instant() -> None:
    old = datetime(1890, 1, 1, tzinfo=ZoneInfo("Asia/Shanghai"))  # +08:05:43, which RFC 3339 cannot write
    event = ev.RecordWritten.of(r.MemoryRecord(role="user", timestamp=old), source="s", tenant="t", agent="a")
    assert old.utcoffset() == timedelta(hours=8, minutes=5, seconds=43)
    assert records_codec().decode(records_codec().encode(event)).data.timestamp == old


# --- events -----------------------------------------------------------------------------------------------------------


def test_the_event_of_a_record_has_its_id_and_its_key() -> None:
    record = r.MemoryRecord(role="user", record_id="a/b~")
    event = ev.RecordWritten.of(record, source="s", tenant="acme", agent="helper", userid="u1")
    assert event.id == "a/b~"
    assert event.key() == b"acme/helper/a%2Fb%7E"
    assert event.userid == "u1"


def test_any_other_event_has_a_key_of_its_own() -> None:
    event = ev.HistoryClearedEvent(id="e/1", data=r.HistoryCleared(), **ADDRESS)
    assert event.key() == b"acme/helper/~e%2F1"


def test_a_record_event_of_another_id_cannot_be_made() -> None:
    with pytest.raises(ValidationError, match="make them the same"):
        ev.RecordWritten(id="other", data=r.MemoryRecord(role="user"), **ADDRESS)


@pytest.mark.parametrize("kind", [ev.SessionIdledEvent, ev.SessionEndedEvent])
def test_events_of_a_session_name_it(kind: type[ev.AgentEvent]) -> None:
    with pytest.raises(ValidationError, match="sessionid"):
        kind.model_validate({**ADDRESS, "data": {"idle_s": 1.0} if kind is ev.SessionIdledEvent else {}})


@pytest.mark.parametrize(
    ("scope", "names", "complaint"),
    [
        ("record", {"agentid": "a"}, None),
        ("session", {"agentid": "a", "sessionid": "s"}, None),
        ("user", {"userid": "u"}, None),
        ("user", {"agentid": "a", "userid": "u"}, None),
        ("agent", {"agentid": "a"}, None),
        ("tenant", {}, None),
        ("tenant", {"agentid": "a"}, "takes no 'agentid'"),
        ("record", {}, "needs 'agentid'"),
        ("agent", {}, "needs 'agentid'"),
        ("session", {"agentid": "a"}, "needs 'sessionid'"),
        ("user", {"agentid": "a"}, "needs 'userid'"),
    ],
)
def test_an_erasure_names_exactly_what_it_erases(scope: Any, names: dict[str, str], complaint: str | None) -> None:
    data = r.ScopeErased(scope=scope, record_ids=("r1",) if scope == "record" else ())
    if complaint:
        with pytest.raises(ValidationError, match=complaint):
            ev.ScopeErasedEvent(source="s", tenantid="t", data=data, **names)
    else:
        event = ev.ScopeErasedEvent(source="s", tenantid="t", data=data, **names)
        assert event.key().startswith(f"t/{names.get('agentid', '')}/~".encode())


@pytest.mark.parametrize(("scope", "ids"), [("record", ()), ("agent", ("r1",))])
def test_record_ids_go_with_the_scope_record(scope: Any, ids: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError, match="'record_ids' goes with"):
        r.ScopeErased(scope=scope, record_ids=ids)


def test_removals_name_ids_never_counts() -> None:
    with pytest.raises(ValidationError):
        r.RecordsRemoved(ids=())
    assert set(r.RecordsRemoved.model_fields) == {"ids", "scope", "cause", "request_id", "at"}


def test_a_scope_cannot_be_built_without_a_tenant_and_an_agent() -> None:
    with pytest.raises(ValidationError):
        Scope(tenant="acme")  # type: ignore[call-arg]
    with pytest.raises(ValidationError):
        Scope(tenant="", agent="a")
    assert Scope(tenant="acme", agent="a") != Scope(tenant="acme-corp", agent="a")


def test_positions_are_ordered_and_read_well() -> None:
    assert Position("t", 0, 9) < Position("t", 0, 10) < Position("t", 1, 0)
    assert str(Position("memory.records", 3, 41)) == "memory.records/3@41"


def test_an_integer_that_could_not_be_read_again_is_refused() -> None:
    with pytest.raises(ValidationError, match="use a string"):
        r.MemoryRecord(role="user", metadata={"n": [10**5000]})
    assert r.MemoryRecord(role="user", metadata={"n": 10**1000}).metadata == {"n": 10**1000}
