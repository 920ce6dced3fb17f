"""The real command line as processes, for tests that kill, stop and continue them."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from engramlog.engine.settings import Settings


def environment(settings: Settings, **more: str) -> dict[str, str]:
    """The environment that gives a process the same settings."""
    values = settings.model_dump(exclude_defaults=True, mode="json")
    chosen = {f"ENGRAMLOG_{name.upper()}": str(value) for name, value in values.items() if value is not None}
    return {**{k: v for k, v in os.environ.items() if not k.startswith("ENGRAMLOG_")}, **chosen, **more}


class Command:
    """``engramlog ARGS…`` as a process in a group of its own; its output goes to a file."""

    def __init__(self, *args: str, env: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "engramlog.engine.cli.main", *args],
                env=dict(env),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self.process.send_signal(number)

    def kill_all(self) -> None:
        """kill -9 for the process and everything it started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def stop(self, *, within_s: float = 30.0) -> int:
        """Ctrl-C; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill_all()
            raise

    def said(self) -> str:
        """What it has written so far."""
        return self.log.read_text(errors="replace")
