"""Memory as it was, without a walk through all that is hidden by now: limits of the ranges to search.

They never change what is seen, they spare looking at rows that cannot be. What remains is a walk over records that
were removed one by one before the point of view, within the epoch that was open then.
"""

from dataclasses import replace

from sqlalchemy import func, select

from engramlog.engine.history.marks import HIDING
from engramlog.engine.history.prepared import Snapshot
from engramlog.engine.history.view import View
from engramlog.engine.history.window import Cut, Streams, rows_in
from engramlog.schemas.scope import Scope


def narrowed(snapshot: Snapshot, streams: Streams, view: View, *, end: int, paging: bool) -> tuple[Streams, View]:
    """The same view of the same streams, in narrower ranges.

    Args:
        snapshot: What is read.
        streams: The scope's streams.
        view: The point of view.
        end: The offset that the database has reached.
        paging: The view is a recent one, of the page before: few rows were hidden since.
    """
    if paging and view.ms is None:
        return streams, _spanned(snapshot, streams, view)
    if view.ms is not None:
        view = replace(view, ceiling=ceiling_of(snapshot, streams.scope, view.ms, end=end))
    if view.at is not None or view.ms is not None:
        streams = replace(streams, floors=_floors(snapshot, streams, view))
    return streams, view


def _spanned(snapshot: Snapshot, streams: Streams, view: View) -> View:
    """Between which positions rows were hidden since the view: costs those rows, usually none."""
    c = snapshot.tables.records.c
    query = select(func.min(c.position), func.max(c.position)).where(
        c.tenant == streams.scope.tenant, c.agent == streams.scope.agent, c.hidden_at > view.at
    )
    low, high = snapshot.connection.execute(query).one()
    return replace(view, span=(low, high) if low is not None else (0, -1))


def ceiling_of(snapshot: Snapshot, scope: Scope, ms: int, *, end: int) -> int:
    """A position that no row recorded until ``ms`` lies above, by bisection: log times rise with positions.

    Args:
        snapshot: What is read.
        scope: Whose rows: all of the agent's count.
        ms: The log time, milliseconds since the epoch.
        end: The offset that the database has reached.

    Returns:
        The position; -1: nothing was recorded until then.
    """
    agent = Streams(replace(scope, session=None, users="all"), users=None)
    low, high = 0, end + 1  # a row at or above ``high`` is later
    while low < high:
        middle = (low + high) // 2
        rows = rows_in(snapshot, agent, View(hidden_too=True), Cut(limit=1, newest=False, above=middle - 1))
        if rows and rows[0].recorded_ms <= ms:
            low = rows[0].position + 1
        else:
            high = middle
    return low - 1


def _floors(snapshot: Snapshot, streams: Streams, view: View) -> tuple[int, ...]:
    """For each stream the last clear of all of it within the view: whatever lies before is hidden in the view, too."""
    m = snapshot.tables.marks.c
    scope = streams.scope
    sessions = [""] if scope.session is None else ["", scope.session]
    query = (
        select(m.users, m.user_id, func.max(m.position))
        .where(m.tenant == scope.tenant, m.agent == scope.agent, m.kind == "cleared", m.session_id.in_(sessions))
        .where(m.scope.in_(HIDING), *view.mark_limits(m))
        .group_by(m.users, m.user_id)
    )
    found = snapshot.connection.execute(query, view.values()).all()
    return tuple(
        max((last for users, of, last in found if users == "all" or of == user), default=-1)
        for user in streams.users or (None,)
    )
