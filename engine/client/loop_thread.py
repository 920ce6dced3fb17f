"""A thread with an event loop, for code that has none."""

import asyncio
import contextlib
import threading
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """A thread with an event loop, started at the first call at the latest."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._started: Future[asyncio.AbstractEventLoop] | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def __del__(self) -> None:
        started = self._started
        if started is not None and not self._closed:
            loop = started.result()
            warnings.warn("a SyncMemoryClient was not closed", ResourceWarning, source=self, stacklevel=2)
            with contextlib.suppress(RuntimeError):  # it is closed already: the interpreter ends
                loop.call_soon_threadsafe(loop.stop)

    def run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await a call in the loop, and wait for it here; traces and other context variables go with it.

        Raises:
            RuntimeError: An event loop runs in this thread, or the client is closed.
        """
        refuse_in_a_loop()
        future: Future[T] = Future()
        try:
            with self._guard:
                _begin(self._running(), call, future)
            return future.result()
        except CancelledError:
            raise RuntimeError("the client was closed while this call waited") from None
        except BaseException:
            future.cancel()  # Ctrl-C: nobody waits any more. Has no effect where the call itself has failed
            raise

    def start(self) -> None:
        """Start the thread now, so that no Ctrl-C can come in the middle of it later."""
        with self._guard:
            self._running()

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a last call, cancel what is left, end the thread. Again: nothing."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            loop = None if self._started is None else self._started.result()
            thread = self._thread
            ended: Future[None] = Future()
            if loop is not None:
                _begin(loop, last, ended)
        if loop is None or thread is None:
            return
        try:
            ended.result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise RuntimeError("the client is closed: make a new one")
        if self._started is None:
            started: Future[asyncio.AbstractEventLoop] = Future()
            # A daemon: a program that forgot to close its client must be able to end.
            self._thread = threading.Thread(target=_serve, args=(started,), name="engramlog-client", daemon=True)
            self._started = started
            self._thread.start()
        return self._started.result()


def _begin(loop: asyncio.AbstractEventLoop, call: Callable[[], Coroutine[Any, Any, T]], future: Future[T]) -> None:
    """Have a call awaited in the loop of another thread.

    The coroutine is made there: a Ctrl-C here can come between any two steps, and would leave it behind unawaited.
    """

    def begin() -> None:
        if future.cancelled():
            return
        task = loop.create_task(call())
        task.add_done_callback(lambda done: _tell(done, future))
        future.add_done_callback(lambda given_up: _give_up(loop, task) if given_up.cancelled() else None)

    loop.call_soon_threadsafe(begin)


def _tell(task: asyncio.Task[T], future: Future[T]) -> None:
    """Hand over what became of a call."""
    if task.cancelled():
        future.cancel()
    elif not future.set_running_or_notify_cancel():
        task.exception()  # nobody waits for it: it counts as seen
    elif (error := task.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


def _give_up(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: so is the call
        loop.call_soon_threadsafe(task.cancel)


def _serve(started: "Future[asyncio.AbstractEventLoop]") -> None:
    """Make a loop and run it. It is made here, where no Ctrl-C can interrupt its making."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    started.set_result(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def refuse_in_a_loop() -> None:
    """Raise where an event loop runs in this thread.

    Raises:
        RuntimeError: It does: it would stand still while somebody waits here.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "an event loop runs in this thread and would stand still meanwhile: use MemoryClient and await it, "
        "or call from another thread (asyncio.to_thread)"
    )
