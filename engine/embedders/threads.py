"""Running a model's blocking calls in threads of its own, so that a question never waits behind a batch."""

import asyncio
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from engramlog.schemas.errors import ConfigurationError, ModelUnavailable

Result = TypeVar("Result")

_MOST_DEFAULT_THREADS = 4
_NICE = 10


def default_threads() -> int:
    """As many as there are processors, at most 4."""
    return min(_MOST_DEFAULT_THREADS, os.cpu_count() or 1)


def _yield_to_others() -> None:
    """Lower the priority of the calling thread. Only Linux has one for each thread; elsewhere nothing happens."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, _NICE)


class Threads:
    """A pool of ``count`` threads for batches, and one for questions, which waits behind no batch.

    On Linux the threads for batches yield to everything else: answers stay quick while a backlog is embedded.

    It belongs to the process that made it: after a fork its threads are gone, and a model that was loaded with them
    may hang. Using it there is refused.

    Args:
        count: Threads that batches may use at once.
        name: What the threads are called.
    """

    def __init__(self, count: int, *, name: str) -> None:
        self._urgent = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"{name}-question")
        self._patient = ThreadPoolExecutor(max_workers=count, thread_name_prefix=name, initializer=_yield_to_others)
        self._batches = asyncio.Semaphore(count)
        self._name = name
        self._pid = os.getpid()
        self._stopped = False

    async def now(self, call: Callable[[], Result]) -> Result:
        """Run something urgent, and return its result.

        Raises:
            ModelUnavailable: The pool was stopped.
            ConfigurationError: The process was forked.
        """
        return await self._run(self._urgent, call)

    async def _run(self, executor: ThreadPoolExecutor, call: Callable[[], Result]) -> Result:
        if os.getpid() != self._pid:
            raise ConfigurationError(
                f"{self._name} was started in process {self._pid} and cannot be used in its fork {os.getpid()}: "
                "start processes by spawn, or the embedder after the fork"
            )
        if self._stopped:
            raise ModelUnavailable(f"{self._name} was stopped")
        future = asyncio.get_running_loop().run_in_executor(executor, call)
        try:
            return await future
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():  # not we were cancelled, but what waited in the executor
                raise ModelUnavailable(f"{self._name} was stopped") from None
            raise

    async def in_batch(self, call: Callable[[], Result]) -> Result:
        """Run a part of a batch, when it is its turn, and return its result. Errors as :meth:`now`."""
        async with self._batches:
            return await self._run(self._patient, call)

    async def stop(self) -> None:
        """End the threads, after what they are doing; what waits for one gets :class:`ModelUnavailable`."""
        self._stopped = True
        for executor in (self._urgent, self._patient):
            await asyncio.to_thread(executor.shutdown, wait=True, cancel_futures=True)
