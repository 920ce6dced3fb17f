"""The summariser for those who want none: the beginning of the talk, marked as such."""

import unicodedata
from collections.abc import Sequence
from typing import Final

from engramlog.engine.summarisers.languages import dominant_language
from engramlog.engine.summarisers.passages import Passage, Summary, SummaryRefused

MAX_CHARS: Final = 500
_JOINER = "\u200d"
_UNIMPORTANT: Final = 0.5


class Archive:
    """The first :data:`MAX_CHARS` characters of the passages; never cut within what people see as one character."""

    model = "archive"
    prompt = "archive.v1"

    async def summarise(self, passages: Sequence[Passage], *, max_tokens: int, previous: str | None) -> Summary:  # noqa: ARG002 - a fixed length
        """See :class:`~engramlog.engine.summarisers.passages.Summariser`; ``max_tokens`` is not looked at.

        Raises:
            SummaryRefused: The passages hold no text (``empty``).
        """
        lines = [previous] if previous else []
        text = cut("\n".join([*lines, *(passage.told() for passage in passages if passage.text.strip())]), MAX_CHARS)
        if not text.strip():
            raise SummaryRefused("empty", "there is no text to be kept")
        return Summary(
            text=text,
            facts=(),
            preferences=(),
            decisions=(),
            open_tasks=(),
            language=dominant_language(passage.text for passage in passages),
            topic=None,
            importance=_UNIMPORTANT,
            model=self.model,
            prompt=self.prompt,
            raw=True,
        )


def cut(text: str, most: int) -> str:
    """The first characters of a text, at most so many: no accent, skin tone, joined emoji or flag is torn apart."""
    end = min(most, len(text))
    while 0 < end < len(text) and _belong_together(text, end):
        end -= 1
    return text[: end or min(most, len(text))].rstrip()


def _belong_together(text: str, at: int) -> bool:
    """Whether the characters before and after a place are one to the reader."""
    before, after = text[at - 1], text[at]
    if _JOINER in (before, after) or before + after == "\r\n":
        return True
    if unicodedata.category(after) in {"Mn", "Me", "Mc"} or "\U0001f3fb" <= after <= "\U0001f3ff":
        return True
    if "\U000e0020" <= after <= "\U000e007f":
        return True
    return _is_flag(after) and _flags_before(text, at) % 2 == 1


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flags_before(text: str, at: int) -> int:
    count = 0
    while count < at and _is_flag(text[at - 1 - count]):
        count += 1
    return count
