"""The synchronous facade without a broker: it mirrors the client, and can be used in no wrong way."""

import asyncio
import gc
import inspect
import linecache
import sys
import threading
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any, get_type_hints

import pytest

from engramlog.engine.client import MemoryClient, MemoryRecord, Scope, loop_thread
from engramlog.engine.client.sync import SyncMemoryClient
from engramlog.schemas.errors import BrokerUnavailable, RequestRefused

NOBODY = "127.0.0.1:1"
SCOPE = Scope(tenant="acme", agent="helper")
METHODS = sorted(
    name for name, method in inspect.getmembers(MemoryClient, inspect.iscoroutinefunction) if not name.startswith("_")
)


@pytest.mark.parametrize("name", METHODS)
def test_every_public_method_is_mirrored_as_it_is(name: str) -> None:
    here, there = getattr(SyncMemoryClient, name), getattr(MemoryClient, name)
    assert inspect.signature(here) == inspect.signature(there)
    assert get_type_hints(here) == get_type_hints(there)
    assert f":meth:`MemoryClient.{name}`" in here.__doc__


def test_nothing_else_is_public() -> None:
    public = {name for name in vars(SyncMemoryClient) if not name.startswith("_")}
    assert public == set(METHODS)
    assert inspect.signature(SyncMemoryClient.__init__) == inspect.signature(MemoryClient.__init__)


def test_errors_are_those_of_the_client() -> None:
    with SyncMemoryClient(NOBODY) as memory:
        with pytest.raises(BrokerUnavailable, match="does not answer"):
            memory.history(SCOPE)
        with pytest.raises(RequestRefused):
            memory.history(SCOPE, window=-1)


def test_closed_twice_and_never_used() -> None:
    memory = SyncMemoryClient(NOBODY)
    memory.close()
    memory.close()
    with pytest.raises(RuntimeError, match="the client is closed"):
        memory.stats(SCOPE)
    assert "engramlog-client" not in {thread.name for thread in threading.enumerate()}


async def test_in_a_running_loop_it_refuses() -> None:
    memory = SyncMemoryClient(NOBODY)
    for call in (lambda: memory.stats(SCOPE), memory.close):
        with pytest.raises(RuntimeError, match="use MemoryClient and await it"):
            call()
    await asyncio.to_thread(memory.close)


def test_a_client_that_is_forgotten_is_told_and_lets_go() -> None:
    memory = SyncMemoryClient(NOBODY)
    with pytest.raises(BrokerUnavailable):
        memory.stats(SCOPE)
    (thread,) = (t for t in threading.enumerate() if t.name == "engramlog-client")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        del memory
        gc.collect()
    assert any("was not closed" in str(warning.message) for warning in told)
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_closing_ends_the_calls_of_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, ended = threading.Event(), []

    async def stats(*_: Any, **__: Any) -> None:
        waiting.set()
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(MemoryClient, "stats", stats)
    memory = SyncMemoryClient(NOBODY)

    def call() -> None:
        try:
            memory.stats(SCOPE)
        except RuntimeError as error:
            ended.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    assert waiting.wait(10)
    memory.close()
    thread.join(timeout=10)
    assert ended == ["the client was closed while this call waited"]


def test_ctrl_c_between_any_two_steps_of_a_call_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[asyncio.Task[Any] | None] = []

    async def stats(*_: Any, **__: Any) -> str:
        calls.append(asyncio.current_task())
        await asyncio.sleep(0.001)
        return "done"

    left: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda seen: left.append(str(seen.exc_value)))
    monkeypatch.setattr(MemoryClient, "stats", stats)
    with SyncMemoryClient(NOBODY) as memory:
        assert memory.stats(SCOPE) == "done"
        steps = 0
        while _interrupted_after(steps, lambda: memory.stats(SCOPE)):
            assert memory.stats(SCOPE) == "done", f"not usable after an interruption at step {steps}"
            steps += 1
        gc.collect()
    assert steps > 10
    assert left == []
    assert all(task is not None and task.done() for task in calls)


def _interrupted_after(steps: int, call: Callable[[], Any]) -> bool:
    """Whether a call was interrupted by a Ctrl-C that came after so many lines of the modules that make it."""
    passed, modules = 0, {loop_thread.__file__, asyncio.tasks.__file__}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal passed
        if frame.f_code.co_filename not in modules:
            return trace
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and "with self" not in line:  # between a block's end and its exit Python takes no signal
            passed += 1
            if passed > steps:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_what_is_given_is_read_by_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    async def publish(_self: MemoryClient, _scope: Scope, records: Any, **_: Any) -> Any:
        return records

    monkeypatch.setattr(MemoryClient, "publish", publish)
    names: list[str] = []

    def said() -> Any:
        names.append(threading.current_thread().name)
        yield MemoryRecord(role="user", content="x")

    with SyncMemoryClient(NOBODY) as memory:
        assert len(memory.publish(SCOPE, said())) == 1
    assert names == [threading.current_thread().name]
