"""The parent's end of the pipe to the process that owns the embedded store."""

import asyncio
import contextlib
import itertools
import sys
from typing import Any, Final

from engramlog.engine.vectors.framing import HEAD_BYTES, Operation, Reply, Request, body_bytes, framed, parsed
from engramlog.schemas.errors import ConfigurationError, EngramlogError, StoreUnavailable, Unprocessable

_START = "import sys; sys.path[:] = sys.argv[1:]; from engramlog.engine.vectors.edge_child import main; main()"
"""Imports from where we do."""
_FAULTS: Final[dict[str, type[EngramlogError]]] = {
    "configuration": ConfigurationError,
    "unavailable": StoreUnavailable,
    "unprocessable": Unprocessable,
}


class ChildProcess:
    """One child; requests and replies are matched by number, so that any number can be under way.

    A new interpreter, never a fork: neither threads nor locks are inherited, and a caller's main module is not run.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._reader = asyncio.create_task(self._read(), name="engramlog-edge")

    @classmethod
    async def spawned(cls) -> "ChildProcess":
        """Start a child."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-c", _START, *sys.path, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        return cls(process)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def call(self, operation: Operation, argument: Any = ()) -> Any:
        """Ask for something.

        Raises:
            StoreUnavailable: The child is gone, or Edge cannot do it now.
            Unprocessable: Edge will never do it.
            ConfigurationError: The shard cannot be opened as configured.
        """
        number, reply = self._sent(operation, argument)
        try:
            stdin = self._process.stdin
            assert stdin is not None
            with contextlib.suppress(ConnectionError):  # the reader notices the end, and says so in the reply
                await stdin.drain()
            return await reply
        finally:
            self._waiting.pop(number, None)

    def post(self, operation: Operation, argument: Any) -> asyncio.Future[Any]:
        """Ask for something small without waiting; the future has the result, or the error as :meth:`call` raises it.

        Raises:
            StoreUnavailable: The child is gone.
        """
        number, reply = self._sent(operation, argument)

        def done(_reply: asyncio.Future[Any]) -> None:
            self._waiting.pop(number, None)
            if not reply.cancelled():
                reply.exception()  # whoever wants it can still have it; nobody is told that it was never looked at

        reply.add_done_callback(done)
        return reply

    def _sent(self, operation: Operation, argument: Any) -> tuple[int, asyncio.Future[Any]]:
        if self._reader.done():
            raise StoreUnavailable("the embedded vector store's process has ended")
        number = next(self._numbers)
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        stdin = self._process.stdin
        assert stdin is not None
        with contextlib.suppress(ConnectionError):
            stdin.write(framed(Request(number, operation, argument)))
        return number, reply

    async def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        try:
            while True:
                head = await stdout.readexactly(HEAD_BYTES)
                self._deliver(parsed(await stdout.readexactly(body_bytes(head))))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(StoreUnavailable("the embedded vector store's process has ended"))

    def _deliver(self, reply: Reply) -> None:
        waiting = self._waiting.get(reply.number)
        if waiting is None or waiting.done():  # whoever asked does not wait any more
            return
        if reply.fault is None:
            waiting.set_result(reply.result)
        else:
            waiting.set_exception(_FAULTS[reply.fault](f"embedded vector store: {reply.message}"))

    async def ended(self) -> int:
        """Wait until it has ended; its exit code."""
        await asyncio.wait({self._reader})
        return await self._process.wait()

    async def stop(self, *, timeout_s: float) -> None:
        """Let it flush, close and end; kill it when that takes too long."""
        try:
            async with asyncio.timeout(timeout_s):
                with contextlib.suppress(StoreUnavailable):
                    await self.call("stop")
                await self._end_input()
                await self.ended()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._end_input()
        await self.ended()

    async def _end_input(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        stdin.close()
        with contextlib.suppress(ConnectionError):
            await stdin.wait_closed()
