"""What the rules find."""

from dataclasses import dataclass
from typing import Literal

FactKind = Literal["fact", "preference", "decision", "rule"]


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that a speaker states of themselves, wants, decided, or asks to be kept to.

    Attributes:
        kind: What it is.
        text: One short sentence in the language of the text. It names the speaker: the record's ``role_name``, else
            ``User`` or ``用户`` (an assistant's: ``Assistant`` or ``助手``).
        confidence: 0 to 1: 0.7 to 0.9 for what users say of themselves, at most 0.4 for what an assistant claims.
        span: From which character of the text to which (exclusive) it is stated.
    """

    kind: FactKind
    text: str
    confidence: float
    span: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Found:
    """What a rule of one language finds in a sentence.

    Attributes:
        kind: What it is.
        text: The finished sentence.
        confidence: For a user's own statement.
        start: First character in the sentence.
        end: One after the last.
    """

    kind: FactKind
    text: str
    confidence: float
    start: int
    end: int
