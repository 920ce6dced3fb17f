"""The pool of endpoints and the remote embedder, against a local server on its bad days."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest
from pydantic import BaseModel, SecretStr

from engramlog.engine.embedders import embedder_of
from engramlog.engine.embedders.remote import BATCH_TEXTS
from engramlog.engine.models import Endpoints
from engramlog.engine.ports import Embedder
from engramlog.engine.settings import Settings
from engramlog.schemas.errors import ConfigurationError, EngramlogError, ModelRefused, ModelUnavailable
from tests.model_server import Fault, ModelServer, model_server, pseudo_vector

KEY = "hunter2-secret-key"


class Topic(BaseModel):
    topic: str


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as found:
        yield found


@pytest.fixture
async def pool(server: ModelServer) -> AsyncIterator[Endpoints]:
    found = Endpoints([server.url], api_key=KEY, timeout_s=10, sleep=lambda _: asyncio.sleep(0))
    yield found
    await found.stop()


async def embed(pool: Endpoints, *texts: str) -> object:
    return await pool.embed(texts or ("cats",), model="pseudo", dimensions=None)


async def ask(pool: Endpoints) -> Topic:
    return await pool.structured(model="m", system="Name the topic.", user="猫 👋", schema=Topic)


async def test_vectors_come_as_the_model_gave_them(server: ModelServer, pool: Endpoints) -> None:
    rows = await pool.embed(["cats", "狗"], model="pseudo", dimensions=None)
    assert np.array_equal(rows, [pseudo_vector("cats", 64), pseudo_vector("狗", 64)])
    shorter = await pool.embed(["cats"], model="pseudo", dimensions=16)
    assert shorter.shape == (1, 16)
    assert server.calls[0].headers["authorization"] == f"Bearer {KEY}"


async def test_a_big_answer_is_read_too(pool: Endpoints, server: ModelServer) -> None:
    server.dimension = 1536
    texts = [f"text {number}" for number in range(100)]
    rows = await pool.embed(texts, model="pseudo", dimensions=None)
    assert np.array_equal(rows[99], pseudo_vector("text 99", 1536))


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 529])
async def test_a_status_that_may_pass_is_retried(server: ModelServer, pool: Endpoints, status: int) -> None:
    server.fail(status, times=2)
    await embed(pool)
    assert server.count() == 3
    server.fail(status)
    with pytest.raises(ModelUnavailable, match=f"answers {status}: it failed"):
        await embed(pool)


@pytest.mark.parametrize("status", [400, 404, 405, 413, 415, 422])
async def test_a_status_that_stays_is_refused(server: ModelServer, pool: Endpoints, status: int) -> None:
    server.fail(status, message="too\nlong " * 100)
    with pytest.raises(ModelRefused, match=f"answers {status}: too long") as caught:
        await embed(pool)
    assert server.count() == 1
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_a_matter_of_settings(server: ModelServer, status: int) -> None:
    pool = Endpoints([server.url], api_key=KEY, timeout_s=5, key_setting="ENGRAMLOG_LLM_API_KEY")
    server.fail(status)
    for call in (embed(pool), ask(pool)):
        with pytest.raises(ConfigurationError, match=f"{status}: set ENGRAMLOG_LLM_API_KEY"):
            await call
    await pool.stop()


@pytest.mark.parametrize("fault", ["broken_json", "empty", "no_data", "nan", "one_less"])
async def test_vectors_that_are_none_are_refused(server: ModelServer, pool: Endpoints, fault: Fault) -> None:
    server.play(fault, times=1)
    with pytest.raises(ModelRefused):
        await embed(pool)
    await embed(pool)


@pytest.mark.parametrize("fault", ["broken_json", "empty", "no_data"])
async def test_a_chat_answer_that_is_none_is_asked_for_once_more(
    server: ModelServer, pool: Endpoints, fault: Fault
) -> None:
    server.chat = {"topic": "cats"}
    server.play(fault, times=1)
    assert await ask(pool) == Topic(topic="cats")
    server.play(fault)
    with pytest.raises(ModelRefused):
        await ask(pool)


async def test_a_closed_connection_is_retried(server: ModelServer, pool: Endpoints) -> None:
    server.play("close", times=2)
    await embed(pool)
    server.play("close")
    with pytest.raises(ModelUnavailable, match="closed the connection"):
        await embed(pool)


async def test_nobody_there_is_unavailable() -> None:
    with model_server() as gone:
        url = gone.url
    pool = Endpoints([url], api_key=None, timeout_s=5, sleep=lambda _: asyncio.sleep(0))
    with pytest.raises(ModelUnavailable, match="cannot be reached"):
        await embed(pool)
    await pool.stop()


async def test_the_other_endpoint_takes_over(server: ModelServer) -> None:
    with model_server() as other:
        pool = Endpoints([server.url, other.url], api_key=None, timeout_s=10)
        server.fail(500)
        for _ in range(6):
            await embed(pool)
        assert (server.count(), other.count()) == (3, 6)
        await pool.stop()


async def test_a_stall_ends_at_the_deadline_and_a_rest_at_once(server: ModelServer) -> None:
    pool = Endpoints([server.url], api_key=None, timeout_s=0.3)
    server.stall_s = 30
    begun = time.monotonic()
    for _ in range(3):
        with pytest.raises(ModelUnavailable, match="no answer"):
            await embed(pool)
    assert 0.8 < time.monotonic() - begun < 10
    asked = server.count()
    with pytest.raises(ModelUnavailable, match="rests"):
        await embed(pool)
    assert server.count() == asked
    await pool.stop()


async def test_retry_after_is_obeyed(server: ModelServer) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    clock = iter(range(0, 10_000, 3)).__next__
    pool = Endpoints([server.url], api_key=None, timeout_s=600, sleep=sleep, clock=clock)
    server.fail(429, times=1, retry_after="100")
    with pytest.raises(ModelUnavailable, match="429"):  # the clock of the test does not move with its pauses
        await embed(pool)
    assert 90 < pauses[0] <= 100
    await pool.stop()


@pytest.mark.parametrize("answer", ['{"topic": "猫"}', '```json\n{"topic": "猫"}\n```', {"topic": "猫"}])
async def test_a_structured_answer_is_read(server: ModelServer, pool: Endpoints, answer: object) -> None:
    server.chat = answer
    assert await ask(pool) == Topic(topic="猫")
    sent = server.calls[0].body
    assert sent["response_format"]["json_schema"]["strict"] is True
    assert [message["content"] for message in sent["messages"]] == ["Name the topic.", "猫 👋"]
    assert (sent["max_tokens"], sent["temperature"]) == (800, 0)


@pytest.mark.parametrize("refused", [{"json_schema"}, {"json_schema", "json_object"}, {"max_tokens", "temperature"}])
async def test_what_a_server_does_not_take_is_left_out_and_remembered(
    server: ModelServer, pool: Endpoints, refused: set[str]
) -> None:
    server.chat = {"topic": "cats"}
    server.refuses |= refused
    await ask(pool)
    asked = server.count()
    await ask(pool)
    assert (asked, server.count()) == (1 + len(refused), 2 + len(refused))


async def test_answers_come_one_after_the_other_or_are_made_of_the_request(
    server: ModelServer, pool: Endpoints
) -> None:
    server.chat = [{"topic": "a"}, "{broken", {"topic": "b"}]
    assert [(await ask(pool)).topic, (await ask(pool)).topic] == ["a", "b"]
    server.chat = lambda body: {"topic": body["messages"][-1]["content"]}
    assert (await ask(pool)).topic == "猫 👋"


async def test_the_key_is_in_no_message_and_no_log(server: ModelServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server.api_key = "another"
    told: list[str] = []
    for status in (401, 400, 500):
        if status != 401:
            server.api_key = None
            server.fail(status, times=3, message=f"your key {KEY} is wrong")
        pool = Endpoints([server.url], api_key=KEY, timeout_s=5, sleep=lambda _: asyncio.sleep(0))
        with pytest.raises(EngramlogError) as caught:
            await embed(pool)
        error: BaseException | None = caught.value
        while error is not None:
            told += [str(error), repr(error)]
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        await pool.stop()
    assert len(told) >= 6
    assert "openai" in caplog.text
    assert not [line for line in (*told, caplog.text) if KEY in line]


def remote(server: ModelServer, **more: object) -> Embedder:
    settings: dict[str, object] = {
        "embedder": "openai",
        "embedding_urls": server.url,
        "embedding_model": "pseudo",
        "embedding_timeout_s": 5.0,
        "embedding_api_key": SecretStr(KEY),
        **more,
    }
    return embedder_of(Settings(**settings))  # type: ignore[arg-type]


async def test_a_remote_embedder_learns_its_dimension(server: ModelServer) -> None:
    server.dimension = 48
    embedder = remote(server)
    await embedder.start()
    assert (embedder.model, embedder.dimension) == ("pseudo", 48)
    asked = remote(server, embedding_dimensions=16)
    await asked.start()
    assert (asked.model, asked.dimension) == ("pseudo@16", 16)
    assert server.calls[-1].body["dimensions"] == 16
    await embedder.stop()
    await asked.stop()


async def test_another_dimension_than_expected_is_refused_with_both_numbers(server: ModelServer) -> None:
    embedder = remote(server)
    await embedder.start()
    server.dimension = 5
    for call in (embedder.passages(["a"]), embedder.query("b")):
        with pytest.raises(ModelRefused, match="5 components, expected are 64"):
            await call
    await embedder.stop()


async def test_a_model_that_cannot_be_asked_for_dimensions_stops_at_start(server: ModelServer) -> None:
    server.refuses.add("dimensions")
    embedder = remote(server, embedding_dimensions=16)
    with pytest.raises(ConfigurationError, match="ENGRAMLOG_EMBEDDING_DIMENSIONS"):
        await embedder.start()
    await embedder.stop()


async def test_without_an_answer_it_starts_only_if_the_dimension_is_known(server: ModelServer) -> None:
    server.fail(503)
    unknown, known = remote(server), remote(server, embedding_dimensions=16)
    with pytest.raises(ModelUnavailable):
        await unknown.start()
    await known.start()
    assert known.dimension == 16
    with pytest.raises(ModelUnavailable):
        await known.passages(["a"])
    await unknown.stop()
    await known.stop()


async def test_many_texts_go_in_several_requests_and_keep_their_order(server: ModelServer) -> None:
    embedder = remote(server)
    await embedder.start()
    texts = [f"text {number}" for number in range(2 * BATCH_TEXTS + 3)]
    rows = await embedder.passages(texts)
    sizes = sorted(len(call.body["input"]) for call in server.calls[1:])
    assert sizes == [3, BATCH_TEXTS, BATCH_TEXTS]
    for place in (0, 300, len(texts) - 1):
        wanted = pseudo_vector(texts[place], 64)
        assert np.allclose(rows[place], wanted / np.linalg.norm(wanted), atol=1e-6)
    await embedder.stop()


async def test_a_zero_vector_is_refused(server: ModelServer) -> None:
    embedder = remote(server)
    await embedder.start()
    server.play("zero")
    with pytest.raises(ModelRefused, match="length zero"):
        await embedder.passages(["a", "b"])
    await embedder.stop()


async def test_a_question_is_sent_once(server: ModelServer) -> None:
    embedder = remote(server)
    await embedder.start()
    await asyncio.gather(*(embedder.query("猫") for _ in range(10)))
    await embedder.query("猫")
    assert server.count("embeddings") == 2
    await embedder.stop()


async def test_a_text_without_content_is_not_sent_empty(server: ModelServer) -> None:
    embedder = remote(server)
    await embedder.start()
    await embedder.passages(["", " \n", "\0", "x"])
    assert server.calls[-1].body["input"] == [".", ".", ".", "x"]
    await embedder.stop()
