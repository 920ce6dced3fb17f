"""Cutting long texts where a reader would. Pure."""

import unicodedata
from collections.abc import Callable

CHUNK_CHARS = 1_200
"""What about 320 tokens of English, 380 of Chinese or 400 of code hold, in units of :func:`weight`.

Models of the e5 family take 512 tokens. Measured with multilingual-e5-small's tokenizer, characters a token: English
3.4 to 4.3, code 3.0, Korean 2.0, Japanese 1.8, Chinese 1.3 to 1.6, emoji 1.0.
"""
WIDE = 2.5
"""Wide characters (Chinese, Japanese, Korean, emoji) weigh as much as so many narrow ones."""

PARAGRAPH, SENTENCE, LINE, WORD, GRAPHEME, ANYWHERE = 5, 4, 3, 2, 1, 0

_ENDS = frozenset(".!?。！？；…．｡")  # noqa: RUF001 - Chinese punctuation
_WIDE_ENDS = frozenset("。！？；…．｡")  # noqa: RUF001 - Chinese punctuation
_CLOSERS = frozenset("\"'”’)]}」』）】》〉］｝")  # noqa: RUF001 - Chinese punctuation
_NEW_LINES = frozenset("\n\r\u2028\u2029")
_JOINER = "\u200d"
_LONGEST_RUN = 256  # flags in a row that are looked through; an even number


def weight(char: str) -> float:
    """How much of a chunk a character takes: 1, or 2.5 if it is wide."""
    if char < "\u1100":
        return 1.0
    return WIDE if char >= "\U0001f000" or unicodedata.east_asian_width(char) in {"W", "F"} else 1.0


def chunks(text: str, *, chunk_chars: int, overlap_chars: int, most: int) -> list[tuple[int, int]]:
    """Spans of characters, in order, which cover a text from its beginning.

    Each span but the last ends where the best border in its second half is: the end of a paragraph, of a sentence
    (English or Chinese), of a line, of a word, and else between two graphemes; a single grapheme is cut only where it
    alone is larger than a chunk, and a surrogate pair never. Each begins about ``overlap_chars`` before the end of the
    one before it, at a sentence or word if there is one.

    Args:
        text: Any text.
        chunk_chars: Weight of a chunk at most; see :func:`weight`. At least 8.
        overlap_chars: Weight that neighbours share at most; less than half of ``chunk_chars``.
        most: How many spans at most. If the text needs more, the last span's end is less than its length: the rest is
            not covered.

    Returns:
        ``(start, end)``, end exclusive. No text, no span.

    Raises:
        ValueError: The numbers do not fit together.
    """
    if chunk_chars < 8 or not 0 <= overlap_chars < chunk_chars / 2 or most < 1:  # noqa: PLR2004 - see the docstring
        raise ValueError(f"chunk_chars={chunk_chars}, overlap_chars={overlap_chars}, most={most}")
    spans: list[tuple[int, int]] = []
    start = 0
    while start < len(text) and len(spans) < most:
        end = _reach(text, start, chunk_chars)
        if end < len(text):
            middle = _reach(text, start, chunk_chars / 2)
            end = _best(text, middle, end, key=lambda place: (border(text, place), place))
        spans.append((start, end))
        if end == len(text):
            break
        start = _next_start(text, end, overlap_chars)
    return spans


def _reach(text: str, start: int, limit: float) -> int:
    """The furthest end of a span from ``start`` that weighs at most ``limit``; at least one character."""
    total, place = 0.0, start
    while place < len(text):
        total += weight(text[place])
        if total > limit:
            break
        place += 1
    if place == start:
        return start + 1
    return place - 1 if place < len(text) and _splits_pair(text, place) and place - 1 > start else place


def _best(text: str, first: int, last: int, *, key: Callable[[int], tuple[int, int]]) -> int:
    """The best place from after ``first`` to ``last``."""
    return max((place for place in range(first + 1, last + 1) if not _splits_pair(text, place)), key=key, default=last)


def _next_start(text: str, end: int, overlap: float) -> int:
    """Where the next span begins: the earliest sentence in the overlap, else the earliest word, else grapheme."""
    if overlap <= 0:
        return end
    total, first = 0.0, end
    while first > 0:
        total += weight(text[first - 1])
        if total > overlap:
            break
        first -= 1
    if first == end:
        return end
    found = _best(text, first - 1, end - 1, key=lambda place: (_start_rank(text, place), -place))
    return found if is_grapheme_border(text, found) else end


def _start_rank(text: str, place: int) -> int:
    """As :func:`border`, but a paragraph or a line is no better than a sentence: the overlap is to be used."""
    found = border(text, place)
    return SENTENCE if found >= LINE else found


def border(text: str, place: int) -> int:
    """What kind of border lies between two characters of a text: from ``PARAGRAPH`` down to ``ANYWHERE``."""
    if not is_grapheme_border(text, place):
        return ANYWHERE
    before, after = text[place - 1], text[place]
    if before in _NEW_LINES:
        if after in _NEW_LINES:
            return GRAPHEME
        head = text[max(0, place - 4) : place].replace("\r\n", "\n")
        return PARAGRAPH if head[-2:] == "\n\n" else SENTENCE if _ends_sentence(text, place - 1) else LINE
    if _ends_sentence(text, place):
        return SENTENCE
    if before.isspace() and not after.isspace():
        return WORD
    cjk = _is_unspaced(before) or _is_unspaced(after)
    return WORD if cjk and not after.isspace() and unicodedata.category(after)[0] != "P" else GRAPHEME


def _ends_sentence(text: str, place: int) -> bool:
    """Whether a sentence, with what closes it and the space behind it, ends before ``place``."""
    if place < len(text) and (text[place].isspace() or text[place] in _CLOSERS or text[place] in _ENDS):
        return False if text[place] not in _NEW_LINES else _ends_sentence_at(text, place)
    return _ends_sentence_at(text, place)


def _ends_sentence_at(text: str, place: int) -> bool:
    spaced = False
    look = place
    while look > 0 and place - look < 8 and text[look - 1].isspace():  # noqa: PLR2004 - more is no sentence's space
        look, spaced = look - 1, True
    while look > 0 and place - look < 12 and text[look - 1] in _CLOSERS:  # noqa: PLR2004 - likewise
        look -= 1
    if look == 0 or text[look - 1] not in _ENDS:
        return False
    at_line_end = place < len(text) and text[place] in _NEW_LINES
    return text[look - 1] in _WIDE_ENDS or spaced or at_line_end


def _is_unspaced(char: str) -> bool:
    """Whether it belongs to a script that puts no spaces between words: Han, kana, Thai, Lao, Khmer, Myanmar."""
    return (
        "\u3040" <= char <= "\u30ff"
        or "\u3400" <= char <= "\u9fff"
        or "\uf900" <= char <= "\ufaff"
        or "\U00020000" <= char <= "\U0003ffff"
        or "\u0e00" <= char <= "\u0eff"
    )


def is_grapheme_border(text: str, place: int) -> bool:
    """Whether no grapheme lies across ``place``, as far as the standard library can tell.

    Kept together: surrogate pairs, CR LF, combining marks, variation selectors, ZWJ sequences, skin tones, tags,
    keycaps, flags, and Hangul of several jamo.
    """
    if place <= 0 or place >= len(text):
        return True
    before, after = text[place - 1], text[place]
    if before < "\u0300" and after < "\u0300":
        return not (before == "\r" and after == "\n")
    return not (
        _splits_pair(text, place)
        or _extends(after)
        or before == _JOINER
        or ("\u1160" <= after <= "\u11ff" and "\u1100" <= before <= "\ud7a3")
        or _splits_flag(text, place)
    )


def _splits_pair(text: str, place: int) -> bool:
    return 0 < place < len(text) and "\ud800" <= text[place - 1] <= "\udbff" and "\udc00" <= text[place] <= "\udfff"


def _extends(char: str) -> bool:
    return (
        char in {_JOINER, "\u200c"}
        or "\U0001f3fb" <= char <= "\U0001f3ff"
        or "\U000e0020" <= char <= "\U000e007f"
        or unicodedata.category(char) in {"Mn", "Me", "Mc"}
    )


def _splits_flag(text: str, place: int) -> bool:
    """Whether an odd number of regional indicators stands right before, and one right after: half a flag each."""
    if not _is_indicator(text[place]):
        return False
    look = place
    while look > 0 and _is_indicator(text[look - 1]) and place - look < _LONGEST_RUN:
        look -= 1
    return (place - look) % 2 == 1


def _is_indicator(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"
