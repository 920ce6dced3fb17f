"""From a record to its facts: what is no statement of the speaker is left aside, the rest goes to the rules."""

import re
from collections.abc import Iterator
from typing import Final

from engramlog.engine.facts.chinese import chinese_facts
from engramlog.engine.facts.english import english_facts
from engramlog.engine.facts.fact import Fact, Found
from engramlog.engine.facts.sentences import Sentence, sentences_of
from engramlog.schemas.records import MemoryRecord

MAX_FACTS: Final = 32
"""So many facts of one text at most."""
MAX_CHARS: Final = 50_000
"""So much of a text is read: what somebody says of themselves stands in shorter ones."""
ASSISTANT_CONFIDENCE: Final = 0.4
"""What an assistant claims starts no higher."""

_MAX_SENTENCE: Final = 1_000
_HAN: Final = re.compile(r"[\u3400-\u9fff]")
_LATIN: Final = re.compile(r"[A-Za-z]{2,}")
_CODE: Final = re.compile(r"```.*?(?:```|\Z)|`[^`\n]{1,200}`", re.DOTALL)
_SPOKEN: Final = re.compile(r"\"[^\"\n]{1,400}\"|\u201c[^\u201d\n]{1,400}\u201d|「[^」\n]{1,400}」|『[^』\n]{1,400}』")
_FIRST_PERSON: Final = re.compile(r"\b(?:i|i'm|i've|my|me|we|our|you|your|always|never)\b|[我咱你]", re.IGNORECASE)
_QUOTED_LINE: Final = re.compile(r"^[ \t]*>[^\n]*", re.MULTILINE)
_JOKE: Final = re.compile(
    r"\b(?:just kidding|i'm kidding|kidding!|joking|just a joke|jk|not really!)|开玩笑|逗你|骗你的|说笑", re.IGNORECASE
)


def facts(record: MemoryRecord, text: str) -> list[Fact]:
    """What a text states plainly, in the order of the text, each once, at most :data:`MAX_FACTS`.

    Users are believed (0.7 to 0.9); what an assistant says is kept at 0.4 at most and states no rules. Other roles
    (system, tools) state nothing here. Questions, hypotheses, quotations of others, jokes and courtesies are no facts.

    Args:
        record: Who speaks: ``role`` and ``role_name``.
        text: What is said; the first :data:`MAX_CHARS` characters are read.

    Returns:
        Facts with spans in ``text``.
    """
    if record.role not in {"user", "assistant"}:
        return []
    found: dict[tuple[str, str], Fact] = {}
    for one in _found(record, text[:MAX_CHARS]):
        if record.role == "assistant" and one.kind == "rule":
            continue
        sure = one.confidence if record.role == "user" else min(one.confidence, ASSISTANT_CONFIDENCE)
        fact = Fact(one.kind, one.text, sure, (one.start, one.end))
        found.setdefault((one.kind, one.text.casefold()), fact)
        if len(found) >= MAX_FACTS:
            break
    return list(found.values())


def _found(record: MemoryRecord, text: str) -> Iterator[Found]:
    plain = _own_words(text)
    sentences = [one for one in sentences_of(plain) if len(one.text) <= _MAX_SENTENCE]
    for at, sentence in enumerate(sentences):
        after = sentences[at + 1].text if at + 1 < len(sentences) else ""
        if _JOKE.search(sentence.text) or _JOKE.search(after[:40]):
            continue
        for one in _of_sentence(record, sentence):
            yield Found(one.kind, one.text, one.confidence, one.start + sentence.start, one.end + sentence.start)


def _of_sentence(record: MemoryRecord, sentence: Sentence) -> Iterator[Found]:
    name, user = record.role_name, record.role == "user"
    if _HAN.search(sentence.text):
        return chinese_facts(sentence.text, name or ("用户" if user else "助手"), may_be_elided=user)
    if _LATIN.search(sentence.text):
        return english_facts(sentence.text, name or ("User" if user else "Assistant"))
    return iter(())


def _own_words(text: str) -> str:
    """The text with blanks in place of code and of what others say in it; as long as before."""
    plain = text.replace("\u2019", "'").replace("\u2018", "'")
    plain = _QUOTED_LINE.sub(lambda m: " " * len(m[0]), _CODE.sub(_blank, plain))
    return _SPOKEN.sub(lambda m: " " * len(m[0]) if _FIRST_PERSON.search(m[0]) else m[0], plain)


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])
