"""What a text says, by rules: pure and deterministic, a fold over the records of a session in their order."""

from typing import Final

from engramlog.engine.derivers import chinese, english, other_scripts
from engramlog.engine.derivers.cues import cues_of
from engramlog.engine.derivers.entities import entities_of
from engramlog.engine.derivers.importance import importance_of
from engramlog.engine.derivers.languages import COMMON, language_of
from engramlog.engine.derivers.phrases import Phrase
from engramlog.engine.derivers.relations import relations_of
from engramlog.engine.derivers.texts import Reading, read
from engramlog.engine.derivers.topics import SessionState, Turn, follow, steer
from engramlog.engine.derivers.understanding import Understanding, settled
from engramlog.engine.ports import Matrix
from engramlog.schemas.records import MemoryRecord

__all__ = ["MAX_KEYWORDS", "VERSION", "SessionState", "follow_only", "prepare", "understand"]

VERSION: Final = "rules.v1"
MAX_KEYWORDS: Final = 12
_LONGEST_KEYWORD: Final = 120
_FOLLOWERS: Final = ("assistant", "tool", "function")


def prepare() -> None:
    """Load what the rules need (jieba's dictionary), about two seconds, once a process.

    Without it the first Chinese text takes so much longer.

    Raises:
        ConfigurationError: jieba is not installed.
    """
    chinese.load()


def understand(
    record: MemoryRecord, text: str, state: SessionState | None, *, vector: Matrix | None
) -> tuple[Understanding, SessionState]:
    """Understand one record of a session, given what was said before.

    Args:
        record: The record.
        text: Its content and text parts.
        state: What the session's previous record left; None: this is the first.
        vector: The text's vector of unit length, whichever the model; None: there is none.

    Returns:
        What the text says, the publisher's own topic and importance in their places; and the state for the next record.

    Raises:
        ConfigurationError: The text is Chinese, and jieba is not installed.
    """
    reading, language, words, turn = _heard(record, text)
    state = _after(record, turn, state, vector)
    relations = relations_of(record, reading)
    understanding = Understanding(
        topic=state.topic,
        importance=importance_of(record, reading, relations, language),
        keywords=_keywords(turn),
        entities=entities_of(reading, words),
        relations=relations,
        language=language,
    )
    return settled(record, understanding), state


def follow_only(record: MemoryRecord, text: str, state: SessionState | None, *, vector: Matrix | None) -> SessionState:
    """The state that :func:`understand` leaves, without what the text says by itself. Arguments and errors as there."""
    return _after(record, _heard(record, text)[-1], state, vector)


def _heard(record: MemoryRecord, text: str) -> tuple[Reading, str | None, list[chinese.Word], Turn]:
    reading = read(text)
    language = language_of(reading.prose)
    words = chinese.words_of(reading.prose) if language == "zh" else []
    return reading, language, words, _turn(record, reading, language, words)


def _after(record: MemoryRecord, turn: Turn, state: SessionState | None, vector: Matrix | None) -> SessionState:
    return follow(state, turn, vector) if record.topic is None else steer(state, turn, vector, record.topic)


def _turn(record: MemoryRecord, reading: Reading, language: str | None, words: list[chinese.Word]) -> Turn:
    prose = reading.prose
    phrases, stems = _subjects(record, prose, language, words)
    return Turn(
        language=language,
        stems=tuple(stems),
        phrases=tuple(phrases),
        cues=cues_of(prose),
        leads=record.role not in _FOLLOWERS,
        happened_s=record.timestamp.timestamp(),
    )


def _subjects(
    record: MemoryRecord, prose: str, language: str | None, words: list[chinese.Word]
) -> tuple[list[Phrase], list[str]]:
    """What may name the subject of a text, and its content words, by the means that there are for its language."""
    if words:
        return chinese.phrases(words), chinese.content_words(words)
    if language is None or language in COMMON:
        ignored = _names(record) | COMMON.get(language or "", frozenset())
        return english.phrases(prose, ignored), english.content_words(prose, ignored)
    found = other_scripts.phrases(prose, language)
    return found, [phrase.text for phrase in found]


def _names(record: MemoryRecord) -> frozenset[str]:
    return frozenset((record.role_name or "").lower().split())


def _keywords(turn: Turn) -> tuple[str, ...]:
    """The phrases by weight, those whose words were all said already left out."""
    found: list[str] = []
    said: set[str] = set()
    for phrase in sorted(turn.phrases, key=lambda phrase: (-phrase.weight, phrase.place)):
        if not said.issuperset(phrase.stems):
            said.update(phrase.stems)
            found.append(phrase.text[:_LONGEST_KEYWORD])
            if len(found) == MAX_KEYWORDS:
                break
    return tuple(found)
