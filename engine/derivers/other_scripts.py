"""Words that may name a subject, in languages of which only the script is known."""

import re
from collections import Counter
from typing import Final

from engramlog.engine.derivers.phrases import Phrase

_JAPANESE: Final = re.compile(r"[\u4e00-\u9fff\u3005]{2,8}|[\u30a1-\u30fa\u30fc]{2,12}")
_KOREAN: Final = re.compile(r"[\uac00-\ud7a3]{2,12}")
_ANY: Final = re.compile(r"[^\W\d_]{4,24}")
_PARTICLE: Final = re.compile(
    r"(?<=[\uac00-\ud7a3]{2})(?:은|는|이|가|을|를|에서|에게|에|의|와|과|로|으로|도|만|까지|부터)$"
)
_WORDS_LOOKED_AT: Final = 2_000
_WEIGHT: Final = 0.7
_OFTEN: Final = 0.3


def phrases(text: str, language: str) -> list[Phrase]:
    """The words of a text that may name its subject, in order."""
    pattern = {"ja": _JAPANESE, "ko": _KOREAN}.get(language, _ANY)
    matches = [match for match, _ in zip(pattern.finditer(text), range(_WORDS_LOOKED_AT), strict=False)]
    words = [_PARTICLE.sub("", match.group()).lower() for match in matches]
    counts = Counter(words)
    return [
        Phrase(word, (word,), _WEIGHT + _OFTEN * (counts[word] - 1), match.start() / len(text))
        for match, word in zip(matches, words, strict=True)
    ]
