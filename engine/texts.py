"""Which text of a record is searched by words, and which one a model of meaning reads. Pure; ``derive`` calls these."""

import re
from datetime import datetime
from typing import Final

from engramlog.engine.embedders.chunking import is_grapheme_border, weight
from engramlog.schemas.records import MemoryRecord, Part

PREVIOUS_CHARS: Final = 500
"""How much of the turn before is read along with a turn, in characters: its end, which a reply refers to."""

GIST_CHARS: Final = 600
"""How much of a question a model of meaning reads, in units of :func:`~engramlog.engine.embedders.chunking.weight`.

The offline model needs half a second for it on one core, and a long question would hold up the others behind it.
"""

_MONTHS = (
    "January February March April May June July August September October November December".split()  # noqa: SIM905 - as a list it would be twelve lines
)
_CAPTIONS = ("caption", "alt", "description", "transcript", "title", "filename")
_QUESTION_CHARS: Final = 200
_CHINESE_QUESTION = re.compile(r"[吗呢][。.~!\uff01\s]*$")
_CHINESE_OR_JAPANESE = re.compile("[\u3040-\u30ff\u3400-\u9fff]")


def content(record: MemoryRecord) -> str:
    """What is said: the content, else the text parts, and what is known in words of pictures and other parts.

    Empty for a record that says nothing in words; such a one is not found by search.
    """
    said = record.content.strip() or "\n".join(part.text for part in record.parts if part.text).strip()
    captions = (caption for part in record.parts if part.type != "text" for caption in _captions(part))
    return "\n".join(text for text in (said, *captions) if text)


def speaker(record: MemoryRecord) -> str | None:
    """The name of who speaks, where it is known."""
    if record.role_name:
        return record.role_name
    return record.name if record.role in {"user", "assistant"} else None


def spoken(record: MemoryRecord) -> str:
    """What is said, and by whom: ``"Caroline: I went to the support group yesterday."``."""
    said, who = content(record), speaker(record)
    return f"{who}: {said}" if said and who else said


def previous(record: MemoryRecord) -> str:
    """What the next turn of the session may need of this one: the end of what was said. Empty: nothing.

    An assistant's statements are left out: they repeat what users say, and the user's next turn would be found by it.
    """
    said, who = content(record)[-PREVIOUS_CHARS:], speaker(record)
    if record.role != "user" and not asks(said):
        return ""
    return f"{who}: {said}" if said and who else said


def asks(text: str) -> bool:
    """Whether a text ends in a question, or nearly so."""
    end = text[-_QUESTION_CHARS:]
    return "?" in end or "\uff1f" in end or _CHINESE_QUESTION.search(end) is not None


def searchable(record: MemoryRecord) -> str:
    """The text whose terms are indexed: who, what, and the day on which it happened.

    The day stands there because questions name it ("what did I do on 8 May?"), while turns hardly ever do.
    """
    said = spoken(record)
    return f"{said}\n{day(record.timestamp, like=said)}" if said else ""


def embeddable(record: MemoryRecord, before: str | None) -> str:
    """The text that a model of meaning reads: the turn, after the one before it (:func:`previous`) where it needs that.

    "Yes, in June!" means nothing without its question, and in a talk of several people hardly a turn stands alone. A
    statement to an assistant does: whatever stands around it only blurs the vector (measured: the right fact comes
    first for half as many questions).
    """
    said, who = spoken(record), speaker(record)
    if not said or not before:
        return said
    to_another = record.role == "user" and who is not None and not before.startswith(f"{who}: ")
    return f"{before}\n{said}" if to_another or asks(before) else said


def gist(question: str) -> str:
    """What a model of meaning reads of a question: of a long one the beginning and the end, where people ask.

    Its words are all looked for.
    """
    if sum(map(weight, question)) <= GIST_CHARS:
        return question
    begin, end = _reached(question, range(len(question))), _reached(question, range(len(question) - 1, -1, -1))
    while not is_grapheme_border(question, begin):
        begin -= 1
    while not is_grapheme_border(question, end + 1):
        end += 1
    return f"{question[:begin].rstrip()} … {question[end + 1 :].lstrip()}"


def _reached(text: str, places: range) -> int:
    """The first of these places that half a gist does not reach."""
    room = GIST_CHARS / 2
    for place in places:
        room -= weight(text[place])
        if room < 0:
            return place
    return places.stop


def day(instant: datetime, *, like: str) -> str:
    """The day in words, as the language of ``like`` writes it: ``8 May 2023`` or ``2023年5月8日``, in its own zone."""
    if _CHINESE_OR_JAPANESE.search(like):
        return f"{instant.year}年{instant.month}月{instant.day}日"
    return f"{instant.day} {_MONTHS[instant.month - 1]} {instant.year}"


def _captions(part: Part) -> list[str]:
    found = (part.detail.get(key) for key in _CAPTIONS)
    return [f"[{part.type}: {text.strip()}]" for text in found if isinstance(text, str) and text.strip()][:1]
