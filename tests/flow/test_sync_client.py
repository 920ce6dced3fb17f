"""The synchronous facade on a real broker: many threads at once, and Ctrl-C."""

import asyncio
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engramlog.engine.client import MemoryRecord
from engramlog.engine.client.sync import SyncMemoryClient
from engramlog.schemas.errors import DeadlineExceeded, RequestRefused
from tests.brokers import Rig

pytestmark = pytest.mark.kafka

THREADS, RECORDS = 16, 20


def talk(rig: Rig, memory: SyncMemoryClient, number: int) -> list[str]:
    """Everything that an agent does, in a thread of its own."""
    scope = rig.scope(f"agent-{number}", session="s1")
    for n in range(RECORDS):
        position = memory.publish(scope, MemoryRecord(role="user", content=f"{number}/{n}"))
        assert position.topic == rig.topics.records
    popped = memory.pop(scope, 2)
    assert [p.record.content for p in popped] == [f"{number}/{n}" for n in (RECORDS - 2, RECORDS - 1)]
    window = memory.history(scope)
    first = window.records[0].record.record_id
    memory.correct(scope, first, f"{number}/corrected")
    memory.remove(scope, iter([1]))
    assert memory.clean_tool_calls(scope) == []
    memory.invalidate(scope, first, reason="test")
    assert memory.record(scope, first).invalidated is not None
    assert [s.record.record_id for s in memory.records(scope, iter([first]))] == [first]
    memory.end_session(scope)
    assert memory.stats(scope).visible == RECORDS - 3
    return [r.record.content for r in memory.history(scope).records]


async def test_many_threads_share_one_client(rig: Rig) -> None:
    def run() -> list[list[str]]:
        with SyncMemoryClient(rig.config, timeout_s=60) as memory, ThreadPoolExecutor(THREADS) as threads:
            return list(threads.map(lambda n: talk(rig, memory, n), range(THREADS)))

    async with rig.consumers("store", "answer"):
        found = await asyncio.to_thread(run)
    for number, contents in enumerate(found):
        kept = [f"{number}/{n}" for n in range(2, RECORDS - 2)]
        assert contents == [f"{number}/corrected", *kept]
    assert "engramlog-client" not in {thread.name for thread in threading.enumerate()}


async def test_what_fails_and_what_remains(rig: Rig) -> None:
    scope = rig.scope(session="s1")

    def run() -> None:
        with SyncMemoryClient(rig.config, timeout_s=30) as memory:
            memory.publish(scope, [MemoryRecord(role="user", content=str(n)) for n in range(3)])
            with pytest.raises(RequestRefused) as refused:
                memory.record(scope, "nobody")
            assert refused.value.code == "not_found"
            memory.erase(scope, "agent")
            assert memory.history(scope).records == ()
            memory.clear(scope)

    async with rig.consumers("store", "answer"):
        await asyncio.to_thread(run)

    def alone() -> None:
        with SyncMemoryClient(rig.config, timeout_s=0.5) as memory, pytest.raises(DeadlineExceeded):
            memory.stats(scope)

    await asyncio.to_thread(alone)


PROGRAM = """
import sys
from engramlog.engine.client import KafkaConfig, Scope
from engramlog.engine.client.sync import SyncMemoryClient
with SyncMemoryClient(KafkaConfig(sys.argv[1], prefix=sys.argv[2]), timeout_s=60) as memory:
    try:
        print("asking", flush=True)
        memory.stats(Scope("acme", "helper"))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


async def test_ctrl_c_interrupts_a_call_and_the_client_still_closes(rig: Rig, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    command = [sys.executable, "-W", "error", str(script), rig.config.bootstrap_servers, rig.settings.prefix]

    def run() -> tuple[int, str, str]:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "asking\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
            return process.returncode, out, err

    assert await asyncio.to_thread(run) == (0, "interrupted\n", "")
