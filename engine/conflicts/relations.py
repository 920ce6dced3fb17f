"""How two claims exclude each other."""

from collections.abc import Iterable

from engramlog.engine.conflicts.chinese_patterns import KIN
from engramlog.engine.conflicts.claims import ANY, Claim
from engramlog.engine.gazetteer import is_country

_SHORTEST_PART = 2


def _has(part: str, whole: str) -> bool:
    return len(part) >= _SHORTEST_PART and not whole.isascii() and part in whole


def _covers(denied: frozenset[str], affirmed: frozenset[str]) -> bool:
    """Whether all that is denied is among what is affirmed. Chinese text is looked for inside of longer text."""
    if ANY in denied:
        return True
    return bool(denied) and all(w in affirmed or any(_has(w, whole) for whole in affirmed) for w in denied)


def _related(one: frozenset[str], other: frozenset[str]) -> bool:
    return any(a == b or _has(a, b) or _has(b, a) for a in one for b in other)


def excludes(one: Claim, other: Claim) -> bool:
    """Whether two claims of one slot, of the same holder, cannot both be true."""
    if one.slot == "is":
        return _of_one_thing(one, other) and _differ(one, other)
    if one.positive != other.positive:
        no, yes = (other, one) if one.positive else (one, other)
        if one.slot.startswith("one:"):
            return _related(no.words, yes.words) or bool(no.values & yes.values)
        return _covers(no.words, yes.words)
    return one.slot.startswith("one:") and one.positive and _are_two(one, other)


def _are_two(one: Claim, other: Claim) -> bool:
    """Whether two affirmed claims name two of what there is one of."""
    if one.values or other.values:
        return _differ(one, other)
    nested = one.slot in {"one:home", "one:origin"} and any(map(is_country, one.words)) != any(
        map(is_country, other.words)
    )
    return bool(one.words and other.words) and not nested and not _related(one.words, other.words)


def _of_one_thing(one: Claim, other: Claim) -> bool:
    a, b = one.holder, other.holder
    if a == b:
        return True
    if a.isascii() and b.isascii():
        less, more = sorted((set(a.split()), set(b.split())), key=len)
        return less <= more and not any("'" in word for word in more - less)
    short, long = sorted((a, b), key=len)
    return len(short) >= _SHORTEST_PART and long.endswith(short) and not KIN.search(long.removesuffix(short))


def _differ(one: Claim, other: Claim) -> bool:
    """Whether typed values exclude each other: of one kind, and none in common."""
    if one.positive != other.positive:
        no, yes = (other, one) if one.positive else (one, other)
        return bool(no.values & yes.values) or (not no.values and _covers(no.words, yes.words))
    if not one.positive:
        return False
    for kind in {kind for kind, _ in one.values} & {kind for kind, _ in other.values}:
        mine = {value for k, value in one.values if k == kind}
        if mine.isdisjoint(value for k, value in other.values if k == kind):
            return True
    return False


def given_up(one: Claim, other: Claim) -> bool:
    """Whether one says that what the other affirms was given up or replaced."""
    if (one.slot == "gone") == (other.slot == "gone"):
        return False
    gone, kept = (one, other) if one.slot == "gone" else (other, one)
    names = frozenset(value for kind, value in kept.values if kind.startswith("name"))
    named = names if kept.slot == "is" else kept.words
    return kept.positive and _covers(gone.words, named)


def consistent(claims: Iterable[Claim]) -> list[Claim]:
    """Without what the same text says is over: "I switched from A to B" does not affirm A."""
    found = list(claims)
    denials = [claim for claim in found if not claim.positive]
    return [claim for claim in found if not (claim.positive and any(_is_over(claim, denial) for denial in denials))]


def _is_over(claim: Claim, denial: Claim) -> bool:
    if denial.slot == "gone":
        return given_up(denial, claim)
    return (claim.holder, claim.slot) == (denial.holder, denial.slot) and excludes(claim, denial)
