"""The CloudEvents 1.0 envelope and the events of ``memory.records``."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from engramlog.schemas import records as r
from engramlog.schemas.instants import Instant, now
from engramlog.schemas.keys import event_key, record_key
from engramlog.schemas.scope import Identifier

_REQUIRED = frozenset({"specversion", "id", "time"})
_NOTHING: frozenset[str] = frozenset()
_REQUIRED_OF_RECORD = frozenset({"record_id", "timestamp"})


class Envelope(BaseModel):
    """CloudEvents 1.0 in JSON structured mode. Extension attributes that we do not know are ignored.

    Attributes:
        specversion: ``1.0``.
        id: Unique among the source's events; the record id for a record.
        source: Who published it: a URI reference.
        type: What it is; ends in its schema version.
        subject: What it is about, where the publisher says so.
        time: When the publisher made it; an aware instant.
        datacontenttype: ``application/json``.
        tenantid: The tenant.
        sessionid: The session.
        userid: The user it concerns; without one it is shared by the agent's users.
        correlationid: The conversation of events it belongs to (a request id).
        causationid: The event that caused it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    specversion: Literal["1.0"] = "1.0"
    id: Identifier = Field(default_factory=r.new_id)
    source: Annotated[str, StringConstraints(min_length=1, max_length=512)]
    subject: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = None
    time: Instant = Field(default_factory=now)
    datacontenttype: Literal["application/json"] = "application/json"
    tenantid: Identifier
    sessionid: Identifier | None = None
    userid: Identifier | None = None
    correlationid: Identifier | None = None
    causationid: Identifier | None = None

    def unsaid(self) -> frozenset[str]:
        """Required attributes that were not given. Ours get defaults; on the wire they would differ at each reading."""
        said = self.model_fields_set
        return _NOTHING if said >= _REQUIRED else _REQUIRED - said


class AgentEvent(Envelope):
    """An event of one agent.

    Attributes:
        agentid: The agent.
    """

    agentid: Identifier

    def key(self) -> bytes:
        """The Kafka key that this event must have."""
        return event_key(self.tenantid, self.agentid, self.id)


class RecordWritten(AgentEvent):
    """An agent remembers something."""

    type: Literal["engramlog.record.written.v1"] = "engramlog.record.written.v1"
    data: r.MemoryRecord

    @classmethod
    def of(cls, record: r.MemoryRecord, *, source: str, tenant: str, agent: str, **extensions: Any) -> Self:
        """Wrap a record: the event takes the record's id."""
        return cls(id=record.record_id, source=source, tenantid=tenant, agentid=agent, data=record, **extensions)

    def key(self) -> bytes:
        """The Kafka key of the record."""
        return record_key(self.tenantid, self.agentid, self.data.record_id)

    def unsaid(self) -> frozenset[str]:
        """As for any event, and the record's own id and time."""
        outside, said = super().unsaid(), self.data.model_fields_set
        if said >= _REQUIRED_OF_RECORD:
            return outside
        return outside | {f"data.{name}" for name in _REQUIRED_OF_RECORD - said}

    @model_validator(mode="after")
    def _has_the_id_of_its_record(self) -> Self:
        if self.id != self.data.record_id:
            raise ValueError(f"'id' is {self.id!r} and 'data.record_id' {self.data.record_id!r}: make them the same")
        return self


class HistoryClearedEvent(AgentEvent):
    """See :class:`~engramlog.schemas.records.HistoryCleared`."""

    type: Literal["engramlog.history.cleared.v1"] = "engramlog.history.cleared.v1"
    data: r.HistoryCleared


class RecordsRemovedEvent(AgentEvent):
    """See :class:`~engramlog.schemas.records.RecordsRemoved`."""

    type: Literal["engramlog.records.removed.v1"] = "engramlog.records.removed.v1"
    data: r.RecordsRemoved


class RecordInvalidatedEvent(AgentEvent):
    """See :class:`~engramlog.schemas.records.RecordInvalidated`."""

    type: Literal["engramlog.record.invalidated.v1"] = "engramlog.record.invalidated.v1"
    data: r.RecordInvalidated


class RecordCorrectedEvent(AgentEvent):
    """See :class:`~engramlog.schemas.records.RecordCorrected`."""

    type: Literal["engramlog.record.corrected.v1"] = "engramlog.record.corrected.v1"
    data: r.RecordCorrected


class SessionIdledEvent(AgentEvent):
    """See :class:`~engramlog.schemas.records.SessionIdled`."""

    type: Literal["engramlog.session.idled.v1"] = "engramlog.session.idled.v1"
    sessionid: Identifier
    data: r.SessionIdled


class SessionEndedEvent(AgentEvent):
    """See :class:`~engramlog.schemas.records.SessionEnded`."""

    type: Literal["engramlog.session.ended.v1"] = "engramlog.session.ended.v1"
    sessionid: Identifier
    data: r.SessionEnded


class ScopeErasedEvent(Envelope):
    """See :class:`~engramlog.schemas.records.ScopeErased`. The agent may be left out for a user or a tenant."""

    type: Literal["engramlog.scope.erased.v1"] = "engramlog.scope.erased.v1"
    agentid: Identifier | None = None
    data: r.ScopeErased

    def key(self) -> bytes:
        """The Kafka key of the ledger entry."""
        return event_key(self.tenantid, self.agentid, self.id)

    @model_validator(mode="after")
    def _names_what_it_erases(self) -> Self:
        scope = self.data.scope
        if scope == "tenant" and self.agentid is not None:
            raise ValueError("the scope 'tenant' takes no 'agentid'")
        if scope not in {"tenant", "user"} and self.agentid is None:
            raise ValueError(f"the scope {scope!r} needs 'agentid'")
        if scope == "session" and self.sessionid is None:
            raise ValueError("the scope 'session' needs 'sessionid'")
        if scope == "user" and self.userid is None:
            raise ValueError("the scope 'user' needs 'userid'")
        return self


RecordEvent = Annotated[
    RecordWritten
    | HistoryClearedEvent
    | RecordsRemovedEvent
    | RecordInvalidatedEvent
    | RecordCorrectedEvent
    | SessionIdledEvent
    | SessionEndedEvent
    | ScopeErasedEvent,
    Field(discriminator="type"),
]
"""Whatever may lie in ``memory.records``."""
