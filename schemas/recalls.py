"""Requests for memories by meaning, weight and time, and what they are answered with."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from engramlog.schemas.asking import AsOf, Offset, Query
from engramlog.schemas.derived import Label
from engramlog.schemas.instants import Instant
from engramlog.schemas.records import Kind, Layer, Origin, Role, Share, Tag, Text, Wire
from engramlog.schemas.scope import Identifier
from engramlog.schemas.stored import StoredRecord

MAX_HITS = 200
MAX_CANDIDATES = 2_000
MAX_QUESTION_CHARS = 20_000

Question = Annotated[str, StringConstraints(min_length=1, max_length=MAX_QUESTION_CHARS)]
Weight = Annotated[float, Field(ge=0.0, le=100.0, allow_inf_nan=False)]
Scalar = Annotated[str, StringConstraints(max_length=1_024)] | bool | int
PresetName = Literal["assistant", "customer_service", "coding", "research", "agent_recall", "dual_source"]


class RecallFilter(Wire):
    """Which memories are looked at. What is left empty restricts nothing; each field restricts further.

    Attributes:
        sessions: Sessions, any of them.
        layers: Layers, any of them. A record without a layer is in none.
        kinds: Kinds, any of them.
        tags: Tags, any of them.
        all_tags: Tags, all of them.
        topics: Topics, any of them.
        roles: Roles, any of them. Empty: any but system and developer, whose texts are always in the context anyway.
        origins: Origins, any of them.
        happened_from: From when on it happened, inclusive.
        happened_until: Until when it happened, exclusive.
        min_importance: Least importance.
        min_confidence: Least confidence; a record that states none passes.
        metadata: Values by dotted key, e.g. ``{"project_id": "p1", "repo.branch": ["main", "dev"]}``; a list: any of
            them. Only keys of the setting ``metadata_keys`` can be filtered by.
        invalidated: Whether memories that are no longer true are shown, too.
        expired: Whether expired ones are.
        leave_out: Records that are not wanted, e.g. those that the caller holds already.
    """

    sessions: Annotated[tuple[Identifier, ...], Field(max_length=256)] = ()
    layers: Annotated[tuple[Layer, ...], Field(max_length=8)] = ()
    kinds: Annotated[tuple[Kind, ...], Field(max_length=16)] = ()
    tags: Annotated[tuple[Tag, ...], Field(max_length=64)] = ()
    all_tags: Annotated[tuple[Tag, ...], Field(max_length=64)] = ()
    topics: Annotated[tuple[Label, ...], Field(max_length=64)] = ()
    roles: Annotated[tuple[Role, ...], Field(max_length=8)] = ()
    origins: Annotated[tuple[Origin, ...], Field(max_length=8)] = ()
    happened_from: Instant | None = None
    happened_until: Instant | None = None
    min_importance: Share | None = None
    min_confidence: Share | None = None
    metadata: Annotated[
        dict[Annotated[str, StringConstraints(min_length=1, max_length=256)], Scalar | tuple[Scalar, ...]],
        Field(max_length=32),
    ] = Field(default_factory=dict)
    invalidated: bool = False
    expired: bool = False
    leave_out: Annotated[tuple[Identifier, ...], Field(max_length=1_000)] = ()

    @model_validator(mode="after")
    def _is_no_empty_span(self) -> Self:
        begin, end = self.happened_from, self.happened_until
        if begin is not None and end is not None and begin >= end:
            raise ValueError("'happened_until' must be later than 'happened_from'")
        return self


class SimilarQuery(Query):
    """The memories nearest in meaning, scored by cosine similarity alone.

    Attributes:
        text: What to look for.
        limit: At most so many.
        min_similarity: Least cosine similarity, -1 to 1; None: any.
        filter: Which memories are looked at.
        as_of: Memory as it was, see :class:`AsOf`; None: as it is. What was removed, cleared, invalidated or corrected
            later is there as it was. An offset or a position that lies ahead is waited for as ``min_positions`` are.
    """

    ask: Literal["similar"] = "similar"
    text: Question
    limit: Annotated[int, Field(ge=1, le=MAX_HITS, strict=True)] = 3
    min_similarity: Annotated[float, Field(ge=-1.0, le=1.0, allow_inf_nan=False)] | None = None
    filter: RecallFilter = RecallFilter()
    as_of: AsOf | None = None


class RecallQuery(Query):
    """The memories that matter for a text: by meaning, words, importance and time.

    What is None comes from the preset. ``sessionid`` of the envelope is the session that asks: its recent turns say
    what "it" and "there" mean. It restricts nothing; ``filter.sessions`` does.

    Attributes:
        text: What to look for.
        preset: Weights and limits for a kind of use.
        limit: At most so many.
        candidates: How many memories each way of searching contributes before they are scored.
        semantic: Weight of relevance.
        importance: Weight of importance.
        recency: Weight of recency.
        half_life_days: Age in days at which recency has halved.
        diversity: 0: the best ones; towards 1: rather different ones (maximal marginal relevance with
            ``lambda = 1 - diversity``). None: 0.
        expand: Whether pronouns and ellipsis are resolved from the session's recent turns: by rules, by the language
            model where one is configured (else by rules), or not at all.
        now: The instant that ages and expiry are measured from; None: the answer's own, or that of ``as_of`` (of an
            offset: when the agent's last record until then was recorded).
        filter: Which memories are looked at.
        as_of: Memory as it was, see :class:`AsOf`; None: as it is. What was removed, cleared, invalidated or corrected
            later is there as it was. An offset or a position that lies ahead is waited for as ``min_positions`` are.
    """

    ask: Literal["recall"] = "recall"
    text: Question
    preset: PresetName = "assistant"
    limit: Annotated[int, Field(ge=1, le=MAX_HITS, strict=True)] | None = None
    candidates: Annotated[int, Field(ge=1, le=MAX_CANDIDATES, strict=True)] | None = None
    semantic: Weight | None = None
    importance: Weight | None = None
    recency: Weight | None = None
    half_life_days: Annotated[float, Field(gt=0.0, le=36_500.0, allow_inf_nan=False)] | None = None
    diversity: Share | None = None
    expand: Literal["rules", "llm", "off"] = "rules"
    now: Instant | None = None
    filter: RecallFilter = RecallFilter()
    as_of: AsOf | None = None


class TopicsQuery(Query):
    """What was talked about, latest first. ``sessionid`` of the envelope restricts it to one session.

    Attributes:
        limit: At most so many topics.
        as_of: Memory as it was, with the labels of the last derivation; None: as it is.
    """

    ask: Literal["topics"] = "topics"
    limit: Annotated[int, Field(ge=1, le=1_000, strict=True)] = 100
    as_of: AsOf | None = None


class ScorePart(Wire):
    """One summand of a score.

    Attributes:
        name: What it is: ``semantic``, ``importance``, ``recency``, or a part of the relevance.
        value: Its value before weighing.
        weight: Its weight.
    """

    name: Label
    value: float
    weight: float

    @property
    def contribution(self) -> float:
        """What it adds to the score."""
        return self.value * self.weight


class RecallHit(Wire):
    """A memory, and why it was found.

    Attributes:
        stored: The record.
        score: The sum of the contributions of ``parts``.
        parts: What the score is made of.
        relevance: 0 to 1: what the part ``semantic`` is made of.
        relevance_parts: What the relevance is made of, before it is scaled: ``dense``, ``words``, ``neighbours``,
            ``session``, ``speaker``, each as far as it played a role.
        similarity: Cosine similarity to the question; None: no vector was compared.
        words: The question's terms that it holds.
        topic: Its topic.
        importance: Its importance, as derived or stated.
        conflicts: Records among the hits that contradict it.
        superseded_by: The record that replaced it, where it was invalidated.
    """

    stored: StoredRecord
    score: float
    parts: tuple[ScorePart, ...] = ()
    relevance: float = 0.0
    relevance_parts: tuple[ScorePart, ...] = ()
    similarity: float | None = None
    words: tuple[Text, ...] = ()
    topic: Label | None = None
    importance: float = 0.5
    conflicts: tuple[Identifier, ...] = ()
    superseded_by: Identifier | None = None


class RecallAnswer(Wire):
    """Memories, best first; memories that contradict each other stand together.

    Attributes:
        hits: The memories.
        asked: What was looked for, if the text was expanded.
        degraded: What could not be done as asked, e.g. ``no query embedding: …``; the words alone were searched then.
        now: The instant that ages were measured from.
        unread: How many more hits did not fit into the reply.
    """

    kind: Literal["recall"]
    hits: tuple[RecallHit, ...]
    asked: Text | None = None
    degraded: tuple[Text, ...] = ()
    now: Instant | None = None
    unread: Offset = 0


class TopicCount(Wire):
    """A topic, and when it was talked about.

    Attributes:
        topic: The label.
        records: How many records are on it.
        sessions: In how many sessions.
        first: When it first came up (happened).
        last: When it last did.
    """

    topic: Label
    records: Offset
    sessions: Offset
    first: Instant
    last: Instant


class TopicsAnswer(Wire):
    """The topics of a scope, latest first.

    Attributes:
        topics: The topics.
        truncated: There are more.
    """

    kind: Literal["topics"]
    topics: tuple[TopicCount, ...]
    truncated: bool = False
