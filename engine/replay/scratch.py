"""Versions that are built only to be compared: in a directory of their own, which is removed afterwards."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from engramlog.engine.history import History
from engramlog.engine.history.versions import HISTORY, VECTORS, Projected, Version
from engramlog.engine.log import Run
from engramlog.engine.replay.building import Build
from engramlog.engine.replay.opening import Building, Workshop
from engramlog.engine.replay.targets import HistoryTarget, Place, VectorsTarget
from engramlog.engine.vectors.edge import EdgeEngine
from engramlog.engine.vectors.locking import DirectoryLock
from engramlog.engine.vectors.opening import collection_of
from engramlog.engine.vectors.vectors import Vectors
from engramlog.schemas.codec import Codec
from engramlog.schemas.errors import ConfigurationError

_PREFIX = "verify-"
_LEFT_S = 60.0


class Scratch:
    """A :class:`~engramlog.engine.replay.targets.Target` in a database of its own.

    What the live projection has dead-lettered, and how far it has come, it asks the live database.

    Args:
        inner: What is built.
        live: The live history.
        before: The active version.
    """

    def __init__(self, inner: HistoryTarget | VectorsTarget, live: History, before: Version) -> None:
        self.version = inner.version
        self.codecs: Mapping[str, Codec[Any]] = inner.codecs
        self.closely = False
        self.history = inner.history if isinstance(inner, HistoryTarget) else None
        self.vectors = inner.vectors if isinstance(inner, VectorsTarget) else None
        self._inner = inner
        self._live = live
        self._checkpoints = live.vectors(before.checkpoints) if before.projection == VECTORS else None

    async def open_partition(self, place: Place, *, cluster_id: str | None, end_offset: int) -> int:
        """See Target."""
        return await self._inner.open_partition(place, cluster_id=cluster_id, end_offset=end_offset)

    async def apply(self, run: Run) -> None:
        """See Target."""
        await self._inner.apply(run)

    async def flush(self) -> None:
        """See Target."""
        await self._inner.flush()

    async def refused_live(self, place: Place) -> Mapping[int, str]:
        """See Target."""
        return await (self._checkpoints or self._live).refused(*place)

    async def applied_live(self, place: Place) -> int:
        """See Target."""
        if self._checkpoints is not None:
            return await self._checkpoints.current(*place)
        return (await self._live.next_offsets()).get(place, 0)


@asynccontextmanager
async def scratch_directory(parent: Path) -> AsyncIterator[Path]:
    """A new directory, which is removed with all that is in it; so are those of processes that were killed.

    Raises:
        ConfigurationError: It cannot be made.
    """
    try:
        made, lock = await asyncio.to_thread(_made, parent)
    except OSError as error:
        raise ConfigurationError(
            f"no scratch directory can be made in {parent}: {error}; name one: --scratch"
        ) from None
    try:
        yield made
    finally:
        await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)
        lock.release()


def _made(parent: Path) -> tuple[Path, DirectoryLock]:
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f"{_PREFIX}*"):
        with suppress(ConfigurationError, FileNotFoundError):  # it is in use, or another process removes it
            _remove(left)
    made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    return made, DirectoryLock(made, timeout_s=0)


def _remove(left: Path) -> None:
    if time.time() - left.stat().st_mtime < _LEFT_S:  # another process may be just about to lock it
        return
    lock = DirectoryLock(left, timeout_s=0)
    shutil.rmtree(left, ignore_errors=True)
    lock.release()


@asynccontextmanager
async def scratch_build(
    place: Workshop, projection: Projected, directory: Path, building: Building
) -> AsyncIterator[Build]:
    """A build of what the active version should be, in SQLite and Qdrant Edge, whatever the live stores are.

    Args:
        place: The log, and the live history.
        projection: Of which projection.
        directory: Where it lies.
        building: How. Nothing is ever dead-lettered.

    Raises:
        ConfigurationError: Nothing was ever derived, or Qdrant Edge is not installed.
    """
    active = (await place.history.versions.active())[projection]
    history = History(f"sqlite:///{directory / f'{projection}.db'}", topics=place.topics)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(history.stop)
        await history.start()
        version = await history.versions.begin(projection, generation=active.generation)
        inner: HistoryTarget | VectorsTarget
        if projection == HISTORY:
            inner = HistoryTarget(history, version, place.topics)
            await inner.history.prepare()
        else:
            vectors = await stack.enter_async_context(_collection(place, version, directory))
            inner = VectorsTarget(vectors, history, version, version, place.topics)
        build = await stack.enter_async_context(place.build_of(Scratch(inner, place.history, active), building))
        yield build


@asynccontextmanager
async def _collection(place: Workshop, version: Version, directory: Path) -> AsyncIterator[Vectors]:
    made = (await place.history.generations.all()).get(version.generation)
    if made is None:
        raise ConfigurationError(
            f"nothing is known of generation {version.generation} of derivations in this database: no vectors were "
            "ever made ('engramlog up' or 'engramlog run derive index')"
        )
    engine = EdgeEngine(directory / "vectors")
    await engine.start(collection_of(place.settings, model=made.model, dimension=made.dimension, version=version))
    try:
        yield Vectors(engine, metadata_keys=place.settings.filter_keys())
    finally:
        await engine.stop()
