"""Maximal marginal relevance: the best memories that do not repeat each other. Pure."""

from collections.abc import Sequence

import numpy as np

from engramlog.engine.ports import Matrix
from engramlog.engine.scoring import Common


def diverse(scores: Sequence[float], likeness: Sequence[Sequence[float]], *, diversity: float, limit: int) -> list[int]:
    """Choose one after the other the memory with the most ``(1 - diversity)·score - diversity·likeness to the chosen``.

    After Carbonell and Goldstein (1998), ``lambda = 1 - diversity``. Scores are divided by the best one, so that they
    compare with likeness; of equals the earlier is chosen. The first choice is the best memory.

    Args:
        scores: Scores, best first.
        likeness: How much each memory is like each other, 0 to 1, ``(n, n)``.
        diversity: 0 to 1.
        limit: At most so many.

    Returns:
        Places in ``scores``, each once, in the order of choice.
    """
    if not scores:
        return []
    best = max(scores[0], 1e-9)
    left, chosen = list(range(len(scores))), list[int]()
    nearest = [0.0] * len(scores)
    while left and len(chosen) < limit:
        gain = {i: (1.0 - diversity) * scores[i] / best - diversity * nearest[i] for i in left}
        place = max(left, key=lambda i: (gain[i], -i)) if chosen else left[0]
        left.remove(place)
        chosen.append(place)
        for i in left:
            nearest[i] = max(nearest[i], likeness[place][i])
    return chosen


def likenesses(
    vectors: Sequence[Matrix | None], terms: Sequence[frozenset[int]], *, shared: Common | None
) -> list[list[float]]:
    """How much each memory is like each other: by their nearest chunks, else by the share of terms that both hold.

    Cosines are compared without what all candidates have in common; opposite ones count as 0.
    """
    rows = [None if v is None else _without(v, shared) for v in vectors]
    found = [[1.0] * len(vectors) for _ in vectors]
    for i, one in enumerate(rows):
        for j in range(i):
            other = rows[j]
            if one is not None and other is not None:
                alike = min(1.0, max(0.0, float((one @ other.T).max())))
            else:
                alike = _overlap(terms[i], terms[j])
            found[i][j] = found[j][i] = alike
    return found


def _without(rows: Matrix, shared: Common | None) -> Matrix:
    rest = rows if shared is None else rows - shared.mean
    unit: Matrix = rest / np.maximum(np.linalg.norm(rest, axis=1, keepdims=True), 1e-9)
    return unit


def _overlap(one: frozenset[int], other: frozenset[int]) -> float:
    either = len(one | other)
    return len(one & other) / either if either else 0.0
