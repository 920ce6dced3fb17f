"""The erasure ledger: at once, for ever, and nobody else's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engramlog.engine.history import History
from engramlog.schemas.keys import event_key, partition_for, record_key
from engramlog.schemas.topics import Topics
from tests.contract.conftest import ONE_PARTITION, OpenHistory
from tests.history_log import Log, contents, given, scope

EVERYONE = ("s1/ann", "s1/bob", "s2/ann", "s2/-", "other agent", "other tenant")


def lives() -> Log:
    log = Log()
    log.says("s1/ann", session="s1", user="ann")
    log.says("s1/bob", session="s1", user="bob")
    log.says("s2/ann", session="s2", user="ann")
    log.says("s2/-", session="s2")
    log.says("other agent", agent="other", user="ann")
    log.says("other tenant", tenant="acme-corp", user="ann", session="s1")
    return log


async def left(history: History) -> list[str]:
    places = [scope(users="all"), scope(users="all", agent="other"), scope(users="all", tenant="acme-corp")]
    return [content for place in places for content in await contents(history, place)]


SCOPES: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("record", {"ids": ("s1/bob", "s2/-", "unknown")}, ("s1/bob", "s2/-")),
    ("session", {"session": "s1"}, ("s1/ann", "s1/bob")),
    ("user", {"user": "ann"}, ("s1/ann", "s2/ann")),
    ("user", {"user": "ann", "agent": None}, ("s1/ann", "s2/ann", "other agent")),
    ("agent", {}, ("s1/ann", "s1/bob", "s2/ann", "s2/-")),
    ("tenant", {}, ("s1/ann", "s1/bob", "s2/ann", "s2/-", "other agent")),
]


@pytest.mark.parametrize(("what", "where", "gone"), SCOPES)
async def test_an_erasure_takes_what_it_covers_and_nothing_else(
    history: History, what: str, where: dict[str, Any], gone: tuple[str, ...]
) -> None:
    log = lives()
    where = dict(where)
    log.erases(what, *where.pop("ids", ()), **where)
    await given(history, log)
    kept = [c for c in EVERYONE if c not in gone]
    assert await left(history) == kept
    stats = (await history.read_stats(scope(users="all"))).answer
    assert stats.records == stats.visible == len([c for c in kept if c.startswith("s")])


@pytest.mark.parametrize(("what", "where", "gone"), SCOPES)
@pytest.mark.parametrize("sizes", [(), (7,), (1, 1, 1, 1, 1, 1, 1, 1)])
async def test_a_later_copy_is_dropped_for_ever_and_a_new_id_is_kept(
    history: History, what: str, where: dict[str, Any], gone: tuple[str, ...], sizes: tuple[int, ...]
) -> None:
    log = lives()
    where = dict(where)
    log.erases(what, *where.pop("ids", ()), **where)
    for entry in log.entries[:6]:
        log.append(entry.event)
    log.tombstone(record_key("acme", "bot", gone[0]))
    for entry in log.entries[:6]:
        log.append(entry.event)
    log.says("new", session="s1", user="ann")
    await given(history, log, sizes)
    kept = [c for c in EVERYONE if c not in gone]
    assert sorted(await left(history)) == sorted([*kept, "new"])


async def test_marks_that_only_named_erased_records_go_and_later_ones_are_dropped(history: History) -> None:
    log = lives()
    log.corrects("s1/ann", "secret", id="c1")
    log.removes("s1/ann", "s2/-", id="r1")
    log.erases("record", "s1/ann")
    await given(history, log)
    digest = await history.digest()
    log.corrects("s1/ann", "secret", id="c1")
    log.corrects("s1/ann", "secret", id="c2")
    log.invalidates("s1/ann", "secret", id="c3")
    await given(history, log)
    assert await history.digest() == digest
    assert await left(history) == ["s1/bob", "s2/ann", "other agent", "other tenant"]


async def test_an_erased_users_correction_of_a_shared_record_goes(history: History) -> None:
    log = lives()
    log.corrects("s2/-", "ann says", user="ann", id="c1")
    log.clears(user="ann", users="all", session="s1")
    log.erases("user", user="ann")
    log.corrects("s2/-", "ann says", user="ann", id="c1")  # an import brings it back
    await given(history, log)
    assert await contents(history, scope(users="all")) == ["s2/-"]  # the clear of everybody's records stays


async def test_the_ledger_is_permanent(history: History) -> None:
    log = lives()
    log.erases("record", "s1/bob", id="x")
    log.tombstone(event_key("acme", "bot", "x"))
    log.says("s1/bob", session="s1", user="bob")
    await given(history, log, sizes=[6, 1, 1])
    assert "s1/bob" not in await left(history)


async def test_an_erasure_that_is_sent_again_covers_what_came_between(history: History) -> None:
    log = lives()
    log.erases("session", session="s1", id="x")
    log.says("between", session="s1")
    log.erases("session", session="s1", id="x")
    log.says("after", session="s1")
    await given(history, log)
    assert await contents(history, scope("s1", users="all")) == ["after"]


async def test_an_erasure_of_a_tenant_works_on_its_own_partition_only(open_history: OpenHistory) -> None:
    topics = Topics(partitions=2)
    history = await open_history(topics=topics)
    agents = {partition_for("acme", f"a{n}", 2): f"a{n}" for n in range(10)}
    logs = [Log(agent=agents[p], partition=p) for p in (0, 1)]
    for log in logs:
        log.says("a")
    logs[0].end = logs[0].end + 100  # later than everything in the other partition
    logs[0].erases("tenant")
    for log in logs:
        await given(history, log)
    assert await contents(history, scope(agent=agents[0])) == []
    assert await contents(history, scope(agent=agents[1])) == ["a"]
    logs[1].erases("tenant")
    await given(history, logs[1])
    assert await contents(history, scope(agent=agents[1])) == []


@pytest.mark.parametrize("how", ["erasure", "tombstone"])
async def test_what_was_erased_is_in_no_sqlite_file(tmp_path: Path, how: str) -> None:
    history = History(f"sqlite:///{tmp_path}/x.db", topics=ONE_PARTITION)
    await history.start()
    log = Log()
    for n in range(50):
        log.says(f"needle-in-the-file {n} " + "x" * (n * 200), id=f"r{n}", user="ann")
        log.says(f"haystack {n}", id=f"h{n}")
    log.corrects("r1", "needle-in-the-file too")
    await given(history, log)
    assert holds(tmp_path, b"needle-in-the-file")
    if how == "erasure":
        log.erases("user", user="ann")
    else:
        for entry in log.entries[:]:
            if b"needle" in entry.value:
                log.tombstone(entry.event.key())  # type: ignore[union-attr]
    await given(history, log)
    await history.scrub()
    assert not holds(tmp_path, b"needle-in-the-file")
    assert holds(tmp_path, b"haystack 7")
    await history.stop()


def holds(folder: Path, text: bytes) -> bool:
    return any(text in path.read_bytes() for path in folder.iterdir())


async def test_a_rebuild_from_the_compacted_log_agrees(open_history: OpenHistory, fresh_url: Callable[[], str]) -> None:
    log = lives()
    log.corrects("s1/ann", "x", session="s1")
    log.removes("s2/-")
    log.erases("session", session="s1")
    log.says("s2/ann", session="s2", user="ann")
    live, rebuilt = await open_history(), await open_history()
    await given(live, log, sizes=[1] * 10)
    await given(rebuilt, log.compacted())
    assert await live.digest() == await rebuilt.digest()
    assert await live.digest(positions=False) == await rebuilt.digest(positions=False)
