"""A phrase that may name a subject."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase that may name a subject.

    Attributes:
        text: As it stands in the text, in lower case but for names.
        stems: Its words, folded, so that *game* and *games* meet.
        weight: How well it names a subject; above 1: well.
        place: Where it stands: 0 is the beginning of the text, 1 its end.
    """

    text: str
    stems: tuple[str, ...]
    weight: float
    place: float
