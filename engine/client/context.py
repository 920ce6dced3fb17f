"""What the client is given for an agent's model: a context under a budget, and the summaries of a talk."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypedDict

from engramlog.engine.client.asking import Asking, Seen
from engramlog.schemas import queries as q
from engramlog.schemas.json_values import JsonObject
from engramlog.schemas.scope import Position, Scope

RECALLED: Final = q.RecallPart()
"""What is recalled for a context where nothing else is said."""
NOTHING: Final = q.RecallPart(limit=0)
"""Nothing is recalled: ``null`` does not go over the wire, where an absent field means its default."""


@dataclass(frozen=True, slots=True)
class Context:
    """What an agent's model is to be given.

    Attributes:
        messages: OpenAI chat messages, in order.
        tokens: Their tokens, message overhead included; never above the budget.
        exact: Whether the model's encoding is known. If not, the tokens were counted with o200k_base.
        used: What each section holds.
        left_out: What is not in it and why, the newest and best first: at most 200.
        left_out_total: How many there are.
        recalled: Ids of the recalled memories, best first.
        summaries: Ids of the summaries, oldest first.
        degraded: What could not be done as asked, for people; empty: nothing.
        now: The instant that ages were measured from: ask with it again for the same bytes.
        seen: What it was read from. ``seen.stale``: what was published last may be missing.
    """

    messages: tuple[JsonObject, ...]
    tokens: int
    exact: bool
    used: tuple[q.Used, ...]
    left_out: tuple[q.LeftOut, ...]
    left_out_total: int
    recalled: tuple[str, ...]
    summaries: tuple[str, ...]
    degraded: tuple[str, ...]
    now: datetime | None
    seen: Seen


class ContextOptions(TypedDict, total=False):
    """What :meth:`MemoryClient.context` takes besides scope, budget and limit."""

    model: str | None
    window: int | None
    recall: q.RecallPart | None
    current_topic: str | None
    summaries: bool
    as_messages: bool
    wait_for_summary: bool
    keep_rate: float
    now: datetime | None
    min_positions: Sequence[Position]


@dataclass(frozen=True, slots=True)
class SummaryList:
    """Summaries of a scope.

    Attributes:
        summaries: Oldest first.
        truncated: There are older ones.
        seen: What it was read from.
    """

    summaries: tuple[q.StoredSummary, ...]
    truncated: bool
    seen: Seen


async def read_context(
    ask: Asking, scope: Scope, query: q.ContextQuery, *, limit_s: float, min_positions: Sequence[Position]
) -> Context:
    """See :meth:`MemoryClient.context`."""
    answer, seen = await ask(scope, query, q.ContextAnswer, limit_s=limit_s, min_positions=min_positions)
    return Context(
        messages=answer.messages,
        tokens=answer.tokens,
        exact=answer.exact,
        used=answer.used,
        left_out=answer.left_out,
        left_out_total=answer.left_out_total,
        recalled=answer.recalled,
        summaries=answer.summaries,
        degraded=answer.degraded,
        now=answer.now,
        seen=seen,
    )


async def list_summaries(
    ask: Asking, scope: Scope, query: q.SummariesQuery, *, limit_s: float, min_positions: Sequence[Position]
) -> SummaryList:
    """See :meth:`MemoryClient.list_summaries`."""
    answer, seen = await ask(scope, query, q.SummariesAnswer, limit_s=limit_s, min_positions=min_positions)
    return SummaryList(answer.summaries, answer.truncated, seen)
