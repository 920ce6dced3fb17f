"""A claim: what one clause says of somebody or something, in a form that can be compared."""

from dataclasses import dataclass, field

ME = "\x00me"
"""The speaker, until it is known who that is."""

USER = "\x00user"
"""Whom an extracted fact calls "the user"."""

IMPLIED = "\x00implied"
"""The speaker, where a Chinese sentence names nobody."""

RULE = "\x00rule"
"""What an instruction is about."""

ANY = "*"
"""A denial that names no object ("I do not smoke") denies them all."""

Value = tuple[str, str]
"""A kind of value (``weekday``, ``num:km``, ``name``) and the value in its one spelling."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement.

    Attributes:
        holder: Of whom or what: :data:`ME`, :data:`USER`, :data:`RULE`, or the words that name it.
        slot: What is said: ``eat``, ``have``, ``opinion``, ``is``, ``do:swim``, ``one:home``, …; of what begins with
            ``one:`` there is one at a time.
        words: What it is about: stems, Chinese text and names of things; an affirmed one holds the kinds that a thing
            belongs to as well, a denied one does not ("no meat" denies steak, "no steak" does not deny meat).
        positive: Affirmed, or denied.
        values: Typed values, for ``is`` and ``one:``.
        owned: The holder is the speaker's ("my car"): another speaker's is another thing.
    """

    holder: str
    slot: str
    words: frozenset[str] = frozenset()
    positive: bool = True
    values: frozenset[Value] = field(default_factory=frozenset)
    owned: bool = False
