"""The synchronous facade of :class:`~engramlog.engine.client.MemoryClient`, for code without an event loop.

Thin on purpose: one thread with an event loop, in which one ``MemoryClient`` lives. What a method does, takes, returns
and raises is told at the method of the same name there.
"""

import asyncio
import contextlib
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload

from engramlog.engine.client.client import History, MemoryClient
from engramlog.engine.client.connection import KafkaConfig
from engramlog.schemas import queries as q
from engramlog.schemas import records as r
from engramlog.schemas.envelope import AgentEvent
from engramlog.schemas.records import MemoryRecord
from engramlog.schemas.scope import Position, Scope

T = TypeVar("T")


class SyncMemoryClient:
    """Publishes memory to Kafka and asks the engine for it, blocking. Safe to share between threads.

    ::

        with SyncMemoryClient("localhost:9092") as memory:
            scope = Scope(tenant="acme", agent="helper", session="s1")
            memory.publish(scope, MemoryRecord(role="user", content="My name is Ada."))
            window = memory.history(scope, window=20)

    Calls of several threads run side by side. Ctrl-C interrupts a call: what it asked for is cancelled here, but may
    have been published. Do not use it where an event loop runs: it would stand still meanwhile; every method raises
    ``RuntimeError`` there, and so it does after :meth:`close`. Make one for each process: none survives a fork.

    Args:
        kafka: The cluster: bootstrap servers, or a whole configuration.
        source: Who publishes: the CloudEvents ``source`` of its events.
        timeout_s: Default limit of a call, in seconds.
    """

    def __init__(self, kafka: KafkaConfig | str, *, source: str = "engramlog/client", timeout_s: float = 10.0) -> None:
        self._thread = _LoopThread()
        self._client = MemoryClient(kafka, source=source, timeout_s=timeout_s)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """See :meth:`MemoryClient.close`. Calls of other threads that wait are ended by a ``RuntimeError``."""
        _refuse_in_a_loop()
        self._thread.stop(self._client.close)

    @overload
    def publish(self, scope: Scope, records: MemoryRecord, *, timeout_s: float | None = None) -> Position: ...

    @overload
    def publish(
        self, scope: Scope, records: Iterable[MemoryRecord], *, timeout_s: float | None = None
    ) -> list[Position]: ...

    def publish(
        self, scope: Scope, records: MemoryRecord | Iterable[MemoryRecord], *, timeout_s: float | None = None
    ) -> Position | list[Position]:
        """See :meth:`MemoryClient.publish`."""
        if isinstance(records, MemoryRecord):
            one = records
            return self._thread.run(lambda: self._client.publish(scope, one, timeout_s=timeout_s))
        many = list(records)  # here, not in the loop: it may be a generator that takes its time
        return self._thread.run(lambda: self._client.publish(scope, many, timeout_s=timeout_s))

    def publish_events(self, events: Sequence[AgentEvent], *, timeout_s: float | None = None) -> list[Position]:
        """See :meth:`MemoryClient.publish_events`."""
        return self._thread.run(lambda: self._client.publish_events(events, timeout_s=timeout_s))

    def history(
        self,
        scope: Scope,
        *,
        window: int | None = None,
        keep_rate: float = 0.9,
        as_of: q.AsOf | None = None,
        min_positions: Sequence[Position] = (),
        timeout_s: float | None = None,
    ) -> History:
        """See :meth:`MemoryClient.history`."""
        return self._thread.run(
            lambda: self._client.history(
                scope,
                window=window,
                keep_rate=keep_rate,
                as_of=as_of,
                min_positions=min_positions,
                timeout_s=timeout_s,
            )
        )

    def record(
        self,
        scope: Scope,
        record_id: str,
        *,
        min_positions: Sequence[Position] = (),
        timeout_s: float | None = None,
    ) -> q.StoredRecord:
        """See :meth:`MemoryClient.record`."""
        return self._thread.run(
            lambda: self._client.record(scope, record_id, min_positions=min_positions, timeout_s=timeout_s)
        )

    def records(
        self,
        scope: Scope,
        record_ids: Iterable[str],
        *,
        min_positions: Sequence[Position] = (),
        timeout_s: float | None = None,
    ) -> list[q.StoredRecord]:
        """See :meth:`MemoryClient.records`."""
        ids = list(record_ids)
        return self._thread.run(
            lambda: self._client.records(scope, ids, min_positions=min_positions, timeout_s=timeout_s)
        )

    def stats(
        self, scope: Scope, *, min_positions: Sequence[Position] = (), timeout_s: float | None = None
    ) -> q.StatsAnswer:
        """See :meth:`MemoryClient.stats`."""
        return self._thread.run(lambda: self._client.stats(scope, min_positions=min_positions, timeout_s=timeout_s))

    def pop(
        self,
        scope: Scope,
        count: int,
        *,
        leave: r.MarkScope = "window",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> list[q.StoredRecord]:
        """See :meth:`MemoryClient.pop`."""
        return self._thread.run(
            lambda: self._client.pop(scope, count, leave=leave, request_id=request_id, timeout_s=timeout_s)
        )

    def remove(
        self,
        scope: Scope,
        indices: Iterable[int],
        *,
        leave: r.MarkScope = "window",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> list[q.StoredRecord]:
        """See :meth:`MemoryClient.remove`."""
        wanted = list(indices)
        return self._thread.run(
            lambda: self._client.remove(scope, wanted, leave=leave, request_id=request_id, timeout_s=timeout_s)
        )

    def clean_tool_calls(
        self,
        scope: Scope,
        *,
        leave: r.MarkScope = "window",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> list[q.StoredRecord]:
        """See :meth:`MemoryClient.clean_tool_calls`."""
        return self._thread.run(
            lambda: self._client.clean_tool_calls(scope, leave=leave, request_id=request_id, timeout_s=timeout_s)
        )

    def clear(
        self,
        scope: Scope,
        *,
        leave: r.MarkScope = "window",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Position:
        """See :meth:`MemoryClient.clear`."""
        return self._thread.run(
            lambda: self._client.clear(scope, leave=leave, request_id=request_id, timeout_s=timeout_s)
        )

    def correct(
        self,
        scope: Scope,
        record_id: str,
        content: str,
        *,
        reason: str = "",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Position:
        """See :meth:`MemoryClient.correct`."""
        return self._thread.run(
            lambda: self._client.correct(
                scope, record_id, content, reason=reason, request_id=request_id, timeout_s=timeout_s
            )
        )

    def invalidate(
        self,
        scope: Scope,
        record_id: str,
        *,
        reason: str = "",
        replaced_by: str | None = None,
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Position:
        """See :meth:`MemoryClient.invalidate`."""
        return self._thread.run(
            lambda: self._client.invalidate(
                scope, record_id, reason=reason, replaced_by=replaced_by, request_id=request_id, timeout_s=timeout_s
            )
        )

    def end_session(
        self, scope: Scope, *, reason: str = "", request_id: str | None = None, timeout_s: float | None = None
    ) -> Position:
        """See :meth:`MemoryClient.end_session`."""
        return self._thread.run(
            lambda: self._client.end_session(scope, reason=reason, request_id=request_id, timeout_s=timeout_s)
        )

    def erase(
        self,
        scope: Scope,
        what: Literal["record", "session", "user", "agent"],
        *,
        record_ids: Iterable[str] = (),
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Position:
        """See :meth:`MemoryClient.erase`."""
        ids = list(record_ids)
        return self._thread.run(
            lambda: self._client.erase(scope, what, record_ids=ids, request_id=request_id, timeout_s=timeout_s)
        )

    def erase_tenant(
        self, tenant: str, *, user: str | None = None, request_id: str | None = None, timeout_s: float | None = None
    ) -> list[Position]:
        """See :meth:`MemoryClient.erase_tenant`."""
        return self._thread.run(
            lambda: self._client.erase_tenant(tenant, user=user, request_id=request_id, timeout_s=timeout_s)
        )


class _LoopThread:
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
        _refuse_in_a_loop()
        with self._guard:
            future = self._submit(call)
        try:
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
            ended = None if loop is None else asyncio.run_coroutine_threadsafe(last(), loop)
        if loop is None or thread is None or ended is None:
            return
        try:
            ended.result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _submit(self, call: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        loop = self._running()  # raises, before there is a coroutine that nobody awaits
        return asyncio.run_coroutine_threadsafe(call(), loop)

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


def _refuse_in_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "an event loop runs in this thread and would stand still meanwhile: use MemoryClient and await it, "
        "or call from another thread (asyncio.to_thread)"
    )
