"""Commands that run until they are stopped."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from engramlog.engine.cli import output
from engramlog.engine.cli.failures import INTERRUPTED, OK

_CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: OK}


def run_until_stopped(body: Callable[[], Coroutine[Any, Any, None]], *, stopping: str = "stopping") -> int:
    """Run a coroutine until it ends, or Ctrl-C or SIGTERM cancels it; its own clean-up is then waited for.

    A second signal cancels the clean-up.

    Args:
        body: What to run.
        stopping: What is said at the first signal.

    Returns:
        The exit code: 0 after its end or SIGTERM, 130 after Ctrl-C.
    """
    return asyncio.run(_supervise(body, stopping))


async def _supervise(body: Callable[[], Coroutine[Any, Any, None]], stopping: str) -> int:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(body())
    received: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        if not received:
            output.say(f"{stopping} (again: at once)")
        received.append(number)
        task.cancel()

    for number in _CODES:
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):  # Windows, or not the main thread
            loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not received:
            raise
    return _CODES[received[0]] if received else OK


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt a read that blocks inside an event loop: asyncio's own handler would wait for it to end."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGINT, interrupt)
    except ValueError:  # not the main thread: no signal comes here
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
