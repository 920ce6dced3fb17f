"""Hits, ranks and costs of an embedder on pairs."""

from collections.abc import Sequence

import numpy as np
import pytest

from engramlog.engine.cli.eval_embedders import settings_for
from engramlog.engine.embedders.evaluating import Pair, evaluate, rank
from engramlog.engine.ports import Matrix
from engramlog.engine.settings import Settings
from engramlog.schemas.errors import ModelRefused


class Letters:
    """Embeds a text as how often it has each letter."""

    model = "letters"
    dimension = 26
    chunk_chars = 40

    def __init__(self) -> None:
        self.stopped = False
        self.embedded: list[str] = []
        self.error: Exception | None = None

    async def start(self) -> None:
        """Nothing to load."""

    async def stop(self) -> None:
        self.stopped = True

    async def passages(self, texts: Sequence[str]) -> Matrix:
        self.embedded = list(texts)
        return np.stack([await self.query(text) for text in texts])

    async def query(self, text: str) -> Matrix:
        if self.error is not None:
            raise self.error
        counts = np.array([text.lower().count(chr(ord("a") + n)) for n in range(26)], dtype=np.float32) + 1e-3
        vector: Matrix = counts / np.linalg.norm(counts)
        return vector


async def test_hits_and_ranks_are_counted_over_the_distinct_texts() -> None:
    pairs = [Pair("aaa", "aaaa"), Pair("bb", "bbb"), Pair("c", "bbb"), Pair("aa", "aaaa")]
    ticks = iter(range(100)).__next__
    found = await evaluate(Letters(), [*pairs, Pair("c", "ccc")], clock=lambda: float(ticks()))
    assert (found.model, found.dimension, found.pairs, found.corpus) == ("letters", 26, 5, 3)
    assert found.hits == {1: 0.8, 5: 1.0, 10: 1.0}
    assert found.mrr == pytest.approx((4 + 1 / 3) / 5, abs=0.04)
    assert (found.load_s, found.embed_s, found.texts_per_s, found.query_ms) == (1, 1, 3, 1000)


async def test_a_long_text_is_found_by_the_best_of_its_chunks() -> None:
    long = "x " * 60 + "zebra zebra zebra zebra zebra zebra"
    embedder = Letters()
    found = await evaluate(embedder, [Pair("zebra", long), Pair("q", "beret bezel brae")])
    assert len(embedder.embedded) > 3
    assert found.hits[1] >= 0.5


async def test_it_is_stopped_when_it_fails() -> None:
    embedder = Letters()
    embedder.error = ModelRefused("no")
    with pytest.raises(ModelRefused):
        await evaluate(embedder, [Pair("a", "b")])
    assert embedder.stopped


@pytest.mark.parametrize(
    ("scores", "place", "wanted"), [([3, 2, 1], 0, 1), ([3, 2, 1], 2, 3), ([1, 1, 1], 0, 3), ([2, 2, 1], 1, 2)]
)
def test_among_equal_scores_the_rank_is_the_last(scores: list[float], place: int, wanted: int) -> None:
    assert rank(np.array(scores, dtype=float), place) == wanted


@pytest.mark.parametrize(
    ("name", "model", "dimensions"),
    [
        ("openai", "mine", 64),
        ("openai:big@16", "big", 16),
        ("openai:org/big", "org/big", None),
        ("sentence-transformers", None, None),
        ("sentence-transformers:BAAI/bge-m3", "BAAI/bge-m3", None),
    ],
)
def test_the_model_of_the_settings_is_that_of_their_own_embedder(
    name: str, model: str | None, dimensions: int | None
) -> None:
    settings = Settings(embedder="openai", embedding_model="mine", embedding_dimensions=64)
    found = settings_for(settings, name)
    assert (found.embedder, found.embedding_model, found.embedding_dimensions) == (
        name.partition(":")[0],
        model,
        dimensions,
    )
