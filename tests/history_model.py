"""What a history must say, in the plainest way: a fold over the log that keeps last copies, and derives all else."""

from dataclasses import dataclass, field
from typing import Any

from engramlog.engine.log import Entry
from engramlog.schemas.envelope import HistoryClearedEvent, RecordsRemovedEvent, ScopeErasedEvent
from engramlog.schemas.queries import AsOf
from engramlog.schemas.scope import Scope

Id = tuple[str, str, str]


def kind(entry: Entry) -> str:
    return str(entry.event.type).split(".")[2]  # type: ignore[union-attr]


def names(entry: Entry) -> tuple[str, ...]:
    data: Any = entry.event.data  # type: ignore[union-attr]
    if isinstance(entry.event, RecordsRemovedEvent):
        return tuple(data.ids)
    return (data.id,) if kind(entry) in {"corrected", "invalidated"} else ()


def effect(mark: Entry) -> int:
    """The position before which a mark touches records."""
    at = getattr(mark.event.data, "at", None)  # type: ignore[union-attr]
    return mark.offset if at is None else min(at, mark.offset)


@dataclass
class Model:
    records: dict[Id, Entry] = field(default_factory=dict)
    marks: dict[Id, tuple[Entry, frozenset[str]]] = field(default_factory=dict)
    erased: set[Id] = field(default_factory=set)
    erased_marks: set[Id] = field(default_factory=set)
    forgotten: set[bytes] = field(default_factory=set)
    """Keys that whoever erases must tombstone, late arrivals included."""

    def apply(self, entry: Entry) -> None:
        key, event = entry.key, entry.event
        if key.record_id is not None:
            self._record(entry, (key.tenant, key.agent, key.record_id))
        elif isinstance(event, ScopeErasedEvent):
            self._erase(entry)
        else:
            self._mark(entry, (key.tenant, key.agent, key.event_id or ""))

    def _record(self, entry: Entry, at: Id) -> None:
        if entry.event is None:
            self.records.pop(at, None)
        elif at in self.erased:
            self.forgotten.add(entry.event.key())
        else:
            self.records[at] = entry

    def _mark(self, entry: Entry, at: Id) -> None:
        if entry.event is None:
            self.marks.pop(at, None)
            return
        named = names(entry)
        left = frozenset(i for i in named if (*at[:2], i) not in self.erased)
        if at in self.erased_marks:
            self.forgotten.add(entry.event.key())
        elif named and not left:
            self.marks.pop(at, None)
            self.forgotten.add(entry.event.key())
        else:
            self.marks[at] = (entry, left)

    def _erase(self, entry: Entry) -> None:
        event: Any = entry.event
        scope, at = event.data.scope, (event.tenantid, event.agentid or "", event.id)
        self.marks.pop(at, None)

        def covers(other: Any, id_: str) -> bool:
            if other.tenantid != event.tenantid or event.agentid not in {None, other.agentid}:
                return False
            if scope == "record":
                return id_ in event.data.record_ids
            if scope == "session":
                return bool(other.sessionid == event.sessionid)
            return scope != "user" or bool(other.userid == event.userid)

        gone = {i for i, e in self.records.items() if covers(e.event, i[2])}
        self.erased |= gone | {(event.tenantid, event.agentid, i) for i in event.data.record_ids}
        for i in gone:
            self.forgotten.add(self.records.pop(i).event.key())  # type: ignore[union-attr]
        for i, (mark, targets) in list(self.marks.items()):
            left = frozenset(t for t in targets if (*i[:2], t) not in self.erased)
            published_in_it = scope != "record" and covers(mark.event, "")
            holds_others = (scope in {"session", "user"} and kind(mark) == "removed") or (
                scope == "user" and isinstance(mark.event, HistoryClearedEvent) and mark.event.data.users == "all"
            )
            if (targets and not left) or (published_in_it and not holds_others):
                del self.marks[i]
                self.forgotten.add(mark.event.key())  # type: ignore[union-attr]
                if kind(mark) in {"corrected", "invalidated", "ended"}:
                    self.erased_marks.add(i)
            else:
                self.marks[i] = (mark, left)

    def hidden_by(self, record: Entry) -> list[Entry]:
        """The marks that take a record out of the window, the first one first."""
        hiding = [m for m, targets in self.marks.values() if self._hides(m, targets, record)]
        return sorted(hiding, key=effect)

    def _hides(self, mark: Entry, targets: frozenset[str], record: Entry) -> bool:
        m: Any = mark.event
        r: Any = record.event
        if (m.tenantid, m.agentid) != (r.tenantid, r.agentid) or effect(mark) <= record.offset:
            return False
        if getattr(m.data, "scope", None) not in {"window", "both"}:
            return False
        if isinstance(m, RecordsRemovedEvent):
            return r.data.record_id in targets
        return m.sessionid in {None, r.sessionid} and (m.data.users == "all" or m.userid == r.userid)

    def _seen(self, scope: Scope) -> list[Entry]:
        found = []
        for record in self.records.values():
            r: Any = record.event
            if (r.tenantid, r.agentid) != (scope.tenant, scope.agent) or scope.session not in {None, r.sessionid}:
                continue
            if scope.users == "all" or r.userid in {None, scope.user}:
                found.append(record)
        return sorted(found, key=lambda e: e.offset)

    def history(self, scope: Scope, n: int | None, as_of: AsOf | None) -> tuple[list[tuple[Any, ...]], bool]:
        """What a window shows (id, content, invalidated by, removed at, steps back or None), and ``truncated``."""

        def within(entry: Entry) -> bool:
            if as_of is None or as_of.happened is not None:
                return True
            if as_of.offset is not None:
                return (entry.offset if entry.key.record_id else effect(entry)) <= as_of.offset
            assert as_of.recorded is not None
            return entry.recorded_ms <= as_of.recorded.timestamp() * 1000

        visible = []
        for record in self._seen(scope):
            hidden = any(within(mark) for mark in self.hidden_by(record))
            happened: Any = record.event.data.timestamp  # type: ignore[union-attr]
            late = as_of is not None and as_of.happened is not None and happened > as_of.happened
            if within(record) and not late and not hidden:
                visible.append(record)
        head = [r for r in visible[:1] if r.event.data.role in {"system", "developer"}]  # type: ignore[union-attr]
        rest = visible[len(head) :]
        shown = rest if n is None else rest[len(rest) - min(n, len(rest)) :]
        steps = [None] * len(head) + [len(shown) - 1 - i for i in range(len(shown))]
        rows = [(*self.shown(r, within), step) for r, step in zip([*head, *shown], steps, strict=True)]
        return rows, len(rest) > len(shown)

    def shown(self, record: Entry, within: Any = lambda _: True) -> tuple[Any, ...]:
        """A record as it is read: id, offset, content, corrected at, invalidated at, removed at."""
        event: Any = record.event
        last: dict[str, Entry] = {}
        for mark, targets in sorted(
            self.marks.values(), key=lambda m: (effect(m[0]), m[0].recorded_ms, m[0].key.event_id)
        ):
            same = mark.key.tenant == record.key.tenant and mark.key.agent == record.key.agent
            if same and event.data.record_id in targets and effect(mark) > record.offset and within(mark):
                last[kind(mark)] = mark
        corrected, invalidated = last.get("corrected"), last.get("invalidated")
        hidden = self.hidden_by(record)
        return (
            event.data.record_id,
            record.offset,
            corrected.event.data.content if corrected else event.data.content,  # type: ignore[union-attr]
            corrected and effect(corrected),
            invalidated and effect(invalidated),
            effect(hidden[0]) if any(within(mark) for mark in hidden) else None,
        )

    def by_id(self, scope: Scope) -> dict[str, tuple[Any, ...]]:
        """Every record that the scope can read by id."""
        return {r.event.data.record_id: self.shown(r) for r in self._seen(scope)}  # type: ignore[union-attr]

    def stats(self, scope: Scope) -> tuple[int, int, int, int]:
        """Records, visible, sessions, users."""
        seen = self._seen(scope)
        sessions = {r.event.sessionid for r in seen} - {None}  # type: ignore[union-attr]
        users = {r.event.userid for r in seen} - {None}  # type: ignore[union-attr]
        return len(seen), sum(not self.hidden_by(r) for r in seen), len(sessions), len(users)


def folded(entries: list[Entry]) -> Model:
    """The model after a log."""
    model = Model()
    for entry in entries:
        model.apply(entry)
    return model
