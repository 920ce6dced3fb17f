"""What happens to the vectors."""

from dataclasses import dataclass
from typing import TypeAlias

from engramlog.schemas.derived import RecallChangedEvent, RecordDerived


@dataclass(frozen=True, slots=True)
class Written:
    """A record was derived.

    Attributes:
        event: What was derived.
        sequence: Offset of the event in the derived topic.
        partition: Partition of the record.
    """

    event: RecordDerived
    sequence: int
    partition: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """Nothing is derived from a record any more: a tombstone for its key.

    Attributes:
        tenant: The tenant.
        agent: The agent.
        record_id: The record.
        sequence: Offset of the tombstone in the derived topic; what was written later stays.
    """

    tenant: str
    agent: str
    record_id: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Left:
    """Records leave recall.

    Attributes:
        event: Which ones, and why.
        partition: Partition of the records.
    """

    event: RecallChangedEvent
    partition: int


@dataclass(frozen=True, slots=True)
class Unhinted:
    """A mark was taken back: an agent's records may be recalled again. The reader looks up which.

    Attributes:
        tenant: The tenant.
        agent: The agent.
    """

    tenant: str
    agent: str


Change: TypeAlias = Written | Dropped | Left | Unhinted
