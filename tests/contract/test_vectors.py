"""The vectors, on every engine: what is written, what leaves, and what a search finds."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from qdrant_client import models

from engramlog.engine.vectors.candidates import candidate_of
from engramlog.engine.vectors.points import point_id
from engramlog.engine.vectors.selecting import Cleared, selection
from engramlog.engine.vectors.vectors import Candidate, Dropped, Unhinted, Vectors
from engramlog.schemas.errors import RequestRefused, Unprocessable
from engramlog.schemas.recalls import RecallFilter
from engramlog.schemas.scope import Scope
from tests.vector_engines import ENGINES, opened_vectors
from tests.vector_model import (
    KEYS,
    MODEL,
    START,
    Model,
    assorted,
    best,
    bm25,
    cosine,
    derived,
    direction,
    embedded,
    left,
    near,
    written,
)

EVERYTHING = RecallFilter(
    roles=("system", "developer", "user", "assistant", "tool", "function"), expired=True, invalidated=True
)
BOT = Scope("acme", "bot", users="all")
WORDS = {"cat": 1.5, "天气": 2.25, "👋": 0.5, "nowhere": 9.0}
QUESTION = direction(999)[0]


@pytest.fixture(params=ENGINES)
async def vectors(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Vectors]:
    async with opened_vectors(request.param, tmp_path) as made:
        yield made


@pytest.fixture
async def filled(vectors: Vectors) -> tuple[Vectors, Model]:
    """Records of every kind; some left recall, some are no longer true."""
    changes = [
        *written(*assorted(160)),
        left("removed", before=500, ids=("r4", "r8", "r20", "👋6")),
        left("invalidated", before=500, ids=("r12", "r16", "r24", "r28")),
        left("cleared", before=40, session="s2", users="all"),
    ]
    model = Model()
    model.apply(changes)
    await vectors.apply(changes)
    return vectors, model


async def found(
    vectors: Vectors, scope: Scope = BOT, wanted: RecallFilter = EVERYTHING, **kwargs: Any
) -> dict[str, Candidate]:
    """Whatever a request sees."""
    where = selection(scope, wanted, now=kwargs.pop("now", START), metadata_keys=KEYS, **kwargs)
    (points,) = await vectors._engine.query([models.QueryRequest(filter=where, limit=500, with_payload=True)])
    candidates = [candidate_of(point.payload or {}, dense=None, words=0.0) for point in points]
    assert len({c.record_id for c in candidates}) == len(candidates) < 500
    return {c.record_id: c for c in candidates}


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "sessions": st.sampled_from((("s1",), ("s1", '会话/:|"()-'), ("s9",))),
    "layers": st.sampled_from((("core",), ("working", "long_term"))),
    "kinds": st.sampled_from((("fact",), ("turn", "preference"))),
    "tags": st.sampled_from((("a",), ("b", "标签"), ("none",))),
    "all_tags": st.sampled_from((("a", "b"), ("标签",), ("a", "标签"))),
    "topics": st.sampled_from((("weather",), ("天气", "weather"))),
    "roles": st.sampled_from((("user",), ("system", "assistant"))),
    "origins": st.sampled_from((("dialogue",), ("import", "extracted"))),
    "happened_from": st.sampled_from(tuple(START + timedelta(hours=h, microseconds=1) for h in range(3))),
    "happened_until": st.sampled_from(tuple(START + timedelta(hours=h, microseconds=2) for h in (3, 4, 5))),
    "min_importance": st.sampled_from((0.0, 0.3, 0.31, 1.0)),
    "min_confidence": st.sampled_from((0.2, 0.5, 0.9)),
    "metadata": st.sampled_from(
        (
            {"project_id": "p1"},
            {"project_id": 1},
            {"project_id": "1"},
            {"project_id": (2, "1")},
            {"pinned": True},
            {"pinned": 1},
            {"repo.branch": ("dev", "x")},
            {"repo.branch": "main", "odd-key": 'a"b/:|()-'},
            {"odd-key": "数据"},
        )
    ),
    "invalidated": st.booleans(),
    "expired": st.booleans(),
    "leave_out": st.sampled_from((("r32", "r36", "r40"), ("gone",), ('r|"1"10', "👋14", "r|44"))),
}
EPOCHS = st.lists(
    st.builds(Cleared, st.sampled_from((None, "", "s1")), st.sampled_from((None, "", "u1")), st.integers(0, 160)),
    max_size=3,
)


@pytest.mark.parametrize("name", FIELDS)
async def test_each_field_of_the_filter_selects_what_the_model_selects(
    filled: tuple[Vectors, Model], name: str
) -> None:
    vectors, model = filled
    kinds = set()
    for value in _values(FIELDS[name]):
        wanted = RecallFilter(**{name: value})
        expected = model.seen(BOT, wanted, now=START).keys()
        assert (await found(vectors, wanted=wanted)).keys() == expected, value
        kinds.add(frozenset(expected))
    assert len(kinds) > 1  # the values tell records apart


def _values(strategy: Any) -> list[Any]:
    return [False, True] if strategy is FIELDS["expired"] or strategy is FIELDS["invalidated"] else strategy.elements


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    scope=st.builds(
        Scope,
        st.sampled_from(("acme", "acme-corp")),
        st.sampled_from(("bot", "bot", "bot/2")),
        user=st.sampled_from((None, "u1", "用户|1", "u9")),
        users=st.sampled_from(("own", "all")),
    ),
    names=st.sets(st.sampled_from(sorted(FIELDS)), max_size=4),
    cleared=EPOCHS,
    data=st.data(),
)
async def test_filters_combined_select_what_the_model_selects(
    filled: tuple[Vectors, Model], scope: Scope, names: set[str], cleared: list[Cleared], data: st.DataObject
) -> None:
    vectors, model = filled
    wanted = RecallFilter(**{name: data.draw(FIELDS[name], name) for name in sorted(names)})
    now = START + timedelta(microseconds=data.draw(st.integers(-1, 2), "now"))
    expected = model.seen(scope, wanted, now=now, cleared=cleared)
    assert (await found(vectors, scope, wanted, now=now, cleared=cleared)).keys() == expected.keys()


async def test_a_search_gives_the_best_of_both_kinds_with_the_scores_of_cosine_and_bm25(
    filled: tuple[Vectors, Model],
) -> None:
    vectors, model = filled
    seen = model.seen(BOT, EVERYTHING, now=START)
    where = selection(BOT, EVERYTHING, now=START, metadata_keys=KEYS)
    candidates = await vectors.search(where, dense=QUESTION * 3, words=WORDS, limit=5)
    by_meaning = {k: s for k, e in seen.items() if (s := cosine(e, QUESTION)) is not None}
    by_words = {k: s for k, e in seen.items() if (s := bm25(e, WORDS)) > 0}
    assert len(by_meaning) > 10 < len(by_words)
    ids = {c.record_id for c in candidates}
    assert best(by_meaning, 5) <= ids
    fifth = sorted(by_words.values())[-5]
    assert {k for k, s in by_words.items() if s > fifth + 1e-4} <= ids  # equal scores may come in any order
    assert len(ids) <= 10
    for c in candidates:
        assert near(c.dense, by_meaning.get(c.record_id))
        assert near(c.words, by_words.get(c.record_id, 0.0))
        assert c.vector is None


async def test_a_search_by_words_alone_or_by_meaning_alone_leaves_the_other_score_out(
    filled: tuple[Vectors, Model],
) -> None:
    vectors, model = filled
    seen = model.seen(BOT, EVERYTHING, now=START)
    where = selection(BOT, EVERYTHING, now=START, metadata_keys=KEYS)
    by_words = await vectors.search(where, dense=None, words=WORDS, limit=500)
    assert {c.record_id for c in by_words} == {k for k, e in seen.items() if bm25(e, WORDS) > 0}
    assert {c.dense for c in by_words} == {None}
    by_meaning = await vectors.search(where, dense=QUESTION, words={}, limit=500)
    assert {c.record_id for c in by_meaning} == {k for k, e in seen.items() if e.data.embedding}
    assert {c.words for c in by_meaning} == {0.0}
    assert await vectors.search(where, dense=None, words=None, limit=5) == []
    assert await vectors.search(where, dense=None, words={"nowhere": 1.0}, limit=5) == []


async def test_a_candidate_tells_what_was_derived(vectors: Vectors) -> None:
    rows = direction(1, 3)
    event = derived(
        "记录/1",
        session="s1",
        user="u1",
        offset=7,
        turn=4,
        role="assistant",
        role_name="Alice",
        layer="core",
        kind="fact",
        origin="import",
        topic="天气",
        importance=0.25,
        confidence=0.75,
        timestamp=START + timedelta(microseconds=123_457),
        expires_at=START + timedelta(days=1),
        embedding=embedded(rows),
        terms={"天气": 2},
        length=2,
    )
    await vectors.apply(written(event, start=11))
    where = selection(BOT, RecallFilter(), now=START)
    (c,) = await vectors.search(where, dense=rows[1], words={"天气": 1.0}, limit=3, vectors=True)
    assert (c.record_id, c.session, c.user, c.position, c.sequence, c.turn) == ("记录/1", "s1", "u1", 7, 11, 4)
    assert (c.role, c.speaker, c.layer, c.kind, c.origin, c.topic) == (
        "assistant",
        "alice",
        "core",
        "fact",
        "import",
        "天气",
    )
    assert (c.importance, c.confidence) == (0.25, 0.75)
    assert (c.happened, c.expires) == (event.data.timestamp, event.data.expires_at)
    assert len(c.terms) == 1
    assert near(c.dense, 1.0)
    assert c.vector is not None
    assert np.array_equal(c.vector, rows)


async def test_times_at_the_ends_of_the_calendar_are_compared(vectors: Vectors) -> None:
    early, late = START.replace(year=1), START.replace(year=9999)
    await vectors.apply(
        written(derived("early", timestamp=early), derived("late", timestamp=late, expires_at=late), derived("now"))
    )
    assert (await found(vectors, wanted=RecallFilter(happened_until=START))).keys() == {"early"}
    later = RecallFilter(happened_from=START + timedelta(microseconds=1))
    assert (await found(vectors, wanted=later)).keys() == {"late"}
    assert (await found(vectors, wanted=RecallFilter(), now=late)).keys() == {"early", "now"}


async def test_a_key_that_is_not_configured_cannot_be_filtered_by() -> None:
    with pytest.raises(RequestRefused, match=r"'unindexed'.*odd-key, pinned, project_id, repo\.branch"):
        selection(BOT, RecallFilter(metadata={"unindexed": "x"}), now=START, metadata_keys=KEYS)


async def test_the_last_derivation_counts_in_whatever_order_they_come(vectors: Vectors) -> None:
    old, new, newest = (derived(topic=t, terms={t: 1}, length=1) for t in ("old", "new", "newest"))
    await vectors.apply(written(new, start=5))
    await vectors.apply([*written(old, start=4), *written(derived(topic="equal"), start=5)])
    assert (await found(vectors))["r1"].topic == "new"
    await vectors.apply([*written(newest, start=6), *written(new, start=5), *written(newest, start=6)])
    (only,) = (await found(vectors)).values()
    assert (only.topic, only.sequence) == ("newest", 6)
    assert (await vectors.frequencies("acme", ["old", "new", "newest"])).counts == {"old": 0, "new": 0, "newest": 1}


async def test_a_derivation_without_vector_replaces_one_with_a_vector(vectors: Vectors) -> None:
    await vectors.apply(written(derived(embedding=embedded(direction(1)), terms={"cat": 1}, length=1)))
    await vectors.apply(written(derived(), start=1))
    (only,) = (await found(vectors)).values()
    assert (only.dense, only.words, only.terms) == (None, 0.0, frozenset())


async def test_a_tombstone_drops_what_was_written_before_it(vectors: Vectors) -> None:
    await vectors.apply([*written(derived("a"), derived("b"), start=5), *written(derived("a", tenant="acme-corp"))])
    await vectors.apply([Dropped("acme", "bot", "a", sequence=9), Dropped("acme", "bot", "b", sequence=6)])
    assert (await found(vectors)).keys() == {"b"}
    assert await vectors.count("acme-corp") == 1


LEAVINGS = (
    left("cleared", before=90),
    left("cleared", before=90, user="u1"),
    left("cleared", before=90, session="s1", users="all"),
    left("removed", before=90, ids=("r4", 'r|"1"2', "r100")),
    left("invalidated", before=90, ids=("r8", "r16", "r20")),
    left("removed", before=90, ids=()),
    left("erased", before=90, scope="record", ids=("r4", 'r|"1"2', "r100")),
    left("erased", before=90, scope="record", ids=()),
    left("erased", before=90, scope="session", session="s1"),
    left("erased", before=90, scope="user", user="u1"),
    left("erased", before=90, scope="user", user="u1", agent=None),
    left("erased", before=90, scope="agent"),
    left("erased", before=90, scope="tenant", agent=None),
    left("erased", before=500, scope="tenant", agent=None, partition=1),
)


@pytest.mark.parametrize("leaving", LEAVINGS, ids=lambda change: f"{change.event.data.cause}-{change.event.data.scope}")
async def test_what_leaves_recall_is_what_the_model_takes_out(vectors: Vectors, leaving: Any) -> None:
    model, changes = Model(), [*written(*assorted(120)), leaving]
    model.apply(changes)
    await vectors.apply(changes)
    for scope in (BOT, Scope("acme", "bot/2", users="all"), Scope("acme-corp", "bot", users="all")):
        for wanted in (RecallFilter(), EVERYTHING):
            expected = model.seen(scope, wanted, now=START).keys()
            assert (await found(vectors, scope, wanted)).keys() == expected
    counted = [await vectors.count(tenant) for tenant in ("acme", "acme-corp")]
    assert counted == [sum(key[0] == tenant for key in model.points) for tenant in ("acme", "acme-corp")]


async def test_a_record_that_is_said_again_is_recalled_again(vectors: Vectors) -> None:
    await vectors.apply([*written(derived()), left("removed", before=5, ids=("r1",))])
    assert not await found(vectors)
    await vectors.apply(written(derived(offset=6), start=1))
    assert (await found(vectors)).keys() == {"r1"}


async def test_a_mark_that_is_taken_back_hides_nothing_any_more(vectors: Vectors) -> None:
    await vectors.apply(
        [
            *written(derived("a"), derived("b"), derived("c", agent="other")),
            left("removed", before=5, ids=("a",)),
            left("removed", before=5, agent="other", ids=("c",)),
            left("invalidated", before=5, ids=("b",)),
        ]
    )
    assert not await found(vectors, wanted=RecallFilter())
    await vectors.apply([Unhinted("acme", "bot")])
    assert (await found(vectors, wanted=RecallFilter())).keys() == {"a", "b"}
    assert not await found(vectors, Scope("acme", "other"), RecallFilter())
    await vectors.apply([left("removed", before=5, ids=("a",))])
    assert (await found(vectors, wanted=RecallFilter())).keys() == {"b"}


async def test_changes_of_different_kinds_are_applied_in_their_order(vectors: Vectors) -> None:
    await vectors.apply(
        [
            *written(derived("a"), derived("b", offset=1)),
            left("erased", before=9, scope="agent"),
            *written(derived("c", offset=2), start=5),
            left("removed", before=9, ids=("c",)),
            *written(derived("c", offset=10), derived("d", offset=3), start=7),
        ]
    )
    assert (await found(vectors)).keys() == {"c", "d"}


async def test_tenants_interleaved_a_thousand_times_never_meet(vectors: Vectors) -> None:
    events = assorted(2_000, tenants=("acme", "acme-corp"), seed=4)
    model = Model()
    for i in range(0, len(events), 250):
        changes = written(*events[i : i + 250], start=i)
        model.apply(changes)
        await vectors.apply(changes)
    for tenant in ("acme", "acme-corp", "acme-"):
        scope = Scope(tenant, "bot", users="all")
        expected = model.seen(scope, EVERYTHING, now=START).keys()
        where = selection(scope, EVERYTHING, now=START)
        by_meaning = await vectors.search(where, dense=QUESTION, words=WORDS, limit=3_000)
        ids = {c.record_id for c in by_meaning}
        assert ids <= expected
        assert len(ids) == len(by_meaning)
        assert await vectors.count(tenant) == sum(key[0] == tenant for key in model.points)
        counts = (await vectors.frequencies(tenant, WORDS)).counts
        assert counts == {
            w: sum(key[0] == tenant and w in p.event.data.terms for key, p in model.points.items()) for w in WORDS
        }


async def test_a_vector_of_another_model_or_dimension_is_refused_with_both_numbers(vectors: Vectors) -> None:
    wide = derived(embedding=embedded(np.ones((1, 16))))
    with pytest.raises(Unprocessable, match=rf"{MODEL} with 16 dimensions.*{MODEL} with 8"):
        await vectors.apply([*written(derived("fine")), *written(wide)])
    other = derived(embedding=embedded(direction(1), model="model-b"))
    with pytest.raises(Unprocessable, match=rf"model-b with 8 dimensions.*{MODEL} with 8"):
        await vectors.apply(written(other))
    assert await vectors.count("acme") == 0


async def test_a_vector_without_direction_is_none(vectors: Vectors) -> None:
    zero, half = np.zeros((1, 8)), np.vstack([np.zeros(8), direction(3)[0] * 40])
    await vectors.apply(written(derived("a", embedding=embedded(zero)), derived("b", embedding=embedded(half))))
    assert (await found(vectors)).keys() == {"a", "b"}
    where = selection(BOT, EVERYTHING, now=START, metadata_keys=KEYS)
    (only,) = await vectors.search(where, dense=QUESTION, words={}, limit=5)
    assert only.record_id == "b"
    assert near(only.dense, float(direction(3)[0] @ QUESTION))


async def test_the_digest_depends_on_what_is_there_and_not_on_how_it_came(vectors: Vectors, tmp_path: Path) -> None:
    events = assorted(60)
    await vectors.apply(written(*events))
    digest = await vectors.digest()
    async with opened_vectors("memory", tmp_path / "other") as other:
        await other.apply([*reversed(written(*events)), *written(*events[:5])])
        assert await other.digest() == digest
        assert await other.digest(tenant="acme") == await vectors.digest(tenant="acme") != digest
        await other.apply([left("removed", before=99, ids=("r4",)), left("cleared", before=99)])
        assert await other.digest() == digest  # a hint is no part of it
        await other.apply(written(derived("one more")))
        changed = await other.digest()
    assert changed != digest


BUILT = st.lists(
    st.one_of(
        *[st.tuples(st.just("write"), st.integers(0, 11))] * 3,
        st.tuples(st.just("drop"), st.integers(0, 11)),
        st.tuples(st.just("leave"), st.sampled_from(LEAVINGS)),
        st.tuples(st.just("unhint"), st.just(0)),
    ),
    max_size=30,
)
SOURCES = assorted(12)


def log_of(steps: list[Any]) -> list[Any]:
    """The changes as they come from a partition of the derived topic: each later than all before it."""
    changes: list[Any] = []
    for sequence, (kind, what) in enumerate(steps):
        if kind == "write":
            event = SOURCES[what]
            data = event.data.model_copy(update={"topic": f"as of {sequence}", "offset": 8 * sequence})
            changes += written(event.model_copy(update={"data": data}), start=sequence)
        elif kind == "drop":
            e = SOURCES[what]
            changes.append(Dropped(e.tenantid, e.agentid, e.data.record_id, sequence=sequence))
        else:
            changes.append(what if kind == "leave" else Unhinted("acme", "bot"))
    return changes


async def everything_in(vectors: Vectors) -> dict[str, Any]:
    """All payloads by id, with hints."""
    records, _ = await vectors._engine.scroll(None, limit=1_000)
    return {str(r.id): {k: v for k, v in (r.payload or {}).items() if v is not None} for r in records}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=BUILT, batch=st.integers(1, 12), stop=st.integers(0, 30), durable=st.integers(0, 30))
async def test_what_is_built_is_what_is_applied_in_any_batches_and_after_repeating_a_part(
    vectors: Vectors, tmp_path: Path, *, steps: list[Any], batch: int, stop: int, durable: int
) -> None:
    changes = log_of(steps)
    for tenant in ("acme", "acme-corp"):
        await vectors.apply([left("erased", before=10**6, scope="tenant", tenant=tenant, agent=None)])
    async with opened_vectors("memory", tmp_path / "other") as other:
        await other.apply(changes)
        for part in (changes[:stop], changes[min(stop, durable) :]):
            for i in range(0, len(part), batch):
                await vectors.build(part[i : i + batch])
        assert await everything_in(vectors) == await everything_in(other)
        assert await vectors.digest() == await other.digest()


async def test_building_refuses_a_vector_of_another_model_and_applies_nothing_then(vectors: Vectors) -> None:
    other = derived("other", embedding=embedded(direction(1), model="model-b"))
    with pytest.raises(Unprocessable, match=rf"model-b with 8 dimensions.*{MODEL} with 8"):
        await vectors.build([*written(derived("fine")), left("erased", before=9, scope="agent"), *written(other)])
    with pytest.raises(Unprocessable, match="2\\^63"):
        await vectors.build(written(derived("fine"), derived("wide", offset=2**63)))
    assert await vectors.count("acme") == 0


def test_ids_of_points_are_those_of_keys() -> None:
    assert point_id("acme", "corp/bot", "r") != point_id("acme", "corp", "bot/r")
    assert point_id("acme", "机器人", '"r":|()-') == point_id("acme", "机器人", '"r":|()-')
