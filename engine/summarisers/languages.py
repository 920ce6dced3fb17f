"""Which languages a talk is in."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from engramlog.engine.derivers.languages import language_of
from engramlog.engine.derivers.texts import LATIN_WORD

_EAST_ASIAN: Final = re.compile(
    "[\u3041-\u309f\u30a1-\u30fa\uff66-\uff9d\uac00-\ud7a3\u1100-\u11ff\u3130-\u318f"
    "\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff]"
)
_EAST_ASIAN_WEIGHT: Final = 3
_LOOKED_AT: Final = 2_000
_SPOKEN: Final = 0.2


def dominant_language(texts: Iterable[str]) -> str | None:
    """The language in which most is said, ISO 639-1; None: there is too little to tell."""
    said = _said(texts)
    return max(said, key=lambda language: said[language]) if said else None


def spoken_languages(texts: Iterable[str]) -> frozenset[str]:
    """The languages in which at least a fifth is said: of people who mix two, both."""
    said = _said(texts)
    whole = sum(said.values())
    return frozenset(language for language, weight in said.items() if weight >= _SPOKEN * whole)


def _said(texts: Iterable[str]) -> Counter[str]:
    """How much is said in each language. A character of East Asia says as much as three letters.

    The scripts of a text count apart: "我喜欢海鲜 and I like tomatoes" is said in two languages.
    """
    said: Counter[str] = Counter()
    for text in texts:
        looked_at = text[:_LOOKED_AT]
        characters = _EAST_ASIAN.findall(looked_at)
        rest = _EAST_ASIAN.sub(" ", looked_at) if characters else looked_at
        letters = sum(map(len, LATIN_WORD.findall(rest)))
        for part, weight in (("".join(characters), _EAST_ASIAN_WEIGHT * len(characters)), (rest, 1 + letters)):
            language = language_of(part) if part else None
            if language is not None:
                said[language] += weight
    return said
