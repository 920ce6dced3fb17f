"""``engramlog topics migrate`` on a real broker: another prefix, other partitions, the same memory."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient

from engramlog.engine.client import MemoryClient, MemoryRecord, Scope
from engramlog.engine.client.admin import create_topics, inspect_topics, set_topic_config
from engramlog.engine.client.copying import copier as m
from engramlog.engine.client.copying.ordering import AgentTopic, Ordered
from engramlog.engine.client.copying.origin import ORIGIN
from engramlog.engine.client.copying.places import Places
from engramlog.engine.client.reader import spans
from engramlog.engine.history import History
from engramlog.schemas.codec import records_codec
from engramlog.schemas.keys import partition_for, record_key
from engramlog.schemas.queries import AsOf
from engramlog.schemas.topics import Topics
from tests.brokers import Rig
from tests.commands import command_on, lines

pytestmark = pytest.mark.kafka

AGENTS, SESSIONS, USERS = 12, ("s1", "s2"), (None, "ada", "bob")


@pytest_asyncio.fixture
async def other(rig: Rig) -> AsyncIterator[Rig]:
    """A rig on topics of another prefix with 5 partitions, which do not exist yet; a history of its own."""
    prefix = f"{rig.settings.prefix}x"
    url = f"sqlite:///{rig.settings.data_dir / 'other.db'}"
    update = {"prefix": prefix, "partitions": 5, "history_url": url}
    yield Rig(rig.settings.model_copy(update=update), 5, rig.raw)
    admin = AIOKafkaAdminClient(bootstrap_servers=rig.config.bootstrap_servers)
    await admin.start()
    there = set(await admin.list_topics())
    await admin.delete_topics([spec.name for spec in Topics(prefix).table() if spec.name in there])
    await admin.close()


def said(text: str, **more: Any) -> MemoryRecord:
    return MemoryRecord.model_validate({"role": "user", "content": text, **more})


async def change(client: MemoryClient, scope: Scope, ids: list[str], chance: random.Random) -> None:
    """One of the things that agents do to their memory."""
    choices: list[Callable[[], Awaitable[object]]] = [
        lambda: client.pop(scope, chance.randrange(4), leave=chance.choice(("window", "both"))),
        lambda: client.remove(scope, [chance.randrange(5)]),
        lambda: client.clear(scope),
        lambda: client.correct(scope, ids[1], "better"),
        lambda: client.invalidate(scope, ids[2], reason="no"),
        lambda: client.erase(scope, "record", record_ids=[ids[3]]),
        lambda: client.erase(scope, "session"),
        lambda: client.end_session(scope),
    ]
    await chance.choice(choices)()


async def live(rig: Rig, *, seed: int = 1, rounds: int = 6, commands: bool = True, everywhere: bool = True) -> None:
    """What agents do in a life: talk, repeat themselves, pop, clear, correct, erase; and what else lies in a log."""
    chance = random.Random(seed)
    async with rig.client() as client:
        for turn in range(rounds):
            for number in range(AGENTS):
                user = chance.choice(USERS)
                scope = rig.scope(f"agent-{number}", session=chance.choice(SESSIONS), user=user)
                ids = [f"{seed}-{number}-{turn}-{user}-{i}" for i in range(4)]
                await client.publish(scope, [said(f"{i} says {user}", record_id=i) for i in ids])
                if turn and chance.random() < 0.5:  # sent again: the last copy counts
                    await client.publish(scope, said(f"again {ids[0]}", record_id=ids[0]))
                if not commands:
                    continue
                await change(client, scope, ids, chance)
        if commands and everywhere:
            await client.erase_tenant(rig.tenant, user="bob")
            for number in range(AGENTS):
                await client.publish(rig.scope(f"agent-{number}", session="s1", user="bob"), said("bob is back"))
            await client.erase_tenant(rig.tenant, request_id="never-twice", user="eve")
    for number in range(3):  # forgotten by its key; and what nobody can read
        agent = f"agent-{number}"
        place = partition_for(rig.tenant, agent, rig.partitions)
        await rig.put(None, key=record_key(rig.tenant, agent, f"{seed}-{number}-0-None-0"), partition=place)
        await rig.put(b"\xff{", key=record_key(rig.tenant, agent, "bad"), partition=place)


async def remembered(rig: Rig) -> dict[str, Any]:
    """What the engine tells of every agent, as everybody, at the log's end."""
    seen = await rig.ends()
    found: dict[str, Any] = {}
    async with rig.client(timeout_s=60.0) as client:
        for number in range(AGENTS):
            for user in (*USERS, "all"):
                scope = Scope(
                    rig.tenant,
                    f"agent-{number}",
                    user=None if user == "all" else user,
                    users="all" if user == "all" else "own",
                )
                whole = await client.history(scope, min_positions=seen)
                assert not whole.seen.stale
                told = [_timeless(r.stored) for r in whole.records]
                recorded = [r.stored.recorded for r in whole.records]
                earlier = None
                if recorded:
                    as_of = AsOf(recorded=recorded[len(recorded) // 2])
                    earlier = [_timeless(r.stored) for r in (await client.history(scope, as_of=as_of)).records]
                stats = await client.stats(scope)
                found[f"{number}/{user}"] = told, earlier, stats.model_dump()
    return found


def _timeless(stored: Any) -> Any:
    dumped = stored.model_dump(exclude={"offset", "removed_at", "corrected_at"})
    if dumped["invalidated"]:
        del dumped["invalidated"]["offset"]
    return dumped, stored.removed_at is None, stored.corrected_at is None


async def digest(rig: Rig) -> str:
    """The position-free digest of the history that the rig's store has built."""
    history = History(rig.settings.effective_history_url(), topics=rig.topics)
    await history.start()
    try:
        return await history.digest(positions=False)
    finally:
        await history.stop()


async def test_the_copy_is_the_same_memory(rig: Rig, other: Rig) -> None:
    async with rig.consumers("store", "answer"):
        await live(rig)
        before = await remembered(rig)
    run = command_on(rig)
    migrate = ("topics", "migrate", "--to-prefix", other.settings.prefix, "--partitions", "5", "--json")
    await run(*migrate, code=2)
    (done,) = lines(await run(*migrate, "--yes"))
    topic, derived, summaries = done["topics"]
    assert (derived["copied"], summaries["copied"]) == (0, 0)
    assert done["equal"], topic
    assert done["settings"] == {"ENGRAMLOG_PREFIX": other.settings.prefix, "ENGRAMLOG_PARTITIONS": "5"}
    assert (topic["agents"], topic["left_out"], topic["behind"]) == (AGENTS, {"not_utf8": 3}, 0)
    assert topic["translated"] > 10
    states = (await inspect_topics(other.config, topics=other.topics)).states
    agent_topics = [s for s in states if s.spec.kind == "agent"]
    assert {(s.partitions, s.problems, s.remarks) for s in agent_topics} == {(5, (), ())}
    async with other.consumers("store", "answer"):
        after = await remembered(other)
        assert after == before
        (again,) = lines(await run(*migrate, "--yes"))
        assert (again["topics"][0]["copied"], again["equal"]) == (0, True)
        async with other.client() as client:  # and it lives on
            scope = other.scope("agent-1", session="new")
            await client.publish(scope, [said("one"), said("two")])
            assert [p.record.content for p in await client.pop(scope, 1)] == ["two"]
    refused = await run(*migrate, "--yes", code=4)
    assert "are no copies from" in refused.stderr
    assert not (await inspect_topics(other.config, topics=other.topics)).states[1].problems


async def test_without_marks_even_the_digests_are_equal(rig: Rig, other: Rig) -> None:
    async with rig.consumers("store", "answer"):
        await live(rig, commands=False)
        before = await remembered(rig)
    await command_on(rig)("topics", "migrate", "--to-prefix", other.settings.prefix, "--partitions", "5", "--yes")
    async with other.consumers("store", "answer"):
        assert await remembered(other) == before
    assert await digest(other) == await digest(rig)


def stopping_after(messages: int) -> Callable[[int], None]:
    """Ends a copy in the middle."""
    left = messages

    def stop(steps: int) -> None:
        nonlocal left
        left -= steps
        if left < 0:
            raise ZeroDivisionError

    return stop


async def test_a_copy_that_was_interrupted_goes_on(rig: Rig, other: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(m, "BATCH_MESSAGES", 7)
    source = AgentTopic(rig.config, rig.topics.records, rig.partitions, records_codec())
    target = AgentTopic(other.config, other.topics.records, 5, records_codec())
    run = command_on(rig)
    migrate = ("topics", "migrate", "--to-prefix", other.settings.prefix, "--yes", "--json")
    chance = random.Random(7)
    async with rig.consumers("store", "answer"):
        await create_topics(other.config, topics=other.topics)
        await set_topic_config(other.config, target.name, {"message.timestamp.type": "CreateTime"})
        for seed in range(3):
            await live(rig, seed=seed, rounds=2, everywhere=seed == 2)
            held = await spans(rig.config, {source.name: source.partitions})
            messages = sum(span.end for span in held.values())
            for _ in range(2):
                ends = await m.ends_of(source)
                ordered = Ordered(source, ends, stopping_after(chance.randrange(messages)))
                copier = m.Copier(ordered, target)
                await copier.look()
                with pytest.raises(ZeroDivisionError):
                    await copier()
        before = await remembered(rig)
    unfinished = (await inspect_topics(other.config, topics=other.topics)).states
    assert any("message.timestamp.type=CreateTime" in p for s in unfinished for p in s.problems)
    await run(*migrate, "--partitions", "4", code=4)
    (done,) = lines(await run(*migrate))
    assert done["equal"], done
    assert done["topics"][0]["already_there"] > 0
    async with other.consumers("store", "answer"):
        assert await remembered(other) == before


async def test_a_difference_is_found(rig: Rig, other: Rig) -> None:
    async with rig.client() as client:
        positions = await client.publish(
            rig.scope("agent-1"), [said("one", record_id="r1"), said("two", record_id="r2")]
        )
        await client.publish(rig.scope("agent-2"), said("three", record_id="r3"))
    run = command_on(rig)
    migrate = ("topics", "migrate", "--to-prefix", other.settings.prefix, "--partitions", "5", "--yes", "--json")
    await run(*migrate)
    first = next(
        c for c in await rig.read(rig.topics.records) if c.offset == positions[0].offset and c.key.endswith(b"r1")
    )
    where = partition_for(rig.tenant, "agent-1", 5)
    origin = f"{rig.topics.records}/{first.partition}/{first.offset}".encode()
    await set_topic_config(other.config, other.topics.records, {"message.timestamp.type": "CreateTime"})
    await rig.raw.send_and_wait(  # a copy that was sent once more: the order is another one
        other.topics.records,
        first.value,
        key=first.key,
        partition=where,
        headers=[(ORIGIN, origin)],
        timestamp_ms=first.timestamp,
    )
    monkey = Places.next
    try:
        Places.next = property(lambda _: 1 << 60)  # type: ignore[method-assign,assignment]
        (found,) = lines(await run(*migrate, code=1))
    finally:
        Places.next = monkey  # type: ignore[method-assign]
    assert found["topics"][0]["different"] == [{"tenant": rig.tenant, "agent": "agent-1"}]
    (healed,) = lines(await run(*migrate))
    assert healed["equal"]
