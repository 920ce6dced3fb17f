"""Measures of a ranking, as fractions."""

from collections.abc import Sequence
from math import log2
from statistics import fmean

CUTS = (5, 10, 20)
DEEPEST = 20


def measures(ranked: Sequence[str], expected: Sequence[str]) -> dict[str, float]:
    """recall@5, @10, @20 (of the expected turns), nDCG@10 with binary relevance, reciprocal rank, and hit@1."""
    wanted = set(expected)
    places = [place for place, record_id in enumerate(ranked[:DEEPEST]) if record_id in wanted]
    found = {f"recall@{cut}": sum(place < cut for place in places) / len(wanted) for cut in CUTS}
    gain = sum(1 / log2(place + 2) for place in places if place < 10)
    ideal = sum(1 / log2(place + 2) for place in range(min(10, len(wanted))))
    return {
        **found,
        "ndcg@10": gain / ideal,
        "mrr": 1 / (places[0] + 1) if places else 0.0,
        "hit@1": float(bool(places) and places[0] == 0),
    }


def mean(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each measure."""
    return {name: round(fmean(row[name] for row in rows), 4) for name in rows[0]}
