# ruff: noqa: RUF001, PLR2004 - Chinese punctuation, and bounds that patterns name
"""Texts made ready to be looked at: bounded, cleaned, without code and links."""

import re
from dataclasses import dataclass
from typing import Final

LOOKED_AT: Final = 20_000
"""Characters of a text that the rules look at; what comes later changes nothing."""

LATIN_WORD: Final = re.compile(r"[A-Za-z\u00c0-\u024f]+(?:['\u2019-][A-Za-z\u00c0-\u024f]+)*")
HAN: Final = re.compile(r"[\u4e00-\u9fff]")
URL: Final = re.compile(r"\bhttps?://[^\s<>\"'\u3000-\u303f\uff00-\uffef\u4e00-\u9fff]{1,2000}", re.IGNORECASE)

_UNSPEAKABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufeff\ufffe\uffff]")
_FENCE: Final = "```"
_INLINE_CODE: Final = re.compile(r"`[^`\n]{1,200}`")
_CODE_LINE: Final = re.compile(
    r"^(?:\s{4,}\S|\s*(?:def|class|import|from|return|function|const|let|var|public|private|#include|SELECT|>>>|\$)\s"
    r"|\s*[{}()\[\];]+\s*$|.*[;{}]\s*$|\s*File \"|.*\w\(.*\)\s*[:;{]?\s*$)"
)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？!?…])|\n+")


def any_of(*alternatives: str) -> re.Pattern[str]:
    """A pattern that finds any of the alternatives, in either case."""
    return re.compile("|".join(alternatives), re.IGNORECASE)


def word_set(words: str) -> frozenset[str]:
    """The words of a list that is written with spaces between them."""
    return frozenset(words.split())


@dataclass(frozen=True, slots=True)
class Reading:
    """A text as the rules see it.

    Attributes:
        text: The cleaned beginning of it.
        prose: The same without code, links and what is quoted as code.
        sentences: The sentences of the prose, with their final marks.
    """

    text: str
    prose: str
    sentences: tuple[str, ...]


def read(text: str) -> Reading:
    """Make a text ready: its first :data:`LOOKED_AT` characters, without NUL, surrogates and control characters."""
    cleaned = _UNSPEAKABLE.sub(" ", text[:LOOKED_AT])
    prose = URL.sub(" ", _without_code(cleaned))
    sentences = tuple(piece.strip() for piece in _SENTENCE_END.split(prose) if piece.strip())
    return Reading(cleaned, prose, sentences)


def _without_code(text: str) -> str:
    if _FENCE in text:
        text = " ".join(text.split(_FENCE)[::2])
    text = _INLINE_CODE.sub(" ", text)
    lines = text.split("\n")
    if len(lines) == 1 and not _looks_like_code(text):
        return text
    kept = [line for line in lines if not _looks_like_code(line)]
    return "\n".join(kept)


def _looks_like_code(line: str) -> bool:
    """Whether a line is code: it has the marks of code and hardly any sentence."""
    line = line[:300]
    if not _CODE_LINE.match(line):
        return False
    signs = sum(line.count(sign) for sign in "(){}[];=<>_|&")
    return signs >= 2 and len(HAN.findall(line)) < 4 and not line.rstrip().endswith((".", "!", "?"))
