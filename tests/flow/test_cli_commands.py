"""The command line of commands, on a real broker with a running engine."""

import pytest

from engramlog.engine.client import MemoryRecord
from tests.brokers import Rig
from tests.commands import Command, command_on, lines

pytestmark = pytest.mark.kafka

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TALK = [
    {"record_id": "r0", "role": "system", "content": "be kind"},
    {"record_id": "r1", "role": "user", "content": "one"},
    {"record_id": "r2", "role": "assistant", "content": "two", "tool_calls": [CALL]},
    {"record_id": "r3", "role": "tool", "content": "three", "tool_call_id": "c1"},
    {"record_id": "r4", "role": "assistant", "content": "four"},
    {"record_id": "r5", "role": "user", "content": "five"},
]
SCOPE = ("--tenant", "acme", "--agent", "helper", "--session", "s1", "--timeout", "30")


async def window(run: Command) -> list[str]:
    (found,) = lines(await run("history", *SCOPE, "--json"))
    return [r["stored"]["record"]["record_id"] for r in found["records"]]


async def taken(run: Command, *arguments: str) -> list[str]:
    (found,) = lines(await run(*arguments, *SCOPE, "--json"))
    assert found["scope"]["session"] == "s1"
    return [r["record"]["record_id"] for r in found["records"]]


async def test_every_command(rig: Rig) -> None:
    run = command_on(rig)
    scope = rig.scope(session="s1")
    async with rig.consumers("store", "answer"):
        async with rig.client() as client:
            await client.publish(scope, [MemoryRecord.model_validate(said) for said in TALK])
        assert await taken(run, "pop", "1", "--request-id", "q1") == ["r5"]
        assert await taken(run, "pop", "1", "--request-id", "q1") == ["r5"]
        assert await taken(run, "pop", "0") == []
        assert await taken(run, "clean-tool-calls", "--leave", "both") == ["r2", "r3"]
        assert await taken(run, "remove", "0", "1", "1", "99") == ["r1"]
        assert await window(run) == ["r0", "r4"]
        (corrected,) = lines(await run("correct", "r4", "vier", "--reason", "German", *SCOPE, "--json"))
        assert corrected["event"]["topic"] == rig.topics.records
        assert corrected["request_id"]
        await run("invalidate", "r4", "--replaced-by", "r5", *SCOPE)
        (record,) = lines(await run("record", "r4", *SCOPE, "--json"))
        assert record["record"]["content"] == "vier"
        assert record["invalidated"]["replaced_by"] == "r5"
        await run("correct", "nobody", "x", *SCOPE, code=1)
        done = await run("end-session", *SCOPE)
        assert f"done, as {rig.topics.records}/" in done.stdout
        await run("clear", *SCOPE, "--leave", "both")
        assert await window(run) == []
        assert "1 record taken out" not in (await run("pop", "3", *SCOPE)).stdout


async def test_erasing_asks_first(rig: Rig) -> None:
    run = command_on(rig)
    scope = rig.scope(session="s1", user="ada")
    mine = (*SCOPE, "--user", "ada")
    async with rig.consumers("store", "answer"):
        async with rig.client() as client:
            await client.publish(scope, [MemoryRecord.model_validate(said) for said in TALK])
        refused = await run("erase", "record", "r1", *mine, code=2)
        assert "give --yes" in refused.stderr
        (erased,) = lines(await run("erase", "record", "r1", "r2", *mine, "--yes", "--json"))
        assert erased["event"]["offset"] == len(TALK)
        (left,) = lines(await run("history", *mine, "--json"))
        assert [r["stored"]["record"]["record_id"] for r in left["records"]] == ["r0", "r3", "r4", "r5"]
        for what in ("user", "session", "agent"):
            await run("erase", what, *mine, "--yes")
            (left,) = lines(await run("history", *mine, "--json"))
            assert left["records"] == []


async def test_erasing_a_tenant_or_one_of_its_users_everywhere(rig: Rig) -> None:
    run = command_on(rig)
    async with rig.consumers("store", "answer"), rig.client() as client:
        for user in ("ada", "bob"):
            for agent in ("helper", "other"):
                await client.publish(rig.scope(agent, user=user), MemoryRecord(role="user", content=user))

        async def left() -> list[int]:
            scopes = [rig.scope(agent, users="all") for agent in ("helper", "other")]
            return [(await client.stats(scope)).records for scope in scopes]

        await run("erase", "tenant", "--tenant", "acme", code=2)
        assert await left() == [2, 2]
        (erased,) = lines(await run("erase", "tenant", "--tenant", "acme", "--user", "bob", "--yes", "--json"))
        assert len(erased["events"]) == rig.partitions
        assert await left() == [1, 1]
        assert "one a partition" in (await run("erase", "tenant", "--tenant", "acme", "--yes")).stdout
        assert await left() == [0, 0]


async def test_what_is_missing_is_named_and_a_lost_answer_can_be_asked_for_again(rig: Rig) -> None:
    run = command_on(rig)
    for arguments in (["erase", "session", "--yes"], ["erase", "user", "--yes"], ["end-session"]):
        assert "name it: --" in (await run(*arguments, code=2)).stderr
    lost = await run("pop", "1", "--timeout", "0.5", "--request-id", "again", code=3)
    assert "ask again with --request-id again" in lost.stderr
    await run("pop", "-1", code=2)
