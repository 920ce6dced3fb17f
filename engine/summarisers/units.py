"""What an extractive summary is put together from: sentences, and what they hold."""
# ruff: noqa: E501 - lists of words

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, cast, get_args

from engramlog.engine import texts
from engramlog.engine.derivers.importance import importance_of
from engramlog.engine.derivers.languages import language_of
from engramlog.engine.derivers.relations import relations_of
from engramlog.engine.derivers.texts import read
from engramlog.engine.facts.sentences import sentences_of
from engramlog.engine.summarisers.compressing import compressed
from engramlog.engine.summarisers.passages import Passage
from engramlog.engine.terms import terms
from engramlog.schemas.records import MemoryRecord, Role

MAX_SENTENCE_CHARS: Final = 400
MAX_BLOCK_SENTENCES: Final = 8
_PIECE: Final = re.compile(r".{1,400}(?:[,;\uff0c\uff1b\u3001\s]|$)|.{400}", re.DOTALL)
_QUESTION: Final = ("?", "\uff1f", "\u5417", "\u5462")
_FACTUAL: Final = re.compile(
    r"\d|(?<=[a-z,;] )[A-Z][a-z]+|\u300a|\b(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday|yesterday|tomorrow|last|next|ago|"
    r"january|february|march|april|june|july|august|september|october|november|december)\b"
    r"|[\u5468\u661f\u671f][\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u65e5]|\u6628\u5929|\u660e\u5929|\u4e0a\u5468|\u4e0b\u5468",
    re.IGNORECASE,
)
_FACTUAL_BONUS: Final = 1.15
_QUESTION_WORTH: Final = 0.35


@dataclass(frozen=True, slots=True)
class Unit:
    """A sentence that may stand in the summary.

    Attributes:
        block: The how-many-th passage (or line of the earlier summary) it is of.
        text: The compressed sentence.
        words: The terms of it.
        cost: Its tokens.
        worth: A factor: what it holds besides words.
    """

    block: int
    text: str
    words: frozenset[str]
    cost: int
    worth: float


@dataclass(frozen=True, slots=True)
class Block:
    """A passage, or a line of the earlier summary.

    Attributes:
        speaker: Whose line it is; empty: nobody's.
        day: The day in words; empty: not known.
        words: The terms of the whole passage.
        value: How much it is worth to be kept, 0 to 1.
        text: What is said.
        label_cost: Tokens of the speaker's name in front of it.
    """

    speaker: str
    day: str
    words: frozenset[str]
    value: float
    text: str
    label_cost: int


def blocks_of(passage: Passage, *, count: Callable[[str], int]) -> Iterator[Block]:
    """A passage as a block, a long one as several; its importance is told by rules where it is not known."""
    value = passage.importance if passage.importance is not None else _importance(passage)
    said = passage.text.replace("\0", "")
    day = texts.day(passage.timestamp, like=said)
    for piece in pieces_of(said, MAX_BLOCK_SENTENCES):
        yield block(passage.speaker, day, value=max(0.0, min(1.0, value)), text=piece, count=count)


def block(speaker: str, day: str, *, value: float, text: str, count: Callable[[str], int]) -> Block:
    """A block of what somebody said."""
    cost = 1 + (count(f"{speaker}:") if speaker else 0)
    return Block(speaker, day, frozenset(terms(text)), value, text, cost)


def pieces_of(text: str, sentences: int) -> Iterator[str]:
    """A text in pieces of at most so many sentences."""
    ends = [sentence.end for sentence in sentences_of(text)][sentences - 1 :: sentences]
    start = 0
    for end in ends:
        yield text[start:end]
        start = end
    if text[start:].strip():
        yield text[start:]


def units_of(blocks: Sequence[Block], *, count: Callable[[str], int]) -> list[Unit]:
    """The sentences of all blocks, in the order of the talk, courtesies left out."""
    return [
        Unit(at, said, words, max(1, count(said)), _worth(said))
        for at, one in enumerate(blocks)
        for said in _sentences(one.text)
        if (words := frozenset(terms(said)))
    ]


def _sentences(text: str) -> Iterator[str]:
    for sentence in sentences_of(text):
        pieces = [sentence.text] if len(sentence.text) <= MAX_SENTENCE_CHARS else _PIECE.findall(sentence.text)
        for piece in pieces:
            said = compressed(piece.strip())
            if said:
                yield said


def _worth(said: str) -> float:
    worth = _FACTUAL_BONUS if _FACTUAL.search(said) else 1.0
    return worth * _QUESTION_WORTH if said.rstrip(" ~\uff5e").endswith(_QUESTION) else worth


def _importance(passage: Passage) -> float:
    role = cast("Role", passage.role if passage.role in get_args(Role) else "user")
    record = MemoryRecord.model_construct(role=role, content="", kind="turn")
    reading = read(passage.text)
    return importance_of(record, reading, relations_of(record, reading), language_of(reading.prose))
