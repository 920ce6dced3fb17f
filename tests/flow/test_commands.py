"""Commands on a real broker: one effect and one answer for each request, beside CAMEL's own behaviour."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from engramlog.consumers.agent_log import KafkaAgentLog
from engramlog.engine.client import MemoryClient, MemoryRecord, Scope
from engramlog.engine.commands import Commands
from engramlog.engine.history import History
from engramlog.engine.positions import PositionWatch
from engramlog.schemas import queries as q
from engramlog.schemas.errors import RequestRefused
from engramlog.schemas.queries import AsOf
from engramlog.schemas.topics import Topics
from tests.brokers import Rig

pytestmark = pytest.mark.kafka


def said(text: str, role: str = "user", **more: Any) -> MemoryRecord:
    return MemoryRecord.model_validate({"role": role, "content": text, **more})


def called(text: str = "") -> MemoryRecord:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return said(text, "assistant", tool_calls=[call])


TALK = ["hi", "hello", "how are you", "fine"]


async def seen(client: MemoryClient, scope: Scope, **more: Any) -> list[str]:
    return [c.record.content for c in (await client.history(scope, **more)).records]


def contents(records: list[q.StoredRecord]) -> list[str]:
    return [s.record.content for s in records]


@pytest.mark.parametrize(
    ("head", "number", "popped"),
    [
        # As in CAMEL: in order, fewer where there are fewer, never a leading system or developer record, 0 is nothing.
        (None, 0, []),
        (None, 1, ["fine"]),
        (None, 3, ["hello", "how are you", "fine"]),
        (None, 99, TALK),
        ("system", 99, TALK),
        ("developer", 99, TALK),
        ("system", 2, ["how are you", "fine"]),
    ],
)
async def test_pop(rig: Rig, head: str | None, number: int, popped: list[str]) -> None:
    scope = rig.scope(session="s1")
    async with rig.consumers(), rig.client() as client:
        first = [said("be kind", head)] if head else []
        await client.publish(scope, [*first, *(said(t) for t in TALK)])
        gone = await client.pop(scope, number)
        assert contents(gone) == popped
        left = TALK[: len(TALK) - len(popped)]
        assert await seen(client, scope) == [*(r.content for r in first), *left]
        assert (await client.stats(scope)).records == len(first) + len(TALK)  # soft: nothing is deleted


async def test_pop_refuses_a_negative_count_and_pops_nothing_from_nothing(rig: Rig) -> None:
    scope = rig.scope(session="s1")
    async with rig.consumers(), rig.client() as client:
        with pytest.raises(RequestRefused, match="count"):
            await client.pop(scope, -1)
        assert await client.pop(scope, 3) == []
        await client.publish(scope, said("be kind", "system"))
        assert await client.pop(scope, 3) == []
        assert await seen(client, scope) == ["be kind"]


@pytest.mark.parametrize(
    ("indices", "removed"),
    [
        # As in CAMEL: index 0 is protected when it is a system record, duplicates count once, the rest is passed over.
        ([], []),
        ([0], []),
        ([1], ["hi"]),
        ([4, 1, 1, 4], ["hi", "fine"]),
        ([-1, 5, 99, 10**9], []),
        ([0, 2, -3, 3], ["hello", "how are you"]),
    ],
)
async def test_remove_by_indices(rig: Rig, indices: list[int], removed: list[str]) -> None:
    scope = rig.scope(session="s1")
    async with rig.consumers(), rig.client() as client:
        await client.publish(scope, [said("be kind", "system"), *(said(t) for t in TALK)])
        assert contents(await client.remove(scope, indices)) == removed
        assert await seen(client, scope) == ["be kind", *(t for t in TALK if t not in removed)]


async def test_without_a_head_index_zero_can_be_removed(rig: Rig) -> None:
    scope = rig.scope(session="s1")
    async with rig.consumers(), rig.client() as client:
        await client.publish(scope, [said(t) for t in TALK])
        assert contents(await client.remove(scope, [0])) == ["hi"]


async def test_clean_tool_calls(rig: Rig) -> None:
    """As in CAMEL: tool and function records, and assistant records with calls, go; the answer stays."""
    scope = rig.scope(session="s1")
    talk = [
        said("be kind", "system"),
        said("what is the weather?"),
        called("let me look"),
        said("sunny", "tool", tool_call_id="c1"),
        said("42", "function", name="f"),
        said("It is sunny.", "assistant"),
    ]
    async with rig.consumers(), rig.client() as client:
        await client.publish(scope, talk)
        await client.publish(rig.scope(session="other"), called("elsewhere"))
        gone = await client.clean_tool_calls(scope)
        assert contents(gone) == ["let me look", "sunny", "42"]
        assert await seen(client, scope) == ["be kind", "what is the weather?", "It is sunny."]
        assert await client.clean_tool_calls(scope) == []
        assert await seen(client, rig.scope(session="other")) == ["elsewhere"]


async def test_clear_begins_a_new_epoch_and_the_old_one_stays_readable(rig: Rig) -> None:
    """Unlike CAMEL, whose clear destroys the history."""
    ada, bob = (Scope("acme", "helper", "s1", user) for user in ("ada", "bob"))
    shared = Scope("acme", "helper", "s1")
    async with rig.consumers(), rig.client() as client:
        await client.publish(shared, said("shared"))
        await client.publish(ada, said("ada's"))
        before = await client.publish(bob, said("bob's"))
        await client.clear(ada)
        assert await seen(client, ada) == ["shared"]
        assert await seen(client, bob) == ["shared", "bob's"]
        await client.clear(Scope("acme", "helper", "s1", users="all"))
        assert await seen(client, bob) == []
        await client.publish(ada, said("again"))
        assert await seen(client, ada) == ["again"]
        assert await seen(client, bob, as_of=AsOf(offset=before.offset)) == ["shared", "bob's"]


async def test_correct_invalidate_and_end_session(rig: Rig) -> None:
    scope = rig.scope(session="s1")
    async with rig.consumers(), rig.client() as client:
        love, hate = said("I love coffee"), said("I hate coffee")
        await client.publish(scope, love)
        wrote = await client.publish(scope, hate)
        await client.invalidate(scope, love.record_id, reason="changed their mind", replaced_by=hate.record_id)
        await client.correct(scope, hate.record_id, "I hate instant coffee", reason="more exactly")
        first, second = (await client.history(scope)).records
        assert first.stored.invalidated is not None
        assert (first.stored.invalidated.reason, first.stored.invalidated.replaced_by) == (
            "changed their mind",
            hate.record_id,
        )
        assert (second.record.content, second.stored.corrected_at is not None) == ("I hate instant coffee", True)
        assert await seen(client, scope, as_of=AsOf(offset=wrote.offset)) == ["I love coffee", "I hate coffee"]
        await client.end_session(scope, reason="done")
        for wrong in (client.correct(scope, "nobody", "x"), client.invalidate(scope, "nobody")):
            with pytest.raises(RequestRefused) as refused:
                await wrong
            assert refused.value.code == "not_found"
        with pytest.raises(RequestRefused, match="name the session"):
            await client.end_session(rig.scope())


async def test_asked_again_a_command_has_one_effect_and_the_same_answer(rig: Rig) -> None:
    scope = rig.scope(session="s1")
    async with rig.consumers(), rig.client() as client, rig.client() as other:
        await client.publish(scope, [said(str(n)) for n in range(20)])
        first = await client.pop(scope, 3, request_id="pop-1")
        await client.publish(scope, said("later"))
        assert await other.pop(scope, 3, request_id="pop-1") == first
        assert len(await seen(client, scope)) == 18
        assert await client.pop(rig.scope("nobody"), 2, request_id="pop-2") == []
        await client.publish(rig.scope("nobody"), said("now there is something"))
        assert await client.pop(rig.scope("nobody"), 2, request_id="pop-2") == []
        cleared = await client.clear(scope, request_id="clear-1")
        await client.publish(scope, said("after the clear"))
        assert await other.clear(scope, request_id="clear-1") == cleared
        assert await seen(client, scope) == ["after the clear"]
        erased = await client.erase(scope, "session", request_id="erase-1")
        await client.publish(scope, said("after the erasure"))
        assert await other.erase(scope, "session", request_id="erase-1") == erased
        assert await seen(client, scope) == ["after the erasure"]
        # Once what it was about is erased, it can no longer hit others.
        assert await client.pop(scope, 3, request_id="pop-1") == []
        assert await seen(client, scope) == ["after the erasure"]


async def test_a_command_whose_records_were_erased_holds_up_no_other(rig: Rig) -> None:
    """Its event leaves no trace in the history; it must not be taken for one that was never published."""
    bob = Scope("acme", "helper", "s1", "bob")
    async with rig.consumers(), rig.client() as client:
        await client.publish(bob, [said("one"), said("two")])
        assert contents(await client.pop(bob, 2, request_id="first")) == ["one", "two"]
        await client.erase_tenant("acme", user="bob")
        await client.publish(bob, said("three"))
        assert contents(await client.pop(bob, 1)) == ["three"]
        assert await client.pop(bob, 2, request_id="first") == []
        events = [m for m in await rig.read(rig.topics.records) if b"/~first" in m.key]
        assert len(events) <= 2


async def test_a_tenant_or_a_user_of_it_is_erased_in_every_partition(rig: Rig) -> None:
    scopes = [Scope(t, f"agent-{n}", "s1", u) for t in ("acme", "acme-corp") for n in range(6) for u in ("ada", "bob")]
    async with rig.consumers(), rig.client() as client:
        for scope in scopes:
            await client.publish(scope, said(f"{scope.tenant} {scope.user}"))
        assert len(await client.erase_tenant("acme", user="ada", request_id="ada-goes")) == rig.partitions
        later = Scope("acme", "agent-0", "s1", "ada")
        await client.publish(later, said("ada is back"))
        await client.erase_tenant("acme", user="ada", request_id="ada-goes")  # asked again: nothing more goes
        for scope in scopes:
            gone = (scope.tenant, scope.user) == ("acme", "ada")
            expected = [] if gone else [f"{scope.tenant} {scope.user}"]
            assert await seen(client, scope) == expected + (["ada is back"] if scope == later else [])
        await client.erase_tenant("acme")
        for scope in scopes:
            expected = [] if scope.tenant == "acme" else [f"{scope.tenant} {scope.user}"]
            assert await seen(client, scope) == expected


async def test_an_erase_amid_ten_writers(rig: Rig) -> None:
    """From the reply on nothing recorded before it is seen, and what is published after it is there."""
    scope = rig.scope(session="s1")
    stop = asyncio.Event()
    places: dict[str, int] = {}

    async def write(number: int) -> None:
        async with rig.client() as writer:
            turn = 0
            while not stop.is_set():
                record = said(f"writer {number}, turn {turn}")
                position = await writer.publish(scope, record)
                places[record.record_id] = position.offset
                turn += 1

    async with rig.consumers(), rig.client() as client:
        writers = [asyncio.create_task(write(n)) for n in range(10)]
        while len(places) < 100:  # noqa: ASYNC110 - the writers fill it
            await asyncio.sleep(0.01)
        position = await client.erase(scope, "agent")
        after = said("after the reply")
        later = await client.publish(scope, after)
        stop.set()
        await asyncio.gather(*writers)
        for _ in range(3):
            window = await client.history(scope, min_positions=[later])
            ids = {c.record.record_id for c in window.records}
            assert after.record_id in ids
            assert all(c.stored.offset > position.offset for c in window.records)
            assert {i for i, offset in places.items() if position.offset < offset < later.offset} <= ids
        with pytest.raises(RequestRefused, match="no record"):
            await client.record(scope, next(i for i, offset in places.items() if offset < position.offset))
        assert await seen(client, scope, as_of=AsOf(offset=position.offset)) == []


class Killed(BaseException):
    """As sudden as kill -9: nothing of ours catches it."""


class Fragile:
    """Passes calls on, and dies before or after one of them, now and then."""

    def __init__(self, inner: Any, chance: Callable[[], bool]) -> None:
        self._inner, self._chance = inner, chance

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **named: Any) -> Any:
            if self._chance():
                raise Killed
            answer = await found(*args, **named)
            if self._chance():
                raise Killed
            return answer

        return call


async def test_two_clients_popping_through_processes_that_die(rig: Rig) -> None:
    """200 pops; whoever carries one out dies at any step, and two of them may be at the same request at once."""
    generator = random.Random(7)
    topics = Topics(rig.settings.prefix, rig.partitions)
    history = History(rig.settings.effective_history_url(), topics=topics)
    scope = Scope("acme", "helper", "s1")
    records = [said(str(n)) for n in range(500)]
    deaths = 0

    def chance() -> bool:
        return generator.random() < 0.06

    def ask(request_id: str, number: int) -> q.QueryAsked:
        data = q.PopCommand(count=number)
        return q.QueryAsked(id=request_id, source="test", tenantid="acme", agentid="helper", sessionid="s1", data=data)

    async with rig.consumers(), rig.client() as client:
        await history.start()
        last = (await client.publish(scope, records))[-1]
        broker = rig.broker()
        await broker.start()
        logs = [KafkaAgentLog(rig.config, broker, topics.records, rig.partitions) for _ in range(2)]
        watch = PositionWatch(history.next_offsets)
        until = asyncio.get_running_loop().time() + 300
        assert await watch.wait(
            [q.Reached(topic=last.topic, partition=last.partition, offset=last.offset)], until=until
        )

        async def carried_out(process: int, query: q.QueryAsked) -> q.CommandAnswer:
            nonlocal deaths
            while True:
                commands = Commands(Fragile(history, chance), Fragile(watch, chance), Fragile(logs[process], chance))
                try:
                    return await commands(query, until=until)
                except Killed:
                    deaths += 1

        async def pops(asker: int) -> list[tuple[str, ...]]:
            popped = []
            for turn in range(100):
                query = ask(f"{asker}-{turn}", generator.randint(0, 3))
                twice: list[Awaitable[q.CommandAnswer]] = [carried_out(0, query)]
                if generator.random() < 0.3:  # redelivered to another process while the first is still at it
                    twice.append(carried_out(1, query))
                answers = await asyncio.gather(*twice)
                assert len({a.ids for a in answers}) == 1
                assert (await carried_out(1, query)).ids == answers[0].ids
                popped.append(answers[0].ids)
            return popped

        popped = [ids for asker in await asyncio.gather(pops(0), pops(1)) for ids in asker]
        flat = [i for ids in popped for i in ids]
        assert len(flat) == len(set(flat)), "a record was popped twice"
        left = [c.record.record_id for c in (await client.history(scope)).records]
        assert sorted([*left, *flat]) == sorted(r.record_id for r in records)
        assert deaths > 100
        live = await history.digest()
        for log in logs:
            await log.stop()
        await watch.stop()
        await broker.stop()
    again = await rig.rebuilt()
    assert again == live
    await history.stop()
