"""Recent turns in units that are in a context as a whole or not at all: a tool call stands with all its results.

OpenAI refuses a call whose results do not follow it at once, and a result without its call. So results are moved up
behind their call where something was said in between; a call without all of its results, and a result without its
call, are in no context. A call that has no id is answered by the function message that follows it (the legacy format).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from engramlog.engine.context.material import Turn
from engramlog.schemas.records import MemoryRecord


@dataclass(frozen=True, slots=True)
class Unit:
    """A turn, or a tool call with its results.

    Attributes:
        turns: Its turns, in the order in which they are shown.
    """

    turns: tuple[Turn, ...]

    @property
    def is_group(self) -> bool:
        """Whether it is a tool call with its results."""
        return len(self.turns) > 1

    @property
    def position(self) -> int:
        """Where it begins."""
        return self.turns[0].position

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of its records."""
        return tuple(turn.record.record_id for turn in self.turns)


@dataclass(frozen=True, slots=True)
class Grouped:
    """Turns in units.

    Attributes:
        units: The units, oldest first.
        broken: Turns that are in none: calls without all results, results without their call.
    """

    units: tuple[Unit, ...]
    broken: tuple[Turn, ...]


@dataclass(slots=True)
class _Call:
    """A call that is being answered: ``need`` says how many results each id wants."""

    turn: Turn
    need: Counter[str]
    results: dict[str, list[Turn]]

    def whole(self) -> Unit | None:
        """The unit, with the newest results of each id; None: not all are there."""
        if any(len(self.results.get(call_id, ())) < count for call_id, count in self.need.items()):
            return None
        kept = [turn for call_id, count in self.need.items() for turn in self.results[call_id][-count:]]
        return Unit((self.turn, *sorted(kept, key=lambda turn: turn.position)))


def grouped(turns: Sequence[Turn]) -> Grouped:
    """Put turns, oldest first, into units."""
    calls: list[_Call] = []
    open_calls: dict[str, _Call] = {}
    units: list[Unit] = []
    before: Turn | None = None
    for turn in turns:
        record = turn.record
        if record.role == "assistant" and record.tool_calls:
            call = _Call(turn, Counter(_ids(record)), {})
            calls.append(call)
            open_calls.update(dict.fromkeys(call.need, call))
        elif record.role in {"tool", "function"}:
            _answer(turn, before, open_calls)
        else:
            units.append(Unit((turn,)))
        before = turn
    units += [unit for call in calls if (unit := call.whole()) is not None]
    units.sort(key=lambda unit: unit.position)
    placed = {turn.position for unit in units for turn in unit.turns}
    return Grouped(tuple(units), tuple(turn for turn in turns if turn.position not in placed))


_LEGACY = ""  # stands for the id of a call that has none


def _ids(record: MemoryRecord) -> list[str]:
    return [call_id if isinstance(call_id := call.get("id"), str) else _LEGACY for call in record.tool_calls]


def _answer(turn: Turn, before: Turn | None, open_calls: dict[str, _Call]) -> None:
    record = turn.record
    if record.role == "tool":
        answered = record.tool_call_id or record.record_id
        call = open_calls.get(answered)
    else:
        answered = _LEGACY
        call = open_calls.get(answered)
        call = call if call is not None and before is call.turn else None
    if call is not None:
        call.results.setdefault(answered, []).append(turn)
