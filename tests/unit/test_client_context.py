"""The client's contexts, summaries and turns without a broker: what it asks and publishes, and what it makes of it."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from engramlog.engine.client import MemoryClient, MemoryRecord, MemoryTools, Position, RecallFilter, RecallPart, Scope
from engramlog.engine.client.asking import Asking
from engramlog.engine.client.loop import MEMORY_TOOLS
from engramlog.engine.client.remembering import Remembering
from engramlog.schemas import queries as q
from engramlog.schemas.codec import queries_codec
from engramlog.schemas.envelope import AgentEvent
from engramlog.schemas.errors import InvalidEvent, RequestRefused, StoreUnavailable
from engramlog.schemas.formats import to_openai

SCOPE = Scope("acme", '帮手/:|"()-', "s1", "ada")
END = q.Reached(topic="memory.records", partition=3, offset=41)
AT = datetime(2026, 3, 1, tzinfo=UTC)
MESSAGES: tuple[dict[str, Any], ...] = (
    {"role": "system", "content": "You are brief."},
    {"role": "user", "content": "我对猫过敏 🐈"},
)
CONTEXT = q.ContextAnswer(
    kind="context",
    messages=MESSAGES,
    tokens=23,
    exact=False,
    used=(q.Used(section="head", items=1, tokens=8), q.Used(section="recent", items=1, tokens=12)),
    left_out=(q.LeftOut(id="r1", section="recent", why="budget", tokens=900, score=0.5),),
    left_out_total=7,
    recalled=("r9",),
    summaries=("z1",),
    degraded=("recall: slow",),
    now=AT,
)
SUMMARY: dict[str, Any] = {
    "summary": {
        "summary_id": "z1",
        "text": "They talked about cats.",
        "covers": {"record_ids": ["r1"], "first": 1, "last": 1},
        "at": 9,
        "tokens_before": 90,
        "tokens_after": 6,
        "model": "archive",
        "prompt": "archive.v1",
    },
    "session": "s1",
    "recorded": AT,
    "offset": 4,
}
Told = list[q.QueryAsked]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[[q.Reply], Told]:
    """Puts a reply into the engine's mouth; what it is asked is kept, as it would go over the wire."""

    def answer(reply: q.Reply) -> Told:
        asked: Told = []

        async def request(_self: Asking, request: q.QueryAsked, _limit_s: float) -> q.Reply:
            asked.append(queries_codec().decode(queries_codec().encode(request)))
            return reply

        monkeypatch.setattr(Asking, "_request", request)
        return asked

    return answer


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[AgentEvent]:
    """In the place of the log: keeps what is published to it."""
    events: list[AgentEvent] = []

    async def publish(self: Remembering, new: Sequence[AgentEvent], *, limit_s: float) -> list[Position]:
        events.extend(new)
        positions = [Position("memory.records", 3, 40 + len(events) - len(new) + n) for n in range(len(new))]
        for position in positions:
            self.ask.wrote((SCOPE.tenant, SCOPE.agent), position)
        return positions

    monkeypatch.setattr(Remembering, "publish", publish)
    return events


def said(events: Sequence[Any]) -> list[dict[str, Any]]:
    return [to_openai(event.data) for event in events]


async def test_a_context_is_asked_with_its_defaults_and_told_whole(told: Callable[[q.Reply], Told]) -> None:
    asked = told(q.Reply(answer=CONTEXT, positions=(END,), stale=True))
    async with MemoryClient("nobody:1") as memory:
        found = await memory.context(SCOPE, timeout_s=3.0)
    assert asked[0].data == q.ContextQuery(timeout_ms=3_000)
    assert asked[0].scope() == SCOPE
    assert (found.messages, found.tokens, found.exact) == (MESSAGES, 23, False)
    assert [(used.section, used.tokens) for used in found.used] == [("head", 8), ("recent", 12)]
    assert (found.left_out[0].why, found.left_out_total) == ("budget", 7)
    assert (found.recalled, found.summaries, found.degraded) == (("r9",), ("z1",), ("recall: slow",))
    assert found.now == AT
    assert found.seen.positions == (Position("memory.records", 3, 41),)
    assert found.seen.stale


async def test_everything_that_a_context_takes_is_asked(told: Callable[[q.Reply], Told]) -> None:
    asked = told(q.Reply(answer=CONTEXT))
    wanted: dict[str, Any] = {
        "budget_tokens": 900,
        "model": "gpt-4o",
        "window": 0,
        "recall": RecallPart(preset="dual_source", limit=9, share=0.5, filter=RecallFilter(kinds=("fact",))),
        "current_topic": "猫",
        "summaries": False,
        "as_messages": True,
        "wait_for_summary": True,
        "keep_rate": 0.5,
        "now": AT,
    }
    async with MemoryClient("nobody:1") as memory:
        await memory.context(SCOPE, **wanted)
        await memory.context(SCOPE, recall=None)
    assert asked[0].data == q.ContextQuery(**wanted)
    assert asked[1].data == q.ContextQuery(recall=RecallPart(limit=0))


@pytest.mark.parametrize(
    "wrong",
    [{"budget_tokens": 0}, {"window": -1}, {"keep_rate": 1.1}, {"model": ""}, {"now": datetime(2026, 3, 1)}],  # noqa: DTZ001
    ids=str,
)
async def test_what_cannot_be_is_refused_before_it_is_sent(
    told: Callable[[q.Reply], Told], wrong: dict[str, Any]
) -> None:
    asked = told(q.Reply(answer=CONTEXT))
    async with MemoryClient("nobody:1") as memory:
        with pytest.raises(RequestRefused):
            await memory.context(SCOPE, **wrong)
    assert not asked


async def test_summaries_are_listed(told: Callable[[q.Reply], Told]) -> None:
    answer = q.SummariesAnswer.model_validate({"kind": "summaries", "summaries": [SUMMARY], "truncated": True})
    asked = told(q.Reply(answer=answer))
    async with MemoryClient("nobody:1") as memory:
        found = await memory.list_summaries(SCOPE, level=2, active=False, limit=5)
        await memory.list_summaries(SCOPE)
    assert asked[0].data == q.SummariesQuery(level=2, active=False, limit=5)
    assert asked[1].data == q.SummariesQuery()
    assert ([s.summary.summary_id for s in found.summaries], found.truncated) == (["z1"], True)


async def test_a_session_is_summarised_on_request_once_for_each_request_id(told: Callable[[q.Reply], Told]) -> None:
    asked = told(q.Reply(answer=q.CommandAnswer(kind="command", event=END)))
    async with MemoryClient("nobody:1") as memory:
        assert await memory.summarise(SCOPE, request_id="again") == Position("memory.records", 3, 41)
    assert (asked[0].id, asked[0].sessionid, asked[0].data) == ("again", "s1", q.SummariseCommand())


async def test_a_history_may_show_what_summaries_cover(told: Callable[[q.Reply], Told]) -> None:
    asked = told(q.Reply(answer=q.HistoryAnswer(kind="history", records=())))
    async with MemoryClient("nobody:1") as memory:
        await memory.history(SCOPE)
        await memory.history(SCOPE, summaries=False)
    assert [getattr(request.data, "summaries", None) for request in asked] == [True, False]


@pytest.mark.parametrize(
    "message",
    ["猫?👋", {"role": "user", "content": "猫?👋"}, MemoryRecord(record_id="r7", role="user", content="猫?👋")],
    ids=lambda message: type(message).__name__,
)
async def test_before_a_turn_the_message_is_remembered_and_the_context_has_seen_it(
    told: Callable[[q.Reply], Told], published: list[AgentEvent], message: Any
) -> None:
    asked = told(q.Reply(answer=CONTEXT, positions=(END,)))
    async with MemoryClient("nobody:1") as memory:
        found = await memory.before_turn(SCOPE, message, budget_tokens=800, window=3, recall=None)
    (event,) = published
    assert said(published) == [{"role": "user", "content": "猫?👋"}]
    assert (event.sessionid, event.userid) == ("s1", "ada")
    assert not isinstance(message, MemoryRecord) or event.id == "r7"
    assert found.messages == MESSAGES
    own = q.Reached(topic="memory.records", partition=3, offset=40)
    assert asked[0].data == q.ContextQuery(
        budget_tokens=800, window=3, recall=RecallPart(limit=0), min_positions=(own,)
    )


async def test_a_context_that_lacks_the_message_is_not_answered_from(
    told: Callable[[q.Reply], Told], published: list[AgentEvent]
) -> None:
    told(q.Reply(answer=CONTEXT, stale=True))
    async with MemoryClient("nobody:1") as memory:
        with pytest.raises(StoreUnavailable, match=r"is in the log .memory.records/3@40"):
            await memory.before_turn(SCOPE, "hello")
    assert len(published) == 1


async def test_after_a_turn_all_of_it_is_remembered_as_it_was(published: list[AgentEvent]) -> None:
    turn: list[dict[str, Any]] = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": "茶"}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "4711"},
        {"role": "assistant", "content": "It is 4711."},
    ]
    async with MemoryClient("nobody:1") as memory:
        assert await memory.after_turn(SCOPE, turn) == Position("memory.records", 3, 42)
        await memory.after_turn(SCOPE, "Bye 👋")
        await memory.after_turn(SCOPE, MemoryRecord(role="assistant", content="again", role_name="Ada"))
        await memory.after_turn(SCOPE, turn[2])
    assert said(published[:3]) == turn
    assert [to_openai(event.data)["content"] for event in published[3:]] == ["Bye 👋", "again", "It is 4711."]
    assert {event.sessionid for event in published} == {"s1"}


async def test_what_memory_tools_gave_is_no_new_memory(published: list[AgentEvent]) -> None:
    def calling(*calls: tuple[str, str]) -> dict[str, Any]:
        made = [{"id": i, "type": "function", "function": {"name": n, "arguments": "{}"}} for i, n in calls]
        return {"role": "assistant", "content": None, "tool_calls": made}

    turn: list[dict[str, Any]] = [
        calling(("c1", "recall_memories"), ("c2", "get_weather")),
        {"role": "tool", "tool_call_id": "c1", "content": '{"memories": []}'},
        {"role": "tool", "tool_call_id": "c2", "content": "晴"},
        {"role": "assistant", "content": "Sunny."},
    ]
    async with MemoryClient("nobody:1") as memory:
        await memory.after_turn(SCOPE, turn)
        assert frozenset(MemoryTools(memory, SCOPE)._tools) == MEMORY_TOOLS
    assert said(published) == turn
    events: list[Any] = list(published)
    assert [event.data.origin for event in events] == ["dialogue", "recall", "tool", "dialogue"]


@pytest.mark.parametrize("nothing", [[], [{"content": "who says so?"}]], ids=str)
async def test_a_turn_in_which_nothing_was_said_is_refused(published: list[AgentEvent], nothing: Any) -> None:
    async with MemoryClient("nobody:1") as memory:
        with pytest.raises(InvalidEvent):
            await memory.after_turn(SCOPE, nothing)
    assert not published
