"""The client against a running engine on a real broker."""

import asyncio
import json
import time

import pytest

from engramlog.engine.client import MemoryClient, MemoryRecord, Position, Scope
from engramlog.schemas.errors import ConfigurationError, DeadlineExceeded, RequestRefused, TooLarge
from engramlog.schemas.queries import CORRELATION_ID, AsOf
from tests.brokers import Rig, eventually

pytestmark = pytest.mark.kafka


def said(text: str, **more: object) -> MemoryRecord:
    return MemoryRecord.model_validate({"role": "user", "content": text, **more})


async def test_a_client_reads_its_own_writes(rig: Rig) -> None:
    scope = rig.scope(session="s1", user="ada")
    async with rig.consumers(), rig.client() as client:
        for n in range(25):
            record = said(f"你好 {n} 👋")
            position = await client.publish(scope, record)
            window = await client.history(scope, window=1)
            assert [c.record for c in window.records] == [record]
            assert not window.seen.stale
            assert window.seen.positions[0] >= position
            assert window.truncated == (n > 0)
        assert (await client.stats(scope)).records == 25
        stored = await client.record(scope, record.record_id)
        assert (stored.record, stored.offset, stored.user) == (record, position.offset, "ada")


async def test_thousands_in_order_and_in_pages_with_the_head_first(rig: Rig) -> None:
    scope = rig.scope(session="long")
    records = [said("Be kind.", role="system"), *(said(f"{n} " + "长" * 300) for n in range(3000))]
    async with rig.consumers(), rig.client(timeout_s=60) as client:
        positions = await client.publish(scope, records)
        assert [p.offset for p in positions] == sorted(p.offset for p in positions)
        whole = await client.history(scope)
        assert [c.record for c in whole.records] == records
        assert whole.records[0].score == 1.0
        assert whole.records[-1].score == 1.0
        assert whole.records[-3].score == pytest.approx(0.9**2)
        assert not whole.truncated
        some = await client.history(scope, window=2500)
        assert [c.record for c in some.records] == [records[0], *records[-2500:]]
        assert some.truncated
        found = await client.records(scope, [r.record_id for r in records[::-1]])
        assert [s.record for s in found] == records[::-1]


async def test_the_same_record_published_fifty_times_at_once_is_one(rig: Rig) -> None:
    scope = rig.scope(session="s1")
    record = said("only once")
    async with rig.consumers(), rig.client() as client:
        await asyncio.gather(*(client.publish(scope, record) for _ in range(50)))
        assert [c.record for c in (await client.history(scope)).records] == [record]
        assert (await client.stats(scope)).records == 1


async def test_a_request_before_anything_is_ready_waits(rig: Rig) -> None:
    scope = rig.scope(session="s1")
    async with rig.client() as client:
        asked = [asyncio.create_task(client.history(scope)) for _ in range(20)]
        await client.publish(scope, said("hello"))
        async with rig.consumers():
            for window in await asyncio.gather(*asked):
                assert len(window.records) <= 1


async def test_no_answer_within_the_deadline(rig: Rig) -> None:
    async with rig.client() as client:
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded, match="is 'answer' running"):
            await client.history(rig.scope(), timeout_s=1.5)
        assert time.monotonic() - began < 20
        with pytest.raises(TimeoutError):
            await client.stats(rig.scope(), timeout_s=0.2)


async def test_an_answer_that_has_not_seen_everything_is_stale(rig: Rig) -> None:
    scope = rig.scope(session="s1")
    async with rig.consumers("answer"), rig.client() as client:
        await client.publish(scope, said("nobody stores this yet"))
        window = await client.history(scope, timeout_s=6)
        assert (window.records, window.seen.stale) == ((), True)
        async with rig.consumers("store"):
            fresh = await client.history(scope)
            assert (len(fresh.records), fresh.seen.stale) == (1, False)


async def test_cancelled_calls_leave_nothing_behind(rig: Rig) -> None:
    scope = rig.scope(session="s1")
    async with rig.client() as client:
        waiting = asyncio.create_task(client.history(scope))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        async with rig.consumers():
            await client.publish(scope, said("hello"))
            assert len((await client.history(scope)).records) == 1
        assert client._ask._replies is not None
        assert client._ask._replies._waiting == {}


async def test_late_and_doubled_replies_are_dropped(rig: Rig) -> None:
    scope = rig.scope(session="s1")
    async with rig.client() as client, rig.consumers():
        await client.publish(scope, said("hello"))
        with pytest.raises(DeadlineExceeded):
            await client.history(scope, timeout_s=0.001)
        for _ in range(3):
            window = await client.history(scope)
            assert len(window.records) == 1
            # The very reply again, and one that was never asked for.
            replies = await rig.read(rig.topics.replies)
            for message in replies[-1:]:
                await rig.put(
                    message.value,
                    key=message.key,
                    partition=message.partition,
                    headers=message.headers,
                    topic=rig.topics.replies,
                )
            await rig.put(
                b"\xff", key=b"x", partition=replies[-1].partition, headers=[(CORRELATION_ID, b"?")],
                topic=rig.topics.replies,
            )  # fmt: skip
        assert len((await client.history(scope)).records) == 1


async def test_many_clients_at_once_get_their_own_answers(rig: Rig) -> None:
    async with rig.consumers():

        async def one(number: int) -> None:
            scope = rig.scope(f"agent-{number}", session="s1")
            async with rig.client() as client:
                record = said(f"I am {number}")
                await client.publish(scope, record)
                for window in await asyncio.gather(*(client.history(scope) for _ in range(5))):
                    assert [c.record for c in window.records] == [record]

        await asyncio.gather(*(one(n) for n in range(12)))


async def test_refusals_say_what_to_do(rig: Rig) -> None:
    scope = rig.scope(session="s1")
    async with rig.consumers(), rig.client() as client:
        for query in (
            {"window": -1},
            {"keep_rate": 1.5},
            {"keep_rate": -0.1},
            {"keep_rate": float("nan")},
        ):
            with pytest.raises(RequestRefused) as refused:
                await client.history(scope, **query)  # type: ignore[arg-type]
            assert refused.value.code == "bad_request"
            assert next(iter(query)) in str(refused.value)
        with pytest.raises(RequestRefused) as missing:
            await client.record(scope, "never written")
        assert missing.value.code == "not_found"
        with pytest.raises(TooLarge, match="by reference"):
            await client.publish(scope, [said("fine"), said("x" * 3_000_000)])
        assert (await client.stats(scope)).records == 0
    with pytest.raises(ConfigurationError, match="topics create"):
        async with MemoryClient(rig.config.bootstrap_servers) as elsewhere:
            await elsewhere.publish(scope, said("no such topic"))


async def test_tenants_users_and_positions(rig: Rig) -> None:
    acme, corp = rig.scope(session="s"), rig.scope(session="s", tenant="acme-corp")
    async with rig.consumers(), rig.client() as client:
        await client.publish(acme, said("acme's"))
        await client.publish(corp, said("acme-corp's"))
        first = await client.publish(Scope("acme", "helper", "s", "ada"), said("ada's"))
        await client.publish(Scope("acme", "helper", "s", "bob"), said("bob's"))

        async def seen(scope: Scope, **more: object) -> list[str]:
            window = await client.history(scope, **more)  # type: ignore[arg-type]
            return [c.record.content for c in window.records]

        assert await seen(acme) == ["acme's"]
        assert await seen(corp) == ["acme-corp's"]
        assert await seen(Scope("acme", "helper", "s", "ada")) == ["acme's", "ada's"]
        assert await seen(Scope("acme", "helper", "s", users="all")) == ["acme's", "ada's", "bob's"]
        assert await seen(Scope("acme", "helper", users="all"), as_of=AsOf(offset=first.offset)) == ["acme's", "ada's"]
        other = rig.client()
        async with other:  # it wrote nothing itself, but was told what to wait for
            await client.publish(acme, said("news"))
            last = await client.publish(acme, said("more news"))
            window = await other.history(acme, min_positions=[last])
            assert [c.record.content for c in window.records][-1] == "more news"


async def test_an_agents_flood_of_waiting_requests_leaves_room_for_others(rig: Rig) -> None:
    never = [Position(rig.topics.records, 0, 10**12)]
    async with rig.consumers(), rig.client(timeout_s=90) as client:
        await client.publish(rig.scope("other"), said("hello"))
        await client.history(rig.scope("other"))
        flood = [asyncio.create_task(client.history(rig.scope("loud"), min_positions=never)) for _ in range(400)]
        assert len((await client.history(rig.scope("other"), timeout_s=30)).records) == 1
        assert not all(task.done() for task in flood)
        for task in flood:
            task.cancel()
        outcomes = await asyncio.gather(*flood, return_exceptions=True)
        assert any("under way already" in str(o) for o in outcomes)


async def test_replies_are_plain_json_with_our_envelope(rig: Rig) -> None:
    async with rig.consumers(), rig.client() as client:
        await client.publish(rig.scope(session="s"), said("hi"))
        await client.history(rig.scope(session="s"))

        async def there() -> bool:
            return bool(await rig.read(rig.topics.replies))

        await eventually(there)
    body = json.loads((await rig.read(rig.topics.replies))[0].value)
    assert body["type"] == "engramlog.query.replied.v1"
    assert body["specversion"] == "1.0"
    assert body["data"]["answer"]["records"][0]["stored"]["record"]["content"] == "hi"
