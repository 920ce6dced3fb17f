"""``engramlog export --format memory-md``: MEMORY.md files, once or kept fresh."""

import asyncio
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from engramlog.engine.cli import output
from engramlog.engine.cli.failures import OK
from engramlog.engine.cli.live import run_until_stopped

if TYPE_CHECKING:
    from engramlog.engine.archive.lines import Filter
    from engramlog.engine.archive.memories import Folder, Memories
    from engramlog.engine.settings import Settings

_QUIET_S = 0.5
"""How long nothing must have come before files are written, when they are watched."""
_LONGEST = 10
"""After so many looks they are written although more comes."""


def write_memories(
    settings: "Settings", path: Path, wanted: "Filter", *, user: str | None, watch: bool, as_json: bool
) -> int:
    """Write the files; with ``watch`` go on until Ctrl-C. The exit code."""
    from engramlog.engine.archive.memories import Folder

    folder = Folder(path)
    if watch:
        return run_until_stopped(lambda: _watch(settings, folder, wanted, user=user, as_json=as_json))
    asyncio.run(_watch(settings, folder, wanted, user=user, as_json=as_json, once=True))
    return OK


async def _watch(
    settings: "Settings", folder: "Folder", wanted: "Filter", *, user: str | None, as_json: bool, once: bool = False
) -> None:
    from engramlog.engine.archive.memories import Memories
    from engramlog.engine.client.copying.topics import log_of
    from engramlog.engine.history import History

    log = await log_of(settings.kafka(), settings.topics())
    with tempfile.TemporaryDirectory(prefix="engramlog-memories-") as scratch:
        history = History(f"sqlite:///{scratch}/history.db", topics=log.topics)
        await history.start()
        try:
            memories = Memories(history, log, wanted)
            await memories.open()
            await memories.read()
            await _write(memories, folder, wanted, user=user, as_json=as_json)
            while not once:
                await _wait_for_change(memories)
                await _write(memories, folder, wanted, user=user, as_json=as_json)
        finally:
            await history.stop()


async def _wait_for_change(memories: "Memories") -> None:
    """Read on until something has come, and then nothing more for a moment."""
    looks = 0
    while True:
        count = await memories.read()
        if memories.changed and (not count or looks >= _LONGEST):
            return
        looks += bool(memories.changed)
        await asyncio.sleep(_QUIET_S)


async def _write(memories: "Memories", folder: "Folder", wanted: "Filter", *, user: str | None, as_json: bool) -> None:
    from engramlog.engine.archive.memories import names_of

    folder.written = folder.removed = 0
    changed, known = sorted(memories.changed), memories.agents()
    names = names_of(known)
    for agent in changed:
        memories.changed.discard(agent)
        folder.put(agent, await memories.of(agent, user=user, now=datetime.now(UTC)), names)
    folder.forget_others(known, wanted)
    told = {"path": str(folder.path), "agents": len(known), "written": folder.written, "removed": folder.removed}
    if as_json:
        output.print_json(told)
    else:
        files = output.count(folder.written, "file")
        output.say(f"{files} written below {folder.path}, {folder.removed:,} removed ({len(known):,} agents)")
