"""Free ports, and asking a broker whether it is ready."""

import contextlib
import socket
import time
from asyncio import sleep, wait_for
from collections.abc import Callable
from pathlib import Path

HOST = "127.0.0.1"
_POLL_S = 0.02
_ASK_TIMEOUT_S = 5.0


def free_port() -> int:
    """Return a port of 127.0.0.1 that was free a moment ago: another process may still take it first."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int) -> bool:
    """Tell whether a broker could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the broker does: TIME_WAIT is no obstacle
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


async def is_ready(bootstrap_servers: str, *, cluster_id: str | None = None) -> bool:
    """Ask for the cluster's metadata once, for at most 5 seconds.

    Args:
        bootstrap_servers: One ``host:port``.
        cluster_id: Whose answer counts; any cluster's when ``None``.

    Returns:
        Whether that cluster answered, and has a live broker and a controller.
    """
    host, _, port = bootstrap_servers.rpartition(":")
    if not _listens(host, int(port)):  # the client would log an error for each refused connection
        return False
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.errors import KafkaError

    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers, request_timeout_ms=int(_ASK_TIMEOUT_S * 1000))
    try:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(admin.close)
            await wait_for(admin.start(), _ASK_TIMEOUT_S)
            cluster = await wait_for(admin.describe_cluster(), _ASK_TIMEOUT_S)
    except (KafkaError, OSError, TimeoutError):
        return False
    ours = cluster_id is None or cluster["cluster_id"] == cluster_id
    return ours and bool(cluster["brokers"]) and int(cluster["controller_id"]) >= 0


async def wait_ready(
    bootstrap_servers: str, *, alive: Callable[[], bool], timeout_s: float, cluster_id: str | None = None
) -> str | None:
    """Wait until the broker answers.

    Args:
        bootstrap_servers: One ``host:port``.
        alive: Whether its process still runs: the wait ends early when not.
        timeout_s: The deadline.
        cluster_id: Whose answer counts; any cluster's when ``None``.

    Returns:
        ``None`` when it is ready, else why not.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if not alive():
            return "its process ended"
        if await is_ready(bootstrap_servers, cluster_id=cluster_id):
            return None
        await sleep(_POLL_S)
    return f"it did not answer at {bootstrap_servers} within {timeout_s:g} s"


def tail(log_file: Path, *, offset: int = 0, lines: int = 15) -> str:
    """Return the last lines of a log as far as they were written after ``offset`` bytes; empty when there are none."""
    try:
        size = log_file.stat().st_size
        with log_file.open("rb") as log:
            log.seek(max(offset if offset <= size else 0, size - 65536))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True
