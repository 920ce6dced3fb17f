"""Scratch directories: gone with whoever made them, even if that was killed."""

import os
import time
from pathlib import Path

from engramlog.engine.replay.scratch import scratch_directory


def old(path: Path) -> None:
    before = time.time() - 3_600
    os.utime(path, (before, before))


async def test_what_a_killed_process_left_is_removed_and_what_another_one_uses_is_not(tmp_path: Path) -> None:
    left, other = tmp_path / "verify-left", tmp_path / "of-somebody-else"
    for path in (left, other):
        path.mkdir()
        (path / "history.db").write_bytes(b"x")
        old(path)
    async with scratch_directory(tmp_path) as used:
        assert not left.exists()
        assert other.exists()
        old(used)
        async with scratch_directory(tmp_path) as mine:
            assert used.exists()
            assert mine != used
        assert not mine.exists()
    assert not used.exists()
