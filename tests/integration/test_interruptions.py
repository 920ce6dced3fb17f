"""A broker that restarts, and an ``answer`` that is killed, while everybody goes on."""

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest

from engramlog.deploy.local_kafka import LocalKafka
from engramlog.engine.client import MemoryRecord, Scope
from engramlog.schemas.errors import DeadlineExceeded, StoreUnavailable
from engramlog.schemas.keys import partition_for
from tests.brokers import eventually, rig_on
from tests.processes import Command, environment

pytestmark = pytest.mark.kafka

AWAY_S = 60
"""For how long the broker is away: longer than the session timeouts, and than any single retry."""


def said(text: str) -> MemoryRecord:
    return MemoryRecord(role="user", content=text)


async def test_the_broker_is_killed_and_comes_back(tmp_path: Path) -> None:
    async with LocalKafka(data_dir=tmp_path / "kafka") as kafka, rig_on(kafka.bootstrap_servers, tmp_path) as rig:
        scope = rig.scope(session="s1")
        async with rig.consumers("admit", "store", "answer"), rig.client(timeout_s=150) as client:
            await client.publish(scope, said("before"))
            assert len((await client.history(scope)).records) == 1
            kafka.kill()
            with pytest.raises(DeadlineExceeded, match="publishing the same ids again is safe"):
                await client.publish(scope, said("nobody takes this"), timeout_s=2)
            waiting = asyncio.create_task(client.publish(scope, said("during")))
            await asyncio.sleep(AWAY_S)
            await kafka.start()
            await waiting
            await client.publish(scope, said("after"))
            window = await client.history(scope)
            texts = [c.record.content for c in window.records]
            assert (texts[0], texts[-2:], window.seen.stale) == ("before", ["during", "after"], False)
            # What the consumers publish themselves goes on, too: commands, dead letters, admitted records.
            assert [s.record.content for s in await client.pop(scope, 1)] == ["after"]
            place = {"key": b"acme/helper/bad", "partition": partition_for("acme", "helper", rig.partitions)}
            await rig.put(b"{", **place)
            await rig.put(
                b'{"tenant":"acme","agent":"helper","session":"s1","role":"user","content":"by the inbox"}',
                key=b"k",
                partition=0,
                topic=rig.topics.inbox,
            )

            async def all_went_on() -> bool:
                letters = await rig.dead_letters()
                last = (await client.history(scope, window=1)).records[-1].record.content
                return len(letters) == 1 and last == "by the inbox"

            await eventually(all_went_on, within_s=60)


async def test_answer_is_killed_while_two_clients_pop(kafka: str, tmp_path: Path) -> None:
    """Real processes and kill -9: every record is popped at most once, and what is left is the rest."""
    generator = random.Random(3)
    async with rig_on(kafka, tmp_path) as rig:
        env = environment(rig.settings)
        scope = Scope("acme", "helper", "s1")
        records = [said(str(n)) for n in range(200)]
        store = Command("run", "store", env=env, log=tmp_path / "store.log")
        answer = Command("run", "answer", env=env, log=tmp_path / "answer.log")
        turns = asyncio.Semaphore(0)

        async def pops(asker: int) -> list[str]:
            popped: list[str] = []
            async with rig.client() as client:
                for turn in range(30):
                    while True:
                        with suppress(DeadlineExceeded, StoreUnavailable):
                            gone = await client.pop(scope, 2, request_id=f"{asker}-{turn}", timeout_s=5)
                            popped.extend(s.record.record_id for s in gone)
                            break
                    turns.release()
            return popped

        async def kills() -> None:
            """After every so many pops, at some moment of the next one."""
            nonlocal answer
            for _ in range(3):
                for _ in range(12):
                    await turns.acquire()
                await asyncio.sleep(generator.uniform(0, 0.02))
                answer.kill_all()
                answer = Command("run", "answer", env=env, log=tmp_path / "answer.log")

        try:
            async with rig.client(timeout_s=60) as client:
                await client.publish(scope, records)
                assert len((await client.history(scope)).records) == len(records)
                killing = asyncio.create_task(kills())
                popped = [i for ids in await asyncio.gather(pops(0), pops(1)) for i in ids]
                await killing
                assert len(popped) == len(set(popped)) == 120
                left = [c.record.record_id for c in (await client.history(scope)).records]
                assert sorted([*left, *popped]) == sorted(r.record_id for r in records)
        finally:
            codes = [process.stop() for process in (answer, store)]
        assert codes == [130, 130], answer.said()[-3000:]
