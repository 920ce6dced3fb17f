"""Where sentences begin and end, in English and Chinese. Pure, and linear in the length of the text."""
# ruff: noqa: RUF001 - Chinese punctuation is meant

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_END: Final = re.compile(
    r"[.!?\u2026]+[\"'\u201d\u2019)\]]*(?=\s|$)"
    r"|[。！？；!?\u2026]+[\u201d\u2019」』）)\"]*"
    r"|\n+"
)
_ABBREVIATED: Final = re.compile(
    r"(?:\b(?:mr|mrs|ms|dr|prof|st|vs|sr|jr|no|approx|dept|fig|e\.g|i\.e|a\.m|p\.m|u\.s|u\.k)|(?<![\w'])[B-HJ-Z]|(?:^|\n)\s*\d{1,3})$",
    re.IGNORECASE,
)
_ABBREVIATION_CHARS: Final = 12


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence and where it stands: ``text == whole[start : start + len(text)]``, without blanks at its ends."""

    text: str
    start: int

    @property
    def end(self) -> int:
        """One after its last character."""
        return self.start + len(self.text)


def sentences_of(text: str) -> Iterator[Sentence]:
    """The sentences of a text, in order; none is empty. A line break ends one, a dot of an abbreviation does not."""
    start = 0
    for mark in _END.finditer(text):
        before = text[max(start, mark.start() - _ABBREVIATION_CHARS) : mark.start()]
        if mark[0] == "." and _ABBREVIATED.search(before):
            continue
        yield from _trimmed(text, start, mark.end())
        start = mark.end()
    yield from _trimmed(text, start, len(text))


def _trimmed(text: str, start: int, end: int) -> Iterator[Sentence]:
    piece = text[start:end]
    bare = piece.strip()
    if bare:
        yield Sentence(bare, start + len(piece) - len(piece.lstrip()))
