"""Deriving the same anew: corrections, models that come back to their senses, owners that were too late."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from engramlog.engine.derivation import DeriveConfig
from engramlog.engine.derive import Deriving
from engramlog.engine.derivers.understanding import Understanding
from engramlog.engine.history import History
from engramlog.engine.log import Run
from engramlog.engine.ports import Matrix
from engramlog.schemas.codec import derived_codec
from engramlog.schemas.derived import Derived, RecordDerived
from engramlog.schemas.errors import ConfigurationError, Fenced, ModelRefused, ModelUnavailable
from engramlog.schemas.records import Embedding
from tests.history_log import Log, given


class Lengths:
    """An embedder of two components; ``nonsense``: what it does with any text; ``refused``: a text that it refuses."""

    model, dimension, chunk_chars = "lengths", 2, 1_000

    def __init__(self) -> None:
        self.nonsense = False
        self.refused: str | None = None

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def passages(self, texts: Sequence[str]) -> Matrix:
        if self.nonsense or any(self.refused is not None and self.refused in text for text in texts):
            raise ModelRefused("gave vectors of 5 components, expected are 2")
        rows = np.array([[len(text), 1.0] for text in texts], dtype=np.float32).reshape(-1, 2)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True) if len(rows) else rows

    async def query(self, text: str) -> Matrix:
        return (await self.passages([text]))[0]


class Derivations:
    """The derived topic in memory."""

    def __init__(self) -> None:
        self.messages: list[tuple[bytes, bytes | None]] = []

    async def publish(self, partition: int, messages: Sequence[tuple[bytes, bytes | None]]) -> None:
        assert partition == 0
        self.messages += messages

    def last(self) -> dict[str, Derived]:
        events = [derived_codec().decode(value) for value in dict(self.messages).values() if value is not None]
        return {event.data.record_id: event.data for event in events if isinstance(event, RecordDerived)}


@pytest_asyncio.fixture
async def history(tmp_path: Path) -> Any:
    made = History(f"sqlite:///{tmp_path / 'history.db'}")
    await made.start()
    yield made
    await made.stop()


async def bring(
    history: History, log: Log, sizes: Sequence[int] = (), *, embedder: Lengths | None = None, refiner: Any = None
) -> dict[str, Derived]:
    """Derive a log that the history has."""
    await given(history, log)
    derivations = Derivations()
    deriving = Deriving(history, embedder or Lengths(), derivations, DeriveConfig(), refiner=refiner)
    at = await deriving.open_partition(log.topic, 0, cluster_id="c", topic_id="t", end_offset=log.end)
    for run in log.runs(sizes):
        if run.next > at:
            await deriving.apply(run)
    await deriving.stop()
    return derivations.last()


def corrected_talk() -> Log:
    log = Log()
    log.says("We talk about the trains to Vienna and their timetable.", id="a", session="s")
    log.says("secret", id="b", session="s")
    log.says("The train to Vienna leaves at nine.", id="r", session="s")
    log.says("And the ticket?", id="c", session="s")
    log.erases("record", "b")
    log.says("We talk about the trains again.", id="a", session="s")
    log.corrects("r", "The train to Vienna leaves at ten.")
    log.says("我们去吃面吧,牛肉面很好吃。", id="d", session="s")
    log.says("那家面馆的牛肉面最好吃。", id="e", session="s")
    log.corrects("r", "The train to Vienna leaves at eleven.")
    return log


@pytest.mark.parametrize("sizes", [(), (1,) * 10, (3, 4), (6, 1, 1), (7, 2), (2, 7)])
async def test_a_correction_is_derived_alike_wherever_runs_begin_and_end(
    history: History, tmp_path: Path, sizes: Sequence[int]
) -> None:
    found = await bring(history, corrected_talk(), sizes)
    assert (found["r"].offset, found["r"].turn) == (2, 2)  # although the one before it is gone
    assert "eleven" in found["r"].terms
    assert [found[name].turn for name in "acde"] == [4, 3, 5, 6]
    whole = History(f"sqlite:///{tmp_path / 'whole.db'}")
    await whole.start()
    assert found == await bring(whole, corrected_talk())
    await whole.stop()


async def test_a_correction_takes_no_vector_of_the_old_words(history: History) -> None:
    log = Log()
    log.says("The train leaves at nine.", id="r", embedding=Embedding.of("lengths", [0.0, 1.0]))
    log.corrects("r", "It leaves at ten.")
    found = (await bring(history, log))["r"].embedding
    assert found is not None
    assert np.frombuffer(found.packed(), dtype="<f4")[0] > 0.5


async def test_an_embedder_that_gives_nonsense_for_any_text_is_waited_for(history: History) -> None:
    log = Log()
    log.says("one")
    embedder = Lengths()
    embedder.nonsense = True
    with pytest.raises(ModelUnavailable, match="5 components, expected are 2"):
        await bring(history, log, embedder=embedder)
    embedder.nonsense = False
    assert (await bring(history, log, embedder=embedder))["one"].embedding is not None
    embedder.refused = "poison"
    log.says("poison")
    poisoned = (await bring(history, log, [1], embedder=embedder))["poison"]
    assert (poisoned.embedding, len(poisoned.degraded)) == (None, 1)


async def test_a_key_that_the_language_model_refuses_stops_nothing(history: History) -> None:
    class Denied:
        version = "llm.v1:x"

        async def refine(self, *_: Any) -> Understanding:
            raise ConfigurationError("refuses us with 401: set ENGRAMLOG_LLM_API_KEY")

    log = Log()
    log.says("one")
    found = (await bring(history, log, refiner=Denied()))["one"]
    assert found.deriver == "rules.v1"
    assert "401" in found.degraded[0]


async def test_an_owner_that_lost_its_partition_while_the_model_was_slow_publishes_nothing(history: History) -> None:
    log = Log()
    log.says("one")
    await given(history, log)
    published = Derivations()

    class Slow(Lengths):
        """While it works, another process derives the same."""

        async def passages(self, texts: Sequence[str]) -> Matrix:
            await bring(history, log)
            return await super().passages(texts)

    deriving = Deriving(history, Slow(), published, DeriveConfig())
    await deriving.open_partition(log.topic, 0, cluster_id="c", topic_id="t", end_offset=log.end)
    with pytest.raises(Fenced):
        await deriving.apply(Run(log.topic, 0, 0, 1, tuple(log.entries)))
    assert published.messages == []
    await deriving.stop()
