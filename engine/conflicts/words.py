"""English words in one form: stems, without the words that carry nothing."""
# ruff: noqa: E501, SIM905 - a word list is read better unbroken

import re

from engramlog.engine.conflicts.lexicon import kind_of

_WORD = re.compile(r"[^\W_][\w+#'./-]*[\w+#]|[^\W_]")
_IRREGULAR = {
    "ate": "eat", "eaten": "eat", "drank": "drink", "drunk": "drink", "had": "have", "has": "have", "having": "have",
    "was": "be", "were": "be", "is": "be", "are": "be", "am": "be", "been": "be", "got": "get", "went": "go",
    "gone": "go", "kept": "keep", "bought": "buy", "drove": "drive", "driven": "drive", "ran": "run", "swam": "swim",
    "flew": "fly", "flown": "fly", "wrote": "write", "written": "write", "wore": "wear", "worn": "wear", "took": "take",
    "taken": "take", "gave": "give", "given": "give", "sold": "sell", "slept": "sleep", "spoke": "speak",
    "spoken": "speak", "rode": "ride", "ridden": "ride", "left": "leave", "began": "begin", "sang": "sing",
    "taught": "teach", "held": "hold", "paid": "pay", "read": "read", "woke": "wake", "grew": "grow", "won": "win",
    "cats": "cat", "dogs": "dog", "mice": "mouse", "children": "child", "kids": "kid", "wives": "wife", "using": "use",
    "used": "use", "uses": "use", "movies": "movie", "does": "do", "did": "do", "done": "do", "cooking": "cook",
}  # fmt: skip
_EMPTY = frozenset(
    "a an the my our your his her their its this that these those some any of to very really so too quite pretty just "
    "also still always now today currently anymore any more all at is be am are and or it them there here with much lot "
    "lots as well again usually often everything everyone day days time times every each which who in on for by "
    "definitely absolutely completely totally actually about from".split()
)
LIGHT = frozenset({"music", "food", "game", "dish", "drink", "thing", "stuff", "kind", "flavour", "flavor", "sport"})
_MIN_STEM = 3


def stem(word: str) -> str:
    """A word without its ending: ``hiking`` and ``hikes`` become ``hik``, as ``hike`` does."""
    if word in _IRREGULAR:
        return _IRREGULAR[word].removesuffix("e") if len(_IRREGULAR[word]) > _MIN_STEM else _IRREGULAR[word]
    for ending in ("ing", "ies", "ied", "ed", "es", "s"):
        rest = word.removesuffix(ending)
        if rest != word and len(rest) >= _MIN_STEM and not (ending == "s" and word.endswith(("ss", "us", "is"))):
            word = rest + "y" if ending in {"ies", "ied"} else rest
            if ending in {"ing", "ed"} and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word.removesuffix("e") if len(word) > _MIN_STEM else word


def words_of(text: str) -> list[str]:
    """The words of a text, as they stand."""
    return _WORD.findall(text)


def stems_of(text: str) -> frozenset[str]:
    """The stems of the words that carry something."""
    return frozenset(stem(word) for word in words_of(text.lower()) if word not in _EMPTY)


def denied(text: str) -> frozenset[str]:
    """What a denied object is: its stems, known things by their one name."""
    known = {word: kind_of(word) for word in words_of(text.lower()) if word not in _EMPTY}
    plain = {kind[0] if kind else stem(word) for word, kind in known.items()}
    return frozenset(plain - LIGHT or plain)


def affirmed(text: str) -> frozenset[str]:
    """What an affirmed object is: its stems, known things by their one name and by the kinds they belong to."""
    found = set(denied(text)) | set(stems_of(text))
    for word in words_of(text.lower()):
        if kind := kind_of(word):
            found |= kind[1]
    return frozenset(found)


def kinds_of(text: str) -> frozenset[str]:
    """The kinds that the things of an English text belong to."""
    return frozenset().union(*(kind[1] for word in words_of(text.lower()) if (kind := kind_of(word))))
