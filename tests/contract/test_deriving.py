"""Deriving runs of records: what is published, what is kept, and that doing it again changes nothing."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from engramlog.engine.derivation import DeriveConfig, Outgoing
from engramlog.engine.derive import Deriving
from engramlog.engine.derivers.understanding import Understanding
from engramlog.engine.history import History
from engramlog.engine.log import Run
from engramlog.engine.ports import Matrix
from engramlog.schemas.codec import derived_codec
from engramlog.schemas.derived import Derived, RecallChangedEvent, RecordDerived, WatermarkPassed
from engramlog.schemas.errors import BrokerUnavailable, Fenced, ModelRefused, ModelUnavailable
from engramlog.schemas.keys import record_key
from engramlog.schemas.records import Embedding, MemoryRecord
from tests.history_log import Log, given

DIMENSION = 4


@dataclass
class FakeEmbedder:
    """Vectors from lengths; refuses and fails on request."""

    model: str = "fake"
    dimension: int = DIMENSION
    chunk_chars: int = 100
    seen: list[str] = field(default_factory=list)
    refused: str | None = None
    down: bool = False

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def passages(self, texts: Sequence[str]) -> Matrix:
        if self.down:
            raise ModelUnavailable("the model is away")
        if self.refused is not None and any(self.refused in text for text in texts):
            raise ModelRefused("not this text")
        self.seen += texts
        rows = np.ones((len(texts), self.dimension), dtype=np.float32)
        rows[:, 0] = [len(text) for text in texts]
        return rows / np.linalg.norm(rows, axis=1, keepdims=True) if len(rows) else rows

    async def query(self, text: str) -> Matrix:
        return (await self.passages([text]))[0]


@dataclass
class FakeLog:
    """The derived topic in memory."""

    messages: list[Outgoing] = field(default_factory=list)
    down: bool = False

    async def publish(self, partition: int, messages: Sequence[Outgoing]) -> None:
        assert partition == 0
        if self.down:
            raise BrokerUnavailable("the broker is away")
        self.messages += messages

    def events(self) -> list[Any]:
        return [derived_codec().decode(value) for _, value in self.messages if value is not None]

    def derived(self) -> dict[str, Derived]:
        return {e.data.record_id: e.data for e in self.events() if isinstance(e, RecordDerived)}


@dataclass
class Desk:
    """All that derives."""

    history: History
    embedder: FakeEmbedder = field(default_factory=FakeEmbedder)
    log: FakeLog = field(default_factory=FakeLog)
    refiner: Any = None

    def deriving(self) -> Deriving:
        config = DeriveConfig(metadata_keys=("project_id", "repo.branch"))
        return Deriving(self.history, self.embedder, self.log, config, refiner=self.refiner)

    async def bring(self, log: Log, sizes: Sequence[int] = ()) -> Deriving:
        """Derive a log from where it stands, after the history has it."""
        await given(self.history, log)
        deriving = self.deriving()
        at = await deriving.open_partition(log.topic, 0, cluster_id="c", topic_id="t", end_offset=log.end)
        for run in log.runs(sizes):
            if run.next > at:
                rest = tuple(entry for entry in run.entries if entry.offset >= at)
                await deriving.apply(Run(run.topic, 0, max(at, run.expected), run.next, rest))
        await deriving.stop()
        return deriving


@pytest.fixture
def desk(history: History) -> Desk:
    return Desk(history)


async def test_a_record_is_derived_whole(desk: Desk) -> None:
    log = Log()
    log.says(
        "We decided to use Kafka.", session="s1", user="ada", tags=("t",), metadata={"project_id": "p"}, kind="decision"
    )
    log.says("好的,分区数是十二。", session="s1", user="ada", role="assistant", role_name="小明")
    await desk.bring(log)
    first, second = desk.log.derived().values()
    assert (first.offset, first.turn, first.kind, first.tags, first.metadata) == (
        0,
        0,
        "decision",
        ("t",),
        {"project_id": "p"},
    )
    assert first.importance >= 0.7
    assert first.language == "en"
    assert first.embedding is not None
    assert (first.embedding.model, first.embedding.dimension) == ("fake", DIMENSION)
    assert first.embedding.spans == ((0, len("We decided to use Kafka.")),)
    assert "kafka" in first.terms
    assert (second.turn, second.language, second.role_name, second.degraded) == (1, "zh", "小明", ())
    assert first.length >= len(first.terms)
    events = desk.log.events()
    assert [type(e) for e in events] == [RecordDerived, RecordDerived, WatermarkPassed]
    assert events[-1].data.next == 2
    assert (events[0].sessionid, events[0].userid, events[0].causationid) == ("s1", "ada", "We decided to use Kafka.")
    assert desk.log.messages[0][0] == record_key("acme", "bot", "We decided to use Kafka.")


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1, 1, 1, 1), (3, 2), ()])
async def test_borders_of_runs_change_nothing(desk: Desk, history: History, sizes: Sequence[int]) -> None:
    log = Log()
    for n, text in enumerate(
        ("I live in Lisbon.", "Do you like it?", "Yes!", "我下周去大连。", "天气怎么样?", "下雨。")
    ):
        log.says(text, session="s", role=("user", "assistant")[n % 2])
    log.erases("session", session="other")
    log.says("And then?", session="s")
    await desk.bring(log, sizes)
    whole = Desk(history, log=FakeLog())
    deriving = whole.deriving()
    assert await deriving.open_partition(log.topic, 0, cluster_id="c", topic_id="t", end_offset=log.end) == log.end
    assert [d.turn for d in desk.log.derived().values()] == list(range(7))
    assert {d.topic for d in desk.log.derived().values()} != {None}
    expected = TEXTS_OF_ANY_CUT.setdefault("texts", sorted(desk.embedder.seen))
    assert sorted(desk.embedder.seen) == expected
    topics = [d.topic for d in desk.log.derived().values()]
    assert TEXTS_OF_ANY_CUT.setdefault("topics", topics) == topics


TEXTS_OF_ANY_CUT: dict[str, list[Any]] = {}


async def test_a_turn_is_read_after_the_one_before_it_and_sessions_and_users_apart(desk: Desk) -> None:
    log = Log()
    log.says("Shall we go in June?", session="s1", user="ada")
    log.says("secret of bob", session="s1", user="bob")
    log.says("Yes, in June!", session="s1", user="ada", role="assistant")
    log.says("other talk", session="s2", user="ada")
    await desk.bring(log)
    (reply,) = [text for text in desk.embedder.seen if "Yes, in June!" in text]
    assert "Shall we go in June?" in reply
    assert "secret" not in reply
    assert "other talk" in desk.embedder.seen


async def test_empty_and_recalled_texts_are_never_embedded_and_drop_what_was_there(desk: Desk) -> None:
    log = Log()
    log.says("words", id="r")
    log.says(" \n\t", id="r")
    log.says("recalled", id="q", origin="recall")
    log.says("next", id="n")
    await desk.bring(log)
    assert [(key, value is None) for key, value in desk.log.messages] == [
        (record_key("acme", "bot", "r"), False),
        (record_key("acme", "bot", "r"), True),
        (record_key("acme", "bot", "q"), True),
        (record_key("acme", "bot", "n"), False),
        (b"~watermark/0", False),
    ]
    assert not any("recalled" in text for text in desk.embedder.seen)
    assert desk.log.derived()["n"].turn == 3


async def test_the_publishers_own_values_win(desk: Desk) -> None:
    log = Log()
    vector = [0.0, 3.0, 0.0, 4.0]
    own = Embedding.of("fake", vector)
    log.says("mine", topic="自己的", importance=0.123, embedding=own)
    log.says("other model", embedding=Embedding.of("another", vector))
    log.says("other size", embedding=Embedding.of("fake", [1.0, 2.0]))
    await desk.bring(log)
    mine = desk.log.derived()["mine"]
    assert (mine.topic, mine.importance) == ("自己的", 0.123)
    assert mine.embedding is not None
    unit = np.frombuffer(base64.b64decode(mine.embedding.values), dtype="<f4")
    assert unit == pytest.approx([0.0, 0.6, 0.0, 0.8])
    assert not any("mine" in text.splitlines()[-1] for text in desk.embedder.seen)
    assert {text.splitlines()[-1] for text in desk.embedder.seen} == {"other model", "other size"}


async def test_long_texts_have_a_vector_for_each_chunk_and_say_what_has_none(desk: Desk) -> None:
    log = Log()
    long = " ".join(f"word{n}." for n in range(60))
    log.says(long, id="long")
    log.says("x" * 20_000, id="endless")
    await desk.bring(log)
    found = desk.log.derived()
    spans = found["long"].embedding.spans  # type: ignore[union-attr]
    assert len(spans) > 3
    assert (spans[0][0], spans[-1][1], found["long"].unembedded) == (0, len(long), 0)
    assert len(found["endless"].embedding.spans) == 64  # type: ignore[union-attr]
    assert found["endless"].unembedded == 20_000 - found["endless"].embedding.spans[-1][1]  # type: ignore[union-attr]


async def test_one_text_that_the_model_refuses_spoils_no_other(desk: Desk) -> None:
    desk.embedder.refused = "poison"
    log = Log()
    log.says("good one", id="a", session="1")
    log.says("poison here", id="b", session="2")
    log.says("good two", id="c", session="3")
    await desk.bring(log)
    found = desk.log.derived()
    assert [found[i].embedding is None for i in "abc"] == [False, True, False]
    assert found["b"].degraded == ("embedding: not this text",)
    assert found["b"].unembedded == len("poison here")
    assert "poison" in found["b"].terms


@pytest.mark.parametrize("fault", ["model", "broker"])
async def test_a_dead_model_or_broker_leaves_everything_as_it_was(desk: Desk, fault: str) -> None:
    log = Log()
    log.says("one")
    await given(desk.history, log)
    deriving = desk.deriving()
    await deriving.open_partition(log.topic, 0, cluster_id="c", topic_id="t", end_offset=1)
    (run,) = log.runs()
    desk.embedder.down, desk.log.down = fault == "model", fault == "broker"
    with pytest.raises((ModelUnavailable, BrokerUnavailable)):
        await deriving.apply(run)
    assert desk.log.messages == []
    desk.embedder.down = desk.log.down = False
    await deriving.apply(run)
    assert [d.turn for d in desk.log.derived().values()] == [0]
    published = list(desk.log.messages)
    with pytest.raises(Fenced):  # a process that woke up late publishes nothing
        await deriving.apply(run)
    assert desk.log.messages == published


async def test_doing_it_again_gives_the_same_bytes(desk: Desk, history: History) -> None:
    log = Log()
    log.says("The deadline is May 5.", session="s")
    log.says("好的", session="s", role="assistant")
    (run,) = log.runs()
    await given(history, log)
    for _ in range(2):  # a crash between publishing and the checkpoint
        again = Desk(history, log=FakeLog())
        deriving = again.deriving()
        deriving._state.save = _never  # type: ignore[method-assign,assignment]
        await deriving.open_partition(log.topic, 0, cluster_id="c", topic_id="t", end_offset=2)
        with pytest.raises(InterruptedError):
            await deriving.apply(run)
        desk.log.messages += again.log.messages
    half = len(desk.log.messages) // 2
    assert desk.log.messages[:half] == desk.log.messages[half:]


async def _never(*_: Any, **__: Any) -> None:
    raise InterruptedError


async def test_marks_of_recall_are_passed_on_with_their_position(desk: Desk) -> None:
    log = Log()
    for text in ("a", "b", "c"):
        log.says(text, session="s", user="ada")
    log.removes("a", scope="window")
    log.removes("a", scope="recall", user="ada")
    log.removes("b", scope="both", at=2)
    log.invalidates("c", "wrong")
    log.clears(scope="window")
    log.clears(scope="both", session="s", users="all")
    log.ends("s")
    await desk.bring(log)
    changes = [e for e in desk.log.events() if isinstance(e, RecallChangedEvent)]
    assert [(e.data.cause, e.data.before, e.data.ids, e.data.users, e.sessionid) for e in changes] == [
        ("removed", 4, ("a",), "own", None),
        ("removed", 2, ("b",), "own", None),
        ("invalidated", 6, ("c",), "own", None),
        ("cleared", 8, (), "all", "s"),
    ]


async def test_an_erasure_is_passed_on_once_and_the_talk_forgotten(desk: Desk) -> None:
    log = Log()
    log.says("my secret is 4711", session="s", user="ada")
    log.erases("user", user="ada", id="x1")
    log.says("and now?", session="s", user="ada")
    await desk.bring(log)
    (change,) = [e for e in desk.log.events() if isinstance(e, RecallChangedEvent)]
    assert (change.data.cause, change.data.scope, change.data.before, change.userid) == ("erased", "user", 1, "ada")
    assert "and now?" in desk.embedder.seen  # without what was said before
    fold = (await desk.history.deriving(1).load([("acme", "bot", "s", "ada")]))["acme", "bot", "s", "ada"]
    assert fold.turns == 2
    assert "secret" not in fold.last + fold.topic
    assert [type(e).__name__ for e in desk.log.events()].count("WatermarkPassed") == 3


async def test_a_request_that_was_erased_for_already_is_not_passed_on_again(desk: Desk) -> None:
    log = Log()
    log.says("old")
    first = log.erases("agent", id="x1")
    event = log.entries[first].event
    assert event is not None
    data = event.data.model_copy(update={"request_id": "q"})  # type: ignore[union-attr]
    log.entries.pop()
    log.end -= 1
    log.append(event.model_copy(update={"data": data}))
    log.says("new")
    log.append(event.model_copy(update={"data": data, "id": "x2"}))
    await desk.bring(log)
    assert [e.data.before for e in desk.log.events() if isinstance(e, RecallChangedEvent)] == [1]


async def test_a_corrected_record_is_derived_anew_in_its_place(desk: Desk) -> None:
    log = Log()
    log.says("filler", session="s")
    log.says("The train goes at nine.", id="r", session="s")
    log.says("more", session="s")
    log.corrects("r", "The train goes at ten.")
    log.corrects("unknown", "nothing")
    await desk.bring(log)
    found = desk.log.derived()["r"]
    assert (found.offset, found.turn) == (1, 1)
    assert "ten" in found.terms
    assert desk.embedder.seen[-1] == "The train goes at ten."


async def test_tombstones_are_passed_on(desk: Desk) -> None:
    log = Log()
    log.says("r")
    log.removes("r", scope="both", id="m")
    log.tombstone(log.entries[1].event.key())  # type: ignore[union-attr]
    log.tombstone(record_key("acme", "bot", "r"))
    await desk.bring(log)
    assert [key for key, value in desk.log.messages if value is None] == [
        b"acme/bot/~m",
        b"acme/bot/r",
    ]


@dataclass
class FakeRefiner:
    version: str = "llm.v1:test"
    error: Exception | None = None

    async def refine(self, record: MemoryRecord, text: str, understanding: Understanding) -> Understanding:
        assert record.content == text
        assert 0.0 <= understanding.importance <= 1.0
        if self.error is not None and "bad" in text:
            raise self.error
        return Understanding("refined", 0.9, ("k",), (), (), "en")


@pytest.mark.parametrize("error", [ModelUnavailable("stalled"), ModelRefused("nonsense")])
async def test_where_the_language_model_fails_the_rules_answer(desk: Desk, error: Exception) -> None:
    desk.refiner = FakeRefiner(error=error)
    log = Log()
    log.says("good", session="1")
    log.says("bad", session="2")
    await desk.bring(log)
    good, bad = (desk.log.derived()[i] for i in ("good", "bad"))
    assert (good.topic, good.deriver, good.degraded) == ("refined", "llm.v1:test", ())
    assert bad.deriver == "rules.v1"
    assert bad.degraded == (f"llm.v1:test: {error}",)


async def test_an_event_that_would_be_too_large_loses_what_recall_can_do_without(desk: Desk) -> None:
    log = Log()
    words = " ".join(f"{n:x}{'żółć' * 28}" for n in range(3_850))
    log.says(words, id="r")
    log.says("few words", id="q", metadata={"project_id": "p1", "repo": {"branch": "main"}, "blob": "x" * 70_000})
    desk.embedder.chunk_chars, desk.embedder.dimension = 10_000, 1_500
    await desk.bring(log)
    found = desk.log.derived()
    assert max(len(value) for _, value in desk.log.messages if value is not None) < 900_000
    assert found["r"].degraded == ("terms and metadata: too many for one event",)
    assert len(found["r"].terms) == 512
    assert found["q"].metadata == {"project_id": "p1", "repo": {"branch": "main"}}
