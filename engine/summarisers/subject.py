"""What a talk is about, in a few words of its own."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from engramlog.engine.derivers import chinese, english
from engramlog.engine.derivers.languages import COMMON
from engramlog.engine.derivers.phrases import Phrase
from engramlog.engine.summarisers.units import Block
from engramlog.schemas.errors import ConfigurationError

MAX_CHARS: Final = 80
_LOOKED_AT: Final = 6_000
_BLOCK_CHARS: Final = 400


def subject_of(blocks: Sequence[Block], language: str | None) -> str | None:
    """The phrase that weighs most over all passages, each as much as it is worth; None: there is none.

    Chinese needs jieba; without it there is no subject.
    """
    weights: defaultdict[tuple[str, ...], float] = defaultdict(float)
    spelt: dict[tuple[str, ...], str] = {}
    left = _LOOKED_AT
    for block in sorted(blocks, key=lambda block: -block.value):
        if left <= 0:
            break
        text = block.text[: min(left, _BLOCK_CHARS)]
        left -= len(text)
        for phrase in _phrases(text, language, frozenset(one.speaker.lower() for one in blocks)):
            weights[phrase.stems] += phrase.weight * (0.2 + block.value)
            spelt.setdefault(phrase.stems, phrase.text)
    if not weights:
        return None
    best = max(weights, key=lambda stems: (weights[stems], stems))
    return spelt[best][:MAX_CHARS].strip() or None


def _phrases(text: str, language: str | None, names: frozenset[str]) -> list[Phrase]:
    if language == "zh":
        try:
            return chinese.phrases(chinese.words_of(text))
        except ConfigurationError:
            return []
    if language is None or language in COMMON:
        return english.phrases(text, names | COMMON.get(language or "", frozenset()))
    return []
