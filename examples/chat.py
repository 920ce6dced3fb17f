"""A chat in the terminal with any OpenAI-compatible endpoint, whose memory is engramlog: it remembers across restarts.

pip install engramlog openai
export OPENAI_BASE_URL=http://localhost:11434/v1 OPENAI_API_KEY=none OPENAI_MODEL=qwen3
python examples/chat.py --bootstrap-servers localhost:9092 --session monday
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator
from typing import Any

import openai

from engramlog.engine.client import KafkaConfig, MemoryClient, MemoryRecord, MemoryTools, Scope

RULES = (
    "You are a helpful assistant with a memory. What you are shown from earlier talks is what you remember. "
    "Save what is worth remembering, and look for memories when you lack something."
)
ROUNDS = 5
"""How often the model may call tools before it must answer."""


async def turn(memory: MemoryClient, model: openai.AsyncOpenAI, scope: Scope, said: str, *, budget_tokens: int) -> str:
    """One turn: remember what the user says, let the model answer with its tools, remember what it did and said."""
    name, tools = os.environ.get("OPENAI_MODEL", "gpt-4o-mini"), MemoryTools(memory, scope)
    context = await memory.before_turn(scope, said, budget_tokens=budget_tokens, model=name)
    messages: list[Any] = list(context.messages)
    shown = len(messages)
    for round_ in range(ROUNDS + 1):
        offered: dict[str, Any] = {"tools": tools.schemas()} if round_ < ROUNDS else {}
        answer = (await model.chat.completions.create(model=name, messages=messages, **offered)).choices[0].message
        messages.append(answer.model_dump(exclude_none=True))
        if not (offered and answer.tool_calls):
            break
        for call in answer.tool_calls:
            asked: Any = call
            result = await tools.call(asked.function.name, asked.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    await memory.after_turn(scope, messages[shown:])
    return answer.content or ""


async def chat(arguments: argparse.Namespace) -> int:
    """Talk until there is nothing more to say; returns the exit code."""
    kafka = KafkaConfig(arguments.bootstrap_servers, prefix=arguments.prefix)
    scope = Scope(tenant="default", agent="chat", session=arguments.session, user=arguments.user)
    model = openai.AsyncOpenAI(base_url=os.environ.get("OPENAI_BASE_URL"))  # the key is in OPENAI_API_KEY
    failed = False
    async with MemoryClient(kafka, timeout_s=30) as memory, model:
        if not (await memory.history(scope, window=0)).records:  # a new talk begins with the rules
            await memory.publish(scope, MemoryRecord(role="system", content=RULES))
        for said in [arguments.once] if arguments.once else lines():
            try:
                print(await turn(memory, model, scope, said, budget_tokens=arguments.budget))
            except openai.OpenAIError as error:
                failed = True
                print(f"the model does not answer: {error}", file=sys.stderr)
    return int(failed and arguments.once is not None)


def lines() -> Iterator[str]:
    """What the user types, until the end of the input."""
    while True:
        try:
            said = input("> ").strip()
        except EOFError:
            return
        if said:
            yield said


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Chat with a model that remembers.")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--prefix", default="memory")
    parser.add_argument("--session", default="main")
    parser.add_argument("--user", default="me")
    parser.add_argument("--budget", type=int, default=4_000, help="tokens of the context")
    parser.add_argument("--once", metavar="TEXT", help="say this, print the answer, and end")
    sys.exit(asyncio.run(chat(parser.parse_args())))
