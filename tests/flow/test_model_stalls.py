"""Models that stall, refuse and talk nonsense: the talk goes on, nothing is lost, and what was left is made up for."""

import base64
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from engramlog.engine.client import MemoryClient, MemoryRecord, Recall
from engramlog.schemas.codec import derived_codec
from engramlog.schemas.derived import Derived, RecordDerived, Vectors
from engramlog.schemas.errors import ConfigurationError
from tests.brokers import Rig, eventually, rig_on
from tests.model_server import ModelServer, model_server

pytestmark = pytest.mark.kafka

T = TypeVar("T")
EVERYTHING = ("store", "derive", "index", "answer")
DIMENSION = 64
STALL_S = 60.0
QUICK_S = 8.0
"""What a talk may wait for an answer while a model stalls; the machine of the tests may be busy."""
GOOD: dict[str, Any] = {
    "topic": "bees",
    "importance": 0.9,
    "keywords": ["bees"],
    "entities": [],
    "relations": [],
    "language": "en",
}
LLM = "llm.v1:pseudo"
THINGS = ("apples", "boats", "candles", "drums")


@pytest.fixture
def minds() -> Iterator[ModelServer]:
    """Serves the language model."""
    with model_server() as server:
        server.chat = lambda _body: GOOD
        yield server


@pytest.fixture
def vectors() -> Iterator[ModelServer]:
    """Serves the embeddings."""
    with model_server() as server:
        server.dimension = DIMENSION
        yield server


@asynccontextmanager
async def engine(
    kafka: str, tmp_path: Path, vectors: ModelServer, **settings: Any
) -> AsyncIterator[tuple[Rig, MemoryClient, MemoryClient]]:
    """An engine with models behind HTTP, one client that writes, and one that only reads: it waits for nothing."""
    remote = {"embedder": "openai", "embedding_urls": vectors.url, "embedding_model": "pseudo"}
    async with (
        rig_on(kafka, tmp_path, partitions=2, **{**remote, "embedding_timeout_s": 1.0, **settings}) as rig,
        rig.consumers(*EVERYTHING),
        rig.client(timeout_s=90) as writer,
        rig.client(timeout_s=90) as reader,
    ):
        yield rig, writer, reader


def with_llm(minds: ModelServer, *, timeout_s: float) -> dict[str, Any]:
    return {"deriver": "llm", "llm_urls": minds.url, "llm_model": "pseudo", "llm_timeout_s": timeout_s}


def said(text: str, record_id: str) -> MemoryRecord:
    return MemoryRecord(role="user", content=text, record_id=record_id)


async def quickly(call: Awaitable[T], *, within_s: float = QUICK_S) -> T:
    began = time.monotonic()
    answer = await call
    assert time.monotonic() - began < within_s
    return answer


async def derived(rig: Rig) -> dict[str, Derived]:
    """The last derivation of each record."""
    events = [derived_codec().decode(m.value) for m in await rig.read(rig.topics.derived) if m.value is not None]
    return {event.data.record_id: event.data for event in events if isinstance(event, RecordDerived)}


def ids(found: Recall) -> list[str]:
    return [hit.stored.record.record_id for hit in found.hits]


async def the_talk_goes_on(rig: Rig, writer: MemoryClient, reader: MemoryClient, number: int) -> None:
    """Publishing, reading one's own words, and recalling what was known are all quick."""
    scope = rig.scope(session="s1")
    await quickly(writer.publish(scope, said(f"we keep {THINGS[number]} in the attic", f"new{number}")))
    window = await quickly(writer.history(scope, window=1))
    assert [c.record.record_id for c in window.records] == [f"new{number}"]
    assert not window.seen.stale
    found = await quickly(reader.recall(rig.scope(), "where do the bees live", limit=3))
    assert "old" in ids(found)


FAULTS: dict[str, Callable[[ModelServer], None]] = {
    "stall": lambda server: setattr(server, "stall_s", STALL_S),
    "429": lambda server: server.fail(429, retry_after="1"),
    "500": lambda server: server.fail(500),
    "broken json": lambda server: server.play("broken_json"),
    "empty answer": lambda server: server.play("empty"),
    "half an object": lambda server: setattr(server, "chat", '{"topic": "be'),
    "a key that is refused": lambda server: setattr(server, "api_key", "another"),
}


def well_again(server: ModelServer) -> None:
    server.recover()
    server.resume()
    server.chat, server.api_key = lambda _body: GOOD, None


@pytest.mark.parametrize("fault", FAULTS)
async def test_records_are_derived_by_rules_while_the_language_model_fails(
    kafka: str, tmp_path: Path, minds: ModelServer, vectors: ModelServer, fault: str
) -> None:
    async with engine(kafka, tmp_path, vectors, **with_llm(minds, timeout_s=1.0)) as (rig, writer, reader):
        scope = rig.scope(session="s1")
        await writer.publish(scope, said("my bees live behind the barn", "old"))
        assert ids(await writer.recall(scope, "bees")) == ["old"]
        FAULTS[fault](minds)
        for number in range(4):
            await the_talk_goes_on(rig, writer, reader, number)
        found = await writer.recall(scope, "drums")
        assert ids(found)[0] == "new3"
        assert not found.seen.stale
        by_id = await derived(rig)
        assert (by_id["old"].deriver, by_id["old"].topic, by_id["old"].degraded) == (LLM, "bees", ())
        for number in range(4):
            late = by_id[f"new{number}"]
            assert late.deriver == "rules.v1"
            assert late.degraded[0].startswith(LLM)
            assert late.embedding is not None
        well_again(minds)
        tries = iter(range(1_000))

        async def it_is_asked_again() -> bool:
            name = f"after{next(tries)}"
            await writer.publish(scope, said("the bees came back", name))
            await writer.recall(scope, "bees")
            return (await derived(rig))[name].deriver == LLM

        await eventually(it_is_asked_again, within_s=90)  # after failures it rests for a while
        assert await rig.dead_letters() == []


async def test_records_wait_for_a_language_model_that_is_slow_but_in_time(
    kafka: str, tmp_path: Path, minds: ModelServer, vectors: ModelServer
) -> None:
    async with engine(kafka, tmp_path, vectors, **with_llm(minds, timeout_s=STALL_S)) as (rig, writer, reader):
        scope = rig.scope(session="s1")
        await writer.publish(scope, said("my bees live behind the barn", "old"))
        await writer.recall(scope, "bees")
        minds.stall_s = STALL_S
        for number in range(4):
            await the_talk_goes_on(rig, writer, reader, number)
        assert (await derived(rig)).keys() == {"old"}
        behind = await quickly(writer.recall(scope, "drums", timeout_s=1.0))
        assert behind.seen.stale  # and says so
        assert "new3" not in ids(behind)
        minds.resume()
        found = await writer.recall(scope, "drums")
        assert (ids(found)[0], found.seen.stale) == ("new3", False)
        assert {(d.deriver, d.degraded) for d in (await derived(rig)).values()} == {(LLM, ())}


VECTOR_FAULTS: dict[str, Callable[[ModelServer], None]] = {
    "stall": lambda server: setattr(server, "stall_s", STALL_S),
    "429": lambda server: server.fail(429, retry_after="1"),
    "500": lambda server: server.fail(500),
    "broken json": lambda server: server.play("broken_json"),
    "empty answer": lambda server: server.play("empty"),
    "no number": lambda server: server.play("nan"),
    "one vector less": lambda server: server.play("one_less"),
    "another dimension": lambda server: setattr(server, "dimension", 5),
}


@pytest.mark.parametrize("fault", VECTOR_FAULTS)
async def test_deriving_waits_for_an_embedder_that_fails_and_loses_nothing(
    kafka: str, tmp_path: Path, vectors: ModelServer, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with engine(kafka, tmp_path, vectors) as (rig, writer, reader):
        scope = rig.scope(session="s1")
        await writer.publish(scope, said("my bees live behind the barn", "old"))
        assert ids(await writer.recall(scope, "bees")) == ["old"]
        VECTOR_FAULTS[fault](vectors)
        for number in range(4):
            await quickly(writer.publish(scope, said(f"we keep {THINGS[number]} in the attic", f"new{number}")))
            window = await quickly(writer.history(scope, window=1))
            assert [c.record.record_id for c in window.records] == [f"new{number}"]
            by_words = await quickly(reader.recall(rig.scope(), f"bees and {number}"), within_s=2 * QUICK_S)
            assert ids(by_words) == ["old"]
            assert "no query embedding" in by_words.degraded[0]
        asked = vectors.count("embeddings")

        async def it_is_asked_again() -> bool:
            return vectors.count("embeddings") > asked

        await eventually(it_is_asked_again)
        assert (await derived(rig)).keys() == {"old"}
        vectors.recover()
        vectors.resume()
        vectors.dimension = DIMENSION

        async def it_caught_up() -> bool:
            return len(await derived(rig)) == 5

        await eventually(it_caught_up, within_s=90)
        found = await writer.recall(scope, "candles")
        assert (ids(found)[0], found.degraded, found.seen.stale) == ("new2", (), False)
        by_id = await derived(rig)
        assert all(d.embedding is not None and d.embedding.dimension == DIMENSION for d in by_id.values())
        assert {d.degraded for d in by_id.values()} == {()}
        assert await rig.dead_letters() == []
    if fault == "another dimension":
        assert "gave vectors of 5 components, expected are 64" in caplog.text


async def test_who_waits_for_own_words_in_vain_is_answered_before_the_deadline(
    kafka: str, tmp_path: Path, vectors: ModelServer
) -> None:
    """The same model stalls twice: no vector of what was said, and none of the question."""
    async with engine(kafka, tmp_path, vectors, embedding_timeout_s=STALL_S) as (rig, writer, _):
        await writer.publish(rig.scope(), said("my bees live behind the barn", "old"))
        assert ids(await writer.recall(rig.scope(), "bees")) == ["old"]
        vectors.stall_s = STALL_S
        await writer.publish(rig.scope(), said("the bees came back", "new"))
        found = await writer.recall(rig.scope(), "where do bees live?", timeout_s=8.0)
        assert ids(found) == ["old"]
        assert found.seen.stale
        assert "no query embedding" in found.degraded[0]
        context = await writer.context(rig.scope(), timeout_s=8.0)
        assert [m["content"] for m in context.messages] == ["my bees live behind the barn", "the bees came back"]


async def test_an_embedder_of_another_dimension_stops_the_start_with_both_numbers(
    kafka: str, tmp_path: Path, vectors: ModelServer
) -> None:
    async with engine(kafka, tmp_path, vectors) as (rig, writer, _):
        await writer.publish(rig.scope(), said("my bees live behind the barn", "old"))
        assert ids(await writer.recall(rig.scope(), "bees")) == ["old"]
        vectors.dimension = 5
        with pytest.raises(ConfigurationError, match=r"'pseudo' with 64 components.*'pseudo' with 5"):
            async with rig.consumers("derive"):
                pytest.fail("it must not run")
        other = Rig(rig.settings.model_copy(update={"embedding_dimensions": 7}), rig.partitions, rig.raw)
        with pytest.raises(ConfigurationError, match=r"'pseudo' with 64 components.*'pseudo@7' with 7"):
            async with other.consumers("derive"):
                pytest.fail("it must not run")


async def test_a_text_that_the_embedder_refuses_is_found_by_its_words(
    kafka: str, tmp_path: Path, vectors: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(body: dict[str, Any]) -> str:
        return "content policy" if any("poison" in text for text in body["input"]) else ""

    monkeypatch.setattr(vectors, "_refused", refused)
    async with engine(kafka, tmp_path, vectors) as (rig, writer, _):
        scope = rig.scope()
        texts = {"a": "my bees live behind the barn", "b": "the poison cabinet is locked", "c": "蜂蜜很好吃"}
        await writer.publish(scope, [said(text, name) for name, text in texts.items()])
        found = await writer.recall(scope, "who locked the cabinet?")
        assert ids(found)[0] == "b"
        assert found.hits[0].similarity is None
        by_id = await derived(rig)
        assert [by_id[name].embedding is None for name in texts] == [False, True, False]
        assert [bool(by_id[name].degraded) for name in texts] == [False, True, False]
        assert "content policy" in by_id["b"].degraded[0]
        assert ids(await writer.recall(scope, "the poison question"))[0] == "b"  # nor is the question embedded


async def test_an_engine_starts_and_remembers_without_its_models(
    kafka: str, tmp_path: Path, minds: ModelServer, vectors: ModelServer
) -> None:
    vectors.fail(500)
    minds.fail(500)
    settings = with_llm(minds, timeout_s=1.0) | {"embedding_dimensions": DIMENSION}
    async with engine(kafka, tmp_path, vectors, **settings) as (rig, writer, reader):
        await quickly(writer.publish(rig.scope(), said("my bees live behind the barn", "old")), within_s=10.0)
        assert len((await writer.history(rig.scope())).records) == 1
        assert ids(await reader.recall(rig.scope(), "bees")) == []
        vectors.recover()
        found = await writer.recall(rig.scope(), "bees")
        assert (ids(found), found.seen.stale) == (["old"], False)


async def test_one_derivation_that_does_not_fit_is_a_dead_letter_and_spoils_no_other(
    kafka: str, tmp_path: Path, vectors: ModelServer
) -> None:
    """Somebody else's derivation, with vectors of five components, amid one batch of good ones."""
    remote = {"embedder": "openai", "embedding_urls": vectors.url, "embedding_model": "pseudo"}
    async with rig_on(kafka, tmp_path, partitions=1, **remote) as rig, rig.client(timeout_s=90) as client:
        async with rig.consumers("store", "derive"):
            await client.publish(rig.scope(), [said(f"we keep {thing}", thing) for thing in THINGS])

            async def all_derived() -> bool:
                return len(await derived(rig)) == len(THINGS)

            await eventually(all_derived)
            good = next(iter((await derived(rig)).values()))
            values = base64.b64encode(np.ones(5, dtype="<f4").tobytes()).decode()
            other = Vectors(model="pseudo", dimension=5, values=values, spans=((0, 1),))
            bad = RecordDerived(
                source="test",
                tenantid=rig.tenant,
                agentid="helper",
                data=good.model_copy(update={"record_id": "bad", "embedding": other}),
            )
            await rig.put(derived_codec().encode(bad), key=bad.key(), partition=0, topic=rig.topics.derived)
            await client.publish(rig.scope(), said("we keep bees", "bees"))
        async with rig.consumers(*EVERYTHING):
            found = await client.recall(rig.scope(), "what do we keep?")
            assert sorted(ids(found)) == sorted([*THINGS, "bees"])
            assert not found.seen.stale
            ((letter, value),) = await rig.dead_letters()
            assert (letter.consumer, letter.reason) == ("index", "unprocessable")
            assert "5 dimensions" in letter.error
            assert value == derived_codec().encode(bad)
