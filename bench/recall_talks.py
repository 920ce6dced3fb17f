"""Talks with questions: LoCoMo's file, or facts and questions as JSON lines."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from engramlog.engine.client import MemoryRecord

_ADVERSARIAL = 5
_TURN_ID = re.compile(r"D\d+:\d+")


@dataclass(frozen=True)
class Asked:
    """A question and the turns that answer it."""

    text: str
    expected: tuple[str, ...]
    category: str


@dataclass(frozen=True)
class Talk:
    """One agent's memory: turns by session, in order, and what is asked of it."""

    name: str
    sessions: tuple[tuple[str, tuple[MemoryRecord, ...]], ...]
    questions: tuple[Asked, ...]

    def records(self) -> list[tuple[str, MemoryRecord]]:
        """All turns with their sessions."""
        return [(session, record) for session, records in self.sessions for record in records]


def load(path: Path, questions: Path | None) -> list[Talk]:
    """The talks of a file: LoCoMo (``.json``), or facts (``.jsonl``) with their questions beside them."""
    if path.suffix == ".json":
        return [_locomo(item) for item in json.loads(path.read_text(encoding="utf-8"))]
    beside = questions or path.with_name(path.name.replace("_facts", "_questions"))
    return [_facts(path, beside)]


def _locomo(item: dict[str, Any]) -> Talk:
    talk = item["conversation"]
    numbers = sorted(int(found[1]) for key in talk if (found := re.fullmatch(r"session_(\d+)", key)))
    sessions = tuple((f"session_{n}", tuple(_turns(talk, n))) for n in numbers)
    there = {record.record_id for _, records in sessions for record in records}
    return Talk(item["sample_id"], sessions, tuple(_questions(item["qa"], there)))


def _turns(talk: dict[str, Any], number: int) -> Iterator[MemoryRecord]:
    begin = datetime.strptime(talk[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    for i, turn in enumerate(talk[f"session_{number}"]):
        caption = turn.get("blip_caption")
        yield MemoryRecord(
            record_id=turn["dia_id"],
            role="user",
            role_name=turn["speaker"],
            content=turn["text"] + (f" [image: {caption}]" if caption else ""),
            timestamp=begin + timedelta(minutes=i),
        )


def _questions(asked: list[dict[str, Any]], there: set[str]) -> Iterator[Asked]:
    for one in asked:
        named = dict.fromkeys(turn for text in one.get("evidence", []) for turn in _TURN_ID.findall(text))
        expected = tuple(turn for turn in named if turn in there)
        if one["category"] != _ADVERSARIAL and expected:
            yield Asked(str(one["question"]), expected, str(one["category"]))


def _facts(path: Path, questions: Path) -> Talk:
    sessions: dict[str, list[MemoryRecord]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        fact = json.loads(line)
        record = MemoryRecord(
            record_id=fact["id"],
            role=fact["role"],
            content=fact["text"],
            timestamp=datetime.fromisoformat(fact["timestamp"]),
        )
        sessions.setdefault(fact["session"], []).append(record)
    asked = [json.loads(line) for line in questions.read_text(encoding="utf-8").splitlines()]
    return Talk(
        path.stem,
        tuple((session, tuple(records)) for session, records in sessions.items()),
        tuple(Asked(one["query"], tuple(one["expected"]), "all") for one in asked),
    )
