"""Applying runs: all or nothing, fenced, once; checkpoints; marks that move or go."""

import asyncio
from collections.abc import Callable

import pytest

from engramlog.engine.history import Checkpoint, History
from engramlog.engine.history.versions import HISTORY
from engramlog.engine.log import Refused, Run
from engramlog.schemas.errors import ConfigurationError, Fenced, StoreUnavailable, Unprocessable
from engramlog.schemas.keys import event_key, record_key
from tests.contract.conftest import OpenHistory
from tests.history_log import TOPIC, Log, contents, given, scope


async def opened(history: History, *, cluster: str | None = "c", topic: str | None = "t", end: int = 10**6) -> int:
    return await history.open_partition(TOPIC, 0, cluster_id=cluster, topic_id=topic, end_offset=end)


async def test_a_partition_goes_on_where_the_last_run_ended(history: History) -> None:
    log = Log()
    log.says("a")
    assert await opened(history) == 0
    await history.apply(next(log.runs()))
    assert await opened(history) == 1
    assert await history.checkpoints() == [
        Checkpoint(TOPIC, 0, 1, updated_ms=(await history.checkpoints())[0].updated_ms, refused=0)
    ]


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"cluster": "c2"}, "cluster id c, but the broker says c2"),
        ({"topic": "t2"}, "topic id t, but the broker says t2"),
        ({"end": 0}, "ahead of its log"),
    ],
)
async def test_a_database_of_another_log_is_refused(history: History, other: dict[str, object], says: str) -> None:
    log = Log()
    log.says("a")
    await given(history, log)
    with pytest.raises(ConfigurationError, match=says) as refusal:
        await opened(history, **other)  # type: ignore[arg-type]
    assert TOPIC in str(refusal.value)
    assert await opened(history, cluster=None, topic=None) == 1


async def test_ids_that_were_unknown_at_first_are_learnt(history: History) -> None:
    assert await opened(history, cluster=None, topic=None) == 0
    assert await opened(history) == 0
    with pytest.raises(ConfigurationError):
        await opened(history, cluster="other")


@pytest.mark.parametrize("expected", [0, 2, 7])
async def test_a_fenced_run_writes_nothing(history: History, expected: int) -> None:
    log = Log()
    log.says("a")
    await given(history, log)
    digest = await history.digest()
    log.says("b")
    log.erases("agent")
    with pytest.raises(Fenced, match="not at"):
        await history.apply(Run(TOPIC, 0, expected, 3, tuple(log.entries[1:]), (Refused(2, "not_json"),)))
    assert await history.digest() == digest
    assert [(c.next, c.refused) for c in await history.checkpoints()] == [(1, 0)]


async def test_a_partition_that_was_never_opened_is_fenced(history: History) -> None:
    with pytest.raises(Fenced):
        await history.apply(Run(TOPIC, 0, 0, 1))


async def test_of_two_writers_at_one_checkpoint_one_wins(
    open_history: OpenHistory, fresh_url: Callable[[], str]
) -> None:
    url = fresh_url()
    writers = [await open_history(url) for _ in range(4)]
    logs = []
    for n in range(4):
        logs.append(Log())
        for i in range(50):
            logs[n].says(f"{n}-{i}")
    await opened(writers[0])
    outcomes = await asyncio.gather(
        *(w.apply(next(log.runs())) for w, log in zip(writers, logs, strict=True)), return_exceptions=True
    )
    assert sorted(type(o).__name__ for o in outcomes) == ["Fenced", "Fenced", "Fenced", "NoneType"]
    winner = outcomes.index(None)
    assert await contents(writers[0], scope()) == [f"{winner}-{i}" for i in range(50)]


async def test_several_processes_may_start_at_once(open_history: OpenHistory, fresh_url: Callable[[], str]) -> None:
    url = fresh_url()
    histories = await asyncio.gather(*(open_history(url) for _ in range(5)))
    assert [await opened(h) for h in histories] == [0] * 5


async def test_partitions_move_apart_and_gaps_are_fine(history: History) -> None:
    one, two = Log(), Log(partition=1, agent="two")
    one.end = two.end = 40
    one.says("a")
    two.says("b")
    await given(history, one)
    await given(history, two)
    assert [(c.partition, c.next) for c in await history.checkpoints()] == [(0, 41), (1, 41)]


async def test_refused_positions_are_kept_once_and_counted(history: History) -> None:
    log = Log()
    log.says("a")
    await opened(history)
    await history.apply(Run(TOPIC, 0, 0, 3, tuple(log.entries), (Refused(1, "not_json"), Refused(1, "not_json"))))
    await history.apply(Run(TOPIC, 0, 3, 5, (), (Refused(3, "too_large"),)))
    assert [(c.next, c.refused) for c in await history.checkpoints()] == [(5, 2)]


async def test_what_the_database_cannot_hold_spoils_the_whole_run_and_nothing_else(history: History) -> None:
    log = Log()
    log.says("a")
    log.says("b")
    good, bad = log.entries
    too_late = type(bad)(bad.offset, 2**70, bad.key, bad.event, bad.value)
    await opened(history)
    with pytest.raises(Unprocessable):
        await history.apply(Run(TOPIC, 0, 0, 2, (good, too_late)))
    assert await contents(history, scope()) == []
    await history.apply(Run(TOPIC, 0, 0, 2, (good,), (Refused(1, "unprocessable"),)))
    assert await contents(history, scope()) == ["a"]


async def test_a_database_that_cannot_be_reached_is_unavailable(open_history: OpenHistory) -> None:
    with pytest.raises(StoreUnavailable):
        await open_history("sqlite:////no/such/folder/history.db")
    with pytest.raises(StoreUnavailable):
        await open_history("postgresql://nobody@/x?host=/no/such/folder", timeout_s=2)


async def test_a_tombstone_deletes_a_record_in_its_place_in_the_run(history: History) -> None:
    log = Log()
    log.says("a", id="a")
    log.says("b", id="b")
    log.tombstone(record_key("acme", "bot", "a"))
    log.tombstone(record_key("acme", "bot", "never"))
    log.tombstone(record_key("acme", "bot", "nul\0"))
    log.tombstone(record_key("acme", "bot", "b"))
    log.says("again", id="b")
    await given(history, log)
    assert await contents(history, scope()) == ["again"]
    assert (await history.read_stats(scope())).answer.records == 1


async def test_a_tombstone_takes_a_mark_back(history: History) -> None:
    log = Log()
    for i in "abcd":
        log.says(i)
    log.corrects("d", "D", id="correction")
    log.removes("a", "b", id="removal")
    log.clears(id="clear", scope="both")
    log.removes("c", id="later")
    await given(history, log)
    assert await contents(history, scope()) == []
    log.tombstone(event_key("acme", "bot", "clear"))
    await given(history, log)
    assert await contents(history, scope()) == ["D"]
    for i in ("removal", "correction", "nul\0"):
        log.tombstone(event_key("acme", "bot", i))
    await given(history, log)
    assert await contents(history, scope()) == ["a", "b", "d"]
    (c,) = (await history.read_records(scope(), ["c"], max_bytes=10**6)).answer.records
    assert c.removed_at == 7  # the next one that had hidden it
    assert (await history.read_stats(scope())).answer.visible == 3


@pytest.mark.parametrize("first", ["clear", "removal"])
@pytest.mark.parametrize("second", ["clear", "removal", "clear of another session", "clear of recall"])
@pytest.mark.parametrize("how", ["tombstone", "sent again"])
async def test_what_a_mark_had_hidden_is_hidden_by_the_next_that_does(
    history: History, first: str, second: str, how: str
) -> None:
    log = Log()

    def mark(what: str, i: str) -> int:
        if what == "removal":
            return log.removes("a", id=i)
        session = "other" if what == "clear of another session" else None
        return log.clears(id=i, session=session, scope="recall" if what == "clear of recall" else "window")

    log.says("a", session="s")
    mark(first, "m1")
    at = mark(second, "m2")
    again = None
    if how == "tombstone":
        log.tombstone(event_key("acme", "bot", "m1"))
    else:
        again = mark(first, "m1")
    await given(history, log, sizes=[1, 1, 1])
    (a,) = (await history.read_records(scope(), ["a"], max_bytes=10**6)).answer.records
    assert a.removed_at == (at if second in {"clear", "removal"} else again)
    assert (await history.read_stats(scope())).answer.visible == int(a.removed_at is None)


@pytest.mark.parametrize("again", ["clear", "removal", "correction"])
async def test_a_mark_that_is_sent_again_counts_at_its_later_place(history: History, again: str) -> None:
    log = Log()

    def mark() -> None:
        match again:
            case "clear":
                log.clears(id="m")
            case "removal":
                log.removes("a", "b", id="m")
            case "correction":
                log.corrects("a", "A", id="m")

    log.says("a")
    mark()
    log.says("b")
    moved = log.end
    mark()
    log.says("c")
    await given(history, log, sizes=[1, 1, 1])
    expected = ["A", "b", "c"] if again == "correction" else ["c"]
    assert await contents(history, scope()) == expected
    (a,) = (await history.read_records(scope(), ["a"], max_bytes=10**6)).answer.records
    assert moved in {a.removed_at, a.corrected_at}


async def test_a_cancelled_apply_was_applied_or_not_and_the_checkpoint_tells(history: History) -> None:
    log = Log()
    for i in range(2000):
        log.says(f"{i}")
    await opened(history)
    task = asyncio.create_task(history.apply(next(log.runs())))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await given(history, log)
    assert (await history.read_stats(scope())).answer.records == 2000


async def test_it_can_be_stopped_and_started_again(open_history: OpenHistory, fresh_url: Callable[[], str]) -> None:
    history = await open_history(fresh_url())
    log = Log()
    log.says("a")
    await given(history, log)
    await history.stop()
    await history.stop()
    with pytest.raises(RuntimeError, match="not started"):
        await history.digest()
    await history.start()
    assert await contents(history, scope()) == ["a"]


async def test_another_version_lives_beside_it(history: History) -> None:
    two = history.of(await history.versions.begin(HISTORY, generation=1))
    await two.prepare()
    log = Log()
    log.says("a")
    await given(history, log)
    assert await contents(two, scope()) == []
    await given(two, log)
    assert await history.digest() == await two.digest()
