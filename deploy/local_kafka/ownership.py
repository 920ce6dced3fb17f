"""One owner per data directory, also after the starter died.

Two things together say who owns a data directory:

* ``owner.lock`` is locked with ``flock``. The starter takes the lock and hands the open file to the broker process,
  then closes its own copy. The kernel so keeps the lock exactly as long as the broker lives, whatever becomes of the
  starter, and drops it at a ``kill -9`` or a reboot.
* ``owner.json`` names that process. It is believed only when the process of that pid also began at the recorded time:
  a pid that was given to another process after a reboot is recognised, and the stale file removed.
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import time
from asyncio import sleep
from dataclasses import asdict, dataclass
from pathlib import Path

from engramlog.deploy.local_kafka.errors import DataDirInUse

_POLL_S = 0.02


@dataclass(frozen=True)
class Owner:
    """Who runs the broker of a data directory, as written in ``owner.json``.

    Attributes:
        pid: The broker's process.
        began: When that process began, in a form that only the same machine and boot gives (see `process_began`).
        starter_pid: Who started it.
        starter_began: When the starter began.
        detached: Whether the broker is meant to outlive its starter.
        bootstrap_servers: Where clients connect, such as ``127.0.0.1:9092``.
        kafka_version: Of the running broker.
        java: The launcher that runs it.
    """

    pid: int
    began: str
    starter_pid: int
    starter_began: str
    detached: bool
    bootstrap_servers: str
    kafka_version: str
    java: str

    @property
    def alive(self) -> bool:
        """Whether that very process still runs."""
        return process_began(self.pid) == self.began

    @property
    def orphaned(self) -> bool:
        """Whether an attached broker has lost its starter."""
        return not self.detached and process_began(self.starter_pid) != self.starter_began


def process_began(pid: int) -> str | None:
    """Return a mark that tells a process from any other that ever has its pid; ``None`` when no such process runs.

    A zombie does not run. Linux gives clock ticks since boot and the boot's id; elsewhere ``ps`` gives the time to the
    second.
    """
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        state, *fields = stat.rpartition(")")[2].split()
        if state in {"Z", "X"}:
            return None
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{fields[18]}"
    shown = subprocess.run(  # noqa: S603 - fixed words and a number
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],  # noqa: S607 - wherever this system has it
        capture_output=True,
        text=True,
        check=False,
    )
    state_now, _, began = shown.stdout.strip().partition(" ")
    return None if not began or state_now.startswith("Z") else began.strip()


def read_owner(data_dir: Path) -> Owner | None:
    """Read who owns the directory, alive or not; ``None`` when nobody does or the file is no such record."""
    try:
        return Owner(**json.loads((data_dir / "owner.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def write_owner(data_dir: Path, owner: Owner) -> None:
    """Write who owns the directory, in one step."""
    part = data_dir / "owner.json.part"
    part.write_text(json.dumps(asdict(owner), indent=2) + "\n")
    part.replace(data_dir / "owner.json")


def remove_owner(data_dir: Path, pid: int) -> None:
    """Remove the record of that broker, once it is gone; the record of any other stays."""
    owner = read_owner(data_dir)
    if owner is not None and owner.pid == pid:
        (data_dir / "owner.json").unlink(missing_ok=True)


async def acquire(data_dir: Path, *, patience_s: float = 5.0, stop_timeout_s: float = 20.0) -> int:
    """Take the directory's lock; an orphaned attached broker is stopped first.

    Args:
        data_dir: An existing folder.
        patience_s: How long a lock is waited for whose holder has left no name: a start that is under way elsewhere, or
            a process that is just ending.
        stop_timeout_s: How long an orphan may take to stop before it is killed.

    Returns:
        The open file that holds the lock; pass it to the broker, then close it.

    Raises:
        DataDirInUse: A live process owns the directory.
    """
    deadline = time.monotonic() + patience_s
    while True:
        lock = _try_lock(data_dir)
        owner = read_owner(data_dir)
        if owner is not None and owner.alive:
            if lock is not None:  # somebody removed the lock file under a running broker
                os.close(lock)
            if not owner.orphaned:
                raise DataDirInUse(_in_use(data_dir, owner), pid=owner.pid)
            await stop_process(owner.pid, began=owner.began, timeout_s=stop_timeout_s)
            deadline = time.monotonic() + patience_s
        elif lock is not None:
            (data_dir / "owner.json").unlink(missing_ok=True)
            return lock
        elif time.monotonic() > deadline:
            holder = f"{data_dir} is locked by a process that has not said who it is: a start may be under way"
            raise DataDirInUse(f"{holder}; try again, or look with `fuser {data_dir / 'owner.lock'}`", pid=None)
        await sleep(_POLL_S)


async def stop_process(pid: int, *, began: str, timeout_s: float) -> None:
    """Ask a process to end (SIGTERM), and kill it when it has not ended in time; return when it is gone."""
    _signal(pid, began, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while process_began(pid) == began:
        if time.monotonic() > deadline:
            _signal(pid, began, signal.SIGKILL)
        await sleep(_POLL_S)


def _signal(pid: int, began: str, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        if process_began(pid) == began:
            os.kill(pid, number)


def _try_lock(data_dir: Path) -> int | None:
    file = os.open(data_dir / "owner.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def _in_use(data_dir: Path, owner: Owner) -> str:
    how = "detached" if owner.detached else f"started by process {owner.starter_pid}"
    return f"{data_dir} is in use by the broker with pid {owner.pid} ({how}) at {owner.bootstrap_servers}"
