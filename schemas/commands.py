"""Requests that change memory."""

from typing import Annotated, Literal

from pydantic import Field

from engramlog.schemas.asking import MAX_IDS, Query, Reason
from engramlog.schemas.records import MarkScope, Text
from engramlog.schemas.scope import Identifier


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


class SummariseCommand(Command):
    """Have all of a session summarised that may be. The request must name one. The summary comes when it is made."""

    ask: Literal["summarise"] = "summarise"


class EraseCommand(Command):
    """Erase for ever: an entry of the ledger. From the answer on, nothing shows what was recorded before it.

    Attributes:
        what: Named records; the session of the request; its user's records with this agent; or the whole agent.
        record_ids: The records, for ``record``.
    """

    ask: Literal["erase"] = "erase"
    what: Literal["record", "session", "user", "agent"]
    record_ids: Annotated[tuple[Identifier, ...], Field(max_length=MAX_IDS)] = ()
