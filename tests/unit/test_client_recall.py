"""The client's recall without a broker: what it asks, and what it makes of the answers."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engramlog.engine.client import MemoryClient, Position, RecallFilter, Scope, SyncMemoryClient
from engramlog.engine.client.asking import Asking
from engramlog.engine.client.recalling import Expand
from engramlog.schemas import queries as q
from engramlog.schemas.codec import queries_codec
from engramlog.schemas.errors import RequestRefused, StoreUnavailable

SCOPE = Scope("acme", '帮手/:|"()-', "s1", "ada")
WRITTEN = Position("memory.records", 3, 41)
EARLIER = Position("memory.records", 3, 7)
AT = datetime(2026, 3, 1, tzinfo=UTC)
STORED = q.StoredRecord.model_validate(
    {
        "record": {"record_id": "r1", "role": "user", "content": "我对猫过敏 🐈", "timestamp": AT},
        "session": "s1",
        "offset": 41,
        "recorded": AT,
    }
)
HIT = q.RecallHit(
    stored=STORED,
    score=0.91,
    parts=(q.ScorePart(name="semantic", value=0.8, weight=1.0), q.ScorePart(name="recency", value=1.1, weight=0.1)),
    relevance=0.8,
    conflicts=("r2",),
)
TOPIC = q.TopicCount.model_validate({"topic": "猫", "records": 2, "sessions": 1, "first": AT, "last": AT})
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


def replied(**more: Any) -> q.Reply:
    answer = q.RecallAnswer(kind="recall", **{"hits": (HIT,), **more})
    return q.Reply(answer=answer, positions=(q.Reached(topic="memory.records", partition=3, offset=41),))


async def test_recall_asks_for_nothing_that_was_not_said_and_tells_everything_of_the_answer(
    told: Callable[[q.Reply], Told],
) -> None:
    asked = told(
        replied(
            asked="大连天气怎么样",
            degraded=("no query embedding: slow",),
            now=datetime(2026, 3, 3, tzinfo=UTC),
            unread=2,
        )
    )
    async with MemoryClient("nobody:1") as memory:
        found = await memory.recall(SCOPE, "那里天气怎么样", timeout_s=3.0)
    (request,) = asked
    assert request.data == q.RecallQuery(text="那里天气怎么样", timeout_ms=3_000)
    assert request.scope() == SCOPE
    assert found.hits == (HIT,)
    assert (found.asked, found.degraded, found.unread) == ("大连天气怎么样", ("no query embedding: slow",), 2)
    assert found.now == datetime(2026, 3, 3, tzinfo=UTC)
    assert found.seen.positions == (WRITTEN,)
    assert not found.seen.stale
    assert sum(part.contribution for part in found.hits[0].parts) == pytest.approx(HIT.score)


async def test_everything_that_recall_takes_is_asked(told: Callable[[q.Reply], Told]) -> None:
    asked = told(replied())
    wanted: dict[str, Any] = {
        "preset": "research",
        "limit": 7,
        "candidates": 99,
        "semantic": 1.5,
        "importance": 0.4,
        "recency": 0.0,
        "half_life_days": 2.5,
        "diversity": 0.3,
        "expand": "off",
        "now": datetime(2026, 3, 1, tzinfo=UTC),
        "filter": RecallFilter(sessions=("s1",), metadata={"project_id": ("p1", 2, True)}),
    }
    async with MemoryClient("nobody:1") as memory:
        await memory.recall(SCOPE, "x", **wanted)
    assert asked[0].data == q.RecallQuery(text="x", **wanted)
    assert type(asked[0].data.filter.metadata["project_id"][2]) is bool


@pytest.mark.parametrize("call", ["recall", "similar", "topics"])
async def test_a_client_waits_for_its_own_writes_and_for_what_it_is_told(
    told: Callable[[q.Reply], Told], call: str
) -> None:
    asked = told(TOPICS if call == "topics" else replied())
    async with MemoryClient("nobody:1") as memory:
        memory._ask.wrote((SCOPE.tenant, SCOPE.agent), WRITTEN)
        arguments = (SCOPE,) if call == "topics" else (SCOPE, "x")
        await getattr(memory, call)(*arguments, min_positions=[EARLIER])
        await getattr(memory, call)(Scope("acme", "another"), *arguments[1:])
    own, other = (request.data.min_positions for request in asked)
    assert [(p.topic, p.partition, p.offset) for p in own] == [
        ("memory.records", 3, 7),
        ("memory.records", 3, 41),
    ]
    assert other == ()


async def test_similar_asks_for_the_nearest(told: Callable[[q.Reply], Told]) -> None:
    asked = told(replied())
    chosen = RecallFilter(kinds=("fact",), invalidated=True)
    async with MemoryClient("nobody:1") as memory:
        await memory.similar(SCOPE, "宠物")
        found = await memory.similar(SCOPE, "宠物", limit=9, min_similarity=-0.5, filter=chosen)
    assert asked[0].data == q.SimilarQuery(text="宠物", limit=3)
    assert asked[1].data == q.SimilarQuery(text="宠物", limit=9, min_similarity=-0.5, filter=chosen)
    assert found.hits == (HIT,)


TOPICS = q.Reply(answer=q.TopicsAnswer(kind="topics", topics=(TOPIC,), truncated=True), stale=True)


async def test_topics_come_with_counts_and_times(told: Callable[[q.Reply], Told]) -> None:
    asked = told(TOPICS)
    async with MemoryClient("nobody:1") as memory:
        found = await memory.topics(Scope("acme", "helper", users="all"), limit=5)
    assert asked[0].data == q.TopicsQuery(limit=5, users="all")
    assert (found.topics, found.truncated, found.seen.stale) == ((TOPIC,), True, True)


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        ("recall", {"text": ""}),
        ("recall", {"text": "x" * 20_001}),
        ("recall", {"text": "x", "preset": "nobody"}),
        ("recall", {"text": "x", "limit": 0}),
        ("recall", {"text": "x", "limit": 201}),
        ("recall", {"text": "x", "candidates": 2_001}),
        ("recall", {"text": "x", "semantic": -0.1}),
        ("recall", {"text": "x", "recency": float("nan")}),
        ("recall", {"text": "x", "half_life_days": 0}),
        ("recall", {"text": "x", "diversity": 1.1}),
        ("recall", {"text": "x", "expand": "guess"}),
        ("recall", {"text": "x", "now": datetime(2026, 3, 1)}),  # noqa: DTZ001 - naive on purpose
        ("similar", {"text": "x", "min_similarity": 1.5}),
        ("similar", {"text": "\ud800"}),
        ("topics", {"limit": 1_001}),
    ],
    ids=str,
)
async def test_what_cannot_be_asked_is_refused_before_it_is_sent(
    told: Callable[[q.Reply], Told], call: str, wrong: dict[str, Any]
) -> None:
    asked = told(replied())
    async with MemoryClient("nobody:1") as memory:
        with pytest.raises(RequestRefused) as refused:
            await getattr(memory, call)(SCOPE, **wrong)
    assert refused.value.code == "bad_request"
    assert not asked


@pytest.mark.parametrize(
    ("code", "error"),
    [("unavailable", StoreUnavailable), ("bad_request", RequestRefused), ("internal", RequestRefused)],
)
async def test_the_engines_refusals_are_errors(
    told: Callable[[q.Reply], Told], code: str, error: type[Exception]
) -> None:
    told(q.Reply.model_validate({"error": {"code": code, "message": "customer_service needs a user"}}))
    async with MemoryClient("nobody:1") as memory:
        with pytest.raises(error, match="needs a user"):
            await memory.recall(SCOPE, "x", preset="customer_service")


def test_the_facade_recalls_too(told: Callable[[q.Reply], Told]) -> None:
    asked = told(replied())
    with SyncMemoryClient("nobody:1") as memory:
        assert memory.recall(SCOPE, "x", limit=4).hits == (HIT,)
        assert memory.similar(SCOPE, "x", limit=2).hits == (HIT,)
    assert [request.data.limit for request in asked] == [4, 2]


def test_expand_is_what_the_wire_takes() -> None:
    annotation: Any = q.RecallQuery.model_fields["expand"].annotation
    assert get_args(Expand) == get_args(annotation)


@given(text=st.text(min_size=1, max_size=50), agent=st.text('/:|"()-猫👋é', min_size=1, max_size=20))
def test_any_question_goes_over_the_wire_unchanged(text: str, agent: str) -> None:
    request = q.QueryAsked(source="t", tenantid="acme", agentid=agent, data=q.RecallQuery(text=text))
    again = queries_codec().decode(queries_codec().encode(request))
    assert again == request
    assert json.loads(queries_codec().encode(request))["data"]["text"] == text
