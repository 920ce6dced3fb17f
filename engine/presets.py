"""Weights and limits for kinds of use, and what a request makes of them."""

from dataclasses import dataclass, replace
from typing import Final, Literal

from engramlog.schemas.errors import RequestRefused
from engramlog.schemas.recalls import PresetName, RecallQuery
from engramlog.schemas.scope import Scope

Formula = Literal["relevance", "cosine"]

CANDIDATES: Final = 100
"""How many memories each way of searching contributes. With 50 the benchmark loses two points of recall@10, more than
100 gain nothing."""
SEEDS_WEEK_HOURS: Final = 168.0
"""Age in hours at which the recency of ``agent_recall`` is used up."""


@dataclass(frozen=True, slots=True)
class Weights:
    """How memories are looked for and weighed.

    Attributes:
        formula: ``relevance``: meaning, words and what supports them, and recency that halves. ``cosine``: the seed's
            ``cosine + importance - 0.5·min(hours/168, 1)``; ``recency`` is its 0.5 then.
        semantic: Weight of relevance, or of the cosine.
        importance: Weight of importance.
        recency: Weight of recency.
        half_life_days: Age in days at which recency has halved.
        limit: At most so many memories.
        candidates: So many from each way of searching.
        diversity: 0: the best ones; towards 1: rather different ones.
        always_s: What happened in the last so many seconds is a candidate, however little it resembles the question.
        needs_user: Whether the request must name a user.
    """

    formula: Formula = "relevance"
    semantic: float = 1.0
    importance: float = 0.1
    recency: float = 0.02
    half_life_days: float = 30.0
    limit: int = 10
    candidates: int = CANDIDATES
    diversity: float = 0.0
    always_s: float = 0.0
    needs_user: bool = False


# With 0.2 and 0.1, importance and recency outweigh what lies between the best memory and the next: they cost LoCoMo 2.5
# points of recall@10, and a seventh of the Chinese questions their first place. No benchmark spoke against the others.
PRESETS: Final[dict[PresetName, Weights]] = {
    "assistant": Weights(),
    "customer_service": Weights(recency=0.5, half_life_days=1.0, always_s=600.0, needs_user=True),
    "coding": Weights(importance=0.4, recency=0.1),  # filters: project_id, file_path of the metadata
    "research": Weights(semantic=1.2, importance=0.2, recency=0.02, limit=20),  # with the filter topics
    "agent_recall": Weights(formula="cosine", importance=1.0, recency=0.5, limit=5),
    "dual_source": Weights(limit=3),
}


def resolved(query: RecallQuery) -> Weights:
    """The preset's weights with the request's own in their places.

    ``agent_recall`` fetches three times as many as it returns; every preset at least as many as it returns.
    """
    names = ("semantic", "importance", "recency", "half_life_days", "limit", "candidates", "diversity")
    stated = {name: value for name in names if (value := getattr(query, name)) is not None}
    weights = replace(PRESETS[query.preset], **stated)
    if weights.formula == "cosine" and query.candidates is None:
        return replace(weights, candidates=3 * weights.limit)
    return replace(weights, candidates=max(weights.candidates, weights.limit))


def check_scope(weights: Weights, scope: Scope, preset: PresetName) -> None:
    """Refuse a request without the user that its preset needs.

    Raises:
        RequestRefused: There is none.
    """
    if weights.needs_user and scope.user is None:
        raise RequestRefused("bad_request", f"the preset {preset!r} needs a user: name whose memories are meant")
