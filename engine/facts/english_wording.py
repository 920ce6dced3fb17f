# ruff: noqa: E501 - lists of words
"""English clauses of the first person, said of somebody else."""

import re
from typing import Final

_ADVERB: Final = (
    r"(?:(?:really|also|still|just|absolutely|totally|always|now|currently|actually|truly|simply|mostly|usually|often|"
    r"especially|definitely|particularly|generally|personally|kinda|sort of|kind of|never|only|recently|finally|"
    r"both|all|already|normally|typically|sometimes|strongly|much|much more|even|honestly|probably|officially|so) )*"
)
_HEAD: Final = re.compile(
    rf"^(?P<who>i|we)(?P<short>'m|'re|'ve|'ll|'d)?\s(?P<adverb>{_ADVERB})(?P<verb>[\w'-]+)", re.IGNORECASE
)
_SHORT: Final = {"'m": "is", "'re": "is", "'ve": "has", "'ll": "will", "'d": "would"}
_PLAIN: Final = {
    "am": "is", "are": "is", "was": "was", "were": "was", "have": "has", "do": "does", "don't": "does not",
    "haven't": "has not", "can't": "cannot", "cannot": "cannot", "can": "can", "won't": "will not", "will": "will",
    "would": "would", "didn't": "did not", "couldn't": "could not", "go": "goes", "wasn't": "was not",
}  # fmt: skip
_PAST: Final = frozenset(
    [
        "chose",
        "picked",
        "got",
        "grew",
        "went",
        "had",
        "made",
        "took",
        "bought",
        "left",
        "lost",
        "quit",
        "began",
        "became",
        "came",
        "met",
        "won",
        "gave",
        "found",
        "kept",
        "ran",
        "used",
        "built",
        "taught",
        "told",
        "thought",
        "brought",
        "held",
        "wrote",
        "said",
        "saw",
        "did",
        "felt",
        "broke",
        "set",
        "put",
        "let",
        "cut",
        "fell",
        "drove",
        "could",
        "might",
        "must",
        "should",
        "needed",
        "sold",
        "spent",
        "taught",
        "threw",
        "hurt",
    ]
)
_INSIDE: Final = (
    (re.compile(r"\bI'm\b|\b[Ww]e're\b|\bI am\b|\bwe are\b"), "they are"),
    (re.compile(r"\bI've\b|\b[Ww]e've\b"), "they have"),
    (re.compile(r"\bI'll\b|\b[Ww]e'll\b"), "they will"),
    (re.compile(r"\bI'd\b|\b[Ww]e'd\b"), "they would"),
    (re.compile(r"\bI was\b"), "they were"),
    (re.compile(r"\bI\b|\b[Ww]e\b"), "they"),
    (re.compile(r"\b(?:me|us)\b"), "them"),
    (re.compile(r"\b(?:my|our)\b"), "their"),
    (re.compile(r"\b(?:mine|ours)\b"), "theirs"),
    (re.compile(r"\b(?:myself|ourselves)\b"), "themselves"),
)
_NEXT_VERB: Final = re.compile(
    r"(\b(?:and|or) (?:also |usually |often |always )?)(work|live|love|like|hate|enjoy|have|play|eat|drink|go|use|own|run|study|teach|"
    r"prefer|speak|read|watch|make|take|need|want)\b(?! of\b)"
)
_OWNED: Final = re.compile(r"\b(?:my|our)\b", re.IGNORECASE)
_RELATIVE: Final = re.compile(rf"\b(?:I|we) (?P<adverb>{_ADVERB})(?P<verb>[\w']+)$")
_TRAILING: Final = re.compile(r"[^\w\"')\]%+#]+$")
_BLANKS: Final = re.compile(r"\s+")


def third(verb: str) -> str:
    """The third person of a verb; forms of the past and auxiliaries stay."""
    low = verb.lower()
    if low in _PLAIN:
        return _PLAIN[low]
    if low in _PAST or low.endswith(("ed", "ing", "n't")):
        return low
    if low.endswith(("s", "sh", "ch", "x", "z", "o")):
        return low + "es"
    if low.endswith("y") and low[-2:-1] not in set("aeiou"):
        return low[:-1] + "ies"
    return low + "s"


def of_third_person(clause: str, name: str) -> str:
    """A clause about the speaker as a sentence about somebody of that name: "I love my cat" → "Eve loves their cat."."""
    said = _BLANKS.sub(" ", clause).strip(" ,.!?;:-")
    head = _HEAD.match(said)
    if head:
        rest = said[head.end() :]
        verb = head["verb"] if head["short"] else third(head["verb"])
        verb = "going to" if verb.lower() == "gonna" else verb
        if not head["short"] and verb != head["verb"].lower() and head["verb"].lower() not in _PLAIN:
            rest = _NEXT_VERB.sub(lambda m: m[1] + third(m[2]), rest)
        adverb = re.sub(r"\bboth\b ?", "", head["adverb"], flags=re.IGNORECASE).strip()
        words = [name, _SHORT.get((head["short"] or "").lower(), ""), adverb, verb]
        return _finished(" ".join(word for word in words if word) + _inside(rest))
    relative = _RELATIVE.search(said)
    if relative:
        told = f"{name} {relative['adverb']}{third(relative['verb'])}"
        return _finished(_capital(_inside(said[: relative.start()]) + told))
    owned = _OWNED.search(said)
    if owned:
        return _finished(_capital(_inside(said[: owned.start()]) + f"{name}'s" + _inside(said[owned.end() :])))
    told = re.sub(r"\b(?:me|us)\b", lambda _: name, said, count=1)
    if told != said:
        return _finished(_capital(_inside(told)))
    return _finished(f"{name}: {_inside(said)}")


def asked(clause: str, name: str) -> str:
    """A standing instruction, as what somebody asks for: "Please always answer in French" → "Eve asks: always …"."""
    said = _BLANKS.sub(" ", clause).strip(" ,.!?;:-")
    said = re.sub(r"^(?:please|pls|and|but|so|oh|ok|okay|well|also)\b[,\s]*", "", said, flags=re.IGNORECASE)
    return _finished(f"{name} asks: {said[:1].lower()}{_inside(said[1:])}")


def planned(clause: str, name: str) -> str:
    """A plan whose subject is left out: "Gonna move in May" → "Eve is going to move in May."."""
    said = _BLANKS.sub(" ", clause).strip(" ,.!?;:-")
    first, _, rest = said.partition(" ")
    lead = {"gonna": "is going to", "planning": "is planning", "going": "is going", "moving": "is moving"}
    return _finished(f"{name} {lead.get(first.lower(), first.lower())} {_inside(rest)}")


def agreed(clause: str, name: str) -> str:
    """A proposal that settles something: "Let's go with Postgres" → "Eve decides to go with Postgres."."""
    said = _BLANKS.sub(" ", clause).strip(" ,.!?;:-")
    rest = re.sub(r"^(?:let's|let us)\s(?:just\s)?", "", said, flags=re.IGNORECASE)
    return _finished(f"{name} decides to {_inside(rest)}")


def _inside(text: str) -> str:
    for pattern, put in _INSIDE:
        text = pattern.sub(put, text)
    return text


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _finished(text: str) -> str:
    bare = _TRAILING.sub("", text)
    return f'{bare}".' if bare.count('"') % 2 else f"{bare}."
