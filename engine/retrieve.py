"""Recall: from a question to the memories that matter, each with the reasons why.

``engine/scoring.py`` says how memories are weighed, ``engine/presets.py`` by which weights.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from engramlog.engine import scoring, texts
from engramlog.engine.arranging import brought_in, fitting, together
from engramlog.engine.conflicts import conflicts
from engramlog.engine.diversity import diverse, likenesses
from engramlog.engine.history.standpoint import Standpoint
from engramlog.engine.history.view import View
from engramlog.engine.ports import Embedder, Matrix
from engramlog.engine.presets import Weights, check_scope, resolved
from engramlog.engine.searching import Asked, Ranked, Search
from engramlog.engine.terms import terms
from engramlog.engine.vectors.points import K1, term_index
from engramlog.engine.vectors.selecting import ALL, Epoch, Seen
from engramlog.engine.vectors.vectors import Vectors
from engramlog.schemas import recalls
from engramlog.schemas.asking import AsOf
from engramlog.schemas.errors import ModelRefused, ModelUnavailable, RequestRefused
from engramlog.schemas.instants import now as instant_now
from engramlog.schemas.scope import Scope
from engramlog.schemas.stored import StoredRecord

POOL: Final = 30
"""So many of the best memories are looked at for contradictions and diversity."""
ROUNDS: Final = 3
"""How often the store is asked when what it gave may no longer be recalled."""
ROUNDS_BACK: Final = 6
"""The same for the past, where no hint leaves out what had left recall before."""
RECENT: Final = 8
"""Turns of the asking session that a question may refer to."""
ASKING: Final = 3
"""Among so many of the newest turns the asking message is looked for."""
QUERY_TIMEOUT_S: Final = 2.0


class Recallable(Protocol):
    """What recall needs of the history."""

    async def standpoint(self, scope: Scope, as_of: AsOf | None) -> Standpoint:
        """Where a point in the past is."""

    async def cleared(self, scope: Scope, *, view: View) -> Sequence[Epoch]:
        """The clears that reach recall, as a view has them."""

    async def recallable(self, scope: Scope, record_ids: Sequence[str], *, view: View) -> Mapping[str, StoredRecord]:
        """Those that exist, are visible to the scope's user and did not leave recall; invalidated ones say so."""

    async def recent(self, scope: Scope, count: int, *, as_of: AsOf | None) -> Sequence[StoredRecord]:
        """The newest of the asking session, oldest first."""


class Expansion(Protocol):
    """Says a question so that it can be understood without the talk around it."""

    async def expanded(self, text: str, recent: Sequence[StoredRecord]) -> str:
        """The question with what its pronouns stand for.

        Raises:
            ModelUnavailable: No answer now.
            ModelRefused: The model will never take it, or gave nonsense for it.
        """


Rules = Callable[[str, Sequence[StoredRecord]], str]


@dataclass(frozen=True, slots=True)
class _Joined:
    """A ranked candidate with its record."""

    ranked: Ranked
    stored: StoredRecord


class Retrieval:
    """Answers ``recall`` and ``similar``.

    Memory as it was (``as_of``): the history decides, as of then, what was there, what had left recall and what a
    record said; candidates come from the vectors as they are, restricted to what lies before. The same request with
    ``now`` gives the same answer as long as history and vectors stand where they stood.

    Args:
        vectors: Where memories are found.
        embedder: What makes the question's vector.
        memory: What says which of them may be recalled.
        expand: A language model that expands questions; None: the rules do.
        rules: What expands questions by rules.
        metadata_keys: Dotted keys of metadata that can be filtered by.
        clock: The time, for requests that name none.
        query_timeout_s: How long the question's vector is waited for, in seconds; then the words alone are searched.
    """

    def __init__(
        self,
        vectors: Vectors,
        embedder: Embedder,
        memory: Recallable,
        *,
        expand: Expansion | None = None,
        rules: Rules = lambda text, _recent: text,
        metadata_keys: Collection[str] = (),
        clock: Callable[[], datetime] = instant_now,
        query_timeout_s: float = QUERY_TIMEOUT_S,
    ) -> None:
        self._vectors, self._embedder, self._memory = vectors, embedder, memory
        self._expand, self._rules = expand, rules
        self._search = Search(vectors, metadata_keys=metadata_keys)
        self._clock, self._query_timeout_s = clock, query_timeout_s

    async def recall(
        self, scope: Scope, query: recalls.RecallQuery, *, max_bytes: int, until: float = math.inf
    ) -> recalls.RecallAnswer:
        """The memories that matter for a text, best first, contradicting ones together, in at most ``max_bytes``.

        Args:
            scope: Who asks.
            query: What is asked.
            max_bytes: Limit of the hits' JSON.
            until: When to go on without what models have not answered by then, in the running loop's time.

        Raises:
            RequestRefused: The preset needs a user, or a metadata key cannot be filtered by.
            StoreUnavailable: History or vectors do not answer.
        """
        weights = resolved(query)
        check_scope(weights, scope, query.preset)
        stand = await self._memory.standpoint(scope, query.as_of)
        now = query.now or stand.instant or self._clock()
        cleared = await self._memory.cleared(scope, view=stand.view)
        recent = () if scope.session is None else await self._memory.recent(scope, RECENT, as_of=query.as_of)
        asking = [s.record.record_id for s in recent[-ASKING:] if s.record.content.strip() == query.text.strip()]
        earlier = [s for s in recent if s.record.record_id not in asking]
        text, degraded = await self._expanded(query, earlier, until=until)
        vector, reason = await self._vector(text, until=until)
        words = {} if weights.formula == "cosine" and vector is not None else await self._rarities(scope, text)
        wanted = query.filter.model_copy(update={"leave_out": (*query.filter.leave_out, *asking)})
        question = scoring.Question(text, words, vector, K1 + 1.0)
        asked = Asked(scope, wanted, now, cleared, question, weights, stand.view, _seen(stand, query.as_of))
        best, shared = await self._best(asked)
        # In a thread: rules look for contradictions, and whoever else is answered must not wait for them.
        hits, shown = await asyncio.to_thread(self._shown, best, asked, shared, max_bytes=max_bytes)
        return recalls.RecallAnswer(
            kind="recall",
            hits=shown,
            asked=text if text != query.text else None,
            degraded=(*degraded, *([reason] if reason else [])),
            now=now,
            unread=len(hits) - len(shown),
        )

    async def similar(
        self, scope: Scope, query: recalls.SimilarQuery, *, max_bytes: int, until: float = math.inf
    ) -> recalls.RecallAnswer:
        """The memories nearest in meaning, scored by their cosine. Arguments as of :meth:`recall`.

        Raises:
            RequestRefused: The text could not be embedded, or a metadata key cannot be filtered by.
            StoreUnavailable: History or vectors do not answer.
        """
        vector, reason = await self._vector(query.text, until=until)
        if vector is None:
            raise RequestRefused("unavailable", reason or "no query embedding")
        weights = Weights(
            formula="cosine", importance=0.0, recency=0.0, limit=query.limit, candidates=max(2 * query.limit, POOL)
        )
        question = scoring.Question(query.text, {}, vector)
        stand = await self._memory.standpoint(scope, query.as_of)
        cleared, now = await self._memory.cleared(scope, view=stand.view), stand.instant or self._clock()
        seen = _seen(stand, query.as_of)
        best, _ = await self._best(Asked(scope, query.filter, now, cleared, question, weights, stand.view, seen))
        least = -1.0 if query.min_similarity is None else query.min_similarity
        near = [joined for joined in best[: query.limit] if joined.ranked.relevance >= least]
        hits = [_hit(joined, question, parts=joined.ranked.parts[:1]) for joined in near]
        shown = fitting(hits, max_bytes=max_bytes)
        return recalls.RecallAnswer(kind="recall", hits=shown, now=now, unread=len(hits) - len(shown))

    async def _expanded(
        self, query: recalls.RecallQuery, recent: Sequence[StoredRecord], *, until: float
    ) -> tuple[str, tuple[str, ...]]:
        if query.expand == "off" or not recent:
            return query.text, ()
        if query.expand == "llm" and self._expand is not None:
            try:
                async with asyncio.timeout(_left_s(until) / 2 if until < math.inf else None):
                    return await self._expand.expanded(query.text, recent), ()
            except TimeoutError:
                return self._rules(query.text, recent), ("expanded by rules: the model took too long",)
            except (ModelUnavailable, ModelRefused) as error:
                return self._rules(query.text, recent), (f"expanded by rules: {error}",)
        return self._rules(query.text, recent), ()

    async def _vector(self, text: str, *, until: float) -> tuple[Matrix | None, str | None]:
        """The question's vector, or why there is none."""
        limit_s = min(self._query_timeout_s, _left_s(until))
        try:
            async with asyncio.timeout(limit_s):
                return await self._embedder.query(texts.gist(text)), None
        except TimeoutError:
            return None, f"no query embedding: it took longer than {limit_s:.2g} s"
        except (ModelUnavailable, ModelRefused) as error:
            return None, f"no query embedding: {error}"

    async def _rarities(self, scope: Scope, text: str) -> dict[str, float]:
        wanted = list(dict.fromkeys(terms(text)))
        if not wanted:
            return {}
        known = await self._vectors.frequencies(scope.tenant, wanted)
        return {term: scoring.rarity(known.total, known.counts[term]) for term in wanted}

    async def _best(self, asked: Asked) -> tuple[list[_Joined], scoring.Common | None]:
        """The best memories that may be recalled, :data:`POOL` or as many as are wanted, if there are so many."""
        left_out = list(asked.filter.leave_out)
        count, weights = asked.weights.candidates, asked.weights
        for _ in range(ROUNDS_BACK if asked.seen.marked_since else ROUNDS):
            ranked, shared = await self._search.ranked(asked, leave_out=left_out, count=count)
            joined, gone = await self._join(asked, ranked, count=max(POOL, weights.limit))
            if len(joined) >= weights.limit or not gone or len(ranked) < count:
                break
            left_out += gone
            count = min(2 * count, recalls.MAX_CANDIDATES)
        return joined, shared

    async def _join(self, asked: Asked, ranked: Sequence[Ranked], *, count: int) -> tuple[list[_Joined], list[str]]:
        """The first ``count`` that may be recalled, and the ids of those before them that may not."""
        joined, gone = list[_Joined](), list[str]()
        for begin in range(0, len(ranked), count):
            page = ranked[begin : begin + count]
            ids = [r.candidate.record_id for r in page]
            there = await self._memory.recallable(asked.scope, ids, view=asked.view)
            for one in page:
                stored = there.get(one.candidate.record_id)
                if stored is not None and _is_wanted(stored, asked.filter, now=asked.now):
                    joined.append(_Joined(one, stored))
                else:
                    gone.append(one.candidate.record_id)
            if len(joined) >= count:
                break
        return joined[:count], gone

    def _shown(
        self, best: Sequence[_Joined], asked: Asked, shared: scoring.Common | None, *, max_bytes: int
    ) -> tuple[list[recalls.RecallHit], tuple[recalls.RecallHit, ...]]:
        """The hits, and those of them that fit."""
        hits = self._arranged(best, asked, shared)
        return hits, fitting(hits, max_bytes=max_bytes)

    def _arranged(
        self, best: Sequence[_Joined], asked: Asked, shared: scoring.Common | None
    ) -> list[recalls.RecallHit]:
        """The hits: diverse where that is wanted, contradictions together."""
        weights, places = asked.weights, list(range(min(len(best), asked.weights.limit)))
        if weights.diversity > 0.0:
            candidates = [joined.ranked.candidate for joined in best]
            alike = likenesses([c.vector for c in candidates], [c.terms for c in candidates], shared=shared)
            scores = [joined.ranked.score for joined in best]
            places = diverse(scores, alike, diversity=weights.diversity, limit=weights.limit)
        pool = best[: max(POOL, len(places))]
        pairs = conflicts([joined.stored for joined in pool[:POOL]])
        shown = together(brought_in(places, pairs), pairs)
        against: dict[int, list[str]] = {place: [] for place in shown}
        for one, other in pairs:
            if one in against and other in against:
                against[one].append(best[other].stored.record.record_id)
                against[other].append(best[one].stored.record.record_id)
        return [_hit(best[place], asked.question, against=against[place]) for place in shown]


def _left_s(until: float) -> float:
    return max(0.0, until - asyncio.get_running_loop().time())


def _seen(stand: Standpoint, as_of: AsOf | None) -> Seen:
    """What a standpoint sees of the vectors."""
    if as_of is None:
        return ALL
    return Seen(stand.highest, as_of.happened, marked_since=stand.view.past)


def _is_wanted(stored: StoredRecord, wanted: recalls.RecallFilter, *, now: datetime) -> bool:
    """Whether a record still passes the filter; the vectors may lag behind it."""
    record = stored.record
    if stored.invalidated is not None and not wanted.invalidated:
        return False
    if record.expires_at is not None and record.expires_at <= now and not wanted.expired:
        return False
    return wanted.min_confidence is None or record.confidence is None or record.confidence >= wanted.min_confidence


def _hit(
    joined: _Joined,
    question: scoring.Question,
    *,
    parts: tuple[scoring.Summand, ...] | None = None,
    against: Sequence[str] = (),
) -> recalls.RecallHit:
    ranked, candidate = joined.ranked, joined.ranked.candidate
    shown = ranked.parts if parts is None else parts
    return recalls.RecallHit(
        stored=joined.stored,
        score=scoring.total_of(shown),
        parts=scoring.told(shown),
        relevance=min(1.0, max(0.0, ranked.relevance)),
        relevance_parts=scoring.told(ranked.relevance_parts),
        similarity=candidate.dense,
        words=tuple(term for term in question.weights if term_index(term) in candidate.terms),
        topic=candidate.topic,
        importance=candidate.importance,
        conflicts=tuple(against),
        superseded_by=None if joined.stored.invalidated is None else joined.stored.invalidated.replaced_by,
    )
