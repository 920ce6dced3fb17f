"""Searching: from a question made ready to the candidates in their order."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from qdrant_client import models

from engramlog.engine import scoring
from engramlog.engine.history.view import NOW, View
from engramlog.engine.presets import Weights
from engramlog.engine.vectors.candidates import Candidate
from engramlog.engine.vectors.selecting import ALL, Epoch, Seen, selection
from engramlog.engine.vectors.vectors import Vectors
from engramlog.schemas.recalls import RecallFilter
from engramlog.schemas.scope import Scope


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, made ready.

    Attributes:
        scope: Whose memory.
        filter: Which memories.
        now: The instant that ages are measured from.
        cleared: Epochs of recall.
        question: What is looked for.
        weights: How memories are weighed.
        view: The point of view.
        seen: What it sees of the vectors.
    """

    scope: Scope
    filter: RecallFilter
    now: datetime
    cleared: Sequence[Epoch]
    question: scoring.Question
    weights: Weights
    view: View = NOW
    seen: Seen = ALL


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate with its score.

    Attributes:
        candidate: What was found.
        relevance: 0 to 1, or the cosine where the preset's formula wants it.
        relevance_parts: What that is made of.
        parts: What the score is made of.
        score: Their sum.
    """

    candidate: Candidate
    relevance: float
    relevance_parts: tuple[scoring.Summand, ...]
    parts: tuple[scoring.Summand, ...]
    score: float

    def order(self) -> tuple[float, float, int, str]:
        """Best first; of equals the more relevant, the earlier, the smaller id."""
        return -self.score, -scoring.total_of(self.relevance_parts), self.candidate.position, self.candidate.record_id


class Search:
    """Searches the vectors and weighs what it finds.

    Args:
        vectors: Where memories are found.
        metadata_keys: Dotted keys of metadata that can be filtered by.
    """

    def __init__(self, vectors: Vectors, *, metadata_keys: Collection[str] = ()) -> None:
        self._vectors, self._metadata_keys = vectors, tuple(metadata_keys)

    async def ranked(
        self, asked: Asked, *, leave_out: Sequence[str], count: int
    ) -> tuple[list[Ranked], scoring.Common | None]:
        """The best ``count`` by meaning and the best by words, best first; and what they have in common.

        Raises:
            RequestRefused: A metadata key cannot be filtered by.
            StoreUnavailable: The vectors do not answer.
        """
        question, wanted = asked.question, asked.filter.model_copy(update={"leave_out": tuple(leave_out)})
        found = await self._found(asked, wanted, count=count)
        shared = None
        if asked.weights.formula == "cosine":
            ranked = [_by_cosine(c, asked) for c in found]
        else:
            shared = scoring.common(question.vector, found, best=count)
            own = scoring.own_scores(question, found, shared=shared)
            fits = scoring.relevances(found, own)
            ranked = [_by_relevance(c, fit, asked) for c, fit in zip(found, fits, strict=True)]
        return sorted(ranked, key=Ranked.order), shared

    def _where(self, asked: Asked, wanted: RecallFilter) -> models.Filter:
        return selection(
            asked.scope,
            wanted,
            now=asked.now,
            cleared=asked.cleared,
            seen=asked.seen,
            metadata_keys=self._metadata_keys,
        )

    async def _found(self, asked: Asked, wanted: RecallFilter, *, count: int) -> list[Candidate]:
        """What is found, and what happened in the last minutes where the preset wants it; in a fixed order."""
        dense, words = asked.question.vector, asked.question.weights
        where = self._where(asked, wanted)
        found = await self._vectors.search(where, dense=dense, words=words, limit=count, vectors=True)
        latest = _latest(asked, wanted)
        if latest is not None:
            where = self._where(asked, latest)
            found += await self._vectors.search(where, dense=dense, words=words, limit=count, vectors=True)
        once = {c.record_id: c for c in found}
        return sorted(once.values(), key=lambda c: (c.position, c.record_id))


def _latest(asked: Asked, wanted: RecallFilter) -> RecallFilter | None:
    """The filter for what happened in the last minutes; None: the preset does not want it, or it is filtered out."""
    if not asked.weights.always_s:
        return None
    begin = asked.now - timedelta(seconds=asked.weights.always_s)
    if wanted.happened_from is not None:
        begin = max(begin, wanted.happened_from)
    if wanted.happened_until is not None and begin >= wanted.happened_until:
        return None
    return wanted.model_copy(update={"happened_from": begin})


def _by_relevance(candidate: Candidate, fit: scoring.Relevance, asked: Asked) -> Ranked:
    made = fit.summands()
    relevance = scoring.share(scoring.total_of(made))
    parts = scoring.summands(relevance, candidate, asked.weights, now=asked.now)
    return Ranked(candidate, relevance, made, parts, scoring.total_of(parts))


def _by_cosine(candidate: Candidate, asked: Asked) -> Ranked:
    """By the seed's formula; without a vector the share of the question's words stands for the cosine."""
    cosine = asked.question.covered(candidate.words) if candidate.dense is None else candidate.dense
    parts = scoring.summands(cosine, candidate, asked.weights, now=asked.now)
    return Ranked(candidate, cosine, (("dense", cosine, 1.0),), parts, scoring.total_of(parts))
