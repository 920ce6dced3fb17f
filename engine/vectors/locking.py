"""One process a directory."""

import os
import sys
import time
from pathlib import Path

from engramlog.schemas.errors import ConfigurationError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_LOOK_EVERY_S = 0.05


class DirectoryLock:
    """Holds a directory; the system gives it free when the process ends, however it ends.

    Args:
        directory: What is held.
        timeout_s: How long to wait for another process, in seconds: the child of a killed process takes a moment to go.

    Raises:
        ConfigurationError: Another process holds it.
    """

    def __init__(self, directory: Path, *, timeout_s: float) -> None:
        self._file = (directory / "lock").open("a+")
        deadline = time.monotonic() + timeout_s
        while not self._try():
            if time.monotonic() >= deadline:
                self._file.seek(0)
                owner = self._file.read().strip() or "unknown"
                self._file.close()
                raise ConfigurationError(
                    f"the vector store {directory} is in use by another process (pid {owner}): one process owns it; "
                    "stop that one, or give this one another directory or a Qdrant server (ENGRAMLOG_VECTORS_URL)"
                )
            time.sleep(_LOOK_EVERY_S)
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def _try(self) -> bool:
        try:
            if sys.platform == "win32":
                self._file.seek(0)
                msvcrt.locking(self._file.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def release(self) -> None:
        """Give it free."""
        self._file.close()
