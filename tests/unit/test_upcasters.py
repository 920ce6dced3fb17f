"""The chain of upcasters: checked at start, and no consumer ever sees an old version."""

import json
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from engramlog.schemas import envelope as ev
from engramlog.schemas.codec import Codec
from engramlog.schemas.errors import ConfigurationError, NaiveTime, NewerVersion, SchemaViolation, UnknownType
from engramlog.schemas.records import Wire
from engramlog.schemas.upcasters import UPCASTERS, Lift, split_type

V1, V2, V3 = (f"test.thought.had.v{n}" for n in (1, 2, 3))


class Thought(Wire):
    words: tuple[str, ...]
    mood: str


class ThoughtHad(ev.AgentEvent):
    type: Literal["test.thought.had.v3"] = "test.thought.had.v3"
    data: Thought


Union = Annotated[ThoughtHad | ev.SessionEndedEvent, Field(discriminator="type")]


def to_v2(event: dict[str, Any]) -> dict[str, Any]:
    return event | {"type": V2, "data": {"words": event["data"]["text"].split(" ")}}


def to_v3(event: dict[str, Any]) -> dict[str, Any]:
    return event | {"type": V3, "data": event["data"] | {"mood": "unknown"}}


CHAIN = {V1: to_v2, V2: to_v3}


def encoded(event_type: str, data: dict[str, Any], **changes: Any) -> bytes:
    event = {"specversion": "1.0", "id": "1", "source": "s", "time": "2026-03-01T00:00:00Z", "tenantid": "t"}
    return json.dumps(event | {"agentid": "a", "type": event_type, "data": data} | changes).encode()


@pytest.mark.parametrize(
    "value",
    [
        encoded(V1, {"text": "so 是 👋"}),
        encoded(V2, {"words": ["so", "是", "👋"]}),
        encoded(V3, {"words": ["so", "是", "👋"], "mood": "unknown"}),
    ],
    ids=["v1", "v2", "v3"],
)
def test_every_version_is_read_as_the_newest(value: bytes) -> None:
    event = Codec[ThoughtHad](Union, CHAIN).decode(value)
    assert event.type == V3
    assert event.data == Thought(words=("so", "是", "👋"), mood="unknown")


def test_what_is_lifted_is_checked_like_any_other_event() -> None:
    with pytest.raises(NaiveTime):
        Codec(Union, CHAIN).decode(encoded(V1, {"text": "x"}, time="2026-03-01T00:00:00"))


def test_an_old_event_that_is_broken_is_an_invalid_event_not_a_crash() -> None:
    with pytest.raises(SchemaViolation, match=r"not a good 'test.thought.had.v1'"):
        Codec(Union, CHAIN).decode(encoded(V1, {"txet": "x"}))
    with pytest.raises(SchemaViolation, match=r"not a good 'test.thought.had.v1'"):
        Codec(Union, CHAIN).decode(encoded(V1, {"text": 7}))


@pytest.mark.parametrize("missing", [V1, V2])
def test_a_hole_in_the_chain_is_found_at_start(missing: str) -> None:
    with pytest.raises(ConfigurationError, match=f"no upcaster for {missing}"):
        Codec(Union, {name: cast for name, cast in CHAIN.items() if name != missing})


@pytest.mark.parametrize("astray", [V3, "test.thought.forgotten.v1", "engramlog.session.ended.v1"])
def test_an_upcaster_that_leads_nowhere_is_found_at_start(astray: str) -> None:
    with pytest.raises(ConfigurationError, match=f"lead to no current event type: {astray}"):
        Codec(Union, CHAIN | {astray: to_v3})


@pytest.mark.parametrize("made", [V1, V3, "test.other.v2", None, 2])
def test_an_upcaster_that_makes_something_else_is_named(made: object) -> None:
    with pytest.raises(ConfigurationError, match=r"the upcaster of 'test.thought.had.v1' made"):
        Codec(Union, CHAIN | {V1: lambda event: event | {"type": made}}).decode(encoded(V1, {"text": "x"}))


def test_a_newer_version_is_not_guessed_at() -> None:
    with pytest.raises(NewerVersion, match="knows v3: upgrade it first"):
        Codec(Union, CHAIN).decode(encoded("test.thought.had.v4", {}))


@pytest.mark.parametrize("name", ["a.v0", "a.v01", "a.v-1", "a", "a.v", ".v1", "a.v1 ", "a.v9999999", "a.v１"])
def test_a_type_ends_in_its_version(name: str) -> None:
    with pytest.raises(UnknownType, match="does not end in its version"):
        split_type(name)


def test_the_chain_of_today_is_whole() -> None:
    Lift((cls.model_fields["type"].default for cls in (ev.RecordWritten, ev.ScopeErasedEvent)), UPCASTERS)
