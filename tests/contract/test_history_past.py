"""Memory as it was, as the history tells it: what could be recalled, core memories, summaries, topics; its costs."""

from collections.abc import Sequence
from datetime import datetime

import pytest

from engramlog.engine.history import History
from engramlog.engine.history.recalling import Epoch
from engramlog.schemas.asking import AsOf, Reached
from engramlog.schemas.contexts import SummariesQuery
from engramlog.schemas.errors import RequestRefused
from engramlog.schemas.queries import HistoryQuery, StoredRecord, TopicsQuery
from engramlog.schemas.scope import Scope
from tests.contract.conftest import OpenHistory
from tests.contract.test_history_cost import Counter, past
from tests.contract.test_history_recall import derive, derived
from tests.contract.test_history_summaries import TALK, Book, summary, talk
from tests.history_log import START, STEP, TOPIC, Log, contents, given, scope


def axes(offset: int) -> list[AsOf]:
    """The same point on each way of naming a place in the log."""
    return [
        AsOf(offset=offset),
        AsOf(recorded=START + offset * STEP),
        AsOf(positions=(Reached(topic="memory.summaries", partition=0, offset=99), *at(offset))),
    ]


def at(offset: int) -> tuple[Reached, ...]:
    return (Reached(topic=TOPIC, partition=0, offset=offset),)


async def recalled(
    history: History, ids: Sequence[str], as_of: AsOf | None, of: Scope | None = None
) -> dict[str, StoredRecord]:
    of = of or scope()
    stand = await history.standpoint(of, as_of)
    return dict(await history.recallable(of, ids, view=stand.view))


async def core(history: History, as_of: AsOf | None, of: Scope | None = None) -> list[str]:
    of = of or scope()
    stand = await history.standpoint(of, as_of)
    return [stored.record.content for stored in await history.core(of, view=stand.view)]


@pytest.mark.parametrize(("love", "hate"), [("I love cilantro 🌿", "I hate cilantro"), ("我喜欢香菜", "我讨厌香菜")])
async def test_before_a_correction_the_earlier_text_is_told(history: History, love: str, hate: str) -> None:
    log = Log()
    log.says(love, id="r")
    log.says("between")
    log.corrects("r", hate)
    await given(history, log)
    assert (await recalled(history, ["r"], None))["r"].record.content == hate
    for before in axes(1):
        assert (await recalled(history, ["r"], before))["r"].record.content == love
    for then in axes(2):
        assert (await recalled(history, ["r"], then))["r"].record.content == hate
    now = AsOf(happened=START + 9 * STEP)
    assert (await recalled(history, ["r"], now))["r"].record.content == hate


async def test_what_left_recall_later_is_still_there(history: History) -> None:
    log = Log()
    log.says("cleared", session="s")
    log.says("removed")
    log.says("invalid")
    log.says("twice")
    log.removes("twice", scope="recall")
    log.clears(session="s", scope="both")
    log.removes("removed", "twice", scope="recall")
    log.invalidates("invalid", "not so")
    log.says("late")
    await given(history, log)
    ids = ("cleared", "removed", "invalid", "twice", "late", "unknown")
    expected = {
        2: {"cleared", "removed", "invalid"},
        3: {"cleared", "removed", "invalid", "twice"},
        4: {"cleared", "removed", "invalid"},
        5: {"removed", "invalid"},
        6: {"invalid"},
        7: {"invalid"},
        8: {"invalid", "late"},
    }
    for offset, there in expected.items():
        for as_of in axes(offset):
            found = await recalled(history, ids, as_of)
            assert found.keys() == there, as_of
            assert (found["invalid"].invalidated is not None) == (offset >= 7)
    for nothing in (AsOf(positions=()), AsOf(positions=(Reached(topic=TOPIC, partition=5, offset=9),))):
        assert await recalled(history, ids, nothing) == {}
    assert await recalled(history, ids, AsOf(recorded=START - STEP)) == {}


async def test_epochs_are_those_of_then(history: History) -> None:
    log = Log()
    log.clears(scope="recall", session="s1")
    log.clears(scope="both", session="s1")
    log.clears(scope="recall", users="all")
    await given(history, log)
    for offset, epochs in (
        (0, [Epoch("s1", "", 0)]),
        (1, [Epoch("s1", "", 1)]),
        (2, [Epoch(None, None, 2), Epoch("s1", "", 1)]),
    ):
        for as_of in axes(offset):
            stand = await history.standpoint(scope(), as_of)
            assert await history.cleared(scope(), view=stand.view) == epochs


async def test_tenants_and_users_see_their_own_past(history: History) -> None:
    log = Log()
    for tenant in ("acme", "acme-corp"):
        for user in ("阿梅", "bob", None):
            log.says(f"{tenant} {user}", id=f"of {user}", tenant=tenant, user=user, layer="core")
    log.clears(tenant="acme", users="all", scope="both")
    await given(history, log)
    ids = ("of 阿梅", "of bob", "of None")
    for as_of in axes(5):
        for tenant in ("acme", "acme-corp"):
            mine = scope(user="阿梅", tenant=tenant)
            found = await recalled(history, ids, as_of, mine)
            assert [found[i].record.content for i in sorted(found)] == [f"{tenant} None", f"{tenant} 阿梅"]
            assert await core(history, as_of, mine) == [f"{tenant} 阿梅", f"{tenant} None"]
    assert await core(history, None, scope(user="阿梅")) == []


async def test_a_record_that_was_sent_again_is_absent_before_its_last_copy(history: History) -> None:
    log = Log()
    log.says("first copy", id="r", layer="core")
    log.says("between")
    log.says("last copy", id="r", layer="core")
    await given(history, log)
    for as_of in axes(1):
        assert await recalled(history, ["r"], as_of) == {}
        assert await core(history, as_of) == []
    for as_of in axes(2):
        assert await core(history, as_of) == ["last copy"]


async def test_what_is_erased_is_no_part_of_the_past_either(history: History) -> None:
    log = Log()
    log.says("secret", layer="core")
    log.says("fine", layer="core")
    log.erases("record", "secret")
    await given(history, log)
    for as_of in axes(1):
        assert set(await recalled(history, ["secret", "fine"], as_of)) == {"fine"}
        assert await core(history, as_of) == ["fine"]


async def test_core_memories_are_those_of_then(history: History) -> None:
    log = Log()
    log.says("Ada is a nurse", id="job", layer="core")
    log.corrects("job", "Ada is a doctor")
    log.invalidates("job")
    log.says("Ada retired", id="now", layer="core")
    await given(history, log)
    for offset, texts in ((0, ["Ada is a nurse"]), (1, ["Ada is a doctor"]), (2, []), (3, ["Ada retired"])):
        for as_of in axes(offset):
            assert await core(history, as_of) == texts


async def test_a_fact_leaves_with_its_sources_and_not_before(history: History) -> None:
    log = Log()
    log.says("said")
    log.says("fact", origin="extracted", derived_from=("said",), layer="long_term", kind="fact")
    log.removes("said", scope="both")
    await given(history, log)
    assert await recalled(history, ["fact"], None) == {}
    for as_of in axes(1):
        assert set(await recalled(history, ["fact"], as_of)) == {"fact"}


async def test_summaries_are_those_that_were_due_and_active(history: History) -> None:
    log = talk(8)
    log.clears(session="s", users="all")
    await given(history, log)
    book = Book(history)
    await book.take(
        summary("A", "r0", "r1", at=2),
        summary("B", "r2", "r3", at=4),
        summary("up", "r0", "r1", "r2", "r3", at=6, summaries=("A", "B"), replaces=("A", "B"), level=2),
    )
    everyone = scope("s", users="all")
    for offset, active in ((1, []), (2, ["A"]), (4, ["A", "B"]), (6, ["up"]), (8, [])):
        for as_of in (AsOf(offset=offset), AsOf(positions=at(offset))):
            assert await book.active(everyone, as_of=as_of) == active, as_of
    replaced = (await history.read_summaries(everyone, SummariesQuery(as_of=AsOf(offset=6), active=False))).answer
    assert [(s.summary.summary_id, s.active) for s in replaced.summaries] == [("A", False), ("up", True), ("B", False)]
    assert await contents(history, everyone, as_of=AsOf(offset=4)) == ["r4"]
    with pytest.raises(ValueError, match="do not happen"):
        SummariesQuery(as_of=AsOf(happened=START))


async def test_summaries_have_their_own_log_time(history: History) -> None:
    await given(history, talk(4))
    book = Book(history)
    await book.take(summary("A", "r0", at=1), summary("B", "r1", at=2))  # recorded at START and a second later
    assert await book.active(TALK, as_of=AsOf(recorded=START - STEP)) == []
    assert await book.active(TALK, as_of=AsOf(recorded=START)) == ["A"]
    assert await book.active(TALK, as_of=AsOf(recorded=START + 9 * STEP)) == ["A", "B"]


async def test_topics_are_those_of_what_could_be_recalled_then(history: History) -> None:
    log = Log()
    for n in range(3):
        log.says(f"r{n}")
    log.removes("r0", scope="both")
    log.invalidates("r1")
    log.clears(scope="recall")
    await given(history, log)
    when = [log.entries[n].event.data.timestamp for n in range(3)]  # type: ignore[union-attr]
    await derive(history, [derived(f"r{n}", ("天气", "tea", "cats")[n], at=n, happened=when[n]) for n in range(3)])

    async def topics(as_of: AsOf | None) -> set[str]:
        return {t.topic for t in (await history.read_topics(scope(), TopicsQuery(as_of=as_of))).answer.topics}

    expected = ({"天气"}, {"天气", "tea"}, {"天气", "tea", "cats"}, {"tea", "cats"}, {"cats"}, set[str]())
    for offset, there in enumerate(expected):
        for as_of in axes(offset):
            assert await topics(as_of) == there
    assert await topics(None) == set()


async def test_a_standpoint_knows_its_instant_and_how_far_it_sees(history: History) -> None:
    log = Log()
    log.says("one")
    log.removes("one")
    log.says("two")
    await given(history, log)

    async def stand(as_of: AsOf | None) -> tuple[int | None, datetime | None]:
        found = await history.standpoint(scope(), as_of)
        return found.highest, found.instant

    assert await stand(None) == (None, None)
    assert await stand(AsOf(offset=1)) == (1, START)
    assert await stand(AsOf(offset=99)) == (99, START + 2 * STEP)
    assert await stand(AsOf(positions=())) == (-1, None)
    half = START + 1.5 * STEP
    assert await stand(AsOf(recorded=half)) == (0, half)
    assert await stand(AsOf(recorded=START - STEP)) == (-1, START - STEP)
    assert await stand(AsOf(happened=half)) == (None, half)
    assert (await history.standpoint(scope(tenant="nobody"), AsOf(offset=2))).instant is None


async def test_positions_of_another_log_are_refused(history: History) -> None:
    other = AsOf(positions=(Reached(topic="other.records", partition=0, offset=1),))
    with pytest.raises(RequestRefused, match="another log"):
        await history.standpoint(scope(), other)
    with pytest.raises(RequestRefused, match="another log"):
        await history.read_history(scope(), HistoryQuery(as_of=other), max_bytes=1_000)
    with pytest.raises(RequestRefused, match="another log"):
        await history.read_topics(scope(), TopicsQuery(as_of=other))


async def test_the_past_costs_what_is_asked_for_however_long_the_history_is(open_history: OpenHistory) -> None:
    costs = []
    for length in (400, 20_000):
        history = await open_history(readers=1)
        await past(history, length)
        if not history._database.is_sqlite:
            pytest.skip("instructions are counted; the plans are those of the window's test")
        of, costs_here = scope(None, "ann"), []
        for as_of in (AsOf(offset=100), AsOf(recorded=START + 100 * STEP)):
            counter = Counter(history, history._database._reader)
            with counter.counting():
                stand = await history.standpoint(of, as_of)
                await history.cleared(of, view=stand.view)
                found = await history.recallable(of, [f"r{n}" for n in range(0, 90, 3)], view=stand.view)
                await history.recent(of, 8, as_of=as_of)
                await history.core(of, view=stand.view)
            assert len(found) == 30
            costs_here.append(counter.work)
        costs.append(costs_here)
    (short_offset, short_time), (long_offset, long_time) = costs
    assert long_offset < 1.2 * short_offset + 500, costs
    assert long_time < 2 * short_time + 2_000, costs  # a bisection: a step more for each doubling
