"""What may be recalled: the history decides, whatever the vectors still hold."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, exists, func, not_, or_, select

from engramlog.engine.history.bodies import load
from engramlog.engine.history.prepared import Snapshot
from engramlog.engine.history.tables import AnyRow
from engramlog.engine.history.view import NOW, View, instant_us
from engramlog.engine.history.window import users_of
from engramlog.schemas.queries import StoredRecord, TopicCount, TopicsAnswer, TopicsQuery
from engramlog.schemas.scope import Scope

LEAVING = ("recall", "both")
"""Scopes of marks that take records out of recall."""
_CHUNK = 500
_EPOCHS = 64
"""How many clears a search is told of; later ones first. The others are looked up for what it finds."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """A clear that reaches recall: what lies before it in its address is not recalled.

    Attributes:
        session: The session; None: all of the agent's.
        user: The user, ``""`` for shared records; None: everybody's.
        before: Records at lower offsets are meant.
    """

    session: str | None
    user: str | None
    before: int

    def covers(self, row: AnyRow) -> bool:
        """Whether a record (``session_id``, ``user_id``, ``position``) lies before it."""
        return (
            row.position < self.before
            and self.session in {None, row.session_id}
            and (self.user is None or self.user == row.user_id)
        )


def epochs_of(snapshot: Snapshot, scope: Scope, *, view: View = NOW, most: int | None = _EPOCHS) -> list[Epoch]:
    """The clears that concern what a scope sees, within a view, latest first; one for each address."""
    m = snapshot.tables.marks.c
    query = (
        select(m.session_id, m.user_id, m.users, func.max(m.position).label("before"))
        .where(m.tenant == scope.tenant, m.agent == scope.agent, m.kind == "cleared", m.scope.in_(LEAVING))
        .where(*view.mark_limits(m))
        .group_by(m.session_id, m.user_id, m.users)
        .order_by(func.max(m.position).desc())
    )
    if scope.users == "own":
        query = query.where(or_(m.users == "all", m.user_id.in_(users_of(scope))))
    if most is not None:
        query = query.limit(most)
    return [
        Epoch(row.session_id or None, None if row.users == "all" else row.user_id, row.before)
        for row in snapshot.connection.execute(query, view.values())
    ]


def recallable(
    snapshot: Snapshot, scope: Scope, record_ids: Iterable[str], *, view: View = NOW
) -> Mapping[str, StoredRecord]:
    """The records among these that the scope's user sees and that did not leave recall, as a view has them.

    What was extracted leaves with its sources. A record whose last copy lies behind the view is not among them.
    """
    stays = _staying(snapshot, scope, list(dict.fromkeys(record_ids)), view)
    found = load(snapshot, scope, [i for i, stay in stays.items() if stay], view)
    sources = {i: s.record.derived_from for i, s in found.items() if s.record.origin == "extracted"}
    if not sources:
        return found
    everyone = replace(scope, users="all")
    known = _staying(snapshot, everyone, sorted({source for named in sources.values() for source in named}), view)
    return {i: stored for i, stored in found.items() if _stands(known, sources.get(i, ()))}


def _staying(snapshot: Snapshot, scope: Scope, ids: Sequence[str], view: View) -> dict[str, bool]:
    """Of the records among these that the scope's user sees: whether they are recalled in a view."""
    epochs = epochs_of(snapshot, scope, view=view, most=None)
    found: dict[str, bool] = {}
    for i in range(0, len(ids), _CHUNK):
        rows = snapshot.connection.execute(_seen(snapshot, scope, ids[i : i + _CHUNK], view), view.values()).all()
        removed = _removed(snapshot, scope, [row.record_id for row in rows], view)
        for row in rows:
            stays = removed.get(row.record_id, -1) <= row.position
            found[row.record_id] = stays and not any(epoch.covers(row) for epoch in epochs)
    return found


def _stands(known: Mapping[str, bool], sources: Sequence[str]) -> bool:
    """Whether any source is still recalled; sources that are not known say nothing."""
    said = [known[source] for source in sources if source in known]
    return any(said) or not said


def core_of(snapshot: Snapshot, scope: Scope, *, view: View = NOW, most: int = 1_000) -> list[StoredRecord]:
    """The core memories of the agent that hold in a view, oldest first."""
    c = snapshot.tables.core.c
    query = select(c.record_id).where(c.tenant == scope.tenant, c.agent == scope.agent).limit(most)
    found = recallable(snapshot, scope, snapshot.connection.execute(query).scalars(), view=view)
    # A later copy of a record may be core no more.
    core = [stored for stored in found.values() if stored.record.layer == "core" and stored.invalidated is None]
    return sorted(core, key=lambda stored: stored.offset)


def _seen(snapshot: Snapshot, scope: Scope, ids: Sequence[str], view: View) -> Select[Any]:
    r = snapshot.tables.records.c
    query = select(r.record_id, r.session_id, r.user_id, r.position).where(
        r.tenant == scope.tenant, r.agent == scope.agent, r.record_id.in_(ids), *view.limits(r)
    )
    # "+": SQLite must not walk through all of a user's records instead of looking up the ids.
    return query if scope.users == "all" else query.where((r.user_id + "").in_(users_of(scope)))


def _removed(snapshot: Snapshot, scope: Scope, ids: Sequence[str], view: View) -> dict[str, int]:
    """The last removal from recall of each record, within a view."""
    t = snapshot.tables.targets.c
    query = (
        select(t.record_id, func.max(t.position).label("last"))
        .where(
            t.tenant == scope.tenant,
            t.agent == scope.agent,
            t.record_id.in_(ids),
            t.kind == "removed",
            t.scope.in_(LEAVING),
            *view.mark_limits(t),
        )
        .group_by(t.record_id)
    )
    return {row.record_id: row.last for row in snapshot.connection.execute(query, view.values())}


def topics_of(snapshot: Snapshot, scope: Scope, query: TopicsQuery, *, view: View = NOW) -> TopicsAnswer:
    """The topics of what can be recalled in a view, latest first. Costs a look at every record of the scope."""
    d, r = snapshot.tables.derived.c, snapshot.tables.records.c
    last = func.max(d.happened_us)
    wanted = (
        select(
            d.topic,
            func.count().label("records"),
            func.count(func.nullif(d.session_id, "").distinct()).label("sessions"),
            func.min(d.happened_us).label("first"),
            last.label("last"),
        )
        .join(
            snapshot.tables.records,
            and_(r.tenant == d.tenant, r.agent == d.agent, r.record_id == d.record_id),
        )
        .where(d.tenant == scope.tenant, d.agent == scope.agent, d.topic != "", *_still(snapshot, scope, view))
        .group_by(d.topic)
        .order_by(last.desc(), d.topic)
        .limit(query.limit + 1)
    )
    if scope.session is not None:
        wanted = wanted.where(d.session_id == scope.session)
    if scope.users == "own":
        wanted = wanted.where(d.user_id.in_(users_of(scope)))
    rows = snapshot.connection.execute(wanted, view.values()).all()
    return TopicsAnswer(
        kind="topics",
        topics=tuple(
            TopicCount(
                topic=row.topic,
                records=row.records,
                sessions=row.sessions,
                first=instant_us(row.first),
                last=instant_us(row.last),
            )
            for row in rows[: query.limit]
        ),
        truncated=len(rows) > query.limit,
    )


def _still(snapshot: Snapshot, scope: Scope, view: View) -> list[ColumnElement[bool]]:
    """What did not leave recall in a view, as conditions on the records."""
    r, t = snapshot.tables.records.c, snapshot.tables.targets.c
    removed = exists().where(
        t.tenant == r.tenant,
        t.agent == r.agent,
        t.record_id == r.record_id,
        or_(and_(t.kind == "removed", t.scope.in_(LEAVING)), t.kind == "invalidated"),
        t.position > r.position,
        *view.mark_limits(t),
    )
    found: list[ColumnElement[bool]] = [not_(removed), *view.limits(r)]
    for epoch in epochs_of(snapshot, scope, view=view):
        covered = [r.position < epoch.before]
        covered += [r.session_id == epoch.session] if epoch.session is not None else []
        covered += [r.user_id == epoch.user] if epoch.user is not None else []
        found.append(not_(and_(*covered)))
    return found
