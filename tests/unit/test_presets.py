"""Presets: DESIGN's numbers, and what a request changes in them."""

import pytest

from engramlog.engine.presets import CANDIDATES, PRESETS, check_scope, resolved
from engramlog.schemas.errors import RequestRefused
from engramlog.schemas.recalls import RecallQuery
from engramlog.schemas.scope import Scope


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_of_the_schema_is_there_and_fetches_enough(preset: str) -> None:
    weights = resolved(RecallQuery(text="x", preset=preset))  # type: ignore[arg-type]
    assert weights.candidates >= weights.limit > 0


def test_the_seeds_preset_fetches_three_times_its_limit() -> None:
    assert resolved(RecallQuery(text="x", preset="agent_recall")).limit == 5
    assert resolved(RecallQuery(text="x", preset="agent_recall")).candidates == 15
    assert resolved(RecallQuery(text="x", preset="agent_recall", limit=7)).candidates == 21
    assert resolved(RecallQuery(text="x", preset="agent_recall", limit=7, candidates=40)).candidates == 40


def test_what_the_request_states_replaces_the_presets_value_also_when_it_is_zero() -> None:
    query = RecallQuery(text="x", preset="customer_service", recency=0.0, half_life_days=2.0, diversity=0.5, limit=3)
    weights = resolved(query)
    assert (weights.recency, weights.half_life_days, weights.diversity, weights.limit) == (0.0, 2.0, 0.5, 3)
    assert weights.always_s == 600.0


def test_presets_differ_as_designed() -> None:
    assert resolved(RecallQuery(text="x")).candidates == CANDIDATES
    assert resolved(RecallQuery(text="x", preset="research")).limit == 20
    assert resolved(RecallQuery(text="x", preset="dual_source")).limit == 3
    assert PRESETS["customer_service"].half_life_days == 1.0
    assert PRESETS["customer_service"].recency > PRESETS["coding"].recency
    assert PRESETS["coding"].importance > PRESETS["assistant"].importance


def test_more_memories_than_candidates_are_never_wanted() -> None:
    assert resolved(RecallQuery(text="x", limit=200)).candidates == 200


def test_customer_service_needs_a_user() -> None:
    weights = PRESETS["customer_service"]
    check_scope(weights, Scope("acme", "a", user="u1"), "customer_service")
    with pytest.raises(RequestRefused, match="needs a user"):
        check_scope(weights, Scope("acme", "a"), "customer_service")
    check_scope(PRESETS["assistant"], Scope("acme", "a"), "assistant")
