"""How well an embedder finds what questions are about, on somebody's own pairs."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engramlog.engine.embedders.chunking import chunks
from engramlog.engine.ports import Embedder

DEPTHS = (1, 5, 10)
_OVERLAP_SHARE = 8
_MOST_CHUNKS = 64


@dataclass(frozen=True, slots=True)
class Pair:
    """A question, and the text of the record that answers it."""

    query: str
    expected: str


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What was measured.

    Attributes:
        model: The model's identity.
        dimension: Components of its vectors.
        pairs: How many questions were asked.
        corpus: How many texts they were asked of: every distinct expected one.
        hits: For each depth of 1, 5 and 10 the share of questions whose text is among the first so many, 0 to 1.
        mrr: Mean reciprocal rank, 0 to 1.
        load_s: Seconds until it was ready.
        embed_s: Seconds to embed the corpus.
        texts_per_s: Texts of the corpus a second.
        query_ms: Median time to embed one question, one after the other, in milliseconds.
    """

    model: str
    dimension: int
    pairs: int
    corpus: int
    hits: dict[int, float]
    mrr: float
    load_s: float
    embed_s: float
    texts_per_s: float
    query_ms: float


async def evaluate(
    embedder: Embedder, pairs: Sequence[Pair], *, clock: Callable[[], float] = time.perf_counter
) -> Evaluation:
    """Start an embedder, ask it all questions, and stop it.

    Args:
        embedder: One that does not cache, or the times of repeated questions mean nothing.
        pairs: At least one.
        clock: Seconds.

    Raises:
        ModelUnavailable: Its endpoint does not answer.
        ModelRefused: It refuses one of the texts.
        ConfigurationError: It cannot work as configured.
    """
    corpus = list(dict.fromkeys(pair.expected for pair in pairs))
    places = {text: place for place, text in enumerate(corpus)}
    try:
        begun = clock()
        await embedder.start()
        ready = clock()
        owners, pieces = _pieces(corpus, embedder.chunk_chars)
        vectors = await embedder.passages(pieces)
        done = clock()
        found, times = [], []
        for pair in pairs:
            asked = clock()
            question = await embedder.query(pair.query)
            times.append(clock() - asked)
            found.append(rank(_best(vectors @ question, owners, len(corpus)), places[pair.expected]))
        embed_s = max(done - ready, 1e-9)
        return Evaluation(
            model=embedder.model,
            dimension=embedder.dimension,
            pairs=len(pairs),
            corpus=len(corpus),
            hits={depth: sum(one <= depth for one in found) / len(found) for depth in DEPTHS},
            mrr=sum(1 / one for one in found) / len(found),
            load_s=ready - begun,
            embed_s=embed_s,
            texts_per_s=len(corpus) / embed_s,
            query_ms=statistics.median(times) * 1000,
        )
    finally:
        await embedder.stop()


def rank(scores: NDArray[np.floating], place: int) -> int:
    """The rank of one score, from 1; among equal ones it is the last."""
    return int((scores >= scores[place]).sum())


def _pieces(corpus: Sequence[str], chunk_chars: int) -> tuple[NDArray[np.int64], list[str]]:
    """The chunks of all texts, and which text each belongs to; a text without content is one chunk."""
    owners, pieces = [], []
    for place, text in enumerate(corpus):
        spans = chunks(text, chunk_chars=chunk_chars, overlap_chars=chunk_chars // _OVERLAP_SHARE, most=_MOST_CHUNKS)
        for start, end in spans or [(0, 0)]:
            owners.append(place)
            pieces.append(text[start:end])
    return np.array(owners, dtype=np.int64), pieces


def _best(scores: NDArray[np.floating], owners: NDArray[np.int64], count: int) -> NDArray[np.floating]:
    """The best score of each text's chunks."""
    best = np.full(count, -np.inf)
    np.maximum.at(best, owners, scores)
    return best
