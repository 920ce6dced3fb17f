"""Where a talk is cut for a summary: pure decisions over the turns of one session, oldest first."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engramlog.engine.history.due import Address, Due
from engramlog.engine.history.turns import Turn
from engramlog.schemas.summaries import Trigger

_NAMESPACE = uuid.UUID("6b1f9a0e-2c1f-5b39-8d8e-5a0c7f2d9b44")
_LEAST_TOKENS = 40
_LEAST_ROLLED = 2
_TOOL_ROLES = frozenset({"tool", "function"})


@dataclass(frozen=True, slots=True)
class CutPolicy:
    """When a summary is due, and of how much.

    Attributes:
        threshold_tokens: With more tokens that no summary covers, the oldest part is summarised.
        keep_tokens: As many of the newest tokens stay.
        messages: With more records than this the oldest ``batch`` are summarised; None: tokens alone count.
        batch: See ``messages``.
        budget_tokens: The context that summaries are made for.
        window_ratio: When the active summaries of a session exceed this share of it, the older half is rolled up.
    """

    threshold_tokens: int = 2_000
    keep_tokens: int = 1_000
    messages: int | None = None
    batch: int = 4
    budget_tokens: int = 4_000
    window_ratio: float = 0.6


def cuts(turns: Sequence[Turn], policy: CutPolicy, trigger: Trigger) -> list[list[Turn]]:
    """The parts that are due for a summary each, oldest first.

    The newest user message and what follows it stay, kept turns are passed over, and results stay with their calls.

    Args:
        turns: The turns that no summary covers, oldest first.
        policy: When a summary is due.
        trigger: ``idled``, ``ended`` and ``request``: all that may go, goes; else what is over the limits.
    """
    found: list[list[Turn]] = []
    rest = list(turns)
    whole = trigger in {"idled", "ended", "request"}
    while part := _first_part(rest, policy, whole=whole):
        found.append(part)
        taken, last = {turn.record_id for turn in part}, part[-1].position
        rest = [turn for turn in rest if turn.record_id not in taken and not (turn.kept and turn.position < last)]
    return found


def _first_part(turns: Sequence[Turn], policy: CutPolicy, *, whole: bool) -> list[Turn]:
    """The oldest part that is due; empty: nothing is."""
    said = [turn for turn in turns if not turn.kept]
    users = [n for n, turn in enumerate(said) if turn.role == "user"]
    free = said[: users[-1]] if users else said[:-1]
    if not free:
        return []
    count = _due(said, free, policy, whole=whole)
    together = _together(said, recent=users[-2] if len(users) > 1 else 0)
    while 0 < count < len(free) and (_tokens(free[:count]) < _LEAST_TOKENS or count in together):
        count += 1  # of next to nothing there is no summary, and results go with their calls
    while count in together:
        count -= 1
    part = list(free[:count])
    return part if _tokens(part) >= _LEAST_TOKENS else []


def _tokens(turns: Iterable[Turn]) -> int:
    return sum(turn.tokens for turn in turns)


def _together(said: Sequence[Turn], *, recent: int) -> set[int]:
    """Where no cut may be: before turn ``n`` there are calls whose results come from there on.

    A result that names no call belongs to the call, or the result, right before it. A call whose results are not there
    holds everything behind it only while it is recent: later nobody answers it any more.

    Args:
        said: The turns, oldest first.
        recent: From which turn on an unanswered call still waits.
    """
    asked: dict[str, int] = {}
    waiting: dict[str, int] = {}
    kept: set[int] = set()
    for n, turn in enumerate(said):
        if turn.calls:
            asked |= dict.fromkeys(turn.calls, n)
            waiting |= dict.fromkeys(turn.calls, n)
        elif turn.role in _TOOL_ROLES:
            at = asked.get(turn.answers, n - 1 if n and said[n - 1].tool else n)
            kept.update(range(at + 1, n + 1))
            waiting.pop(turn.answers, None)
    oldest = min((n for n in waiting.values() if n >= recent), default=len(said))
    return kept | set(range(oldest + 1, len(said) + 1))


def _due(said: Sequence[Turn], free: Sequence[Turn], policy: CutPolicy, *, whole: bool) -> int:
    """How many turns are due, from the oldest on."""
    limit = policy.threshold_tokens
    total = _tokens(said)
    if whole:
        return _up_to(free, limit)
    if total > limit:
        count = 0
        while count < len(free) and total > policy.keep_tokens:
            total -= free[count].tokens
            count += 1
        return min(count, _up_to(free, limit))
    if policy.messages is not None and len(said) > policy.messages:
        return min(policy.batch, len(free))
    return 0


def _up_to(turns: Sequence[Turn], limit: int) -> int:
    """How many turns one summary stands for at most, at least one."""
    total = 0
    for n, turn in enumerate(turns):
        total += turn.tokens
        if total > limit and n > 0:
            return n
    return len(turns)


def due_of(
    address: Address, part: Sequence[Turn], *, partition: int, at: int, trigger: Trigger, replaces: Sequence[str] = ()
) -> Due:
    """The summary of a part: its id is a function of what it covers."""
    ids = tuple(turn.record_id for turn in part)
    return Due(
        summary_id=_id(address, 1, ids),
        address=address,
        partition=partition,
        level=1,
        first=part[0].position,
        last=part[-1].position,
        record_ids=ids,
        at=at,
        tokens=_tokens(part),
        reason="erased" if trigger == "erased" else "new",
        trigger=trigger,
        replaces=tuple(replaces),
    )


def rolled_up(active: Sequence[Due], policy: CutPolicy) -> Due | None:
    """What is rolled up when the active summaries of a session, oldest first, exceed their share; None: nothing.

    The older half of the lowest level that has two or more.
    """
    if sum(due.made_tokens for due in active) <= policy.window_ratio * policy.budget_tokens:
        return None
    for level in sorted({due.level for due in active}):
        mine = [due for due in active if due.level == level]
        if len(mine) < _LEAST_ROLLED:
            continue
        part = mine[: max(_LEAST_ROLLED, len(mine) // 2)]
        ids = tuple(due.summary_id for due in part)
        return Due(
            summary_id=_id(part[0].address, level + 1, ids),
            address=part[0].address,
            partition=part[0].partition,
            level=level + 1,
            first=part[0].first,
            last=max(due.last for due in part),
            record_ids=tuple(i for due in part for i in due.record_ids)[:10_000],
            summary_ids=ids,
            at=max(due.at for due in part),
            tokens=sum(due.made_tokens for due in part),
            reason="rolled_up",
            trigger="rolled_up",
            replaces=ids,
        )
    return None


def _id(address: Address, level: int, ids: Sequence[str]) -> str:
    return str(uuid.uuid5(_NAMESPACE, "\0".join((*address, str(level), *ids))))
