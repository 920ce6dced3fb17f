"""Qdrant Edge, the embedded vector engine: a child process owns the shard, this is its client."""

import asyncio
import contextlib
import importlib.util
import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from qdrant_client import models

from engramlog.engine.ports import CollectionSpec, FoundPoint, Upsert
from engramlog.engine.vectors.checking import dense_of, sparse_of
from engramlog.engine.vectors.child_process import ChildProcess
from engramlog.engine.vectors.framing import Asked, NewPoint, PlainVectors
from engramlog.engine.vectors.identity import identity_of
from engramlog.engine.vectors.loading import Loading
from engramlog.engine.vectors.locking import DirectoryLock
from engramlog.engine.vectors.points import DENSE, FLOATS, INTEGERS, KEYWORDS, TERMS, TIMES
from engramlog.schemas.errors import ConfigurationError, EngramlogError, StoreUnavailable

_log = logging.getLogger(__name__)

LOCK_TIMEOUT_S: Final = 10.0
STOP_TIMEOUT_S: Final = 60.0
_LONGEST_PAUSE_S: Final = 5.0


class EdgeEngine:
    """A :class:`~engramlog.engine.ports.VectorEngine` in a directory of this machine.

    Dense vectors go in as arrays ``(rows, dimension)`` and come out as such. A child that ends is started anew; until
    then every call raises :class:`StoreUnavailable`. Queries are nearest ones, by dense or sparse vector, or without
    any; fusion is the caller's.

    Args:
        directory: Where the collections lie, each in a directory of its own.
        lock_timeout_s: How long to wait for another process that owns the collection, in seconds.
    """

    def __init__(self, directory: Path, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self._directory = directory
        self._lock_timeout_s = lock_timeout_s
        self._child: ChildProcess | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._loading: Loading | None = None
        self.spec: CollectionSpec | None = None

    @property
    def child_pid(self) -> int | None:
        """The child's process id; None: there is none now."""
        return None if self._child is None else self._child.pid

    async def start(self, spec: CollectionSpec) -> bool:
        """See :class:`~engramlog.engine.ports.VectorEngine`. True as long as nothing was written.

        Raises:
            ConfigurationError: It exists with another model or dimension, another process owns it, or Qdrant Edge is
                not installed.
            StoreUnavailable: It cannot be opened now.
        """
        if importlib.util.find_spec("qdrant_edge") is None:
            raise ConfigurationError(
                "the embedded vector store needs Qdrant Edge: pip install 'engramlog[offline]', or name a Qdrant "
                "server (ENGRAMLOG_VECTORS_URL)"
            )
        self._child, points = await self._opened(spec)
        self.spec = spec
        self._loading = Loading(self._directory / quote(spec.name, safe="") / "loading")
        self._keeper = asyncio.create_task(self._keep(spec), name="engramlog-edge-keeper")
        return points == 0

    async def _opened(self, spec: CollectionSpec) -> tuple[ChildProcess, int]:
        """A child that holds the collection, and how many points there are."""
        opening = {
            "directory": str(self._directory / quote(spec.name, safe="")),
            "lock_timeout_s": self._lock_timeout_s,
            "identity": identity_of(model=spec.model, dimension=spec.dimension, extra=spec.extra),
            "collection": {
                "dimension": spec.dimension,
                "keywords": [*KEYWORDS, *spec.keyword_keys],
                "integers": list(INTEGERS),
                "floats": list(FLOATS),
                "times": list(TIMES),
            },
        }
        child = await ChildProcess.spawned()
        try:
            points = await child.call("open", opening)
        except BaseException:
            await child.kill()
            raise
        return child, points

    async def _keep(self, spec: CollectionSpec) -> None:
        """Whenever the child ends, start another."""
        pause_s = 0.0
        while True:
            if self._child is not None:
                code = await self._child.ended()
                self._child = None
                _log.warning("the embedded vector store's process ended (exit code %s); starting it anew", code)
            await asyncio.sleep(pause_s)
            try:
                self._child, _ = await self._opened(spec)
                pause_s = 0.0
            except EngramlogError as error:
                pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s + 0.1)
                _log.warning("the embedded vector store cannot be opened, trying again: %s", error)

    async def stop(self) -> None:
        """See :class:`~engramlog.engine.ports.VectorEngine`."""
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None
        if self._child is not None:
            await self._child.stop(timeout_s=STOP_TIMEOUT_S)
            self._child = None
        if self._loading is not None:
            self._loading.clear()
            self._loading = None

    async def remove(self, spec: CollectionSpec) -> None:
        """See :class:`~engramlog.engine.ports.VectorEngine`."""
        directory = self._directory / quote(spec.name, safe="")

        def remove() -> None:
            if not directory.exists():
                return
            lock = DirectoryLock(directory, timeout_s=self._lock_timeout_s)
            try:
                shutil.rmtree(directory)
            finally:
                lock.release()

        await asyncio.to_thread(remove)

    def _open(self) -> ChildProcess:
        if self._child is None:
            raise StoreUnavailable("the embedded vector store is not open, or being started anew")
        return self._child

    async def _loaded(self) -> ChildProcess:
        """The child, when all that was loaded is written."""
        child = self._open()
        if self._loading is not None and self._loading.is_going_on:
            await self._loading.finish(child)
        return child

    async def upsert(self, upserts: Sequence[Upsert]) -> None:
        """See :class:`~engramlog.engine.ports.VectorEngine`."""
        child, spec = await self._loaded(), self.spec
        assert spec is not None
        new = new_points(upserts, spec)
        await child.call("upsert", new)

    async def load(self, points: Sequence[models.PointStruct]) -> None:
        """See :class:`~engramlog.engine.ports.VectorEngine`. Returns while the child is still writing them."""
        child, spec, loading = self._open(), self.spec, self._loading
        assert spec is not None
        assert loading is not None
        if points:
            await loading.give(child, new_points([Upsert(point, 0) for point in points], spec))

    async def set_payload(self, payload: Mapping[str, Any], where: models.Filter) -> None:
        """See :class:`~engramlog.engine.ports.VectorEngine`."""
        await (await self._loaded()).call("set_payload", (dict(payload), plain(where)))

    async def delete(self, where: models.Filter) -> None:
        """See :class:`~engramlog.engine.ports.VectorEngine`."""
        await (await self._loaded()).call("delete", (plain(where),))

    async def query(self, requests: Sequence[models.QueryRequest]) -> list[list[FoundPoint]]:
        """See :class:`~engramlog.engine.ports.VectorEngine`."""
        answers = await (await self._loaded()).call("query", ([_asked(request) for request in requests],))
        return [
            [FoundPoint(key, score, payload, _vectors(vectors)) for key, score, payload, vectors in answer]
            for answer in answers
        ]

    async def count(self, where: Sequence[models.Filter]) -> list[int]:
        """See :class:`~engramlog.engine.ports.VectorEngine`. Filters of a tenant and a term cost no look."""
        counts: list[int] = await (await self._loaded()).call("count", ([plain(one) for one in where],))
        return counts

    async def scroll(
        self, where: models.Filter | None, *, limit: int, offset: Any = None, vectors: bool = False
    ) -> tuple[list[models.Record], Any]:
        """See :class:`~engramlog.engine.ports.VectorEngine`."""
        argument = {"where": plain(where), "limit": limit, "offset": offset, "vectors": vectors}
        points, following = await (await self._loaded()).call("scroll", argument)
        records = [
            models.Record.model_construct(id=key, payload=payload, vector=_vectors(vectors))
            for key, _, payload, vectors in points
        ]
        return records, following

    async def flush(self) -> None:
        """See :class:`~engramlog.engine.ports.VectorEngine`."""
        await (await self._loaded()).call("flush")


def plain(where: models.Filter | None) -> dict[str, Any] | None:
    """A filter in the form of Qdrant's REST interface; times stay ``datetime``."""
    return None if where is None else where.model_dump(exclude_none=True, by_alias=True)


def new_points(upserts: Sequence[Upsert], spec: CollectionSpec) -> list[NewPoint]:
    """Points as they go to the child."""
    return [
        NewPoint(
            id=str(upsert.point.id),
            sequence=upsert.sequence,
            payload=upsert.point.payload or {},
            dense=None if rows is None else rows.astype("<f4", copy=False).tobytes(),
            rows=0 if rows is None else len(rows),
            sparse=sparse_of(upsert.point),
        )
        for upsert, rows in zip(upserts, dense_of([upsert.point for upsert in upserts], spec), strict=True)
    ]


def _asked(request: models.QueryRequest) -> Asked:
    query: Any = request.query
    if isinstance(query, models.NearestQuery):
        query = query.nearest
    dense, rows, sparse = None, 0, None
    if isinstance(query, models.SparseVector):
        sparse = (query.indices, query.values)
    elif query is not None:
        matrix = np.atleast_2d(np.asarray(query, dtype="<f4"))
        dense, rows = matrix.tobytes(), len(matrix)
    wanted: Any = request.with_payload
    vectors: Any = request.with_vector
    return Asked(
        limit=request.limit or 10,
        where=plain(request.filter),
        dense=dense,
        rows=rows,
        sparse=sparse,
        payload=bool(wanted) if not isinstance(wanted, list) else wanted,
        vectors=bool(vectors) if not isinstance(vectors, list) else vectors,
    )


def _vectors(plain_vectors: PlainVectors | None) -> dict[str, Any] | None:
    if plain_vectors is None:
        return None
    found: dict[str, Any] = {}
    if DENSE in plain_vectors:
        content, rows = plain_vectors[DENSE]
        found[DENSE] = np.frombuffer(content, dtype="<f4").reshape(rows, -1)
    if TERMS in plain_vectors:
        indices, values = plain_vectors[TERMS]
        found[TERMS] = models.SparseVector.model_construct(indices=indices, values=values)
    return found
