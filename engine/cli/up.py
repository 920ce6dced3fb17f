"""``engramlog up`` and ``engramlog run``: the engine, on one machine or as processes of a production."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli import logs, output
from engramlog.engine.cli.live import run_until_stopped
from engramlog.engine.cli.options import health_option, json_option, settings_options
from engramlog.engine.cli.topics import make_topics

if TYPE_CHECKING:
    from engramlog.consumers.app import Consumers
    from engramlog.deploy.local_kafka import LocalKafka
    from engramlog.engine.settings import Settings

_WATCH_S = 0.5

_UP_EPILOG = """\b
Examples:
  engramlog up
  engramlog up --port 19092
  ENGRAMLOG_BOOTSTRAP_SERVERS=kafka.example:9092 engramlog up
  engramlog up --json | head -1

\b
Without a cluster in the settings it runs a durable Apache Kafka of its own under the data directory
(ENGRAMLOG_DATA_DIR); the first time that takes Java (or: pip install 'engramlog[local-kafka]') and a download.
A Kafka that 'engramlog kafka start' left running there is used, and left running. Ctrl-C stops the consumers, then
Kafka; nothing is lost by a crash either: the next 'up' goes on.
"""

_RUN_EPILOG = """\b
Examples:
  engramlog run
  engramlog run store
  ENGRAMLOG_HISTORY_URL=postgresql://user:password@db/memory engramlog run answer

\b
Any number of processes may run the same consumer: Kafka shares the partitions out. The topics must exist:
'engramlog topics create'. SIGTERM ends it with 0, Ctrl-C with 130; both finish what is under way.
"""


@click.command(epilog=_UP_EPILOG)
@click.argument("consumers", nargs=-1, metavar="[CONSUMER]...")
@click.option("--port", type=click.IntRange(1, 65535), help="Port of its own Kafka. [default: the last one, else 9092]")
@settings_options(serves=True, timeout=False)
@health_option
@json_option
def up(*, settings: "Settings", consumers: tuple[str, ...], port: int | None, as_json: bool) -> int:
    """Run the whole engine: Kafka where none is named, the topics, and all consumers (or those that are named)."""
    if port is not None and settings.bootstrap_servers:
        raise click.UsageError(f"--port is for a Kafka of its own; the settings name {settings.bootstrap_servers}")
    names = _checked(consumers)
    return run_until_stopped(
        lambda: _up(settings, port, names, as_json=as_json), stopping="stopping: consumers, then Kafka"
    )


@click.command(epilog=_RUN_EPILOG)
@click.argument("consumers", nargs=-1, metavar="[CONSUMER]...")
@settings_options(serves=True, timeout=False)
@health_option
@json_option
def run(*, settings: "Settings", consumers: tuple[str, ...], as_json: bool) -> int:
    """Run consumers (store, answer, …; by default all) on the cluster of the settings."""
    names = _checked(consumers)
    return run_until_stopped(lambda: _run(settings, names, as_json=as_json), stopping="stopping the consumers")


def _checked(names: Sequence[str]) -> tuple[str, ...]:
    """The consumers that are named, or all."""
    from engramlog.consumers.app import CONSUMERS

    if unknown := sorted(set(names) - CONSUMERS.keys()):
        raise click.UsageError(f"unknown consumer {', '.join(unknown)}; there are {', '.join(CONSUMERS)}")
    return tuple(names) or tuple(CONSUMERS)


@dataclass(frozen=True, slots=True)
class _Broker:
    """The Kafka that is used.

    Attributes:
        name: What it is, for people.
        bootstrap_servers: Where it is.
        data_dir: Its files; None: not ours.
        log_file: Its log; None: not ours.
        own: It is started and stopped by us.
    """

    name: str
    bootstrap_servers: str
    data_dir: Path | None = None
    log_file: Path | None = None
    own: "LocalKafka | None" = None


async def _up(settings: "Settings", port: int | None, names: Sequence[str], *, as_json: bool) -> None:
    async with _kafka(settings, port) as broker:
        effective = settings.model_copy(update={"bootstrap_servers": broker.bootstrap_servers})
        created = await make_topics(effective)
        output.say(f"created {', '.join(created)}" if created else "the topics are there")
        await _serve(effective, broker, names, as_json=as_json)


async def _run(settings: "Settings", names: Sequence[str], *, as_json: bool) -> None:
    servers = settings.kafka().bootstrap_servers
    await _serve(settings, _Broker("the Kafka of the settings", servers), names, as_json=as_json)


async def _serve(settings: "Settings", broker: _Broker, names: Sequence[str], *, as_json: bool) -> None:
    from engramlog.consumers.app import Consumers
    from engramlog.consumers.interpreter import tune_interpreter
    from engramlog.consumers.probes import serving
    from engramlog.consumers.telemetry import exporting

    logs.log_settings(settings)
    if settings.effective_history_url().startswith("sqlite"):
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    tune_interpreter()
    consumers = Consumers(settings, names)
    async with (
        exporting(settings, names),
        serving(consumers.probes, host=settings.health_host, port=settings.health_port) as health,
        consumers,
    ):
        _tell_ready(settings, broker, names, health, as_json=as_json)
        await _while_running(broker, consumers)


async def _while_running(broker: _Broker, consumers: "Consumers") -> None:
    """Until cancelled; or until the Kafka that we started is gone, or a consumer has died: somebody starts us again."""
    died = False
    while broker.own is None or broker.own.pid is not None:
        alive, report = consumers.health.live()
        if died and not alive:  # seen twice: what has just failed is being started again
            raise RuntimeError("; ".join(report["problems"]))
        died = not alive
        await asyncio.sleep(_WATCH_S)
    from engramlog.deploy.local_kafka.errors import StartFailed

    raise StartFailed(f"Apache Kafka ended by itself; its log: {broker.log_file}")


@contextlib.asynccontextmanager
async def _kafka(settings: "Settings", port: int | None) -> AsyncIterator[_Broker]:
    if settings.bootstrap_servers:
        yield _Broker("the Kafka of the settings", settings.bootstrap_servers)
        return
    from engramlog.deploy.local_kafka.broker import DEFAULT_PORT, LocalKafka, status
    from engramlog.deploy.local_kafka.ownership import read_owner
    from engramlog.deploy.local_kafka.storage import read_settings

    data_dir = settings.data_dir / "kafka"
    owner = read_owner(data_dir)
    if owner is not None and owner.detached and owner.alive:
        found = await status(data_dir)
        name = f"Apache Kafka {found.kafka_version} (pid {found.pid}, by 'engramlog kafka start')"
        yield _Broker(name, owner.bootstrap_servers, found.data_dir, found.log_file)
        return
    own = LocalKafka(data_dir=data_dir, port=port or read_settings(data_dir).port or DEFAULT_PORT)
    try:
        servers = await own.start(output.say)
        yield _Broker(f"Apache Kafka (pid {own.pid})", servers, own.data_dir, own.log_file, own)
    finally:
        await own.stop()


def _tell_ready(
    settings: "Settings", broker: _Broker, names: Sequence[str], health: str | None, *, as_json: bool
) -> None:
    history = logs.masked(settings.effective_history_url())
    if as_json:
        output.print_json({**_ready(settings, broker, names, history), "health": health})
        return
    rows: list[tuple[str, Any]] = [
        ("Kafka", f"{broker.bootstrap_servers}, {broker.name}"),
        ("topics", f"{settings.prefix}.*"),
        ("consumers", ", ".join(names)),
        ("history", history),
    ]
    if health is not None:
        rows.append(("health", f"{health}/ready, /live, /metrics"))
    if broker.data_dir is not None:
        rows += [("Kafka's data", broker.data_dir), ("Kafka's log", broker.log_file)]
    rows += [("data directory", settings.data_dir), ("try", _hint(broker))]
    output.print_table("engramlog is ready (Ctrl-C stops it)", ("what", "where"), rows, last_wraps=True)


def _ready(settings: "Settings", broker: _Broker, names: Sequence[str], history: str) -> dict[str, Any]:
    return {
        "ready": True,
        "bootstrap_servers": broker.bootstrap_servers,
        "prefix": settings.prefix,
        "consumers": list(names),
        "history": history,
        "data_dir": str(settings.data_dir),
        "kafka": {
            "name": broker.name,
            "own": broker.own is not None,
            "pid": broker.own.pid if broker.own else None,
            "data_dir": str(broker.data_dir) if broker.data_dir else None,
            "log_file": str(broker.log_file) if broker.log_file else None,
        },
    }


def _hint(broker: _Broker) -> str:
    servers = broker.bootstrap_servers
    option = "" if servers in {"localhost:9092", "127.0.0.1:9092"} else f" --bootstrap-servers {servers}"
    return f"engramlog publish FILE{option}; engramlog history{option}; engramlog status{option}"
