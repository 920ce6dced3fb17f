"""The points of the live collection: read from the store where that can be opened, else asked of the running engine."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote

from engramlog.engine.client.asking import Asking
from engramlog.engine.client.publisher import Publisher
from engramlog.engine.examining import point_of_state
from engramlog.engine.history import History
from engramlog.engine.history.digest import Agent
from engramlog.engine.history.versions import Version
from engramlog.engine.replay.opening import Workshop
from engramlog.engine.settings import Settings
from engramlog.engine.vectors.digest import Point
from engramlog.engine.vectors.locking import DirectoryLock
from engramlog.engine.vectors.opening import collection_of, vector_engine_of
from engramlog.engine.vectors.vectors import Vectors
from engramlog.schemas.errors import ConfigurationError, StoreUnavailable
from engramlog.schemas.examining import PointsAnswer, PointsQuery
from engramlog.schemas.scope import Scope

_AT_ONCE: Final = 100
_TIMEOUT_S: Final = 30.0


class LivePoints(Protocol):
    """The live collection, as far as it is compared.

    Attributes:
        by_agent: Whether it can only be read one agent after the other.
    """

    by_agent: bool

    def points(self, agent: Agent | None) -> AsyncGenerator[Point, None]:
        """The points of an agent, or of all, in the order of their ids."""

    async def named(self, agent: Agent, record_ids: Sequence[str]) -> dict[str, Point]:
        """The points of some records of an agent, by record id."""

    async def agents(self) -> list[Agent]:
        """Who may have points."""


class Opened:
    """A collection that this process has open."""

    by_agent = False

    def __init__(self, vectors: Vectors, history: History) -> None:
        self._vectors = vectors
        self._history = history

    def points(self, agent: Agent | None) -> AsyncGenerator[Point, None]:
        """See :class:`LivePoints`."""
        return points_of(self._vectors, agent)

    async def named(self, agent: Agent, record_ids: Sequence[str]) -> dict[str, Point]:
        """See :class:`LivePoints`."""
        return await points_named(self._vectors, agent, record_ids)

    async def agents(self) -> list[Agent]:
        """See :class:`LivePoints`."""
        return await self._history.agents()


class Asked:
    """A collection that another process has open, looked at through its consumer ``answer``.

    Args:
        ask: Asks.
        version: The version that must answer.
        history: Knows the agents.
    """

    by_agent = True

    def __init__(self, ask: Asking, version: Version, history: History) -> None:
        self._ask = ask
        self._version = version
        self._history = history

    async def points(self, agent: Agent | None) -> AsyncGenerator[Point, None]:
        """See :class:`LivePoints`; of one agent."""
        assert agent is not None
        after: str | None = None
        while True:
            answer = await self._page(agent, PointsQuery(after=after))
            for state in answer.points:
                yield point_of_state(state, agent)
            after = answer.after
            if after is None:
                return

    async def named(self, agent: Agent, record_ids: Sequence[str]) -> dict[str, Point]:
        """See :class:`LivePoints`."""
        found: dict[str, Point] = {}
        for start in range(0, len(record_ids), _AT_ONCE):
            ids = tuple(record_ids[start : start + _AT_ONCE])
            answer = await self._page(agent, PointsQuery(record_ids=ids))
            found |= {state.record_id: point_of_state(state, agent) for state in answer.points}
        return found

    async def _page(self, agent: Agent, query: PointsQuery) -> PointsAnswer:
        scope = Scope(*agent, users="all")
        answer, _ = await self._ask(scope, query, PointsAnswer, limit_s=_TIMEOUT_S)
        if (answer.version, answer.generation) != (self._version.number, self._version.generation):
            raise StoreUnavailable(
                f"the engine has vectors v{answer.version} open, and v{self._version.number} is active: it has not "
                "gone over yet; try again"
            )
        return answer

    async def agents(self) -> list[Agent]:
        """See :class:`LivePoints`."""
        return await self._history.agents()


async def points_of(vectors: Vectors, agent: Agent | None) -> AsyncGenerator[Point, None]:
    """All points of an agent, or of all, in the order of their ids."""
    after: str | None = None
    while True:
        points, after = await vectors.points(agent=agent, after=after)
        for point in points:
            yield point
        if after is None:
            return


async def points_named(vectors: Vectors, agent: Agent, record_ids: Sequence[str]) -> dict[str, Point]:
    """The points of some records of an agent, by record id."""
    found: dict[str, Point] = {}
    for start in range(0, len(record_ids), _AT_ONCE):
        ids = record_ids[start : start + _AT_ONCE]
        points, _ = await vectors.points(agent=agent, record_ids=ids, limit=2 * _AT_ONCE)
        found |= {point.record_id: point for point in points}
    return found


@asynccontextmanager
async def live_points(place: Workshop, version: Version) -> AsyncIterator[LivePoints]:
    """The points of the active version of the vectors. Nothing is created.

    Args:
        place: The settings say where they lie.
        version: The active version.

    Raises:
        ConfigurationError: There are none.
        StoreUnavailable: They cannot be read now.
    """
    settings = place.settings
    made = (await place.history.generations.all()).get(version.generation)
    if made is None:
        raise ConfigurationError(
            f"nothing is known of generation {version.generation} of derivations in this database: no vectors were "
            "ever made ('engramlog up' or 'engramlog run derive index')"
        )
    spec = collection_of(settings, model=made.model, dimension=made.dimension, version=version)
    if settings.vectors_are_served() or await asyncio.to_thread(_is_free, settings, spec.name):
        engine = vector_engine_of(settings)
        await engine.start(spec)
        try:
            yield Opened(Vectors(engine, metadata_keys=settings.filter_keys()), place.history)
        finally:
            await engine.stop()
        return
    kafka = settings.kafka(client_id="engramlog.verify")
    publisher = Publisher(kafka)
    ask = Asking(kafka, publisher, source="engramlog/verify")
    try:
        yield Asked(ask, version, place.history)
    finally:
        await ask.stop()
        await publisher.stop()


def _is_free(settings: Settings, name: str) -> bool:
    """Whether the embedded collection can be opened here: it exists, and no process holds it.

    Raises:
        ConfigurationError: There is none.
    """
    url = settings.vectors_url or ""
    if url == ":memory:":
        return False
    root = Path(url.removeprefix("edge:")).expanduser() if url else settings.data_dir / "vectors"
    directory = root / quote(name, safe="")
    if not directory.is_dir():
        raise ConfigurationError(f"there are no live vectors in {directory}: run the engine once ('engramlog up')")
    try:
        DirectoryLock(directory, timeout_s=0.0).release()
    except ConfigurationError:
        return False
    return True
