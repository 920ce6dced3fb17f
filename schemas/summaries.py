"""Summaries (``memory.summaries``): shorter texts that stand for records in the window. The records stay."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from engramlog.schemas import records as r
from engramlog.schemas.derived import Label
from engramlog.schemas.envelope import AgentEvent
from engramlog.schemas.scope import Identifier

Offset = Annotated[int, Field(ge=0, strict=True)]
Line = Annotated[str, StringConstraints(min_length=1, max_length=2_000)]
Trigger = Literal["tokens", "messages", "idled", "ended", "request", "rolled_up", "erased"]
FailureCode = Literal[
    "unavailable",  # the model does not answer, or not in time
    "refused",  # the model does not want to, or takes the input for no input
    "empty",  # nothing came back
    "too_long",  # it is longer than what it stands for
    "wrong_language",  # it does not speak the talk's language
    "invalid",  # not what was asked for
]


class Covered(r.Wire):
    """What a summary stands for: records of one session, as one user has them.

    Attributes:
        record_ids: The records, oldest first.
        summary_ids: The summaries of a lower level that it stands for instead.
        first: Lowest offset of a covered record, in the agent's partition.
        last: Highest offset of one.
    """

    record_ids: Annotated[tuple[Identifier, ...], Field(max_length=10_000)] = ()
    summary_ids: Annotated[tuple[Identifier, ...], Field(max_length=1_000)] = ()
    first: Offset
    last: Offset


class SummaryCreated(r.Wire):
    """A part of a talk, shorter. The last copy of a summary counts.

    Attributes:
        summary_id: A function of what it covers, its level and its generation: made twice, it is one.
        text: The summary, in the talk's language.
        facts: What was said to be so.
        preferences: What somebody likes or wants.
        decisions: What was decided.
        open_tasks: What is still to be done.
        level: 1 for a summary of records, more for one of summaries.
        covers: What it stands for.
        at: Offset of the agent's partition at which it was due: from there on the window shows it instead of the
            records, and ``as_of`` an earlier one still shows them.
        tokens_before: Tokens of what it stands for (o200k_base).
        tokens_after: Its own.
        model: What made it: a model's name, ``extractive`` or ``archive``.
        prompt: Version of the prompt or algorithm, e.g. ``summary.v1``.
        language: ISO 639-1 code; None: unknown.
        topic: What it is about.
        importance: 0 to 1.
        reason: Why there is a new summary: ``new`` records are covered, a summary was ``revised``, summaries were
            ``rolled_up`` into a higher level, or something it covered was ``erased``.
        trigger: What made it due.
        replaces: Summaries that are active no more.
        generation: Which generation of summaries it belongs to, from 1.
        raw: It is no summary, only a cut-off text (the summariser ``archive``).
    """

    summary_id: Identifier
    text: Annotated[str, StringConstraints(min_length=1, max_length=100_000)]
    facts: Annotated[tuple[Line, ...], Field(max_length=100)] = ()
    preferences: Annotated[tuple[Line, ...], Field(max_length=100)] = ()
    decisions: Annotated[tuple[Line, ...], Field(max_length=100)] = ()
    open_tasks: Annotated[tuple[Line, ...], Field(max_length=100)] = ()
    level: Annotated[int, Field(ge=1, le=16, strict=True)] = 1
    covers: Covered
    at: Offset
    tokens_before: Offset
    tokens_after: Offset
    model: Label
    prompt: Label
    language: Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}$")] | None = None
    topic: Label | None = None
    importance: r.Share = 0.5
    reason: Literal["new", "revised", "rolled_up", "erased"] = "new"
    trigger: Trigger = "tokens"
    replaces: Annotated[tuple[Identifier, ...], Field(max_length=1_000)] = ()
    generation: Annotated[int, Field(ge=1, strict=True)] = 1
    raw: bool = False


class SummaryCreatedEvent(AgentEvent):
    """See :class:`SummaryCreated`. Its id is the summary's."""

    type: Literal["engramlog.summary.created.v1"] = "engramlog.summary.created.v1"
    data: SummaryCreated


class SummaryFailed(r.Wire):
    """A summary was due and could not be made. The records stay in the window; it is tried again.

    Attributes:
        summary_id: The summary that would have been made.
        covers: What it would stand for.
        code: Why there is none.
        error: The same for people.
        attempts: How often it was tried so far.
        model: What failed.
        gives_up: It is not tried again until the session grows.
    """

    summary_id: Identifier
    covers: Covered
    code: FailureCode
    error: Annotated[str, StringConstraints(max_length=2_000)] = ""
    attempts: Annotated[int, Field(ge=1, strict=True)]
    model: Label
    gives_up: bool = False


class SummaryFailedEvent(AgentEvent):
    """See :class:`SummaryFailed`. There is one a summary: the last failure counts."""

    type: Literal["engramlog.summary.failed.v1"] = "engramlog.summary.failed.v1"
    data: SummaryFailed


SummaryEvent = Annotated[SummaryCreatedEvent | SummaryFailedEvent, Field(discriminator="type")]
"""Whatever may lie in ``memory.summaries``."""
