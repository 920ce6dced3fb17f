"""Start the broker's Java process and watch it."""

import subprocess
from asyncio import sleep
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engramlog.deploy.local_kafka.distribution import Distribution
from engramlog.deploy.local_kafka.java import Java
from engramlog.deploy.local_kafka.ownership import process_began

_LOG4J = Path(__file__).with_name("log4j2.xml")
# Serial collector and the first compiler only: measured on two cores, the start takes half as long and producing is
# not slower (the broker leaves more of the machine to its clients).
_QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto")
_UNSAFE_WARNING_SINCE, _NATIVE_ACCESS_SINCE = 23, 22
_POLL_S = 0.02


@dataclass(frozen=True)
class Process:
    """A started broker.

    Attributes:
        pid: Its process.
        began: The mark of `process_began`, by which the process is known from any later one with its pid.
        child: Set when it is our child and must be reaped.
    """

    pid: int
    began: str
    child: subprocess.Popen[bytes] | None = None

    def alive(self) -> bool:
        """Tell whether it runs; reaps it when it ended as our child."""
        if self.child is not None:
            return self.child.poll() is None
        return process_began(self.pid) == self.began

    def kill(self) -> None:
        """End our child with SIGKILL, and wait the few milliseconds until it is gone; nothing when it has ended."""
        if self.child is not None:
            self.child.kill()
            self.child.wait()

    async def gone(self) -> None:
        """Wait until it has ended.

        Polled, for an asyncio subprocess belongs to one event loop, and one broker serves the loops of many tests.
        """
        while self.alive():  # noqa: ASYNC110 - one broker serves several event loops
            await sleep(_POLL_S)


def java_command(
    java: Java, distribution: Distribution, *, main: str, arguments: Sequence[str], heap_mb: int, log_file: Path
) -> list[str]:
    """Return the command that runs one of Kafka's main classes."""
    quiet = []
    if java.feature_version >= _UNSAFE_WARNING_SINCE:
        quiet.append("--sun-misc-unsafe-memory-access=allow")
    if java.feature_version >= _NATIVE_ACCESS_SINCE:
        quiet.append("--enable-native-access=ALL-UNNAMED")
    return [
        str(java.path),
        f"-Xmx{heap_mb}m",
        *_QUICK_START,
        *quiet,
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
        f"-Dengramlog.kafka.log={log_file}",
        "-cp",
        str(distribution.libs / "*"),
        main,
        *arguments,
    ]


def spawn(
    command: Sequence[str], *, console: Path, cwd: Path, lock: int | None = None, detached: bool = False
) -> Process:
    """Start a process in its own session, so that a Ctrl-C in the terminal reaches only us.

    Args:
        command: What to run.
        console: Where its output goes; emptied first.
        cwd: Its working directory.
        lock: The open lock file, if any, that it inherits and so holds as long as it lives.
        detached: Whether it is to outlive us: then a shell starts it and ends, and it is not our child.
    """
    with console.open("wb") as output:
        if not detached:
            child = _popen(command, output=output.fileno(), cwd=cwd, lock=lock)
            return Process(child.pid, process_began(child.pid) or "ended", child)
        line = ["/bin/sh", "-c", '"$@" >&2 & echo $!', "sh", *command]
        with _popen(line, output=subprocess.PIPE, errors=output.fileno(), cwd=cwd, lock=lock) as shell:
            pid = int(shell.communicate()[0])
    return Process(pid, process_began(pid) or "ended")


def _popen(
    command: Sequence[str], *, output: int, cwd: Path, lock: int | None, errors: int = subprocess.STDOUT
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - Java, with our own words
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        start_new_session=True,
        pass_fds=() if lock is None else (lock,),
    )
