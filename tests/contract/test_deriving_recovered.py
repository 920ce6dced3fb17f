"""The state of ``derive`` is lost, its topic is not: nothing is computed again."""

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from engramlog.engine.derivation import DeriveConfig, Outgoing
from engramlog.engine.derive import Deriving
from engramlog.engine.derivers.understanding import Understanding
from engramlog.engine.history import History
from engramlog.engine.log import Run
from engramlog.engine.ports import Matrix
from engramlog.engine.recorded import Lying, passed
from engramlog.schemas.codec import derived_codec
from engramlog.schemas.derived import Derived, RecordDerived
from engramlog.schemas.errors import BrokerUnavailable, ConfigurationError, Fenced, ModelRefused
from engramlog.schemas.keys import record_key
from engramlog.schemas.records import Embedding, MemoryRecord
from tests.contract.conftest import OpenHistory
from tests.history_log import START, Log, given

DIMENSION = 16


@dataclass
class Hashes:
    """Directions from hashes; ``forbidden``: nobody may ask."""

    forbidden: bool = False
    asked: list[str] = field(default_factory=list)
    model: str = "hashes"
    dimension: int = DIMENSION
    chunk_chars: int = 400

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def passages(self, texts: Sequence[str]) -> Matrix:
        assert not self.forbidden, f"the model was asked for {texts}"
        if any("poison" in text for text in texts):
            raise ModelRefused("not this text")
        self.asked += texts
        seeds = [int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest()) for text in texts]
        rows = [np.random.default_rng(seed).standard_normal(DIMENSION) for seed in seeds]
        found = np.array(rows, dtype=np.float32).reshape(-1, DIMENSION)
        return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)

    async def query(self, text: str) -> Matrix:
        return (await self.passages([text]))[0]


@dataclass
class Topic:
    """The derived topic in memory; ``closed``: nobody may publish."""

    messages: list[tuple[int, bytes, bytes | None]] = field(default_factory=list)
    closed: bool = False
    away: int = 0
    reads: int = 0

    async def publish(self, partition: int, messages: Sequence[Outgoing]) -> None:
        assert partition == 0
        assert not self.closed, "something was published"
        for key, value in messages:
            self.messages.append((self.end, key, value))

    @property
    def end(self) -> int:
        return self.messages[-1][0] + 1 if self.messages else 0

    async def span(self, partition: int) -> tuple[int, int]:
        assert partition == 0
        return (self.messages[0][0] if self.messages else 0), self.end

    async def read(self, partition: int, start: int) -> AsyncGenerator[Lying, None]:
        assert partition == 0
        for offset, _, value in list(self.messages):
            if offset >= start:
                if self.away:
                    self.away -= 1
                    raise BrokerUnavailable("the broker is away")
                self.reads += 1
                yield Lying(offset, value)

    def compacted(self) -> "Topic":
        last = {key: offset for offset, key, _ in self.messages}
        return Topic([message for message in self.messages if last[message[1]] == message[0]])

    def copy(self, *, until: int | None = None) -> "Topic":
        return Topic([message for message in self.messages if until is None or message[0] < until])

    def events(self) -> list[RecordDerived]:
        found = [derived_codec().decode(value) for _, _, value in self.messages if value is not None]
        return [event for event in found if isinstance(event, RecordDerived)]

    def last(self) -> dict[str, Derived]:
        return {event.data.record_id: event.data for event in self.events()}


@dataclass
class Refiner:
    """A language model that calls everything by one name."""

    version: str = "llm.v1:x"
    asked: int = 0

    async def refine(self, record: MemoryRecord, text: str, understanding: Understanding) -> Understanding:
        assert text in record.content
        self.asked += 1
        return Understanding("refined", understanding.importance, (), (), (), "en")


@dataclass
class Desk:
    """A ``derive`` over one database."""

    history: History
    topic: Topic
    embedder: Hashes = field(default_factory=Hashes)
    refiner: Any = None

    def deriving(self) -> Deriving:
        config = DeriveConfig()
        return Deriving(self.history, self.embedder, self.topic, config, refiner=self.refiner, before=self.topic)

    async def bring(self, log: Log, sizes: Sequence[int] = (), *, until: int | None = None) -> None:
        """Derive the log from where it stands; ``until``: be killed there."""
        await given(self.history, log)
        deriving = self.deriving()
        at = await deriving.open_partition(log.topic, 0, cluster_id="c", topic_id="t", end_offset=log.end)
        for run in log.runs(sizes):
            if run.next > at and (until is None or run.next <= until):
                rest = tuple(entry for entry in run.entries if entry.offset >= at)
                await deriving.apply(Run(run.topic, 0, max(at, run.expected), run.next, rest))
        await deriving.stop()

    async def state(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row that ``derive`` keeps, and its checkpoint."""
        t = self.history._tables
        found: dict[str, list[tuple[Any, ...]]] = {}
        for table in (t.folds, t.derived_turns):
            query = select(table)
            rows = await self.history._database.read(lambda connection, q=query: list(connection.execute(q).all()))
            found[table.name] = sorted(tuple(row) for row in rows)
        c = t.checkpoints.c
        query = select(c.next).where(c.projection == "derive_g1")
        rows = await self.history._database.read(lambda connection: list(connection.execute(query).all()))
        found["next"] = [tuple(row) for row in rows]
        return found


OpenDesk = Callable[..., Awaitable[Desk]]


@pytest.fixture
def lost(open_history: OpenHistory) -> OpenDesk:
    """A ``derive`` over an empty database, that may ask no model and publish nothing."""

    async def open_(topic: Topic) -> Desk:
        copy = topic.copy()
        copy.closed = True
        return Desk(await open_history(), copy, Hashes(forbidden=True))

    return open_


@pytest.fixture
async def live(history: History) -> Desk:
    return Desk(history, Topic())


def talk() -> Log:
    """A log with all that may happen to records."""
    log = Log()
    log.says("We plan the trip to Lisbon in June.", session="s", user="ada")
    log.says("Shall we fly, or take the train to Lisbon?", session="s", user="ada", role="assistant")
    log.says("Yes, by train!", id="yes", session="s", user="ada")
    log.says("你是一个助手。", role="system", session="s", user="ada")
    log.says("我们去大连吃海鲜,大连的海鲜最新鲜。", id="s/1|(大连)", session="zh", user="ada")
    log.says("大连的天气怎么样?", session="zh", user="ada", role="assistant")
    log.says("👋", session="s", user="ada")
    log.says(" \n", id="empty", session="s", user="ada")
    log.says("recalled words", session="s", user="ada", origin="recall")
    log.says("The database is Postgres.", id="r", session="t")
    log.says("poison in the database", session="t")
    log.says("Ada likes trains.", session="s", user="ada", origin="extracted", derived_from=("yes",))
    log.says("Postgres it is, with twelve partitions.", session="t", role="assistant")
    log.says("mine", session="t", topic="自己的", embedding=Embedding.of("hashes", [1.0] + [0.5] * 15))
    log.corrects("r", "The database is MariaDB, after all.")
    log.says("Let us speak about football now: the match of Sunday.", session="t")
    log.says("We plan the trip to Lisbon in July.", id="yes", session="s", user="ada")
    log.removes("mine", scope="both")
    log.clears(scope="recall", session="zh", user="ada")
    log.says("word " * 300, id="long", session="t")
    log.says("secret of bob", session="s", user="bob")
    log.erases("user", user="bob", id="x1")
    log.erases("record", "mine", id="x2")
    log.tombstone(record_key("acme", "bot", "mine"))
    log.says("And the football match?", session="t")
    log.says("火车票买好了吗?", session="zh", user="ada")
    log.ends("s")
    return log


def goes_on(log: Log) -> None:
    log.says("Is the hotel in Lisbon booked?", session="s", user="ada")
    log.says("The match was great football.", session="t")
    log.says("大连的海鲜呢?", session="zh", user="ada")
    log.corrects("yes", "No, by plane.")
    log.says("new talk", session="new")


@pytest.mark.parametrize("sizes", [(), (1,) * 40, (7, 1, 13)])
async def test_a_lost_state_is_recovered_row_by_row_and_goes_on_alike(
    live: Desk, lost: OpenDesk, sizes: Sequence[int]
) -> None:
    log = talk()
    await live.bring(log, (5, 3, 9))
    again = await lost(live.topic)
    await again.bring(log, sizes)
    assert await again.state() == await live.state()
    before = live.topic.end
    goes_on(log)
    again.topic.closed = again.embedder.forbidden = False
    for desk in (live, again):
        await desk.bring(log)
    assert again.topic.messages[before:] == live.topic.messages[before:]
    assert len(again.topic.messages) > before + 5
    assert await again.state() == await live.state()


async def test_a_recovery_that_is_killed_goes_on_and_of_two_owners_one_goes_on(live: Desk, lost: OpenDesk) -> None:
    log = talk()
    await live.bring(log)
    again = await lost(live.topic)
    await given(again.history, log)
    for until in (4, 11, 17, 22):
        await again.bring(log, (2,) * 20, until=until)
    first, second = again.deriving(), again.deriving()
    for one in (first, second):
        at = await one.open_partition(log.topic, 0, cluster_id="c", topic_id="t", end_offset=log.end)
    run = Run(log.topic, 0, at, log.end, tuple(log.entries[at:]))
    await first.apply(run)
    with pytest.raises(Fenced):
        await second.apply(run)
    for one in (first, second):
        await one.stop()
    assert await again.state() == await live.state()


async def test_behind_the_watermark_it_is_derived_as_ever(live: Desk, open_history: OpenHistory) -> None:
    log = talk()
    await live.bring(log, (6, 1, 5))
    border = next(
        n for n, key, value in live.topic.messages if key == b"~watermark/0" and b'"next":12' in (value or b"")
    )
    again = Desk(await open_history(), live.topic.copy(until=border + 3))  # and two messages of the run after it
    assert await passed(again.topic, 0) == 12
    await again.bring(log, (9,))
    assert again.embedder.asked
    assert not any("Lisbon in June" in text or "大连的天气" in text for text in again.embedder.asked)
    assert any("football" in text for text in again.embedder.asked)
    assert again.topic.last() == live.topic.last()
    assert await again.state() == await live.state()


async def test_a_topic_without_a_watermark_says_nothing(live: Desk, open_history: OpenHistory) -> None:
    log = talk()
    await live.bring(log)
    again = Desk(await open_history(), live.topic.copy(until=4))
    assert await passed(again.topic, 0) == 0
    await again.bring(log)
    assert again.topic.last() == live.topic.last()
    assert await again.state() == await live.state()


async def test_what_was_published_before_a_crash_is_not_derived_again(live: Desk, history: History) -> None:
    log = talk()
    await given(history, log)
    deriving = live.deriving()
    state: Any = deriving._state
    saves = state.save

    async def crash(*_: Any, **__: Any) -> None:
        raise InterruptedError

    state.save = crash
    await deriving.open_partition(log.topic, 0, cluster_id="c", topic_id="t", end_offset=log.end)
    run = Run(log.topic, 0, 0, 10, tuple(log.entries[:10]))
    with pytest.raises(InterruptedError):
        await deriving.apply(run)
    state.save = saves
    asked, published = len(live.embedder.asked), live.topic.end
    live.embedder.forbidden = True
    await live.bring(log, (10,), until=10)
    live.embedder.forbidden = False
    assert (len(live.embedder.asked), live.topic.end) == (asked, published)
    await live.bring(log, (10,))
    assert [d.turn for d in live.topic.last().values() if d.record_id in {"yes", "r", "long"}] == [7, 0, 5]


async def test_compaction_of_both_topics_asks_no_model_and_turns_go_on(live: Desk, lost: OpenDesk) -> None:
    log = talk()
    await live.bring(log, (5,) * 9)
    again = await lost(live.topic.compacted())
    compacted = log.compacted()
    await again.bring(compacted, (3,) * 12)
    turns = {row[1:5]: row[5] for row in (await again.state())["derive_sessions"]}
    assert turns == {row[1:5]: row[5] for row in (await live.state())["derive_sessions"]}
    noted = set((await again.state())["derive_turns"])
    assert noted <= set((await live.state())["derive_turns"])
    again.topic.closed = again.embedder.forbidden = False
    for desk, its_log in ((live, log), (again, compacted)):
        its_log.says("Is the hotel in Lisbon booked?", session="s", user="ada")
        await desk.bring(its_log)
    hotel = "Is the hotel in Lisbon booked?"
    assert again.topic.last()[hotel].turn == live.topic.last()[hotel].turn
    assert again.topic.last()[hotel].embedding == live.topic.last()[hotel].embedding


async def test_a_correction_that_took_the_first_derivation_away_leaves_its_vector_out(
    live: Desk, lost: OpenDesk, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log()
    log.says("The train to Vienna leaves at nine.", id="r", session="s")
    log.says("And the ticket?", session="s")
    log.corrects("r", "The train to Vienna leaves at half past ten.")
    await live.bring(log)
    again = await lost(live.topic.compacted())
    with caplog.at_level("INFO"):
        await again.bring(log)
    assert "2 records, 1 of them without their first derivation" in caplog.text
    (ours,), (theirs,) = [(await desk.state())["derive_sessions"] for desk in (again, live)]
    assert ours[:-1] == theirs[:-1]
    assert ours != theirs  # the centroid of the running topic; the whole topic gives it exactly
    whole = await lost(live.topic)
    await whole.bring(log)
    assert await whole.state() == await live.state()


async def test_a_language_model_is_not_asked_either(live: Desk, lost: OpenDesk) -> None:
    live.refiner = Refiner()
    log = talk()
    await live.bring(log)
    assert live.refiner.asked > 10
    again = await lost(live.topic)
    again.refiner = Refiner()
    await again.bring(log)
    assert again.refiner.asked == 0
    assert await again.state() == await live.state()


async def test_labels_that_other_rules_chose_go_on(live: Desk, lost: OpenDesk) -> None:
    log = Log()
    log.says("We plan the trip to Lisbon in June.", session="s")
    await live.bring(log)
    (event,) = live.topic.events()
    data = event.data.model_copy(update={"deriver": "rules.v0", "topic": "an older label"})
    old = Topic(list(live.topic.messages))
    old.messages[0] = (0, event.key(), derived_codec().encode(event.model_copy(update={"data": data})))
    again = await lost(old)
    await again.bring(log)
    log.says("Yes!", session="s", role="assistant")
    again.topic.closed = again.embedder.forbidden = False
    await again.bring(log)
    assert again.topic.last()["Yes!"].topic == "an older label"


async def test_derivations_of_another_log_are_refused(live: Desk, lost: OpenDesk) -> None:
    log = talk()
    await live.bring(log)
    again = await lost(live.topic)
    other = Log()
    other.says("another log", session="s")
    with pytest.raises(ConfigurationError, match="belongs to other records: at offset 0"):
        await again.bring(other)


async def test_a_broker_that_goes_away_meanwhile_is_asked_again(live: Desk, lost: OpenDesk) -> None:
    log = talk()
    await live.bring(log)
    again = await lost(live.topic)
    await given(again.history, log)
    deriving = again.deriving()
    await deriving.open_partition(log.topic, 0, cluster_id="c", topic_id="t", end_offset=log.end)
    for entry, run in zip(log.entries, log.runs((1,) * 99), strict=True):
        again.topic.away = int(entry.offset in {0, 2, 5})
        while True:
            try:
                await deriving.apply(run)
                break
            except BrokerUnavailable:
                continue
    await deriving.stop()
    assert await again.state() == await live.state()


async def test_reading_costs_two_passes_whatever_the_order(live: Desk, lost: OpenDesk) -> None:
    log = Log()
    for n in range(200):
        log.says(f"Turn {n} about trains, and about the weather of day {n}.", session=f"s{n % 3}")
    await live.bring(log, (20,) * 10)
    again = await lost(live.topic)
    await again.bring(log, (7,) * 40)
    assert await again.state() == await live.state()
    assert again.topic.reads <= 3 * len(again.topic.messages)


async def test_a_recorded_time_is_what_tells_a_correction_of_equal_length(live: Desk, lost: OpenDesk) -> None:
    log = Log()
    log.says("It leaves at nine.", id="r", session="s")
    at = log.corrects("r", "It leaves at four.")
    entry = log.entries.pop(at)
    log.end -= 1
    assert entry.event is not None
    log.append(entry.event.model_copy(update={"time": START + timedelta(hours=1)}))
    await live.bring(log)
    again = await lost(live.topic)
    await again.bring(log)
    assert await again.state() == await live.state()
