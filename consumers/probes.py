"""HTTP for whoever looks after the process: ``/live``, ``/ready`` and ``/metrics``."""

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

import uvicorn
from prometheus_client import CollectorRegistry, make_asgi_app

from engramlog.consumers.health import Health
from engramlog.schemas.errors import ConfigurationError

_log = logging.getLogger(__name__)
_BACKLOG = 64
_LINGER_S = 2

App = Callable[..., Awaitable[None]]


class Probes:
    """An ASGI application.

    Args:
        health: What ``/live`` and ``/ready`` tell: 200 or 503, and a JSON object that says why.
        registry: What ``/metrics`` tells, as Prometheus reads it.
    """

    def __init__(self, health: Health, registry: CollectorRegistry) -> None:
        self._reports = {"/live": health.live, "/ready": health.ready}
        self._metrics: App = make_asgi_app(registry)

    async def __call__(self, scope: Mapping[str, Any], receive: App, send: App) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        path = scope["path"].rstrip("/")
        if path == "/metrics":
            await self._metrics(scope, receive, send)
        elif path not in self._reports:
            await _respond(send, 404, {"error": "there are /live, /ready and /metrics"})
        elif scope["method"] not in {"GET", "HEAD"}:
            await _respond(send, 405, {"error": "GET only"})
        else:
            good, report = self._reports[path]()
            await _respond(send, 200 if good else 503, report)


async def _respond(send: App, status: int, report: Mapping[str, Any]) -> None:
    body = json.dumps(report, ensure_ascii=False).encode() + b"\n"
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers.append((b"cache-control", b"no-store"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _Server(uvicorn.Server):
    """Leaves signals to those who run the process: Ctrl-C stops the consumers first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


@contextlib.asynccontextmanager
async def serving(probes: Probes, *, host: str, port: int | None) -> AsyncIterator[str | None]:
    """Serve while inside.

    Args:
        probes: What is served.
        host: Address to listen at.
        port: Port; 0: any free one; None: nothing is served.

    Yields:
        The URL; None: nothing is served.

    Raises:
        ConfigurationError: The port cannot be had.
    """
    if port is None:
        yield None
        return
    listening = _listen(host, port)
    name, number = listening.getsockname()[:2]
    url = f"http://[{name}]:{number}" if ":" in name else f"http://{name}:{number}"
    config = uvicorn.Config(
        probes,
        http="h11",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_LINGER_S,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listening]), name="engramlog-probes")
    _log.info("health and metrics: %s/live, /ready, /metrics", url)
    try:
        yield url
    finally:
        server.should_exit = True
        await task
        listening.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        ((family, kind, protocol, _, address), *_) = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_BACKLOG)
            listening.settimeout(0.0)  # never blocks
        except OSError:
            listening.close()
            raise
    except OSError as error:
        message = f"the health port {port} at {host} cannot be had: {error.strerror or error}"
        advice = "choose another (--health-port, ENGRAMLOG_HEALTH_PORT, ENGRAMLOG_HEALTH_HOST)"
        raise ConfigurationError(f"{message}; {advice}") from None
    return listening
