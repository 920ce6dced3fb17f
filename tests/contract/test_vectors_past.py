"""What a search of the past sees, on every engine: what lies before, also if it left recall since."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from engramlog.engine.vectors.selecting import ALL, Cleared, Seen, selection
from engramlog.engine.vectors.vectors import Vectors
from engramlog.schemas.recalls import RecallFilter
from engramlog.schemas.scope import Scope
from tests.vector_engines import ENGINES, opened_vectors
from tests.vector_model import KEYS, START, derived, direction, embedded, left, written

BOT = Scope("acme", "bot", users="all")
HOUR = timedelta(hours=1)
IDS = ("r/0", "记录1", "👋2", "r|3", "(r)-4", "r5")


@pytest.fixture(params=ENGINES)
async def vectors(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Vectors]:
    """Six records an hour apart, of two tenants; some left recall, one is no longer true, one expires."""
    async with opened_vectors(request.param, tmp_path) as made:
        for tenant in ("acme", "acme-corp"):
            records = [
                derived(
                    record_id,
                    tenant=tenant,
                    offset=n,
                    turn=n,
                    timestamp=START + n * HOUR,
                    expires_at=START + 4 * HOUR if n == 1 else None,
                    embedding=embedded(direction(n)),
                )
                for n, record_id in enumerate(IDS)
            ]
            await made.apply(written(*records))
        await made.apply(
            [
                left("removed", before=9, ids=(IDS[0],)),
                left("invalidated", before=9, ids=(IDS[2],)),
                left("cleared", before=2, session="s1", users="all"),
            ]
        )
        yield made


async def found(vectors: Vectors, seen: Seen = ALL, **how: Any) -> set[int]:
    """The places of what a search sees."""
    where = selection(
        how.pop("scope", BOT),
        how.pop("wanted", RecallFilter()),
        now=how.pop("now", START + 9 * HOUR),
        seen=seen,
        metadata_keys=KEYS,
        **how,
    )
    candidates = await vectors.search(where, dense=direction(3)[0], words={}, limit=50)
    return {candidate.position for candidate in candidates}


async def test_the_present_leaves_out_what_left_recall(vectors: Vectors) -> None:
    assert await found(vectors) == {3, 4, 5}


async def test_what_lies_later_is_not_seen_and_hints_decide_nothing(vectors: Vectors) -> None:
    then = START + 3 * HOUR
    assert await found(vectors, Seen(3, marked_since=True), now=then) == {0, 1, 2, 3}
    assert await found(vectors, Seen(0, marked_since=True), now=then) == {0}
    assert await found(vectors, Seen(-1, marked_since=True), now=then) == set()
    assert await found(vectors, Seen(2**62, marked_since=True), now=then) == set(range(6))
    assert await found(vectors, Seen(3, marked_since=True)) == {0, 2, 3}  # by now one has expired


async def test_epochs_of_then_and_the_filter_still_restrict(vectors: Vectors) -> None:
    seen = Seen(4, marked_since=True)
    assert await found(vectors, seen, now=START, cleared=[Cleared("s1", None, 2)]) == {2, 3, 4}
    assert await found(vectors, seen, now=START, wanted=RecallFilter(leave_out=(IDS[2], IDS[3]))) == {0, 1, 4}
    assert await found(vectors, seen, scope=Scope("acme", "bot/2", users="all")) == set()


async def test_what_happened_later_is_not_seen_and_hints_count(vectors: Vectors) -> None:
    assert await found(vectors, Seen(happened_until=START + 4 * HOUR)) == {3, 4}
    assert await found(vectors, Seen(happened_until=START + 4 * HOUR - timedelta(microseconds=1))) == {3}
    between = RecallFilter(happened_from=START + 4 * HOUR)
    assert await found(vectors, Seen(happened_until=START + 4 * HOUR), wanted=between) == {4}


async def test_another_tenants_past_is_its_own(vectors: Vectors) -> None:
    corp = Scope("acme-corp", "bot", users="all")
    assert await found(vectors, scope=corp) == {0, 2, 3, 4, 5}
    assert await found(vectors, Seen(2, marked_since=True), scope=corp, now=START) == {0, 1, 2}
