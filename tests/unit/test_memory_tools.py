"""Memory as tools of a model: their schemas, and what a call does; a stand-in keeps what the client is asked."""

import json
from datetime import UTC, datetime
from typing import Any, Literal, cast

import pytest

from engramlog.engine.client import MemoryClient, MemoryRecord, MemoryTools, Position, Recall, Scope, Seen
from engramlog.engine.client.tool_schemas import arguments_of, tool_schema
from engramlog.schemas.envelope import RecordsRemovedEvent
from engramlog.schemas.errors import RequestRefused, StoreUnavailable
from engramlog.schemas.queries import RecallHit, StoredRecord

SCOPE = Scope("acme", "帮手", "s1", "ada")
AT = datetime(2026, 3, 1, tzinfo=UTC)
POSITION = Position("memory.records", 0, 1)


def hit(record_id: str, content: str, **more: Any) -> RecallHit:
    record = MemoryRecord.model_validate({"record_id": record_id, "role": "user", "content": content, "timestamp": AT})
    stored = StoredRecord(record=record.model_copy(update=more.pop("record", {})), offset=1, recorded=AT)
    return RecallHit(stored=stored, score=0.5, **more)


class Client:
    """In the place of the client."""

    def __init__(self) -> None:
        self.published: list[tuple[Scope, MemoryRecord]] = []
        self.events: list[Any] = []
        self.recalled: list[tuple[Scope, str, int]] = []
        self.known = {"r1"}
        self.error: Exception | None = None

    async def publish(self, scope: Scope, record: MemoryRecord) -> Position:
        if self.error is not None:
            raise self.error
        self.published.append((scope, record))
        return POSITION

    async def publish_events(self, events: list[Any]) -> list[Position]:
        self.events += events
        return [POSITION]

    async def recall(self, scope: Scope, text: str, *, limit: int) -> Recall:
        self.recalled.append((scope, text, limit))
        hits = (
            hit("r1", "我喜欢喝茶 🍵", conflicts=("r2",)),
            hit("r2", "Coffee.", record={"kind": "preference", "role_name": "Ada"}),
        )
        return Recall(hits, None, (), AT, 0, Seen((), stale=False))

    async def record(self, scope: Scope, record_id: str) -> StoredRecord:
        if scope.session is not None or record_id not in self.known:
            raise RequestRefused("not_found", f"no record {record_id!r} in this scope")
        return hit(record_id, "x").stored


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def tools(client: Client) -> MemoryTools:
    return MemoryTools(cast("MemoryClient", client), SCOPE)


def test_the_schemas_are_those_of_the_signatures_and_docstrings(tools: MemoryTools) -> None:
    save, recall, forget = tools.schemas()
    assert [tool["function"]["name"] for tool in (save, recall, forget)] == [
        "save_memory",
        "recall_memories",
        "forget_memory",
    ]
    parameters = save["function"]["parameters"]
    assert parameters["required"] == ["content"]
    assert parameters["additionalProperties"] is False
    assert parameters["properties"]["kind"]["enum"] == ["fact", "preference", "decision", "rule", "event"]
    assert parameters["properties"]["importance"] == {
        "type": "number",
        "minimum": 0,
        "maximum": 1,
        "default": 0.5,
        "description": "From 0 (trifle) to 1 (must never be forgotten).",
    }
    assert recall["function"]["description"] == (
        "Look for what is remembered from earlier talks. Memories that contradict each other name each other."
    )
    assert "Args:" not in json.dumps([save, recall, forget])
    assert '"title"' not in json.dumps([save, recall, forget])
    assert all(
        p["description"] for t in (save, recall, forget) for p in t["function"]["parameters"]["properties"].values()
    )


def test_a_schema_is_made_of_any_function() -> None:
    async def book(title: str, mode: Literal["fast", "slow"] = "slow", seats: int | None = None) -> None:
        """Book a place.

        It may take long.

        Args:
            title: What it is called,
                on two lines.
            mode: How.
        """

    schema = tool_schema(book, arguments_of(book))["function"]
    assert (schema["name"], schema["description"]) == ("book", "Book a place. It may take long.")
    properties = schema["parameters"]["properties"]
    assert properties["title"] == {"type": "string", "description": "What it is called, on two lines."}
    assert "description" not in properties["seats"]


async def test_what_is_saved_is_a_long_term_memory_of_all_sessions(tools: MemoryTools, client: Client) -> None:
    arguments = {"content": "Ada 喜欢喝茶 🍵", "kind": "preference", "importance": 1, "tags": ["drink", "drink"]}
    answer = json.loads(await tools.call("save_memory", json.dumps(arguments)))
    ((scope, record),) = client.published
    assert answer == {"saved": record.record_id}
    assert scope == Scope("acme", "帮手", None, "ada")
    assert (record.content, record.kind, record.importance, record.tags) == (
        "Ada 喜欢喝茶 🍵",
        "preference",
        1.0,
        ("drink",),
    )
    assert (record.layer, record.origin, record.role) == ("long_term", "tool", "assistant")


async def test_what_is_recalled_says_who_said_it_when_and_what_contradicts_it(
    tools: MemoryTools, client: Client
) -> None:
    answer = await tools.call("recall_memories", {"query": "饮料?", "limit": 2})
    assert client.recalled == [(SCOPE, "饮料?", 2)]
    assert "我喜欢喝茶 🍵" in answer
    first, second = json.loads(answer)["memories"]
    assert first == {
        "id": "r1",
        "content": "我喜欢喝茶 🍵",
        "said_by": "user",
        "when": "2026-03-01T00:00:00+00:00",
        "contradicts": ["r2"],
    }
    assert (second["kind"], second["said_by"]) == ("preference", "Ada")


async def test_forgetting_takes_a_record_out_of_window_and_recall(tools: MemoryTools, client: Client) -> None:
    assert json.loads(await tools.call("forget_memory", '{"record_id": "r1"}')) == {"forgotten": "r1"}
    (event,) = client.events
    assert isinstance(event, RecordsRemovedEvent)
    assert (event.tenantid, event.agentid, event.userid) == ("acme", "帮手", "ada")
    assert (event.data.ids, event.data.scope, event.data.cause) == (("r1",), "both", "forget")


async def test_another_users_memory_cannot_be_forgotten(tools: MemoryTools, client: Client) -> None:
    assert "not_found" in json.loads(await tools.call("forget_memory", '{"record_id": "bobs"}'))["error"]
    assert not client.events


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("drop_table", "{}", "there is no tool 'drop_table'; there are save_memory"),
        ("save_memory", "{}", "content: Field required"),
        ("save_memory", "", "content: Field required"),
        ("save_memory", '{"content": "x", "kind": "poem"}', "kind: "),
        ("save_memory", '{"content": "x", "importance": 7}', "importance: "),
        ("save_memory", '{"content": "", "kind": "fact"}', "content: "),
        ("save_memory", '{"content": "x", "colour": "red"}', "colour: "),
        ("save_memory", '{"content": "x"', "not JSON"),
        ("save_memory", '["x"]', "object"),
        ("recall_memories", '{"query": "x", "limit": 21}', "limit: "),
        ("forget_memory", {"record_id": 7}, "record_id: "),
    ],
    ids=str,
)
async def test_a_wrong_call_is_told_to_the_model(
    tools: MemoryTools, client: Client, name: str, arguments: Any, says: str
) -> None:
    assert says in json.loads(await tools.call(name, arguments))["error"]
    assert not client.published
    assert not client.events


async def test_a_failing_engine_is_told_to_the_model(tools: MemoryTools, client: Client) -> None:
    client.error = StoreUnavailable("Kafka does not answer")
    assert json.loads(await tools.call("save_memory", {"content": "x"})) == {"error": "Kafka does not answer"}


def test_a_tool_is_known_by_its_name(tools: MemoryTools) -> None:
    assert "save_memory" in tools
    assert "schemas" not in tools
