"""What a consumer hands to a projection: a run of one partition, decoded."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from engramlog.schemas.derived import DerivedEvent
from engramlog.schemas.envelope import RecordEvent
from engramlog.schemas.keys import Key
from engramlog.schemas.summaries import SummaryEvent


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of an agent topic.

    Attributes:
        offset: Its offset.
        recorded_ms: When the broker appended it, milliseconds since the epoch (log append time).
        key: Its parsed key.
        event: The event in its newest version; None: a tombstone for the key.
        value: The event's bytes in its newest version (the message's own bytes, unless it was lifted); empty for a
            tombstone.
    """

    offset: int
    recorded_ms: int
    key: Key
    event: RecordEvent | DerivedEvent | SummaryEvent | None
    value: bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """A position whose message went to the dead letters.

    Attributes:
        offset: Its offset.
        reason: The reason code of the dead letter.
    """

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive messages of one partition, to be applied in one transaction.

    Offsets may have gaps (compaction makes them), never go back.

    Attributes:
        topic: Full topic name.
        partition: Partition.
        expected: What the checkpoint must say before: the next offset it wants.
        next: What it says afterwards.
        entries: The messages, in order.
        refused: What was dead-lettered among them.
    """

    topic: str
    partition: int
    expected: int
    next: int
    entries: tuple[Entry, ...] = ()
    refused: tuple[Refused, ...] = field(default=())


def halves(run: Run) -> Iterator[Run]:
    """A run of several entries in two: what the store cannot hold is found by halving."""
    middle = len(run.entries) // 2
    border = run.entries[middle].offset
    before = tuple(r for r in run.refused if r.offset < border)
    after = tuple(r for r in run.refused if r.offset >= border)
    yield replace(run, next=border, entries=run.entries[:middle], refused=before)
    yield replace(run, expected=border, entries=run.entries[middle:], refused=after)
