# ruff: noqa: E501 - lists of words
"""What an English sentence states of its speaker."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from engramlog.engine.facts.english_rules import RULES, Rule
from engramlog.engine.facts.english_wording import of_third_person
from engramlog.engine.facts.fact import Found

MAX_WORDS: Final = 32
_SHORTEST: Final = 3

_CLAUSE_END: Final = re.compile(
    r"\s?[-\u2013\u2014]+\s|\s*\u2014\s*|[;:(]\s|\.{2,}"
    r"|,\s(?:but|so|it|it's|its|they|they're|you|we|we're|we've|i|i'm|i've|i'd|i'll|he|she|which|though|that|that's|"
    r"these|those|don't|aren't|isn't|right|ya|do|does|what|how|any|thanks|thank|just|especially since|not to)\b"
    r"|,?\s(?:but|and|so)\s(?=(?:i|i'm|i've|i'd|i'll|we|we're|it|it's|you|they|he|she|that|that's|this|my|now)\b)"
    r"|,?\sbut\s|\s(?:though|although)\b|[.!?]+$",
    re.IGNORECASE,
)
_LAST_CLAUSE: Final = re.compile(r"(?:,|\s[-\u2013\u2014]+|;)\s(?=[^,;]*$)")
_UNREAL: Final = re.compile(
    r"\b(?:if|unless|maybe|might|perhaps|suppose|imagine|pretend|wish(?:es|ed)?|whether|wonder(?:ing|ed)?|hypothetically|"
    r"dreamed|dreamt|almost|considering|not sure|thinking (?:of|about)|could|should|would (?!rather|like my|prefer)|"
    r"in a perfect world|let's say)\b"
    r"|\b(?:it's not true|not true that|nobody|who says|as though|as if)\b",
    re.IGNORECASE,
)
_OTHERS_SAY: Final = re.compile(
    r"\b(?:(?!i\b|we\b)\w+ (?:said|says|told|tells|claims?|claimed|thinks?|thought|believes?|insists?|wrote|asked|asks)|"
    r"according to|apparently|rumou?r|heard|the (?:song|lyrics|book|sign|character|article))\b",
    re.IGNORECASE,
)
_YOU: Final = re.compile(r"\b(?:you|your|yours|you're|you've|you'll|you'd|u|ya|y'all)\b", re.IGNORECASE)
_EMPTY: Final = re.compile(
    r"^(?:it|that|this|them|those|these|him|her|so|such|one|ones|there|here|things?|stuff|both|all of (?:it|them|that))\b"
    r"(?:\s(?:so|too|all|a lot|as well|very|more|every|when|and|how|to|for|out|when)\b.*)?$",
    re.IGNORECASE,
)


_LEAD: Final = re.compile(r"\s*(?:(?:and|but|so|yeah|yes|well|oh)\s(?!far\b|many\b|much\b))*", re.IGNORECASE)
_SPEAKS: Final = re.compile(
    r"(?<![\w'])(?:I|we|my|our|me|us|let's)(?![\w])|\b(?:please|pls|always|never|don't|do not|from now on|going forward|future|"
    r"gonna|planning|decided|moving|correction|actually|no)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Stated:
    rule: Rule
    start: int
    end: int


def english_facts(sentence: str, name: str) -> Iterator[Found]:
    """The statements of a sentence, in its order; of two that overlap the one that begins earlier."""
    plain = _without_question(sentence)
    if not _SPEAKS.search(plain):
        return
    last = 0
    stated = (one for rule in RULES for one in _stated(rule, plain))
    for one in sorted(stated, key=lambda one: (one.start, RULES.index(one.rule))):
        if one.start < last:
            continue
        text = one.rule.wording(plain[one.start : one.end], name) if one.rule.wording else None
        text = text or of_third_person(plain[one.start : one.end], name)
        last = one.end
        yield Found(one.rule.kind, text, one.rule.confidence, one.start, one.end)


def _stated(rule: Rule, plain: str) -> Iterator[_Stated]:
    for match in rule.pattern.finditer(plain):
        start = match.start("from") if "from" in rule.pattern.groupindex else match.start()
        lead = _LEAD.match(plain, start, match.end())
        start = lead.end() if lead else start
        end = match.end() if rule.whole else _end(plain, match.end())
        thing = plain[match.end() : end].strip() if not rule.whole else plain[start:end]
        if _says_something(rule, plain, start=start, end=end, thing=thing):
            yield _Stated(rule, start, end)


def _says_something(rule: Rule, plain: str, *, start: int, end: int, thing: str) -> bool:
    said = plain[start:end]
    if not rule.whole and (len(thing) < _SHORTEST or _EMPTY.match(thing)):
        return False
    if rule.refused and rule.refused.search(said):
        return False
    if rule.kind != "rule" and _YOU.search(said):
        return False
    before = plain[max(0, start - 80) : start]
    return not (_UNREAL.search(_same_clause(before) + said) or _OTHERS_SAY.search(before))


def _same_clause(before: str) -> str:
    """What stands before, unless another clause does."""
    return re.split(r"[;:]|,\s(?:but|and|so)\s|\sbut\s", before)[-1]


def _end(plain: str, verb_end: int) -> int:
    found = _CLAUSE_END.search(plain, verb_end)
    end = found.start() if found else len(plain)
    words = list(re.finditer(r"\S+", plain[verb_end:end]))
    if len(words) > MAX_WORDS:
        end = verb_end + words[MAX_WORDS - 1].end()
    return verb_end + len(plain[verb_end:end].rstrip(" ,.!?;:-'\""))


def _without_question(sentence: str) -> str:
    """What stands before the question: "I love tea, do you?" states something, "Do I love tea?" does not."""
    if not sentence.rstrip("\"') ").endswith("?"):
        return sentence
    starts = [found.start() for found in _LAST_CLAUSE.finditer(sentence)]
    return sentence[: starts[-1]] if starts else ""
