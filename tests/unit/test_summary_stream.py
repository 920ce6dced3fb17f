"""Subscriptions to summaries without a broker: filters, the past, places, and what is counted."""

import math
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engramlog.engine.client import MemoryClient, Position, SummaryReceived, SummaryStream, reader, subscribing
from engramlog.engine.client.reader import Message
from engramlog.engine.client.subscribing import Wanted, group_id
from engramlog.schemas.codec import summaries_codec
from engramlog.schemas.errors import RequestRefused
from engramlog.schemas.summaries import SummaryCreatedEvent, SummaryFailedEvent

TOPIC = "memory.summaries"
AT = datetime(2026, 3, 1, tzinfo=UTC)
Event = SummaryCreatedEvent | SummaryFailedEvent


def made(summary_id: str, *, agent: str = "helper", tenant: str = "acme", **more: Any) -> SummaryCreatedEvent:
    places = {key: more.pop(key) for key in ("sessionid", "userid") if key in more}
    data = {
        "summary_id": summary_id,
        "text": "摘要 👋",
        "covers": {"first": 1, "last": 2},
        "at": 3,
        "tokens_before": 9,
        "tokens_after": 3,
        "model": "archive",
        "prompt": "archive.v1",
        **more,
    }
    return SummaryCreatedEvent.model_validate(
        {"id": summary_id, "source": "t", "tenantid": tenant, "agentid": agent, "time": AT, "data": data, **places}
    )


def failed(summary_id: str) -> SummaryFailedEvent:
    data = {
        "summary_id": summary_id,
        "covers": {"first": 1, "last": 2},
        "code": "empty",
        "attempts": 1,
        "model": "m",
    }
    return SummaryFailedEvent.model_validate(
        {"id": f"{summary_id}-failed", "source": "t", "tenantid": "acme", "agentid": "helper", "data": data, "time": AT}
    )


def message(offset: int, event: Event | bytes | None) -> Message:
    key = event.key() if isinstance(event, Event) else b"acme/helper/~x"
    value = summaries_codec().encode(event) if isinstance(event, Event) else event
    return Message(Position(TOPIC, 0, offset), AT, key, value)


class Log:
    """In the place of a topic with one partition: what was in it at first, and what came later."""

    def __init__(self, past: Sequence[Event | bytes | None], live: Sequence[Event | bytes | None] = ()) -> None:
        self.messages = [message(offset, event) for offset, event in enumerate((*past, *live))]
        self.ends = {0: len(past)}
        self.waiting = 0
        self.begin = 0
        self.closed = 0
        self.read_ahead: list[int] = []

    def __call__(self, _config: Any, _topic: str, _partitions: range, *, start: Any, **_: Any) -> "Log":
        self.begin = start.get(0, 0) if isinstance(start, dict) else 0 if start == "beginning" else self.ends[0]
        return self

    async def open(self) -> None:
        """It is open."""

    async def close(self) -> None:
        self.closed += 1

    async def messages_from(self, offset: int) -> AsyncGenerator[Message, None]:
        for one in self.messages[offset:]:
            yield one

    async def read(
        self, _config: Any, _topic: str, *, start: dict[int, int], **_: Any
    ) -> AsyncGenerator[Message, None]:
        self.read_ahead.append(start[0])
        for one in self.messages[start[0] :]:
            yield one


@pytest.fixture
def stream_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SummaryStream]:
    """Makes subscriptions to a log."""

    async def one() -> int:
        return 1

    def make(log: Log, *, start: Any = "beginning", group: str | None = None, **wanted: Any) -> SummaryStream:
        class Follower:
            def __init__(self, *arguments: Any, **named: Any) -> None:
                log(*arguments, **named)
                self.ends, self.waiting, self.open, self.close = log.ends, 0, log.open, log.close

            def messages(self) -> AsyncGenerator[Message, None]:
                return log.messages_from(log.begin)

        monkeypatch.setattr(subscribing, "Follower", Follower)
        monkeypatch.setattr(reader, "read", log.read)
        return SummaryStream(
            MemoryClient("nobody:1")._kafka, TOPIC, one, Wanted("acme", **wanted), group=group, start=start
        )

    return make


async def all_of(stream: SummaryStream) -> list[str]:
    return [f"{one.event_id}@{one.position.offset}" async for one in stream]


PAST: tuple[Event, ...] = (
    made("1"),
    made("2"),
    failed("3"),
    failed("4"),
    made("3"),
    made("roll", level=2, replaces=["1", "2"]),
    made("3", generation=2),
)


async def test_of_the_past_only_what_stands_is_passed(stream_of: Any) -> None:
    log = Log(PAST)
    stream = stream_of(log, failures=True)
    assert await all_of(stream) == ["4-failed@3", "roll@5", "3@6"]
    assert stream.passed_over.replaced == 4
    assert log.read_ahead == [0]
    assert log.closed == 1


async def test_what_replaces_later_replaces_nothing_that_was_passed_when_it_came(stream_of: Any) -> None:
    log = Log((made("1"), made("2")), live=(made("3"), made("roll", replaces=["1", "3"]), made("3", generation=2)))
    assert await all_of(stream_of(log)) == ["1@0", "2@1", "3@2", "roll@3", "3@4"]


async def test_from_now_on_nothing_is_read_ahead(stream_of: Any) -> None:
    log = Log(PAST, live=(made("5"), failed("6")))
    assert await all_of(stream_of(log, start="now")) == ["5@7"]
    assert log.read_ahead == []


async def test_everything_is_everything(stream_of: Any) -> None:
    stream = stream_of(Log(PAST), active_only=False, failures=True)
    assert len(await all_of(stream)) == len(PAST)
    assert stream.passed_over.replaced == 0


async def test_behind_a_position_it_goes_on(stream_of: Any) -> None:
    log = Log(PAST)
    behind = [Position(TOPIC, 0, 1), Position(TOPIC, 0, 4)]
    assert await all_of(stream_of(log, start=behind)) == ["roll@5", "3@6"]


async def test_what_cannot_be_read_is_counted_and_stops_nobody(stream_of: Any, caplog: Any) -> None:
    stream = stream_of(Log((None, b"", b"{", b'{"type": "x"}', made("1")), live=(None, made("2"))))
    assert await all_of(stream) == ["1@4", "2@6"]
    assert (stream.passed_over.tombstones, stream.passed_over.undecodable) == (2, 3)
    assert "passed over memory.summaries/0@2" in caplog.text


async def test_a_summary_comes_with_its_place_and_its_people(stream_of: Any) -> None:
    event = made("1", agent='a/:|"()-猫', sessionid="会话", userid="ada", level=3)
    received = await anext(stream_of(Log((event,)), level=3, user="ada", session="会话"))
    assert received == SummaryReceived(
        kind="created",
        summary=event.data,
        tenant="acme",
        agent='a/:|"()-猫',
        session="会话",
        user="ada",
        position=Position(TOPIC, 0, 0),
        recorded=AT,
        event_id="1",
    )


names = st.sampled_from(["a", "b/c", "猫"])


@given(
    of=st.tuples(names, names, st.none() | names, st.none() | names, st.integers(1, 3)),
    wanted=st.tuples(names, st.none() | names, st.none() | names, st.none() | names, st.none() | st.integers(1, 3)),
    partitions=st.integers(1, 64),
)
def test_a_filter_passes_what_agrees_in_all_that_it_names(of: Any, wanted: Any, partitions: int) -> None:
    tenant, agent, user, session, level = of
    event = made("1", tenant=tenant, agent=agent, userid=user, sessionid=session, level=level)
    chosen = Wanted(wanted[0], wanted[1], wanted[2], wanted[3], wanted[4])
    assert chosen(event) == all(want in {None, has} for want, has in zip(wanted, of, strict=True))
    assert len(chosen.partitions(partitions)) == (partitions if wanted[1] is None else 1)
    if chosen(event):
        assert set(Wanted(tenant, agent).partitions(partitions)) <= set(chosen.partitions(partitions))


@pytest.mark.parametrize(("wanted", "passes"), [({}, False), ({"failures": True}, True)], ids=str)
def test_failures_are_passed_on_request(wanted: dict[str, Any], passes: bool) -> None:
    assert Wanted("acme", **wanted)(failed("1")) is passes
    assert not Wanted("other", **wanted)(failed("1"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": "yesterday"},
        {"start": datetime(2026, 3, 1)},  # noqa: DTZ001 - naive on purpose
        {"start": [Position("memory.records", 0, 1)]},
        {"group": ""},
        {"group": " "},
        {"group": "x" * 201},
        {"group": "a\nb"},
    ],
    ids=str,
)
async def test_what_cannot_be_subscribed_to_is_refused_at_once(wrong: dict[str, Any]) -> None:
    async with MemoryClient("nobody:1") as memory:
        with pytest.raises(RequestRefused):
            memory.summaries(tenant="acme", **wrong)


def test_groups_are_named_under_the_prefix() -> None:
    assert group_id("memory", None) is None
    assert group_id("memory", "读者/1 👋") == "memory.subscriber.读者/1 👋"


def test_a_group_may_work_long_on_one_summary() -> None:
    from engramlog.engine.client.connection import KafkaConfig
    from engramlog.engine.client.following import Follower

    arguments = Follower(KafkaConfig(), TOPIC, range(3), group="g", start="now")._arguments()
    assert arguments["max_poll_interval_ms"] >= math.prod((24, 60, 60, 1000))
    assert (arguments["enable_auto_commit"], arguments["isolation_level"]) == (False, "read_committed")
