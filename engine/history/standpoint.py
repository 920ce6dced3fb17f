"""Where a search of the past stands: its point of view, with the place and the instant that go with it."""

from dataclasses import dataclass, replace
from datetime import datetime

from engramlog.engine.history.narrowing import ceiling_of
from engramlog.engine.history.prepared import Snapshot
from engramlog.engine.history.view import NOW, View, instant
from engramlog.engine.history.window import Cut, Streams, rows_in
from engramlog.schemas.asking import AsOf
from engramlog.schemas.scope import Scope


@dataclass(frozen=True, slots=True)
class Standpoint:
    """A point of view that whatever is read for one answer shares.

    Attributes:
        view: What is seen. On the axis of log times it knows the position that nothing seen lies above.
        instant: The instant that it is; None: now. That of an offset is when the agent's last record until then was
            recorded; None, too, if there was none.
    """

    view: View = NOW
    instant: datetime | None = None

    @property
    def highest(self) -> int | None:
        """The position that nothing seen lies above, as far as the recorded axis says; None: no limit."""
        return self.view.at if self.view.ceiling is None else self.view.ceiling


HERE = Standpoint()
"""Memory as it is."""


def stand(snapshot: Snapshot, scope: Scope, as_of: AsOf, *, place: tuple[str, int], end: int) -> Standpoint:
    """Find out where a point in the past is. Costs a look for an offset, a bisection for a log time.

    Args:
        snapshot: What is read.
        scope: Whose memory.
        as_of: The point.
        place: Topic of the records, and the agent's partition of it.
        end: The offset that the database has reached, -1 for none.

    Raises:
        RequestRefused: It is of another log.
    """
    view = View.of(as_of, place)
    if view.ms is not None:
        return Standpoint(replace(view, ceiling=ceiling_of(snapshot, scope, view.ms, end=end)), as_of.recorded)
    if view.at is None:
        return Standpoint(view, as_of.happened)
    agent = Streams(replace(scope, session=None, users="all"), users=None)
    last = rows_in(snapshot, agent, View(hidden_too=True), Cut(limit=1, below=view.at + 1))
    return Standpoint(view, instant(last[0].recorded_ms) if last else None)
