"""What a context is packed from, made ready: each record once, counted on demand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from engramlog.engine.tokens import O200K, Encoding, count_message
from engramlog.schemas.contexts import StoredSummary
from engramlog.schemas.formats.openai import to_openai
from engramlog.schemas.recalls import RecallHit
from engramlog.schemas.records import MemoryRecord
from engramlog.schemas.stored import ContextRecord, StoredRecord

Message = dict[str, Any]

_NOT_SAID: Final = frozenset({"extracted", "summary", "recall"})
"""Origins of records that nobody said: such a user record is not the newest user message."""


@dataclass(frozen=True, slots=True)
class Material:
    """What was read for a context.

    Attributes:
        head: The leading system or developer record.
        core: Core memories, in the order to show them.
        summaries: Active summaries of the talk, in any order.
        recalled: Memories, best first. More than the query's limit are welcome: they take the place of those that stand
            in the context already.
        recent: The recent records, oldest first, without what summaries hide; scores as the history gives them.
        pending: The newest user message, when it is not stored yet.
    """

    head: StoredRecord | None = None
    core: Sequence[StoredRecord] = ()
    summaries: Sequence[StoredSummary] = ()
    recalled: Sequence[RecallHit] = ()
    recent: Sequence[ContextRecord] = ()
    pending: MemoryRecord | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A recent record.

    Attributes:
        record: The record.
        score: Its score.
        position: Its place among the recent ones, from 0, the oldest.
    """

    record: MemoryRecord
    score: float
    position: int


@dataclass(slots=True)
class Sizes:
    """Messages and tokens of records, each made and counted once.

    Attributes:
        encoding: The encoding to count in.
        known: Tokens by record id, as stored: of ``o200k_base``. For another encoding they say nothing.
    """

    encoding: Encoding
    known: Mapping[str, int] = field(default_factory=dict)
    _messages: dict[str, Message] = field(default_factory=dict)
    _counted: dict[str, int] = field(default_factory=dict)

    def message(self, record: MemoryRecord) -> Message:
        """The OpenAI message of a record."""
        found = self._messages.get(record.record_id)
        if found is None:
            found = self._messages[record.record_id] = to_openai(record)
        return found

    def tokens(self, record: MemoryRecord) -> int:
        """Its tokens: those that are known, else counted."""
        if self.encoding.name == O200K.name and (known := self.known.get(record.record_id)) is not None:
            return max(0, known)
        return self.counted(record)

    def counted(self, record: MemoryRecord) -> int:
        """Its tokens, counted."""
        found = self._counted.get(record.record_id)
        if found is None:
            found = self._counted[record.record_id] = count_message(self.message(record), self.encoding)
        return found


def turns_of(material: Material) -> list[Turn]:
    """The recent records and the pending one, oldest first; of two copies of a record the newer one, no head."""
    records = [(recent.record, recent.score) for recent in material.recent]
    stored = {record.record_id for record, _ in records}
    if material.pending is not None and material.pending.record_id not in stored:
        records.append((material.pending, 1.0))
    seen = {material.head.record.record_id} if material.head is not None else set()
    kept: list[tuple[MemoryRecord, float]] = []
    for record, score in reversed(records):
        if record.record_id not in seen:
            seen.add(record.record_id)
            kept.append((record, score))
    kept.reverse()
    return [Turn(record, score, position) for position, (record, score) in enumerate(kept)]


def newest_user(turns: Sequence[Turn]) -> Turn | None:
    """The newest message that a user said."""
    for turn in reversed(turns):
        if turn.record.role == "user" and turn.record.origin not in _NOT_SAID:
            return turn
    return None


def standing_core(material: Material, now: datetime) -> list[StoredRecord]:
    """The core memories that hold: each once, not expired, not invalidated, not the head."""
    seen = {material.head.record.record_id} if material.head is not None else set()
    kept = []
    for stored in material.core:
        expires, record_id = stored.record.expires_at, stored.record.record_id
        if record_id in seen or stored.invalidated is not None or (expires is not None and expires <= now):
            continue
        seen.add(record_id)
        kept.append(stored)
    return kept


def standing_summaries(material: Material) -> list[StoredSummary]:
    """The active summaries, each once, without those that another one stands for or replaced."""
    latest = {stored.summary.summary_id: stored for stored in material.summaries if stored.active}
    gone = {
        summary_id
        for stored in latest.values()
        for summary_id in (*stored.summary.covers.summary_ids, *stored.summary.replaces)
    }
    return [stored for summary_id, stored in latest.items() if summary_id not in gone]
