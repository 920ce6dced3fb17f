"""The databases of a whole engine are lost, its log is not: everything comes back, and no model is asked for it."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from engramlog.consumers.app import Consumers
from engramlog.engine.client import MemoryRecord
from engramlog.engine.client.reader import spans
from engramlog.engine.embedders.use_m3 import UseM3
from engramlog.engine.history.due import WAITING
from engramlog.engine.summarisers.extractive import Extractive
from engramlog.schemas.codec import derived_codec
from engramlog.schemas.derived import RecordDerived
from tests.brokers import Rig, eventually, rig_on

pytestmark = pytest.mark.kafka

EVERYTHING = ("store", "summarise", "derive", "index", "answer")
NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
ENGLISH = (
    "I planted tomatoes on the balcony on Monday, twelve of them, and the red ones grow best.",
    "Tomatoes need a lot of sun and water; did you use a large pot for each of the plants?",
    "The landlord will repair the heating on Thursday at nine, so I work from home that day. 👋",
    "Then put a note on the door for the landlord, and keep the dog in the kitchen meanwhile.",
    "I prefer dark mode in every editor, and I decided to use Postgres for the project.",
    "My sister moves to Lisbon in June; she found a flat near the river with two balconies.",
    "Lisbon is warm in June, so her tomatoes would grow even better there than at your place.",
    "She wants to take the tomatoes along in a pot, on the train, which takes two days.",
)
CHINESE = (
    "我下周三要去大连出差,住三天,酒店已经订好了,在星海广场旁边。",
    "大连三月还有点冷,记得带一件厚外套,晚上海边的风会比较大。",
    "我喜欢吃海鲜,不喜欢太辣的菜,请你帮我找几家合适的餐馆。",
    "好的,星海广场附近有两家海鲜餐馆评价不错,价格也不算太高。",
    "那就订星期四晚上六点,两个人,靠窗的位置,名字写王小明。",
    "已经记下了:星期四晚上六点,两个人,靠窗,预订人是王小明。",
)


@dataclass
class Asked:
    """How often the models were asked; ``forbidden``: nobody may."""

    passages: int = 0
    summaries: int = 0
    forbidden: bool = False
    broken: list[str] = field(default_factory=list)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Counts what the models of this process are asked."""
    found, passages, summarise = Asked(), UseM3.passages, Extractive.summarise

    async def counted_passages(self: UseM3, texts: Any) -> Any:
        if found.forbidden:
            found.broken.append(f"passages: {texts}")
            raise AssertionError(found.broken[-1])
        found.passages += len(texts)
        return await passages(self, texts)

    async def counted_summarise(self: Extractive, given: Any, **how: Any) -> Any:
        if found.forbidden:
            found.broken.append(f"summarise: {given}")
            raise AssertionError(found.broken[-1])
        found.summaries += 1
        return await summarise(self, given, **how)

    monkeypatch.setattr(UseM3, "passages", counted_passages)
    monkeypatch.setattr(Extractive, "summarise", counted_summarise)
    return found


async def settle(rig: Rig, consumers: Consumers) -> None:
    """Wait until every projection is at the end of the log, and no summary is due."""
    history, topics = consumers._history, rig.topics
    assert history is not None
    names = dict.fromkeys((topics.records, topics.derived, topics.summaries), rig.partitions)

    async def settled() -> bool:
        ends = await spans(rig.config, names)
        reached = {
            (name, c.topic, c.partition): c.next
            for name, found in (await history.all_checkpoints()).items()
            for c in found
        }
        wanted = [
            *(("history", topic) for topic in names),
            ("derive", topics.records),
            ("summarise", topics.records),
            ("vectors", topics.derived),
        ]
        due = history._tables.due.c
        query = select(due.summary_id).where(due.done == WAITING)
        waiting = await history._database.read(lambda connection: connection.execute(query).first())
        there = all(
            reached.get((name, topic, p), 0) >= ends[topic, p].end
            for name, topic in wanted
            for p in range(rig.partitions)
        )
        return there and waiting is None and await spans(rig.config, names) == ends

    await eventually(settled, within_s=90)


@asynccontextmanager
async def running(rig: Rig) -> AsyncIterator[Consumers]:
    async with rig.consumers(*EVERYTHING) as consumers:
        yield consumers


async def state(consumers: Consumers) -> dict[str, Any]:
    """What the stores hold: digests, and every row that ``derive`` and ``summarise`` keep."""
    history, backends = consumers._history, consumers._backends
    assert history is not None
    assert backends is not None
    assert backends.vectors is not None
    found: dict[str, Any] = {"history": await history.digest(), "vectors": await backends.vectors.digest()}
    t = history._tables
    for table in (t.folds, t.derived_turns, t.turns, t.due):
        columns = [column for column in table.c if column.name not in {"attempts", "next_ms"}]
        query = select(*columns)
        rows = await history._database.read(lambda connection, q=query: list(connection.execute(q).all()))
        found[table.name] = sorted(tuple(row) for row in rows)
    return found


async def ends(rig: Rig) -> dict[tuple[str, int], Any]:
    topics = rig.topics
    return await spans(rig.config, dict.fromkeys((topics.records, topics.derived, topics.summaries), rig.partitions))


async def derived(rig: Rig) -> dict[str, RecordDerived]:
    found = {}
    for message in await rig.read(rig.topics.derived):
        event = None if message.value is None else derived_codec().decode(message.value)
        if isinstance(event, RecordDerived):
            found[event.data.record_id] = event
    return found


def said(text: str, n: int, **more: Any) -> MemoryRecord:
    fields = {"role": ("user", "assistant")[n % 2], "content": text, "timestamp": NOW - timedelta(hours=5, minutes=-n)}
    return MemoryRecord.model_validate(fields | more)


async def test_a_new_database_and_new_vectors_cost_no_call_of_a_model(kafka: str, tmp_path: Path, asked: Asked) -> None:
    data = tmp_path / "data"
    data.mkdir()
    async with rig_on(kafka, data, embedder="usem3", summary_budget_tokens=300) as rig:
        scopes = [
            rig.scope(agent, session="s/1", user=user) for agent, user in (("a", None), ("b", "ada"), ("小明|", "bob"))
        ]
        async with running(rig) as consumers, rig.client(timeout_s=60) as client:
            for scope, talk in zip(scopes, (CHINESE, ENGLISH, CHINESE), strict=True):
                await client.publish(scope, [said(text, n, record_id=f"记录{n}") for n, text in enumerate(talk)])
                await client.publish(scope, [said("", 8, record_id="empty"), said("Yes!", 9, record_id="yes")])
            await settle(rig, consumers)
            await client.pop(scopes[0], 1)
            await client.erase(scopes[2], "user")
            await client.publish(scopes[1], [said(text, n, record_id=f"b{n}") for n, text in enumerate(ENGLISH)])
            await settle(rig, consumers)
            before, log = await state(consumers), await ends(rig)
        assert asked.passages > 20
        assert asked.summaries >= 3
        assert before["summarise_due"]
        shutil.rmtree(data)
        data.mkdir()
        asked.forbidden = True
        async with running(rig) as consumers, rig.client(timeout_s=60) as client:
            await settle(rig, consumers)
            after = await state(consumers)
            assert asked.broken == []
            for name, value in before.items():
                assert after[name] == value, name
            assert await ends(rig) == log
            asked.forbidden = False
            last = (await derived(rig))["b7"].data
            await client.publish(scopes[1], [said("Yes!", 9, record_id="new")])
            await settle(rig, consumers)
            new = (await derived(rig))["new"].data
            assert (new.turn, new.topic) == (last.turn + 1, last.topic)
            assert new.embedding is not None
