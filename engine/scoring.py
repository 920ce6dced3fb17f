"""How well memories fit a question: relevance, and the score that it is a part of. Pure.

**Meaning.** The cosines of a text model lie close together (0.75 to 0.9 for ``multilingual-e5-small``), because all its
vectors share a large component. What the best candidates have in common says nothing about which of them is meant: so
nine tenths of their mean are taken off the question and off each of them before they are compared. On LoCoMo this finds
ten points more (recall@10, vectors alone).

**Words.** BM25 divided by the most that the question could reach: the share of the question's rarity that a memory
covers. Terms that no memory holds count, too; a question whose words are hardly there is decided by its meaning.

Both need no statistics of the candidates' scores, so that three memories are weighed like a hundred thousand.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import log
from typing import Final

import numpy as np

from engramlog.engine.ports import Matrix
from engramlog.engine.presets import SEEDS_WEEK_HOURS, Weights
from engramlog.engine.vectors.candidates import Candidate
from engramlog.schemas.recalls import ScorePart

DENSE: Final = 1.0
WORDS: Final = 1.2
STEEPNESS: Final = 1.25
"""Exponent of the covered share: half a question is worth less than half."""
BEFORE: Final = 0.5
"""What the turn before a memory counts as its neighbour, the turn after it counting 1."""
NEIGHBOURS: Final = 0.2
"""Weight of what the neighbouring turns score themselves."""
SESSION: Final = 0.3
"""Weight of the mean of the best three of its session."""
SPEAKER: Final = 0.15
"""What a memory gains that was said by whom the question is about."""
UNSAID: Final = 2 / 3
"""How much of that a user's statement gains where the question says neither "I" nor "you"."""
WHOLE: Final = 1.6
"""The sum of all that is taken for complete relevance; hardly a memory gets there."""
COMMON: Final = 0.9
"""How much of the best candidates' mean is taken off."""
BEST_OF_SESSION: Final = 3

Summand = tuple[str, float, float]
"""Name, value and weight: a :class:`~engramlog.schemas.recalls.ScorePart` before it is told."""

_FIRST_PERSON = re.compile(r"\b(?:i|me|my|mine|myself|we|us|our|ours)\b|[我俺咱私僕]", re.IGNORECASE)
_SECOND_PERSON = re.compile(r"\b(?:you|your|yours|yourself)\b|[你您]|あなた", re.IGNORECASE)
_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Question:
    """What is looked for.

    Attributes:
        text: The text.
        weights: Its terms and their weights, see :func:`rarity`.
        vector: Its vector, ``(dimension,)``; None: it has none.
        saturation: The most that one occurrence of a term can bring, ``k1 + 1`` of BM25.
    """

    text: str
    weights: Mapping[str, float]
    vector: Matrix | None
    saturation: float = 1.9

    def covered(self, words: float) -> float:
        """BM25 as a share of the most that the question could reach, to the power of :data:`STEEPNESS`: 0 to 1."""
        most = self.saturation * sum(self.weights.values())
        return min(1.0, words / most) ** STEEPNESS if most > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class Common:
    """What the best candidates have in common, for comparing without it.

    Attributes:
        mean: Their mean times :data:`COMMON`.
        question: The question without it, at unit length.
    """

    mean: Matrix
    question: Matrix

    def similarities(self, vectors: Sequence[Matrix]) -> list[float]:
        """Of each memory's chunks the nearest one's similarity, -1 to 1."""
        if not vectors:
            return []
        rest = np.concatenate(vectors) - self.mean
        found = (rest @ self.question) / np.maximum(np.linalg.norm(rest, axis=1), 1e-9)
        begins = np.cumsum([0, *(len(rows) for rows in vectors[:-1])])
        return [float(best) for best in np.maximum.reduceat(found, begins)]


@dataclass(frozen=True, slots=True)
class Own:
    """What a memory scores by itself.

    Attributes:
        dense: Similarity in meaning, -1 to 1; None: it has no vector, or none was asked for.
        words: The share of the question that its words cover, 0 to 1, made steeper.
        speaker: How much the question is about what its speaker said, 0 to 2.
    """

    dense: float | None
    words: float
    speaker: float

    @property
    def total(self) -> float:
        """The weighted sum."""
        return DENSE * (self.dense or 0.0) + WORDS * self.words + SPEAKER * self.speaker


@dataclass(frozen=True, slots=True)
class Relevance:
    """How well a memory fits a question.

    Attributes:
        own: What it scores by itself.
        neighbours: What the turns before and after it score.
        session: The mean of the best three of its session.
    """

    own: Own
    neighbours: float = 0.0
    session: float = 0.0

    @property
    def total(self) -> float:
        """The weighted sum of it all."""
        return sum(value * weight for _, value, weight in self.summands())

    @property
    def value(self) -> float:
        """0 to 1: see :func:`share`."""
        return share(self.total)

    def summands(self) -> tuple[Summand, ...]:
        """What it is made of, as far as it played a role."""
        own = self.own
        return (
            *(() if own.dense is None else (("dense", own.dense, DENSE),)),
            ("words", own.words, WORDS),
            *((("neighbours", self.neighbours, NEIGHBOURS),) if self.neighbours else ()),
            *((("session", self.session, SESSION),) if self.session else ()),
            *((("speaker", own.speaker, SPEAKER),) if own.speaker else ()),
        )


def share(total: float) -> float:
    """A total of relevance over :data:`WHOLE`, within 0 to 1."""
    return min(1.0, max(0.0, total / WHOLE))


def rarity(total: int, count: int) -> float:
    """Inverse document frequency: ``ln(1 + (total - count + 0.5) / (count + 0.5))``, as in BM25; above 0."""
    count = min(count, total)
    return log(1.0 + (total - count + 0.5) / (count + 0.5))


def common(question: Matrix | None, candidates: Sequence[Candidate], *, best: int) -> Common | None:
    """What the ``best`` candidates by cosine have in common. None: fewer than two have a vector."""
    if question is None:
        return None
    there = [c for c in candidates if c.vector is not None and c.dense is not None]
    there.sort(key=lambda c: (-(c.dense or 0.0), c.position, c.record_id))
    nearest = [_nearest(c.vector, question) for c in there[:best] if c.vector is not None]
    if len(nearest) < 2:  # noqa: PLR2004 - a mean of one is that one, and nothing is left of it
        return None
    rows = np.asarray(nearest, dtype=np.float64)
    mean = COMMON * rows.mean(axis=0)
    rest = np.asarray(question, dtype=np.float64) - mean
    length = float(np.linalg.norm(rest))
    if length < 1e-6:  # noqa: PLR2004 - the question is the mean itself
        return None
    return Common(mean.astype(np.float32), (rest / length).astype(np.float32))


def _nearest(rows: Matrix | None, question: Matrix) -> Matrix:
    assert rows is not None
    found: Matrix = rows[int(np.argmax(rows @ question))]
    return found


def own_scores(question: Question, candidates: Sequence[Candidate], *, shared: Common | None) -> list[Own]:
    """What each candidate scores by itself.

    Args:
        question: What is looked for.
        candidates: What was found, each with both scores.
        shared: See :func:`common`; None: the plain cosines are compared.
    """
    meanings = [c.dense for c in candidates]
    if shared is not None:
        there = [(i, c.vector) for i, c in enumerate(candidates) if c.vector is not None and c.dense is not None]
        meanings = [None] * len(candidates)
        for (i, _), similarity in zip(there, shared.similarities([rows for _, rows in there]), strict=True):
            meanings[i] = similarity
    addressed = _addressed(question.text, candidates)
    return [
        Own(meaning, question.covered(c.words), bonus)
        for c, meaning, bonus in zip(candidates, meanings, addressed, strict=True)
    ]


def relevances(candidates: Sequence[Candidate], own: Sequence[Own]) -> list[Relevance]:
    """How well each candidate fits, its neighbours and its session considered; the order of the candidates is nothing.

    Neighbours that are no candidates themselves support nobody: to look them up gains nothing (measured).

    Args:
        candidates: What was found.
        own: What each scores by itself, see :func:`own_scores`.
    """
    totals = [score.total for score in own]
    places = {(c.session, c.turn): total for c, total in zip(candidates, totals, strict=True) if c.session}
    sessions = _sessions(candidates, totals)
    return [
        Relevance(score, _beside(places, c), sessions.get(c.session, 0.0))
        for c, score in zip(candidates, own, strict=True)
    ]


def _beside(places: Mapping[tuple[str, int], float], candidate: Candidate) -> float:
    if not candidate.session:
        return 0.0
    before, after = (places.get((candidate.session, candidate.turn + step), 0.0) for step in (-1, 1))
    return BEFORE * max(0.0, before) + max(0.0, after)


def _sessions(candidates: Sequence[Candidate], own: Sequence[float]) -> dict[str, float]:
    scores: dict[str, list[float]] = {}
    for c, score in zip(candidates, own, strict=True):
        if c.session:
            scores.setdefault(c.session, []).append(score)
    return {s: sum(sorted(found, reverse=True)[:BEST_OF_SESSION]) / BEST_OF_SESSION for s, found in scores.items()}


def _addressed(text: str, candidates: Sequence[Candidate]) -> list[float]:
    """How much the question asks for what each speaker said: by name, or as "I" and "you"."""
    asked = {name for name in {c.speaker for c in candidates if c.speaker} if is_named(text, name)}
    sides = addressed_sides(text)
    value = dict.fromkeys(sides, 1.0) if len(sides) == 1 else {} if sides else {"user": UNSAID}
    return [value.get(c.role, 0.0) + (1.0 if c.speaker in asked else 0.0) for c in candidates]


def is_named(text: str, name: str) -> bool:
    """Whether a text names someone: by the whole name, or by its first word."""
    folded, whole = text.casefold(), name.casefold().strip()
    first = whole.split(maxsplit=1)[0] if whole else ""
    return any(_stands_in(folded, part) for part in {whole, first} if len(part) > 1)


def _stands_in(text: str, name: str) -> bool:
    if not name.isascii():
        return name in text
    return re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])", text) is not None


def addressed_sides(text: str) -> frozenset[str]:
    """Whose statements a question may be about: "I" the user's, "you" the assistant's."""
    found = (("user", _FIRST_PERSON), ("assistant", _SECOND_PERSON))
    return frozenset(role for role, pattern in found if pattern.search(text))


def summands(relevance: float, candidate: Candidate, weights: Weights, *, now: datetime) -> tuple[Summand, ...]:
    """What a memory's score is the sum of.

    ``relevance``: ``semantic·relevance + importance·importance + recency·0.5^(age_days/half_life_days)``.
    ``cosine``: ``semantic·cosine + importance·importance - recency·min(age_hours/168, 1)``; ``relevance`` is the cosine
    then. What happens in the future has the age 0.
    """
    age_s = max(0.0, (now - candidate.happened).total_seconds())
    if weights.formula == "cosine":
        recency = ("recency", min(age_s / 3_600.0 / SEEDS_WEEK_HOURS, 1.0), -weights.recency)
    else:
        recency = ("recency", 0.5 ** (age_s / _DAY_S / weights.half_life_days), weights.recency)
    return ("semantic", relevance, weights.semantic), ("importance", candidate.importance, weights.importance), recency


def total_of(parts: Sequence[Summand]) -> float:
    """The score."""
    return sum(value * weight for _, value, weight in parts)


def told(parts: Sequence[Summand]) -> tuple[ScorePart, ...]:
    """The same for the explanation."""
    return tuple(ScorePart(name=name, value=value, weight=weight) for name, value, weight in parts)
