"""Answers: windows with scores and pages, records by id, counts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from sqlalchemy import func, select

from engramlog.engine.history.bodies import load
from engramlog.engine.history.narrowing import narrowed
from engramlog.engine.history.prepared import Snapshot
from engramlog.engine.history.summaries import covered_of
from engramlog.engine.history.tables import AnyRow
from engramlog.engine.history.view import View, instant
from engramlog.engine.history.window import Cut, Streams, rows_in, streams_of, users_of
from engramlog.schemas.queries import (
    ContextRecord,
    HistoryAnswer,
    HistoryQuery,
    Page,
    Reached,
    RecordsAnswer,
    StatsAnswer,
    StoredRecord,
)
from engramlog.schemas.records import Wire
from engramlog.schemas.scope import Scope

A = TypeVar("A")
PROTECTED = ("system", "developer")
"""Roles of a first record that always comes first and never decays."""

_ROWS = 1_000  # positions fetched at once


@dataclass(frozen=True, slots=True)
class Read(Generic[A]):
    """An answer and what it has seen.

    Attributes:
        answer: The answer.
        reached: The checkpoint of the agent's partition in the same snapshot; empty: nothing was applied yet.
    """

    answer: A
    reached: tuple[Reached, ...]


@dataclass(frozen=True, slots=True)
class _Source:
    """What one reading of a window reads from."""

    snapshot: Snapshot
    scope: Scope
    view: View
    streams: Streams

    def rows(self, cut: Cut) -> list[AnyRow]:
        return rows_in(self.snapshot, self.streams, self.view, cut)

    def stored(self, rows: Sequence[AnyRow]) -> list[StoredRecord]:
        ids = [row.record_id for row in rows]
        found = load(self.snapshot, self.scope, ids, self.view)
        return [found[i] for i in ids]


def window_of(
    snapshot: Snapshot, scope: Scope, query: HistoryQuery, *, place: tuple[str, int], end: int, max_bytes: int
) -> HistoryAnswer:
    """One page of a window.

    Args:
        snapshot: What is read.
        scope: Whose, as whom.
        query: What is asked.
        place: Topic of the records, and the agent's partition of it.
        end: The offset that the database has reached, -1 for none.
        max_bytes: See :meth:`History.read_history`.
    """
    page = query.page
    view = View.of(query.as_of, place, page=page.as_of if page else None)
    paging = page is not None and view.at == page.as_of
    streams, view = narrowed(snapshot, streams_of(snapshot, scope), view, end=end, paging=paging)
    source = _Source(snapshot, scope, view, streams)
    head = _head(source)
    if query.summaries:
        source = replace(source, streams=replace(streams, covered=covered_of(snapshot, streams, view)))
    rank = page.rank if page else 0
    given = _Given(query.keep_rate, rank, room=max_bytes)
    if head is not None and page is None:
        given.take_head(head)
    left = None if query.window is None else max(0, query.window - rank)
    before = page.before if page else None
    above = None if head is None else head.offset
    more, full = _fill(source, given, left=left, before=before, above=above)
    lowest = given.lowest if given.newest_first else before if before is not None else end + 1
    as_of = page.as_of if page else max(end, 0)
    return HistoryAnswer(
        kind="history",
        records=given.in_order(),
        truncated=more and not full,
        next_page=Page(before=lowest, rank=rank + len(given.newest_first), as_of=as_of) if full else None,
    )


class _Given:
    """What a page holds so far, newest first."""

    def __init__(self, keep_rate: float, rank: int, *, room: int) -> None:
        self.newest_first: list[ContextRecord] = []
        self.head: ContextRecord | None = None
        self.room = room
        self._keep_rate, self._rank = keep_rate, rank

    @property
    def lowest(self) -> int:
        return self.newest_first[-1].stored.offset

    def take_head(self, stored: StoredRecord) -> None:
        self.head = ContextRecord(stored=stored, score=1.0)
        self.room -= encoded_bytes(self.head)

    def take(self, stored: StoredRecord) -> bool:
        """Take the next older record; False: it does not fit."""
        score = self._keep_rate ** (self._rank + len(self.newest_first))
        record = ContextRecord(stored=stored, score=score)
        size = encoded_bytes(record)
        if size > self.room and (self.newest_first or self.head):
            return False
        self.newest_first.append(record)
        self.room -= size
        return True

    def in_order(self) -> tuple[ContextRecord, ...]:
        head = () if self.head is None else (self.head,)
        return (*head, *reversed(self.newest_first))


def _head(source: _Source) -> StoredRecord | None:
    """The protected head: the first record of the scope, if a system or developer speaks."""
    rows = source.rows(Cut(limit=1, newest=False))
    if not rows:
        return None
    (first,) = source.stored(rows)
    return first if first.record.role in PROTECTED else None


def head_position(snapshot: Snapshot, scope: Scope, view: View, streams: Streams) -> int | None:
    """Where the protected head lies; None: there is none."""
    head = _head(_Source(snapshot, scope, view, streams))
    return None if head is None else head.offset


def _fill(
    source: _Source, given: _Given, *, left: int | None, before: int | None, above: int | None
) -> tuple[bool, bool]:
    """Take records back in time until the window or the page is full, or nothing is left.

    Returns:
        Whether older records exist, and whether it was the page that was full.
    """
    while True:
        wanted = _ROWS if left is None else min(left, _ROWS)
        rows = source.rows(Cut(limit=wanted + 1, below=before, above=above))
        fitting = _fitting(rows[:wanted], given.room, any_way=not (given.newest_first or given.head))
        for stored in source.stored(fitting):
            if not given.take(stored):
                return True, True
        if len(fitting) < len(rows[:wanted]):
            if not fitting:
                return True, True
            before = fitting[-1].position
            left = None if left is None else left - len(fitting)
            continue
        if len(rows) <= wanted:
            return False, False
        if left is not None:
            left -= wanted
            if left == 0:
                return True, False
        before = fitting[-1].position


def _fitting(rows: Sequence[AnyRow], room: int, *, any_way: bool) -> Sequence[AnyRow]:
    """The first rows whose bodies may fit, so that no more are loaded than a page can hold."""
    for n, row in enumerate(rows):
        room -= row.size
        if room < 0:
            return rows[: max(n, int(any_way))]
    return rows


def encoded_bytes(value: Wire) -> int:
    """How many bytes a part of an answer takes in a reply."""
    return len(value.__pydantic_serializer__.to_json(value, exclude_defaults=True, exclude_none=True)) + 1


def records_by_id(snapshot: Snapshot, scope: Scope, record_ids: Sequence[str], *, max_bytes: int) -> RecordsAnswer:
    """Records by id, see :meth:`History.read_records`."""
    ids = list(dict.fromkeys(record_ids))
    sizes = _sizes(snapshot, scope, ids)
    present = [i for i in ids if i in sizes]
    records: list[StoredRecord] = []
    room, taken = max_bytes, 0
    while taken < len(present):
        batch: list[str] = []
        space = room
        for i in present[taken:]:
            space -= sizes[i]
            if space < 0 and (batch or records):
                break
            batch.append(i)
        found = load(snapshot, scope, batch, View())
        for i in batch:
            size = encoded_bytes(found[i])
            if size > room and records:
                return _records(ids, sizes, records, unread=present[taken:])
            records.append(found[i])
            room -= size
            taken += 1
        if not batch:
            break
    return _records(ids, sizes, records, unread=present[taken:])


def _records(
    ids: Sequence[str], sizes: dict[str, int], records: Sequence[StoredRecord], *, unread: Sequence[str]
) -> RecordsAnswer:
    missing = tuple(i for i in ids if i not in sizes)
    return RecordsAnswer(kind="records", records=tuple(records), missing=missing, unread=tuple(unread))


def _sizes(snapshot: Snapshot, scope: Scope, ids: Sequence[str]) -> dict[str, int]:
    """The sizes of the bodies that the scope may see, by id."""
    c = snapshot.tables.records.c
    found: dict[str, int] = {}
    for i in range(0, len(ids), 500):
        query = select(c.record_id, c.session_id, c.user_id, func.length(c.body)).where(
            c.tenant == scope.tenant, c.agent == scope.agent, c.record_id.in_(ids[i : i + 500])
        )
        for record_id, session, user, size in snapshot.connection.execute(query):
            # Sifted here: with a condition on the user, SQLite would walk through all of the user's records.
            if scope.session in {None, session} and (scope.users == "all" or user in users_of(scope)):
                found[record_id] = size  # noqa: PERF403 - two conditions read better so
    return found


def stats_of(snapshot: Snapshot, scope: Scope) -> StatsAnswer:
    """Counts of a scope: sums over its sessions."""
    s = snapshot.tables.sessions.c
    where = [s.tenant == scope.tenant, s.agent == scope.agent, s.records > 0]
    if scope.session is not None:
        where.append(s.session_id == scope.session)
    if scope.users == "own":
        where.append(s.user_id.in_(users_of(scope)))
    query = select(
        func.coalesce(func.sum(s.records), 0),
        func.coalesce(func.sum(s.visible), 0),
        func.count(func.nullif(s.session_id, "").distinct()),
        func.count(func.nullif(s.user_id, "").distinct()),
    ).where(*where)
    records, visible, sessions, users = (snapshot.connection.execute(query)).one()
    streams = streams_of(snapshot, scope)
    source = _Source(snapshot, scope, View(hidden_too=True), streams)
    first = source.rows(Cut(limit=1, newest=False))
    last = source.rows(Cut(limit=1))
    return StatsAnswer(
        kind="stats",
        records=int(records),
        visible=int(visible),
        sessions=sessions,
        users=users,
        first_recorded=instant(first[0].recorded_ms) if first else None,
        last_recorded=instant(last[0].recorded_ms) if last else None,
    )
