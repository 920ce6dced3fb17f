"""Scoring: sums that explain themselves, whatever the candidates and their order."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engramlog.engine import scoring
from engramlog.engine.arranging import brought_in, together
from engramlog.engine.diversity import diverse, likenesses
from engramlog.engine.presets import PRESETS, Weights
from engramlog.engine.vectors.candidates import Candidate

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DIMENSION = 8


def candidate(number: int, *, vector: Any = None, dense: float | None = None, **fields: Any) -> Candidate:
    values: dict[str, Any] = {
        "record_id": f"r{number}",
        "session": "s1",
        "user": "",
        "position": number,
        "sequence": number,
        "turn": number,
        "role": "user",
        "speaker": None,
        "layer": None,
        "kind": "turn",
        "origin": "dialogue",
        "topic": None,
        "importance": 0.5,
        "confidence": None,
        "happened": NOW - timedelta(days=number),
        "expires": None,
        "terms": frozenset(),
        "words": 0.0,
    }
    rows = None if vector is None else np.atleast_2d(np.asarray(vector, dtype=np.float32))
    return Candidate(**{**values, **fields}, dense=dense, vector=rows)


def unit(seed: int, *, like: Any = None) -> Any:
    row = np.random.default_rng(seed).normal(size=DIMENSION)
    row = row / np.linalg.norm(row) + (0 if like is None else np.asarray(like))
    return (row / np.linalg.norm(row)).astype(np.float32)


def question(text: str = "q", vector: Any = None, **weights: float) -> scoring.Question:
    return scoring.Question(text, weights, vector)


shares = st.floats(0, 1)
candidates = st.lists(
    st.builds(
        lambda seed, session, turn, words, importance, days, role, speaker, embedded: (
            seed,
            session,
            turn,
            words,
            importance,
            days,
            role,
            speaker,
            embedded,
        ),
        st.integers(0, 50),
        st.sampled_from(["", "s1", "s2"]),
        st.integers(0, 12),
        st.floats(0, 10),
        shares,
        st.floats(-10, 4_000),
        st.sampled_from(["user", "assistant", "tool"]),
        st.sampled_from([None, "caroline", "李雪", ""]),
        st.booleans(),
    ),
    max_size=12,
).map(lambda rows: [_made(i, row) for i, row in enumerate(rows)])

ASKED = unit(999)


def _made(i: int, row: tuple[Any, ...]) -> Candidate:
    seed, session, turn, words, importance, days, role, speaker, embedded = row
    vector = unit(seed) if embedded else None
    dense = float(vector @ ASKED) if embedded else None
    return candidate(
        i,
        vector=vector,
        dense=dense,
        session=session,
        turn=turn,
        words=words,
        importance=importance,
        happened=NOW - timedelta(days=days),
        role=role,
        speaker=speaker,
    )


questions = st.builds(
    lambda text, weights, embedded: scoring.Question(text, weights, ASKED if embedded else None),
    st.sampled_from(["我的猫", "what did Caroline say", "👋", "do you know my 李雪?", ""]),
    st.dictionaries(st.sampled_from(["cat", "猫", "👋"]), st.floats(0.01, 10)),
    st.booleans(),
)


def ranked(asked: scoring.Question, found: list[Candidate], weights: Weights) -> dict[str, tuple[float, float]]:
    found = sorted(found, key=lambda c: (c.position, c.record_id))
    shared = scoring.common(asked.vector, found, best=100)
    own = scoring.own_scores(asked, found, shared=shared)
    fits = scoring.relevances(found, own)
    return {
        c.record_id: (fit.value, scoring.total_of(scoring.summands(fit.value, c, weights, now=NOW)))
        for c, fit in zip(found, fits, strict=True)
    }


@given(questions, candidates, st.sampled_from(sorted(PRESETS)))
def test_a_score_is_the_sum_of_its_parts_and_relevance_is_a_share(
    asked: scoring.Question, found: list[Candidate], preset: Any
) -> None:
    shared = scoring.common(asked.vector, found, best=100)
    own = scoring.own_scores(asked, found, shared=shared)
    for c, fit in zip(found, scoring.relevances(found, own), strict=True):
        assert 0.0 <= fit.value <= 1.0
        assert fit.total == pytest.approx(sum(part.contribution for part in scoring.told(fit.summands())))
        parts = scoring.summands(fit.value, c, PRESETS[preset], now=NOW)
        assert scoring.total_of(parts) == pytest.approx(sum(part.contribution for part in scoring.told(parts)))
        assert np.isfinite(scoring.total_of(parts))


@given(questions, candidates, st.randoms(use_true_random=False))
def test_the_order_of_the_candidates_changes_no_score(
    asked: scoring.Question, found: list[Candidate], random: Any
) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)
    one, other = (ranked(asked, these, PRESETS["assistant"]) for these in (found, shuffled))
    assert one == other


def test_the_seeds_formula_is_exact() -> None:
    old = candidate(1, happened=NOW - timedelta(hours=84), importance=0.8)
    parts = scoring.summands(0.6, old, PRESETS["agent_recall"], now=NOW)
    assert scoring.total_of(parts) == pytest.approx(0.6 + 0.8 - 0.5 * 84 / 168)
    ancient = candidate(1, happened=NOW - timedelta(days=900), importance=0.8)
    assert scoring.total_of(scoring.summands(0.6, ancient, PRESETS["agent_recall"], now=NOW)) == pytest.approx(0.9)


def test_recency_halves_with_each_half_life_and_the_future_is_now() -> None:
    weights = Weights(semantic=0.0, importance=0.0, recency=1.0, half_life_days=10.0)
    for days, left in ((0, 1.0), (10, 0.5), (20, 0.25), (-5, 1.0)):
        parts = scoring.summands(0.0, candidate(1, happened=NOW - timedelta(days=days)), weights, now=NOW)
        assert scoring.total_of(parts) == pytest.approx(left)


def test_what_all_candidates_share_does_not_count() -> None:
    shared = 4 * unit(1)
    near, far = unit(2, like=shared), unit(3, like=shared)
    query = unit(2, like=shared)
    rows = [near, far, *(unit(n, like=shared) for n in range(10, 20))]
    found = [candidate(i, vector=row, dense=float(row @ query)) for i, row in enumerate(rows)]
    common = scoring.common(query, found, best=100)
    assert common is not None
    similarities = common.similarities([c.vector for c in found if c.vector is not None])
    plain = [float(row @ query) for row in rows]
    assert min(plain) > 0.85  # plain cosines can hardly tell them apart
    assert similarities[0] > 0.9
    assert max(similarities[1:]) < 0.8
    assert np.mean(similarities[1:]) < 0.3


def test_of_several_chunks_the_nearest_counts() -> None:
    query = unit(5)
    found = [
        candidate(0, vector=np.vstack([unit(6), query]), dense=1.0),
        candidate(1, vector=unit(7), dense=float(unit(7) @ query)),
        candidate(2, vector=np.vstack([unit(8), unit(9), unit(10)]), dense=0.1),
    ]
    common = scoring.common(query, found, best=100)
    assert common is not None
    one_by_one = [common.similarities([c.vector])[0] for c in found if c.vector is not None]
    together_ = common.similarities([c.vector for c in found if c.vector is not None])
    assert together_ == pytest.approx(one_by_one)
    assert int(np.argmax(together_)) == 0


def test_words_count_by_the_share_of_the_question_that_they_cover() -> None:
    asked = question(cat=3.0, sofa=1.0)
    assert asked.covered(0.0) == 0.0
    assert asked.covered(1.9 * 3.0) == pytest.approx(0.75**scoring.STEEPNESS)
    assert asked.covered(1_000.0) == 1.0
    assert question().covered(5.0) == 0.0  # nothing was asked for by words


def test_rarer_terms_weigh_more_and_none_weighs_nothing() -> None:
    assert scoring.rarity(100, 0) > scoring.rarity(100, 1) > scoring.rarity(100, 50) > scoring.rarity(100, 100) > 0
    assert scoring.rarity(0, 0) > 0
    assert scoring.rarity(3, 7) > 0  # counts may be newer than the total


def test_neighbours_and_session_support_a_memory() -> None:
    asked = question(cat=1.0)
    found = [
        candidate(1, words=0.5),
        candidate(5, words=0.5),
        candidate(6, words=1.5),
        candidate(9, session="", words=0.5),
    ]
    own = scoring.own_scores(asked, found, shared=None)
    alone, beside, _, nowhere = scoring.relevances(found, own)
    assert beside.total > alone.total > nowhere.total
    assert beside.neighbours == pytest.approx(own[2].total)
    assert scoring.relevances(found, own)[2].neighbours == pytest.approx(0.5 * own[1].total)
    assert nowhere.session == nowhere.neighbours == 0.0


@pytest.mark.parametrize(
    ("text", "speaker", "named"),
    [
        ("What did Caroline paint?", "caroline", True),
        ("What did Caroline's sister paint?", "caroline", True),
        ("What did carolines paint?", "caroline", False),
        ("What does Joanna Smith like?", "joanna smith", True),
        ("Where does Joanna live?", "joanna smith", True),
        ("李雪喜欢什么？", "李雪", True),
        ("他喜欢什么？", "李雪", False),
        ("who is (?", "(?", True),
        ("anything", "", False),
    ],
)
def test_a_speaker_is_named_by_whole_or_first_name(text: str, speaker: str, named: bool) -> None:
    assert scoring.is_named(text, speaker) is named


@pytest.mark.parametrize(
    ("text", "side"),
    [
        ("What am I allergic to?", {"user"}),
        ("我对什么过敏来着？", {"user"}),
        ("What did you recommend?", {"assistant"}),
        ("你推荐了什么？", {"assistant"}),
        ("What did you tell me?", {"user", "assistant"}),
        ("天气怎么样", set()),
        ("Hawaii in imagery", set()),
        ("👋", set()),
    ],
)
def test_a_question_is_about_what_the_user_or_the_assistant_said(text: str, side: set[str]) -> None:
    assert scoring.addressed_sides(text) == side


def test_who_is_asked_about_comes_first_and_users_where_nobody_is() -> None:
    said = [candidate(0, role="user"), candidate(1, role="assistant"), candidate(2, role="user", speaker="caroline")]

    def first(text: str) -> list[float]:
        return [own.speaker for own in scoring.own_scores(question(text), said, shared=None)]

    assert first("What am I allergic to?") == [1.0, 0.0, 1.0]
    assert first("What did you recommend?") == [0.0, 1.0, 0.0]
    assert first("What did you tell me?") == [0.0, 0.0, 0.0]
    assert first("wedding day?") == [scoring.UNSAID, 0.0, scoring.UNSAID]
    assert first("What does Caroline paint?") == [scoring.UNSAID, 0.0, 1.0 + scoring.UNSAID]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_candidates_are_no_trouble(count: int) -> None:
    found = [candidate(i, vector=unit(i), dense=float(unit(i) @ ASKED)) for i in range(count)]
    assert len(ranked(question("👋", ASKED), found, PRESETS["assistant"])) == count
    assert len(ranked(question("👋", None), found, PRESETS["assistant"])) == count


def test_equal_vectors_are_no_trouble() -> None:
    found = [candidate(i, vector=ASKED, dense=1.0) for i in range(5)]
    assert all(np.isfinite(score) for _, score in ranked(question("x", ASKED), found, PRESETS["assistant"]).values())


# --- diversity --------------------------------------------------------------------------------------------------------

scores_and_likeness = st.integers(0, 8).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(-1, 2), min_size=n, max_size=n).map(lambda s: sorted(s, reverse=True)),
        st.lists(st.lists(shares, min_size=n, max_size=n), min_size=n, max_size=n),
    )
)


@given(scores_and_likeness, shares, st.integers(1, 10))
def test_diversity_chooses_a_subset_that_begins_with_the_best(
    given_: tuple[list[float], list[list[float]]], diversity: float, limit: int
) -> None:
    scores, likeness = given_
    chosen = diverse(scores, likeness, diversity=diversity, limit=limit)
    assert len(chosen) == len(set(chosen)) == min(limit, len(scores))
    assert set(chosen) <= set(range(len(scores)))
    assert chosen[:1] == ([0] if scores else [])


@given(scores_and_likeness)
def test_without_diversity_the_best_are_chosen(given_: tuple[list[float], list[list[float]]]) -> None:
    scores, likeness = given_
    assert [scores[i] for i in diverse(scores, likeness, diversity=0.0, limit=99)] == scores


def test_a_repetition_gives_way_to_something_else() -> None:
    x, y = np.eye(2, dtype=np.float32)
    alike = likenesses([x[None], x[None], y[None]], [frozenset()] * 3, shared=None)
    assert diverse([1.0, 0.99, 0.7], alike, diversity=0.5, limit=2) == [0, 2]
    assert diverse([1.0, 0.99, 0.7], alike, diversity=0.0, limit=2) == [0, 1]


def test_memories_without_vectors_are_compared_by_their_terms() -> None:
    alike = likenesses([None, None, unit(1)[None]], [frozenset({1, 2}), frozenset({2, 3}), frozenset()], shared=None)
    assert alike[0][1] == pytest.approx(1 / 3)
    assert alike[0][2] == 0.0
    assert alike[1][1] == 1.0


# --- contradictions ---------------------------------------------------------------------------------------------------

places = st.lists(st.integers(0, 9), unique=True, max_size=6)
pairs = st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda p: p[0] < p[1]), max_size=6)


@given(places, pairs)
def test_putting_contradictions_together_loses_and_adds_nothing(
    chosen: list[int], against: set[tuple[int, int]]
) -> None:
    arranged = together(chosen, against)
    assert sorted(arranged) == sorted(chosen)
    assert arranged[:1] == chosen[:1]


@given(places, pairs)
def test_bringing_in_keeps_the_number_and_the_first(chosen: list[int], against: set[tuple[int, int]]) -> None:
    found = brought_in(chosen, against)
    assert len(found) == len(set(found)) == len(chosen)
    assert found[:1] == chosen[:1]


def test_a_contradiction_that_missed_the_limit_comes_in_beside_its_partner() -> None:
    found = brought_in([0, 1, 2], {(0, 7)})
    assert sorted(found) == [0, 1, 7]
    assert together(found, {(0, 7)}) == [0, 7, 1]


def test_one_contradiction_does_not_push_out_another() -> None:
    assert sorted(brought_in([0, 1, 2], {(0, 2), (1, 8)})) == [0, 1, 2]
