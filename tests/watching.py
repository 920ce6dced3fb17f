"""What watches the engine, for tests: a scraper of metrics and probes, and a collector of traces."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families


def get(url: str) -> tuple[int, str]:
    """Status and body of a URL."""
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def probe(base: str, path: str) -> tuple[int, dict[str, Any]]:
    """Status and JSON of a probe."""
    status, body = await asyncio.to_thread(get, f"{base}{path}")
    return status, json.loads(body)


@dataclass
class Scraped:
    """One scrape of ``/metrics``."""

    samples: list[Any]
    names: set[str]

    def total(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples with these labels; NaN when there is none."""
        found = [s.value for s in self.samples if s.name == name and labels.items() <= s.labels.items()]
        return sum(found) if found else float("nan")


async def scrape(base: str) -> Scraped:
    """Scrape a process."""
    status, body = await asyncio.to_thread(get, f"{base}/metrics")
    assert status == 200, body
    families = list(text_string_to_metric_families(body))
    samples = [sample for family in families for sample in family.samples]
    return Scraped(samples, {sample.name for sample in samples})


def health_of(log: Path) -> str | None:
    """Where a process that was started with ``--json`` serves its health; None: it is not ready yet."""
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("{"):
            return str(json.loads(line)["health"])
    return None


@dataclass
class SeenSpan:
    """A span as it came to the collector."""

    service: str
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    links: list[tuple[str, str]]
    attributes: dict[str, Any]
    error: bool


@dataclass
class Collector:
    """An OTLP endpoint."""

    url: str = ""
    spans: list[SeenSpan] = field(default_factory=list)

    def named(self, name: str) -> list[SeenSpan]:
        """The spans of a name."""
        return [span for span in self.spans if span.name == name]

    def take(self, body: bytes) -> None:
        """Take an export."""
        request = ExportTraceServiceRequest.FromString(body)
        for of_resource in request.resource_spans:
            about = {a.key: a.value.string_value for a in of_resource.resource.attributes}
            for scope in of_resource.scope_spans:
                self.spans += [_seen(about["service.name"], span) for span in scope.spans]


def _seen(service: str, span: Any) -> SeenSpan:
    values = {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}
    return SeenSpan(
        service,
        span.name,
        span.kind,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        values,
        span.status.code == 2,
    )


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            collector.take(body)
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
