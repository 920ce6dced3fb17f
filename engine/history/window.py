"""Which rows a scope sees from a point of view, newest or oldest first, at the cost of the rows asked for.

A scope is a handful of streams (an address each, e.g. the shared rows and the user's rows of a session), and each
stream is a range of an index that ends in ``hidden, position``. A query takes the first rows of each and merges them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, func, literal_column, or_, select, union_all

from engramlog.engine.history.tables import AnyRow, Tables
from engramlog.schemas.queries import HistoryQuery
from engramlog.schemas.scope import Scope

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ONE: ColumnElement[int] = literal_column("1")
"""Written out, so that SQLite can use the partial index of hidden rows."""

_MERGED = 50  # streams in one statement


@dataclass(frozen=True, slots=True)
class View:
    """A point of view. A row is seen when it is not later than any limit, and was not hidden within all of them.

    Attributes:
        at: Recorded axis: offset, inclusive; None: no limit.
        ms: Recorded axis: log time in milliseconds, inclusive.
        us: Happened axis: microseconds, inclusive.
        hidden_too: Removed rows are seen as well.
        span: Where rows lie that are hidden now and were not then, where known; narrows the search.
    """

    at: int | None = None
    ms: int | None = None
    us: int | None = None
    hidden_too: bool = False
    span: tuple[int, int] | None = None

    @classmethod
    def of(cls, query: HistoryQuery) -> "View":
        """The point of view of a query: its ``as_of``, within the snapshot that its first page had read."""
        as_of = query.as_of
        ats = [a for a in (query.page.as_of if query.page else None, as_of.offset if as_of else None) if a is not None]
        return cls(
            at=min(ats, default=None),
            ms=(as_of.recorded - EPOCH) // timedelta(milliseconds=1) if as_of and as_of.recorded else None,
            us=(as_of.happened - EPOCH) // timedelta(microseconds=1) if as_of and as_of.happened else None,
        )

    def limits(self, c: Any) -> list[ColumnElement[bool]]:
        """The conditions that hold for visible and hidden rows alike."""
        found: list[ColumnElement[bool]] = []
        if self.at is not None:
            found.append(c.position <= self.at)
        if self.ms is not None:
            found.append(c.recorded_ms <= self.ms)
        if self.us is not None:
            found.append(c.happened_us <= self.us)
        return found

    def mark_limits(self, c: Any) -> list[ColumnElement[bool]]:
        """The conditions for marks: those of the recorded axis."""
        return replace(self, us=None).limits(c)

    def before(self, row: Any) -> bool:
        """Whether a hidden row was not yet hidden."""
        return (self.at is not None and row.hidden_at > self.at) or (self.ms is not None and row.hidden_ms > self.ms)

    def states(self, c: Any) -> list[ColumnElement[bool]]:
        """The ranges of the index: what is visible, and what is hidden by now but was not then."""
        later: list[ColumnElement[bool]] = []
        if self.at is not None:
            later.append(c.hidden_at > self.at)
        if self.ms is not None:
            later.append(c.hidden_ms > self.ms)
        visible = c.hidden == 0
        if self.hidden_too:
            return [visible, c.hidden == ONE]
        if not later:
            return [visible]
        hidden = and_(c.hidden == ONE, or_(*later))
        if self.span is not None:
            hidden = and_(hidden, c.position >= self.span[0], c.position <= self.span[1])
        return [visible, hidden]


def streams_of(connection: Connection, tables: Tables, scope: Scope) -> list[ColumnElement[bool]]:
    """The addresses that make up a scope, each a prefix of an index of the records."""
    c = tables.records.c
    agent = and_(c.tenant == scope.tenant, c.agent == scope.agent)
    session = agent if scope.session is None else and_(agent, c.session_id == scope.session)
    if scope.users == "own":
        return [and_(session, c.user_id == user) for user in users_of(scope)]
    if scope.session is None:
        return [agent]
    s = tables.sessions.c
    query = select(s.user_id).where(s.tenant == scope.tenant, s.agent == scope.agent, s.session_id == scope.session)
    users = (connection.execute(query)).scalars().all()
    return [and_(session, c.user_id == user) for user in users]


def users_of(scope: Scope) -> list[str]:
    """Whose rows a scope sees with ``users="own"``: the shared ones, and the user's."""
    return [""] if scope.user is None else ["", scope.user]


def spanned(connection: Connection, tables: Tables, scope: Scope, view: View) -> View:
    """A later page's view, narrowed: costs the rows hidden since the first page, usually none."""
    c = tables.records.c
    query = select(func.min(c.position), func.max(c.position)).where(
        c.tenant == scope.tenant, c.agent == scope.agent, c.hidden == ONE, c.hidden_at > view.at
    )
    low, high = (connection.execute(query)).one()
    return replace(view, span=(low, high) if low is not None else (0, -1))


@dataclass(frozen=True, slots=True)
class Cut:
    """Which part of the rows.

    Attributes:
        limit: At most so many.
        newest: From the newest on, else from the oldest.
        below: Only lower positions; None: no limit.
        above: Only higher positions; None: no limit.
    """

    limit: int
    newest: bool = True
    below: int | None = None
    above: int | None = None


def rows_in(
    connection: Connection, table: Table, streams: Sequence[ColumnElement[bool]], view: View, cut: Cut
) -> list[AnyRow]:
    """The first rows of a cut, in its order: ``position``, ``record_id``, ``recorded_ms``, ``size`` of the body."""
    found: list[AnyRow] = []
    for i in range(0, len(streams), _MERGED):
        query = _merged(table, streams[i : i + _MERGED], view, cut)
        found += (connection.execute(query)).all()
    if len(streams) > _MERGED:
        found.sort(key=lambda row: int(row.position), reverse=cut.newest)
    return found[: cut.limit]


def _merged(table: Table, streams: Sequence[ColumnElement[bool]], view: View, cut: Cut) -> Any:
    c = table.c
    bounds = view.limits(c)
    if cut.below is not None:
        bounds.append(c.position < cut.below)
    if cut.above is not None:
        bounds.append(c.position > cut.above)
    parts: list[Select[Any]] = [
        select(c.position, c.record_id, c.recorded_ms, func.length(c.body).label("size"))
        .where(stream, state, *bounds)
        .order_by(c.position.desc() if cut.newest else c.position)
        .limit(cut.limit)
        for stream in streams
        for state in view.states(c)
    ]
    if len(parts) == 1:
        return parts[0]
    merged = union_all(*(select(part.subquery()) for part in parts)).subquery()
    order = merged.c.position.desc() if cut.newest else merged.c.position
    return select(merged).order_by(order).limit(cut.limit)
