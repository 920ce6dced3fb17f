"""What agents ask (``memory.queries``) and what they are told (``memory.replies``).

A request names its reply address in Kafka headers (:data:`REPLY_TOPIC`, :data:`REPLY_PARTITION`), so that a reply can
be routed, and a client can pass over the replies of others, without decoding a body. The reply carries the request's
id in the header :data:`CORRELATION_ID`. ``ask`` of the request's data names what is asked.
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from engramlog.schemas.envelope import AgentEvent, Envelope
from engramlog.schemas.instants import Instant
from engramlog.schemas.records import MarkScope, MemoryRecord, Share, Text, Wire
from engramlog.schemas.scope import Identifier, Scope, Users

REPLY_TOPIC = "reply_to"
REPLY_PARTITION = "reply_partition"
CORRELATION_ID = "correlation_id"

ErrorCode = Literal[
    "bad_request",  # the request cannot be answered as it stands; the message says what to change
    "not_found",  # no such record in this scope
    "too_large",  # the answer would not fit into one reply
    "unavailable",  # a store does not answer; try again
    "internal",  # a fault of ours; the engine's log has it
]

Topic = Annotated[str, StringConstraints(min_length=1, max_length=249)]
Offset = Annotated[int, Field(ge=0, strict=True)]
MAX_WINDOW = 1_000_000
MAX_IDS = 10_000
"""How many records one command may name."""
Reason = Annotated[str, StringConstraints(max_length=10_000)]


class Reached(Wire):
    """A position on the wire: everything up to and including ``offset`` is meant.

    Attributes:
        topic: Full topic name.
        partition: Partition.
        offset: Offset of the last event.
    """

    topic: Topic
    partition: Offset
    offset: Offset


class AsOf(Wire):
    """Memory as it was: exactly one of three axes.

    Attributes:
        offset: Recorded axis: as of this offset of the agent's partition, inclusive.
        recorded: Recorded axis: as of this log time, inclusive.
        happened: Happened axis: of what is remembered now, what happened until this instant, inclusive.
    """

    offset: Offset | None = None
    recorded: Instant | None = None
    happened: Instant | None = None

    @model_validator(mode="after")
    def _names_one_axis(self) -> "AsOf":
        if sum(v is not None for v in (self.offset, self.recorded, self.happened)) != 1:
            raise ValueError("name exactly one of 'offset', 'recorded' and 'happened'")
        return self


class Page(Wire):
    """Where the next page of a long history goes on: as given by the page before, never made up.

    Attributes:
        before: Only records at lower offsets.
        rank: How many records of the window were already given (the next one scores ``keep_rate ** rank``).
        as_of: The offset at which the first page was read; all pages show the same memory.
    """

    before: Offset
    rank: Offset
    as_of: Offset


class Query(Wire):
    """What every query carries.

    Attributes:
        users: Whose records are seen: the envelope's user's and the shared ones, or everybody's.
        timeout_ms: For how long the caller waits, from the moment the broker took the request; later, nobody answers.
        min_positions: What the answer must have seen; it waits for it, until shortly before the deadline.
    """

    users: Users = "own"
    timeout_ms: Annotated[int, Field(ge=1, le=600_000, strict=True)] = 10_000
    min_positions: Annotated[tuple[Reached, ...], Field(max_length=64)] = ()


class HistoryQuery(Query):
    """The newest turns, newest scoring 1.0.

    Attributes:
        window: How many records besides the protected head; None: all, 0: only the head.
        keep_rate: Score of a record divided by the score of the next newer one, 0 to 1.
        as_of: Memory as it was; None: as it is.
        page: Where to go on, for the later pages of a long answer.
    """

    ask: Literal["history"] = "history"
    window: Annotated[int, Field(ge=0, le=MAX_WINDOW, strict=True)] | None = None
    keep_rate: Share = 0.9
    as_of: AsOf | None = None
    page: Page | None = None


class RecordQuery(Query):
    """One record by its id, also a removed one.

    Attributes:
        record_id: Its id.
    """

    ask: Literal["record"] = "record"
    record_id: Identifier


class RecordsQuery(Query):
    """Records by their ids, also removed ones.

    Attributes:
        record_ids: Their ids, at most 1,000.
    """

    ask: Literal["records"] = "records"
    record_ids: Annotated[tuple[Identifier, ...], Field(max_length=1_000)]


class StatsQuery(Query):
    """How much is remembered in the scope."""

    ask: Literal["stats"] = "stats"


class Command(Query):
    """A query that changes memory: resolved by the engine to ids and positions, which are published as an event.

    It has exactly one effect, however often it is asked under the same request id, and the same answer.
    """


class PopCommand(Command):
    """Take the newest records out of the window, never the protected head.

    Attributes:
        count: How many; fewer where there are fewer.
        leave: What they leave.
    """

    ask: Literal["pop"] = "pop"
    count: Annotated[int, Field(ge=0, le=MAX_IDS, strict=True)]
    leave: MarkScope = "window"


class RemoveCommand(Command):
    """Take records out of the window by their indices in it, oldest first from 0.

    Duplicates count once; the protected head and indices outside of the window (negative ones, too) are passed over.

    Attributes:
        indices: Their indices.
        leave: What they leave.
    """

    ask: Literal["remove"] = "remove"
    indices: Annotated[tuple[Annotated[int, Field(strict=True)], ...], Field(max_length=MAX_IDS)]
    leave: MarkScope = "window"


class CleanToolCallsCommand(Command):
    """Take tool and function records out of the window, and assistant records that call tools.

    Attributes:
        leave: What they leave.
    """

    ask: Literal["clean_tool_calls"] = "clean_tool_calls"
    leave: MarkScope = "window"


class ClearCommand(Command):
    """Begin a new epoch: everything recorded so far leaves the view.

    Attributes:
        leave: What it leaves.
    """

    ask: Literal["clear"] = "clear"
    leave: MarkScope = "window"


class CorrectCommand(Command):
    """Give a record new content in its old place.

    Attributes:
        record_id: The record.
        content: Its content from now on.
        reason: Why, for people.
    """

    ask: Literal["correct"] = "correct"
    record_id: Identifier
    content: Text
    reason: Reason = ""


class InvalidateCommand(Command):
    """Say that a record is no longer true.

    Attributes:
        record_id: The record.
        reason: Why, for people.
        replaced_by: The record that holds the truth now.
    """

    ask: Literal["invalidate"] = "invalidate"
    record_id: Identifier
    reason: Reason = ""
    replaced_by: Identifier | None = None


class EndSessionCommand(Command):
    """Say that a session is over. The request must name one.

    Attributes:
        reason: Why, for people.
    """

    ask: Literal["end_session"] = "end_session"
    reason: Reason = ""


class EraseCommand(Command):
    """Erase for ever: an entry of the ledger. From the answer on, nothing shows what was recorded before it.

    Attributes:
        what: Named records; the session of the request; its user's records with this agent; or the whole agent.
        record_ids: The records, for ``record``.
    """

    ask: Literal["erase"] = "erase"
    what: Literal["record", "session", "user", "agent"]
    record_ids: Annotated[tuple[Identifier, ...], Field(max_length=MAX_IDS)] = ()


class QueryAsked(AgentEvent):
    """A request. Its ``id`` is the request id: asked again, it means the same request."""

    type: Literal["engramlog.query.asked.v1"] = "engramlog.query.asked.v1"
    data: Annotated[
        HistoryQuery
        | RecordQuery
        | RecordsQuery
        | StatsQuery
        | PopCommand
        | RemoveCommand
        | CleanToolCallsCommand
        | ClearCommand
        | CorrectCommand
        | InvalidateCommand
        | EndSessionCommand
        | EraseCommand,
        Field(discriminator="ask"),
    ]

    def scope(self) -> Scope:
        """Whose memory is asked, as the asking user sees it."""
        return Scope(self.tenantid, self.agentid, self.sessionid, self.userid, self.data.users)


class Invalidation(Wire):
    """Why a record is no longer true.

    Attributes:
        offset: Where that was recorded.
        reason: Why, for people.
        replaced_by: The record that holds the truth now.
    """

    offset: Offset
    reason: str = ""
    replaced_by: Identifier | None = None


class StoredRecord(Wire):
    """A record as the history store knows it.

    Attributes:
        record: The record, corrected where it was corrected.
        session: Its session.
        user: Its user; None: shared.
        offset: Where its last copy lies, in the agent's partition.
        recorded: When the broker appended it.
        removed_at: Offset of the event that took it out of the window; None: it is in.
        corrected_at: Offset of the correction that is shown; None: as published.
        invalidated: Set when it is no longer true.
    """

    record: MemoryRecord
    session: Identifier | None = None
    user: Identifier | None = None
    offset: Offset
    recorded: Instant
    removed_at: Offset | None = None
    corrected_at: Offset | None = None
    invalidated: Invalidation | None = None


class ContextRecord(Wire):
    """A record and how much it counts.

    Attributes:
        stored: The record.
        score: 1.0 for the newest and for the protected head; ``keep_rate`` times as much for each step back.
    """

    stored: StoredRecord
    score: float

    @property
    def record(self) -> MemoryRecord:
        """The record itself."""
        return self.stored.record

    @property
    def timestamp(self) -> Instant:
        """When it happened."""
        return self.stored.record.timestamp


class HistoryAnswer(Wire):
    """A window of the history.

    Attributes:
        records: Oldest first, the protected head before all. A page holds the newest of what was not yet given.
        truncated: Older records exist that the window left out.
        next_page: Set when the answer goes on.
    """

    kind: Literal["history"]
    records: tuple[ContextRecord, ...]
    truncated: bool = False
    next_page: Page | None = None


class RecordsAnswer(Wire):
    """Records by id.

    Attributes:
        records: Those found, in the order asked.
        missing: The ids that do not exist in the scope (never published, erased, or another user's).
        unread: The ids that did not fit into this reply: ask for them again.
    """

    kind: Literal["records"]
    records: tuple[StoredRecord, ...]
    missing: tuple[Identifier, ...] = ()
    unread: tuple[Identifier, ...] = ()


class StatsAnswer(Wire):
    """Counts of a scope.

    Attributes:
        records: Records that are kept, removed ones included.
        visible: Records in the window.
        sessions: Sessions that hold records.
        users: Users that hold records.
        first_recorded: When the oldest kept record was appended.
        last_recorded: When the newest was.
    """

    kind: Literal["stats"]
    records: Offset
    visible: Offset
    sessions: Offset
    users: Offset
    first_recorded: Instant | None = None
    last_recorded: Instant | None = None


class CommandAnswer(Wire):
    """What a command did.

    Attributes:
        ids: The records that were taken out, oldest first; for other commands the record that was named, if any.
        event: Where its event lies; None: there was nothing to do.
    """

    kind: Literal["command"]
    ids: tuple[Identifier, ...] = ()
    event: Reached | None = None


class Failure(Wire):
    """Why there is no answer.

    Attributes:
        code: For programs.
        message: For people: what is wrong, and what to do.
    """

    code: ErrorCode
    message: str


class Reply(Wire):
    """The body of a reply: an answer or a failure.

    Attributes:
        answer: What was asked for.
        error: Why there is none.
        positions: What the answer has seen: give them as ``min_positions`` to see no less.
        stale: The answer has not seen all of ``min_positions``: time ran out.
        waited_ms: How long it waited for ``min_positions``.
        took_ms: How long reading took.
    """

    answer: (
        Annotated[HistoryAnswer | RecordsAnswer | StatsAnswer | CommandAnswer, Field(discriminator="kind")] | None
    ) = None
    error: Failure | None = None
    positions: tuple[Reached, ...] = ()
    stale: bool = False
    waited_ms: float = 0.0
    took_ms: float = 0.0


class QueryReplied(Envelope):
    """A reply; ``correlationid`` is the request's id."""

    type: Literal["engramlog.query.replied.v1"] = "engramlog.query.replied.v1"
    data: Reply
