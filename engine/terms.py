"""The terms of a text: what search by words compares. Documents and questions go through the same rules.

Words of alphabets are folded to lower case, English ones stemmed (Snowball); function words are left out. Identifiers
count as a whole and in their pieces. Chinese, Japanese and Korean, which put no spaces between words, give pairs of
neighbouring characters and the characters that mean something by themselves. Emoji are terms.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import snowballstemmer

from engramlog.schemas.derived import MAX_TERMS

MAX_TERM_CHARS: Final = 128
"""Longer words are cut here: they are data rather than language."""

_ABBREVIATION_CHARS = 3
_UNSPACED = (
    "\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"  # Chinese, Japanese, Korean
    "\U00020000-\U0003134f"
    "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
)
# Letters and digits, and the vowel signs and accents that regular expressions do not count as letters.
_LETTER = rf"(?:(?![{_UNSPACED}])[^\W_]|[\u0300-\u036f\u0591-\u05c7\u0610-\u065f\u0670\u06d6-\u06ed\u0900-\u0dff])"
_TOKEN = re.compile(
    rf"(?P<unspaced>[{_UNSPACED}]+)"
    r"|(?P<number>\d{1,3}(?:,\d{3})+(?!\d))"
    rf"|(?P<word>{_LETTER}+(?:[._/\\@'\u2019\-]+{_LETTER}+)*)"
    r"|(?P<emoji>[\u203c\u2049\u231a-\u23ff\u2600-\u27bf\u2b05-\u2b55\U0001f000-\U0001f3fa\U0001f400-\U0001faff])"
)
_APOSTROPHE = re.compile(r"['\u2019]")
_SEPARATOR = re.compile(r"[._/\\@'\u2019\-]+")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^A-Za-z0-9]+")
_ENDINGS = frozenset({"s", "d", "m", "t", "ll", "re", "ve"})
_ENGLISH = re.compile("[a-z]+")

_FUNCTION_WORDS = frozenset(
    """
    a about after all also am an and any are as at be because been before being but by can cannot could did do does
    doing don done each else etc even ever every few for from get gets getting go goes going gonna got had has have
    having he her here hers herself him himself his how i if in into is it its itself just let lot many me might mine
    more most much must my myself no nor not of off on once only or other our ours ourselves out over own quite rather
    really same shall she should so some such than that the their theirs them themselves then there these they thing
    this those though through to too under until up upon us very was we were what when where whether which while who
    whom whose why will with within would yes you your yours yourself yourselves
    oh ok okay yeah hey hi hello wow well um uh
    aren arent couldn couldnt didn didnt doesn doesnt dont hadn hadnt hasn hasnt haven havent isn isnt mustn needn
    shouldn shouldnt wasn wasnt weren werent won wouldn wouldnt im ive youre thats
    """.split()  # noqa: SIM905 - as a list of literals it fills a page
)
_FUNCTION_CHARACTERS = frozenset(
    "的了着过吗呢吧啊呀嘛哦嗯哈啦我你您他她它们这那哪是在有和与或也都就还又很太最更不没别个些么什怎为之其于从到把被给让对以而但则"
    "及并等会能可要想得地说个里来去上下中一"
)


def terms(text: str) -> list[str]:
    """The terms of a text, in its order, repetitions included.

    Linear in the text's length.
    """
    return list(_terms(unicodedata.normalize("NFKC", text)))


def term_counts(text: str) -> tuple[dict[str, int], int]:
    """How often each term occurs, and how many terms the text has.

    Of more than :data:`~engramlog.schemas.derived.MAX_TERMS` distinct terms the most frequent are kept, of equals those
    that come first. The length counts all.
    """
    counts = Counter(terms(text))
    return dict(counts.most_common(MAX_TERMS)), counts.total()


def _terms(text: str) -> Iterator[str]:
    for found in _TOKEN.finditer(text):
        token, kind = found.group(), found.lastgroup
        if kind == "unspaced":
            yield from _pairs(token)
        elif kind == "number":
            yield token.replace(",", "")
        elif kind == "word":
            yield from _word(token)
        else:
            yield token


def _pairs(run: str) -> Iterator[str]:
    """Single characters but for function characters, and neighbouring ones but for two function characters."""
    before = None
    for character in run:
        function = character in _FUNCTION_CHARACTERS
        if before is not None and not (function and before in _FUNCTION_CHARACTERS):
            yield before + character
        if not function:
            yield character
        before = character


def _word(token: str) -> Iterator[str]:
    pieces = _SEPARATOR.split(token)
    if len(pieces) == 1 and token.isascii() and (token.islower() or token.istitle()):
        yield from _plain(token.lower())
        return
    if token.isupper() and token.isascii() and 1 < len(token) <= _ABBREVIATION_CHARS:
        yield token.lower()  # IT and US are no function words
        return
    if _APOSTROPHE.search(token) and len(pieces) == 2:  # noqa: PLR2004 - it's, Caroline's, don't
        first, last = pieces[0].casefold(), pieces[1].casefold()
        if last in _ENDINGS:
            yield from () if last == "t" else _plain(first)
            return
    smaller = [part for piece in pieces for part in (_CAMEL.findall(piece) if piece.isascii() else (piece,))]
    if len(smaller) > 1 and not _is_hyphenated(token):
        yield token.casefold()[:MAX_TERM_CHARS]
    for part in smaller:
        yield from _plain(part.casefold())


def _is_hyphenated(token: str) -> bool:
    """Ordinary compounds (``well-known``): their whole is no term, so that it also matches when written apart."""
    return "-" in token and token.replace("-", "").isalpha() and token[1:].islower()


def _plain(word: str) -> Iterator[str]:
    if word in _FUNCTION_WORDS:
        return
    yield _stemmed(word) if _ENGLISH.fullmatch(word) else word[:MAX_TERM_CHARS]


@lru_cache(maxsize=65_536)
def _stemmed(word: str) -> str:
    if len(word) > 40:  # noqa: PLR2004 - no English word; the stemmer is slow on long ones
        return word[:MAX_TERM_CHARS]
    stem: str = _STEMMER.stemWord(word)
    return stem


_STEMMER: Final = snowballstemmer.stemmer("english")
