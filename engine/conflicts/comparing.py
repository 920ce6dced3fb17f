"""Which claims exclude each other, and which records hold such claims."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from engramlog.engine.conflicts.claims import ME, RULE, USER, Claim
from engramlog.engine.conflicts.reading import claims_of
from engramlog.engine.conflicts.relations import excludes, given_up
from engramlog.schemas.stored import StoredRecord


@dataclass(frozen=True, slots=True)
class _Stated:
    """A claim of one record.

    Attributes:
        index: The record.
        user: Its user.
        speaker: Whose statement it is, where it is of the speaker or of what is theirs; empty: of a thing for all.
        claim: The claim.
    """

    index: int
    user: str | None
    speaker: str
    claim: Claim


def conflicts(records: Sequence[StoredRecord]) -> list[tuple[int, int]]:
    """Pairs of records that contradict each other, or of which one was explicitly superseded by the other.

    By rules, from the texts alone: a few milliseconds for 40 records. Statements of different users or speakers about
    themselves never conflict; questions, hypotheses and the words of others state nothing.

    Args:
        records: Records in any order.

    Returns:
        Pairs of indices, the lower first, in ascending order, each once.
    """
    found = set(_superseded(records))
    things: dict[str, list[_Stated]] = defaultdict(list)
    for stated in _all_stated(records):
        things[_bucket(stated.claim)].append(stated)
        if stated.claim.slot in {"gone", "one:work", "one:home", "is"} or stated.claim.slot.startswith("do"):
            things["gone"].append(stated)
    for bucket, group in things.items():
        exclude = given_up if bucket == "gone" else excludes
        for one, other in combinations(group, 2):
            pair = (min(one.index, other.index), max(one.index, other.index))
            if (
                one.index != other.index
                and pair not in found
                and _same_world(one, other)
                and exclude(one.claim, other.claim)
            ):
                found.add(pair)
    return sorted(found)


def _superseded(records: Sequence[StoredRecord]) -> list[tuple[int, int]]:
    places = {stored.record.record_id: index for index, stored in enumerate(records)}
    pairs = []
    for index, stored in enumerate(records):
        by = stored.invalidated.replaced_by if stored.invalidated else None
        if by is not None and places.get(by, index) != index:
            pairs.append((min(index, places[by]), max(index, places[by])))
    return pairs


def _all_stated(records: Sequence[StoredRecord]) -> list[_Stated]:
    found = []
    for index, stored in enumerate(records):
        name = (stored.record.role_name or "").strip().lower()
        for claim in claims_of(stored.record.content):
            if claim.holder in {ME, USER}:
                speaker = (
                    "user"
                    if claim.holder == USER or (stored.record.role == "user" and not name)
                    else name or stored.record.role
                )
                found.append(_Stated(index, stored.user, speaker, replace(claim, holder=ME)))
            elif claim.holder == RULE or claim.owned:
                found.append(_Stated(index, stored.user, name or stored.record.role, claim))
            else:
                found.append(_Stated(index, stored.user, "", claim))
                # "Anna lives in Leeds" is about the speaker named Anna.
                if claim.slot != "is":
                    found.append(_Stated(index, stored.user, claim.holder, replace(claim, holder=ME)))
    return found


def _bucket(claim: Claim) -> str:
    if claim.slot in {"gone", "is"}:
        return claim.slot
    return (
        f"{claim.holder}\x1f{claim.slot}" if claim.slot.startswith("one:") else f"{claim.holder}\x1f{claim.slot[:24]}"
    )


def _same_world(one: _Stated, other: _Stated) -> bool:
    if one.claim.slot == "gone" or other.claim.slot == "gone":
        kept = one if other.claim.slot == "gone" else other
        return one.user == other.user and (one.speaker == other.speaker or kept.claim.slot == "is")
    if one.speaker or other.speaker:
        return one.user == other.user and (one.speaker == other.speaker or not (one.speaker and other.speaker))
    return one.user == other.user or one.user is None or other.user is None
