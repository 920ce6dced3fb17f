"""One record on its way to ``record.derived``; the fold over its session; and what mutations mean for recall. Pure."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from engramlog.engine import texts
from engramlog.engine.derivers.rules import follow_only, understand
from engramlog.engine.derivers.topics import SessionState
from engramlog.engine.derivers.understanding import Understanding
from engramlog.engine.embedding import Embedded
from engramlog.engine.history.deriving import Address, SessionFold, Turn
from engramlog.engine.history.marks import effective
from engramlog.engine.history.recalling import LEAVING
from engramlog.engine.history.work import RecordKey
from engramlog.engine.history.writing import UNSAID
from engramlog.engine.log import Entry
from engramlog.engine.recorded import first_vector, original
from engramlog.engine.terms import term_counts
from engramlog.schemas import derived as d
from engramlog.schemas.codec import derived_codec
from engramlog.schemas.envelope import (
    AgentEvent,
    Envelope,
    HistoryClearedEvent,
    RecordInvalidatedEvent,
    RecordsRemovedEvent,
    RecordWritten,
)
from engramlog.schemas.errors import TooLarge
from engramlog.schemas.json_values import JsonObject
from engramlog.schemas.records import MemoryRecord

SOURCE = "engramlog.derive"
_NAMESPACE = uuid.UUID("3f0c7a52-6f0e-5a55-9a6a-0f6f6d1e7a11")
_METADATA_BYTES = 65_536
INSTRUCTING = ("system", "developer")
"""Roles that give rules to the talk, and take no part in it."""
_FEWER_TERMS = 512
TRIMMED = "terms and metadata: too many for one event"
"""How an event says so that was too large; to derive it again would not help."""

Outgoing = tuple[bytes, bytes | None]
"""Key and value of a message; None: a tombstone."""


@dataclass(frozen=True, slots=True)
class DeriveConfig:
    """What derivations are made with.

    Attributes:
        generation: The generation, from 1.
        metadata_keys: What is kept of a metadata object that is too large to be copied.
        rules: What the rules are called in the events.
    """

    generation: int = 1
    metadata_keys: tuple[str, ...] = ()
    rules: str = "rules.v1"


@dataclass(slots=True)
class Task:
    """One record that is being derived.

    Attributes:
        event: The record.
        offset: Where it lies.
        address: Its session, as its user has it.
        text: What it says.
        turn: The how-many-th of its session it is.
        previous: The end of the text before it.
        embedded: Its vectors, once they are made.
        understanding: What it means, once it is understood.
        deriver: Who understood it.
        degraded: What was done in a simpler way than configured.
        again: It was corrected: it takes its session's label, and leaves the session where it is.
        said: Whether somebody said it: what was extracted or summarised is understood by itself.
        kept: What an earlier generation derived of it, and what stands.
    """

    event: RecordWritten
    offset: int
    address: Address
    text: str
    turn: int
    previous: str = ""
    embedded: Embedded = field(default_factory=Embedded)
    understanding: Understanding | None = None
    deriver: str = ""
    degraded: tuple[str, ...] = ()
    said: bool = True
    again: bool = False
    kept: d.Derived | None = None

    def keep(self, found: d.Derived) -> None:
        """Let stand what was derived before."""
        self.kept = found
        self.embedded = Embedded(found.embedding, first_vector(found), found.unembedded)
        self.understanding = Understanding(
            found.topic, found.importance, found.keywords, found.entities, found.relations, found.language
        )
        self.deriver, self.degraded = found.deriver, tuple(why for why in found.degraded if why != TRIMMED)


class Folding:
    """The sessions of a run, while it is derived.

    Args:
        folds: As they were before the run.

    Attributes:
        folds: As they are now.
        turns: Which turns the run's records are.
    """

    def __init__(self, folds: Mapping[Address, SessionFold]) -> None:
        self.folds = dict(folds)
        self.turns: dict[RecordKey, Turn] = {}

    def begin(self, entry: Entry, event: RecordWritten) -> Task | None:
        """Take a record into its session; None: there is nothing in it to derive."""
        address, text = address_of(event), texts.content(event.data)
        fold = self.folds[address]
        self.turns[event.tenantid, event.agentid, event.data.record_id] = Turn(fold.turns, address[2], address[3])
        if text.strip() and not is_said(event.data):
            turns = fold.turns + int(event.data.origin not in UNSAID)
            self.folds[address] = replace(fold, turns=turns)
            return Task(event, entry.offset, address, text, fold.turns, said=False)
        if not text.strip() or event.data.origin == "recall":
            self.folds[address] = replace(fold, turns=fold.turns + 1)
            return None
        self.folds[address] = replace(fold, turns=fold.turns + 1, last=texts.previous(event.data))
        return Task(event, entry.offset, address, text, fold.turns, fold.last)

    def understand(self, tasks: Sequence[Task], *, rules: str) -> None:
        """Understand the records one after the other, each after what its session had come to."""
        for task in tasks:
            if task.kept is not None:
                self._follow(task, task.kept, rules=rules)
                continue
            fold = self.folds.get(task.address) if task.said else None
            task.understanding, state = understand(task.event.data, task.text, _known(fold), vector=task.embedded.first)
            if task.event.data.role in INSTRUCTING:  # what the talk is about is not said by its rules
                task.understanding = replace(task.understanding, topic=task.event.data.topic)
            task.deriver = rules
            if fold is not None and not task.again:
                self.folds[task.address] = replace(fold, topic=state.model_dump_json())

    def begin_again(self, entry: Entry, event: RecordWritten, copies: Sequence[d.RecordDerived]) -> Task | None:
        """Take a record into its session that was derived before, as the turn that it was then.

        Compaction may have taken earlier copies of records, which were turns, too.
        """
        if copies:
            address = address_of(event)
            self.folds[address] = replace(self.folds[address], turns=copies[-1].data.turn)
        return self.begin(entry, event)

    def follow(self, tasks: Sequence[tuple[Task, Sequence[d.RecordDerived]]], *, rules: str) -> int:
        """Follow the talk over records that were derived before, by what was derived: no model is asked.

        The label is the recorded one, wherever the rules chose it, whatever they would say by now.

        Args:
            tasks: The records, each with what was derived of it.
            rules: What the rules of today are called.

        Returns:
            Of how many records nothing is left that was derived when they were written: their vectors are missing in
            the running topic.
        """
        missing = 0
        for task, copies in tasks:
            found = original(copies, task.event)
            missing += found is None
            self._follow(task, found, rules=rules)
        return missing

    def _follow(self, task: Task, found: d.Derived | None, *, rules: str) -> None:
        """Follow the talk over one record; None: nothing is left of what was derived of it."""
        if not task.said or task.again:
            return
        fold, record = self.folds[task.address], task.event.data
        vector = None if found is None else first_vector(found)
        state = follow_only(record, task.text, _known(fold), vector=vector)
        others = found is not None and found.deriver != rules and found.deriver.startswith("rules.")
        if found is not None and others and record.topic is None:
            state = state.model_copy(update={"topic": found.topic})
        self.folds[task.address] = replace(fold, topic=state.model_dump_json())


def _known(fold: SessionFold | None) -> SessionState | None:
    """The running topic; one that an older version wrote in another shape begins anew."""
    if fold is None or not fold.topic:
        return None
    try:
        return SessionState.model_validate_json(fold.topic)
    except ValidationError:
        return None


def is_degraded(found: d.Derived) -> bool:
    """Whether something was derived in a simpler way than configured, and could be derived better."""
    return any(why != TRIMMED for why in found.degraded)


def is_said(record: MemoryRecord) -> bool:
    """Whether somebody said it in a talk: no instruction, and nothing that was made of what others said."""
    return record.origin not in UNSAID and record.role not in INSTRUCTING


def address_of(event: AgentEvent) -> Address:
    """The session of an event, as its user has it."""
    return event.tenantid, event.agentid, event.sessionid or "", event.userid or ""


def addresses(entries: Sequence[Entry]) -> set[Address]:
    """The sessions whose folds a run needs."""
    return {address_of(entry.event) for entry in entries if isinstance(entry.event, RecordWritten)}


def change_of(entry: Entry) -> d.RecallChangedEvent | None:
    """What a mutation means for recall; None: nothing."""
    event = entry.event
    if isinstance(event, HistoryClearedEvent) and event.data.scope in LEAVING:
        change = d.RecallChanged(cause="cleared", before=effective(entry, event), users=event.data.users)
    elif isinstance(event, RecordsRemovedEvent) and event.data.scope in LEAVING:
        change = d.RecallChanged(cause="removed", before=effective(entry, event), ids=event.data.ids)
    elif isinstance(event, RecordInvalidatedEvent):
        change = d.RecallChanged(cause="invalidated", before=effective(entry, event), ids=(event.data.id,))
    else:
        return None
    return d.RecallChangedEvent(id=event.id, agentid=event.agentid, data=change, **envelope_of(event))


def envelope_of(event: Envelope) -> dict[str, Any]:
    """What an outcome inherits from the event that caused it. The time is the cause's: doing it again is no change."""
    return {
        "source": SOURCE,
        "time": event.time,
        "tenantid": event.tenantid,
        "sessionid": event.sessionid,
        "userid": event.userid,
        "correlationid": event.correlationid,
        "causationid": event.id,
    }


def message_of(task: Task, config: DeriveConfig) -> Outgoing:
    """The ``record.derived`` of a record, encoded. One that is too large loses what recall can do without."""
    event = _event_of(task, config)
    try:
        return event.key(), derived_codec().encode(event)
    except TooLarge:
        data = event.data
        common = sorted(data.terms, key=lambda term: (-data.terms[term], term))[:_FEWER_TERMS]
        changes: dict[str, Any] = {
            "metadata": {},
            "entities": (),
            "relations": (),
            "terms": {term: data.terms[term] for term in common},
            "degraded": (*data.degraded, TRIMMED),
        }
        smaller = event.model_copy(update={"data": data.model_copy(update=changes)})
        return smaller.key(), derived_codec().encode(smaller)


def _event_of(task: Task, config: DeriveConfig) -> d.RecordDerived:
    record, found = task.event.data, task.understanding
    assert found is not None
    terms, length = term_counts(texts.searchable(record))
    place = f"{task.event.key().decode()}@{task.offset}/g{config.generation}"
    return d.RecordDerived(
        id=str(uuid.uuid5(_NAMESPACE, place)),
        agentid=task.event.agentid,
        data=d.Derived(
            record_id=record.record_id,
            offset=task.offset,
            generation=config.generation,
            turn=task.turn,
            role=record.role,
            role_name=record.role_name,
            layer=record.layer,
            kind=record.kind,
            origin=record.origin,
            tags=record.tags,
            confidence=record.confidence,
            timestamp=record.timestamp,
            expires_at=record.expires_at,
            metadata=_kept(record.metadata, config.metadata_keys),
            topic=found.topic,
            importance=found.importance,
            keywords=found.keywords,
            entities=found.entities,
            relations=found.relations,
            language=found.language,
            embedding=task.embedded.vectors,
            unembedded=task.embedded.unembedded,
            terms=terms,
            length=length,
            deriver=task.deriver,
            degraded=task.degraded,
        ),
        **envelope_of(task.event),
    )


def _kept(metadata: JsonObject, keys: Sequence[str]) -> JsonObject:
    """The metadata, or of a large object the values that recall can filter by."""
    size = len(json.dumps(metadata, ensure_ascii=False).encode())
    if size <= _METADATA_BYTES:
        return metadata
    kept: JsonObject = {}
    for key in keys:
        *path, last = key.split(".")
        inner: Any = metadata
        for part in path:
            inner = inner.get(part) if isinstance(inner, dict) else None
        if isinstance(inner, dict) and last in inner and len(str(inner[last])) <= _METADATA_BYTES // len(keys):
            place: Any = kept
            for part in path:
                place = place.setdefault(part, {})
            place[last] = inner[last]
    return kept
