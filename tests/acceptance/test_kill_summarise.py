"""kill -9 of summarise, again and again amid the work: one summary of each range, and the history as it was."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from engramlog.deploy.local_kafka import LocalKafka
from engramlog.engine.client import MemoryClient, MemoryRecord
from engramlog.engine.history import History
from engramlog.schemas.codec import records_codec, summaries_codec
from engramlog.schemas.envelope import RecordWritten
from engramlog.schemas.queries import HistoryQuery
from engramlog.schemas.summaries import SummaryCreatedEvent
from tests.brokers import Rig, eventually, rig_on
from tests.processes import Command, environment

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]

KILLS = 20
SESSIONS = 4
START = datetime(2026, 3, 1, tzinfo=UTC)
TEXTS = (
    "I moved the meeting about the harbour project to Thursday at ten, number {n}.",
    "大连的项目改到星期四上午十点开会,请准备好材料,编号{n}。",
)


@pytest.fixture
async def kafka_with_short_sessions(tmp_path: Path) -> AsyncIterator[str]:
    """A killed member of a group is missed after a second."""
    overrides = {"group.min.session.timeout.ms": "500", "group.initial.rebalance.delay.ms": "0"}
    async with LocalKafka(data_dir=tmp_path / "kafka", overrides=overrides) as kafka:
        yield kafka.bootstrap_servers


class Talk:
    """What is said, ten lines of each session at a time."""

    def __init__(self, client: MemoryClient, rig: Rig) -> None:
        self.client, self.rig = client, rig
        self.said: dict[str, list[str]] = {f"会话{n}": [] for n in range(SESSIONS)}

    async def go_on(self) -> None:
        for number, (session, lines) in enumerate(self.said.items()):
            fresh = [
                MemoryRecord(
                    record_id=f"{session}/{n}",
                    role=("user", "assistant")[n % 2],
                    content=TEXTS[number % 2].format(n=n),
                    timestamp=START + timedelta(minutes=n),
                )
                for n in range(len(lines), len(lines) + 10)
            ]
            await self.client.publish(self.rig.scope(session=session), fresh)
            lines += [record.content for record in fresh]


async def written(rig: Rig, consumer: AIOKafkaConsumer) -> int:
    """How much lies in the topic of summaries."""
    ends = await consumer.end_offsets([TopicPartition(rig.topics.summaries, p) for p in range(rig.partitions)])
    return sum(ends.values())


async def created(rig: Rig) -> dict[bytes, SummaryCreatedEvent]:
    """The last copy of each summary."""
    last = {message.key: message.value for message in await rig.read(rig.topics.summaries)}
    events = {key: summaries_codec().decode(value) for key, value in last.items() if value is not None}
    return {key: event for key, event in events.items() if isinstance(event, SummaryCreatedEvent)}


async def test_there_is_one_summary_of_each_range_through_kills_of_summarise(
    kafka_with_short_sessions: str, tmp_path: Path
) -> None:
    async with (
        rig_on(kafka_with_short_sessions, tmp_path / "data", summary_budget_tokens=300) as rig,
        rig.client(timeout_s=60) as client,
    ):
        rig.settings.data_dir.mkdir(exist_ok=True)
        history = History(rig.settings.effective_history_url(), topics=rig.topics)
        await history.start()
        consumer = AIOKafkaConsumer(**rig.config.reader())
        await consumer.start()
        env, log = environment(rig.settings, ENGRAMLOG_SESSION_TIMEOUT_MS="1000"), tmp_path / "summarise.log"
        talk = Talk(client, rig)
        async with rig.consumers("store", "answer"):
            running = Command("run", "summarise", env=env, log=log)
            for _ in range(KILLS):
                before = await written(rig, consumer)
                await talk.go_on()

                async def moved(before: int = before, running: Command = running) -> bool:
                    assert running.process.poll() is None, running.said()[-3000:]
                    return await written(rig, consumer) > before

                try:
                    await eventually(moved, within_s=60)
                finally:
                    running.kill_all()
                running = Command("run", "summarise", env=env, log=log)

            try:
                await eventually(lambda: done(rig, history), within_s=60)
            finally:
                assert running.stop() == 130, running.said()[-3000:]
            await history_is_as_it_was(client, history, rig, talk)
            digest = await history.digest()
        await each_range_has_one_summary(history, rig, talk)
        await facts_are_there_once(rig)
        await history.stop()
        await consumer.stop()
        assert digest == await rig.rebuilt()
        assert await rig.dead_letters() == []


async def done(rig: Rig, history: History) -> bool:
    """Every record is folded, and every summary that is due is made and in the history."""
    state = history.summarising()
    place = history.place(rig.scope())
    ends = await history.next_offsets()
    everything = [await history.summaries_are_made(rig.scope(session=f"会话{n}")) for n in range(SESSIONS)]
    return all(everything) and await state.reached(*place) >= ends.get(place, 0)


async def history_is_as_it_was(client: MemoryClient, history: History, rig: Rig, talk: Talk) -> None:
    for session, lines in talk.said.items():
        scope = rig.scope(session=session)
        whole = await history.read_history(scope, HistoryQuery(summaries=False), max_bytes=10**8)
        assert [c.record.content for c in whole.answer.records] == lines
        window = await client.history(scope)
        shown = [c.record.content for c in window.records]
        listed = (await client.list_summaries(scope, active=False, limit=1_000)).summaries
        covered = {i for stored in listed for i in stored.summary.covers.record_ids}
        assert shown == lines[len(covered) :]
        assert len(shown) < 30


async def each_range_has_one_summary(history: History, rig: Rig, talk: Talk) -> None:
    events = list((await created(rig)).values())
    for session, lines in talk.said.items():
        mine = sorted(
            (e for e in events if e.sessionid == session and e.data.level == 1), key=lambda e: e.data.covers.first
        )
        covered = [i for event in mine for i in event.data.covers.record_ids]
        assert covered == [f"{session}/{n}" for n in range(len(covered))]
        assert len(covered) > len(lines) - 30
        for event in events:
            if event.sessionid == session:
                assert ("大" in event.data.text) == (session in {"会话1", "会话3"})
    higher = [event for event in events if event.data.level > 1]
    replaced = [i for event in higher for i in event.data.replaces]
    assert higher
    assert len(replaced) == len(set(replaced))


async def facts_are_there_once(rig: Rig) -> None:
    """Records that go with summaries: each lies under one key, and each summary is one of them."""
    last = {message.key: message.value for message in await rig.read(rig.topics.records)}
    events = [records_codec().decode(value) for value in last.values() if value is not None]
    made = {e.data.record_id for e in events if isinstance(e, RecordWritten) and e.data.origin == "summary"}
    assert made == {event.data.summary_id for event in (await created(rig)).values()}
