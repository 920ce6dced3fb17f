"""What is not in a context, and why."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from engramlog.schemas.contexts import LeftOut, Section, WhyLeftOut

MAX_LISTED: Final = 200
_ORDER: Final[dict[Section, int]] = {"head": 0, "core": 1, "summaries": 2, "recalled": 3, "recent": 4}


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that is not in.

    Attributes:
        id: The record or summary.
        section: Where it would have stood.
        why: Why it is not in.
        score: Its score.
        position: Its place within the section; a higher one is newer, or better.
        tokens: Counts its tokens; asked only if it is listed.
    """

    id: str
    section: Section
    why: WhyLeftOut
    score: float
    position: int
    tokens: Callable[[], int]


def listed(missing: Iterable[Missing]) -> tuple[tuple[LeftOut, ...], int]:
    """The best and newest of what is missing, at most :data:`MAX_LISTED`, and how much is missing in all."""
    order = sorted(missing, key=lambda one: (-one.score, _ORDER[one.section], -one.position))
    shown = tuple(
        LeftOut(id=one.id, section=one.section, why=one.why, tokens=one.tokens(), score=one.score)
        for one in order[:MAX_LISTED]
    )
    return shown, len(order)
