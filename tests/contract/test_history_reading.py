"""Windows, records and counts, on every database."""

from datetime import timedelta

import pytest

from engramlog.engine.history import History
from engramlog.schemas.queries import AsOf, StoredRecord
from tests.history_log import START, STEP, Log, contents, given, scope, window

TALK = ("a", "b", "c", "d")


def talk(*, head: str | None = "system") -> Log:
    log = Log()
    if head:
        log.says("head", role=head, session="s")
    for content in TALK:
        log.says(content, session="s")
    return log


@pytest.mark.parametrize(
    ("head", "n", "expected", "truncated"),
    [
        ("system", None, ["head", *TALK], False),
        ("system", 0, ["head"], True),
        ("system", 2, ["head", "c", "d"], True),
        ("system", 4, ["head", *TALK], False),
        ("system", 9, ["head", *TALK], False),
        ("developer", 1, ["head", "d"], True),
        ("user", 1, ["d"], True),
        ("assistant", 0, [], True),
        (None, 0, [], True),
        (None, 3, ["b", "c", "d"], True),
        (None, None, list(TALK), False),
    ],
)
async def test_a_window_is_the_protected_head_and_the_newest(
    history: History, head: str | None, n: int | None, expected: list[str], truncated: bool
) -> None:
    await given(history, talk(head=head))
    answer = await window(history, scope("s"), n)
    assert [c.record.content for c in answer.records] == expected
    assert answer.truncated is truncated
    assert answer.next_page is None


@pytest.mark.parametrize("head", ["system", "developer"])
async def test_the_newest_scores_one_each_step_back_decays_and_the_head_does_neither(
    history: History, head: str
) -> None:
    await given(history, talk(head=head))
    scores = [c.score for c in (await window(history, scope("s"), 3, keep_rate=0.5)).records]
    assert scores == [1.0, 0.25, 0.5, 1.0]
    none_kept = [c.score for c in (await window(history, scope("s"), 3, keep_rate=0.0)).records]
    assert none_kept == [1.0, 0.0, 0.0, 1.0]


async def test_only_the_first_record_can_be_the_head(history: History) -> None:
    log = Log()
    for content, role in (("a", "user"), ("b", "system"), ("c", "user")):
        log.says(content, role=role)
    await given(history, log)
    assert [c.score for c in (await window(history, scope(), keep_rate=0.5)).records] == [0.25, 0.5, 1.0]
    assert await contents(history, scope(), 1) == ["c"]


async def test_an_empty_history_has_an_empty_window(history: History) -> None:
    read = await history.read_records(scope(), ["a"], max_bytes=100)
    assert (read.answer.records, read.answer.missing, read.reached) == ((), ("a",), ())
    assert await contents(history, scope()) == []
    stats = (await history.read_stats(scope())).answer
    assert (stats.records, stats.visible, stats.first_recorded) == (0, 0, None)


async def test_what_was_reached_is_told_with_the_answer(history: History) -> None:
    log = talk()
    await given(history, log)
    reached = (await history.read_stats(scope())).reached
    assert [(r.topic, r.partition, r.offset) for r in reached] == [("memory.records", 0, log.end - 1)]


async def test_a_clear_begins_a_new_epoch_and_the_old_one_stays_readable(history: History) -> None:
    log = talk()
    before = log.clears(session="s") - 1
    log.says("new", session="s")
    await given(history, log)
    assert await contents(history, scope("s")) == ["new"]
    assert await contents(history, scope("s"), as_of=AsOf(offset=before)) == ["head", *TALK]


@pytest.mark.parametrize(
    ("address", "left"),
    [
        ({}, ["s1/u1", "s2/u1", "-/u1"]),
        ({"session": "s1"}, ["s1/u1", "s2/-", "s2/u1", "-/-", "-/u1"]),
        ({"user": "u1"}, ["s1/-", "s2/-", "-/-"]),
        ({"session": "s1", "user": "u1"}, ["s1/-", "s2/-", "s2/u1", "-/-", "-/u1"]),
        ({"session": "s1", "users": "all"}, ["s2/-", "s2/u1", "-/-", "-/u1"]),
        ({"users": "all"}, []),
        ({"scope": "recall", "users": "all"}, ["s1/-", "s1/u1", "s2/-", "s2/u1", "-/-", "-/u1"]),
        ({"scope": "both", "session": "s1"}, ["s1/u1", "s2/-", "s2/u1", "-/-", "-/u1"]),
    ],
)
async def test_a_clear_hides_exactly_its_address(history: History, address: dict[str, str], left: list[str]) -> None:
    log = Log()
    for session in ("s1", "s2", None):
        for user in (None, "u1"):
            log.says(f"{session or '-'}/{user or '-'}", session=session, user=user)
    log.says("other agent", agent="other")
    log.says("other tenant", tenant="acme-corp")
    log.clears(**address)
    await given(history, log)
    assert await contents(history, scope(users="all")) == left
    assert (await history.read_stats(scope(users="all"))).answer.visible == len(left)
    assert await contents(history, scope(agent="other")) == ["other agent"]
    assert await contents(history, scope(tenant="acme-corp")) == ["other tenant"]


async def test_two_users_of_one_agent_see_their_own_and_the_shared(history: History) -> None:
    log = Log()
    for user in ("ann", "bob", None):
        log.says(f"of {user}", user=user, session="s")
    await given(history, log)
    for session in (None, "s"):
        assert await contents(history, scope(session, "ann")) == ["of ann", "of None"]
        assert await contents(history, scope(session, "bob")) == ["of bob", "of None"]
        assert await contents(history, scope(session)) == ["of None"]
        assert await contents(history, scope(session, "ann", "all")) == ["of ann", "of bob", "of None"]
    answer = (await history.read_records(scope(None, "ann"), ["of bob", "of ann"], max_bytes=10**6)).answer
    assert ([s.user for s in answer.records], answer.missing) == (["ann"], ("of bob",))
    assert (await history.read_stats(scope(None, "ann"))).answer.users == 1


async def test_a_session_of_very_many_users_is_still_one_order(history: History) -> None:
    log = Log()
    for n in range(150):
        log.says(f"{n}", user=f"u{n % 75}", session="s")
    await given(history, log)
    assert await contents(history, scope("s", users="all"), 100) == [f"{n}" for n in range(50, 150)]
    assert (await history.read_stats(scope("s", users="all"))).answer.users == 75


async def test_a_tenant_beside_one_whose_name_begins_alike(history: History) -> None:
    log = Log()
    for n in range(20):
        log.says(f"{n}", tenant=("acme", "acme-corp")[n % 2], id=f"r{n // 2}")
    await given(history, log)
    assert await contents(history, scope()) == [f"{n}" for n in range(0, 20, 2)]
    assert await contents(history, scope(tenant="acme-corp")) == [f"{n}" for n in range(1, 20, 2)]


@pytest.mark.parametrize(
    "odd", ["-:/\\|\"'()%~", "记忆/会话", "👋🏽🧠", "'; DROP TABLE x; --", "%s", "?", "~e1", "𝔘" * 128]
)
async def test_odd_ids_are_ids(history: History, odd: str) -> None:
    log = Log(tenant=odd, agent=odd)
    log.says("hello", id=odd, session=odd, user=odd)
    log.says("bye", id="x", session=odd, user=odd)
    log.removes("x", id=odd, session=odd, user=odd)
    log.corrects(odd, "hello!", id=odd + "2" if len(odd) < 100 else "2")
    await given(history, log)
    place = scope(odd, odd, tenant=odd, agent=odd)
    assert await contents(history, place, 5) == ["hello!"]
    (found,) = (await history.read_records(place, [odd], max_bytes=10**6)).answer.records
    assert (found.session, found.user, found.record.record_id) == (odd, odd, odd)
    log.erases("session", session=odd)
    await given(history, log)
    assert await contents(history, place) == []


async def test_the_last_copy_counts_content_and_place(history: History) -> None:
    log = Log()
    log.says("old", id="a", session="s1", user="ann")
    log.says("b", session="s2")
    log.removes("a")
    log.says("new", id="a", session="s2")
    await given(history, log, sizes=[1, 1, 1])
    assert await contents(history, scope(user="ann")) == ["b", "new"]
    assert await contents(history, scope("s1", users="all")) == []
    stats = (await history.read_stats(scope(users="all"))).answer
    assert (stats.records, stats.visible, stats.sessions, stats.users) == (2, 2, 1, 0)
    assert await contents(history, scope(users="all"), as_of=AsOf(offset=1)) == ["b"]  # its first copy is gone


async def test_the_same_event_fifty_times_is_one_row(history: History) -> None:
    log = Log()
    for _ in range(50):
        log.says("again", id="a")
    await given(history, log, sizes=[7, 1, 13])
    assert await contents(history, scope()) == ["again"]
    assert (await history.read_stats(scope())).answer.records == 1


async def test_removed_records_leave_the_window_and_are_found_by_id(history: History) -> None:
    log = talk()
    at = log.removes("c", "unknown", session="elsewhere")
    log.removes("b", scope="recall")
    await given(history, log)
    assert await contents(history, scope("s")) == ["head", "a", "b", "d"]
    answer = (await history.read_records(scope(), ["c", "a", "c", "unknown"], max_bytes=10**6)).answer
    assert [(s.record.content, s.removed_at) for s in answer.records] == [("c", at), ("a", None)]
    assert answer.missing == ("unknown",)


async def test_of_several_corrections_and_invalidations_the_last_within_the_view_shows(history: History) -> None:
    log = Log()
    log.says("love", id="a")
    first = log.corrects("a", "like")
    log.invalidates("a", "was wrong")
    second = log.corrects("a", "hate")
    last = log.invalidates("a", "outdated")
    await given(history, log, sizes=[1, 1, 1])

    async def seen(as_of: AsOf | None = None) -> StoredRecord:
        return (await window(history, scope(), as_of=as_of)).records[0].stored

    now = await seen()
    assert (now.record.content, now.corrected_at) == ("hate", second)
    assert now.invalidated is not None
    assert (now.invalidated.offset, now.invalidated.reason) == (last, "outdated")
    before = await seen(AsOf(offset=0))
    assert (before.record.content, before.corrected_at, before.invalidated) == ("love", None, None)
    then = await seen(AsOf(recorded=START + 2 * STEP))
    assert (then.record.content, then.corrected_at) == ("like", first)
    assert then.invalidated is not None


@pytest.mark.parametrize(
    ("as_of", "expected"),
    [
        (AsOf(offset=0), ["a"]),
        (AsOf(offset=2), ["a", "b", "c"]),
        (AsOf(offset=3), ["a", "c"]),
        (AsOf(offset=4), ["a", "c", "d"]),
        (AsOf(offset=5), []),
        (AsOf(offset=99), ["e"]),
        (AsOf(recorded=START - STEP), []),
        (AsOf(recorded=START + 2.5 * STEP), ["a", "b", "c"]),
        (AsOf(recorded=START + 3 * STEP), ["a", "c"]),
        (AsOf(recorded=START + 5 * STEP), []),
        (AsOf(recorded=START + 99 * STEP), ["e"]),
        (AsOf(happened=START + 6 * STEP - timedelta(microseconds=1)), []),
        (AsOf(happened=START + 6 * STEP), ["e"]),
    ],
)
async def test_memory_as_it_was(history: History, as_of: AsOf, expected: list[str]) -> None:
    log = Log()
    for content in ("a", "b", "c"):
        log.says(content)
    log.removes("b")
    log.says("d")
    log.clears()
    log.says("e")
    await given(history, log)
    assert await contents(history, scope(), as_of=as_of) == expected


async def test_the_happened_axis_is_not_the_recorded_one(history: History) -> None:
    log = Log()
    log.says("recorded first", happened=START + 100 * STEP)
    log.says("happened first", happened=START + 50 * STEP)
    await given(history, log)
    assert await contents(history, scope(), as_of=AsOf(happened=START + 60 * STEP)) == ["happened first"]


@pytest.mark.parametrize("n", [None, 7, 30, 1000])
@pytest.mark.parametrize("as_of", [None, AsOf(offset=50), AsOf(recorded=START + 55 * STEP)])
async def test_pages_put_together_are_the_unpaged_answer(history: History, n: int | None, as_of: AsOf | None) -> None:
    log = Log()
    log.says("head", role="system")
    for i in range(60):
        log.says(f"{i}" + "x" * (i * 37 % 400), id=f"r{i}")
    log.removes("r59", "r3", "r17")
    await given(history, log)
    whole = await window(history, scope(), n, as_of=as_of)
    pages = [await window(history, scope(), n, as_of=as_of, max_bytes=1500)]
    while (page := pages[-1].next_page) is not None:
        if len(pages) == 2:  # what is said and removed meanwhile is not seen
            log.says("late")
            log.removes("r50", "r5", "head")
            log.clears()
            await given(history, log)
        pages.append(await window(history, scope(), n, as_of=as_of, max_bytes=1500, page=page))
    head, *newest = pages[0].records
    older = [record for page in reversed(pages[1:]) for record in page.records]
    ids = [(c.record.record_id, c.score) for c in [head, *older, *newest]]
    assert ids == [(c.record.record_id, c.score) for c in whole.records]
    assert pages[-1].truncated == whole.truncated
    assert len(pages) > 1


async def test_a_page_holds_at_least_one_record_however_large(history: History) -> None:
    log = Log()
    for i in range(3):
        log.says("y" * 5000, id=f"r{i}")
    await given(history, log)
    answer = await window(history, scope(), max_bytes=10)
    assert [c.record.record_id for c in answer.records] == ["r2"]
    assert answer.next_page is not None
    read = (await history.read_records(scope(), ["r0", "r1", "no"], max_bytes=10)).answer
    assert ([s.record.record_id for s in read.records], read.unread, read.missing) == (["r0"], ("r1",), ("no",))


async def test_a_head_that_fills_a_page_is_a_page(history: History) -> None:
    log = Log()
    log.says("z" * 5000, id="head", role="system")
    log.says("a")
    await given(history, log)
    first = await window(history, scope(), max_bytes=1000)
    assert [c.record.record_id for c in first.records] == ["head"]
    second = await window(history, scope(), max_bytes=1000, page=first.next_page)
    assert [c.record.record_id for c in second.records] == ["a"]
    assert second.next_page is None


async def test_counts_and_times_of_a_scope(history: History) -> None:
    log = Log()
    log.says("a", session="s1", user="ann")
    log.says("b", session="s2")
    log.says("c")
    log.removes("a", "c")
    await given(history, log)
    stats = (await history.read_stats(scope(user="ann"))).answer
    assert (stats.records, stats.visible, stats.sessions, stats.users) == (3, 1, 2, 1)
    assert (stats.first_recorded, stats.last_recorded) == (START, START + 2 * STEP)
    session = (await history.read_stats(scope("s2"))).answer
    assert (session.records, session.sessions, session.last_recorded) == (1, 1, START + STEP)
