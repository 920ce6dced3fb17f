"""Requests for a context under a token budget, and for summaries."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from engramlog.schemas.asking import MAX_WINDOW, AsOf, Offset, Query
from engramlog.schemas.instants import Instant
from engramlog.schemas.json_values import JsonObject
from engramlog.schemas.recalls import MAX_HITS, PresetName, Question, RecallFilter
from engramlog.schemas.records import Share, Text, Wire
from engramlog.schemas.scope import Identifier
from engramlog.schemas.summaries import SummaryCreated

Section = Literal["head", "core", "summaries", "recalled", "recent"]
WhyLeftOut = Literal[
    "budget",  # it did not fit
    "window",  # it is older than the window
    "duplicate",  # it is in the context already
    "tools",  # a call without its results, or results without their call
]


class RecallPart(Wire):
    """What is recalled for a context.

    Attributes:
        preset: Weights, as for ``recall``.
        limit: At most so many memories; 0: none.
        share: Which share they may take of the budget that summaries leave; the recent turns have the rest.
        filter: Which memories are looked at.
    """

    preset: PresetName = "assistant"
    limit: Annotated[int, Field(ge=0, le=MAX_HITS, strict=True)] = 40
    share: Share = 0.6
    filter: RecallFilter = RecallFilter()


class ContextQuery(Query):
    """What an agent's model is to be given: head, core, summaries, what is recalled, the recent turns.

    The envelope's session is the talk; without one the agent's whole history is. The newest user message is always in.

    Attributes:
        budget_tokens: Never more tokens than this, message overhead included.
        model: The model that the context is for: its encoding counts. None: ``o200k_base``.
        window: How many recent records at most; None: as many as fit.
        recall: What is recalled; None: nothing.
        current_topic: What memories are recalled for; None: the newest user message.
        summaries: Whether summaries stand for what they cover. False: the records themselves, as far as they fit.
        summary_share: Which share of the budget summaries may take; what turns and memories leave over is theirs, too.
        keep_rate: Score of a recent record divided by that of the next newer one.
        as_messages: Each recalled memory as a message of its own, instead of one labelled block.
        wait_for_summary: Whether to wait for a summary that is due, within the deadline.
        now: The instant that ages are measured from; None: the answer's own, or that of ``as_of``. The same request
            with the same ``now`` at the same positions gives the same bytes.
        as_of: Memory as it was, all of it: turns, summaries, core memories and what is recalled; None: as it is. See
            :class:`AsOf` and ``recall``. On the happened axis no summary stands for anything: the turns do.
    """

    ask: Literal["context"] = "context"
    budget_tokens: Annotated[int, Field(ge=1, le=10_000_000, strict=True)] = 4_000
    model: Annotated[str, StringConstraints(min_length=1, max_length=128)] | None = None
    window: Annotated[int, Field(ge=0, le=MAX_WINDOW, strict=True)] | None = None
    recall: RecallPart | None = RecallPart()
    current_topic: Question | None = None
    summaries: bool = True
    summary_share: Share = 0.4
    keep_rate: Share = 0.9
    as_messages: bool = False
    wait_for_summary: bool = False
    now: Instant | None = None
    as_of: AsOf | None = None


class Used(Wire):
    """What a section of the context holds.

    Attributes:
        section: Which one.
        items: How many records, memories or summaries.
        tokens: Their tokens, message overhead included.
    """

    section: Section
    items: Offset
    tokens: Offset


class LeftOut(Wire):
    """What is not in the context, and why.

    Attributes:
        id: The record or summary.
        section: Where it would have stood.
        why: Why it is not in.
        tokens: How many tokens it would have taken.
        score: Its score.
    """

    id: Identifier
    section: Section
    why: WhyLeftOut
    tokens: Offset
    score: float = 0.0


class ContextAnswer(Wire):
    """A context.

    Attributes:
        messages: OpenAI chat messages, in order.
        tokens: Their tokens, message overhead included; at most the budget.
        exact: Whether the model's encoding is known. If not, ``tokens`` were counted with o200k_base.
        used: What the sections hold.
        left_out: What is not in it: the newest and best first, at most 200.
        left_out_total: How many there are.
        recalled: Ids of the recalled memories, best first.
        summaries: Ids of the summaries, oldest first.
        degraded: What could not be done as asked.
        now: The instant that ages were measured from.
    """

    kind: Literal["context"]
    messages: tuple[JsonObject, ...]
    tokens: Offset
    exact: bool = True
    used: tuple[Used, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    left_out_total: Offset = 0
    recalled: tuple[Identifier, ...] = ()
    summaries: tuple[Identifier, ...] = ()
    degraded: tuple[Text, ...] = ()
    now: Instant | None = None


class SummariesQuery(Query):
    """The summaries of a scope, oldest first. ``sessionid`` of the envelope restricts them to one session.

    Attributes:
        level: Only this level; None: all.
        active: Only those that stand in the window now; False: also those that were replaced.
        limit: At most so many, the newest ones.
        as_of: Those that were due then, active as they were then; None: as it is now. Summaries have a place in the log
            but did not happen: the axis ``happened`` is refused. A summary whose last copy is newer than a log time
            is absent.
    """

    ask: Literal["summaries"] = "summaries"
    level: Annotated[int, Field(ge=1, le=16, strict=True)] | None = None
    active: bool = True
    limit: Annotated[int, Field(ge=1, le=1_000, strict=True)] = 100
    as_of: AsOf | None = None

    @model_validator(mode="after")
    def _is_of_the_recorded_axis(self) -> "SummariesQuery":
        if self.as_of is not None and self.as_of.happened is not None:
            raise ValueError("'as_of' of summaries: name 'offset', 'recorded' or 'positions'; summaries do not happen")
        return self


class StoredSummary(Wire):
    """A summary as the history knows it.

    Attributes:
        summary: The summary.
        session: Its session.
        user: Its user; None: shared.
        active: Whether it stands in the window now.
        recorded: When it was appended to ``memory.summaries``.
        offset: Where, in the agent's partition there.
    """

    summary: SummaryCreated
    session: Identifier | None = None
    user: Identifier | None = None
    active: bool = True
    recorded: Instant
    offset: Offset


class SummariesAnswer(Wire):
    """Summaries, oldest first.

    Attributes:
        summaries: The summaries.
        truncated: There are older ones.
    """

    kind: Literal["summaries"]
    summaries: tuple[StoredSummary, ...]
    truncated: bool = False
