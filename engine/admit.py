"""Admitting what strangers send: validated, named, stamped, and wrapped into an event of its agent."""

from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import ValidationError

from engramlog.schemas.codec import invalid, parse_json, records_codec
from engramlog.schemas.envelope import RecordWritten
from engramlog.schemas.errors import NotAdmitted, NotAnEvent
from engramlog.schemas.inbox import InboxRecord, id_of_place

SOURCE = "engramlog/admit"


@dataclass(frozen=True, slots=True)
class Sent:
    """A message of the inbox.

    Attributes:
        topic: Full topic name.
        partition: Partition.
        offset: Offset.
        recorded_ms: When the broker appended it, milliseconds since the epoch.
        value: Its bytes.
    """

    topic: str
    partition: int
    offset: int
    recorded_ms: int
    value: bytes


def admit(sent: Sent) -> RecordWritten:
    """The event that a message of the inbox becomes; the same each time it is admitted.

    Raises:
        InvalidEvent: A subclass says what is wrong with the message.
    """
    parsed = parse_json(sent.value)
    if not isinstance(parsed, dict):
        raise NotAnEvent("the inbox takes JSON objects: a record with tenant, agent and role, or a CloudEvents event")
    if "specversion" in parsed:
        event = records_codec().decode(sent.value)
        if not isinstance(event, RecordWritten):
            raise NotAdmitted(f"the inbox takes records, not {event.type!r}: ask for it through a client")
        return event
    taken_at = datetime.fromtimestamp(sent.recorded_ms / 1000, UTC)
    try:
        record = InboxRecord.model_validate_json(sent.value)
        missing = {
            "record_id": id_of_place(sent.topic, sent.partition, sent.offset),
            "timestamp": taken_at,
        }
        given = record.record().model_copy(
            update={name: value for name, value in missing.items() if name not in record.model_fields_set}
        )
        return RecordWritten.of(
            given,
            source=SOURCE,
            tenant=record.tenant,
            agent=record.agent,
            sessionid=record.session,
            userid=record.user,
            time=taken_at,
            causationid=f"{sent.topic}/{sent.partition}/{sent.offset}"[-128:],
        )
    except ValidationError as error:
        raise invalid(error) from None
