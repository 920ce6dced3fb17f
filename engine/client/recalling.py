"""What the client recalls: memories by meaning, weight and time, and the topics of the talk."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from engramlog.engine.client.asking import Asking, Seen
from engramlog.schemas import queries as q
from engramlog.schemas.scope import Position, Scope

Expand: TypeAlias = Literal["rules", "llm", "off"]
"""How pronouns and ellipsis of a question are resolved."""


@dataclass(frozen=True, slots=True)
class Recall:
    """Memories, and why they were found.

    Attributes:
        hits: Best first; memories that contradict each other stand together, and name each other in ``conflicts``.
        asked: What was looked for, if the text was expanded; None: the text as it was given.
        degraded: What could not be done as asked, for people; empty: nothing.
        now: The instant that ages and expiry were measured from.
        unread: How many more hits did not fit into the reply: ask for fewer.
        seen: What it was read from. ``seen.stale``: what was published last may be missing.
    """

    hits: tuple[q.RecallHit, ...]
    asked: str | None
    degraded: tuple[str, ...]
    now: datetime | None
    unread: int
    seen: Seen


@dataclass(frozen=True, slots=True)
class TopicList:
    """What was talked about.

    Attributes:
        topics: Latest first.
        truncated: There are more.
        seen: What it was read from.
    """

    topics: tuple[q.TopicCount, ...]
    truncated: bool
    seen: Seen


async def recall(
    ask: Asking,
    scope: Scope,
    query: q.RecallQuery | q.SimilarQuery,
    *,
    limit_s: float,
    min_positions: Sequence[Position],
) -> Recall:
    """See :meth:`MemoryClient.recall` and :meth:`MemoryClient.similar`."""
    answer, seen = await ask(scope, query, q.RecallAnswer, limit_s=limit_s, min_positions=min_positions)
    return Recall(answer.hits, answer.asked, answer.degraded, answer.now, answer.unread, seen)


async def list_topics(
    ask: Asking, scope: Scope, query: q.TopicsQuery, *, limit_s: float, min_positions: Sequence[Position]
) -> TopicList:
    """See :meth:`MemoryClient.topics`."""
    answer, seen = await ask(scope, query, q.TopicsAnswer, limit_s=limit_s, min_positions=min_positions)
    return TopicList(answer.topics, answer.truncated, seen)
