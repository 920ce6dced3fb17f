"""Making a shard's write-ahead log durable without making the shard wait.

Edge's own ``flush`` writes out every segment, file by file, and holds the interpreter while it does: for a tenth of a
second up to a whole one. What was written since the last one is in the log, from which a shard is restored when it is
loaded: to survive a power cut it is enough that the log is on the disk. That takes a few milliseconds and holds nobody
up.
"""

import os
import sys
from pathlib import Path

CAN_SYNC = sys.platform != "win32"
"""Whether files can be synced by another handle than the one they were written through."""


def sync_log(directory: Path) -> None:
    """Return when a shard's write-ahead log, as it is now, is on the disk. May run beside writes."""
    log = directory / "wal"
    while not all(_synced(file) for file in (*log.iterdir(), log)):
        pass  # a file was renamed, because it became full, or went meanwhile


def _synced(file: Path) -> bool:
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True
