"""How well contradictions are found: ``python -m bench.conflict_quality [--json OUT] [--show dev|held_out]``.

The rules were written with the first half of the pairs (``dev``) in view; the second (``held_out``) was only measured.
"""

import argparse
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from engramlog.engine.conflicts import conflicts
from engramlog.schemas.records import MemoryRecord
from engramlog.schemas.stored import StoredRecord

PAIRS = Path(__file__).with_name("samples") / "conflicts.jsonl"
HALVES = ("dev", "held_out")


def load() -> dict[str, list[dict[str, Any]]]:
    """The labelled pairs (``a``, ``b``, ``conflict``, ``lang``), by half."""
    pairs = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    return {"dev": pairs[: len(pairs) // 2], "held_out": pairs[len(pairs) // 2 :]}


def _stored(text: str, number: int) -> StoredRecord:
    at = datetime(2026, 1, 1, 12, number % 60, tzinfo=UTC)
    return StoredRecord(record=MemoryRecord(role="user", content=text, timestamp=at), offset=number, recorded=at)


def found(pair: dict[str, Any]) -> bool:
    """Whether the rules call a pair a contradiction."""
    return bool(conflicts([_stored(pair["a"], 0), _stored(pair["b"], 1)]))


def measured(pairs: list[dict[str, Any]]) -> dict[str, float]:
    """Precision and recall over pairs, and what they are made of."""
    answers = [(found(pair), bool(pair["conflict"])) for pair in pairs]
    right = sum(said and true for said, true in answers)
    said, true = sum(said for said, _ in answers), sum(true for _, true in answers)
    return {
        "pairs": len(pairs),
        "conflicts": true,
        "found": right,
        "wrong": said - right,
        "precision": right / said if said else 1.0,
        "recall": right / true if true else 1.0,
    }


def _all_together(pairs: list[dict[str, Any]]) -> float:
    """Milliseconds of CPU for 40 records at once that were not seen before."""
    from engramlog.engine.conflicts.reading import _claims

    records = [_stored(pair[side], n) for n, pair in enumerate(pairs[:20]) for side in ("a", "b")]
    best = float("inf")
    for _ in range(5):
        _claims.cache_clear()
        begin = time.process_time()
        conflicts(records)
        best = min(best, time.process_time() - begin)
    return best * 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--show", choices=HALVES, help="list the pairs of a half that are judged wrongly")
    options = parser.parse_args()
    halves = load()
    figures: dict[str, Any] = {half: measured(halves[half]) for half in HALVES}
    figures["forty_records_ms"] = _all_together(halves["dev"])
    table = Table("half", "pairs", "conflicts", "found", "wrong", "precision", "recall")
    for half in HALVES:
        row = figures[half]
        counts = [str(row[name]) for name in ("pairs", "conflicts", "found", "wrong")]
        table.add_row(half, *counts, f"{row['precision']:.2f}", f"{row['recall']:.2f}")
    Console().print(table)
    print(f"40 records at once, texts not seen before: {figures['forty_records_ms']:.1f} ms of CPU")
    for pair in halves[options.show] if options.show else []:
        if found(pair) != pair["conflict"]:
            print("missed:" if pair["conflict"] else "wrong:", pair["a"], "|", pair["b"])
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
