"""Questions are embedded once; unit vectors and batches, and threads that a question need not wait for."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engramlog.engine.embedders.cached import CachedEmbedder
from engramlog.engine.embedders.remote import BATCH_CHARS, BATCH_TEXTS, batches
from engramlog.engine.embedders.threads import Threads
from engramlog.engine.embedders.vectors import unit_row, unit_rows
from engramlog.engine.ports import Matrix
from engramlog.schemas.errors import ConfigurationError, ModelRefused, ModelUnavailable


class Counting:
    """An embedder that counts, and waits when told to."""

    model = "counting"
    chunk_chars = 100

    def __init__(self) -> None:
        self.dimension = 0
        self.asked: list[str] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.begun = asyncio.Event()
        self.error: Exception | None = None

    async def start(self) -> None:
        self.dimension = 2

    async def stop(self) -> None:
        self.dimension = 0

    async def passages(self, texts: Sequence[str]) -> Matrix:
        return np.array([[1, 0]] * len(texts), dtype=np.float32)

    async def query(self, text: str) -> Matrix:
        self.asked.append(text)
        self.begun.set()
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        return np.array([len(self.asked), 0], dtype=np.float32)


async def started(most: int = 10) -> tuple[Counting, CachedEmbedder]:
    inner = Counting()
    cached = CachedEmbedder(inner, most=most)
    await cached.start()
    return inner, cached


async def test_a_question_is_asked_once() -> None:
    inner, cached = await started()
    first, second = await cached.query("猫"), await cached.query("猫")
    assert np.array_equal(first, second)
    assert inner.asked == ["猫"]


async def test_equal_questions_at_the_same_time_are_asked_once() -> None:
    inner, cached = await started()
    vectors = await asyncio.gather(*(cached.query("q") for _ in range(20)), cached.query("other"))
    assert inner.asked == ["q", "other"]
    assert len(vectors) == 21


async def test_who_gives_up_does_not_take_the_answer_from_the_others() -> None:
    inner, cached = await started()
    inner.go_on.clear()
    first, second = (asyncio.create_task(cached.query("q")) for _ in range(2))
    await inner.begun.wait()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    inner.go_on.set()
    assert (await second).shape == (2,)
    assert inner.asked == ["q"]


async def test_a_failure_reaches_all_who_wait_and_is_not_remembered() -> None:
    inner, cached = await started()
    inner.error = ModelUnavailable("down")
    results = await asyncio.gather(*(cached.query("q") for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [ModelUnavailable] * 3
    inner.error = None
    assert (await cached.query("q")).shape == (2,)
    assert inner.asked == ["q", "q"]


async def test_the_least_recently_used_question_is_forgotten_first() -> None:
    inner, cached = await started(most=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        await cached.query(text)
    assert inner.asked == ["a", "b", "c", "b"]


async def test_a_very_long_question_is_not_remembered() -> None:
    inner, cached = await started()
    for _ in range(2):
        await cached.query("x" * 5_000)
    assert len(inner.asked) == 2


async def test_a_remembered_vector_cannot_be_changed() -> None:
    _, cached = await started()
    vector = await cached.query("q")
    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 7


async def test_the_cache_shows_what_its_embedder_is() -> None:
    inner, cached = await started()
    assert (cached.model, cached.dimension, cached.chunk_chars) == ("counting", 2, 100)
    assert (await cached.passages(["a", "b"])).shape == (2, 2)
    inner.go_on.clear()
    waiting = asyncio.create_task(cached.query("q"))
    await inner.begun.wait()
    await cached.stop()
    with pytest.raises(ModelUnavailable, match="stopped"):
        await waiting


@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), min_size=1, max_size=5))
def test_rows_get_unit_length_or_are_refused(values: list[list[float]]) -> None:
    rows = np.array(values)
    if (np.linalg.norm(rows, axis=1) < 1e-6).any():
        with pytest.raises(ModelRefused, match="length zero"):
            unit_rows(rows, count=len(rows), dimension=3, model="m")
    else:
        found = unit_rows(rows, count=len(rows), dimension=3, model="m")
        assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
        assert (found.dtype.name, found.flags.c_contiguous) == ("float32", True)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([[1.0, 2.0]], r"2 components, expected are 3"),
        ([[1.0, 2.0, 3.0]] * 2, r"shape \(2, 3\) for 1 texts"),
        ([1.0, 2.0, 3.0], "shape"),
        ([[1.0, float("nan"), 0.0]], "no finite number"),
        ([[1.0, float("inf"), 0.0]], "no finite number"),
    ],
)
def test_what_is_no_vector_is_refused(rows: Any, says: str) -> None:
    with pytest.raises(ModelRefused, match=says):
        unit_rows(np.array(rows), count=1, dimension=3, model="m")


def test_no_rows_have_a_dimension_all_the_same() -> None:
    assert unit_rows(np.empty((0, 0)), count=0, dimension=3, model="m").shape == (0, 3)
    assert unit_row(np.array([3.0, 4.0]), dimension=2, model="m").tolist() == pytest.approx([0.6, 0.8])


@given(st.lists(st.integers(0, 2 * BATCH_CHARS // 3), max_size=12), st.integers(0, 600))
def test_batches_keep_order_and_limits(lengths: list[int], short: int) -> None:
    texts = ["x" * length for length in lengths] + ["y"] * short
    cut = batches(texts)
    assert [text for batch in cut for text in batch] == texts
    for batch in cut:
        assert 0 < len(batch) <= BATCH_TEXTS
        assert sum(map(len, batch)) <= BATCH_CHARS or len(batch) == 1


async def test_a_question_does_not_wait_for_a_batch() -> None:
    threads = Threads(1, name="t")
    go_on = threading.Event()
    batch = [asyncio.create_task(threads.in_batch(go_on.wait)) for _ in range(5)]
    await asyncio.sleep(0)
    assert await threads.now(lambda: "answer") == "answer"
    go_on.set()
    assert all(await asyncio.gather(*batch))
    await threads.stop()


async def test_what_waits_when_the_threads_stop_is_unavailable_and_not_cancelled() -> None:
    threads = Threads(1, name="t")
    go_on, begun = threading.Event(), threading.Event()

    def block() -> bool:
        begun.set()
        return go_on.wait()

    running = asyncio.create_task(threads.now(block))
    waiting = asyncio.create_task(threads.now(lambda: True))
    await asyncio.to_thread(begun.wait)
    stopping = asyncio.create_task(threads.stop())
    with pytest.raises(ModelUnavailable, match="stopped"):
        await waiting
    go_on.set()
    await stopping
    assert await running
    with pytest.raises(ModelUnavailable, match="stopped"):
        await threads.now(lambda: True)


async def test_a_fork_may_not_use_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(1, name="t")
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(ConfigurationError, match="spawn"):
        await threads.now(lambda: True)
    monkeypatch.undo()
    await threads.stop()
