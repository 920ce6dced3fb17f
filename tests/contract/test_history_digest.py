"""The history's digest, and what a comparison with the log tells of a history that was tampered with."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text

from engramlog.engine.history import History
from engramlog.engine.log import Entry, Run
from engramlog.engine.replay.comparing import Comparison, compare_history, require_equal
from engramlog.schemas.codec import derived_codec, summaries_codec
from engramlog.schemas.errors import ConfigurationError
from engramlog.schemas.keys import parse_key
from tests.contract.conftest import OpenHistory
from tests.contract.test_history_recall import DERIVED, derived
from tests.contract.test_history_summaries import summary
from tests.history_log import START, START_MS, TOPIC, Log

SUMMARIES = "memory.summaries"
ODD = 'r/:|"()-记录👋'
Place = tuple[str, int]


def entries_of(events: Sequence[Any], codec: Any) -> list[Entry]:
    """Events as they lie in a topic."""
    return [
        Entry(n, START_MS + n, parse_key(event.key()), event, codec.encode(event)) for n, event in enumerate(events)
    ]


@dataclass
class Topics3:
    """What lies in the three topics of a history."""

    records: list[Entry]
    derived: list[Entry]
    summaries: list[Entry]
    ends: dict[Place, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.ends:
            self.ends = {place: held[-1].offset + 1 for place, held in self.by_place().items()}

    def by_place(self) -> dict[Place, list[Entry]]:
        return {(TOPIC, 0): self.records, (DERIVED, 0): self.derived, (SUMMARIES, 0): self.summaries}

    def compacted(self) -> "Topics3":
        """What compaction leaves when it has done all that it may, tombstones included."""
        left = []
        for held in self.by_place().values():
            last = {entry.key: entry.offset for entry in held}
            left.append([e for e in held if last[e.key] == e.offset and e.event is not None])
        return Topics3(*left, ends=self.ends)


def past() -> Topics3:
    """Two tenants, everything in it: re-sent records, marks that moved, tombstones, facts, core, roll-ups, erasures."""
    log = Log()
    for n in range(6):
        log.says(f"r{n}", session="s", role=("user", "assistant")[n % 2])
    log.says("我住在上海 👋", id=ODD, session="s", layer="core")
    log.says("core no more", id="was", layer="core")
    log.says("core no more", id="was")
    log.says("lives in Shanghai", id="fact", layer="long_term", origin="extracted", derived_from=(ODD, "r1"))
    log.says("other", id="r0", tenant="corp", session="s")
    log.removes("r1", id="gone")
    log.corrects("r2", "corrected", id="c")
    log.corrects("r2", "corrected again", id="c")
    log.invalidates("r3", "no longer", id="i")
    log.clears(session="other", id="epoch")
    log.says("again", id="r4", session="s")
    log.erases("record", "r5", id="x")
    log.says("dead", id="dead")
    log.tombstone(log.entries[-1].event.key())
    derivations = [
        derived("r0", "上海", at=0, session="s"),
        derived("r5", "erased", at=5, session="s"),
        derived("r4", "old", at=4, session="s"),
        derived("r4", "new", at=16, session="s"),
        derived("dead", "dead", at=18),
        derived("r0", "corp", at=10, session="s", tenant="corp"),
    ]
    made = [
        summary("S1", "r0", "r1"),
        summary("S1", "r0", "r1", at=3),
        summary("S2", "r2"),
        summary("T", summaries=("S1", "S2"), replaces=("S1", "S2"), level=2, first=0, last=2),
        summary("lost", "r4", "r5", first=4, last=5),
    ]
    return Topics3(log.entries, entries_of(derivations, derived_codec()), entries_of(made, summaries_codec()))


async def brought(history: History, held: Topics3, *, order: Sequence[int] = (0, 1, 2), size: int = 1_000) -> None:
    """Bring a history to the end of the topics, one after the other."""
    places = list(held.by_place().items())
    for i in order:
        (topic, partition), entries = places[i]
        end = held.ends[topic, partition]
        at = await history.open_partition(topic, partition, cluster_id="c", topic_id="t", end_offset=end)
        for start in range(at, end, size):
            stop = min(end, start + size)
            run = tuple(e for e in entries if start <= e.offset < stop)
            await history.apply(Run(topic, partition, start, stop, run))


class Building:
    """Stands for a build: brings another history exactly where it is told to go."""

    def __init__(self, rebuilt: History, held: Topics3) -> None:
        self._held = held
        version = SimpleNamespace(generation=1)
        self.target = SimpleNamespace(history=rebuilt, version=version)
        self.progress = SimpleNamespace(next=dict.fromkeys(held.by_place(), 0))
        self.goals: list[dict[Place, int]] = []

    async def advance(self, until: Mapping[Place, int]) -> None:
        self.goals.append(dict(until))
        held = {p: [e for e in entries if e.offset < until[p]] for p, entries in self._held.by_place().items()}
        await brought(self.target.history, replace(self._held, ends=dict(until), **_named(held)))
        self.progress.next = dict(until)


def _named(held: Mapping[Place, list[Entry]]) -> dict[str, list[Entry]]:
    return dict(zip(("records", "derived", "summaries"), held.values(), strict=True))


async def compared(live: History, rebuilt: History, held: Topics3, **how: Any) -> Comparison:
    place: Any = SimpleNamespace(history=live)
    build: Any = Building(rebuilt, held)
    return await compare_history(place, build, **how)


async def execute(history: History, statement: str, **values: Any) -> None:
    done = await history._database.write(lambda c: c.execute(text(statement), values).rowcount)
    assert done == 1


async def test_whatever_order_topics_and_batches_come_in_the_digest_is_the_same(open_history: OpenHistory) -> None:
    digests = set()
    for order, size in zip(itertools.permutations(range(3)), (1, 2, 3, 5, 7, 1_000), strict=True):
        history = await open_history()
        await brought(history, past(), order=order, size=size)
        examined = await history.examined()
        digests.add(examined.digest)
        assert examined.checkpoints == past().ends
    assert len(digests) == 1
    assert examined.counts == {
        "record": 9,
        "lineage": 2,
        "core": 1,
        "mark": 4,
        "ledger": 1,
        "derived": 3,
        "summary": 3,
        "covering": 5,
        "replaced": 2,
    }


async def test_what_compaction_leaves_has_the_same_digest(open_history: OpenHistory) -> None:
    live, rebuilt = await open_history(), await open_history()
    await brought(live, past())
    left = past().compacted()
    assert sum(map(len, left.by_place().values())) < sum(map(len, past().by_place().values())) - 5
    await brought(rebuilt, left, order=(2, 1, 0))
    one, two = await live.examined(), await rebuilt.examined()
    assert one == two


async def test_agents_and_tenants_have_digests_of_their_own(open_history: OpenHistory) -> None:
    live, other = await open_history(), await open_history()
    await brought(live, past())
    held = past()
    await brought(other, replace(held, records=[e for e in held.records if e.key.tenant == "acme"]))
    one, two = await live.examined(), await other.examined()
    assert one.digest != two.digest
    assert one.by_agent["acme", "bot"] == two.by_agent["acme", "bot"]
    assert set(one.by_agent) == {("acme", "bot"), ("corp", "bot")}


async def test_without_positions_a_log_that_begins_elsewhere_compares_equal(open_history: OpenHistory) -> None:
    one, two = await open_history(), await open_history()
    for history, start in ((one, 0), (two, 7)):
        log = Log()
        log.end = start
        log.says("你好", id=ODD, happened=START)
        log.removes(ODD, id="m", at=log.end)
        log.erases("record", "nobody", id="x")
        ends = {(TOPIC, 0): log.end, (DERIVED, 0): 0, (SUMMARIES, 0): 0}
        await brought(history, Topics3(log.entries, [], [], ends=ends))
    assert await one.digest() != await two.digest()
    assert await one.digest(positions=False) == await two.digest(positions=False)
    await execute(two, "UPDATE history_v1_records SET hidden = 0")
    assert await one.digest(positions=False) != await two.digest(positions=False)


async def test_an_untouched_history_is_what_the_log_says(open_history: OpenHistory) -> None:
    live, rebuilt = await open_history(), await open_history()
    await brought(live, past())
    found = await compared(live, rebuilt, past())
    assert found.equal
    assert (found.differences, found.different, found.why_not) == ((), 0, "")
    assert str(found.side("live")) == str(found.side("rebuilt")) == await live.digest()
    assert found.positions == past().ends
    require_equal(found)


TAMPERED = {
    "body": (
        "UPDATE history_v1_records SET body = :value WHERE tenant = 'acme' AND record_id = 'r0'",
        {"value": b'{"data":{"content":"forged"}}'},
        ("record", "r0"),
        "body.data.content",
    ),
    "no json": (
        "UPDATE history_v1_records SET body = :value WHERE tenant = 'acme' AND record_id = 'r0'",
        {"value": b"\xff{"},
        ("record", "r0"),
        "body",
    ),
    "hidden": (
        "UPDATE history_v1_records SET hidden = 1 WHERE tenant = 'acme' AND record_id = :id",
        {"id": ODD},
        ("record", ODD),
        "hidden",
    ),
    "session": (
        "UPDATE history_v1_records SET session_id = 'x' WHERE tenant = 'corp' AND record_id = 'r0'",
        {},
        ("record", "r0"),
        "session_id",
    ),
    "mark": (
        "UPDATE history_v1_marks SET position = 1 WHERE event_id = 'gone'",
        {},
        ("mark", "gone"),
        "position",
    ),
    "ledger": ("UPDATE history_v1_ledger SET record_ids = '[]'", {}, ("ledger", "x < 0"), "record_ids"),
    "importance": (
        "UPDATE history_v1_derived SET importance = 0.75 WHERE tenant = 'acme' AND record_id = 'r0'",
        {},
        ("derived", "r0"),
        "importance",
    ),
    "topic": (
        "UPDATE history_v1_derived SET topic = '北京' WHERE tenant = 'acme' AND record_id = 'r0'",
        {},
        ("derived", "r0"),
        "topic",
    ),
    "summary": (
        "UPDATE history_v1_summaries SET last = 3 WHERE summary_id = 'S2'",
        {},
        ("summary", "S2"),
        "last",
    ),
}


@pytest.mark.parametrize("what", TAMPERED)
async def test_one_changed_column_is_named_with_both_values(open_history: OpenHistory, what: str) -> None:
    statement, values, key, path = TAMPERED[what]
    live, rebuilt = await open_history(), await open_history()
    await brought(live, past())
    await execute(live, statement, **values)
    found = await compared(live, rebuilt, past())
    (one,) = found.differences
    assert (one.kind, one.id) == key
    assert one.tenant == ("corp" if "corp" in statement else "acme")
    assert path in one.fields
    assert one.live is not None
    assert one.rebuilt is not None
    assert one.live[path] != one.rebuilt[path]
    assert (found.equal, found.different) == (False, 1)
    with pytest.raises(ConfigurationError, match="not what the log says, in 1 places"):
        require_equal(found)


GONE = {
    "record": "DELETE FROM history_v1_records WHERE tenant = 'corp'",
    "mark": "DELETE FROM history_v1_marks WHERE event_id = 'i'",
    "ledger": "DELETE FROM history_v1_ledger",
    "derived": "DELETE FROM history_v1_derived WHERE tenant = 'acme' AND record_id = 'r4'",
    "lineage": "DELETE FROM history_v1_lineage WHERE source_id = 'r1'",
    "core": "DELETE FROM history_v1_core WHERE record_id <> 'was'",
    "covering": "DELETE FROM history_v1_covering WHERE source_id = 'r2'",
    "replaced": "DELETE FROM history_v1_replaced WHERE summary_id = 'S1'",
}


@pytest.mark.parametrize("kind", GONE)
async def test_a_deleted_row_is_missed(open_history: OpenHistory, kind: str) -> None:
    live, rebuilt = await open_history(), await open_history()
    await brought(live, past())
    await execute(live, GONE[kind])
    found = await compared(live, rebuilt, past())
    missing = [one for one in found.differences if one.live is None]
    assert kind in {one.kind for one in missing}
    assert all(one.rebuilt for one in missing)


async def test_a_row_too_many_is_told(open_history: OpenHistory) -> None:
    live, rebuilt = await open_history(), await open_history()
    await brought(live, past())
    await execute(
        live,
        "INSERT INTO history_v1_records SELECT tenant, 'intruder', '" + ODD.replace(":", "\\:") + "', session_id, "
        "user_id, 99, recorded_ms, happened_us, hidden, hidden_at, hidden_ms, tool, kept, marked, body "
        "FROM history_v1_records WHERE tenant = 'corp'",
    )
    found = await compared(live, rebuilt, past())
    (one,) = found.differences
    assert (one.tenant, one.agent, one.kind, one.id, one.rebuilt) == ("corp", "intruder", "record", ODD, None)
    assert one.live
    assert one.live["position"] == 99


async def test_only_what_is_meant_is_compared(open_history: OpenHistory) -> None:
    live, rebuilt = await open_history(), await open_history()
    await brought(live, past())
    await execute(live, "UPDATE history_v1_records SET tool = 1 WHERE tenant = 'corp'")
    assert (await compared(live, rebuilt, past(), only=lambda agent: agent[0] == "acme")).equal
    assert not (await compared(live, await open_history(), past(), only=lambda agent: agent[0] == "corp")).equal


async def test_what_compaction_took_between_two_looks_counts_only_if_it_stays_so(open_history: OpenHistory) -> None:
    live, rebuilt = await open_history(), await open_history()
    held = past()
    early = {(TOPIC, 0): 16, (DERIVED, 0): 6, (SUMMARIES, 0): 5}  # before r4 was sent again
    cut = replace(held, records=[e for e in held.records if e.offset < 16], ends=early)
    await brought(live, cut)

    class Moving(Building):
        """A log that is compacted while it is read; the live history goes on meanwhile."""

        async def advance(self, until: Mapping[Place, int]) -> None:
            await super().advance(until)
            await brought(live, held)

    place: Any = SimpleNamespace(history=live)
    build: Any = Moving(rebuilt, held.compacted())
    found = await compare_history(place, build)
    assert len(build.goals) > 1
    assert build.goals[0][TOPIC, 0] == 16
    assert found.equal


async def test_of_another_generation_all_but_the_derivations_is_compared(open_history: OpenHistory) -> None:
    live, rebuilt = await open_history(), await open_history()
    await brought(live, past())
    await execute(live, "UPDATE history_v1_derived SET topic = 'x' WHERE tenant = 'acme' AND record_id = 'r0'")
    place: Any = SimpleNamespace(history=live)
    build: Any = Building(rebuilt, past())
    build.target.version.generation = 2
    found = await compare_history(place, build)
    assert found.equal
    assert "derived" not in found.side("live").counts


async def test_a_database_of_another_kind_has_the_same_digest(open_history: OpenHistory, tmp_path: Any) -> None:
    history, embedded = await open_history(), await open_history(f"sqlite:///{tmp_path / 'embedded.db'}")
    await brought(history, past())
    await brought(embedded, past())
    assert await history.examined() == await embedded.examined()
