"""The command line of recall, on a real broker with a running engine and its offline model."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from engramlog.engine.client import MemoryClient, MemoryRecord, RecallFilter
from engramlog.schemas.errors import RequestRefused
from tests.brokers import Rig, eventually
from tests.commands import Command, command_on, lines

pytestmark = pytest.mark.kafka

EXAMPLE = Path(__file__).parents[2] / "examples" / "agent_turn.py"
TALK: list[dict[str, Any]] = [
    {"record_id": "rules", "role": "system", "content": "You are kind and brief."},
    {"record_id": "peanuts", "role": "user", "content": "我对花生过敏。", "kind": "fact", "tags": ("health", "food")},
    {"record_id": "friday", "role": "user", "content": "The meeting is on Friday at 10.", "importance": 1.0},
    {"record_id": "bicycle", "role": "user", "content": "My bicycle is red 🚲", "metadata": {"project_id": "p1"}},
    {"record_id": "noted", "role": "assistant", "content": "Noted: your bicycle."},
    {"record_id": "greeting", "role": "user", "content": "👋"},
]
EVERY_ROLE = ("--role", "user", "--role", "assistant", "--role", "system")
MINE = ("--tenant", "acme", "--agent", "helper", "--user", "ada", "--timeout", "60")


@dataclass
class Talked:
    """An engine that has been told the talk."""

    rig: Rig
    client: MemoryClient
    run: Command

    async def found(self, *arguments: str, code: int = 0) -> list[str]:
        """The ids of what a command finds."""
        (answer,) = lines(await self.run(*arguments, *MINE, "--json", code=code))
        return [hit["stored"]["record"]["record_id"] for hit in answer["hits"]]


@pytest_asyncio.fixture
async def talked(rig: Rig) -> AsyncIterator[Talked]:
    async with rig.consumers("store", "derive", "index", "answer"), rig.client(timeout_s=60) as client:
        said = [MemoryRecord.model_validate(record) for record in TALK]
        await client.publish(rig.scope(session="s1", user="ada"), said)
        await client.publish(
            rig.scope(session="s2", user="bob"),
            MemoryRecord(record_id="bobs", role="user", content="I sold my bicycle. 花生 is what I like."),
        )
        yield Talked(rig, client, command_on(rig))


async def test_recall_finds_what_was_said_before_it_and_explains_it(talked: Talked) -> None:
    (answer,) = lines(await talked.run("recall", "Am I allergic to anything?", *MINE, "--json"))
    assert not answer["stale"]
    assert answer["degraded"] == []
    ids = [hit["stored"]["record"]["record_id"] for hit in answer["hits"]]
    assert ids[0] == "peanuts"
    assert not {"rules", "bobs"} & set(ids)
    for hit in answer["hits"]:
        assert [part["name"] for part in hit["parts"]] == ["semantic", "importance", "recency"]
        assert sum(part["contribution"] for part in hit["parts"]) == pytest.approx(hit["score"], abs=1e-4)
    scores = [hit["score"] for hit in answer["hits"]]
    assert scores == sorted(scores, reverse=True)
    shown = (await talked.run("recall", "red bicycle", *MINE, "--explain")).stdout
    squeezed = [" ".join(line.split()) for line in shown.splitlines()]
    assert any(line.startswith("semantic ") and " × 1 = +" in line for line in squeezed)
    assert any(line.startswith("words: ") and "red" in line for line in squeezed)
    assert "My bicycle is red 🚲" in shown


async def test_similar_scores_by_cosine_alone(talked: Talked) -> None:
    (answer,) = lines(await talked.run("similar", "What colour is my bike?", *MINE, "--json"))
    assert len(answer["hits"]) == 3
    assert answer["hits"][0]["stored"]["record"]["record_id"] == "bicycle"
    for hit in answer["hits"]:
        assert hit["score"] == pytest.approx(hit["similarity"])
    assert await talked.found("similar", "我的自行车", "--min-similarity", "1") == []


async def test_options_restrict_what_is_looked_at(talked: Talked) -> None:
    every = {"peanuts", "friday", "bicycle", "noted", "greeting"}
    for options, ids in (
        ((), every),
        (("--role", "user"), every - {"noted"}),
        (("--role", "system"), {"rules"}),
        (("--kind", "fact"), {"peanuts"}),
        (("--tag", "food", "--tag", "nothing"), {"peanuts"}),
        (("--all-tags", "food", "--all-tags", "nothing"), set()),
        (("--meta", "project_id=p1"), {"bicycle"}),
        (("--meta", "project_id=p2", "--meta", "project_id=p1"), {"bicycle"}),
        (("--min-importance", "1"), {"friday"}),
        (("--sessions", "s1"), every),
        (("--sessions", "s2"), set()),
        (("--until", "2000-01-01T00:00:00Z"), set()),
        (("--all-users", "--sessions", "s2"), {"bobs"}),
    ):
        assert set(await talked.found("recall", "bicycle", "--limit", "50", *options)) == ids, options
        assert set(await talked.found("similar", "bicycle", "--limit", "50", *options)) == ids, options


async def test_what_is_no_longer_true_is_shown_on_request_only(talked: Talked) -> None:
    scope = talked.rig.scope(session="s1", user="ada")
    await talked.client.publish(
        scope, MemoryRecord(record_id="blue", role="user", content="I painted my bicycle blue.")
    )
    await talked.client.invalidate(scope, "bicycle", replaced_by="blue")
    assert "bicycle" not in await talked.found("recall", "colour of the bicycle")
    shown = (await talked.run("recall", "colour of the bicycle", *MINE, "--with-invalidated")).stdout
    assert "no longer true, replaced by blue" in shown
    with_it = await talked.found("recall", "colour of the bicycle", "--with-invalidated")
    assert {"bicycle", "blue"} <= set(with_it)
    await talked.client.pop(scope, 1)
    assert "blue" in await talked.found("recall", "colour of the bicycle")  # it left the window alone
    await talked.client.clear(scope, leave="recall")
    assert await talked.found("recall", "colour of the bicycle") == []


async def test_subjects_are_the_topics_of_the_talk(talked: Talked) -> None:
    (found,) = lines(await talked.run("subjects", *MINE, "--json"))
    assert found["topics"]
    assert not found["stale"]
    listed = {topic["topic"]: topic["records"] for topic in found["topics"]}
    for topic, count in listed.items():
        on_it = await talked.found("recall", "bicycle", "--limit", "50", "--topic", topic, *EVERY_ROLE)
        assert len(on_it) == count, (topic, listed)
    (other,) = lines(await talked.run("subjects", *MINE, "--session", "s9", "--json"))
    assert other["topics"] == []


async def test_refusals_are_one_line(talked: Talked) -> None:
    nobody = ("--tenant", "acme", "--agent", "helper", "--timeout", "30")
    refused = await talked.run("recall", "x", "--preset", "customer_service", *nobody, code=2)
    assert refused.stderr.startswith("engramlog: ")
    assert "user" in refused.stderr
    refused = await talked.run("recall", "x", "--meta", "never_indexed=1", *nobody, code=2)
    assert "never_indexed" in refused.stderr
    with pytest.raises(RequestRefused, match="never_indexed"):
        await talked.client.similar(talked.rig.scope(), "x", filter=RecallFilter(metadata={"never_indexed": 1}))


async def test_while_nothing_is_derived_answers_are_stale(rig: Rig) -> None:
    run = command_on(rig)
    async with rig.consumers("store", "index", "answer"), rig.client(timeout_s=60) as client:
        await client.publish(rig.scope(session="s1", user="ada"), MemoryRecord(role="user", content="花生"))
        # First the one that does not wait: with it, answer has loaded its model, and the deadline is for waiting alone.
        assert json.loads((await run("recall", "花生", *MINE, "--no-wait", "--json")).stdout)["stale"] is False
        late = await run("recall", "花生", *MINE[:-1], "6", "--json", code=3)
        assert json.loads(late.stdout)["stale"]
        assert "'derive' and 'index' have not come to the log's end" in late.stderr
        async with rig.consumers("derive"):
            (fresh,) = lines(await run("recall", "花生", *MINE, "--json"))
            assert (len(fresh["hits"]), fresh["stale"]) == (1, False)


async def test_the_example_recalls_what_was_said_in_another_session(rig: Rig, tmp_path: Path) -> None:
    async def talk(session: str, *said: str) -> list[str]:
        lines_in = tmp_path / session
        lines_in.write_text("".join(f"{line}\n" for line in said))
        with lines_in.open() as stdin:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, str(EXAMPLE), rig.config.bootstrap_servers, session, rig.settings.prefix),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            printed, _ = await asyncio.wait_for(process.communicate(), 90)
        assert process.returncode == 0, printed.decode()
        return printed.decode().splitlines()

    async with rig.consumers("store", "derive", "index", "answer"):
        assert await talk("s1", "我对花生过敏。") == ["(0 memories) I have heard: 我对花生过敏。"]
        found = await talk("s2", "Am I allergic to anything?", "👋")
    assert found[0].endswith(" 我对花生过敏。")
    assert found[1] == "(1 memories) I have heard: Am I allergic to anything?"
    assert found[-1].endswith("I have heard: 👋")


async def test_status_knows_how_far_derive_and_index_have_come(talked: Talked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAMLOG_DATA_DIR", str(talked.rig.settings.data_dir))

    async def consumers() -> dict[str, Any]:
        result = await talked.run("status", "--timeout", "30", "--json", code=1)  # nobody runs 'admit'
        return {c["name"]: c for c in json.loads(result.stdout)["consumers"]}

    async def caught_up() -> bool:
        return all(c["lag"] == 0 for name, c in (await consumers()).items() if name in {"store", "derive", "index"})

    await eventually(caught_up)
    found = await consumers()
    for name, topic in (("derive", talked.rig.topics.records), ("index", talked.rig.topics.derived)):
        assert {p["topic"] for p in found[name]["partitions"]} == {topic}
        assert sum(p["next"] or 0 for p in found[name]["partitions"]) > len(TALK)
        assert found[name]["members"]
    doctor = await talked.run("doctor", "--timeout", "30", code=1)
    assert "derive: 1 running, lag 0" in doctor.stdout
    assert "index: 1 running, lag 0" in doctor.stdout
