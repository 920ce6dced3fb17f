"""From what is due to a summary's material, and from a summary to its events."""

import uuid
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, cast

from pydantic import ValidationError

from engramlog.engine import texts
from engramlog.engine.facts import facts
from engramlog.engine.history import History
from engramlog.engine.history.due import Due
from engramlog.engine.summarisers.passages import Passage, Summary, SummaryRefused
from engramlog.schemas.codec import invalid
from engramlog.schemas.envelope import AgentEvent, RecordsRemovedEvent, RecordWritten
from engramlog.schemas.errors import StoreUnavailable
from engramlog.schemas.records import Kind, MemoryRecord, RecordsRemoved
from engramlog.schemas.scope import Scope
from engramlog.schemas.stored import StoredRecord
from engramlog.schemas.summaries import (
    Covered,
    FailureCode,
    SummaryCreated,
    SummaryCreatedEvent,
    SummaryFailed,
    SummaryFailedEvent,
    Trigger,
)

SOURCE = "engramlog.summarise"
_NAMESPACE = uuid.UUID("0a6f5b0e-8a43-53d8-a1c5-7a5e0e1d9f37")
_STATED = 0.7
"""Confidence of what a language model extracted."""
_SOURCES = 255
_LINES, _LINE_CHARS = 100, 2_000
_PATIENCE = 5
"""After so many tries a summary is made of those summaries that are there."""
_BYTES = 50_000_000


@dataclass(frozen=True, slots=True)
class Material:
    """What a summary is made from.

    Attributes:
        passages: The texts, oldest first.
        records: The records; empty for a summary of summaries.
        time: When the last of it happened.
        recallable: The records that did not leave recall.
        below: The summaries of the lower level, for a summary of summaries.
    """

    passages: Sequence[Passage]
    records: Sequence[StoredRecord]
    time: datetime
    recallable: AbstractSet[str] = frozenset()
    below: Sequence[SummaryCreated] = ()


async def material_of(history: History, due: Due) -> Material | None:
    """The texts that a summary stands for, without what left the window or was recalled; None: there are none any more.

    Raises:
        StoreUnavailable: The history does not answer, or does not have all summaries of the lower level yet.
    """
    tenant, agent, session, _user = due.address
    scope = Scope(tenant, agent, session, users="all")
    if due.level > 1:
        return await _of_summaries(history, scope, due)
    read = await history.read_records(scope, due.record_ids, max_bytes=_BYTES)
    records = [
        s
        for s in read.answer.records
        if s.removed_at is None and s.record.origin != "recall" and texts.content(s.record).strip()
    ]
    if not records:
        return None
    passages = [_passage(stored.record) for stored in records]
    recallable = await history.recallable(scope, [stored.record.record_id for stored in records])
    return Material(passages, records, max(stored.record.timestamp for stored in records), recallable.keys())


async def _of_summaries(history: History, scope: Scope, due: Due) -> Material | None:
    found = await history.summaries_named(scope, due.summary_ids)
    if len(found) < len(due.summary_ids) and due.attempts < _PATIENCE:
        raise StoreUnavailable("the history does not have all the summaries yet")
    if not found:
        return None
    passages = [
        Passage(s.summary.summary_id, "", "assistant", s.summary.text, s.recorded, s.summary.importance, "turn")
        for s in found
    ]
    below = [stored.summary for stored in found]
    return Material(passages, (), max(stored.recorded for stored in found), below=below)


def _passage(record: MemoryRecord) -> Passage:
    return Passage(
        record_id=record.record_id,
        speaker=record.role_name or record.role,
        role=record.role,
        text=texts.content(record),
        timestamp=record.timestamp,
        importance=record.importance,
        kind=record.kind,
    )


def created(due: Due, summary: Summary, *, tokens: int, time: datetime) -> SummaryCreatedEvent:
    """The event of a summary.

    Raises:
        SummaryRefused: ``invalid``: it is not what a summary may be.
    """
    try:
        data = _data(due, summary, tokens=tokens)
    except ValidationError as error:
        raise SummaryRefused("invalid", f"the summary is malformed: {invalid(error)}") from error
    return SummaryCreatedEvent(id=due.summary_id, data=data, **_envelope(due, time))


def created_again(due: Due, summary: SummaryCreated, *, time: datetime) -> SummaryCreatedEvent:
    """The event of a summary that was made before, for what goes with it."""
    return SummaryCreatedEvent(id=due.summary_id, data=summary, **_envelope(due, time))


def is_own(event: RecordWritten) -> bool:
    """Whether a record is a summary itself, as a long-term memory: ours, and named as it."""
    return event.data.origin == "summary" and event.source == SOURCE


def _data(due: Due, summary: Summary, *, tokens: int) -> SummaryCreated:
    return SummaryCreated(
        summary_id=due.summary_id,
        text=summary.text.strip(),
        facts=_lines(summary.facts),
        preferences=_lines(summary.preferences),
        decisions=_lines(summary.decisions),
        open_tasks=_lines(summary.open_tasks),
        level=due.level,
        covers=_covers(due),
        at=due.at,
        tokens_before=due.tokens,
        tokens_after=tokens,
        model=summary.model,
        prompt=summary.prompt,
        language=summary.language,
        topic=summary.topic or None,
        importance=summary.importance,
        reason=cast("Any", due.reason),
        trigger=cast("Trigger", due.trigger),
        replaces=due.replaces,
        raw=summary.raw,
    )


def inheriting(summary: Summary, below: Sequence[SummaryCreated]) -> Summary:
    """A summary of summaries, with the facts, preferences, decisions and open tasks that stand in theirs, each once."""
    lists = ("facts", "preferences", "decisions", "open_tasks")
    merged: dict[str, Any] = {
        name: tuple(dict.fromkeys([*getattr(summary, name), *(line for one in below for line in getattr(one, name))]))
        for name in lists
    }
    return replace(summary, **merged)


def _lines(said: Sequence[str]) -> tuple[str, ...]:
    return tuple(line[:_LINE_CHARS] for line in said[:_LINES])


def failed(due: Due, code: str, message: str, *, model: str) -> SummaryFailedEvent:
    """The event of a failure. It lies under an id of its own beside the summary's: a success does not hide it."""
    data = SummaryFailed(
        summary_id=due.summary_id,
        covers=_covers(due),
        code=cast("FailureCode", code),
        error=message[:2_000],
        attempts=due.attempts + 1,
        model=model,
    )
    return SummaryFailedEvent(id=f"{due.summary_id}-failed", data=data, **_envelope(due, None))


def outputs(event: SummaryCreatedEvent, material: Material) -> list[AgentEvent]:
    """The records that go with a summary: itself as a long-term memory, and what was extracted from what it covers."""
    shared = {
        "source": SOURCE,
        "tenant": event.tenantid,
        "agent": event.agentid,
        "sessionid": event.sessionid,
        "userid": event.userid,
        "causationid": event.id,
        "time": event.time,
    }
    whole = all(stored.record.record_id in material.recallable for stored in material.records)
    records = [_as_record(event, material)] if whole else []  # what left recall does not come back with a summary
    records += _extracted(event, material, whole=whole)
    unique = {record.record_id: record for record in records}
    written: list[AgentEvent] = [RecordWritten.of(record, **cast("Any", shared)) for record in unique.values()]
    if event.data.replaces:
        data = RecordsRemoved(ids=event.data.replaces, scope="recall", cause=event.data.reason)
        envelope = {k: v for k, v in shared.items() if k not in {"tenant", "agent"}}
        removed = RecordsRemovedEvent(
            id=f"{event.id}-replaces",
            tenantid=event.tenantid,
            agentid=event.agentid,
            data=data,
            **cast("Any", envelope),
        )
        written.append(removed)
    return written


def _as_record(event: SummaryCreatedEvent, material: Material) -> MemoryRecord:
    data = event.data
    return MemoryRecord(
        record_id=data.summary_id,
        role="assistant",
        content=data.text,
        timestamp=material.time,
        layer="long_term",
        kind="event",
        importance=data.importance,
        topic=data.topic,
        origin="summary",
        derived_from=(*data.covers.record_ids, *data.covers.summary_ids)[:10_000],
    )


def _extracted(event: SummaryCreatedEvent, material: Material, *, whole: bool) -> list[MemoryRecord]:
    found: list[MemoryRecord] = []
    for stored in material.records:
        record = stored.record
        if record.record_id not in material.recallable or stored.invalidated is not None:
            continue
        found += [
            _record(
                event,
                fact.text,
                kind=fact.kind,
                confidence=fact.confidence,
                sources=(record.record_id,),
                time=record.timestamp,
                role=record.role,
            )
            for fact in facts(record, texts.content(record))
        ]
    if event.data.model in {"extractive", "archive"} or event.data.level > 1 or not whole:
        return found  # its lists say the same, or said it before
    known = {record.content for record in found}
    stated: dict[Kind, tuple[str, ...]] = {
        "fact": event.data.facts,
        "preference": event.data.preferences,
        "decision": event.data.decisions,
    }
    sources = (*event.data.covers.record_ids[:_SOURCES], event.data.summary_id)
    for kind, lines in stated.items():
        found += [
            _record(event, line, kind=kind, confidence=_STATED, sources=sources, time=material.time, role="user")
            for line in lines
            if line not in known
        ]
    return found


def _record(
    event: SummaryCreatedEvent,
    text: str,
    *,
    kind: Kind,
    confidence: float,
    sources: tuple[str, ...],
    time: datetime,
    role: str,
) -> MemoryRecord:
    key = "\0".join((event.tenantid, event.agentid, event.userid or "", *sources[:1], kind, text))
    return MemoryRecord(
        record_id=str(uuid.uuid5(_NAMESPACE, key)),
        role=cast("Any", role),
        content=text,
        timestamp=time,
        layer="long_term",
        kind=kind,
        confidence=confidence,
        origin="extracted",
        derived_from=sources,
    )


def _covers(due: Due) -> Covered:
    return Covered(record_ids=due.record_ids, summary_ids=due.summary_ids, first=due.first, last=due.last)


def _envelope(due: Due, time: datetime | None) -> dict[str, Any]:
    tenant, agent, session, user = due.address
    found: dict[str, Any] = {
        "source": SOURCE,
        "tenantid": tenant,
        "agentid": agent,
        "sessionid": session or None,
        "userid": user or None,
    }
    return found if time is None else found | {"time": time}
