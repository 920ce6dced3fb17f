"""A log of one partition in memory, to give a history its past: ``log.says("hello")``, ``log.clears()``, …"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from engramlog.engine.history import History
from engramlog.engine.log import Entry, Run
from engramlog.schemas import envelope as e
from engramlog.schemas import records as r
from engramlog.schemas.codec import records_codec
from engramlog.schemas.keys import parse_key
from engramlog.schemas.queries import AsOf, HistoryAnswer, HistoryQuery, Page
from engramlog.schemas.scope import Scope, Users

TOPIC = "memory.records"
START = datetime(2026, 3, 1, tzinfo=UTC)
STEP = timedelta(seconds=1)
START_MS = 1_772_323_200_000
LARGE = 100_000_000


class Log:
    """What one partition holds; the n-th entry lies at offset n and was recorded n seconds after START."""

    def __init__(self, *, tenant: str = "acme", agent: str = "bot", topic: str = TOPIC, partition: int = 0) -> None:
        self.tenant, self.agent = tenant, agent
        self.topic, self.partition = topic, partition
        self.entries: list[Entry] = []
        self.end = 0

    def append(self, event: Any) -> int:
        """Append an event; its offset."""
        return self._append(event.key(), event)

    def tombstone(self, key: bytes) -> int:
        """Append a tombstone."""
        return self._append(key, None)

    def _append(self, key: bytes, event: Any) -> int:
        value = b"" if event is None else records_codec().encode(event)
        self.entries.append(Entry(self.end, START_MS + 1000 * self.end, parse_key(key), event, value))
        self.end += 1
        return self.end - 1

    def _address(self, given: dict[str, Any]) -> dict[str, Any]:
        return {
            "source": "test",
            "tenantid": given.pop("tenant", self.tenant),
            "agentid": given.pop("agent", self.agent),
            "sessionid": given.pop("session", None),
            "userid": given.pop("user", None),
            "time": START,
        }

    def says(self, content: str, *, role: str = "user", id: str | None = None, **given: Any) -> int:  # noqa: A002
        """A record; without an id the content is the id."""
        address = self._address(given)
        happened = given.pop("happened", START + self.end * STEP)
        data = r.MemoryRecord(record_id=id or content, role=role, content=content, timestamp=happened, **given)
        return self.append(e.RecordWritten(id=data.record_id, data=data, **address))

    def clears(self, *, id: str | None = None, scope: str = "window", users: str = "own", **given: Any) -> int:  # noqa: A002
        """A new epoch."""
        data = r.HistoryCleared(scope=scope, users=users, at=given.pop("at", None))
        return self.append(e.HistoryClearedEvent(id=id or f"e{self.end}", data=data, **self._address(given)))

    def removes(self, *ids: str, id: str | None = None, scope: str = "window", **given: Any) -> int:  # noqa: A002
        """Records leave the view."""
        data = r.RecordsRemoved(ids=ids, scope=scope, at=given.pop("at", None))
        return self.append(e.RecordsRemovedEvent(id=id or f"e{self.end}", data=data, **self._address(given)))

    def corrects(self, target: str, content: str, *, id: str | None = None, **given: Any) -> int:  # noqa: A002
        """New content for a record."""
        data = r.RecordCorrected(id=target, content=content, at=given.pop("at", None))
        return self.append(e.RecordCorrectedEvent(id=id or f"e{self.end}", data=data, **self._address(given)))

    def invalidates(self, target: str, reason: str = "", *, id: str | None = None, **given: Any) -> int:  # noqa: A002
        """A record is no longer true."""
        data = r.RecordInvalidated(id=target, reason=reason, at=given.pop("at", None))
        return self.append(e.RecordInvalidatedEvent(id=id or f"e{self.end}", data=data, **self._address(given)))

    def ends(self, session: str, *, reason: str = "", id: str | None = None, **given: Any) -> int:  # noqa: A002
        """A session is over."""
        address = self._address(given | {"session": session})
        return self.append(e.SessionEndedEvent(id=id or f"e{self.end}", data=r.SessionEnded(reason=reason), **address))

    def erases(self, scope: str, *ids: str, id: str | None = None, **given: Any) -> int:  # noqa: A002
        """An entry of the ledger."""
        if scope == "tenant":
            given["agent"] = None
        data = r.ScopeErased(scope=scope, record_ids=ids)
        return self.append(e.ScopeErasedEvent(id=id or f"x{self.end}", data=data, **self._address(given)))

    def runs(self, sizes: Sequence[int] = ()) -> Iterator[Run]:
        """The log in runs of these numbers of entries, the rest in one."""
        done = at = 0
        for size in (*sizes, len(self.entries)):
            part = tuple(self.entries[done : done + size])
            if not part:
                continue
            done += len(part)
            following = self.entries[done].offset if done < len(self.entries) else self.end
            yield Run(self.topic, self.partition, at, following, part)
            at = following

    def compacted(self, *, until: int | None = None, tombstones: bool = True) -> "Log":
        """What compaction leaves when it has worked on the offsets below ``until`` (all)."""
        last = {entry.key: entry.offset for entry in self.entries}
        border = self.end if until is None else until
        copy = Log(tenant=self.tenant, agent=self.agent, topic=self.topic, partition=self.partition)
        copy.end = self.end
        copy.entries = [
            entry
            for entry in self.entries
            if entry.offset >= border or (last[entry.key] == entry.offset and (tombstones or entry.event is not None))
        ]
        return copy


async def given(history: History, log: Log, sizes: Sequence[int] = ()) -> None:
    """Bring a history to the log's end, from wherever it stands."""
    at = await history.open_partition(log.topic, log.partition, cluster_id="c", topic_id="t", end_offset=log.end)
    for run in log.runs(sizes):
        if run.next > at:
            rest = tuple(entry for entry in run.entries if entry.offset >= at)
            await history.apply(Run(run.topic, run.partition, max(at, run.expected), run.next, rest))


def scope(session: str | None = None, user: str | None = None, users: Users = "own", **other: str) -> Scope:
    """The scope of the log's default agent."""
    return Scope(other.get("tenant", "acme"), other.get("agent", "bot"), session, user, users)


async def window(
    history: History,
    of: Scope,
    n: int | None = None,
    *,
    as_of: AsOf | None = None,
    keep_rate: float = 0.9,
    max_bytes: int = LARGE,
    page: Page | None = None,
) -> HistoryAnswer:
    """A window's answer."""
    query = HistoryQuery(window=n, as_of=as_of, keep_rate=keep_rate, page=page)
    return (await history.read_history(of, query, max_bytes=max_bytes)).answer


async def contents(history: History, of: Scope, n: int | None = None, **how: Any) -> list[str]:
    """The contents of a window."""
    return [c.record.content for c in (await window(history, of, n, **how)).records]
