"""A local broker: attached to this process (`LocalKafka`), or detached from it (`start_detached`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from engramlog.deploy.local_kafka.distribution import Progress
from engramlog.deploy.local_kafka.errors import LocalKafkaError
from engramlog.deploy.local_kafka.launch import STOP_TIMEOUT_S, Plan, Running, launch
from engramlog.deploy.local_kafka.ownership import read_owner, remove_owner, stop_process
from engramlog.deploy.local_kafka.readiness import is_ready
from engramlog.deploy.local_kafka.storage import default_data_dir, read_settings

DEFAULT_PORT = 9092


def _silent(_line: str) -> None:
    pass


class LocalKafka:
    """A durable single-node Apache Kafka that lives as long as this object is started.

    Usable from any event loop, also from several in turn. When this process is killed, the broker goes on as an orphan;
    the next `LocalKafka` or `start_detached` of the same directory stops it and starts its own. (It is not adopted: its
    port and settings need not be the wanted ones, and only a child tells how it ended.)

    Args:
        data_dir: Where its data is kept; `default_data_dir` by default.
        port: Where clients connect, on 127.0.0.1; ``None`` takes a free one at the first start and keeps it for this
            object's restarts.
        overrides: Extra lines of ``server.properties``; they win over ours.
        heap_mb: Java's heap, in MiB.
        format_options: Extra options of Kafka's storage tool when the directory is new, such as
            ``("--add-scram", "SCRAM-SHA-512=[name=ada,password=…]")``.
    """

    def __init__(
        self,
        *,
        data_dir: Path | None = None,
        port: int | None = None,
        overrides: Mapping[str, str] | None = None,
        heap_mb: int = 512,
        format_options: Sequence[str] = (),
    ) -> None:
        directory = (data_dir or default_data_dir()).expanduser().absolute()
        self._plan = Plan(
            data_dir=directory,
            port=port,
            overrides=dict(overrides or {}),
            format_options=tuple(format_options),
            heap_mb=heap_mb,
        )
        self._port = port
        self._running: Running | None = None

    @property
    def data_dir(self) -> Path:
        """Where its data is kept."""
        return self._plan.data_dir

    @property
    def log_file(self) -> Path:
        """The broker's own log."""
        return self._plan.log_file

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect, such as ``127.0.0.1:9092``; kept after a stop or a kill.

        Raises:
            LocalKafkaError: It was never started.
        """
        if self._running is None:
            raise LocalKafkaError("this broker was not started: await start() first")
        return self._running.owner.bootstrap_servers

    @property
    def pid(self) -> int | None:
        """The broker's process, or ``None`` when it does not run."""
        return self._running.process.pid if self._running is not None and self._running.process.alive() else None

    async def start(self, progress: Progress = _silent) -> str:
        """Start the broker, and wait until it answers; when it runs already, do nothing.

        The first start on a machine fetches Apache Kafka (about 45 MB); then a start takes some seconds.

        Args:
            progress: Called with one line per step, perhaps from another thread.

        Returns:
            Where clients connect.

        Raises:
            JavaNotFound: See `find_java`.
            DistributionUnavailable: Kafka cannot be fetched.
            DataDirInUse: Another process owns the directory.
            DataDirTooNew: A newer Kafka has opened the directory before.
            StartFailed: The port is taken, or the broker was not ready within 60 seconds.
        """
        if self.pid is None:
            self._running = await launch(replace(self._plan, port=self._port), progress)
            self._port = self._running.port
        return self.bootstrap_servers

    async def stop(self) -> None:
        """Stop the broker: SIGTERM, and SIGKILL after 20 seconds. Does nothing when it does not run."""
        if self._running is None:
            return
        process = self._running.process
        if process.alive():
            await stop_process(process.pid, began=process.began, timeout_s=STOP_TIMEOUT_S)
        await process.gone()
        remove_owner(self.data_dir, process.pid)

    def kill(self) -> None:
        """End the broker at once with SIGKILL, as a power cut would end it; what it had acknowledged is kept."""
        if self._running is not None:
            self._running.process.kill()

    async def restart(self, progress: Progress = _silent) -> str:
        """Stop, then start at the same port; also after a `kill`."""
        await self.stop()
        return await self.start(progress)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


@dataclass(frozen=True)
class Status:
    """What is known of a data directory's broker.

    Attributes:
        running: Whether its process lives.
        ready: Whether it answers.
        pid: Its process, when it lives.
        bootstrap_servers: Where clients connect, when it lives.
        kafka_version: Of the running broker, else the newest that has opened the directory; ``None`` before the first.
        java: The launcher that runs it, when it lives.
        data_dir: The directory.
        log_file: The broker's own log.
    """

    running: bool
    ready: bool
    pid: int | None
    bootstrap_servers: str | None
    kafka_version: str | None
    java: str | None
    data_dir: Path
    log_file: Path


async def start_detached(
    *,
    data_dir: Path | None = None,
    port: int | None = None,
    overrides: Mapping[str, str] | None = None,
    heap_mb: int = 512,
    progress: Progress = _silent,
) -> Status:
    """Start a broker that outlives this process, and wait until it answers.

    Args:
        data_dir: Where its data is kept; `default_data_dir` by default.
        port: Where clients connect; ``None`` takes the port of the last start in that directory, else 9092.
        overrides: Extra lines of ``server.properties``; not remembered.
        heap_mb: Java's heap, in MiB; not remembered.
        progress: Called with one line per step, perhaps from another thread.

    Raises:
        LocalKafkaError: As `LocalKafka.start`; a broker that runs there already is a `DataDirInUse` with its pid.
    """
    directory = (data_dir or default_data_dir()).expanduser().absolute()
    plan = Plan(
        data_dir=directory,
        port=port or read_settings(directory).port or DEFAULT_PORT,
        overrides=dict(overrides or {}),
        heap_mb=heap_mb,
        detached=True,
    )
    await launch(plan, progress)
    return await status(directory)


async def stop(data_dir: Path | None = None) -> bool:
    """Stop the broker of a directory, detached or not: SIGTERM, and SIGKILL after 20 seconds.

    Returns:
        Whether one was running.
    """
    directory = (data_dir or default_data_dir()).expanduser().absolute()
    owner = read_owner(directory)
    if owner is None:
        return False
    was_running = owner.alive
    if was_running:
        await stop_process(owner.pid, began=owner.began, timeout_s=STOP_TIMEOUT_S)
    remove_owner(directory, owner.pid)
    return was_running


async def status(data_dir: Path | None = None) -> Status:
    """Tell what is known of the broker of a directory; asks it whether it is ready, for at most some seconds."""
    directory = (data_dir or default_data_dir()).expanduser().absolute()
    owner = read_owner(directory)
    if owner is not None and not owner.alive:
        owner = None
    return Status(
        running=owner is not None,
        ready=owner is not None and await is_ready(owner.bootstrap_servers),
        pid=owner.pid if owner else None,
        bootstrap_servers=owner.bootstrap_servers if owner else None,
        kafka_version=owner.kafka_version if owner else read_settings(directory).kafka_version,
        java=owner.java if owner else None,
        data_dir=directory,
        log_file=directory / "server.log",
    )
