"""A generation that derives only what another one holds in a simpler way than configured."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from engramlog.engine.derivation import TRIMMED, DeriveConfig, is_degraded
from engramlog.engine.derive import Deriving
from engramlog.engine.derivers.understanding import Understanding
from engramlog.engine.history import History
from engramlog.engine.ports import Matrix
from engramlog.schemas.codec import derived_codec
from engramlog.schemas.derived import Derived
from engramlog.schemas.errors import ModelUnavailable
from engramlog.schemas.records import MemoryRecord
from tests.contract.test_deriving_recovered import Hashes, Refiner, Topic, talk
from tests.history_log import Log, given


@dataclass
class Away(Refiner):
    """A language model that is away whenever football or Lisbon is spoken of."""

    async def refine(self, record: MemoryRecord, text: str, understanding: Understanding) -> Understanding:
        if "football" in text or "Lisbon" in text:
            raise ModelUnavailable("away")
        return await super().refine(record, text, understanding)


@dataclass
class Takes(Hashes):
    """Refuses nothing."""

    async def passages(self, texts: Sequence[str]) -> Matrix:
        self.asked += texts
        asked, self.asked = self.asked, []
        found = await super().passages([text.replace("poison", "medicine") for text in texts])
        self.asked = asked
        return found


@dataclass
class Made:
    """A generation, and what it took to make it."""

    topic: Topic
    embedder: Hashes = field(default_factory=Takes)
    refiner: Refiner = field(default_factory=Refiner)

    async def bring(self, history: History, log: Log, number: int, *, kept: Topic | None = None) -> None:
        await given(history, log)
        how = DeriveConfig(generation=number)
        args = history, self.embedder, self.topic, how
        deriving = Deriving(*args, refiner=self.refiner, before=self.topic, kept=kept)
        at = await deriving.open_partition(log.topic, 0, cluster_id="c", topic_id="t", end_offset=log.end)
        for run in log.runs((4, 7, 2)):
            if run.next > at:
                rest = tuple(entry for entry in run.entries if entry.offset >= at)
                await deriving.apply(replace(run, expected=max(at, run.expected), entries=rest))
        await deriving.stop()

    def last(self) -> dict[str, Derived]:
        """What stands of each record, the number of the generation aside."""
        return {one: found.model_copy(update={"generation": 0}) for one, found in self.topic.last().items()}


@pytest.fixture
async def poor(history: History) -> Made:
    """A generation of a day on which models were away or refused."""
    made = Made(Topic(), Hashes(), Away())
    await made.bring(history, talk(), 1)
    return made


async def test_only_what_is_degraded_is_derived_again_and_all_is_as_if_it_never_had_been(
    poor: Made, history: History
) -> None:
    log = talk()
    degraded = {one for one, found in poor.last().items() if is_degraded(found)}
    assert {"poison in the database", "yes"} <= degraded
    assert len(degraded) < len(poor.last()) - 4
    whole, mended = Made(Topic()), Made(Topic())
    await whole.bring(history, log, 2)
    await mended.bring(history, log, 3, kept=poor.topic)
    assert mended.last() == whole.last()
    assert not any(is_degraded(found) for found in mended.last().values())
    texts = " | ".join(mended.embedder.asked)
    assert 0 < len(mended.embedder.asked) < len(whole.embedder.asked) / 2
    assert "poison" in texts
    assert "大连" not in texts
    assert mended.refiner.asked < whole.refiner.asked / 2
    assert {event.data.generation for event in mended.topic.events()} == {3}


async def test_what_comes_later_is_derived_as_ever(poor: Made, history: History) -> None:
    log = talk()
    mended = Made(Topic())
    await mended.bring(history, log, 3, kept=poor.topic)
    asked = len(mended.embedder.asked)
    log.says("大连的海鲜呢?", id="later", session="zh", user="ada")
    log.corrects("r", "The database is SQLite.")
    await mended.bring(history, log, 3, kept=poor.topic)
    assert len(mended.embedder.asked) == asked + 2
    assert mended.last()["later"].topic == "refined"


async def test_what_was_too_large_for_one_event_is_not_derived_again(history: History) -> None:
    log = Log()
    log.says("small words", id="large", session="s")
    first, second = Made(Topic()), Made(Topic())
    await first.bring(history, log, 1)
    (event,) = first.topic.events()
    data = event.data.model_copy(update={"degraded": (TRIMMED,)})
    trimmed = Topic()
    await trimmed.publish(0, [(event.key(), derived_codec().encode(event.model_copy(update={"data": data})))])
    await second.bring(history, log, 2, kept=trimmed)
    assert second.embedder.asked == []
    assert second.last()["large"] == first.last()["large"]
