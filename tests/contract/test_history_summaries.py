"""The topic of summaries in the history: what the window hides, what is active, and what an erasure takes along."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from engramlog.engine.history import History
from engramlog.schemas.contexts import SummariesQuery
from engramlog.schemas.keys import event_key, record_key
from engramlog.schemas.queries import AsOf, HistoryQuery
from engramlog.schemas.scope import Scope
from engramlog.schemas.summaries import Covered, SummaryCreated, SummaryCreatedEvent
from tests.contract.conftest import ONE_PARTITION
from tests.history_log import START, STEP, Log, contents, scope, window
from tests.history_log import given as brought
from tests.summarising import apply_summaries

TALK = scope("s", "ada")


def summary(name: str, *ids: str, **more: Any) -> SummaryCreatedEvent:
    """A summary of records whose ids are their offsets: ``r0``, ``r1``, and so on."""
    places = [int(i[1:]) for i in ids if i[1:].isdigit()]
    first, last = more.pop("first", min(places, default=0)), more.pop("last", max(places, default=0))
    address = {"tenantid": "acme", "agentid": more.pop("agent", "bot"), "sessionid": more.pop("session", "s")}
    covers = Covered(record_ids=ids, summary_ids=more.pop("summaries", ()), first=first, last=last)
    data = SummaryCreated.model_validate(
        {
            "summary_id": name,
            "text": f"text of {name}",
            "covers": covers,
            "at": more.pop("at", last + 1),
            "tokens_before": 100,
            "tokens_after": 10,
            "model": "fake",
            "prompt": "fake.v1",
            **{k: v for k, v in more.items() if k != "user"},
        }
    )
    return SummaryCreatedEvent(id=name, source="test", time=START, userid=more.get("user"), data=data, **address)


def talk(count: int, *, start: int = 0, **more: Any) -> Log:
    log = Log()
    for n in range(start, start + count):
        log.says(f"r{n}", **{"session": "s", "role": ("user", "assistant")[n % 2], **more})
    return log


class Book:
    """A history that has some log, and takes summaries one after the other."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.at = 0

    async def take(self, *events: Any) -> None:
        await apply_summaries(self.history, events, at=self.at)
        self.at += len(events)

    async def active(self, of: Scope = TALK, **query: Any) -> list[str]:
        answer = await self.history.read_summaries(of, SummariesQuery(**query))
        return [stored.summary.summary_id for stored in answer.answer.summaries]


@pytest.fixture
def book(history: History) -> Book:
    return Book(history)


async def test_a_window_hides_what_a_summary_stands_for_and_shows_it_without_summaries(book: Book) -> None:
    await brought(book.history, talk(6))
    await book.take(summary("S", "r0", "r1", "r2"))
    assert await contents(book.history, TALK) == ["r3", "r4", "r5"]
    assert await contents(book.history, TALK, 2) == ["r4", "r5"]
    whole = HistoryQuery(summaries=False)
    answer = (await book.history.read_history(TALK, whole, max_bytes=10**6)).answer
    assert [c.record.content for c in answer.records] == [f"r{n}" for n in range(6)]
    assert await contents(book.history, scope(None, "ada")) == [f"r{n}" for n in range(6)]
    stats = (await book.history.read_stats(TALK)).answer
    assert (stats.records, stats.visible) == (6, 6)
    shown = await window(book.history, TALK)
    assert not shown.truncated
    assert [round(c.score, 3) for c in shown.records] == [0.81, 0.9, 1.0]


async def test_users_and_sessions_have_their_own_summaries(book: Book) -> None:
    log = Log()
    for n in range(12):
        log.says(f"r{n}", session=("s", "s2")[n % 2], user=(None, "ada", "bob")[n % 3])
    await brought(book.history, log)
    await book.take(summary("A", "r4", user="ada", first=0, last=4))
    assert await contents(book.history, TALK) == ["r0", "r6", "r10"]
    assert await contents(book.history, scope("s", "bob")) == ["r0", "r2", "r6", "r8"]
    assert await contents(book.history, scope("s", users="all")) == ["r0", "r2", "r6", "r8", "r10"]
    assert await contents(book.history, scope("s2", "ada")) == ["r1", "r3", "r7", "r9"]
    await book.take(summary("N", "r0", first=0, last=0))
    assert await contents(book.history, TALK) == ["r6", "r10"]
    assert await contents(book.history, scope("s", "bob")) == ["r2", "r6", "r8"]
    assert (await book.active(TALK), await book.active(scope("s", "bob"))) == (["N", "A"], ["N"])
    assert await book.active(scope("s2", "ada")) == []
    assert await book.active(Scope("acme", "other", "s", users="all")) == []


async def test_the_head_and_what_is_kept_stay(book: Book) -> None:
    log = Log()
    log.says("r0", session="s", role="system")
    log.says("r1", session="s")
    log.says("r2", session="s", role="developer")
    log.says("r3", session="s", layer="core")
    for n in range(4, 8):
        log.says(f"r{n}", session="s", role=("user", "assistant")[n % 2])
    await brought(book.history, log)
    await book.take(summary("S", "r1", "r4", "r5"))
    assert await contents(book.history, TALK) == ["r0", "r2", "r3", "r6", "r7"]
    assert await contents(book.history, TALK, 0) == ["r0"]
    assert await contents(book.history, TALK, 3) == ["r0", "r3", "r6", "r7"]


async def test_as_of_before_it_was_due_the_records_are_seen(book: Book) -> None:
    await brought(book.history, talk(6))
    await book.take(summary("S", "r0", "r1", at=4))
    for at, shown in ((3, ["r0", "r1", "r2", "r3"]), (4, ["r2", "r3", "r4"])):
        assert await contents(book.history, TALK, as_of=AsOf(offset=at)) == shown
    assert await contents(book.history, TALK, as_of=AsOf(happened=START + 2 * STEP)) == ["r0", "r1", "r2"]


async def test_what_lies_between_summaries_and_is_in_none_is_seen(book: Book) -> None:
    await brought(book.history, talk(12))
    await book.take(summary("A", "r0", "r1"), summary("C", "r6", "r7"), summary("D", "r9"))
    assert await contents(book.history, TALK) == ["r2", "r3", "r4", "r5", "r8", "r10", "r11"]
    assert await contents(book.history, TALK, 4) == ["r5", "r8", "r10", "r11"]
    await book.take(summary("B", "r2", "r3", "r4", "r5"), summary("E", "r8"))
    assert await contents(book.history, TALK) == ["r10", "r11"]


async def test_pages_and_indices_agree_with_what_is_shown(book: Book) -> None:
    log = Log()
    log.says("r0", session="s", role="system")
    for n in range(1, 12):
        log.says(f"r{n}", session="s", role=("assistant", "user")[n % 2])
    await brought(book.history, log)
    await book.take(summary("S", "r1", "r2", "r3", "r4"))
    shown = [f"r{n}" for n in (0, *range(5, 12))]
    assert await contents(book.history, TALK) == shown
    page, found = None, []
    while True:
        answer = await window(book.history, TALK, max_bytes=700, page=page)
        found = [*[c.record.content for c in answer.records], *found]
        if answer.next_page is None:
            break
        page = answer.next_page
    assert sorted(found) == sorted(shown)
    assert len(found) == len(shown)
    for n, record_id in enumerate(shown[1:], 1):
        assert await book.history.select_indices(TALK, [n]) == (record_id,)
    assert await book.history.select_indices(TALK, [0]) == ()
    assert await book.history.select_newest(TALK, 3) == ("r9", "r10", "r11")
    assert await book.history.select_newest(TALK, 99) == tuple(shown[1:])


async def test_the_last_copy_of_a_summary_counts(book: Book) -> None:
    await brought(book.history, talk(6))
    await book.take(summary("S", "r0", "r1"), summary("S", "r0", "r1", text="better"))
    (stored,) = (await book.history.read_summaries(TALK, SummariesQuery())).answer.summaries
    assert (stored.summary.text, stored.offset, stored.active, stored.session) == ("better", 1, True, "s")


async def test_replaced_summaries_are_inactive_as_long_as_the_new_one_is_there(book: Book) -> None:
    await brought(book.history, talk(8))
    low = summary("A", "r0", "r1"), summary("B", "r2", "r3")
    high = summary("H", "r0", "r1", "r2", "r3", summaries=("A", "B"), replaces=("A", "B"), level=2)
    await book.take(high, *low)  # in any order
    assert await book.active() == ["H"]
    assert sorted(await book.active(active=False)) == ["A", "B", "H"]
    assert (await book.active(active=False, level=1), await book.active(level=1)) == (["A", "B"], [])
    await book.take(event_key("acme", "bot", "H"))
    assert await book.active() == ["A", "B"]


async def test_a_tombstone_brings_the_records_back(book: Book) -> None:
    await brought(book.history, talk(6))
    await book.take(summary("S", "r0", "r1"), event_key("acme", "bot", "S"))
    assert await contents(book.history, TALK) == [f"r{n}" for n in range(6)]
    assert await book.active(active=False) == []


@pytest.mark.parametrize(("leave", "ends"), [("window", True), ("both", True), ("recall", False)])
async def test_a_clear_of_the_window_ends_its_summaries(book: Book, leave: str, *, ends: bool) -> None:
    log = talk(4)
    await brought(book.history, log)
    await book.take(summary("S", "r0", "r1"), summary("U", "r0", user="bob"))
    log.clears(session="s", scope=leave)
    await brought(book.history, log)
    assert await book.active(scope("s", users="all")) == (["U"] if ends else ["U", "S"])
    log.clears(users="all", scope=leave)
    log.says("r6", session="s")
    await brought(book.history, log)
    await book.take(summary("N", "r6"))
    assert await book.active(scope("s", users="all")) == (["N"] if ends else ["U", "S", "N"])


async def test_an_erasure_takes_along_all_that_holds_the_record_and_no_late_copy_is_taken(book: Book) -> None:
    log = talk(6)
    made = {"session": "s", "role": "assistant", "layer": "long_term"}
    log.says("fact", origin="extracted", derived_from=("r1",), **made)
    log.says("S", origin="summary", derived_from=("r0", "r1"), **made)
    log.says("of a summary", origin="extracted", derived_from=("S",), **made)
    log.says("T", origin="summary", derived_from=("r2", "r3"), **made)
    log.says("other fact", origin="extracted", derived_from=("r2",), **made)
    await brought(book.history, log)
    low = summary("S", "r0", "r1"), summary("T", "r2", "r3")
    high = summary("H", "r0", "r1", "r2", "r3", summaries=("S", "T"), replaces=("S", "T"), level=2)
    await book.take(*low, high)
    log.erases("record", "r1")
    await brought(book.history, log)
    assert await book.active(active=False) == ["T"]
    assert await book.active() == ["T"]
    assert await contents(book.history, TALK) == ["r0", "r4", "r5"]
    everything = [entry.key.record_id or "-" for entry in log.entries]
    left = (await book.history.read_records(scope(users="all"), everything, max_bytes=10**6)).answer.records
    assert [s.record.record_id for s in left] == ["r0", "r2", "r3", "r4", "r5", "T", "other fact"]
    for late in (low[0], high, summary("late", "r0", "r1"), summary("later", summaries=("late",), level=2)):
        await book.take(late)
    log.says("late fact", origin="extracted", derived_from=("r0", "r1"), **made)
    log.says("S", origin="summary", derived_from=("r0", "r1"), **made)
    log.says("of a late summary", origin="extracted", derived_from=("later",), **made)
    log.says("fact", origin="extracted", derived_from=("r1",), **made)
    await brought(book.history, log)
    assert await book.active(active=False) == ["T"]
    late = await book.history.read_records(
        scope(users="all"), ["late fact", "S", "fact", "of a late summary"], max_bytes=10**6
    )
    assert late.answer.records == ()
    assert await book.history.made_from("acme", "bot", ["r1"]) >= {"fact", "S", "H", "of a summary"}


@pytest.mark.parametrize("what", ["session", "user", "agent", "tenant"])
async def test_an_erased_scope_takes_its_summaries_along(book: Book, what: str) -> None:
    log = Log()
    for n in range(4):
        log.says(f"r{n}", session="s", user="ada")
    log.says("gone with it", session="elsewhere", origin="extracted", derived_from=("r1",))
    log.says("stays", session="elsewhere")
    await brought(book.history, log)
    await book.take(summary("S", "r0", "r1", user="ada"), summary("E", "r5", session="elsewhere"))
    log.erases(what, session="s" if what == "session" else None, user="ada" if what == "user" else None)
    await brought(book.history, log)
    await book.take(summary("S", "r0", "r1", user="ada"))
    everything = scope(users="all")
    assert await book.active(everything, active=False) == (["E"] if what in {"session", "user"} else [])
    assert await contents(book.history, everything) == (["stays"] if what in {"session", "user"} else [])
    left = await book.history.read_records(everything, ["gone with it"], max_bytes=10**6)
    assert left.answer.records == ()


async def test_an_erased_record_that_no_summary_covers_leaves_them_alone(book: Book) -> None:
    log = Log()
    log.says("r0", session="s")
    log.says("r1", session="s", role="system")
    log.says("r2", session="s")
    log.says("r3", session="s")
    await brought(book.history, log)
    await book.take(summary("S", "r0", "r2"))
    log.erases("record", "r1", "r3")
    await brought(book.history, log)
    assert await book.active() == ["S"]


async def test_what_nobody_said_is_in_no_window_and_counts_as_nothing_visible(book: Book) -> None:
    log = talk(2)
    for n, origin in enumerate(("extracted", "summary")):
        log.says(f"made{n}", session="s", origin=origin, derived_from=("r0",))
    log.says("r4", session="s")
    at = log.clears(session="s", id="c")
    log.says("after", session="s")
    await brought(book.history, log)
    assert await contents(book.history, TALK) == ["after"]
    for offset in range(at):
        assert not {"made0", "made1"} & set(await contents(book.history, TALK, as_of=AsOf(offset=offset)))
        recorded = AsOf(recorded=START + offset * STEP)
        assert not {"made0", "made1"} & set(await contents(book.history, TALK, as_of=recorded))
    log.tombstone(event_key("acme", "bot", "c"))
    await brought(book.history, log)
    assert await contents(book.history, TALK) == ["r0", "r1", "r4", "after"]
    stats = (await book.history.read_stats(TALK)).answer
    assert (stats.records, stats.visible) == (6, 4)
    assert set(await book.history.recallable(TALK, ["made0", "made1"])) == {"made0", "made1"}
    log.says("made0", session="s")  # now somebody said it
    await brought(book.history, log)
    assert await contents(book.history, TALK) == ["r0", "r1", "r4", "after", "made0"]


async def test_a_fact_leaves_recall_with_all_of_its_sources(book: Book) -> None:
    log = talk(3)
    log.says("one", session="s", origin="extracted", derived_from=("r0",))
    log.says("two", session="s", origin="extracted", derived_from=("r0", "r1"))
    log.says("unknown", session="s", origin="extracted", derived_from=("never seen",))
    log.removes("r0", scope="recall")
    await brought(book.history, log)
    assert set(await book.history.recallable(TALK, ["one", "two", "unknown"])) == {"two", "unknown"}
    log.clears(session="s", scope="recall", at=2)
    await brought(book.history, log)
    assert set(await book.history.recallable(TALK, ["one", "two", "unknown"])) == {"unknown"}


async def test_core_memories_are_listed_while_they_hold(book: Book) -> None:
    log = Log()
    for name in ("stays", "invalid", "removed", "changed", "erased", "buried", "others"):
        log.says(name, session=name, layer="core", user="bob" if name == "others" else None)
    log.says("not core", session="s")
    log.invalidates("invalid")
    log.removes("removed", scope="both")
    log.says("changed", session="changed")
    log.erases("record", "erased")
    log.tombstone(record_key("acme", "bot", "buried"))
    log.corrects("stays", "stays, corrected")
    await brought(book.history, log)
    assert [s.record.content for s in await book.history.core(TALK)] == ["stays, corrected"]
    assert [s.record.record_id for s in await book.history.core(scope(None, "bob"))] == ["stays", "others"]


IDS = tuple(f"r{n}" for n in range(5))
MADE_OF = {"f0": ("r0",), "f1": ("r1", "r2"), "g0": ("f0",), "g1": ("f1", "r3"), "g2": ("S0",)}
"""What is made from what. An id tells it, as those of ``summarise`` do: were one used for something else later,
compaction would take the first, and what that was made from would be forgotten."""
some = st.lists(st.sampled_from(IDS), min_size=1, max_size=3, unique=True)
steps = st.one_of(
    st.tuples(st.just("says"), st.sampled_from(IDS), st.sampled_from(("user", "system", "assistant"))),
    st.tuples(st.just("core"), st.sampled_from(IDS)),
    st.tuples(st.just("makes"), st.sampled_from(sorted(MADE_OF)), st.sampled_from(("extracted", "summary"))),
    st.tuples(st.just("sums"), st.sampled_from(("S0", "S1")), some),
    st.tuples(st.just("rolls"), st.just("H0"), some),
    st.tuples(st.just("clears"), st.sampled_from(("window", "both"))),
    st.tuples(st.just("removes"), some),
    st.tuples(st.just("erases"), some),
)


def write(step: tuple[Any, ...], log: Log, summaries: list[Any]) -> None:
    match step:
        case "says", i, role:
            log.says(f"{i}@{log.end}", id=i, role=role, session="s")
        case "core", i:
            log.says(f"{i}@{log.end}", id=i, layer="core", session="s")
        case "makes", i, origin:
            log.says(f"{i}@{log.end}", id=i, session="s", origin=origin, derived_from=MADE_OF[i])
        case "sums", i, sources:
            summaries.append(summary(i + "".join(sorted(sources)), *sorted(sources), at=log.end))
        case "rolls", i, sources:
            lower = ("S0" + "".join(sorted(sources)),)
            summaries.append(summary(i + lower[0], summaries=lower, replaces=lower, level=2, last=4, at=log.end))
        case "clears", leave:
            log.clears(session="s", scope=leave)
        case "removes", ids:
            log.removes(*ids)
        case "erases", ids:
            log.erases("record", *ids)


async def state(history: History) -> tuple[Any, ...]:
    """All that can be seen, and the digest."""
    everyone = scope("s", users="all")
    summaries = (await history.read_summaries(everyone, SummariesQuery(active=False))).answer.summaries
    table = history._tables.records.c
    rows = await history._database.read(
        lambda connection: sorted(map(tuple, connection.execute(select(table.record_id, table.hidden, table.kept))))
    )
    return (
        await history.digest(),
        [(s.summary.summary_id, s.active) for s in summaries],
        rows,
        await contents(history, everyone),
        [s.record.record_id for s in await history.core(everyone)],
        (await history.read_stats(everyone)).answer,
    )


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    past=st.lists(steps, min_size=5, max_size=30),
    sizes=st.lists(st.integers(1, 6), max_size=10),
    cut=st.integers(0, 30),
    compacted=st.booleans(),
)
async def test_however_the_two_topics_interleave_the_end_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, past: list[Any], sizes: Sequence[int], cut: int, *, compacted: bool
) -> None:
    log, summaries = Log(), []
    for step in past:
        write(step, log, summaries)
    folder = tmp_path_factory.mktemp("interleaved")
    found = []
    for n in range(3):
        history = History(f"sqlite:///{folder}/{n}.db", topics=ONE_PARTITION)
        await history.start()
        try:
            if n == 0:  # summaries last
                await brought(history, log, sizes)
                await apply_summaries(history, summaries, at=0) if summaries else None
            elif n == 1:  # summaries first
                await apply_summaries(history, summaries, at=0) if summaries else None
                await brought(history, log.compacted() if compacted else log)
            else:  # in the middle
                part = Log()
                part.entries = log.entries[:cut]
                part.end = part.entries[-1].offset + 1 if part.entries else 0
                await brought(history, part, sizes)
                await apply_summaries(history, summaries, at=0) if summaries else None
                await brought(history, log, [len(part.entries), *sizes] if part.entries else sizes)
            found.append(await state(history))
        finally:
            await history.stop()
    assert found[0] == found[1]
    assert found[0] == found[2]
