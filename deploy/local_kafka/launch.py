"""From a data directory to a ready broker: the steps that attached and detached brokers share."""

import os
from asyncio import to_thread
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from engramlog.deploy.local_kafka import storage
from engramlog.deploy.local_kafka.distribution import Distribution, Progress, find_distribution
from engramlog.deploy.local_kafka.errors import LocalKafkaError, PortTaken, StartFailed
from engramlog.deploy.local_kafka.java import Java, find_java
from engramlog.deploy.local_kafka.ownership import (
    Owner,
    acquire,
    process_began,
    remove_owner,
    stop_process,
    write_owner,
)
from engramlog.deploy.local_kafka.process import Process, java_command, spawn
from engramlog.deploy.local_kafka.readiness import HOST, free_port, port_is_free, tail, wait_ready

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
_FORMAT_HEAP_MB = 128
_TRIES_FOR_A_FREE_PORT = 3


@dataclass(frozen=True)
class Plan:
    """How a broker is to run.

    Attributes:
        data_dir: Where everything of it is kept; absolute.
        port: Where clients connect; ``None`` takes a free one.
        overrides: Extra lines of ``server.properties``; they win over ours.
        format_options: Extra options of Kafka's storage tool, for a directory that is new.
        heap_mb: Java's heap, in MiB.
        detached: Whether it is to outlive this process.
        start_timeout_s: How long it may take to become ready once Java and Kafka are there.
    """

    data_dir: Path
    port: int | None
    overrides: Mapping[str, str] = field(default_factory=dict)
    format_options: tuple[str, ...] = ()
    heap_mb: int = 512
    detached: bool = False
    start_timeout_s: float = START_TIMEOUT_S

    @property
    def log_file(self) -> Path:
        """The broker's own log."""
        return self.data_dir / "server.log"

    @property
    def console(self) -> Path:
        """What Java said outside that log."""
        return self.data_dir / "console.log"


@dataclass(frozen=True)
class Running:
    """A ready broker."""

    process: Process
    port: int
    owner: Owner


async def launch(plan: Plan, progress: Progress) -> Running:
    """Take the directory, find Java and Kafka, format when new, start, and wait until the broker answers.

    Raises:
        LocalKafkaError: Whatever prevents it; nothing is left running.
    """
    if "," in str(plan.data_dir):
        raise LocalKafkaError(f"Kafka takes {plan.data_dir} for several folders: use a data directory without commas")
    plan.data_dir.mkdir(parents=True, exist_ok=True)
    lock = await acquire(plan.data_dir, stop_timeout_s=STOP_TIMEOUT_S)
    try:
        java = await to_thread(find_java)
        distribution = await to_thread(find_distribution, java, progress)
        storage.check_version(plan.data_dir, distribution.version)
        for tries_left in reversed(range(_TRIES_FOR_A_FREE_PORT)):
            chosen = replace(plan, port=plan.port or free_port())
            try:
                return await _start(chosen, java, distribution, lock, progress)
            except PortTaken:  # ours to choose: the controller's port, and the clients' unless the caller named it
                if not tries_left or (plan.port is not None and not port_is_free(plan.port)):
                    raise
                progress("a port was taken meanwhile: trying another")
        raise AssertionError
    finally:
        os.close(lock)  # the broker, if any, holds its own copy


async def _start(plan: Plan, java: Java, distribution: Distribution, lock: int, progress: Progress) -> Running:
    assert plan.port is not None
    if not port_is_free(plan.port):
        raise PortTaken(
            f"port {plan.port} of {HOST} is taken by another process: stop it or choose another port "
            f"(the broker was not started; its log of earlier starts is {plan.log_file})"
        )
    if not storage.is_formatted(plan.data_dir):
        await _format(plan, java, distribution, lock, progress)
    properties = storage.write_properties(
        plan.data_dir,
        log_dir=plan.data_dir / "kafka-logs",
        port=plan.port,
        controller_port=free_port(),
        overrides=plan.overrides,
    )
    progress(f"starting Apache Kafka {distribution.version} at {HOST}:{plan.port}, data in {plan.data_dir}")
    command = java_command(
        java,
        distribution,
        main="kafka.Kafka",
        arguments=[str(properties)],
        heap_mb=plan.heap_mb,
        log_file=plan.log_file,
    )
    log_before = plan.log_file.stat().st_size if plan.log_file.exists() else 0
    process = spawn(command, console=plan.console, cwd=plan.data_dir, lock=lock, detached=plan.detached)
    try:
        owner = _owner(plan, process, java, distribution)
        write_owner(plan.data_dir, owner)
        await _until_ready(plan, process, owner.bootstrap_servers, log_before)
        storage.write_settings(plan.data_dir, storage.Settings(distribution.version, plan.port))
    except BaseException:  # also a cancelled start leaves nothing running
        await stop_process(process.pid, began=process.began, timeout_s=0)
        await process.gone()
        remove_owner(plan.data_dir, process.pid)
        raise
    progress(f"Apache Kafka is ready at {owner.bootstrap_servers} (pid {process.pid})")
    return Running(process, plan.port, owner)


async def _until_ready(plan: Plan, process: Process, bootstrap_servers: str, log_before: int) -> None:
    why_not = await wait_ready(
        bootstrap_servers,
        alive=process.alive,
        timeout_s=plan.start_timeout_s,
        cluster_id=storage.cluster_id(plan.data_dir),
    )
    if why_not is not None:
        raise _failure(plan, f"Apache Kafka did not start: {why_not}", log_before)


async def _format(plan: Plan, java: Java, distribution: Distribution, lock: int, progress: Progress) -> None:
    """Format elsewhere and rename, so that a killed format is never taken for a finished one."""
    progress(f"formatting {plan.data_dir}")
    properties = storage.write_properties(
        plan.data_dir,
        log_dir=storage.begin_format(plan.data_dir),
        port=plan.port or 0,
        controller_port=free_port(),
        overrides=plan.overrides,
    )
    command = java_command(
        java,
        distribution,
        main="kafka.tools.StorageTool",
        arguments=[
            "format",
            "-t",
            storage.new_cluster_id(),
            "-c",
            str(properties),
            "--standalone",
            *plan.format_options,
        ],
        heap_mb=_FORMAT_HEAP_MB,
        log_file=plan.data_dir / "format.log",
    )
    process = spawn(command, console=plan.console, cwd=plan.data_dir, lock=lock, detached=False)
    try:
        await process.gone()
    except BaseException:
        await stop_process(process.pid, began=process.began, timeout_s=0)
        await process.gone()
        raise
    if process.child is None or process.child.returncode != 0:
        raise _failure(plan, "Apache Kafka could not format its storage", None)
    storage.end_format(plan.data_dir)


def _owner(plan: Plan, process: Process, java: Java, distribution: Distribution) -> Owner:
    return Owner(
        pid=process.pid,
        began=process.began,
        starter_pid=os.getpid(),
        starter_began=process_began(os.getpid()) or "",
        detached=plan.detached,
        bootstrap_servers=f"{HOST}:{plan.port}",
        kafka_version=distribution.version,
        java=str(java.path),
    )


def _failure(plan: Plan, what: str, log_before: int | None) -> StartFailed:
    """Describe a failure with the log's path and last lines; what Java said when there is no log of this start."""
    logged = "" if log_before is None else tail(plan.log_file, offset=log_before)
    file = plan.log_file if logged else plan.console
    error = PortTaken if "Address already in use" in logged else StartFailed
    return error(f"{what}\nlog: {file}\n{logged or tail(plan.console) or '(it is empty)'}")
