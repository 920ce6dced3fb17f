"""Waiting for positions: looks that become rarer, and start anew for whoever comes."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from engramlog.engine import positions
from engramlog.engine.positions import PositionWatch
from engramlog.schemas.queries import Reached

PLACE = ("memory.records", 0)


class Checkpoints:
    """Where a projection stands, and how often it was asked."""

    def __init__(self) -> None:
        self.next = 0
        self.looks = 0

    async def look(self) -> dict[tuple[str, int], int]:
        self.looks += 1
        return {PLACE: self.next}


@pytest.fixture
def checkpoints() -> Checkpoints:
    return Checkpoints()


@pytest.fixture
async def watch(checkpoints: Checkpoints) -> AsyncIterator[PositionWatch]:
    made = PositionWatch(checkpoints.look)
    yield made
    await made.stop()


async def reached(watch: PositionWatch, offset: int, *, within_s: float) -> bool:
    until = asyncio.get_running_loop().time() + within_s
    return await watch.wait([Reached(topic=PLACE[0], partition=PLACE[1], offset=offset)], until=until)


async def test_what_has_passed_is_not_waited_for(watch: PositionWatch, checkpoints: Checkpoints) -> None:
    checkpoints.next = 5
    assert await reached(watch, 4, within_s=30)
    looks = checkpoints.looks
    assert await reached(watch, 3, within_s=30)
    assert checkpoints.looks == looks
    assert not await reached(watch, 5, within_s=0.05)


async def test_looks_become_rarer(watch: PositionWatch, checkpoints: Checkpoints) -> None:
    """A pause is a twentieth of what has been waited: some seventy looks in the first second instead of 250."""
    assert not await reached(watch, 0, within_s=1.0)
    assert checkpoints.looks <= 100


async def test_who_comes_new_does_not_wait_for_the_others_pause(
    watch: PositionWatch, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions, "POLL_SHARE", 1e6)
    monkeypatch.setattr(positions, "SLOWEST_POLL_S", 300.0)
    patient = asyncio.create_task(reached(watch, 9, within_s=60))
    while not checkpoints.looks:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    checkpoints.next = 10
    assert await reached(watch, 8, within_s=30)
    assert await patient
