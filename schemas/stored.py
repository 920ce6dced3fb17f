"""Records as the stores know them."""

from engramlog.schemas.asking import Offset
from engramlog.schemas.instants import Instant
from engramlog.schemas.records import MemoryRecord, Wire
from engramlog.schemas.scope import Identifier


class Invalidation(Wire):
    """Why a record is no longer true.

    Attributes:
        offset: Where that was recorded.
        reason: Why, for people.
        replaced_by: The record that holds the truth now.
    """

    offset: Offset
    reason: str = ""
    replaced_by: Identifier | None = None


class StoredRecord(Wire):
    """A record as the history store knows it.

    Attributes:
        record: The record, corrected where it was corrected.
        session: Its session.
        user: Its user; None: shared.
        offset: Where its last copy lies, in the agent's partition.
        recorded: When the broker appended it.
        removed_at: Offset of the event that took it out of the window; None: it is in.
        corrected_at: Offset of the correction that is shown; None: as published.
        invalidated: Set when it is no longer true.
    """

    record: MemoryRecord
    session: Identifier | None = None
    user: Identifier | None = None
    offset: Offset
    recorded: Instant
    removed_at: Offset | None = None
    corrected_at: Offset | None = None
    invalidated: Invalidation | None = None


class ContextRecord(Wire):
    """A record and how much it counts.

    Attributes:
        stored: The record.
        score: 1.0 for the newest and for the protected head; ``keep_rate`` times as much for each step back.
    """

    stored: StoredRecord
    score: float

    @property
    def record(self) -> MemoryRecord:
        """The record itself."""
        return self.stored.record

    @property
    def timestamp(self) -> Instant:
        """When it happened."""
        return self.stored.record.timestamp
