# ruff: noqa: RUF001 - Chinese punctuation is meant
"""How much a text is worth keeping: a weighted sum of what it does, squashed to 0..1.

Each feature has a name and a value from 0 to 1; the weights stand in :data:`WEIGHTS`. They were fitted by logistic
regression on the ``dev`` half of ``bench/samples`` and 233 more turns labelled like it, and raised by hand where these
have few examples (instructions, errors, decisions, commitments).
"""

import math
import re
from collections.abc import Sequence
from itertools import islice
from typing import Final

from engramlog.engine.derivers import doing_chinese, doing_english
from engramlog.engine.derivers.texts import HAN, LATIN_WORD, Reading
from engramlog.schemas.derived import Relation
from engramlog.schemas.records import MemoryRecord

_SPEAKS: Final = re.compile(r"(?<![\w'\u2019])(?:I|I'm|I've|I'd|we|we're|me|us)(?![\w])|我")
_NAME: Final = re.compile(r"(?<=[a-z,] )[A-Z][\w'\u2019]+|《|\"[A-Z]|\u201c")
_QUESTION: Final = ("?", "？", "吗", "呢")
_CAPS: Final = {"you": 4} | dict.fromkeys(
    ("praise", "past_event", "mine", "when", "preference", "people", "work", "number", "present_life"), 2
)
_KEPT_KINDS: Final = frozenset({"fact", "preference", "decision", "rule"})
_KEPT_AT_LEAST: Final = 0.7
_ALSO_IN_CODE: Final = ("error", "link")
_SHORTEST: Final = 0.5
_LATIN: Final = re.compile(r"[A-Za-z0-9]")
_KNOWN: Final = ("en", "zh", None)

WEIGHTS: Final[dict[str, float]] = {
    "greeting": 0.12,
    "farewell": -1.31,
    "thanks": -0.59,
    "praise": -1.07,
    "general_truth": -0.63,
    "polite_promise": -0.85,
    "assistant_talk": -0.91,
    "reason": 0.30,
    "past_event": 2.75,
    "present_life": 1.68,
    "mine": 1.16,
    "people": 0.88,
    "preference": 1.17,
    "plan": 0.88,
    "decision": 1.80,
    "when": 2.00,
    "number": 0.72,
    "personal_fact": 1.66,
    "health": 1.14,
    "feeling": 0.69,
    "work": 0.81,
    "instruction": 1.80,
    "correction": 1.48,
    "error": 2.00,
    "commitment": 1.50,
    "you": -1.40,
    "link": 0.50,
    "asks": -0.65,
    "length": 1.65,
    "speaks": 1.66,
    "names": 0.54,
    "states": 1.43,
    "assistant": -2.36,
    "tool": -0.30,
    "rules": 1.00,
    "empty": -3.00,
}
BIAS: Final = -2.10
"""Of the features of ``doing_english``, ``doing_chinese`` and :func:`features_of`."""


def features_of(record: MemoryRecord, reading: Reading, relations: Sequence[Relation]) -> dict[str, float]:
    """What a text does, each as a number from 0 to 1."""
    prose = reading.prose.replace("\u2019", "'")
    found = dict.fromkeys(doing_english.DOING, 0.0)
    for speaks, doing in ((_LATIN, doing_english.DOING), (HAN, doing_chinese.DOING)):
        if speaks.search(reading.text):
            for name, pattern in doing.items():
                text = reading.text if name in _ALSO_IN_CODE else prose
                found[name] = min(1.0, found[name] + _often(pattern, text, _CAPS.get(name, 1)))
    if record.role == "assistant":  # what an assistant tells the user to do is advice
        found["instruction"] = 0.0
    length = len(LATIN_WORD.findall(prose)) + 0.6 * len(HAN.findall(prose))
    asked = sum(len(sentence) for sentence in reading.sentences if sentence.rstrip("～~ ").endswith(_QUESTION))
    return found | {
        "asks": asked / max(1, sum(map(len, reading.sentences))),
        "length": min(1.0, math.log1p(length) / math.log1p(60)),
        "speaks": min(1.0, len(_SPEAKS.findall(prose)) / 4),
        "names": min(1.0, len(_NAME.findall(prose)) / 3),
        "states": float(bool(relations)),
        "assistant": float(record.role == "assistant"),
        "tool": float(record.role in ("tool", "function")),
        "rules": float(record.role in ("system", "developer")),
        "empty": float(length < _SHORTEST),
    }


def importance_of(record: MemoryRecord, reading: Reading, relations: Sequence[Relation], language: str | None) -> float:
    """0 to 1. Facts, preferences, decisions and rules, named as such by the publisher, get 0.7 at least.

    The patterns know English and Chinese; in another language the number comes half-way to 0.5, which says nothing.
    """
    total = BIAS + sum(WEIGHTS[name] * value for name, value in features_of(record, reading, relations).items())
    importance = 1.0 / (1.0 + math.exp(-total))
    if language not in _KNOWN:
        importance = 0.25 + 0.5 * importance
    return round(kept(record, importance), 4)


def kept(record: MemoryRecord, importance: float) -> float:
    """0.7 at least for what the publisher names a fact, preference, decision or rule."""
    return max(importance, _KEPT_AT_LEAST) if record.kind in _KEPT_KINDS else importance


def _often(pattern: re.Pattern[str], text: str, cap: int) -> float:
    """How often a pattern is found, up to ``cap``, as a share of it."""
    return sum(1 for _ in islice(pattern.finditer(text), cap)) / cap
