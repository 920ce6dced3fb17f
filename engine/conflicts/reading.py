"""From a text to its claims."""

import re
from functools import lru_cache

from engramlog.engine.conflicts.chinese import chinese_claims
from engramlog.engine.conflicts.claims import IMPLIED, Claim
from engramlog.engine.conflicts.english import english_claims
from engramlog.engine.conflicts.relations import consistent
from engramlog.engine.conflicts.sentences import MAX_CHARS, clauses_by_sentence

MAX_CLAIMS = 64
"""So many claims of a text are compared: a bound for the cost of a request, far above what a turn says."""

_HAN = re.compile(r"[㐀-鿿]")


def claims_of(text: str) -> tuple[Claim, ...]:
    """What a text states, at most :data:`MAX_CLAIMS` claims. Pure; the last few thousand texts are remembered."""
    return _claims(text[:MAX_CHARS])


@lru_cache(maxsize=4_096)
def _claims(text: str) -> tuple[Claim, ...]:
    claims: dict[Claim, None] = {}
    for clauses in clauses_by_sentence(text):
        carried: str | None = IMPLIED
        for clause in clauses:
            if _HAN.search(clause):
                found, carried = chinese_claims(clause, carried)
            else:
                found = list(english_claims(clause))
            claims.update(dict.fromkeys(found))
            if len(claims) >= MAX_CLAIMS:
                break
    return tuple(consistent(list(claims)[:MAX_CLAIMS]))
