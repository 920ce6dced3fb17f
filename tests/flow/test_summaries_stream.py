"""Subscriptions to summaries, on a real broker: durable, from the past, filtered, slow; and with the whole engine."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from engramlog.engine.client import MemoryClient, MemoryRecord, Position, SummaryReceived, SummaryStream
from engramlog.schemas.codec import summaries_codec
from engramlog.schemas.errors import ConfigurationError
from engramlog.schemas.keys import event_key, partition_for
from engramlog.schemas.summaries import SummaryCreated, SummaryCreatedEvent, SummaryFailedEvent
from tests.brokers import Rig, eventually, rig_on
from tests.commands import command_on, lines
from tests.processes import Command, environment

pytestmark = pytest.mark.kafka

EXAMPLES = Path(__file__).parents[2] / "examples"


def made(summary_id: str, *, agent: str = "helper", **more: Any) -> SummaryCreatedEvent:
    """The event of a summary."""
    said = {key: more.pop(key) for key in ("tenantid", "sessionid", "userid") if key in more}
    return SummaryCreatedEvent.model_validate(
        {"id": summary_id, "source": "t", "tenantid": "acme", "agentid": agent, "sessionid": "s1", **said}
        | {
            "data": {
                "summary_id": summary_id,
                "text": f"摘要 {summary_id} 👋",
                "covers": {"record_ids": [f"r-{summary_id}"], "first": 1, "last": 2},
                "at": 3,
                "tokens_before": 90,
                "tokens_after": 9,
                "model": "archive",
                "prompt": "archive.v1",
                **more,
            }
        }
    )


def failed(summary_id: str) -> SummaryFailedEvent:
    """The event of a summary that could not be made."""
    return SummaryFailedEvent.model_validate(
        {"id": f"{summary_id}-failed", "source": "t", "tenantid": "acme", "agentid": "helper", "sessionid": "s1"}
        | {
            "data": {
                "summary_id": summary_id,
                "covers": {"record_ids": ["r"], "first": 1, "last": 2},
                "code": "unavailable",
                "attempts": 2,
                "model": "m",
            }
        }
    )


async def put(rig: Rig, *events: SummaryCreatedEvent | SummaryFailedEvent) -> list[Position]:
    """Publish summaries, as ``summarise`` does."""
    return [
        await rig.put(
            summaries_codec().encode(event),
            key=event.key(),
            partition=partition_for(event.tenantid, event.agentid, rig.partitions),
            topic=rig.topics.summaries,
        )
        for event in events
    ]


async def take(stream: SummaryStream, count: int) -> list[SummaryReceived]:
    """The next so many."""
    async with asyncio.timeout(60):
        return [await anext(stream) for _ in range(count)]


def ids(received: Sequence[SummaryReceived]) -> list[str]:
    return [one.event_id for one in received]


@pytest_asyncio.fixture
async def client(rig: Rig) -> AsyncIterator[MemoryClient]:
    async with rig.client() as made_client:
        yield made_client


async def test_from_now_on_nothing_is_missed_and_nothing_old_is_there(rig: Rig, client: MemoryClient) -> None:
    await put(rig, made("old"))
    async with client.summaries(tenant="acme") as stream:
        (place,) = await put(rig, made("new", userid="ada", topic="茶"))
        (one,) = await take(stream, 1)
    assert (one.kind, one.event_id, one.position) == ("created", "new", place)
    assert (one.tenant, one.agent, one.session, one.user) == ("acme", "helper", "s1", "ada")
    assert one.summary.summary_id == "new"
    assert one.recorded.tzinfo is not None


async def test_from_the_beginning_all_are_seen_in_order_for_each_agent(rig: Rig, client: MemoryClient) -> None:
    agents = ['a/:|"()-', "客服", "helper"]
    await put(rig, *(made(f"{n}", agent=agents[n % 3]) for n in range(30)))
    async with client.summaries(tenant="acme", start="beginning") as stream:
        found = await take(stream, 30)
    assert sorted(ids(found), key=int) == [str(n) for n in range(30)]
    for agent in agents:
        mine = [int(one.event_id) for one in found if one.agent == agent]
        assert mine == sorted(mine)


async def test_filters_leave_the_rest_out(rig: Rig, client: MemoryClient) -> None:
    await put(
        rig,
        made("tenant", tenantid="other"),
        made("agent", agent="another"),
        made("session", sessionid="s2"),
        made("user", userid="bob"),
        made("shared"),
        made("level", userid="ada", level=2),
        made("mine", userid="ada"),
        made("last", tenantid="other", agent="helper", userid="ada"),
    )
    wanted: list[tuple[dict[str, Any], set[str]]] = [
        ({"tenant": "other"}, {"tenant", "last"}),
        ({"tenant": "acme"}, {"agent", "session", "user", "shared", "level", "mine"}),
        ({"tenant": "acme", "agent": "helper"}, {"session", "user", "shared", "level", "mine"}),
        ({"tenant": "acme", "session": "s2"}, {"session"}),
        ({"tenant": "acme", "user": "ada"}, {"level", "mine"}),
        ({"tenant": "acme", "user": "ada", "level": 1}, {"mine"}),
        ({"tenant": "acme", "agent": "another", "level": 1}, {"agent"}),
    ]
    for n, (chosen, expected) in enumerate(wanted):
        names = {"tenant": "tenantid", "user": "userid", "session": "sessionid"}
        mark = made(f"mark {n}", **{names.get(name, name): value for name, value in chosen.items()})
        found: set[str] = set()
        async with client.summaries(start="beginning", **chosen) as stream:
            await put(rig, mark)
            while not found >= {mark.id, *expected}:
                found |= set(ids(await take(stream, 1)))
        assert {one for one in found if not one.startswith("mark")} == expected, chosen


async def test_from_an_instant_and_from_positions(rig: Rig, client: MemoryClient) -> None:
    places = await put(rig, made("1"), made("2"))

    async def later() -> bool:
        return datetime.now(UTC) > before

    before = datetime.now(UTC)
    await eventually(later)
    async with client.summaries(tenant="acme", start="beginning") as stream:
        between = (await take(stream, 2))[-1].recorded
    while True:  # the broker's clock has milliseconds
        (place,) = await put(rig, made("3"))
        async with client.summaries(tenant="acme", start=[places[1]]) as stream:
            third = (await take(stream, 1))[0]
        if third.recorded > between:
            break
    async with client.summaries(tenant="acme", start=third.recorded) as stream:
        assert ids(await take(stream, 1)) == ["3"]
    async with client.summaries(tenant="acme", start=[places[0]]) as stream:
        assert ids(await take(stream, 1)) == ["2"]
    await put(rig, made("elsewhere", agent="another"))
    async with client.summaries(tenant="acme", start=[place]) as stream:
        assert ids(await take(stream, 1)) == ["elsewhere"]  # a partition without a position begins at its beginning


async def killed(stream: SummaryStream, found: list[SummaryReceived], *, after: int) -> None:
    """Receive, and die while working on the summary after so many: nothing is closed, committed or given back."""
    working = asyncio.Event()

    async def work() -> None:
        async for one in stream:
            found.append(one)
            if len(found) == after:
                working.set()
                await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.wait_for(working.wait(), 60)
    consumer = stream._follower._consumer  # type: ignore[union-attr]
    assert consumer is not None

    async def nothing(*_: Any, **__: Any) -> None:
        """The process is dead: it commits nothing any more."""

    consumer.commit = nothing
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await stream.aclose()


async def test_a_killed_subscriber_sees_every_summary_once_or_once_more(rig: Rig, client: MemoryClient) -> None:
    await put(rig, *(made(f"{n}", agent=f"agent {n % 4}") for n in range(12)))
    found: list[SummaryReceived] = []
    total = 0
    for round_, after in enumerate((3, 1, 5)):
        seen: list[SummaryReceived] = []
        stream = client.summaries(tenant="acme", group="读者/1", start="beginning")
        await killed(stream, seen, after=after)
        found += seen
        total += after
        await put(rig, *(made(f"{12 + 4 * round_ + n}", agent=f"agent {n}") for n in range(4)))
    async with client.summaries(tenant="acme", group="读者/1", start="now") as stream:
        while len(set(ids(found))) < 24:
            found += await take(stream, 1)
        await put(rig, made("last"))
        rest = await take(stream, 1)
        while rest[-1].event_id != "last":
            rest += await take(stream, 1)
    assert set(ids(found)) == {str(n) for n in range(24)}


async def test_kill_9_of_the_command_line_loses_nothing(rig: Rig, tmp_path: Path) -> None:
    """The real process dies, three times, while summaries come: all were printed in the end."""
    seen: list[str] = []
    follow = ("tail", "summaries", "--tenant", "acme", "--group", "g", "--from", "beginning", "--json")
    for round_ in range(3):
        await put(rig, *(made(f"{round_} {n}", agent=f"agent {n % 4}") for n in range(40)))
        log = tmp_path / f"{round_}.log"
        process = Command(*follow, env=environment(rig.settings), log=log)
        last = round_ == 2

        async def enough(process: Command = process, last: bool = last) -> bool:
            shown = [json.loads(line)["id"] for line in process.said().splitlines() if line.endswith("}")]
            return len({*seen, *shown}) == 120 if last else len(shown) >= 15

        try:
            await eventually(enough, within_s=60)
        finally:
            process.kill_all()
        seen.extend(json.loads(line)["id"] for line in process.said().splitlines() if line.endswith("}"))
    assert set(seen) == {f"{round_} {n}" for round_ in range(3) for n in range(40)}


async def test_a_subscriber_that_leaves_goes_on_behind_what_it_had_done(rig: Rig, client: MemoryClient) -> None:
    async with client.summaries(tenant="acme", group="g", start="now") as stream:
        await put(rig, made("1"), made("2"), made("3"))
        assert ids(await take(stream, 2)) == ["1", "2"]
    await put(rig, made("4"))
    async with client.summaries(tenant="acme", group="g", start="now") as stream:
        assert ids(await take(stream, 3)) == ["2", "3", "4"]  # it may have died while it worked on the second
    async with client.summaries(tenant="acme", group="another", start="beginning") as stream:
        assert ids(await take(stream, 4)) == ["1", "2", "3", "4"]


async def test_what_is_made_while_a_new_group_is_away_is_not_missed(rig: Rig, client: MemoryClient) -> None:
    async with client.summaries(tenant="acme", group="g", start="now"):
        pass
    await put(rig, made("meanwhile"))
    async with client.summaries(tenant="acme", group="g", start="now") as stream:
        assert ids(await take(stream, 1)) == ["meanwhile"]


async def test_members_of_a_group_share_the_agents(rig: Rig, client: MemoryClient) -> None:
    found: list[str] = []

    async def work(stream: SummaryStream) -> None:
        async for one in stream:
            found.append(one.event_id)  # noqa: PERF401 - looked at meanwhile

    streams = [client.summaries(tenant="acme", group="g", start="beginning") for _ in range(2)]
    tasks = [asyncio.create_task(work(stream)) for stream in streams]

    async def both_own() -> bool:
        followers = [stream._follower for stream in streams]
        owned = [f._consumer.assignment() for f in followers if f is not None and f._consumer is not None]
        return len(owned) == 2 and all(owned) and len(owned[0] | owned[1]) == rig.partitions

    await eventually(both_own)
    await put(rig, *(made(f"{n}", agent=f"agent {n}") for n in range(20)))

    async def all_there() -> bool:
        return len(set(found)) == 20

    await eventually(all_there)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for stream in streams:
        await stream.aclose()
    assert sorted(found, key=int) == [str(n) for n in range(20)]


async def test_of_the_past_only_what_stands_is_passed_and_of_the_present_everything(
    rig: Rig, client: MemoryClient
) -> None:
    roll = made("roll", level=2, reason="rolled_up", replaces=["1", "2"])
    await put(rig, failed("3"), failed("4"), made("1"), made("2"), made("3"), made("3", generation=2), roll)
    chosen: dict[str, Any] = {"tenant": "acme", "start": "beginning", "failures": True}
    async with client.summaries(**chosen) as stream:
        past = await take(stream, 3)
        assert ids(past) == ["4-failed", "3", "roll"]
        assert [one.kind for one in past] == ["failed", "created", "created"]
        assert getattr(past[1].summary, "generation", 0) == 2
        assert stream.passed_over.replaced == 4
        await put(rig, made("5"), made("6", replaces=["5"], reason="revised"), failed("7"))
        assert ids(await take(stream, 3)) == ["5", "6", "7-failed"]
    async with client.summaries(**chosen, active_only=False) as stream:
        assert ids(await take(stream, 7)) == ["3-failed", "4-failed", "1", "2", "3", "3", "roll"]
    async with client.summaries(tenant="acme", start="beginning", active_only=False) as stream:
        assert ids(await take(stream, 5)) == ["1", "2", "3", "3", "roll"]


async def test_what_cannot_be_read_is_passed_over_and_counted(rig: Rig, client: MemoryClient) -> None:
    there = partition_for("acme", "helper", rig.partitions)
    topic = rig.topics.summaries
    await rig.put(b"{broken", key=event_key("acme", "helper", "x"), partition=there, topic=topic)
    await rig.put(None, key=event_key("acme", "helper", "y"), partition=there, topic=topic)
    await rig.put(b"", key=event_key("acme", "helper", "z"), partition=there, topic=topic)
    stray = made("stray")
    other = (there + 1) % rig.partitions
    await rig.put(summaries_codec().encode(stray), key=stray.key(), partition=other, topic=topic)
    await put(rig, made("good"))
    await put(rig, made("also good", agent=agent_in(rig, other)))
    async with client.summaries(tenant="acme", start="beginning") as stream:
        assert set(ids(await take(stream, 2))) == {"good", "also good"}
        assert (stream.passed_over.undecodable, stream.passed_over.tombstones) == (3, 1)


def agent_in(rig: Rig, partition: int) -> str:
    """An agent whose events lie in a partition."""
    return next(f"{n}" for n in range(1_000) if partition_for("acme", f"{n}", rig.partitions) == partition)


async def test_while_the_caller_works_nothing_is_fetched(rig: Rig, client: MemoryClient) -> None:
    large = "长" * 30_000
    await put(rig, *(made(f"{n}", text=large) for n in range(60)))
    async with client.summaries(tenant="acme", start="beginning", active_only=False) as stream:
        found = ids(await take(stream, 1))
        follower = stream._follower
        assert follower is not None
        assert follower._consumer is not None
        held = stream.waiting
        assert held < 60
        assert follower._consumer.paused() == follower._consumer.assignment()
        await put(rig, *(made(f"{60 + n}", text=large) for n in range(10)))
        assert stream.waiting == held
        found += ids(await take(stream, 69))
    assert found == [str(n) for n in range(70)]


async def test_a_topic_that_does_not_exist_is_told(rig: Rig) -> None:
    nowhere = rig.settings.model_copy(update={"prefix": f"{rig.settings.prefix}x"})
    async with MemoryClient(nowhere.kafka(), timeout_s=5) as client:
        with pytest.raises(ConfigurationError, match="topics create"):
            await anext(client.summaries(tenant="acme"))


# --- with the engine that makes them ----------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def engine(kafka: str, tmp_path: Path) -> AsyncIterator[tuple[Rig, MemoryClient]]:
    """An engine that summarises soon."""
    quick = {"summariser": "archive", "summary_budget_tokens": 1_000, "summary_threshold": 0.1}
    async with (
        rig_on(kafka, tmp_path, **quick) as rig,
        rig.consumers("store", "summarise", "answer"),
        rig.client(timeout_s=30) as client,
    ):
        yield rig, client


def talk(lines_: int, begin: int = 0) -> list[MemoryRecord]:
    """Turns of about 20 tokens."""
    return [
        MemoryRecord(
            role="user" if n % 2 == 0 else "assistant",
            content=f"Line {n}: we spoke about the garden, the harvest of apples and the weather of May. 苹果 🍎",
        )
        for n in range(begin, begin + lines_)
    ]


async def test_a_talk_is_summarised_and_subscribers_hear_of_it(engine: tuple[Rig, MemoryClient]) -> None:
    rig, client = engine
    scope = rig.scope(session="s1", user="ada")
    everything: dict[str, Any] = {"tenant": "acme", "agent": "helper", "active_only": False}
    async with client.summaries(**everything, group="g") as stream:
        await client.publish(scope, talk(20))
        first = (await take(stream, 1))[0]
        assert isinstance(first.summary, SummaryCreated)
        assert (first.session, first.user, first.summary.reason) == ("s1", "ada", "new")
        assert first.summary.covers.record_ids
    await client.publish(scope, talk(20, begin=20))
    await client.summarise(scope)

    async def all_made() -> bool:
        listed = await client.list_summaries(scope, active=False)
        context = await client.context(scope, recall=None, budget_tokens=400, wait_for_summary=True)
        return bool(listed.summaries) and context.summaries != () and len(await uncovered(listed)) <= 2

    async def uncovered(listed: Any) -> list[str]:
        covered = {i for stored in listed.summaries for i in stored.summary.covers.record_ids}
        whole = await client.history(scope, summaries=False)
        return [r.record.record_id for r in whole.records if r.record.record_id not in covered]

    await eventually(all_made)
    listed = await client.list_summaries(scope, active=False)
    known = {stored.summary.summary_id for stored in listed.summaries}
    async with client.summaries(**everything, start="beginning") as stream:
        assert set(ids(await take(stream, len(known)))) == known
    async with client.summaries(**everything, group="g") as stream:
        again = await take(stream, len(known))
    assert set(ids(again)) == known  # the first once more: it was not asked beyond

    shown = await client.history(scope)
    whole = await client.history(scope, summaries=False)
    assert len(whole.records) == 40
    assert len(shown.records) < len(whole.records)
    assert [r.record.record_id for r in whole.records][-len(shown.records) :] == [
        r.record.record_id for r in shown.records
    ]


async def test_a_context_has_summaries_and_recent_turns_within_its_budget(engine: tuple[Rig, MemoryClient]) -> None:
    rig, client = engine
    scope = rig.scope(session="s1")
    await client.publish(scope, MemoryRecord(role="system", content="You are a gardener."))
    await client.publish(scope, talk(20))
    found = await client.before_turn(
        scope, "And the pears? 梨 👋", budget_tokens=300, wait_for_summary=True, recall=None
    )
    assert found.tokens <= 300
    assert found.messages[0] == {"role": "system", "content": "You are a gardener."}
    assert found.messages[-1] == {"role": "user", "content": "And the pears? 梨 👋"}
    assert found.summaries
    sections = {used.section: used for used in found.used}
    assert sections["summaries"].items == len(found.summaries)
    assert sections["recent"].items >= 1
    again = await client.context(
        scope, budget_tokens=300, recall=None, now=found.now, min_positions=found.seen.positions
    )
    plain = await client.context(scope, budget_tokens=300, recall=None, summaries=False)
    assert again.messages == found.messages
    assert plain.summaries == ()
    await client.after_turn(scope, "They are ripe in August.")
    after = await client.context(scope, budget_tokens=300, recall=None)
    assert after.messages[-1] == {"role": "assistant", "content": "They are ripe in August."}


async def test_what_memory_tools_gave_goes_with_its_call_and_into_no_summary(engine: tuple[Rig, MemoryClient]) -> None:
    rig, client = engine
    scope = rig.scope(session="s1")
    function = {"name": "recall_memories", "arguments": '{"query": "garden"}'}
    turn: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c", "content": '{"memories": ["a secret of last year"]}'},
        {"role": "assistant", "content": "We spoke about it last year, when the apples were late and small."},
    ]
    async with client.summaries(tenant="acme", active_only=False) as stream:
        await client.publish(scope, MemoryRecord(role="user", content="What of the garden did we speak about? 花园"))
        await client.after_turn(scope, turn)
        whole = await client.history(scope, summaries=False)
        await client.publish(scope, talk(20))
        (first,) = await take(stream, 1)
    assert isinstance(first.summary, SummaryCreated)
    asked, call, result, _answer = (entry.record.record_id for entry in whole.records)
    assert set(first.summary.covers.record_ids) >= {asked, call, result}
    assert "What of the garden" in first.summary.text
    assert "secret" not in first.summary.text

    async def shown() -> set[str]:
        return {entry.record.record_id for entry in (await client.history(scope)).records}

    async def hidden() -> bool:
        return asked not in await shown()

    await eventually(hidden)
    assert not {call, result} & await shown()


async def test_the_command_line_shows_them(engine: tuple[Rig, MemoryClient]) -> None:
    rig, client = engine
    run = command_on(rig)
    mine = ("--tenant", "acme", "--agent", "helper")
    scope = rig.scope(session="s1")
    await client.publish(scope, talk(20))
    (done,) = lines(await run("summarise", *mine, "--session", "s1", "--json"))
    assert done["event"]["topic"] == rig.topics.records
    (context,) = lines(
        await run("context", *mine, "--session", "s1", "--budget", "300", "--no-recall", "--wait-for-summary", "--json")
    )
    assert context["tokens"] <= 300
    assert context["summaries"]
    (listed,) = lines(await run("summaries", *mine, "--session", "s1", "--json"))
    first = listed["summaries"][0]
    (tailed,) = lines(await run("tail", "summaries", *mine, "--from", "beginning", "--everything", "-n", "1", "--json"))
    assert tailed["tenant"] == "acme"
    assert tailed["summary"]["covers"]["record_ids"]
    assert {"summary_id", "text", "level"} <= first["summary"].keys()
    table = (await run("context", *mine, "--session", "s1", "--budget", "300", "--no-recall")).stdout
    assert "summaries" in table
    assert "tokens" in table
    line = (await run("tail", "summaries", *mine, "--from", "beginning", "-n", "1", "--group", "cli")).stdout
    assert "helper / s1" in line


async def test_a_consumer_in_node(rig: Rig, tmp_path: Path) -> None:
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("no Node.js on this machine")
    await put(rig, failed("0"), made("1", topic="茶"), made("2", tenantid="other"), made("3", agent="another"))
    shutil.copy(EXAMPLES / "summaries.mjs", tmp_path)
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "kafkajs@2.2.4"], cwd=tmp_path, check=True,
                   capture_output=True)  # fmt: skip
    said: list[str] = []
    for expected in (1, 1):  # the second time it goes on behind the first
        command = ["node", "--no-warnings", str(tmp_path / "summaries.mjs"), rig.config.bootstrap_servers]
        command += [rig.topics.summaries, "acme", "helper", f"{rig.settings.prefix}.subscriber.node", str(expected)]
        done = await asyncio.to_thread(
            subprocess.run, command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        said += done.stdout.splitlines()
        await put(rig, made("4"))
    assert [line.partition(" ")[0] for line in said] == ["1", "4"]
    assert "摘要 1 👋" in said[0]
