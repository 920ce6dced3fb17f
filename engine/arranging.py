"""Which memories are shown, and in which order: those that contradict each other stand together. Pure."""

from collections.abc import Collection, Sequence

from engramlog.schemas.recalls import RecallHit

Pair = tuple[int, int]


def brought_in(chosen: Sequence[int], pairs: Collection[Pair]) -> list[int]:
    """Put a memory that contradicts a chosen one, but just missed the limit, in the place of the last one that is free.

    Free is what contradicts nothing; the first memory is never given up.

    Args:
        chosen: Places of the chosen memories in the list of the best, in their order.
        pairs: Places that contradict each other.

    Returns:
        As many places as were chosen.
    """
    found = list(chosen)
    for one, other in sorted(pairs):
        for here, missing in ((one, other), (other, one)):
            if here in found and missing not in found:
                tied = {place for pair in pairs for place in pair if pair[0] in found and pair[1] in found}
                free = [place for place in found[1:] if place not in tied and place != here]
                if free:
                    found.remove(free[-1])
                    found.append(missing)
    return found


def together(places: Sequence[int], pairs: Collection[Pair]) -> list[int]:
    """The places in their order, but each followed by those that contradict it, and by those that contradict these."""
    beside: dict[int, list[int]] = {place: [] for place in places}
    for one, other in pairs:
        if one in beside and other in beside:
            beside[one].append(other)
            beside[other].append(one)
    order = {place: i for i, place in enumerate(places)}
    found: dict[int, None] = {}
    for place in places:
        waiting = [place]
        while waiting:
            here = waiting.pop(0)
            if here not in found:
                found[here] = None
                waiting += sorted(beside[here], key=order.__getitem__)
    return list(found)


def fitting(hits: Sequence[RecallHit], *, max_bytes: int) -> tuple[RecallHit, ...]:
    """The first hits that take ``max_bytes`` of JSON together. Conflicts with those that do not fit are not named."""
    kept, room = list[RecallHit](), max_bytes
    for hit in hits:
        room -= len(hit.model_dump_json(exclude_defaults=True).encode()) + 1
        if room < 0:
            break
        kept.append(hit)
    if len(kept) == len(hits):
        return tuple(kept)
    ids = {hit.stored.record.record_id for hit in kept}
    return tuple(
        hit.model_copy(update={"conflicts": tuple(c for c in hit.conflicts if c in ids)}) if hit.conflicts else hit
        for hit in kept
    )
