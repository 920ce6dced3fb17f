"""The inbox: records of producers that are not ours."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from engramlog.engine.client import MemoryRecord, Position, Scope
from engramlog.schemas.codec import records_codec
from engramlog.schemas.envelope import HistoryClearedEvent, RecordWritten
from engramlog.schemas.records import HistoryCleared
from tests.brokers import Rig, eventually

pytestmark = pytest.mark.kafka
EXAMPLES = Path(__file__).parents[2] / "examples"
EVERYTHING = ("admit", "store", "answer")


def produce(rig: Rig, messages: list[tuple[str, bytes]]) -> None:
    """As another team would: librdkafka, with its own partitioner."""
    producer = Producer({"bootstrap.servers": rig.config.bootstrap_servers, "enable.idempotence": True})
    for key, value in messages:
        while True:
            try:
                producer.produce(rig.topics.inbox, key=key, value=value)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def plain(**fields: Any) -> bytes:
    record = {"tenant": "acme", "agent": "helper", "session": "s1", "role": "user", "content": "hello"} | fields
    return json.dumps({k: v for k, v in record.items() if v is not None}, ensure_ascii=False).encode()


async def texts(rig: Rig, client: Any, scope: Scope) -> list[str]:
    return [c.record.content for c in (await client.history(scope)).records]


async def test_ten_thousand_records_in_order_and_bad_ones_as_dead_letters(rig: Rig) -> None:
    agents = [f"agent-{n}" for n in range(10)]
    messages, bad = [], []
    for n in range(10_000):
        agent = agents[n % len(agents)]
        messages.append((agent, plain(agent=agent, content=f"{n}: 你好 👋")))
        if n % 500 == 250:
            bad.append(plain(agent=agent, role="nobody", content=f"bad {n}"))
            messages.append((agent, bad[-1]))
    async with rig.consumers(*EVERYTHING), rig.client(timeout_s=60) as client:
        produce(rig, messages)

        async def all_there() -> bool:
            return len(await rig.dead_letters()) == len(bad) and all(
                [(await client.stats(Scope("acme", agent, "s1"))).records == 1_000 for agent in agents]
            )

        await eventually(all_there, within_s=120)
        for number, agent in enumerate(agents):
            expected = [f"{n}: 你好 👋" for n in range(number, 10_000, len(agents))]
            assert await texts(rig, client, Scope("acme", agent, "s1")) == expected
    letters = await rig.dead_letters()
    assert sorted(value or b"" for _, value in letters) == sorted(bad)
    for letter, _ in letters:
        assert (letter.reason, letter.consumer, letter.topic) == ("schema_violation", "admit", rig.topics.inbox)
        assert "role" in letter.error


async def test_what_the_inbox_takes_and_what_it_refuses(rig: Rig) -> None:
    scope = Scope("acme", "helper", "s1", "ada")
    known = RecordWritten.of(
        MemoryRecord(record_id="whole-event", role="user", content="a whole event"),
        source="billing",
        tenant="acme",
        agent="helper",
        sessionid="s1",
        userid="ada",
    )
    clear = HistoryClearedEvent(source="billing", tenantid="acme", agentid="helper", data=HistoryCleared())
    good = [
        plain(user="ada", content="plain"),
        records_codec().encode(known),
        plain(user="ada", record_id="mine", content="first copy"),
        plain(user="ada", record_id="mine", content="last copy", tags=["x"], metadata={"a": [1, None]}),
        plain(user="ada", content="done"),
    ]
    refused = {
        "not_admitted": records_codec().encode(clear),
        "schema_violation": plain(tenant=None),
        "not_json": b"{",
        "not_an_event": b"[]",
        "too_deep": plain(metadata=json.loads('{"a":' * 200 + "1" + "}" * 200)),
        "empty_value": b"",
    }
    async with rig.consumers(*EVERYTHING), rig.client() as client:
        produce(rig, [("k", value) for value in [*refused.values(), *good]])

        async def all_there() -> bool:
            return (await texts(rig, client, scope))[-1:] == ["done"]

        await eventually(all_there)
        assert await texts(rig, client, scope) == ["plain", "a whole event", "last copy", "done"]
        mine = await client.record(scope, "mine")
        assert (mine.record.tags, mine.record.metadata, mine.user) == (("x",), {"a": [1, None]}, "ada")
    letters = await rig.dead_letters()
    assert {letter.reason: value for letter, value in letters} == refused
    assert "ask for it through a client" in next(x.error for x, _ in letters if x.reason == "not_admitted")


async def test_admitted_twice_it_is_the_same_record(rig: Rig) -> None:
    """The process dies after publishing and before committing: the next one admits the batch again."""
    from aiokafka import AIOKafkaConsumer, TopicPartition
    from aiokafka.structs import OffsetAndMetadata

    scope = Scope("acme", "helper", "s1")
    produce(rig, [("acme/helper", plain(content=str(n))) for n in range(50)])
    async with rig.client() as client:
        for times in (1, 2):
            async with rig.consumers(*EVERYTHING):

                async def all_there(published: int = 50 * times) -> bool:
                    return len(await rig.read(rig.topics.records)) == published

                await eventually(all_there)
                messages = await rig.read(rig.topics.records)
                last = [Position(m.topic, m.partition, m.offset) for m in messages]
                window = await client.history(scope, min_positions=last[-1:])
                assert [c.record.content for c in window.records] == [str(n) for n in range(50)]
            group = AIOKafkaConsumer(
                bootstrap_servers=rig.config.bootstrap_servers,
                group_id=f"{rig.settings.prefix}.admit",
                enable_auto_commit=False,
            )
            await group.start()
            places = [TopicPartition(rig.topics.inbox, p) for p in range(rig.partitions)]
            group.assign(places)
            await group.commit({place: OffsetAndMetadata(0, "") for place in places})
            await group.stop()


@pytest.mark.parametrize("language", ["python", "node"])
async def test_the_examples(language: str, rig: Rig, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "inbox_confluent.py")]
    if language == "node":
        if not (shutil.which("node") and shutil.which("npm")):
            pytest.skip("no Node.js on this machine")
        shutil.copy(EXAMPLES / "inbox.mjs", tmp_path)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "kafkajs@2.2.4"], cwd=tmp_path, check=True,
                       capture_output=True)  # fmt: skip
        command = ["node", "--no-warnings", str(tmp_path / "inbox.mjs")]
    done = subprocess.run(
        [*command, rig.config.bootstrap_servers, rig.topics.inbox],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    async with rig.consumers(*EVERYTHING), rig.client() as client:

        async def both_there() -> bool:
            return len(await texts(rig, client, Scope("acme", "helper", "s1", "ada"))) == 2

        await eventually(both_there)
        assert (await texts(rig, client, Scope("acme", "helper", "s1", "ada")))[1].startswith("Noted: tea")
