"""Batches on their way to the child, while the parent makes the next ones.

A batch is handed over as a file of its own. Pipes hold 64 KB, and both ends hold their interpreter for long: one
decodes, the other is in Edge. A batch would go through in small pieces, each waiting for both. The file is in the
system's memory, and gone before it is ever on a disk.

::

    DIRECTORY/loading/N         a batch that is not known to be written; removed at the next start
"""

import asyncio
import shutil
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engramlog.engine.vectors.child_process import ChildProcess
from engramlog.engine.vectors.framing import NewPoint, packed
from engramlog.schemas.errors import EngramlogError, StoreUnavailable

MOST_BYTES: Final = 8 * 1024 * 1024
"""So much may be under way, besides one batch: half a second of the child's work."""


@dataclass(slots=True)
class _Batch:
    """A batch, in its file; what the child says of it; None: it has to be sent."""

    file: Path
    size: int
    reply: asyncio.Future[Any] | None = None


class Loading:
    """The batches of one collection that are under way, in order.

    One that failed is sent again, and all that came after it, before anything else is done: after a failure that went
    by, or with a new child, the points are what they would have been without it.

    Args:
        directory: Where the files lie; whatever is there is removed.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._under_way: deque[_Batch] = deque()
        self._child: ChildProcess | None = None
        self._number = 0
        self._turn = asyncio.Lock()
        self.clear()

    @property
    def is_going_on(self) -> bool:
        """Whether there is a batch that is not known to be written."""
        return bool(self._under_way)

    def clear(self) -> None:
        """Forget what is under way."""
        self._under_way.clear()
        shutil.rmtree(self._directory, ignore_errors=True)

    async def give(self, child: ChildProcess, points: Sequence[NewPoint]) -> None:
        """Hand a batch over; waits while much is under way.

        Raises:
            StoreUnavailable: It was not taken: an earlier one cannot be written, or the disk is full.
        """
        async with self._turn:
            while sum(batch.size for batch in self._under_way) > MOST_BYTES:
                await self._first_done(child)
            batch = self._written(points)
            self._under_way.append(batch)
            try:
                self._send(child)
            except StoreUnavailable:
                self._under_way.pop()
                batch.file.unlink(missing_ok=True)
                raise

    async def finish(self, child: ChildProcess) -> None:
        """Wait until all batches are written.

        Raises:
            StoreUnavailable: One cannot be written now.
        """
        async with self._turn:
            while self._under_way:
                await self._first_done(child)

    def _written(self, points: Sequence[NewPoint]) -> _Batch:
        body = packed(points)
        self._number += 1
        file = self._directory / str(self._number)
        try:
            self._directory.mkdir(exist_ok=True)
            file.write_bytes(body)
        except OSError as error:
            raise StoreUnavailable(f"embedded vector store: cannot write {file}: {error}") from error
        return _Batch(file, len(body))

    def _send(self, child: ChildProcess) -> None:
        """Send what has to be sent; to another child all of it."""
        if child is not self._child:
            self._child = child
            for batch in self._under_way:
                batch.reply = None
        for batch in self._under_way:
            if batch.reply is None:
                batch.reply = child.post("load", str(batch.file))

    async def _first_done(self, child: ChildProcess) -> None:
        self._send(child)
        batch = self._under_way[0]
        assert batch.reply is not None
        try:
            await asyncio.shield(batch.reply)
        except EngramlogError as error:
            for later in self._under_way:  # in their order: an older copy must not come after a newer one
                later.reply = None
            if isinstance(error, StoreUnavailable):
                raise
            raise StoreUnavailable(f"points that were loaded before cannot be written: {error}") from error
        self._under_way.popleft()
        batch.file.unlink(missing_ok=True)
