"""Any interleaving, in any runs, with crashes between: the history equals the model, and so does a rebuild."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from engramlog.engine.history import History
from engramlog.schemas.errors import Fenced
from engramlog.schemas.queries import AsOf
from engramlog.schemas.scope import Scope
from tests.contract.conftest import ONE_PARTITION
from tests.history_log import START, STEP, Log, window
from tests.history_log import given as brought
from tests.history_model import Model, folded
from tests.postgres import Server

pytestmark = pytest.mark.timeout(900)

TENANTS = ("acme", "acme-corp")
AGENTS = ("bot", "b/~%")
SESSIONS = (None, "s1", "s2")
USERS = (None, "u1", "u2")
IDS = tuple("abcd")
EVENTS = ("m1", "m2", "m3")
SCOPES = ("window", "window", "both", "recall")

places = st.fixed_dictionaries(
    {"tenant": st.sampled_from(TENANTS[:1] * 9 + TENANTS), "agent": st.sampled_from(AGENTS[:1] * 9 + AGENTS)}
)
addresses = st.fixed_dictionaries({"session": st.sampled_from(SESSIONS), "user": st.sampled_from(USERS)})
ids, events = st.sampled_from(IDS), st.sampled_from(EVENTS)
roles = st.sampled_from(("user", "user", "assistant", "system"))
several = st.lists(ids, min_size=1, max_size=3, unique=True)
scopes, whose = st.sampled_from(SCOPES), st.sampled_from(("own", "all"))
ats = st.none() | st.none() | st.integers(0, 40)
"""As of which offset a command was resolved."""
erasures = st.sampled_from(("record", "session", "user", "agent", "tenant", "user-everywhere"))

steps = st.one_of(
    st.tuples(st.just("says"), places, addresses, ids, roles, st.integers(0, 40)),
    st.tuples(st.just("says"), places, addresses, ids, roles, st.integers(0, 40)),
    st.tuples(st.just("clears"), places, addresses, events, scopes, whose, ats),
    st.tuples(st.just("removes"), places, addresses, events, scopes, several, ats),
    st.tuples(st.just("corrects"), places, addresses, events, ids, ats),
    st.tuples(st.just("invalidates"), places, addresses, events, ids, ats),
    st.tuples(st.just("ends"), places, addresses, events),
    st.tuples(st.just("buries"), places, ids, events, st.booleans()),
    st.tuples(st.just("erases"), places, addresses, erasures, several),
)


def write(log: Log, step: tuple[Any, ...]) -> None:
    """Append what a step says."""
    name, place, *rest = step
    n = log.end
    match name:
        case "says":
            address, i, role, happened = rest
            log.says(f"{i}{n}", id=i, role=role, happened=START + happened * STEP, **place, **address)
        case "clears":
            address, i, scope, users, at = rest
            log.clears(id=i, scope=scope, users=users, at=at, **place, **address)
        case "removes":
            address, i, scope, several_, at = rest
            log.removes(*several_, id=i, scope=scope, at=at, **place, **address)
        case "corrects":
            address, i, target, at = rest
            log.corrects(target, f"{target}{n}", id=i, at=at, **place, **address)
        case "invalidates":
            address, i, target, at = rest
            log.invalidates(target, f"{n}", id=i, at=at, **place, **address)
        case "ends":
            address, i = rest
            log.ends(address["session"] or "s1", id=i, **place, user=address["user"])
        case "buries":
            i, event, record = rest
            bury(log, place, i if record else event, record=record)
        case "erases":
            address, scope, several_ = rest
            erase(log, place, address, scope, several_)


def bury(log: Log, place: dict[str, str], i: str, *, record: bool) -> None:
    from engramlog.schemas.keys import event_key, record_key

    log.tombstone((record_key if record else event_key)(place["tenant"], place["agent"], i))


def erase(log: Log, place: dict[str, Any], address: dict[str, Any], scope: str, several_: list[str]) -> None:
    full = {**place, "session": address["session"] or "s1", "user": address["user"] or "u1"}
    if scope == "user-everywhere":
        scope, full["agent"] = "user", None
    log.erases(scope, *(several_ if scope == "record" else ()), **full)


def readers() -> list[Scope]:
    places_ = [("acme", "bot")] * 4 + [(t, a) for t in TENANTS for a in AGENTS]
    found = [Scope(t, a, s, u) for t, a in places_ for s in SESSIONS for u in USERS]
    return found + [Scope(t, a, s, None, "all") for t, a in places_ for s in SESSIONS]


@st.composite
def pasts(draw: st.DrawFn) -> tuple[Log, list[int]]:
    """A log, and the sizes of the runs that it is applied in."""
    log = Log()
    for step in draw(st.lists(steps, min_size=15, max_size=40)):
        write(log, step)
    return log, draw(st.lists(st.integers(1, 8), max_size=12))


async def equal(history: History, model: Model, data: st.DataObject, end: int) -> None:
    """The history answers as the model does."""
    axes = st.one_of(
        st.none(),
        st.builds(lambda n: AsOf(offset=n), st.integers(0, end + 2)),
        st.builds(lambda n: AsOf(recorded=START + n * STEP), st.integers(0, end + 2)),
        st.builds(lambda n: AsOf(happened=START + n * STEP + timedelta(microseconds=1)), st.integers(-1, 40)),
    )
    busy = Scope("acme", "bot", None, None, "all")
    for scope in [busy, *data.draw(st.lists(st.sampled_from(readers()), min_size=1, max_size=4, unique=True))]:
        n, as_of = data.draw(st.none() | st.integers(0, 5)), data.draw(axes)
        rows, truncated = model.history(scope, n, as_of)
        answer = await window(history, scope, n, as_of=as_of, keep_rate=0.5)
        assert [(*seen(c.stored), c.score) for c in answer.records] == [
            (*row, 1.0 if back is None else 0.5**back) for *row, back in rows
        ]
        assert answer.truncated == truncated
        by_id = (await history.read_records(scope, IDS, max_bytes=10**7)).answer
        assert {s.record.record_id: seen(s) for s in by_id.records} == model.by_id(scope)
        stats = (await history.read_stats(scope)).answer
        assert (stats.records, stats.visible, stats.sessions, stats.users) == model.stats(scope)


def seen(stored: Any) -> tuple[Any, ...]:
    invalidated = stored.invalidated.offset if stored.invalidated else None
    record = stored.record
    return (record.record_id, stored.offset, record.content, stored.corrected_at, invalidated, stored.removed_at)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(past=pasts(), data=st.data())
async def test_any_interleaving_equals_the_model_and_a_rebuild_on_sqlite(
    tmp_path_factory: pytest.TempPathFactory, past: tuple[Log, list[int]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("history")
    await check(past, data, f"sqlite:///{folder}/live.db", f"sqlite:///{folder}/rebuilt.db")


@pytest.mark.postgres
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(past=pasts(), data=st.data())
async def test_any_interleaving_equals_the_model_and_a_rebuild_on_postgresql(
    postgres: Server, past: tuple[Log, list[int]], data: st.DataObject
) -> None:
    await check(past, data, postgres.fresh(), postgres.fresh())


async def check(past: tuple[Log, list[int]], data: st.DataObject, live_url: str, rebuilt_url: str) -> None:
    log, sizes = past
    assume(log.entries)
    live, rebuilt = (History(url, topics=ONE_PARTITION, readers=1) for url in (live_url, rebuilt_url))
    try:
        await live.start()
        at = await live.open_partition(log.topic, 0, cluster_id="c", topic_id="t", end_offset=log.end)
        for run in log.runs(sizes):
            await live.apply(run)
            if data.draw(st.booleans()):  # the owner crashed before it told anyone
                with pytest.raises(Fenced):
                    await live.apply(run)
                at = await live.open_partition(log.topic, 0, cluster_id="c", topic_id="t", end_offset=log.end)
                assert at == run.next
        await equal(live, folded(log.entries), data, log.end)
        for key in sorted(folded(log.entries).forgotten):
            log.tombstone(key)
        await brought(live, log)
        await equal(live, folded(log.entries), data, log.end)
        left = log.compacted(until=data.draw(st.none() | st.integers(0, log.end)), tombstones=data.draw(st.booleans()))
        await rebuilt.start()
        await brought(rebuilt, left, data.draw(st.lists(st.integers(1, 8), max_size=5)))
        assert await rebuilt.digest() == await live.digest()
        await equal(rebuilt, folded(log.entries), data, log.end)
    finally:
        await live.stop()
        await rebuilt.stop()
