"""The process that owns a Qdrant Edge shard: Edge holds the interpreter during every call, so it gets its own.

Requests come in on standard input, replies go out on standard output; batches of a load come as files, see
:mod:`engramlog.engine.vectors.loading`. Who reads is served between the parts of a long
write. The process ends with its input: when it is told to stop, and when its parent is gone, however that went.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from engramlog.engine.vectors.framing import Fault, Reply, Request, framed, read_frame
from engramlog.engine.vectors.shard import Opening, Shard
from engramlog.schemas.errors import ConfigurationError

_READS: Final = frozenset({"query", "count", "scroll"})
_READS_A_TURN: Final = 16
"""So many are served before a write goes on, however many wait."""
_REFUSALS: Final = ("Vector dimension error", "Wrong input", "Validation", "Conversion", "Invalid")
"""How Edge's messages begin when the fault is the request's. It raises one class for everything."""


class Inbox:
    """Requests that wait, reads apart from writes. Filled by a thread of its own."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._reads: deque[Request] = deque()
        self._writes: deque[Request] = deque()
        self._changed = threading.Condition()
        self._ended = False
        threading.Thread(target=self._fill, daemon=True, name="requests").start()

    def _fill(self) -> None:
        while (request := read_frame(self._source)) is not None:
            with self._changed:
                (self._reads if request.operation in _READS else self._writes).append(request)
                self._changed.notify()
        with self._changed:
            self._ended = True
            self._changed.notify()

    @property
    def ended(self) -> bool:
        """Whether the parent is gone; what still waits then is of no use to anybody."""
        return self._ended

    def read(self) -> Request | None:
        """The next request that reads."""
        return self._reads.popleft() if self._reads else None

    def write(self) -> Request | None:
        """The next request that writes."""
        return self._writes.popleft() if self._writes else None

    def wait(self, timeout_s: float) -> bool:
        """Wait for a request or the end; False: neither came."""
        with self._changed:
            return self._changed.wait_for(lambda: self._reads or self._writes or self._ended, timeout_s) is not False


class Server:
    """Serves requests, one part of one after the other."""

    def __init__(self, inbox: Inbox, replies: BinaryIO) -> None:
        self._inbox = inbox
        self._replies = replies
        self._shard: Shard | None = None
        self._writing: tuple[Request, Iterator[None]] | None = None
        self._speaking = threading.Lock()
        self._stopped = False

    def run(self) -> None:
        """Serve until told to stop, or until the parent is gone."""
        idle_since = time.monotonic()
        try:
            while not self._stopped and not self._inbox.ended:
                if self._turn():
                    idle_since = time.monotonic()
                elif not self._inbox.wait(1.0) and self._shard is not None:
                    self._shard.idle(time.monotonic() - idle_since)
        finally:
            if self._shard is not None:
                self._shard.close()

    def _turn(self) -> bool:
        """Serve those who read, then a part of a write. False: there was nothing to do."""
        served = 0
        while served < _READS_A_TURN and (request := self._inbox.read()) is not None:
            self._answer(request)
            served += 1
        if self._writing is None and (request := self._inbox.write()) is not None:
            self._begin(request)
            served += 1
        return self._write_on() or served > 0

    def _begin(self, request: Request) -> None:
        """Do what writes: an upsert or a load in parts, a sync beside what follows, all else at once."""
        if request.operation == "upsert" and self._shard is not None:
            self._writing = request, self._shard.upsert(request.argument)
        elif request.operation == "load" and self._shard is not None:
            self._writing = request, self._shard.load(Path(request.argument))
        elif request.operation == "flush" and self._shard is not None and not self._shard.must_flush():
            threading.Thread(target=self._sync, args=(request, self._shard), name="sync").start()
        else:
            self._answer(request)

    def _sync(self, request: Request, shard: Shard) -> None:
        try:
            shard.sync()
        except OSError as error:
            self._reply(_fault(request, error))
        else:
            self._reply(Reply(request.number))

    def _write_on(self) -> bool:
        if self._writing is None:
            return False
        request, parts = self._writing
        try:
            next(parts)
        except StopIteration:
            self._writing = None
            self._reply(Reply(request.number))
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent is to know
            self._writing = None
            self._reply(_fault(request, error))
        return True

    def _answer(self, request: Request) -> None:
        try:
            reply = Reply(request.number, self._do(request.operation, request.argument))
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent is to know
            reply = _fault(request, error)
        self._reply(reply)

    def _do(self, operation: str, argument: Any) -> Any:
        if operation == "open":
            self._shard = Shard(cast("Opening", argument))
            return self._shard.points()
        if operation == "stop":
            self._stopped = True
            return self._shard.flush() if self._shard else None
        shard = self._open_shard()
        if operation == "scroll":
            return shard.scroll(argument["where"], argument["limit"], argument["offset"], vectors=argument["vectors"])
        return getattr(shard, operation)(*argument)

    def _open_shard(self) -> Shard:
        if self._shard is None:
            raise RuntimeError("no shard is open")
        return self._shard

    def _reply(self, reply: Reply) -> None:
        with self._speaking:
            self._replies.write(framed(reply))
            self._replies.flush()


def _fault(request: Request, error: Exception) -> Reply:
    fault: Fault = "unavailable"
    if isinstance(error, ConfigurationError):
        fault = "configuration"
    elif str(error).startswith(_REFUSALS) or isinstance(error, (ValueError, TypeError, OverflowError)):
        fault = "unprocessable"
    return Reply(request.number, fault=fault, message=str(error) or type(error).__name__)


def main() -> None:
    """Serve the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which stops us in its own time
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever prints must not speak between the frames
    try:
        Server(Inbox(sys.stdin.buffer), replies).run()
    except BrokenPipeError:
        logging.getLogger(__name__).info("the parent is gone")
    os._exit(0)  # the thread that reads may be waiting in the interpreter's own lock of standard input
