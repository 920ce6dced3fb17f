"""Recall over the in-memory vector engine: who is found, in which order, and why."""
# ruff: noqa: ARG002 - doubles take what they are given

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from engramlog.engine import texts
from engramlog.engine.embedding import embed
from engramlog.engine.history.standpoint import HERE, Standpoint
from engramlog.engine.history.view import View
from engramlog.engine.ports import CollectionSpec, Matrix
from engramlog.engine.retrieve import Retrieval
from engramlog.engine.terms import term_counts, terms
from engramlog.engine.vectors.changes import Left, Written
from engramlog.engine.vectors.selecting import Cleared
from engramlog.engine.vectors.server import ServerEngine
from engramlog.engine.vectors.vectors import Vectors
from engramlog.schemas.asking import AsOf
from engramlog.schemas.derived import Derived, RecallChanged, RecallChangedEvent, RecordDerived
from engramlog.schemas.errors import ModelRefused, ModelUnavailable, RequestRefused
from engramlog.schemas.recalls import RecallAnswer, RecallFilter, RecallQuery, SimilarQuery
from engramlog.schemas.records import MemoryRecord
from engramlog.schemas.scope import Scope
from engramlog.schemas.stored import Invalidation, StoredRecord

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SCOPE = Scope("acme", "客服/1")
DIMENSION = 64
MUCH = 1_000_000
PLACE = ("memory.records", 0)


class WordEmbedder:
    """A text means its terms: each points somewhere of its own, all share a direction."""

    model = "words"
    dimension = DIMENSION
    chunk_chars = 1_000

    def __init__(self) -> None:
        self.fails: Exception | None = None
        self.stalls = False
        self.questions: list[str] = []

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def passages(self, given: Sequence[str]) -> Matrix:
        return np.vstack([self._vector(text) for text in given]).astype(np.float32)

    async def query(self, text: str) -> Matrix:
        self.questions.append(text)
        if self.stalls:
            await asyncio.Event().wait()
        if self.fails is not None:
            raise self.fails
        return self._vector(text)

    def _vector(self, text: str) -> Matrix:
        row = np.full(DIMENSION, 0.5)
        for term in terms(text):
            row += np.random.default_rng(sum(term.encode()) * 7919 % 2**32).normal(size=DIMENSION)
        return (row / np.linalg.norm(row)).astype(np.float32)


class Memory:
    """A history in a dictionary."""

    def __init__(self) -> None:
        self.stored: dict[str, StoredRecord] = {}
        self.clears: list[Cleared] = []
        self.newest: list[StoredRecord] = []
        self.asked: list[list[str]] = []
        self.then: datetime | None = None

    async def standpoint(self, scope: Scope, as_of: AsOf | None) -> Standpoint:
        return HERE if as_of is None else Standpoint(View.of(as_of, PLACE), self.then or as_of.recorded)

    async def cleared(self, scope: Scope, *, view: View) -> Sequence[Cleared]:
        return self.clears

    async def recallable(self, scope: Scope, record_ids: Sequence[str], *, view: View) -> Mapping[str, StoredRecord]:
        self.asked.append(list(record_ids))
        return {key: self.stored[key] for key in record_ids if key in self.stored}

    async def recent(self, scope: Scope, count: int, *, as_of: AsOf | None) -> Sequence[StoredRecord]:
        return self.newest[-count:]


class Place:
    """A memory, and what recalls from it."""

    def __init__(self, vectors: Vectors, **settings: Any) -> None:
        self.embedder, self.memory, self.vectors = WordEmbedder(), Memory(), vectors
        self.retrieval = Retrieval(vectors, self.embedder, self.memory, clock=lambda: NOW, **settings)
        self._next = 0

    async def remember(self, content: str, *, session: str = "s1", user: str | None = None, **fields: Any) -> str:
        number, self._next = self._next, self._next + 1
        days = fields.pop("days_ago", 1.0)
        importance = fields.pop("importance", 0.5)
        record = MemoryRecord(
            record_id=fields.pop("record_id", f"r/{number}"),
            role=fields.pop("role", "user"),
            content=content,
            timestamp=NOW - timedelta(days=days),
            **fields,
        )
        (embedded,) = await embed(self.embedder, [(record, "")])
        counts, length = term_counts(texts.content(record))
        derived = Derived(
            record_id=record.record_id,
            offset=number,
            turn=number,
            role=record.role,
            role_name=record.role_name,
            kind=record.kind,
            confidence=record.confidence,
            timestamp=record.timestamp,
            expires_at=record.expires_at,
            metadata=record.metadata,
            importance=importance,
            embedding=embedded.vectors,
            terms=counts,
            length=length,
            deriver="test",
        )
        event = RecordDerived(
            source="test",
            tenantid=SCOPE.tenant,
            agentid=SCOPE.agent,
            sessionid=session,
            userid=user,
            time=NOW,
            data=derived,
        )
        await self.vectors.apply([Written(event, number, 0)])
        self.memory.stored[record.record_id] = StoredRecord(
            record=record, session=session, user=user, offset=number, recorded=NOW
        )
        return record.record_id

    async def recall(self, text: str, scope: Scope = SCOPE, **query: Any) -> RecallAnswer:
        max_bytes = query.pop("max_bytes", MUCH)
        return await self.retrieval.recall(scope, RecallQuery(text=text, **query), max_bytes=max_bytes)


@asynccontextmanager
async def a_place(**settings: Any) -> AsyncIterator[Place]:
    engine = ServerEngine(":memory:")
    await engine.start(CollectionSpec("test", "words", DIMENSION))
    try:
        yield Place(Vectors(engine, metadata_keys=("project_id",)), metadata_keys=("project_id",), **settings)
    finally:
        await engine.stop()


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with a_place() as made:
        yield made


def contents(answer: RecallAnswer) -> list[str]:
    return [hit.stored.record.content for hit in answer.hits]


async def test_the_two_lines_about_the_weather_come_first(place: Place) -> None:
    for line in ("今天天气真好！", "你喜欢什么运动？", "今天天气不错，我们去散步吧。"):
        await place.remember(line)
    answer = await place.recall("天气", limit=2)
    assert set(contents(answer)) == {"今天天气真好！", "今天天气不错，我们去散步吧。"}
    assert answer.hits[0].words == ("天", "天气", "气")


async def test_every_score_is_the_sum_of_its_parts(place: Place) -> None:
    for i in range(12):
        await place.remember(f"the cat number {i} sleeps", days_ago=i, importance=i / 12)
    for preset in ("assistant", "research", "agent_recall"):
        answer = await place.recall("Where do my cats sleep?", preset=preset)
        assert answer.hits
        for hit in answer.hits:
            assert hit.score == pytest.approx(sum(part.contribution for part in hit.parts))
            assert [part.name for part in hit.parts] == ["semantic", "importance", "recency"]
            assert hit.parts[0].value == pytest.approx(hit.relevance)
        assert [hit.score for hit in answer.hits] == sorted((hit.score for hit in answer.hits), reverse=True)


async def test_the_same_request_gives_the_same_answer(place: Place) -> None:
    for i in range(30):
        await place.remember(f"meeting {i % 3} with Bo", record_id=f"x|{29 - i}:(👋)")
    first, second = [await place.recall("meeting with Bo", now=NOW) for _ in range(2)]
    assert first == second
    assert first.now == NOW


async def test_an_empty_memory_and_a_question_of_emoji_or_of_nothing_known(place: Place) -> None:
    assert (await place.recall("anything")).hits == ()
    wave = await place.remember("👋")
    await place.remember("no emoji here")
    assert (await place.recall("👋")).hits[0].stored.record.record_id == wave
    assert len((await place.recall("🦑")).hits) == 2
    assert len((await place.recall("?!")).hits) == 2


async def test_without_a_query_vector_the_words_are_searched_and_the_answer_says_so(place: Place) -> None:
    await place.remember("my cat is called Biscuit")
    await place.remember("something else")
    for error in (ModelUnavailable("overloaded"), ModelRefused("too odd")):
        place.embedder.fails = error
        answer = await place.recall("What is my cat called?")
        assert contents(answer) == ["my cat is called Biscuit"]
        assert answer.degraded == (f"no query embedding: {error}",)
        assert answer.hits[0].similarity is None
        assert (await place.recall("?!")).hits == ()
        assert contents(await place.recall("my cat", preset="agent_recall")) == ["my cat is called Biscuit"]


async def test_a_stalling_model_is_waited_for_no_longer_than_set() -> None:
    async with a_place(query_timeout_s=0.01) as place:
        await place.remember("my cat is called Biscuit")
        place.embedder.stalls = True
        answer = await place.recall("the cat's name")
        assert contents(answer) == ["my cat is called Biscuit"]
        assert answer.degraded == ("no query embedding: it took longer than 0.01 s",)
        with pytest.raises(RequestRefused, match="longer than"):
            await place.retrieval.similar(SCOPE, SimilarQuery(text="cat"), max_bytes=MUCH)


async def test_of_a_long_question_the_model_reads_the_ends_and_the_words_are_looked_for(place: Place) -> None:
    """A long text would hold up the questions of others for a minute."""
    await place.remember("my cat is called Biscuit")
    question = f"{'the log says nothing. ' * 400}Biscuit {'and so on and on. ' * 400}What is my cat called?"
    answer = await place.recall(question)
    (asked,) = place.embedder.questions
    assert asked.startswith("the log says nothing. ")
    assert asked.endswith("What is my cat called?")
    assert len(asked) <= 603
    assert "biscuit" in answer.hits[0].words


async def test_models_are_waited_for_until_the_answer_is_due(place: Place) -> None:
    place.embedder.stalls = True
    await place.remember("my cat is called Biscuit")
    soon = asyncio.get_running_loop().time() + 0.05
    answer = await place.retrieval.recall(SCOPE, RecallQuery(text="the cat", now=NOW), max_bytes=MUCH, until=soon)
    assert contents(answer) == ["my cat is called Biscuit"]
    assert answer.degraded[0].startswith("no query embedding: it took longer than 0.0")
    with pytest.raises(RequestRefused, match="longer than 0 s"):
        await place.retrieval.similar(SCOPE, SimilarQuery(text="cat"), max_bytes=MUCH, until=soon)


async def test_a_model_that_expands_leaves_half_of_the_time_for_the_vector() -> None:
    class Stalling:
        async def expanded(self, text: str, recent: Sequence[StoredRecord]) -> str:
            await asyncio.Event().wait()
            return text

    async with a_place(expand=Stalling(), rules=lambda text, _recent: f"{text} Biscuit") as place:
        cat = await place.remember("my cat is called Biscuit")
        place.memory.newest = [place.memory.stored[cat]]
        query = RecallQuery(text="what does it eat?", expand="llm", now=NOW)
        soon = asyncio.get_running_loop().time() + 2.0
        in_session = Scope(SCOPE.tenant, SCOPE.agent, "s1")
        answer = await place.retrieval.recall(in_session, query, max_bytes=MUCH, until=soon)
        assert (answer.asked, answer.degraded) == (
            "what does it eat? Biscuit",
            ("expanded by rules: the model took too long",),
        )


async def test_the_asking_message_is_left_out(place: Place) -> None:
    await place.remember("my cat is called Biscuit")
    question = await place.remember("What is my cat called?")
    place.memory.newest = [place.memory.stored[question]]
    in_session = Scope(SCOPE.tenant, SCOPE.agent, "s1")
    assert contents(await place.recall("What is my cat called?", in_session)) == ["my cat is called Biscuit"]
    assert len((await place.recall("What is my cat called?")).hits) == 2
    left_out = RecallFilter(leave_out=(question,))
    assert contents(await place.recall("What is my cat called?", filter=left_out)) == ["my cat is called Biscuit"]


async def test_what_left_recall_is_dropped_and_others_move_up(place: Place) -> None:
    ids = [await place.remember(f"the cat {i}") for i in range(60)]
    for gone in ids[:50]:
        del place.memory.stored[gone]
    answer = await place.recall("the cat", limit=10, candidates=10)
    assert {hit.stored.record.record_id for hit in answer.hits} == set(ids[50:])


async def test_rounds_are_bounded_when_nothing_may_be_recalled(place: Place) -> None:
    for i in range(40):
        await place.remember(f"the cat {i}")
    place.memory.stored.clear()
    assert (await place.recall("the cat", limit=2, candidates=2)).hits == ()
    assert len(place.memory.asked) <= 6


async def test_the_record_itself_decides_what_has_expired_is_no_longer_true_or_too_unsure(place: Place) -> None:
    ids = [await place.remember(f"the cat {name}") for name in ("old", "wrong", "unsure", "fine")]
    stored = place.memory.stored
    later: list[dict[str, Any]] = [{"expires_at": NOW}, {}, {"confidence": 0.2}, {}]
    for key, changes in zip(ids, later, strict=True):
        record = stored[key].record.model_copy(update=changes)
        stored[key] = stored[key].model_copy(update={"record": record})
    stored[ids[1]] = stored[ids[1]].model_copy(update={"invalidated": Invalidation(offset=9, replaced_by="new")})
    found = await place.recall("the cat", filter=RecallFilter(min_confidence=0.5))
    assert contents(found) == ["the cat fine"]
    shown = await place.recall("the cat", filter=RecallFilter(expired=True, invalidated=True))
    assert len(shown.hits) == 4
    assert {hit.superseded_by for hit in shown.hits} == {None, "new"}


async def test_what_was_cleared_is_not_found_though_the_vectors_lag(place: Place) -> None:
    await place.remember("the cat before")
    await place.remember("the cat after")
    place.memory.clears = [Cleared(session=None, user=None, before=1)]
    assert contents(await place.recall("the cat")) == ["the cat after"]


async def test_users_see_their_own_and_the_shared(place: Place) -> None:
    for user in ("u:1", "u:2", None):
        await place.remember(f"the cat of {user}", user=user)
    seen = await place.recall("the cat", Scope(SCOPE.tenant, SCOPE.agent, user="u:1"))
    assert set(contents(seen)) == {"the cat of u:1", "the cat of None"}
    assert (await place.recall("the cat", Scope("acme-corp", SCOPE.agent))).hits == ()


async def test_an_unknown_metadata_key_is_refused(place: Place) -> None:
    with pytest.raises(RequestRefused, match="colour"):
        await place.recall("x", filter=RecallFilter(metadata={"colour": "red"}))


async def test_customer_service_always_considers_the_last_ten_minutes() -> None:
    async with a_place() as place:
        for i in range(30):
            await place.remember(f"order number {i} was late", user="u1", days_ago=20)
        recent = await place.remember("completely different matter", user="u1", days_ago=1 / 24 / 60)
        scope = Scope(SCOPE.tenant, SCOPE.agent, user="u1")
        query = {"preset": "customer_service", "candidates": 3, "limit": 3}
        answer = await place.recall("Where is my order number 7?", scope, **query)
        assert recent in {hit.stored.record.record_id for hit in answer.hits}
        query["preset"] = "assistant"
        answer = await place.recall("Where is my order number 7?", scope, **query)
        assert recent not in {hit.stored.record.record_id for hit in answer.hits}
        with pytest.raises(RequestRefused, match="needs a user"):
            await place.recall("Where is my order?", preset="customer_service")


async def test_the_seeds_preset_weighs_cosine_importance_and_age(place: Place) -> None:
    await place.remember("the cat sleeps", importance=0.9, days_ago=3.5)
    (hit,) = (await place.recall("the cat sleeps", preset="agent_recall")).hits
    assert hit.similarity is not None
    assert hit.score == pytest.approx(hit.similarity + 0.9 - 0.5 * 84 / 168, abs=1e-6)


async def test_diversity_takes_another_subject_instead_of_a_repetition(place: Place) -> None:
    for _ in range(3):
        await place.remember("the cat sleeps on the sofa all day")
    await place.remember("the cat eats tuna and salmon")
    plain = await place.recall("the cat sleeps", limit=2)
    varied = await place.recall("the cat sleeps", limit=2, diversity=0.7)
    assert len(set(contents(plain))) == 1
    assert len(set(contents(varied))) == 2


async def test_contradicting_memories_are_flagged_and_stand_together(place: Place) -> None:
    allergic = await place.remember("I am allergic to cats.")
    for i in range(4):
        await place.remember(f"People talk about cats and allergic reactions, part {i}.", role="assistant")
    keeps = await place.remember("I keep a cat at home and she sleeps on my pillow.")
    answer = await place.recall("Am I allergic to cats?", limit=3)
    by_id = {hit.stored.record.record_id: hit for hit in answer.hits}
    assert by_id[allergic].conflicts == (keeps,)
    assert by_id[keeps].conflicts == (allergic,)
    order = list(by_id)
    assert abs(order.index(allergic) - order.index(keeps)) == 1
    assert len(order) == 3


async def test_hits_that_do_not_fit_are_counted(place: Place) -> None:
    for i in range(5):
        await place.remember(f"the cat {i} " + "x" * 500)
    answer = await place.recall("the cat", max_bytes=3_000)
    assert 0 < len(answer.hits) < 5
    assert len(answer.hits) + answer.unread == 5
    assert (await place.recall("the cat", max_bytes=10)).unread == 5


async def test_the_question_is_expanded_from_the_sessions_talk() -> None:
    def rules(text: str, recent: Sequence[StoredRecord]) -> str:
        return text.replace("那里", recent[-1].record.content) if recent else text

    async with a_place(rules=rules) as place:
        talk = await place.remember("大连", session="s2")
        weather = await place.remember("大连明天有暴雨")
        place.memory.newest = [place.memory.stored[talk]]
        scope = Scope(SCOPE.tenant, SCOPE.agent, "s2")
        answer = await place.recall("那里会下雨吗", scope, filter=RecallFilter(leave_out=(talk,)))
        assert answer.asked == "大连会下雨吗"
        assert answer.hits[0].stored.record.record_id == weather
        assert (await place.recall("那里会下雨吗", scope, expand="off")).asked is None
        assert (await place.recall("那里会下雨吗")).asked is None


class FailingModel:
    async def expanded(self, text: str, recent: Sequence[StoredRecord]) -> str:
        raise ModelUnavailable("busy")


async def test_when_the_model_cannot_expand_the_rules_do_and_the_answer_says_so() -> None:
    async with a_place(expand=FailingModel(), rules=lambda text, _recent: f"{text} really") as place:
        await place.remember("the cat")
        place.memory.newest = list(place.memory.stored.values())
        answer = await place.recall("cats", Scope(SCOPE.tenant, SCOPE.agent, "s1"), expand="llm")
        assert answer.asked == "cats really"
        assert answer.degraded == ("expanded by rules: busy",)


async def test_similar_scores_by_cosine_alone(place: Place) -> None:
    for text in ("the cat sleeps", "the dog barks", "stocks fell on Monday", "the cat sleeps soundly"):
        await place.remember(text, importance=1.0 if "stocks" in text else 0.1)
    query = SimilarQuery(text="the cat sleeps")
    answer = await place.retrieval.similar(SCOPE, query, max_bytes=MUCH)
    assert len(answer.hits) == 3
    assert answer.hits[0].stored.record.content == "the cat sleeps"
    for hit in answer.hits:
        assert hit.score == hit.similarity
        assert [part.name for part in hit.parts] == ["semantic"]
    near = await place.retrieval.similar(
        SCOPE, SimilarQuery(text="the cat sleeps", min_similarity=0.999), max_bytes=MUCH
    )
    assert contents(near) == ["the cat sleeps"]


async def test_of_the_past_only_what_lay_before_is_found_and_ages_count_from_then() -> None:
    async with a_place() as place:
        early = await place.remember("I love cilantro", days_ago=30)
        late = await place.remember("I hate cilantro", days_ago=1)
        place.memory.stored[early] = place.memory.stored[early].model_copy(update={"invalidated": None})
        left = RecallChanged(cause="invalidated", before=9, ids=(early,))
        event = RecallChangedEvent(source="test", tenantid=SCOPE.tenant, agentid=SCOPE.agent, time=NOW, data=left)
        await place.vectors.apply([Left(event, 0)])
        place.memory.then = NOW - timedelta(days=30)
        past = await place.recall("cilantro", as_of=AsOf(offset=0))
        assert ([hit.stored.record.record_id for hit in past.hits], past.now) == ([early], place.memory.then)
        recency = next(part.value for part in past.hits[0].parts if part.name == "recency")
        assert recency == pytest.approx(1.0)
        told = await place.recall("cilantro", as_of=AsOf(offset=0), now=NOW)
        assert told.now == NOW
        present = await place.recall("cilantro")
        assert [hit.stored.record.record_id for hit in present.hits] == [late]
        near = await place.retrieval.similar(SCOPE, SimilarQuery(text="cilantro", as_of=AsOf(offset=0)), max_bytes=MUCH)
        assert [hit.stored.record.record_id for hit in near.hits] == [early]
        happened = await place.recall("cilantro", as_of=AsOf(happened=NOW - timedelta(days=2)))
        assert happened.hits == ()  # of what is true now


async def test_what_had_left_recall_before_does_not_hide_what_had_not() -> None:
    async with a_place() as place:
        for n in range(120):
            gone = await place.remember(f"cats cats {n}")
            del place.memory.stored[gone]
        kept = await place.remember("one of the cats is grey")
        found = await place.recall("cats", as_of=AsOf(offset=500), candidates=4, limit=1)
        assert [hit.stored.record.record_id for hit in found.hits] == [kept]
