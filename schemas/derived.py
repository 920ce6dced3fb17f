"""What is derived from the records (``memory.derived.gN``): everything that recall needs, without a join.

The topic holds three kinds of events. ``record.derived`` lies under its record's own key, so that the last derivation
of a record counts; a tombstone there says that nothing is derived from the record any more. ``recall.changed`` tells
of records that leave recall. ``watermark.passed`` says how far the records have been derived.
"""

import base64
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from engramlog.schemas import records as r
from engramlog.schemas.envelope import AgentEvent, Envelope
from engramlog.schemas.instants import Instant
from engramlog.schemas.json_values import JsonObject
from engramlog.schemas.keys import event_key, record_key, watermark_key
from engramlog.schemas.scope import Identifier

Offset = Annotated[int, Field(ge=0, strict=True)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Term = Annotated[str, StringConstraints(min_length=1, max_length=128)]
MAX_TERMS = 4_096
"""Distinct terms that one derivation holds; of a longer text the most frequent ones."""
MAX_CHUNKS = 64
"""Vectors that one derivation holds."""


class Relation(r.Wire):
    """A statement about two things, for a graph.

    Attributes:
        subject: Who or what; ``user`` for the speaker.
        predicate: What is said of it, e.g. ``lives_in``.
        object: Of what.
    """

    subject: Label
    predicate: Label
    object: Label


class Entity(r.Wire):
    """Something that a text names.

    Attributes:
        text: As it stands in the text.
        type: What it is.
    """

    text: Label
    type: Literal["person", "place", "organisation", "product", "date", "number", "url", "file", "code", "other"]


class Vectors(r.Wire):
    """One vector for each chunk of a text.

    Attributes:
        model: The model that made them.
        dimension: Components of each.
        values: Little-endian float32, one vector after the other, base64.
        spans: From which character to which (exclusive) each one speaks of.
    """

    model: Identifier
    dimension: Annotated[int, Field(ge=1, le=65_536, strict=True)]
    values: r.Text
    spans: Annotated[tuple[tuple[Offset, Offset], ...], Field(min_length=1, max_length=MAX_CHUNKS)]

    def packed(self) -> bytes:
        """The bytes: ``len(spans) * dimension`` little-endian float32."""
        return base64.b64decode(self.values)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        r.check_vector(self.values, self.dimension * len(self.spans))
        return self


class Derived(r.Wire):
    """What was derived from one copy of one record.

    Attributes:
        record_id: The record.
        offset: Where the copy lies, or the correction that it was derived after, in the agent's partition of records.
        generation: Which generation of derivations this belongs to, from 1.
        turn: The how-many-th record of its session it is, from 0; neighbours differ by 1.
        role: As in the record; so are ``role_name`` to ``metadata``.
        role_name: The speaker.
        layer: The layer.
        kind: The kind.
        origin: The origin.
        tags: The tags.
        confidence: The confidence.
        timestamp: When it happened.
        expires_at: From when on it is no longer recalled.
        metadata: The metadata; of a large object only what is filtered by.
        topic: A short label in the text's language, the same as long as the session's talk stays on it.
        importance: 0 to 1.
        keywords: The words that carry the text, best first.
        entities: What it names.
        relations: What it states.
        language: ISO 639-1 code of the text's language; None: unknown.
        embedding: Its vectors; None: it could not be embedded, and is found by its words only.
        unembedded: How many characters at the end are in no vector.
        terms: Its terms for search by words, with counts; see :mod:`engramlog.engine.terms`.
        length: How many terms the text has, repetitions included.
        deriver: What derived it, e.g. ``rules.v1``.
        degraded: What was done in a simpler way than configured, and why; empty: nothing.
    """

    record_id: Identifier
    offset: Offset
    generation: Annotated[int, Field(ge=1, strict=True)] = 1
    turn: Offset
    role: r.Role
    role_name: r.Tag | None = None
    layer: r.Layer | None = None
    kind: r.Kind = "turn"
    origin: r.Origin = "dialogue"
    tags: Annotated[tuple[r.Tag, ...], Field(max_length=256)] = ()
    confidence: r.Share | None = None
    timestamp: Instant
    expires_at: Instant | None = None
    metadata: JsonObject = Field(default_factory=dict)
    topic: Label | None = None
    importance: r.Share
    keywords: Annotated[tuple[Label, ...], Field(max_length=64)] = ()
    entities: Annotated[tuple[Entity, ...], Field(max_length=256)] = ()
    relations: Annotated[tuple[Relation, ...], Field(max_length=256)] = ()
    language: Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}$")] | None = None
    embedding: Vectors | None = None
    unembedded: Offset = 0
    terms: Annotated[dict[Term, Annotated[int, Field(ge=1, strict=True)]], Field(max_length=MAX_TERMS)] = Field(
        default_factory=dict
    )
    length: Offset = 0
    deriver: Label
    degraded: Annotated[tuple[Label, ...], Field(max_length=8)] = ()


class RecordDerived(AgentEvent):
    """A record was understood. Its key is the record's: the last derivation counts."""

    type: Literal["engramlog.record.derived.v1"] = "engramlog.record.derived.v1"
    data: Derived

    def key(self) -> bytes:
        """The Kafka key of the record."""
        return record_key(self.tenantid, self.agentid, self.data.record_id)


class RecallChanged(r.Wire):
    """Records leave recall: what a mutation of ``memory.records`` says, with its position resolved.

    The envelope holds the address: agent, session and user where the mutation names them.

    Attributes:
        cause: ``cleared``, ``removed`` and ``invalidated`` are soft: history can still show the records. What is
            ``erased`` is deleted, and its vectors with it.
        before: Only copies at lower offsets of the partition are meant.
        ids: The records, where they are named.
        users: For ``cleared``: whose records.
        scope: For ``erased``: what is erased.
    """

    cause: Literal["cleared", "removed", "invalidated", "erased"]
    before: Offset
    ids: Annotated[tuple[Identifier, ...], Field(max_length=10_000)] = ()
    users: Literal["own", "all"] = "own"
    scope: Literal["record", "session", "user", "agent", "tenant"] | None = None


class RecallChangedEvent(Envelope):
    """See :class:`RecallChanged`. Without an agent: all of the tenant's agents in this partition."""

    type: Literal["engramlog.recall.changed.v1"] = "engramlog.recall.changed.v1"
    agentid: Identifier | None = None
    data: RecallChanged

    def key(self) -> bytes:
        """The Kafka key: that of the mutation."""
        return event_key(self.tenantid, self.agentid, self.id)


class Watermark(r.Wire):
    """How far the records have been derived.

    Attributes:
        partition: Partition of the records.
        next: Offset of the first record that is not derived yet.
    """

    partition: Offset
    next: Offset


class WatermarkPassed(Envelope):
    """See :class:`Watermark`. It belongs to no tenant: its ``tenantid`` is ``~``."""

    type: Literal["engramlog.watermark.passed.v1"] = "engramlog.watermark.passed.v1"
    tenantid: Literal["~"] = "~"
    data: Watermark

    def key(self) -> bytes:
        """The Kafka key: one for each partition."""
        return watermark_key(self.data.partition)


DerivedEvent = Annotated[RecordDerived | RecallChangedEvent | WatermarkPassed, Field(discriminator="type")]
"""Whatever may lie in ``memory.derived.gN``."""
