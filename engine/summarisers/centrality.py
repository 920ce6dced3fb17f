"""How central sentences are to a text, by their vectors. Pure."""

from typing import Final

import numpy as np

from engramlog.engine.ports import Matrix

MAX_SENTENCES: Final = 200
_DAMPING: Final = 0.85
_ROUNDS: Final = 30


def text_rank(vectors: Matrix) -> list[float]:
    """TextRank (Mihalcea and Tarau, 2004) over cosines: one number a sentence, 1 on average.

    Args:
        vectors: Rows of unit length, one a sentence.
    """
    n = len(vectors)
    likeness = np.clip(vectors.astype(np.float64) @ vectors.T.astype(np.float64), 0.0, 1.0)
    np.fill_diagonal(likeness, 0.0)
    likeness -= likeness.min(initial=0.0)
    out = likeness.sum(axis=1, keepdims=True)
    moves = np.where(out > 0, likeness / np.maximum(out, 1e-12), 1.0 / n)
    rank = np.full(n, 1.0 / n)
    for _ in range(_ROUNDS):
        rank = (1.0 - _DAMPING) / n + _DAMPING * (rank @ moves)
    return [float(value) for value in rank * n]
