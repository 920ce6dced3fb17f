"""What an agent remembers (``MemoryRecord``) and what it says about it afterwards (mutations)."""

import base64
import binascii
import math
import struct
from typing import Annotated, Literal, Self

import uuid_utils
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from engramlog.schemas.instants import Instant, now
from engramlog.schemas.json_values import JsonObject
from engramlog.schemas.scope import Identifier

Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False, strict=True)]
"""A number from 0 to 1."""

At = Annotated[int, Field(ge=0, strict=True)] | None
"""An offset of the agent's partition at which a command was resolved."""

Text = Annotated[str, StringConstraints(min_length=0)]
"""Any text of whole characters: the constraint, vacuous as it is, makes pydantic refuse lone surrogates."""

Tag = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
Layer = Literal["core", "working", "long_term"]
Kind = Literal["turn", "fact", "preference", "decision", "rule", "event"]
Origin = Literal["dialogue", "tool", "recall", "import", "extracted", "summary"]
MarkScope = Literal["window", "recall", "both"]


def new_id() -> str:
    """A new UUIDv7: unique, and sortable by time."""
    return str(uuid_utils.uuid7())


class Wire(BaseModel):
    """Anything inside an event: immutable, and without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def check_vector(values: str, count: int) -> None:
    """Refuse what is not ``count`` finite numbers.

    Raises:
        ValueError: It is not base64 of so many little-endian float32, or one is NaN or infinite.
    """
    try:
        packed = base64.b64decode(values, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"'values' is not base64 with padding ({error}): encode little-endian float32") from None
    if len(packed) != 4 * count:
        raise ValueError(f"{count} float32 are {4 * count} bytes, but there are {len(packed)}")
    if not all(map(math.isfinite, struct.unpack(f"<{count}f", packed))):
        raise ValueError("a vector holds NaN or infinity")


class Embedding(Wire):
    """A vector that the publisher already has.

    Attributes:
        model: The model that made it.
        dimension: Number of components.
        values: Little-endian float32, base64.
    """

    model: Identifier
    dimension: Annotated[int, Field(ge=1, le=65_536, strict=True)]
    values: Text

    @classmethod
    def of(cls, model: str, vector: list[float]) -> Self:
        """Pack a vector of finite numbers.

        Raises:
            ValueError: A number is not finite, or too large for a float32.
        """
        try:
            packed = struct.pack(f"<{len(vector)}f", *vector)
        except OverflowError:
            raise ValueError("a component of the vector is too large for a float32") from None
        return cls(model=model, dimension=len(vector), values=base64.b64encode(packed).decode())

    def vector(self) -> tuple[float, ...]:
        """Unpack it: ``dimension`` numbers."""
        return struct.unpack(f"<{self.dimension}f", base64.b64decode(self.values))

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        check_vector(self.values, self.dimension)
        return self


class Part(Wire):
    """A piece of multimodal content.

    Attributes:
        type: What it is.
        text: The text of a text part.
        url: Where the content is: by reference, or inline as a ``data:`` URL up to the size limit of an event.
        media_type: MIME type, where known.
        detail: What else the format knows of the part (image detail, file name, sample rate).
    """

    type: Literal["text", "image", "audio", "video", "file"]
    text: Text | None = None
    url: Text | None = None
    media_type: Tag | None = None
    detail: JsonObject = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_content(self) -> Self:
        if self.type == "text" and self.text is None:
            raise ValueError("a text part needs 'text'")
        if self.type != "text" and self.url is None:
            raise ValueError(f"a part of type {self.type!r} needs 'url' (a reference, or inline as a data: URL)")
        return self


class MemoryRecord(Wire):
    """One thing that an agent remembers: a turn of the talk, a tool result, a fact.

    Attributes:
        record_id: The idempotency key, made by the publisher: any string of 1 to 128 characters, unique within the
            agent, pseudonymous. UUIDv7 by default. Publishing it again replaces content and place.
        role: Who speaks.
        role_name: The speaker's name.
        content: The text; empty content is remembered, but never embedded.
        parts: Multimodal content, in order.
        reasoning_content: The model's reasoning, where it came apart from the content.
        tool_calls: The calls that an assistant makes, as in OpenAI's chat format.
        tool_call_id: The call that a tool record answers.
        name: The function's or participant's name.
        timestamp: When it happened (not when it was recorded); this instant by default.
        layer: ``core`` (always in context), ``working`` (short-lived) or ``long_term``; None: a plain turn.
        kind: What it is.
        importance: 0 to 1, where the publisher knows better than the engine.
        topic: Likewise.
        embedding: Likewise.
        confidence: 0 to 1: how sure the statement is.
        tags: Labels to filter by.
        metadata: Any JSON object; never interpreted, never changed.
        expires_at: From when on it is no longer recalled.
        origin: How it came to be.
        derived_from: Ids of the records that it was derived from.
    """

    record_id: Identifier = Field(default_factory=new_id)
    role: Role
    role_name: Tag | None = None
    content: Text = ""
    parts: Annotated[tuple[Part, ...], Field(max_length=256)] = ()
    reasoning_content: Text | None = None
    tool_calls: Annotated[tuple[JsonObject, ...], Field(max_length=256)] = ()
    tool_call_id: Tag | None = None
    name: Tag | None = None
    timestamp: Instant = Field(default_factory=now)
    layer: Layer | None = None
    kind: Kind = "turn"
    importance: Share | None = None
    topic: Tag | None = None
    embedding: Embedding | None = None
    confidence: Share | None = None
    tags: Annotated[tuple[Tag, ...], Field(max_length=256)] = ()
    metadata: JsonObject = Field(default_factory=dict)
    expires_at: Instant | None = None
    origin: Origin = "dialogue"
    derived_from: Annotated[tuple[Identifier, ...], Field(max_length=10_000)] = ()


class HistoryCleared(Wire):
    """A new epoch: everything recorded earlier in the event's scope leaves the view.

    The scope is the envelope's agent and, where given, session. An event with a user clears that user's records, one
    without clears the shared ones, ``users="all"`` clears both.

    Attributes:
        scope: What the records leave: the window (they can still be recalled), recall, or both.
        users: Whose records.
        at: As of which offset of the agent's partition it was resolved: only earlier records are touched, wherever this
            event comes to lie (it may be published again). None: it takes effect at its own offset.
    """

    scope: MarkScope = "window"
    users: Literal["own", "all"] = "own"
    at: At = None


class RecordsRemoved(Wire):
    """Records, named by id, that leave the view. Copies recorded later are not touched.

    Attributes:
        ids: The records, at least one.
        scope: What they leave.
        cause: Why: the command that was resolved (``pop``, ``remove``, ``clean_tool_calls``) or ``forget``.
        request_id: The request that was resolved to these ids.
        at: As of which offset of the agent's partition it was resolved: only earlier records are touched, wherever this
            event comes to lie (it may be published again). None: it takes effect at its own offset.
    """

    ids: Annotated[tuple[Identifier, ...], Field(min_length=1, max_length=10_000)]
    scope: MarkScope = "window"
    cause: Tag | None = None
    request_id: Identifier | None = None
    at: At = None


class RecordInvalidated(Wire):
    """A record that is no longer true. It stays in the history and leaves recall.

    Attributes:
        id: The record.
        reason: Why, for people.
        replaced_by: The record that holds the truth now.
        at: As of which offset of the agent's partition it was resolved: only earlier records are touched, wherever this
            event comes to lie (it may be published again). None: it takes effect at its own offset.
    """

    id: Identifier
    reason: Annotated[str, StringConstraints(max_length=10_000)] = ""
    replaced_by: Identifier | None = None
    at: At = None


class RecordCorrected(Wire):
    """New content for a record, in its old place. ``as_of`` an earlier position still shows the old content.

    Attributes:
        id: The record.
        content: The corrected text.
        reason: Why, for people.
        at: As of which offset of the agent's partition it was resolved: only earlier records are touched, wherever this
            event comes to lie (it may be published again). None: it takes effect at its own offset.
    """

    id: Identifier
    content: Text
    reason: Annotated[str, StringConstraints(max_length=10_000)] = ""
    at: At = None


class SessionIdled(Wire):
    """Nothing was said in the session for a while.

    Attributes:
        idle_s: For how long, in seconds.
    """

    idle_s: Annotated[float, Field(ge=0.0, allow_inf_nan=False, strict=True)]


class SessionEnded(Wire):
    """The session is over.

    Attributes:
        reason: Why, for people.
    """

    reason: Annotated[str, StringConstraints(max_length=10_000)] = ""


class ScopeErased(Wire):
    """An entry of the erasure ledger: permanent, without content.

    ``scope`` says what the entry covers, within the envelope's tenant: the named records, one session, one user (of
    the agent, or of the whole tenant when the envelope names no agent), one agent, or the tenant. It covers every copy
    that was recorded earlier, and any later copy of a record id that it once covered. An entry without an agent is
    published once to every partition.

    Attributes:
        scope: What is erased.
        record_ids: The records, for the scope ``record``.
        request_id: The request that asked for it. In each partition only the first entry of a request counts: one that
            is published again must not erase what was recorded in between.
    """

    scope: Literal["record", "session", "user", "agent", "tenant"]
    record_ids: Annotated[tuple[Identifier, ...], Field(max_length=10_000)] = ()
    request_id: Identifier | None = None

    @model_validator(mode="after")
    def _names_records(self) -> Self:
        if (self.scope == "record") != bool(self.record_ids):
            raise ValueError("'record_ids' goes with the scope 'record', and with no other")
        return self
