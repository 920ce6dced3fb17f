"""Stores under contract: every test runs on each of them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engramlog.engine.history import History
from engramlog.schemas.topics import Topics
from tests.postgres import Server, started
from tests.summarising import Desk, OpenDesk

ONE_PARTITION = Topics(partitions=1)

OpenHistory = Callable[..., Awaitable[History]]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """One PostgreSQL server for all tests."""
    with started() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def fresh_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Makes URLs of new, empty databases."""
    made: list[str] = []

    def fresh() -> str:
        if request.param == "postgresql":
            server: Server = request.getfixturevalue("postgres")
            return server.fresh()
        made.append(f"sqlite:///{tmp_path}/history{len(made)}.db")
        return made[-1]

    return fresh


@pytest.fixture
async def open_history(fresh_url: Callable[[], str]) -> AsyncIterator[OpenHistory]:
    """Opens histories, in a new database or in the one of a URL, and closes them at the end."""
    opened: list[History] = []

    async def open_(url: str | None = None, *, topics: Topics = ONE_PARTITION, **settings: Any) -> History:
        history = History(url or fresh_url(), topics=topics, **settings)
        opened.append(history)
        await history.start()
        return history

    yield open_
    for history in opened:
        await history.stop()


@pytest.fixture
async def history(open_history: OpenHistory) -> History:
    """An empty history of one partition."""
    return await open_history()


@pytest.fixture
async def open_desk(open_history: OpenHistory) -> AsyncIterator[OpenDesk]:
    """Opens desks over new databases, with a clock that stands still."""
    desks: list[Desk] = []

    async def open_(**how: Any) -> Desk:
        now = [1_000.0]
        desks.append(Desk(await open_history(clock=lambda: now[0]), now, **how))
        return desks[-1]

    yield open_
    for desk in desks:
        await desk.stop()


@pytest.fixture
async def desk(open_desk: OpenDesk) -> Desk:
    return await open_desk()
