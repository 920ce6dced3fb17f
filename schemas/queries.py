"""What agents ask (``memory.queries``) and what they are told (``memory.replies``).

A request names its reply address in Kafka headers (:data:`REPLY_TOPIC`, :data:`REPLY_PARTITION`), so that a reply can
be routed, and a client can pass over the replies of others, without decoding a body. The reply carries the request's
id in the header :data:`CORRELATION_ID`. ``ask`` of the request's data names what is asked.
"""

from typing import Annotated, Literal

from pydantic import Field

from engramlog.schemas.asking import MAX_IDS, MAX_WINDOW, AsOf, Offset, Page, Query, Reached
from engramlog.schemas.commands import (
    CleanToolCallsCommand,
    ClearCommand,
    Command,
    CorrectCommand,
    EndSessionCommand,
    EraseCommand,
    InvalidateCommand,
    PopCommand,
    RemoveCommand,
    SummariseCommand,
)
from engramlog.schemas.contexts import (
    ContextAnswer,
    ContextQuery,
    LeftOut,
    RecallPart,
    StoredSummary,
    SummariesAnswer,
    SummariesQuery,
    Used,
)
from engramlog.schemas.envelope import AgentEvent, Envelope
from engramlog.schemas.examining import PointsAnswer, PointsQuery, PointState
from engramlog.schemas.instants import Instant
from engramlog.schemas.recalls import (
    RecallAnswer,
    RecallFilter,
    RecallHit,
    RecallQuery,
    ScorePart,
    SimilarQuery,
    TopicCount,
    TopicsAnswer,
    TopicsQuery,
)
from engramlog.schemas.records import Share, Wire
from engramlog.schemas.scope import Identifier, Scope
from engramlog.schemas.stored import ContextRecord, Invalidation, StoredRecord

__all__ = [
    "CORRELATION_ID",
    "MAX_IDS",
    "MAX_WINDOW",
    "REPLY_PARTITION",
    "REPLY_TOPIC",
    "AsOf",
    "CleanToolCallsCommand",
    "ClearCommand",
    "Command",
    "CommandAnswer",
    "ContextAnswer",
    "ContextQuery",
    "ContextRecord",
    "CorrectCommand",
    "EndSessionCommand",
    "EraseCommand",
    "ErrorCode",
    "Failure",
    "HistoryAnswer",
    "HistoryQuery",
    "InvalidateCommand",
    "Invalidation",
    "LeftOut",
    "Offset",
    "Page",
    "PointState",
    "PointsAnswer",
    "PointsQuery",
    "PopCommand",
    "Query",
    "QueryAsked",
    "QueryReplied",
    "Reached",
    "RecallAnswer",
    "RecallFilter",
    "RecallHit",
    "RecallPart",
    "RecallQuery",
    "RecordQuery",
    "RecordsAnswer",
    "RecordsQuery",
    "RemoveCommand",
    "Reply",
    "ScorePart",
    "SimilarQuery",
    "StatsAnswer",
    "StatsQuery",
    "StoredRecord",
    "StoredSummary",
    "SummariesAnswer",
    "SummariesQuery",
    "SummariseCommand",
    "TopicCount",
    "TopicsAnswer",
    "TopicsQuery",
    "Used",
]
"""Whatever a request or a reply is made of, also what lies in modules of its own."""

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


class HistoryQuery(Query):
    """The newest turns, newest scoring 1.0.

    Attributes:
        window: How many records besides the protected head; None: all, 0: only the head.
        keep_rate: Score of a record divided by the score of the next newer one, 0 to 1.
        as_of: Memory as it was; None: as it is. If it lies ahead of what is stored, the answer waits as for
            ``min_positions``.
        summaries: Whether a session's summaries stand for the records that they cover, which are left out then.
        page: Where to go on, for the later pages of a long answer.
    """

    ask: Literal["history"] = "history"
    window: Annotated[int, Field(ge=0, le=MAX_WINDOW, strict=True)] | None = None
    keep_rate: Share = 0.9
    as_of: AsOf | None = None
    summaries: bool = True
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


class QueryAsked(AgentEvent):
    """A request. Its ``id`` is the request id: asked again, it means the same request."""

    type: Literal["engramlog.query.asked.v1"] = "engramlog.query.asked.v1"
    data: Annotated[
        HistoryQuery
        | RecordQuery
        | RecordsQuery
        | StatsQuery
        | SimilarQuery
        | RecallQuery
        | TopicsQuery
        | ContextQuery
        | SummariesQuery
        | PointsQuery
        | PopCommand
        | RemoveCommand
        | CleanToolCallsCommand
        | ClearCommand
        | CorrectCommand
        | InvalidateCommand
        | EndSessionCommand
        | SummariseCommand
        | EraseCommand,
        Field(discriminator="ask"),
    ]

    def scope(self) -> Scope:
        """Whose memory is asked, as the asking user sees it."""
        return Scope(self.tenantid, self.agentid, self.sessionid, self.userid, self.data.users)


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
        Annotated[
            HistoryAnswer
            | RecordsAnswer
            | StatsAnswer
            | RecallAnswer
            | TopicsAnswer
            | ContextAnswer
            | SummariesAnswer
            | PointsAnswer
            | CommandAnswer,
            Field(discriminator="kind"),
        ]
        | None
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
