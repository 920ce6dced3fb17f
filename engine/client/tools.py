"""Memory as tools of a language model: it saves, recalls and forgets by itself."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Field, ValidationError

from engramlog.engine.client.tool_schemas import arguments_of, tool_schema
from engramlog.schemas.codec import invalid
from engramlog.schemas.envelope import RecordsRemovedEvent
from engramlog.schemas.errors import EngramlogError
from engramlog.schemas.recalls import RecallHit
from engramlog.schemas.records import MemoryRecord, RecordsRemoved
from engramlog.schemas.scope import Scope

if TYPE_CHECKING:
    from engramlog.engine.client.client import MemoryClient

SOURCE = "engramlog/tools"
Kind: TypeAlias = Literal["fact", "preference", "decision", "rule", "event"]
Importance: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Tag: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]
Said: TypeAlias = Annotated[str, Field(min_length=1)]
Tool: TypeAlias = Callable[..., Awaitable[Any]]


class MemoryTools:
    """Tools of one agent's model, bound to its memory.

    ::

        tools = MemoryTools(client, scope)
        answer = await model(messages=…, tools=tools.schemas())
        for call in answer.tool_calls:
            result = await tools.call(call.function.name, call.function.arguments)

    Args:
        client: The client.
        scope: Whose memory. What is saved belongs to the agent and the scope's user, not to the session: it is recalled
            in all of them.
    """

    def __init__(self, client: "MemoryClient", scope: Scope) -> None:
        self._client = client
        self._scope = scope
        self._everywhere = replace(scope, session=None)
        tools: tuple[Tool, ...] = (self.save_memory, self.recall_memories, self.forget_memory)
        self._tools = {tool.__name__: (tool, arguments_of(tool)) for tool in tools}

    def schemas(self) -> list[dict[str, Any]]:
        """The tools, as the Chat Completions API takes them."""
        return [tool_schema(tool, arguments) for tool, arguments in self._tools.values()]

    def __contains__(self, name: object) -> bool:
        """Whether a tool of that name is one of these."""
        return name in self._tools

    async def call(self, name: str, arguments: str | Mapping[str, Any]) -> str:
        """Carry out a call of the model.

        Args:
            name: The tool.
            arguments: Its arguments, as JSON or as an object.

        Returns:
            JSON for the model. What went wrong is in it, under ``error``: the model may do better, the talk goes on.
        """
        try:
            return _text(await self._call(name, arguments))
        except ValidationError as error:
            return _text({"error": str(invalid(error))})
        except EngramlogError as error:
            return _text({"error": str(error)})

    async def _call(self, name: str, arguments: str | Mapping[str, Any]) -> Any:
        if name not in self._tools:
            return {"error": f"there is no tool {name!r}; there are {', '.join(self._tools)}"}
        tool, model = self._tools[name]
        if isinstance(arguments, str):
            given = model.model_validate_json(arguments.strip() or "{}")
        else:
            given = model.model_validate(dict(arguments))
        return await tool(**{field: getattr(given, field) for field in type(given).model_fields})

    async def save_memory(
        self, content: Said, kind: Kind = "fact", importance: Importance = 0.5, tags: list[Tag] | None = None
    ) -> dict[str, Any]:
        """Save something worth remembering in later talks: a fact, a preference, a decision, a rule or an event.

        Write one complete sentence that can be understood without this talk, in the user's language.

        Args:
            content: What to remember.
            kind: What it is.
            importance: From 0 (trifle) to 1 (must never be forgotten).
            tags: Labels to group memories by.
        """
        record = MemoryRecord(
            role="assistant",
            content=content,
            kind=kind,
            importance=float(importance),
            tags=tuple(dict.fromkeys(tags or ())),
            layer="long_term",
            origin="tool",
        )
        await self._client.publish(self._everywhere, record)
        return {"saved": record.record_id}

    async def recall_memories(
        self, query: Said, limit: Annotated[int, Field(ge=1, le=20)] = 5
    ) -> dict[str, list[dict[str, Any]]]:
        """Look for what is remembered from earlier talks. Memories that contradict each other name each other.

        Args:
            query: What to look for, as a question or a few words.
            limit: How many memories at most.
        """
        found = await self._client.recall(self._scope, query, limit=limit)
        return {"memories": [_memory(hit) for hit in found.hits]}

    async def forget_memory(self, record_id: Said) -> dict[str, Any]:
        """Forget a memory that is wrong, or that the user wants to be forgotten. It is not recalled any more.

        Args:
            record_id: The id of the memory, as recall_memories gives it.
        """
        await self._client.record(self._everywhere, record_id)  # one that this user does not see is not found
        event = RecordsRemovedEvent(
            source=SOURCE,
            tenantid=self._scope.tenant,
            agentid=self._scope.agent,
            userid=self._scope.user,
            data=RecordsRemoved(ids=(record_id,), scope="both", cause="forget"),
        )
        await self._client.publish_events([event])
        return {"forgotten": record_id}


def _memory(hit: RecallHit) -> dict[str, Any]:
    record = hit.stored.record
    found: dict[str, Any] = {
        "id": record.record_id,
        "content": record.content,
        "said_by": record.role_name or record.role,
        "when": record.timestamp.isoformat(timespec="seconds"),
    }
    if record.kind != "turn":
        found["kind"] = record.kind
    if hit.conflicts:
        found["contradicts"] = list(hit.conflicts)
    return found


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
