"""What a deriver understood of one record."""

from dataclasses import dataclass, replace

from engramlog.schemas.derived import Entity, Relation
from engramlog.schemas.records import MemoryRecord


@dataclass(frozen=True, slots=True)
class Understanding:
    """What the text of one record says.

    Attributes:
        topic: A short label in the language of the talk; None: nothing was talked about yet.
        importance: 0 to 1.
        keywords: The words that carry the text, best first, at most 12.
        entities: What it names, in the order of the text.
        relations: What it states.
        language: ISO 639-1 code of the text's language; None: unknown.
    """

    topic: str | None
    importance: float
    keywords: tuple[str, ...]
    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...]
    language: str | None


def settled(record: MemoryRecord, understanding: Understanding) -> Understanding:
    """The understanding in which the publisher's own topic and importance stand, where the record holds them."""
    return replace(
        understanding,
        topic=understanding.topic if record.topic is None else record.topic,
        importance=understanding.importance if record.importance is None else record.importance,
    )
