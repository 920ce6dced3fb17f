"""A window costs the rows asked for, however long the history is and however much of it is hidden: counted."""

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, text

from engramlog.engine.history import History
from engramlog.engine.log import Entry, Run
from engramlog.schemas.keys import Key, event_key, record_key
from engramlog.schemas.queries import AsOf
from tests.contract.conftest import OpenHistory
from tests.history_log import START, START_MS, STEP, TOPIC, Log, scope, window

SHORT, LONG = 200, {"sqlite": 1_000_000, "postgresql": 20_000}
RECENT = 90
RUN = 5_000


def users_events() -> list[Entry]:
    """One record of each user; its entry is copied under other ids."""
    log = Log()
    for user in ("ann", "bob", None):
        log.says("hello", session="s", user=user)
    return log.entries


async def past(history: History, length: int) -> int:
    """Three users in turn; a cleared half, a half removed one by one, then ``RECENT`` that are visible."""
    models = users_events()
    hidden = length - RECENT
    await history.open_partition(TOPIC, 0, cluster_id=None, topic_id=None, end_offset=10**9)
    at = 0
    for start in range(0, length, RUN):
        entries: list[Entry] = []
        for i in range(start, min(start + RUN, length)):
            model = models[i % 3]
            if i == hidden // 2:
                at += other(entries, at, lambda log: log.clears(users="all"))
            entries.append(Entry(at, START_MS + 1000 * at, Key("acme", "bot", f"r{i}"), model.event, model.value))
            at += 1
        ids = [f"r{i}" for i in range(max(start, hidden // 2), min(start + RUN, hidden))]
        if ids:
            at += other(entries, at, lambda log, ids=ids: log.removes(*ids))  # type: ignore[misc]
        await history.apply(Run(TOPIC, 0, entries[0].offset, at, tuple(entries)))
    return at


def other(entries: list[Entry], at: int, say: Callable[[Log], Any]) -> int:
    log = Log()
    log.end = at
    say(log)
    entries += log.entries
    return 1


class Counter:
    """Counts a connection's work: instructions of SQLite's machine, rows that PostgreSQL's plans visit."""

    def __init__(self, history: History, engine: Any) -> None:
        self.engine = engine
        self.sqlite = history._database.is_sqlite
        self.work = 0

    def _step(self) -> int:
        self.work += 1
        return 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        self.work = 0
        said: list[tuple[str, Any]] = []

        def note(_c: Any, _k: Any, statement: str, parameters: Any, *_: Any) -> None:
            said.append((statement, parameters))

        if self.sqlite:
            connection = self.engine.raw_connection()  # the pool's only one
            connection.driver_connection.set_progress_handler(self._step, 1)
            connection.close()
            yield
            connection = self.engine.raw_connection()
            connection.driver_connection.set_progress_handler(None, 0)
            connection.close()
            return
        event.listen(self.engine, "before_cursor_execute", note)
        yield
        event.remove(self.engine, "before_cursor_execute", note)
        with self.engine.connect() as plain:
            for statement, parameters in said:
                found = plain.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters).scalar()
                plan = found if isinstance(found, list) else json.loads(found)
                self.work += visited(plan[0]["Plan"])


def visited(plan: dict[str, Any]) -> int:
    """Rows that the scans of a plan touched."""
    below = sum(visited(child) for child in plan.get("Plans", ()))
    if "Scan" not in plan["Node Type"] or plan["Node Type"] == "Subquery Scan":
        return below
    rows = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
    return below + int(rows * plan["Actual Loops"])


Read = Callable[[History, int], Awaitable[Any]]


async def second_page(history: History, end: int) -> None:
    del end
    first = await window(history, scope("s", "ann"), 20, max_bytes=2500)
    assert first.next_page is not None
    await window(history, scope("s", "ann"), 20, max_bytes=2500, page=first.next_page)


READS: dict[str, Read] = {
    "session": lambda h, _: window(h, scope("s", "ann"), 20),
    "agent": lambda h, _: window(h, scope(None, "ann"), 20),
    "shared": lambda h, _: window(h, scope("s"), 20),
    "everybody in a session": lambda h, _: window(h, scope("s", users="all"), 20),
    "everybody": lambda h, _: window(h, scope(users="all"), 20),
    "only the head": lambda h, _: window(h, scope("s", "ann"), 0),
    "second page": second_page,
    "by id": lambda h, _: h.read_records(scope(None, "ann"), ["r0", "r3", "r42"], max_bytes=10**6),
    "stats": lambda h, _: h.read_stats(scope(None, "ann")),
    "as of before the clear": lambda h, _: window(h, scope("s", "ann"), 20, as_of=AsOf(offset=50)),
    "as of a moment before": lambda h, _: window(h, scope("s", "ann"), 20, as_of=AsOf(recorded=START + 50 * STEP)),
}


@pytest.fixture
async def both(open_history: OpenHistory) -> tuple[tuple[History, int], tuple[History, int]]:
    """A short history and a long one, with the ends of their logs."""
    made = []
    for long in (False, True):
        history = await open_history(readers=1)
        sqlite = history._database.is_sqlite
        length = LONG["sqlite" if sqlite else "postgresql"] if long else SHORT
        end = await past(history, length)
        if not sqlite:
            with history._database._writer.begin() as connection:
                connection.execute(text("ANALYZE"))
        made.append((history, end))
    return made[0], made[1]


WRITES: dict[str, Callable[[Log], Any]] = {
    "new record": lambda log: log.says("new", session="s"),
    "record again": lambda log: log.says("again", id="r1", session="s"),
    "removal": lambda log: log.removes("r1", "r2", id="m"),
    "removal again": lambda log: log.removes("r1", "new", id="m"),
    "removal taken back": lambda log: log.tombstone(event_key("acme", "bot", "m")),
    "correction": lambda log: log.corrects("r1", "corrected"),
    "tombstone": lambda log: log.tombstone(record_key("acme", "bot", "r1")),
    "clear": lambda log: log.clears(user="ann"),
    "erasure": lambda log: log.erases("record", "r2"),
    "erased record again": lambda log: log.says("again", id="r2", session="s"),
}


async def costs_of_writing(history: History, end: int) -> dict[str, int]:
    log = Log()
    log.end = end
    found = {}
    for name, say in WRITES.items():
        say(log)
        counter = Counter(history, history._database._writer)
        with counter.counting():
            await history.apply(Run(TOPIC, 0, log.end - 1, log.end, tuple(log.entries[-1:])))
        found[name] = counter.work
    return found


async def costs_of_reading(history: History, end: int) -> dict[str, int]:
    found = {}
    for name, read in READS.items():
        await read(history, end)
        counter = Counter(history, history._database._reader)
        with counter.counting():
            await read(history, end)
        found[name] = counter.work
    return found


@pytest.mark.timeout(900)
async def test_cost_does_not_grow_with_the_history(both: tuple[tuple[History, int], tuple[History, int]]) -> None:
    (short, short_end), (long, long_end) = both
    for history in (short, long):
        assert len((await window(history, scope("s", "ann"), 20)).records) == 20
    reading = [await costs_of_reading(*one) for one in both]
    if short._database.is_sqlite:
        reading[0] |= await costs_of_writing(short, short_end)
        reading[1] |= await costs_of_writing(long, long_end)
        limits = {name: 2 * work + 2_000 for name, work in reading[0].items()}  # instructions
    else:
        limits = dict.fromkeys(reading[0], 450)  # rows; a plan over the short history may well scan it
    assert {name: work for name, work in reading[1].items() if work > limits[name]} == {}, reading
