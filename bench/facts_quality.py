"""What the rules of ``engine/facts`` find in real talks: recall on labelled statements, and a sample to be checked.

``python -m bench.facts_quality --data DIR [--json OUT] [--texts]``: DIR holds ``locomo_dev.json`` and
``memorybank_zh.json`` (see ``bench/samples/README.md``). The labels (``bench/samples/labels_facts.json``) were chosen
and committed before any rule was written; the rules were written with the half ``dev`` in view. A statement counts as
found when a fact, preference or decision is extracted from its turn. ``bench/samples/facts_checked.json`` holds a
seeded sample of what is extracted and whether it is true of its turn; where the rules have changed since, some of it
may not be extracted any more, which is told.
"""

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from engramlog.engine.facts import Fact, facts
from engramlog.schemas.records import MemoryRecord

SEED = 20261201
SAMPLE = 50
_SAMPLES = Path(__file__).parent / "samples"


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn; ``id`` as in ``bench/samples/README.md``."""

    id: str
    language: Literal["en", "zh"]
    speaker: str
    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True)
class Extracted:
    """A fact and where it comes from."""

    turn: Turn
    fact: Fact


def all_turns(data: Path) -> Iterator[Turn]:
    """Every turn of both data sets."""
    for talk in json.loads((data / "locomo_dev.json").read_text(encoding="utf-8")):
        for session in talk["conversation"].values():
            for said in session if isinstance(session, list) else ():
                yield Turn(f"{talk['sample_id']}/{said['dia_id']}", "en", said["speaker"], "user", said["text"])
    for user, entry in json.loads((data / "memorybank_zh.json").read_text(encoding="utf-8")).items():
        for date, exchanges in entry["history"].items():
            for at, exchange in enumerate(exchanges):
                where = f"{user}/{date}/{at}"
                yield Turn(f"{where}/query", "zh", user, "user", exchange["query"])
                yield Turn(f"{where}/response", "zh", "assistant", "assistant", exchange["response"])


def extracted(turn: Turn) -> list[Fact]:
    record = MemoryRecord(role=turn.role, role_name=turn.speaker if turn.role == "user" else None, content=turn.text)
    return facts(record, turn.text)


def everything(turns: dict[str, Turn]) -> Iterator[Extracted]:
    for turn in turns.values():
        for fact in extracted(turn):
            yield Extracted(turn, fact)


def recall(turns: dict[str, Turn]) -> dict[str, Any]:
    """For each half and language: labelled statements, and how many of them became facts."""
    found: Counter[str] = Counter()
    total: Counter[str] = Counter()
    missed: list[str] = []
    for label in json.loads((_SAMPLES / "labels_facts.json").read_text(encoding="utf-8")):
        turn = turns[label["id"]]
        hit = bool([fact for fact in extracted(turn) if fact.kind != "rule"])
        if not hit:
            missed.append(label["id"])
        for group in ("all", label["half"], turn.language, f"{label['half']} {turn.language}"):
            total[group] += 1
            found[group] += hit
    return {
        "groups": {group: {"found": found[group], "of": total[group]} for group in sorted(total)},
        "missed": missed,
        "recall": found["all"] / total["all"],
    }


def precision(found: list[Extracted]) -> dict[str, Any]:
    """What the hand-checked sample says of what is extracted now."""
    path = _SAMPLES / "facts_checked.json"
    if not path.exists():
        return {}
    now = {(one.turn.id, one.fact.span[0], one.fact.kind) for one in found}
    checked = json.loads(path.read_text(encoding="utf-8"))
    still = [one for one in checked if (one["id"], one["span"][0], one["kind"]) in now]
    good = sum(one["is_fact"] for one in still)
    return {
        "checked": len(checked),
        "still_extracted": len(still),
        "good": good,
        "precision": good / max(1, len(still)),
    }


def sample(found: list[Extracted], size: int) -> list[Extracted]:
    """As many of each language, at random with a seed."""
    chosen: list[Extracted] = []
    for language in ("en", "zh"):
        of_language = [one for one in found if one.turn.language == language]
        chosen += random.Random(SEED).sample(of_language, min(size // 2, len(of_language)))
    return chosen


def shown(one: Extracted, *, texts: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": one.turn.id, "kind": one.fact.kind, "span": list(one.fact.span)}
    return entry | {"says": one.fact.text, "turn": one.turn.text} if texts else entry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory of the data sets")
    parser.add_argument("--json", type=Path, help="write the result there")
    parser.add_argument("--texts", action="store_true", help="with the texts of the sample, for checking")
    options = parser.parse_args()
    turns = {turn.id: turn for turn in all_turns(options.data)}
    began = time.perf_counter()
    found = list(everything(turns))
    seconds = time.perf_counter() - began
    result = {
        "turns": len(turns),
        "facts": len(found),
        "facts_by_kind": dict(Counter(f"{one.turn.language} {one.fact.kind}" for one in found)),
        "turns_per_s": round(len(turns) / seconds),
        **recall(turns),
        "by_hand": precision(found),
        "sample": [shown(one, texts=options.texts) for one in sample(found, SAMPLE)],
    }
    for group, numbers in result["groups"].items():
        print(f"{group:16} {numbers['found']:3} of {numbers['of']:3}")
    print(f"recall           {result['recall']:.2f}  missed: {', '.join(result['missed']) or 'none'}")
    print(f"{len(found)} facts of {len(turns)} turns, {result['turns_per_s']} turns/s: {result['facts_by_kind']}")
    print(f"checked by hand: {result['by_hand']}")
    if options.texts:
        for entry in result["sample"]:
            print(json.dumps(entry, ensure_ascii=False))
    if options.json:
        options.json.write_text(json.dumps(result, ensure_ascii=False, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
