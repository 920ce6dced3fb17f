"""The recent turns of a talk, as a context sees them."""

from collections.abc import Sequence
from dataclasses import dataclass

from engramlog.engine.context.groups import Unit, grouped
from engramlog.engine.context.material import Material, Turn, newest_user, turns_of


@dataclass(frozen=True, slots=True)
class Talk:
    """Recent turns.

    Attributes:
        turns: All of them, oldest first.
        newest: The newest user message; None: no user said anything.
        units: What may be in a context, in units that stand together, oldest first.
        broken: Turns inside the window that can be in no context: calls without all results, and the reverse.
        older: Turns before the window.
    """

    turns: tuple[Turn, ...]
    newest: Turn | None
    units: tuple[Unit, ...]
    broken: tuple[Turn, ...]
    older: tuple[Turn, ...]

    @classmethod
    def of(cls, material: Material, window: int | None) -> "Talk":
        """Read the recent turns; ``window``: how many at most, None: all."""
        turns = turns_of(material)
        newest = newest_user(turns)
        first = max(0, len(turns) - window) if window is not None else 0
        older: Sequence[Turn] = [turn for turn in turns[:first] if turn is not newest]
        inside = turns[first:]
        if newest is not None and newest.position < first:
            inside = [newest, *inside]
        found = grouped(inside)
        return cls(tuple(turns), newest, found.units, found.broken, tuple(older))
