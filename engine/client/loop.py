"""Memory in an agent's loop: what comes before the model's turn, and what comes after it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from engramlog.engine.client.context import Context
from engramlog.schemas.errors import SchemaViolation, StoreUnavailable
from engramlog.schemas.formats import from_openai
from engramlog.schemas.records import MemoryRecord
from engramlog.schemas.scope import Position

Said: TypeAlias = str | Mapping[str, Any] | MemoryRecord
"""Something that was said: a text, an OpenAI chat message, or a record."""

MEMORY_TOOLS: Final = frozenset({"save_memory", "recall_memories", "forget_memory"})
"""Tools whose results are memories already: recorded as recalled, they are neither derived nor recalled again."""


def records_of(said: Said | Sequence[Said], *, role: Literal["user", "assistant"]) -> list[MemoryRecord]:
    """The records of what was said, in order.

    Args:
        said: One thing, or several: an assistant's message with tool calls, the tools' results, the final answer.
        role: Who says a plain text.

    Raises:
        SchemaViolation: Nothing was said, or something that is no message.
    """
    several: Sequence[Said] = [said] if isinstance(said, (str, Mapping, MemoryRecord)) else said
    if not several:
        raise SchemaViolation("a turn in which nothing was said: give a text, a message or a record")
    records = [_record(one, role) for one in several]
    of_memory = {
        call.get("id")
        for record in records
        for call in record.tool_calls
        if isinstance(function := call.get("function"), dict) and function.get("name") in MEMORY_TOOLS
    }
    return [
        record.model_copy(update={"origin": "recall"})
        if record.role == "tool" and record.tool_call_id in of_memory and not isinstance(one, MemoryRecord)
        else record
        for one, record in zip(several, records, strict=True)
    ]


def _record(said: Said, role: Literal["user", "assistant"]) -> MemoryRecord:
    if isinstance(said, MemoryRecord):
        return said
    if isinstance(said, Mapping):
        return from_openai(dict(said))
    return MemoryRecord(role=role, content=said)


def holding(context: Context, position: Position) -> Context:
    """The context itself, if it was read from a history that has the message at a position.

    Raises:
        StoreUnavailable: It has not: the model would answer the message before.
    """
    if context.seen.stale:
        raise StoreUnavailable(
            f"the message is in the log ({position}), but the history has not come as far in time; ask with 'context'"
        )
    return context
