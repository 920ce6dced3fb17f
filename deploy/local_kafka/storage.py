"""The data directory of a local broker: its files, settings and format.

::

    kafka-logs/        Kafka's own files: the records and the metadata log; there only once wholly formatted
    server.properties  written anew at every start
    settings.json      what is remembered: Kafka's version, the port
    owner.json, owner.lock   who runs it now (see ownership.py)
    server.log         the broker's own log, and server.log.1 to .4
    console.log        what Java itself said at the last start
"""

import base64
import json
import os
import re
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from engramlog.deploy.local_kafka.distribution import parse_version
from engramlog.deploy.local_kafka.errors import DataDirTooNew, LocalKafkaError
from engramlog.deploy.local_kafka.readiness import HOST

# One node has one copy of everything; the rest keeps a broker small on a small machine.
_DEFAULTS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # After a kill, a broker waits until its former session has timed out: 9 seconds by default.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "8",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "log.cleaner.dedupe.buffer.size": str(32 * 1024 * 1024),
    "num.network.threads": "2",
    "num.io.threads": "4",
}


@dataclass(frozen=True)
class Settings:
    """What a data directory remembers between starts; ``None`` before the first.

    Attributes:
        kafka_version: The newest version that has opened it.
        port: Where the last broker listened.
    """

    kafka_version: str | None = None
    port: int | None = None


def default_data_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return ``engramlog/kafka`` in ``$XDG_DATA_HOME``, which defaults to ``~/.local/share``."""
    env = os.environ if environ is None else environ
    return Path(env.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "engramlog" / "kafka"


def read_settings(data_dir: Path) -> Settings:
    """Read what the directory remembers; nothing when it is new.

    Raises:
        LocalKafkaError: The file is damaged. It is not ignored, for it guards the data from an older Kafka.
    """
    file = data_dir / "settings.json"
    try:
        found = json.loads(file.read_text())
        return Settings(kafka_version=found["kafka_version"], port=found["port"])
    except FileNotFoundError:
        return Settings()
    except (ValueError, KeyError, TypeError) as error:
        raise LocalKafkaError(f"{file} is damaged ({error}): remove it to start with any version of Kafka") from error


def write_settings(data_dir: Path, settings: Settings) -> None:
    """Remember, in one step."""
    part = data_dir / "settings.json.part"
    part.write_text(json.dumps(asdict(settings), indent=2) + "\n")
    part.replace(data_dir / "settings.json")


def check_version(data_dir: Path, version: str) -> None:
    """Refuse to open a directory with an older Kafka than has opened it before.

    Raises:
        DataDirTooNew: Kafka would fail half-way through its start, with a message that few understand.
    """
    seen = read_settings(data_dir).kafka_version
    if seen is not None and parse_version(version) < parse_version(seen):
        raise DataDirTooNew(
            f"{data_dir} was last opened by Apache Kafka {seen} and cannot be opened by {version}: "
            f"use {seen} or newer (KAFKA_HOME), or another data directory"
        )


def is_formatted(data_dir: Path) -> bool:
    """Tell whether Kafka's storage is there."""
    return (data_dir / "kafka-logs").exists()


def write_properties(
    data_dir: Path, *, log_dir: Path, port: int, controller_port: int, overrides: Mapping[str, str]
) -> Path:
    """Write ``server.properties`` and return its path; ``overrides`` win over all else."""
    client, controller = f"{HOST}:{port}", f"{HOST}:{controller_port}"
    properties = {
        **_DEFAULTS,
        "controller.quorum.bootstrap.servers": controller,
        "listeners": f"PLAINTEXT://{client},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{client}",
        "log.dirs": str(log_dir),
        **overrides,
    }
    file = data_dir / "server.properties"
    file.write_text("".join(f"{name}={_escaped(value)}\n" for name, value in properties.items()))
    return file


def new_cluster_id() -> str:
    """Return a random id in Kafka's form: 16 bytes, 22 characters, never beginning like an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def cluster_id(data_dir: Path) -> str | None:
    """Read the id that the storage was formatted with."""
    found = re.search(r"^cluster\.id=(.+)$", (data_dir / "kafka-logs" / "meta.properties").read_text(), re.MULTILINE)
    return found[1] if found else None


def begin_format(data_dir: Path) -> Path:
    """Return an empty place to format; what a killed format left there is removed."""
    part = data_dir / "kafka-logs.part"
    shutil.rmtree(part, ignore_errors=True)
    return part


def end_format(data_dir: Path) -> None:
    """Put the formatted storage in its place: from now on it is never formatted again."""
    (data_dir / "kafka-logs.part").rename(data_dir / "kafka-logs")


def _escaped(value: str) -> str:
    """Escape what Java's properties files read otherwise (they are read as Latin-1)."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
    return "".join(c if ord(c) < 128 else "".join(f"\\u{u:04x}" for u in _utf16(c)) for c in escaped)  # noqa: PLR2004 - the end of ASCII


def _utf16(character: str) -> list[int]:
    units = character.encode("utf-16-be")
    return [int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2)]
