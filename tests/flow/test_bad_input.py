"""Bad input on a real broker: a dead letter that says what to do, and the next record is projected."""

import json
import time
from typing import Any

import pytest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

from engramlog.engine.client import MemoryRecord, Position, Scope
from engramlog.schemas.codec import records_codec
from engramlog.schemas.envelope import RecordWritten
from engramlog.schemas.keys import partition_for, record_key
from tests.brokers import Rig

pytestmark = pytest.mark.kafka
SCOPE = Scope("acme", "helper", "s1")


def event(record_id: str, **data: Any) -> dict[str, Any]:
    record = MemoryRecord(record_id=record_id, role="user", content="fine")
    made = RecordWritten.of(record, source="test", tenant=SCOPE.tenant, agent=SCOPE.agent, sessionid=SCOPE.session)
    parsed = json.loads(records_codec().encode(made))
    parsed["data"].update(data)
    return dict(parsed)


def nested(depth: int) -> Any:
    return json.loads('{"a":' * depth + "1" + "}" * depth)


BAD: dict[str, tuple[Any, str, str]] = {
    "not UTF-8": (b"\xff{", "not_utf8", "UTF-8"),
    "not JSON": (b"{", "not_json", "JSON"),
    "empty value": (b"", "empty_value", "tombstone is a null value"),
    "not an event": (b"[1]", "not_an_event", "CloudEvents"),
    "unknown type": ({**event("bad"), "type": "engramlog.dream.dreamt.v1"}, "unknown_type", "known are"),
    "newer version": ({**event("bad"), "type": "engramlog.record.written.v9"}, "newer_version", "upgrade"),
    "naive time": (event("bad", timestamp="2026-03-01T00:00:00"), "naive_time", "needs an offset"),
    "3 MB": (event("bad", content="x" * 3_000_000), "too_large", "by reference"),
    "lone surrogate": (
        json.dumps(event("bad")).replace("fine", "\\ud83d").encode(),
        "lone_surrogate",
        "half a character",
    ),
    "depth 200": (event("bad", metadata=nested(200)), "too_deep", "levels"),
    "unknown field": (event("bad", colour="red"), "schema_violation", "colour"),
    "importance 7": (event("bad", importance=7.0), "schema_violation", "importance"),
}


def encoded(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


async def test_every_way_of_being_wrong_is_a_dead_letter_and_the_next_record_is_projected(rig: Rig) -> None:
    partition = partition_for(SCOPE.tenant, SCOPE.agent, rig.partitions)
    bad_positions: dict[str, Position] = {}
    good: list[str] = []

    async def put_good(name: str, **more: Any) -> Position:
        good.append(name)
        value = json.dumps(event(name)).encode()
        key = record_key(SCOPE.tenant, SCOPE.agent, name)
        return await rig.put(value, key=key, partition=partition, **more)

    async with rig.client() as client:
        await put_good("first")
        for name, (value, _, _) in BAD.items():
            key = record_key(SCOPE.tenant, SCOPE.agent, "bad")
            raw = encoded(value)
            topic_takes_it = len(raw) < 1_000_000
            if topic_takes_it:
                bad_positions[name] = await rig.put(raw, key=key, partition=partition)
            else:
                bad_positions[name] = await compressed_put(rig, raw, key, partition)
            last = await put_good(f"after {name}")
        # A null value is a tombstone, beside the empty one; it is no error.
        await rig.put(None, key=record_key(SCOPE.tenant, SCOPE.agent, "never written"), partition=partition)
        # Headers: one without a value, one that is not UTF-8, in the middle of a batch.
        await put_good("null header", headers=[("trace", None)])
        await put_good("header that is not UTF-8", headers=[("trace", b"\xff\xfe")])
        await put_good("plain")
        # Keys and partitions. (The broker itself refuses a message without a key on a compacted topic.)
        value = json.dumps(event("k")).encode()
        for name, key, at, reason in [
            ("another key", b"acme/helper/other", partition, "wrong_key"),
            ("no form", b"acme", partition, "wrong_key"),
            ("key not UTF-8", b"\xff/a/b", partition, "wrong_key"),
            ("wrong partition", b"acme/helper/k", (partition + 1) % rig.partitions, "wrong_partition"),
            ("tombstone in the wrong partition", b"acme/helper/k", (partition + 1) % rig.partitions, "wrong_partition"),
        ]:
            payload = None if name.startswith("tombstone") else value
            bad_positions[name] = await rig.put(payload, key=key, partition=at)
            BAD.setdefault(name, (payload, reason, "must" if reason == "wrong_partition" else "key"))
        last = await put_good("last")

        async with rig.consumers():
            window = await client.history(SCOPE, min_positions=[last])
            elsewhere = bad_positions["wrong partition"]
            await client.stats(SCOPE, min_positions=[elsewhere])
            letters = await rig.dead_letters()

    assert [c.record.record_id for c in window.records] == good
    by_position: dict[Position, list[tuple[Any, bytes | None]]] = {}
    for letter, chunk in letters:
        by_position.setdefault(Position(letter.topic, letter.partition, letter.offset), []).append((letter, chunk))
    assert set(by_position) == set(bad_positions.values())
    for name, position in bad_positions.items():
        value, reason, advice = BAD[name]
        parts = sorted(by_position[position], key=lambda pair: pair[0].part)
        letter = parts[0][0]
        assert (name, letter.reason) == (name, reason)
        assert advice in letter.error, (name, letter.error)
        assert letter.consumer == "store"
        if value is None:
            assert letter.tombstone
        else:
            assert b"".join(chunk or b"" for _, chunk in parts) == encoded(value)
    assert len(by_position[bad_positions["3 MB"]]) == 4


class NoText(str):
    """A header key of two bytes that are no UTF-8."""

    __slots__ = ()

    def encode(self, *_: Any, **__: Any) -> bytes:
        return b"\xff\xfe"


@pytest.mark.parametrize("compression", [0, 1], ids=["plain", "gzip"])
async def test_a_header_key_that_is_not_utf8_stops_nobody(rig: Rig, compression: int) -> None:
    """aiokafka itself stops at such a key for good; its producer cannot write one, others can."""
    partition = partition_for(SCOPE.tenant, SCOPE.agent, rig.partitions)
    batch = _DefaultRecordBatchBuilderPy(2, compression, 0, -1, -1, -1, 10**6)
    names = ["before", "with the key", "after"]
    for n, name in enumerate(names):
        headers = [(NoText("?"), b"v"), ("plain", None)] if n == 1 else []
        key = record_key(SCOPE.tenant, SCOPE.agent, name)
        batch.append(n, int(time.time() * 1000), key, json.dumps(event(name)).encode(), headers=headers)
    topics = [(rig.topics.records, [(partition, bytes(batch.build()))])]
    node = next(iter(rig.raw.client.cluster.brokers())).nodeId
    request = ProduceRequest(transactional_id=None, required_acks=-1, timeout=10_000, topics=topics)
    await rig.raw.client.send(node, request)
    key = record_key(SCOPE.tenant, SCOPE.agent, "last")
    last = await rig.put(json.dumps(event("last")).encode(), key=key, partition=partition)
    bad = await rig.put(b"{", key=key, partition=partition)
    async with rig.client() as client, rig.consumers():
        window = await client.history(SCOPE, min_positions=[last, bad])
        assert [c.record.record_id for c in window.records] == [*names, "last"]
    assert [letter.reason for letter, _ in await rig.dead_letters()] == ["not_json"]


async def compressed_put(rig: Rig, value: bytes, key: bytes, partition: int) -> Position:
    """What is too large for the broker gets through compressed."""
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=rig.config.bootstrap_servers, compression_type="gzip", max_request_size=8_000_000
    )
    await producer.start()
    try:
        meta = await producer.send_and_wait(rig.topics.records, value, key=key, partition=partition)
    finally:
        await producer.stop()
    return Position(rig.topics.records, partition, meta.offset)


async def test_a_bad_query_is_answered_and_one_without_an_address_is_a_dead_letter(rig: Rig) -> None:
    from engramlog.schemas.queries import CORRELATION_ID, REPLY_PARTITION, REPLY_TOPIC
    from tests.brokers import eventually

    replies = rig.topics.replies.encode()
    address = [(REPLY_TOPIC, replies), (REPLY_PARTITION, b"1"), (CORRELATION_ID, b"request-1")]
    async with rig.consumers("answer"):
        await rig.put(b"{", key=b"k", partition=0, headers=address, topic=rig.topics.queries)
        await rig.put(b"\xff", key=b"k", partition=0, topic=rig.topics.queries)
        # A reply address outside the reply topic is no address: answers never reach other topics.
        stray = [(REPLY_TOPIC, rig.topics.records.encode()), *address[1:]]
        await rig.put(b"[]", key=b"k", partition=0, headers=stray, topic=rig.topics.queries)

        async def both_dead() -> bool:
            return len(await rig.dead_letters()) == 2

        await eventually(both_dead)

        async def answered() -> bool:
            return len(await rig.read(rig.topics.replies)) == 1

        await eventually(answered)
    (reply,) = await rig.read(rig.topics.replies)
    assert reply.partition == 1
    assert dict(reply.headers)[CORRELATION_ID] == b"request-1"
    body = json.loads(reply.value)
    assert body["data"]["error"]["code"] == "bad_request"
    assert "JSON" in body["data"]["error"]["message"]
    assert await rig.read(rig.topics.records) == []
