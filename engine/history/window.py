"""Which rows a scope sees from a point of view, newest or oldest first, at the cost of the rows asked for.

A scope is a handful of streams (an address each, e.g. the shared rows and the user's rows of a session), and each
stream is a range of an index that ends in ``hidden, position``. A query takes the first rows of each and merges them.
"""

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Integer,
    Select,
    and_,
    bindparam,
    func,
    literal_column,
    not_,
    or_,
    select,
    true,
    union_all,
)

from engramlog.engine.history.prepared import Snapshot, padded
from engramlog.engine.history.tables import AnyRow, Tables
from engramlog.engine.history.view import View
from engramlog.schemas.scope import Scope

_MERGED = 32  # users in one statement; SQLite merges at most 500 parts
_YES: ColumnElement[int] = literal_column("1")  # no parameters: partial indexes are found
_NO: ColumnElement[int] = literal_column("0")


@dataclass(frozen=True, slots=True)
class Stood:
    """What summaries stand for, in one stream.

    Attributes:
        below: Up to this position everything; -1: nothing.
        ranges: Ranges above it, first and last position inclusive.
    """

    below: int = -1
    ranges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Streams:
    """The addresses that make up a scope, each a prefix of an index of the records.

    Attributes:
        scope: The scope.
        users: The users whose rows are seen, ``""`` for the shared ones; None: everybody's, in one stream.
        floors: For each stream a position below which nothing that is hidden now is seen; empty: not known.
        covered: For each stream what summaries stand for: that is not seen, kept records apart; empty: nothing.
    """

    scope: Scope
    users: tuple[str, ...] | None
    floors: tuple[int, ...] = ()
    covered: tuple[Stood, ...] = ()

    def values(self) -> dict[str, str]:
        """The parameters that name the agent and the session."""
        found = {"tenant": self.scope.tenant, "agent": self.scope.agent}
        return found if self.scope.session is None else found | {"session": self.scope.session}


def streams_of(snapshot: Snapshot, scope: Scope) -> Streams:
    """The streams of a scope. With ``users="all"`` a session has one for each of its users."""
    if scope.users == "own":
        return Streams(scope, users_of(scope))
    if scope.session is None:
        return Streams(scope, None)
    s = snapshot.tables.sessions.c
    query = select(s.user_id).where(s.tenant == scope.tenant, s.agent == scope.agent, s.session_id == scope.session)
    return Streams(scope, tuple(snapshot.connection.execute(query).scalars()))


def users_of(scope: Scope) -> tuple[str, ...]:
    """Whose rows a scope sees with ``users="own"``: the shared ones, and the user's."""
    return ("",) if scope.user is None else ("", scope.user)


@dataclass(frozen=True, slots=True)
class Cut:
    """Which part of the rows.

    Attributes:
        limit: At most so many.
        newest: From the newest on, else from the oldest.
        below: Only lower positions; None: no limit.
        above: Only higher positions; None: no limit.
        said: Without what summaries never stand for.
    """

    limit: int
    newest: bool = True
    below: int | None = None
    above: int | None = None
    said: bool = False


def one_stream(streams: Streams, n: int) -> Streams:
    """One stream of several, without what summaries stand for."""
    assert streams.users is not None
    return Streams(streams.scope, (streams.users[n],), streams.floors[n : n + 1])


def rows_in(snapshot: Snapshot, streams: Streams, view: View, cut: Cut) -> list[AnyRow]:
    """The first rows of a cut, in its order: ``position``, ``record_id``, ``recorded_ms``, ``size`` of the body."""
    values = streams.values() | view.values() | {"limit": cut.limit, "below": cut.below, "above": cut.above}
    if streams.users is None:
        return _merged(snapshot, streams, view, cut, values | _numbered("floor", streams.floors))
    found: list[AnyRow] = []
    for i in range(0, len(streams.users), _MERGED):
        users = padded(list(streams.users[i : i + _MERGED]), prefix="user")
        floors = _numbered("floor", streams.floors[i : i + _MERGED], len(users))
        stood = streams.covered[i : i + _MERGED] + (Stood(),) * (len(users) - len(streams.covered[i : i + _MERGED]))
        part = replace(streams, users=tuple(users), covered=stood if streams.covered else ())
        found += _merged(snapshot, part, view, cut, values | users | floors | _covering(stood))
    if len(streams.users) > _MERGED:
        found.sort(key=lambda row: int(row.position), reverse=cut.newest)
    return found[: cut.limit]


def _numbered(name: str, positions: tuple[int, ...], length: int = 1) -> dict[str, int]:
    return {f"{name}{i}": positions[i] if i < len(positions) else -1 for i in range(length)}


def _covering(stood: tuple[Stood, ...]) -> dict[str, int]:
    """The positions that summaries stand for, as parameters; of each stream as many ranges, of nothing if need be."""
    found: dict[str, int] = {}
    for i, one in enumerate(stood):
        found[f"covered{i}"] = one.below
        for n in range(_ranges(stood)):
            found[f"first{i}_{n}"], found[f"last{i}_{n}"] = one.ranges[n] if n < len(one.ranges) else (-1, -2)
    return found


def _ranges(stood: tuple[Stood, ...]) -> int:
    """How many ranges a statement has for each stream: few numbers, so that there are few statements."""
    most = max((len(one.ranges) for one in stood), default=0)
    return 1 << (most - 1).bit_length() if most else 0


def _merged(snapshot: Snapshot, streams: Streams, view: View, cut: Cut, values: dict[str, Any]) -> list[AnyRow]:
    in_session, users = streams.scope.session is not None, streams.users
    bounded = (cut.below is not None, cut.above is not None)
    shape = (
        "window",
        in_session,
        users,
        bool(streams.floors),
        bool(streams.covered) and _ranges(streams.covered) + 1,
        view.shape(),
        cut.newest,
        cut.said,
        bounded,
    )
    return snapshot.rows(shape, lambda: _statement(snapshot.tables, streams, view, cut), values)


def _statement(tables: Tables, streams: Streams, view: View, cut: Cut) -> Select[Any]:
    """The statement of a shape; ``streams.users`` are names of parameters here."""
    c = tables.records.c
    limit = bindparam("limit", type_=Integer)
    bounds = view.limits(c)
    if cut.below is not None:
        bounds.append(c.position < bindparam("below"))
    if cut.above is not None:
        bounds.append(c.position > bindparam("above"))
    address: ColumnElement[bool] = and_(c.tenant == bindparam("tenant"), c.agent == bindparam("agent"))
    if streams.scope.session is not None:
        address = and_(address, c.session_id == bindparam("session"))
    each = [address] if streams.users is None else [and_(address, c.user_id == bindparam(u)) for u in streams.users]
    if cut.said:
        bounds.append(c.kept == _NO)
    parts: list[Select[Any]] = [
        select(c.position, c.record_id, c.recorded_ms, func.length(c.body).label("size"))
        .where(stream, state, open_part, *bounds)
        .order_by(c.position.desc() if cut.newest else c.position)
        .limit(limit)
        for i, stream in enumerate(each)
        for state in _states(view, c, floor=bindparam(f"floor{i}") if streams.floors else None)
        for open_part in _open_parts(streams, i, c)
    ]
    if len(parts) == 1:
        return parts[0]
    merged = union_all(*(select(part.subquery()) for part in parts)).subquery()
    order = merged.c.position.desc() if cut.newest else merged.c.position
    return select(merged).order_by(order).limit(limit)


def _open_parts(streams: Streams, i: int, c: Any) -> list[ColumnElement[bool]]:
    """What summaries leave of a stream, as ranges of an index: what lies above them, and what they never stand for."""
    if not streams.covered:
        return [true()]
    below: BindParameter[int] = bindparam(f"covered{i}")
    within = [
        c.position.between(bindparam(f"first{i}_{n}"), bindparam(f"last{i}_{n}"))
        for n in range(_ranges(streams.covered))
    ]
    above = and_(c.position > below, or_(c.kept == _YES, not_(or_(*within)))) if within else c.position > below
    return [above, and_(c.position <= below, c.kept == _YES)]


def _states(view: View, c: Any, *, floor: BindParameter[Any] | None) -> list[ColumnElement[bool]]:
    """The ranges of the index: what is visible, and what is hidden by now but was not then."""
    visible = c.hidden == 0
    if view.hidden_too:
        return [visible, c.hidden == 1]
    later: list[ColumnElement[bool]] = []
    if view.at is not None:
        later.append(c.hidden_at > bindparam("at"))
    if view.ms is not None:
        later.append(c.hidden_ms > bindparam("ms"))
    if not later or view.span == (0, -1):
        return [visible]
    hidden = and_(c.hidden == 1, or_(*later))
    if view.span is not None:
        hidden = and_(hidden, c.position >= bindparam("low"), c.position <= bindparam("high"))
    if floor is not None:
        hidden = and_(hidden, c.position > floor)
    return [visible, hidden]
