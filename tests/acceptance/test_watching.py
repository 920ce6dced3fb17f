"""What operators see of the real processes: metrics, probes, and one trace from publish to reply."""

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from engramlog.deploy.local_kafka import LocalKafka, LocalKafkaError
from engramlog.engine.client import MemoryClient, MemoryRecord, Scope
from engramlog.engine.client.admin import create_topics
from engramlog.engine.settings import Settings
from engramlog.schemas.keys import partition_for
from tests import postgres
from tests.brokers import IN_CI, Rig, eventually, rig_on
from tests.processes import Command, environment
from tests.watching import Collector, collecting, health_of, probe, scrape

pytestmark = pytest.mark.kafka

PRODUCER, CONSUMER, CLIENT = 4, 5, 3

Run = Callable[..., Command]


@pytest.fixture
def run(rig: Rig, tmp_path: Path) -> Iterator[Run]:
    """Start ``engramlog run CONSUMERS…`` as a process that serves its health; all are stopped in the end."""
    with contextlib.ExitStack() as stack:

        def start(*names: str, **env: str) -> Command:
            log = tmp_path / f"run-{'-'.join(names) or 'all'}.log"
            args = ("run", *names, "--json", "--health-port", "0")
            command = Command(*args, env=environment(rig.settings, **env), log=log)
            stack.callback(command.stop)
            return command

        yield start


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


@pytest.fixture
def tracer(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Iterator[trace.Tracer]:
    """An application that traces, as an agent's may."""
    provider = TracerProvider(resource=Resource.create({"service.name": "agent"}), shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"{collector.url}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield trace.get_tracer("test")
    provider.shutdown()


async def _health(command: Command) -> str:
    async def told() -> bool:
        assert command.process.poll() is None, command.said()
        return health_of(command.log) is not None

    await eventually(told)
    url = health_of(command.log)
    assert url is not None

    async def ready() -> bool:
        return (await probe(url, "/ready"))[0] == 200

    await eventually(ready)
    return url


async def _lag(url: str) -> float:
    return (await scrape(url)).total("engramlog_projection_lag_offsets", projection="history")


async def test_lag_rises_while_store_stands_still_and_falls_back_to_zero(rig: Rig, run: Run) -> None:
    answering = await _health(run("answer"))
    store = run("store", ENGRAMLOG_READY_MAX_LAG="3")
    storing = await _health(store)
    assert await _lag(answering) == await _lag(storing) == 0
    store.signal(signal.SIGSTOP)
    scope = rig.scope()
    async with rig.client() as client:
        await client.publish(scope, [MemoryRecord(role="user", content=f"{n}") for n in range(5)])

        async def lags() -> bool:
            return await _lag(answering) == 5

        await eventually(lags)
        _, told = await probe(answering, "/ready")
        partition = partition_for(scope.tenant, scope.agent, rig.partitions)
        assert told["projections"] == [
            {
                "projection": "history",
                "here": False,
                "lag": 5,
                "worst": {"topic": rig.topics.records, "partition": partition, "lag": 5},
            }
        ]
        store.signal(signal.SIGCONT)
        assert len((await client.history(scope)).records) == 5

    async def caught_up() -> bool:
        return await _lag(answering) == await _lag(storing) == 0

    await eventually(caught_up)
    seen = await scrape(storing)
    assert seen.total("engramlog_projection_next_offset", partition=str(partition)) == 5
    assert seen.total("engramlog_log_end_offset", topic=rig.topics.records) == 5
    assert seen.total("engramlog_run_records_sum", consumer="store") == 5
    assert seen.total("engramlog_run_apply_seconds_count", consumer="store") >= 1
    assert seen.total("engramlog_partition_open", consumer="store", topic=rig.topics.records) == rig.partitions
    assert seen.total("faststream_received_messages_total", handler=rig.topics.records) == 5


async def test_requests_and_dead_letters_are_counted_and_no_label_names_a_tenant(rig: Rig, run: Run) -> None:
    url = await _health(run())
    scope = rig.scope(agent="somebody-special")
    await rig.put(b"\xff{", key=b"k", partition=0, headers=[("x", b"\xff\xfe"), ("traceparent", b"\xff")])
    async with rig.client() as client:
        await client.publish(scope, MemoryRecord(role="user", content="hello"))
        await client.history(scope)
        with pytest.raises(Exception, match="not_found"):
            await client.record(scope, "none")

    async def counted() -> bool:
        return (await scrape(url)).total("engramlog_dead_letters_total", consumer="store") == 1

    await eventually(counted)
    seen = await scrape(url)
    assert seen.total("engramlog_dead_letters_total", reason="not_utf8") == 1
    assert seen.total("engramlog_requests_total", ask="history", outcome="answered") == 1
    assert seen.total("engramlog_requests_total", ask="record", outcome="failed") == 1
    assert seen.total("engramlog_request_failures_total", ask="record", code="not_found") == 1
    assert seen.total("engramlog_requests_under_way", ask="history") == 0
    assert seen.total("engramlog_request_seconds_count", ask="history") == 1
    assert seen.total("engramlog_request_wait_seconds_count", ask="history") == 1
    values = {value for sample in seen.samples for value in sample.labels.values()}
    assert not {v for v in values if "somebody-special" in v or v == rig.tenant}


async def test_one_trace_from_publish_to_reply(rig: Rig, run: Run, collector: Collector, tracer: trace.Tracer) -> None:
    await _health(run("store", "answer", ENGRAMLOG_OTLP_ENDPOINT=collector.url, OTEL_BSP_SCHEDULE_DELAY="50"))
    scope = rig.scope()
    async with rig.client() as client:
        with tracer.start_as_current_span("turn") as turn:
            position = await client.publish(scope, MemoryRecord(role="user", content="a secret"))
            assert len((await client.history(scope)).records) == 1
    replies, records = rig.topics.replies, rig.topics.records

    async def complete() -> bool:
        return bool(collector.named(f"{replies} publish") and collector.named(f"apply {records}"))

    await eventually(complete)
    of_turn = [s for s in collector.spans if s.trace_id == f"{turn.get_span_context().trace_id:032x}"]
    (root,) = [s for s in of_turn if not s.parent_id]
    by_id = {s.span_id: s for s in of_turn}
    ways = {s.name: (s.service, s.kind, by_id[s.parent_id].name if s.parent_id else None) for s in of_turn}
    assert root.name == "turn"
    assert ways == {
        "turn": ("agent", 1, None),
        f"send {records}": ("agent", PRODUCER, "turn"),
        f"apply {records}": ("engramlog", CONSUMER, f"send {records}"),
        "ask history": ("agent", CLIENT, "turn"),
        "answer history": ("engramlog", CONSUMER, "ask history"),
        f"{replies} create": ("engramlog", PRODUCER, "answer history"),
        f"{replies} publish": ("engramlog", PRODUCER, f"{replies} create"),
    }
    (sent,), (applied,), (answered,) = map(collector.named, (f"send {records}", f"apply {records}", "answer history"))
    assert applied.links == [(sent.trace_id, sent.span_id)]
    assert applied.attributes["messaging.destination.partition.id"] == str(position.partition)
    assert applied.attributes["engramlog.next_offset"] == position.offset + 1
    assert applied.attributes["messaging.consumer.group.name"] == f"{rig.settings.prefix}.store"
    assert answered.attributes["engramlog.stale"] is False
    assert answered.attributes["engramlog.waited_ms"] >= 0
    assert not any(s.error for s in of_turn)
    told = json.dumps([s.attributes for s in collector.spans], default=repr)
    assert "a secret" not in told
    assert rig.tenant not in told


async def test_a_run_of_several_traces_is_linked_to_each_and_bad_headers_do_no_harm(
    rig: Rig, run: Run, collector: Collector, tracer: trace.Tracer
) -> None:
    scope, traces = rig.scope(), []
    async with rig.client() as client:
        for n in range(3):
            with tracer.start_as_current_span("turn") as turn:
                position = await client.publish(scope, MemoryRecord(role="user", content=f"{n}"))
                traces.append(f"{turn.get_span_context().trace_id:032x}")
    (first, *_) = [m for m in await rig.read(rig.topics.records) if m.partition == position.partition]
    for bad in (b"\xff\xfe", b"", b"00-0-0-00", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01", b"x" * 5000):
        await rig.put(first.value, key=first.key, partition=position.partition, headers=[("traceparent", bad)])
    await _health(run("store", ENGRAMLOG_OTLP_ENDPOINT=collector.url, OTEL_BSP_SCHEDULE_DELAY="50"))

    async def linked() -> bool:
        return len({t for s in collector.named(f"apply {rig.topics.records}") for t, _ in s.links}) == 3

    await eventually(linked)
    runs = [s for s in collector.named(f"apply {rig.topics.records}") if len(s.links) > 1]
    assert runs
    assert all(not s.parent_id and s.trace_id not in traces for s in runs)
    assert {t for s in collector.named(f"apply {rig.topics.records}") for t, _ in s.links} == {*traces}


async def test_a_trace_goes_on_through_the_inbox_and_no_span_names_an_agent(
    rig: Rig, run: Run, collector: Collector
) -> None:
    """Of any producer that writes W3C Trace Context; what comes without it makes no span."""
    await _health(run("admit", "store", ENGRAMLOG_OTLP_ENDPOINT=collector.url, OTEL_BSP_SCHEDULE_DELAY="50"))
    inbox, records = rig.topics.inbox, rig.topics.records
    body = {"tenant": rig.tenant, "agent": "somebody-special", "role": "user", "content": "hello"}
    trace_id, span_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    parent = ("traceparent", f"00-{trace_id}-{span_id}-01".encode())
    for headers in ([], [parent]):
        await rig.put(json.dumps(body).encode(), key=b"k", partition=0, topic=inbox, headers=headers)

    async def applied() -> bool:
        return any(s.trace_id == trace_id for s in collector.named(f"apply {records}")) and bool(
            collector.named(f"{records} publish")
        )

    await eventually(applied)
    (admitted,), (created,), (published,) = map(
        collector.named, (f"admit {inbox}", f"{records} create", f"{records} publish")
    )
    assert (admitted.trace_id, admitted.parent_id, admitted.links) == (trace_id, span_id, [(trace_id, span_id)])
    assert (created.parent_id, published.parent_id) == (admitted.span_id, created.span_id)
    assert {(t, s) for run in collector.named(f"apply {records}") for t, s in run.links} == {
        (trace_id, created.span_id)
    }
    assert "somebody-special" not in json.dumps([s.attributes for s in collector.spans], default=repr)


async def test_kafka_away_is_told_meanwhile_logged_once_and_got_over(tmp_path: Path) -> None:
    broker = LocalKafka(data_dir=tmp_path / "kafka", port=None)
    try:
        await broker.start()
    except LocalKafkaError as error:
        if IN_CI:
            raise
        pytest.skip(f"no Apache Kafka: {error}")
    where = broker.bootstrap_servers
    settings = Settings(bootstrap_servers=where, data_dir=tmp_path / "data", session_timeout_ms=6_000)
    command = None
    try:
        await create_topics(settings.kafka(), partitions=3)
        command = Command("run", "--json", "--health-port", "0", env=environment(settings), log=tmp_path / "run.log")
        url = await _health(command)
        await broker.stop()

        async def told() -> bool:
            status, about = await probe(url, "/ready")
            return status == 503 and about["problems"][0].startswith("kafka: ")

        await eventually(told)
        assert (await probe(url, "/live"))[0] == 200
        seen = await scrape(url)
        assert seen.total("engramlog_source_up", source="kafka") == 0
        assert "engramlog_projection_lag_offsets" not in seen.names
        broker = LocalKafka(data_dir=tmp_path / "kafka", port=int(where.rpartition(":")[2]))
        await broker.start()

        async def ready() -> bool:
            return (await probe(url, "/ready"))[0] == 200

        await eventually(ready, within_s=60)
        async with MemoryClient(settings.kafka(), timeout_s=30.0) as client:
            scope = Scope("acme", "helper")
            await client.publish(scope, MemoryRecord(role="user", content="still here"))
            assert len((await client.history(scope)).records) == 1
    finally:
        if command is not None:
            command.stop()
        await broker.stop()
    said = command.said()
    assert said.count("not ready: kafka: ") == said.count("kafka answers again") == 1
    assert said.count("ERROR aiokafka: Unable connect to node") <= 3
    assert "Traceback" not in said


async def test_a_port_that_is_taken_ends_the_process_with_one_line(rig: Rig, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = Command("run", "--health-port", port, env=environment(rig.settings), log=tmp_path / "log")
        assert await asyncio.to_thread(command.process.wait, 60) == 4
    assert f"engramlog: the health port {port} at 127.0.0.1 cannot be had" in command.said()
    assert "Traceback" not in command.said()


@pytest.mark.postgres
async def test_a_database_away_is_told_meanwhile_logged_once_and_got_over(kafka: str, tmp_path: Path) -> None:
    with postgres.started() as server:
        async with rig_on(kafka, tmp_path, history_url=server.fresh()) as rig:
            log = tmp_path / "run.log"
            names = ("store", "answer")
            command = Command("run", *names, "--json", "--health-port", "0", env=environment(rig.settings), log=log)
            try:
                await _database_goes_and_comes(rig, server, command)
            finally:
                command.stop()
    said = command.said()
    assert said.count("not ready: history: ") == said.count("history answers again") == 1
    assert said.count("halts at offset") == 1
    assert said.count("is not processed: ") <= 2
    assert "Traceback" not in said


async def _database_goes_and_comes(rig: Rig, server: postgres.Server, command: Command) -> None:
    url = await _health(command)
    pid = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGQUIT)
    records = [MemoryRecord(role="user", content=f"{n}") for n in range(3)]

    async def closed() -> bool:
        status, told = await probe(url, "/ready")
        (store,) = [c for c in told["consumers"] if c["consumer"] == "store"]
        away = any(problem.startswith("history: ") for problem in told["problems"])
        return status == 503 and away and [p["state"] for p in store["unready"]] == ["closed"]

    async with rig.client() as client:
        await client.publish(rig.scope(), records)
        await eventually(closed)
        seen = await scrape(url)
        assert seen.total("engramlog_source_up", source="history") == 0
        assert seen.total("engramlog_partition_open", consumer="store", topic=rig.topics.records) == rig.partitions - 1
        assert (await probe(url, "/live"))[0] == 200
        with await asyncio.to_thread(_started_again, server):
            window = await client.history(rig.scope(), timeout_s=60)
            assert [c.record.content for c in window.records] == ["0", "1", "2"]

            async def ready() -> bool:
                return (await probe(url, "/ready"))[0] == 200

            await eventually(ready)
            command.stop()  # before the database goes for good


def _started_again(server: postgres.Server) -> contextlib.ExitStack:
    bin_ = postgres.binaries()
    assert bin_ is not None
    with contextlib.ExitStack() as stack:
        stack.enter_context(postgres.running(server.folder, bin_, postgres._account()))
        return stack.pop_all()
