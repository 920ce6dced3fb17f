"""Which recent turns are in: from the newest back, without holes, as far as the tokens reach."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from engramlog.engine.context.groups import Unit
from engramlog.engine.context.material import Sizes, Turn
from engramlog.engine.texts import content


class Walk:
    """The units that were taken so far. Once taken, a unit stays, so that more tokens never mean fewer turns.

    The walk stops at the first turn that does not fit. A tool call with its results that does not fit is passed over.
    The newest user message is taken from the start; whoever walks has set its tokens aside.
    """

    def __init__(self, units: Sequence[Unit], sizes: Sizes, newest: Turn | None) -> None:
        self._units = units
        self._sizes = sizes
        self._newest = newest.position if newest is not None else None
        self._taken = {unit.position: unit for unit in units if unit.position == self._newest}
        self._out: set[int] = set()
        self.spent = 0

    @property
    def taken(self) -> list[Unit]:
        """What is in, oldest first."""
        return [self._taken[position] for position in sorted(self._taken)]

    def ids(self) -> set[str]:
        """The ids of what is in."""
        return {record_id for unit in self._taken.values() for record_id in unit.ids}

    def texts(self) -> set[str]:
        """What is said in what is in."""
        return {content(turn.record) for unit in self._taken.values() for turn in unit.turns} - {""}

    def keep_out(self, ids: AbstractSet[str]) -> None:
        """Never take a unit of which a record is among these; what is taken stays."""
        self._out |= {unit.position for unit in self._units if not ids.isdisjoint(unit.ids)} if ids else set()

    def extend(self, allowance: int, *, after: int = -1, passing: AbstractSet[str] = frozenset()) -> None:
        """Take units, the newest first, as long as ``spent`` stays within the allowance, in tokens.

        Args:
            allowance: How many tokens all that is taken may have, without the newest user message.
            after: Only units that begin later than this position.
            passing: Ids of records that are passed over for now.
        """
        for unit in reversed(self._units):
            if unit.position <= after:
                return
            if unit.position in self._taken or unit.position in self._out:
                continue
            if passing and not passing.isdisjoint(unit.ids):
                continue
            cost = sum(self._sizes.tokens(turn.record) for turn in unit.turns)
            if self.spent + cost <= allowance:
                self._taken[unit.position] = unit
                self.spent += cost
            elif not unit.is_group:
                return

    def give_up(self, excess: int, *, before: int | None = None) -> int:
        """Give up the oldest units, but not the newest user message, until they had ``excess`` tokens, counted.

        Args:
            excess: How many tokens are too many.
            before: Only units that begin earlier than this position.

        Returns:
            How many tokens they had.
        """
        freed = 0
        for position in sorted(self._taken):
            if freed >= excess:
                break
            if position != self._newest and (before is None or position < before):
                freed += sum(self._sizes.counted(turn.record) for turn in self._taken.pop(position).turns)
        return freed
