"""Whether a label that a model gave can stand: it is short, and in the language of the text."""

import re
from typing import Final

from engramlog.engine.derivers.understanding import Understanding

_WIDE: Final = re.compile(r"[\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_LETTER: Final = re.compile(r"[^\W\d_]")
_WIDE_LANGUAGES: Final = ("zh", "ja", "ko")
_WIDE_CHARS: Final = 12
_NARROW_WORDS: Final = 6
_NARROW_CHARS: Final = 48


def fitting(label: str, text: str, understanding: Understanding) -> str | None:
    """The label, or the rules' label where it does not fit.

    It fits if it repeats the current label; or if it has letters, is short (six words, 48 characters; twelve characters
    of Chinese, Japanese or Korean), and is in the script of the text's language or stands in the text as it is.
    """
    if label == understanding.topic:
        return label
    if not _LETTER.search(label) or not _short(label):
        return understanding.topic
    if understanding.language is None or label.casefold() in text.casefold():
        return label
    wide_text = understanding.language in _WIDE_LANGUAGES
    return label if wide_text == bool(_WIDE.search(label)) else understanding.topic


def _short(label: str) -> bool:
    wide = len(_WIDE.findall(label))
    if wide:
        return len(label) <= _WIDE_CHARS
    return len(label.split()) <= _NARROW_WORDS and len(label) <= _NARROW_CHARS
