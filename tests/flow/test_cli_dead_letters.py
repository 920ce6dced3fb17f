"""``engramlog dead-letters`` on a real broker."""

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engramlog.engine.client import MemoryRecord
from engramlog.schemas.codec import MAX_EVENT_BYTES, records_codec
from engramlog.schemas.dead_letters import HEADER, DeadLetter, messages
from engramlog.schemas.envelope import RecordWritten
from engramlog.schemas.keys import partition_for
from tests.brokers import Rig, eventually
from tests.commands import command_on, lines

pytestmark = pytest.mark.kafka

ESCAPE = "\x1b[2J\x9b31m\u202e"


def event(text: str, agent: str = "helper", record_id: str = "r1") -> RecordWritten:
    record = MemoryRecord(role="user", content=text, record_id=record_id, timestamp=datetime.now(UTC))
    return RecordWritten.of(record, source="test", tenant="acme", agent=agent)


async def put_letter(
    rig: Rig, value: bytes | None, *, key: bytes | None = None, copies: int = 1, **about: object
) -> None:
    """A dead letter as a consumer writes it."""
    fields = {
        "reason": "retries_exhausted",
        "error": f"no luck {ESCAPE}",
        "consumer": "store",
        "died": datetime.now(UTC),
        "topic": rig.topics.records,
        "partition": 0,
        "offset": 7,
        "recorded_ms": 1_700_000_000_000,
        "key": None if key is None else base64.b64encode(key).decode(),
        **about,
    }
    letter = DeadLetter.model_validate(fields)
    for _ in range(copies):
        for chunk, part in messages(letter, value):
            headers = [(HEADER, part.model_dump_json(exclude_none=True).encode())]
            await rig.put(
                chunk or b"", key=letter.origin(), partition=1, headers=headers, topic=rig.topics.dead_letters
            )


async def test_what_is_listed_counted_and_filtered(rig: Rig) -> None:
    run = command_on(rig)
    old = datetime.now(UTC) - timedelta(days=2)
    good = event("late")
    await put_letter(rig, records_codec().encode(good), key=good.key(), copies=2)
    await put_letter(rig, b"\xff{", offset=8, reason="not_utf8", died=old)
    await put_letter(rig, b"{}", topic=rig.topics.inbox, partition=2, offset=3, reason="not_an_event", consumer="admit")
    await put_letter(rig, b"x" * (MAX_EVENT_BYTES + 9), offset=9, reason="too_large", copies=2)
    await rig.put(b"?", key=b"k", partition=0, topic=rig.topics.dead_letters)
    told = await run("dead-letters", "list", "--json")
    assert "1 message in the topic without the header" in told.stderr
    found = lines(told)
    assert [(f["reason"], f["offset"]) for f in found] == [
        ("not_utf8", 8),
        ("retries_exhausted", 7),
        ("not_an_event", 3),
        ("too_large", 9),
    ]
    assert (found[1]["tenant"], found[1]["agent"], found[0]["tenant"]) == ("acme", "helper", None)
    assert (found[3]["bytes"], len(found[3]["places"])) == (MAX_EVENT_BYTES + 9, 2)
    (counted,) = lines(await run("dead-letters", "list", "--count", "--json"))
    assert (counted["total"], counted["reasons"]["not_utf8"], counted["unreadable"]) == (4, 1, 1)

    async def offsets(*filters: str) -> list[int]:
        return [f["offset"] for f in lines(await run("dead-letters", "list", "--json", *filters))]

    assert await offsets("--newest-first", "-n", "2") == [9, 3]
    assert await offsets("--topic", "inbox") == await offsets("--topic", rig.topics.inbox) == [3]
    assert await offsets("--consumer", "admit") == await offsets("--partition", "2") == [3]
    assert await offsets("--since", (old + timedelta(hours=1)).isoformat()) == [7, 3, 9]
    assert await offsets("--until", (old + timedelta(hours=1)).isoformat()) == [8]
    assert await offsets("--tenant", "acme") == await offsets("--agent", "helper") == [7]
    assert await offsets("--tenant", "acme-corp") == []
    assert await offsets("--reason", "not_utf8", "--reason", "too_large") == [8, 9]
    table = (await run("dead-letters", "list")).stdout
    assert "4 dead letters" in table
    assert not set(ESCAPE) & set(table) - set("[2J31m")


async def test_what_is_shown_steers_no_terminal_and_raw_is_exact(rig: Rig, tmp_path: Path) -> None:
    run = command_on(rig)
    raw = b"\xff{" + ESCAPE.encode() + b"z" * 5_000
    header = base64.b64encode(ESCAPE.encode()).decode()
    await put_letter(rig, raw, key=b"\x1bkey", headers=[["trace\x1b", header], ["none", None]])
    await put_letter(rig, None, offset=8)
    origin = f"{rig.topics.records}/0/7"
    shown = await run("dead-letters", "show", origin)
    for output in (shown.stdout, (await run("dead-letters", "show", origin, "--json")).stdout):
        assert not {"\x1b", "\x9b", "\u202e"} & set(output)
    assert r"\xff{\x1b[2J\x9b31m\u202ezzz" in shown.stdout
    assert r"header trace\x1b" in shown.stdout
    assert "the first 2,000 of" in shown.stderr
    (found,) = lines(await run("dead-letters", "show", origin, "--json"))
    assert base64.b64decode(found["base64"]) == raw
    assert found["key"] == r"\x1bkey"
    assert (await run("dead-letters", "show", origin, "--raw")).stdout_bytes == raw
    file = tmp_path / "raw"
    await run("dead-letters", "show", origin, "--raw", "--output", str(file))
    assert file.read_bytes() == raw
    tombstone = await run("dead-letters", "show", f"{rig.topics.records}/0/8", "--raw")
    assert (tombstone.stdout_bytes, "tombstone" in tombstone.stderr) == (b"", True)
    await run("dead-letters", "show", f"{rig.topics.records}/0/99", code=1)
    await run("dead-letters", "show", "nonsense", code=2)


async def test_a_replay_goes_to_the_right_partition_and_what_is_bad_dies_again(rig: Rig) -> None:
    run = command_on(rig)
    first, second = event("one", record_id="r1"), event("two", record_id="r2")
    right = partition_for("acme", "helper", rig.partitions)
    wrong = (right + 1) % rig.partitions
    scope = rig.scope()
    async with rig.consumers("store", "answer"), rig.client() as client:
        await rig.put(
            records_codec().encode(second), key=second.key(), partition=wrong, headers=[("h", b"1"), ("n", None)]
        )
        await rig.put(records_codec().encode(first), key=first.key(), partition=wrong)
        bad = await rig.put(b"\xff{", key=b"acme/helper/r3", partition=right)

        async def died() -> bool:
            return len(await rig.dead_letters()) == 3

        await eventually(died)
        assert (await client.history(scope)).records == ()
        await run("dead-letters", "replay", "--yes", code=2)
        await run("dead-letters", "replay", "--all", code=2)
        (dry,) = lines(await run("dead-letters", "replay", "--all", "--dry-run", "--json"))
        assert (dry["planned"], dry["moved"], dry["published"], dry["again"]) == (3, 2, 0, {"not_utf8": 1})
        assert len(await rig.read(rig.topics.records)) == 3
        wrongs = ("--reason", "wrong_partition", "--tenant", "acme")
        (done,) = lines(await run("dead-letters", "replay", *wrongs, "--yes", "--json"))
        assert (done["planned"], done["moved"], done["published"], done["again"]) == (2, 2, 2, {})
        replayed = [m for m in await rig.read(rig.topics.records) if m.partition == right and m.offset > bad.offset]
        assert [m.key for m in replayed] == [second.key(), first.key()]
        assert replayed[0].value == records_codec().encode(second)
        assert [*replayed[0].headers] == [("h", b"1"), ("n", None)]
        ends = rig.topics.records, right, replayed[-1].offset

        async def seen() -> bool:
            return [r.record.content for r in (await client.history(scope)).records] == ["two", "one"]

        await eventually(seen)
        assert len(await rig.dead_letters()) == 3
        (again,) = lines(await run("dead-letters", "replay", str(bad).replace("@", "/"), "--yes", "--json"))
        assert (again["published"], again["again"]) == (1, {"not_utf8": 1})

        async def dead_again() -> bool:
            return len(await rig.dead_letters()) == 4

        await eventually(dead_again)
        newest = (await rig.dead_letters())[-1][0]
        assert (newest.topic, newest.partition, newest.offset) == (ends[0], ends[1], ends[2] + 1)


async def test_a_replay_takes_any_origin_and_says_what_it_cannot_send(rig: Rig) -> None:
    run = command_on(rig)
    await put_letter(rig, b'{"tenant":"acme"}', topic=rig.topics.inbox, partition=2, offset=3, consumer="admit")
    await put_letter(rig, None, key=b"acme/helper/gone", offset=1)
    await put_letter(rig, None, key=b"acme/helper/gone", offset=1, consumer="derive")
    await put_letter(rig, b"{}", key=b"k", offset=2, key_bytes_left_out=5)
    await put_letter(rig, b"{}", key=b"k", offset=3, partition=11)
    await put_letter(rig, b"{}", topic="elsewhere", offset=4)
    await put_letter(rig, b"{}", topic=rig.topics.queries, offset=5)
    await put_letter(rig, b"x" * (MAX_EVENT_BYTES + 200_000), key=b"k", offset=6)
    (done,) = lines(await run("dead-letters", "replay", "--all", "--yes", "--json", code=1))
    assert (done["letters"], done["published"], done["requests_left_out"]) == (6, 2, 1)
    assert done["again"] == {"schema_violation": 1}
    whys = {refused["origin"].rpartition("/")[2]: refused["why"] for refused in done["refused"]}
    assert whys.keys() == {"2", "3", "4", "6"}
    assert "bytes of its key" in whys["2"]
    (inbox,) = await rig.read(rig.topics.inbox)
    assert (inbox.partition, inbox.key, inbox.value) == (2, None, b'{"tenant":"acme"}')
    (gone,) = await rig.read(rig.topics.records)
    assert (gone.key, gone.value) == (b"acme/helper/gone", None)
    asked = await run("dead-letters", "replay", "--topic", "queries", "--yes")
    assert "1 message published" in asked.stdout


async def test_a_purge_cuts_off_the_old_end(rig: Rig) -> None:
    run = command_on(rig)
    await put_letter(rig, b"old")
    border = datetime.fromtimestamp((await rig.read(rig.topics.dead_letters))[0].timestamp / 1000, UTC)
    border += timedelta(milliseconds=1)

    async def later() -> bool:
        return datetime.now(UTC) > border + timedelta(milliseconds=1)

    await eventually(later)
    await put_letter(rig, b"new", offset=8)
    await run("dead-letters", "purge", code=2)
    (cut,) = lines(await run("dead-letters", "purge", "--before", border.isoformat(), "--yes", "--json"))
    assert cut["purged"] == 1
    assert [f["offset"] for f in lines(await run("dead-letters", "list", "--json"))] == [8]
    (rest,) = lines(await run("dead-letters", "purge", "--yes", "--json"))
    assert rest["purged"] == 1
    assert lines(await run("dead-letters", "list", "--json")) == []
    assert "0 messages purged" in (await run("dead-letters", "purge", "--yes")).stdout
    assert lines(await run("dead-letters", "list", "--json", "--since", border.isoformat())) == []
