"""Loads the hand-labelled samples: the labels stand here, the texts stay in the data sets and are looked up by id."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

Language = Literal["en", "zh"]
Role = Literal["user", "assistant"]

HALVES = ("dev", "held_out")
_HERE = Path(__file__).parent
_LOCOMO = "locomo"
_MEMORYBANK = "memorybank"
_FILES = {_LOCOMO: "locomo_dev.json", _MEMORYBANK: "memorybank_zh.json"}
_LANGUAGES: dict[str, Language] = {_LOCOMO: "en", _MEMORYBANK: "zh"}


class LabelError(ValueError):
    """A label that does not fit the data: an unknown set, half or id, or a data file that is not there."""


@dataclass(frozen=True, slots=True)
class LabelledText:
    """One turn and whether it is worth keeping."""

    id: str
    text: str
    speaker: str
    role: Role
    language: Language
    important: bool
    half: str


@dataclass(frozen=True, slots=True)
class LabelledTurn:
    """One turn of a stretch and what it is about; `segment` counts from 0 (a subject may come back later)."""

    id: str
    speaker: str
    role: Role
    text: str
    subject: str
    segment: int


@dataclass(frozen=True, slots=True)
class LabelledStretch:
    """Consecutive turns of one session, cut into segments by subject."""

    session: str
    language: Language
    half: str
    turns: list[LabelledTurn]

    @property
    def starts(self) -> list[int]:
        """The positions at which a new segment starts, the first turn left out."""
        pairs = zip(self.turns, self.turns[1:], strict=False)
        return [at for at, (before, after) in enumerate(pairs, start=1) if before.segment != after.segment]


@dataclass(frozen=True, slots=True)
class _Turn:
    speaker: str
    role: Role
    text: str


def load_importance(data_dir: Path, half: str | None = None) -> list[LabelledText]:
    """The turns labelled as important or not, of one half or of both."""
    _check_half(half)
    found: list[LabelledText] = []
    for entry in _labels("labels_importance.json"):
        if half is None or entry["half"] == half:
            turn = _turn(data_dir, entry["set"], entry["id"])
            found.append(
                LabelledText(
                    id=entry["id"],
                    text=turn.text,
                    speaker=turn.speaker,
                    role=turn.role,
                    language=_LANGUAGES[entry["set"]],
                    important=entry["important"],
                    half=entry["half"],
                )
            )
    return found


def load_topics(data_dir: Path, half: str | None = None) -> list[LabelledStretch]:
    """The stretches cut by subject, of one half or of both."""
    _check_half(half)
    found: list[LabelledStretch] = []
    for entry in _labels("labels_topics.json"):
        if half is None or entry["half"] == half:
            turns: list[LabelledTurn] = []
            for number, segment in enumerate(entry["segments"]):
                for turn_id in segment["turns"]:
                    turn = _turn(data_dir, entry["set"], turn_id)
                    turns.append(
                        LabelledTurn(
                            id=turn_id,
                            speaker=turn.speaker,
                            role=turn.role,
                            text=turn.text,
                            subject=segment["subject"],
                            segment=number,
                        )
                    )
            found.append(
                LabelledStretch(
                    session=entry["session"], language=_LANGUAGES[entry["set"]], half=entry["half"], turns=turns
                )
            )
    return found


def _check_half(half: str | None) -> None:
    if half is not None and half not in HALVES:
        raise LabelError(f"no half {half!r}: it is one of {', '.join(HALVES)}")


def _labels(name: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((_HERE / name).read_text(encoding="utf-8"))
    return entries


def _turn(data_dir: Path, set_name: str, turn_id: str) -> _Turn:
    if set_name not in _FILES:
        raise LabelError(f"no data set {set_name!r}: it is one of {', '.join(_FILES)}")
    path = data_dir / _FILES[set_name]
    turn = _turns(set_name, path).get(turn_id)
    if turn is None:
        raise LabelError(f"{turn_id!r} of {set_name} is not in {path}: is it another version of the data?")
    return turn


@lru_cache(maxsize=8)
def _turns(set_name: str, path: Path) -> dict[str, _Turn]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as missing:
        raise LabelError(f"no data file {path}: the texts are not part of the project, see README.md here") from missing
    return _locomo_turns(data) if set_name == _LOCOMO else _memorybank_turns(data)


def _locomo_turns(data: list[dict[str, Any]]) -> dict[str, _Turn]:
    """By `<sample_id>/<dia_id>`. Both speakers are people, so both are users."""
    return {
        f"{sample['sample_id']}/{turn['dia_id']}": _Turn(speaker=turn["speaker"], role="user", text=turn["text"])
        for sample in data
        for session in sample["conversation"].values()
        if isinstance(session, list)
        for turn in session
    }


def _memorybank_turns(data: dict[str, Any]) -> dict[str, _Turn]:
    """By `<user>/<date>/<exchange, from 0>/<query|response>`: what the user says and what the assistant answers."""
    turns: dict[str, _Turn] = {}
    for user, entry in data.items():
        for date, exchanges in entry["history"].items():
            for at, exchange in enumerate(exchanges):
                turns[f"{user}/{date}/{at}/query"] = _Turn(speaker=user, role="user", text=exchange["query"])
                turns[f"{user}/{date}/{at}/response"] = _Turn(
                    speaker="assistant", role="assistant", text=exchange["response"]
                )
    return turns
