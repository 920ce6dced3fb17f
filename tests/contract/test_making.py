"""Making summaries: each that is due once, whatever goes wrong."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engramlog.engine import making
from engramlog.engine.history.due import ACTIVE, ROLLED
from engramlog.engine.log import Run
from engramlog.engine.making import LONGEST_PAUSE_S
from engramlog.engine.summarisers.passages import SummaryRefused
from engramlog.schemas.envelope import RecordsRemovedEvent, RecordWritten
from engramlog.schemas.errors import ConfigurationError, ModelUnavailable
from tests.history_log import Log, contents, scope
from tests.summarising import POLICY, Desk, OpenDesk, eventually, tell

FIRST, SECOND = ("t0", "t1", "t2"), ("t3", "t4")


async def test_a_summary_tells_what_it_stands_for_and_is_a_memory_too(desk: Desk) -> None:
    log = Log()
    log.says("I prefer dark mode in every editor. " * 5, id="t0", session="s", user="ada")
    tell(log, 4, start=1, user="ada")
    await desk.fold(log, work=True)
    await desk.all_made()
    (event,) = desk.log.created()
    data = event.data
    assert (event.tenantid, event.agentid, event.sessionid, event.userid) == ("acme", "bot", "s", "ada")
    assert (event.id, data.level, data.model, data.prompt) == (data.summary_id, 1, "fake", "fake.v1")
    assert (data.covers.record_ids, data.covers.first, data.covers.last) == (FIRST, 0, 2)
    assert data.at == 4
    assert data.tokens_before > data.tokens_after > 0
    fact, record = (e.data for e in desk.log.records if isinstance(e, RecordWritten))  # its own record is the last
    assert (record.record_id, record.content, record.origin, record.layer) == (
        data.summary_id,
        data.text,
        "summary",
        "long_term",
    )
    assert record.derived_from == FIRST
    assert (fact.kind, fact.origin, fact.derived_from) == ("preference", "extracted", ("t0",))
    assert "dark mode" in fact.content
    assert fact.confidence is not None
    assert {(e.sessionid, e.userid, e.causationid) for e in desk.log.records} == {("s", "ada", event.id)}


async def test_what_a_summary_covers_is_read_beside_the_loop(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules need milliseconds a record: whoever is answered by the same process must not wait for all of them."""
    read_by: dict[str, set[int]] = {}

    def watched(name: str, read: Callable[..., Any]) -> Callable[..., Any]:
        def reading(*args: Any) -> Any:
            read_by.setdefault(name, set()).add(threading.get_ident())
            return read(*args)

        return reading

    for name in ("checked", "outputs"):
        monkeypatch.setattr(making, name, watched(name, getattr(making, name)))
    log = Log()
    tell(log, 5)
    await desk.fold(log, work=True)
    await desk.all_made()
    assert len(desk.log.created()) == 1
    assert read_by.keys() == {"checked", "outputs"}
    assert all(threading.get_ident() not in threads for threads in read_by.values())


async def test_a_model_that_fails_five_times_leaves_the_window_whole_and_is_asked_again(desk: Desk) -> None:
    desk.summariser.answers = [ModelUnavailable(f"away {n}") for n in range(5)]
    log = Log()
    tell(log, 5)
    await desk.fold(log, work=True)
    pauses = []
    for failures in range(1, 6):
        await eventually(lambda failures=failures: failed(desk, failures))
        assert len(await contents(desk.history, scope("s"))) == 5
        pause = 1.0 * 2 ** (failures - 1)
        desk.now[0] += pause - 0.01
        await desk.fold(log, work=True)
        assert await desk.running._state.next_due([0], limit=9) == []  # type: ignore[union-attr]
        desk.now[0] += 0.02
        pauses.append(pause)
    await desk.all_made()
    assert [event.data.attempts for event in desk.log.failed()] == [1, 2, 3, 4, 5]
    assert {(e.data.code, e.data.model, e.data.covers.record_ids) for e in desk.log.failed()} == {
        ("unavailable", "fake", FIRST)
    }
    assert [event.data.error for event in desk.log.failed()] == [f"away {n}" for n in range(5)]
    assert len({event.key() for event in desk.log.failed()}) == 1
    assert len(desk.log.created()) == 1
    assert len(await contents(desk.history, scope("s"))) == 2


async def failed(desk: Desk, count: int) -> bool:
    (due, *_) = await desk.dues()
    return len(desk.log.failed()) == count and due.attempts == count


async def test_pauses_grow_up_to_a_limit(desk: Desk) -> None:
    log = Log()
    tell(log, 5)
    summarising = await desk.fold(log)
    (due,) = await desk.dues()
    pauses = [summarising._maker._pause_s(replace(due, attempts=n)) for n in (0, 1, 2, 8, 9, 1_000)]
    assert pauses == [1.0, 2.0, 4.0, 256.0, LONGEST_PAUSE_S, LONGEST_PAUSE_S]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("The two of them talk about the weather in Dalian and the train to Beijing.", "wrong_language"),
        ("   ", "empty"),
        ("我很抱歉，我无法总结这段对话。", "refused"),
        ("下雨" * 500, "too_long"),
        (SummaryRefused("refused", "no"), "refused"),
        (ConfigurationError("no such model"), "unavailable"),
        (ValueError("a fault of a summariser"), "invalid"),
        (TimeoutError(), "unavailable"),
    ],
)
async def test_nonsense_hides_nothing_and_the_stream_says_what_it_was(desk: Desk, answer: Any, code: str) -> None:
    desk.summariser.answers = [answer]
    log = Log()
    for n in range(8):
        log.says(f"第{n}天:大连今天下雨,我们坐火车去北京,下午在家里看书。" * 2, id=f"t{n}", session="s")
    await desk.fold(log, work=True)
    await eventually(lambda: failed(desk, 1))
    (event,) = desk.log.failed()
    assert event.data.code == code
    assert desk.log.created() == []
    assert len(await contents(desk.history, scope("s"))) == 8
    desk.now[0] += 5
    await desk.all_made()
    assert len(desk.log.created()) >= 1


async def test_a_model_that_never_answers_is_given_up_and_blocks_no_other_session(open_desk: OpenDesk) -> None:
    desk = await open_desk(timeout_s=0.3)
    desk.summariser.answers = [None, None, None]
    desk.summariser.only = lambda text: "mark1" in text  # the talk of session s
    log = Log()
    tell(log, 5)
    for n in range(4):
        tell(log, 5, start=20 + 10 * n, session=f"other{n}")
    await desk.fold(log, work=True)

    async def others() -> bool:
        return len(desk.log.created()) == 4 and len(desk.log.failed()) == 1

    await eventually(others)
    assert (desk.log.failed()[0].data.code, desk.log.failed()[0].sessionid) == ("unavailable", "s")
    assert "0.3 s" in desk.log.failed()[0].data.error
    assert desk.summariser.cancelled == 1
    assert {event.sessionid for event in desk.log.created()} == {f"other{n}" for n in range(4)}


async def test_within_a_session_the_older_summary_comes_first_however_often_it_fails(desk: Desk) -> None:
    desk.summariser.answers = [ModelUnavailable("away"), ModelUnavailable("away")]
    log = Log()
    tell(log, 8)
    await desk.fold(log, work=True)
    for failures in (1, 2):
        await eventually(lambda failures=failures: failed(desk, failures))
        desk.now[0] += 10
    await desk.all_made()
    assert [event.data.covers.first for event in desk.log.created()] == sorted(
        event.data.covers.first for event in desk.log.created()
    )
    assert len(desk.log.created()) >= 2


async def test_a_broker_that_is_away_is_waited_for(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    desk.log.down = True
    log = Log()
    tell(log, 5)
    await desk.fold(log, work=True)

    async def waits() -> bool:
        return (await desk.dues())[0].attempts == 1

    await eventually(waits)
    assert desk.log.summaries == []
    desk.log.down = False
    desk.now[0] += 10
    await desk.all_made()
    assert len(desk.log.created()) == 1


async def test_a_worker_that_is_stopped_in_the_middle_makes_one_summary_of_each_range(desk: Desk) -> None:
    log = Log()
    tell(log, 30)
    whole = Log()
    whole.entries, whole.end = log.entries[:20], 20
    desk.log.held = asyncio.Event()
    await desk.fold(whole, work=True)
    await eventually(lambda: asked(desk, 1))
    await desk.stop()  # it was just being published
    desk.log.held = None
    await desk.fold(log, work=True)
    await desk.all_made()
    await desk.stop()
    await desk.fold(log, work=True)
    dues = await desk.dues()
    assert sorted({event.id for event in desk.log.created()}) == sorted(due.summary_id for due in dues)
    covered = [i for due in dues for i in due.record_ids]
    assert covered == [f"t{n}" for n in range(len(covered))]
    assert desk.summariser.asked[0] == desk.summariser.asked[1]  # made again, as nobody knows whether it was


async def asked(desk: Desk, count: int) -> bool:
    return len(desk.summariser.asked) >= count


async def test_a_summary_that_is_erased_while_it_is_made_is_never_shown(desk: Desk) -> None:
    log = Log()
    tell(log, 5)
    desk.log.held = asyncio.Event()
    await desk.fold(log, work=True)
    await eventually(lambda: asked(desk, 1))
    log.erases("record", "t1")
    await desk.fold(log, work=True)
    desk.log.held.set()
    await desk.all_made()
    assert [s.summary.text for s in await desk.active(active=False)] == ["mark0 mark2"]


@pytest.fixture
async def rolling(open_desk: OpenDesk) -> Desk:
    """Summaries of which each has 6 tokens; more than 20 are rolled up."""
    return await open_desk(policy=replace(POLICY, budget_tokens=40, window_ratio=0.5))


async def test_summaries_that_outgrow_their_share_are_rolled_up_and_stand_again_when_that_is_erased(
    rolling: Desk,
) -> None:
    log = Log()
    tell(log, 14)
    await rolling.fold(log, work=True)
    await rolling.all_made()
    await eventually(lambda: levels(rolling, {2}))
    dues = await rolling.dues()
    (higher,) = [due for due in dues if due.level == 2]
    lower = [due for due in dues if due.summary_id in higher.summary_ids]
    assert [due.state for due in lower] == [ROLLED] * len(lower)
    active = await rolling.active(scope("s"))
    assert next(s.summary.level for s in active) == 2
    assert not {s.summary.summary_id for s in active} & set(higher.summary_ids)
    (event,) = [e for e in rolling.log.created() if e.data.level == 2]
    assert (event.data.replaces, event.data.covers.summary_ids) == (higher.summary_ids, higher.summary_ids)
    assert event.data.covers.record_ids == tuple(i for due in lower for i in due.record_ids)
    removed = [e for e in rolling.log.records if isinstance(e, RecordsRemovedEvent)]
    assert [(e.data.ids, e.data.scope) for e in removed] == [(higher.summary_ids, "recall")]
    shown = await contents(rolling.history, scope("s"))
    log.erases("record", lower[0].record_ids[1])
    await rolling.fold(log)
    again = await rolling.dues()
    assert not [due for due in again if due.level == 2]
    assert [due.state for due in again if due.summary_id in higher.summary_ids] == [ACTIVE] * (len(lower) - 1)
    assert {s.summary.level for s in await rolling.active(scope("s"))} == {1}
    back = await contents(rolling.history, scope("s"))
    assert [text.split()[0] for text in back] == [
        *(f"mark{i[1:]}" for i in lower[0].record_ids if i != lower[0].record_ids[1]),
        *(text.split()[0] for text in shown),
    ]


async def levels(desk: Desk, wanted: set[int]) -> bool:
    made = {due.level for due in await desk.dues() if due.state}
    return wanted <= made and all(due.state for due in await desk.dues())


async def test_a_higher_level_waits_until_the_history_has_all_that_it_is_made_from(rolling: Desk) -> None:
    log = Log()
    tell(log, 14)
    apply, lost = rolling.history.apply, []

    async def late(run: Run) -> None:
        """The history is behind: summaries come to it later."""
        lost.append(run) if run.topic == "memory.summaries" else await apply(run)

    rolling.history.apply = late  # type: ignore[method-assign]
    await rolling.fold(log, work=True)

    async def waits() -> bool:
        return any(due.level == 2 and due.attempts for due in await rolling.dues())

    await eventually(waits)
    assert not [event for event in rolling.log.created() if event.data.level == 2]
    rolling.history.apply = apply  # type: ignore[method-assign]
    for run in lost:
        await apply(run)
    rolling.now[0] += 10
    await eventually(lambda: levels(rolling, {2}))
    (event,) = [e for e in rolling.log.created() if e.data.level == 2]
    (higher,) = [due for due in await rolling.dues() if due.level == 2]
    assert rolling.summariser.asked.count(list(higher.summary_ids)) == 1
    assert event.data.covers.summary_ids == higher.summary_ids
