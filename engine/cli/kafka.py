"""``engramlog kafka``: the local Apache Kafka alone, running on its own."""

import asyncio
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli import output
from engramlog.engine.cli.failures import FOUND, OK
from engramlog.engine.cli.options import json_option, load_settings

if TYPE_CHECKING:
    from engramlog.deploy.local_kafka import Status


@click.group()
def kafka() -> None:
    """Start, stop and look at a local Apache Kafka (the one that 'up' would use)."""


_START_EPILOG = """\b
Examples:
  engramlog kafka start
  engramlog kafka start --port 19092 --json

\b
It goes on after this command, keeps its data under the data directory (ENGRAMLOG_DATA_DIR), and is used by
'engramlog up'. The first start takes Java (or: pip install 'engramlog[local-kafka]') and a download of Apache Kafka.
"""


@kafka.command(epilog=_START_EPILOG)
@click.option("--port", type=click.IntRange(1, 65535), help="Where it listens. [default: the last one, else 9092]")
@json_option
def start(*, port: int | None, as_json: bool) -> int:
    """Start it, and wait until it answers; one that runs already is left alone."""
    settings = load_settings()
    from engramlog.deploy.local_kafka import start_detached, status

    data_dir = settings.data_dir / "kafka"
    found = asyncio.run(status(data_dir))
    if found.running:
        output.say("it runs already")
    else:
        found = asyncio.run(start_detached(data_dir=data_dir, port=port, progress=output.say))
    _print(found, as_json=as_json)
    return OK


_STOP_EPILOG = """\b
Examples:
  engramlog kafka stop
  engramlog kafka stop --json

\b
What was acknowledged stays. Exit code 0, whether one was running or not.
"""


@kafka.command(epilog=_STOP_EPILOG)
@json_option
def stop(*, as_json: bool) -> int:
    """Stop it, also one that 'up' started and left behind."""
    settings = load_settings()
    from engramlog.deploy.local_kafka import stop as stop_kafka

    was_running = asyncio.run(stop_kafka(settings.data_dir / "kafka"))
    if as_json:
        output.print_json({"stopped": was_running})
    else:
        click.echo("stopped" if was_running else "it was not running")
    return OK


_STATUS_EPILOG = """\b
Examples:
  engramlog kafka status
  engramlog kafka status --json | jq -r .bootstrap_servers

\b
Exit code 1: it does not run, or does not answer.
"""


@kafka.command(epilog=_STATUS_EPILOG)
@json_option
def status(*, as_json: bool) -> int:
    """Whether it runs and answers, and where it is."""
    settings = load_settings()
    from engramlog.deploy.local_kafka import status as kafka_status

    found = asyncio.run(kafka_status(settings.data_dir / "kafka"))
    _print(found, as_json=as_json)
    return OK if found.ready else FOUND


def _print(found: "Status", *, as_json: bool) -> None:
    fields: dict[str, Any] = {
        "running": found.running,
        "ready": found.ready,
        "pid": found.pid,
        "bootstrap_servers": found.bootstrap_servers,
        "kafka_version": found.kafka_version,
        "java": found.java,
        "data_dir": str(found.data_dir),
        "log_file": str(found.log_file),
    }
    if as_json:
        output.print_json(fields)
    else:
        output.print_table("Local Apache Kafka", ("what", "value"), list(fields.items()), last_wraps=True)
