"""What of the evidence stands in a context, read from its messages alone: from what a model would see."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engramlog.engine.client import MemoryRecord
from engramlog.engine.terms import terms
from engramlog.engine.tokens import END_OF_LIST, count_message
from engramlog.schemas.formats.openai import to_openai

ENOUGH = 0.7
"""Share of a turn's content words that one passage must hold for the turn to count as present."""

Message = dict[str, Any]
_BLOCK = re.compile(r"<(core_memories|summaries|memories)>\n(.*)\n</\1>", re.DOTALL)
_ITEM = re.compile(r"\n(?=- |\d+\. )")


@dataclass(frozen=True)
class Evidence:
    """A turn that answers a question.

    Attributes:
        text: What it says.
        words: Its content words, each once.
    """

    text: str
    words: frozenset[str]

    @classmethod
    def of(cls, record: MemoryRecord) -> "Evidence":
        """The evidence that a turn is."""
        return cls(record.content.strip(), frozenset(terms(record.content)))


def passages(messages: Sequence[Message]) -> Iterator[str]:
    """The single passages of a context: each item of a block, and each other message as a whole.

    In a block an item begins on a line of its own; line breaks inside it are indented.
    """
    for message in messages:
        content = message.get("content")
        if not isinstance(content, str):
            continue
        block = _BLOCK.search(content)
        yield from _ITEM.split(block[2]) if block else (content,)


class Shown:
    """A context, ready to be searched for evidence.

    Args:
        messages: OpenAI messages, without the question itself.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._texts = list(passages(messages))
        self._words = [frozenset(terms(text)) for text in self._texts]

    def verbatim(self, evidence: Evidence) -> bool:
        """Whether the turn itself is there."""
        said = " ".join(evidence.text.split())
        return any(said in " ".join(text.split()) for text in self._texts)

    def holds(self, evidence: Evidence) -> bool:
        """Whether the turn itself is there, or one passage has :data:`ENOUGH` of its content words."""
        if self.verbatim(evidence):
            return True
        least = ENOUGH * len(evidence.words)
        return bool(evidence.words) and any(len(evidence.words & words) >= least for words in self._words)


@dataclass(frozen=True)
class Coverage:
    """How much of a question's evidence is present.

    Attributes:
        held: Share of its turns that are present.
        verbatim: Share of them that are there word by word.
    """

    held: float
    verbatim: float

    @classmethod
    def of(cls, messages: Sequence[Message], evidence: Sequence[Evidence]) -> "Coverage":
        """The coverage of a question, whose own message is not among these."""
        shown = Shown(messages)
        return cls(
            sum(map(shown.holds, evidence)) / len(evidence),
            sum(map(shown.verbatim, evidence)) / len(evidence),
        )


def plain_window(records: Sequence[MemoryRecord], question: MemoryRecord, *, budget_tokens: int) -> list[Message]:
    """The newest turns of all sessions that fit into the budget beside the question: the last-N window at its best."""
    room = budget_tokens - END_OF_LIST - count_message(to_openai(question))
    kept: list[Message] = []
    for record in reversed(records):
        message = to_openai(record)
        room -= count_message(message)
        if room < 0:
            break
        kept.append(message)
    return kept[::-1]
