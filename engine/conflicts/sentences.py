"""From a text to the clauses that state something: no questions, no wishes, no words of others."""
# ruff: noqa: E501, RUF001 - Chinese; patterns are read better unbroken

import re
from collections.abc import Iterator

MAX_CHARS = 1_500
"""So much of a text is looked at: what somebody says of themselves stands in short texts, or early."""

MAX_CLAUSES = 40

_SENTENCE = re.compile(r"(?<=[!?;。！？；\n])|(?<=\.)(?=\s)|(?<=…)")
_QUESTION = re.compile(r"[?？]\s*[\"”」』)）]?\s*$|[吗呢么](?:[？?。\s]|$)")
_CLAUSE = re.compile(
    r"[,，、](?!\d{3})|[:：]\s|\s[–—-]+\s|——|\.(?=\s|$)|[!?;。！？；\n…]+"
    r"|\b(?:but|because|so|while|whereas|although|though|since i|instead)\b"
    r"|\band (?=(?:i|we|my|our|now|she|he|they)\b)",
    re.IGNORECASE,
)
_UNREAL = re.compile(
    r"\b(?:if|would|could|wish|suppose|imagine|imagined|maybe|might|may (?:have|be|not|well)|perhaps|unless|hypothetically|dream|dreamed|dreamt|"
    r"almost|considering|pretend|should i|thinking (?:of|about)|whether|wonder|wondering|hope to)\b"
    r"|[如假]果|要是|假如|假设|假装|倘若|的话|或许|也许|可能|万一|幻想|梦见|梦到|考虑|差点|要不要|是不是|会不会|能不能|"
    r"喜不喜欢|好不好|多希望|本想",
    re.IGNORECASE,
)
_REPORTED = re.compile(
    r"\b(?:said|says|saying|told|tells|claims|claimed|heard|according to|quote|quoted|wrote|writes|thinks|thought|"
    r"believes|asked|asks|lyrics|song|novel|movie character)\b"
    r"|(?<!再)(?<!我)说过?[,，:：「“]|(?<![再我])说|听说|据说|告诉|问我|以为|认为|觉得我|歌词|小说里|电影里|台词|书里|写道|引用",
    re.IGNORECASE,
)
_SPOKEN = re.compile(r"[\"“「『]([^\"”」』]{0,300})[\"”」』]")
_FIRST_PERSON = re.compile(r"\b(?:i|i'm|my|we)\b|我", re.IGNORECASE)
_MAY_BE_SHORT = re.compile(r"[’‘`']|\b(?:cannot|dont|doesnt|isnt|im)\b", re.IGNORECASE)
_SHORT_FORMS = (
    (re.compile(r"[’‘`]"), "'"),
    (re.compile(r"\b(can|could|would|should|do|does|did|is|are|was|were|has|have|had)n't\b", re.IGNORECASE), r"\1 not"),
    (re.compile(r"\bcan't\b|\bcannot\b", re.IGNORECASE), "can not"),
    (re.compile(r"\bwon't\b", re.IGNORECASE), "will not"),
    (re.compile(r"\bain't\b", re.IGNORECASE), "is not"),
    (re.compile(r"\b(do|does|is)nt\b|\bdont\b", re.IGNORECASE), "do not"),
    (re.compile(r"\b(i)'?m\b", re.IGNORECASE), r"\1 am"),
    (re.compile(r"(\w)'(?:re)\b", re.IGNORECASE), r"\1 are"),
    (re.compile(r"(\w)'ve\b", re.IGNORECASE), r"\1 have"),
    (re.compile(r"(\w)'ll\b", re.IGNORECASE), r"\1 will"),
    (re.compile(r"\b(i|we|you|they|he|she)'d\b", re.IGNORECASE), r"\1 would"),
    (re.compile(r"\b(it|that|there|he|she|what)'s\b", re.IGNORECASE), r"\1 is"),
)


def _unquoted(sentence: str) -> str:
    """Without what stands in quotation marks, where somebody speaks there; else without the marks."""
    return _SPOKEN.sub(lambda m: " " if _FIRST_PERSON.search(m[1]) else f" {m[1]} ", sentence)


def _states_something(sentence: str) -> bool:
    return not (_QUESTION.search(sentence) or _UNREAL.search(sentence) or _REPORTED.search(sentence))


def clauses_by_sentence(text: str) -> Iterator[list[str]]:
    """The clauses of each sentence that states something, English short forms written out."""
    left = MAX_CLAUSES
    for sentence in _SENTENCE.split(text[:MAX_CHARS]):
        if left <= 0:
            return
        if not sentence.strip() or not _states_something(sentence):
            continue
        plain = _unquoted(sentence)
        if _MAY_BE_SHORT.search(plain):
            for pattern, full in _SHORT_FORMS:
                plain = pattern.sub(full, plain)
        clauses = [clause.strip() for clause in _CLAUSE.split(plain)]
        stated = [clause for clause in clauses if clause][:left]
        left -= len(stated)
        if stated:
            yield stated
