"""Traces: none where nobody watches, none made of damaged headers, and links that have an end."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from engramlog.consumers import telemetry
from engramlog.engine.client import tracing
from engramlog.engine.settings import Settings
from engramlog.schemas.errors import ConfigurationError

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = ("traceparent", f"00-{TRACE}-{SPAN}-01".encode())


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """A tracer provider, and what it exports."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


def test_without_a_provider_nothing_is_traced() -> None:
    assert not tracing.enabled()
    with tracing.span("send x", kind="producer") as span:
        span.set(a=1)
        span.fail("Error")
        assert tracing.headers() == ()
    with tracing.received("apply x", tracing.contexts_of([[GOOD]]), kind="consumer"):
        assert tracing.headers() == ()
    assert telemetry.middlewares() == ()


def test_the_client_does_without_opentelemetry() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from engramlog.engine.client import MemoryClient, tracing\n"
        "assert not tracing.INSTALLED\n"
        "with tracing.span('x', kind='client') as span: span.set(a=1)\n"
        "assert tracing.headers() == () and tracing.contexts_of([[('traceparent', b'x')]]) == []\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_collector_without_opentelemetry_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'engramlog\[telemetry\]'"):
        telemetry._provider("http://localhost:4318", ["store"])


def test_what_is_sent_can_be_read_back(spans: InMemorySpanExporter) -> None:
    with tracing.span("send x", kind="producer", messaging__system="kafka") as span:
        span.set(engramlog__stale=False)
        (context,) = tracing.contexts_of([tracing.headers()])
    (sent,) = spans.get_finished_spans()
    assert sent.context is not None
    assert (context.trace_id, context.span_id) == (sent.context.trace_id, sent.context.span_id)
    assert sent.attributes == {"messaging.system": "kafka", "engramlog.stale": False}


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff\xfe",
        "ü".encode(),
        b"00",
        GOOD[1][:-4],
        b"00-" + b"0" * 32 + b"-" + SPAN.encode() + b"-01",
        GOOD[1] + b"x" * 600,
        b"ff" + GOOD[1][2:],
        b"00-" + b"g" * 32 + b"-" + SPAN.encode() + b"-01",
    ],
)
def test_a_damaged_header_is_no_context(spans: InMemorySpanExporter, value: bytes | None) -> None:
    assert tracing.contexts_of([[("traceparent", value)], [("x", b"\xff"), GOOD]]) == tracing.contexts_of([[GOOD]])


def test_each_context_is_found_once_and_in_order(spans: InMemorySpanExporter) -> None:
    others = [("traceparent", f"00-{TRACE}-{n:016x}-01".encode()) for n in (3, 1, 2)]
    found = tracing.contexts_of([[GOOD], *([o] for o in others), [GOOD], [others[0]]])
    assert [c.span_id for c in found] == [int(SPAN, 16), 3, 1, 2]


def test_one_context_is_the_parent_and_many_are_links(spans: InMemorySpanExporter) -> None:
    many = tracing.contexts_of([[("traceparent", f"00-{TRACE}-{n:016x}-01".encode())] for n in range(1, 101)])
    with tracing.span("around", kind="client"):
        with tracing.received("one", many[:1], kind="consumer"):
            pass
        with tracing.received("many", many, kind="consumer"):
            pass
        with tracing.received("none", [], kind="consumer"):
            pass
    one, several, none, around = spans.get_finished_spans()
    assert one.parent is not None
    assert one.parent.span_id == 1
    assert [link.context.span_id for link in one.links] == [1]
    assert several.parent is None
    assert len(several.links) == tracing.MAX_LINKS
    assert several.attributes is not None
    assert several.attributes["engramlog.links_left_out"] == 100 - tracing.MAX_LINKS
    assert none.parent is None
    assert none.context is not None
    assert around.context is not None
    assert none.context.trace_id != around.context.trace_id


def test_a_failure_is_told_by_its_kind_and_not_by_what_it_says(spans: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="secret"), tracing.span("send x", kind="producer"):
        raise ValueError("a secret")
    (failed,) = spans.get_finished_spans()
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert failed.attributes == {"error.type": "ValueError"}
    assert "secret" not in failed.to_json()


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, "http://collector:4318"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "true"}, None),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "ENGRAMLOG_OTLP_ENDPOINT": "http://ours:4318"},
            "http://ours:4318",
        ),
    ],
)
def test_the_collector_is_ours_or_opentelemetrys(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], wanted: str | None
) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SDK_DISABLED", "ENGRAMLOG_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Settings().otlp_endpoint == wanted
