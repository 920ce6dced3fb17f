"""A Qdrant server as vector engine, and qdrant-client's ``:memory:`` mode as an oracle for tests."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import numpy as np
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

from engramlog.engine.ports import CollectionSpec, FoundPoint, Matrix, Upsert
from engramlog.engine.vectors.checking import dense_of, sparse_of
from engramlog.engine.vectors.identity import identity_of, refusal
from engramlog.engine.vectors.points import DENSE, FLOATS, INTEGERS, KEYWORDS, TERMS, TIMES
from engramlog.engine.vectors.selecting import between
from engramlog.schemas.errors import ConfigurationError, EngramlogError, StoreUnavailable, Unprocessable

MEMORY: Final = ":memory:"
TIMEOUT_S: Final = 30
OLDEST: Final = (1, 16)
"""The first version with conditional upserts and metadata of collections."""
_COUNTS_AT_ONCE: Final = 16
_NUMBERS_A_REQUEST: Final = 500_000
"""Components of vectors; each takes about 20 bytes of JSON."""
_IDENTITY: Final = "engramlog"
_CONFLICT: Final = 409
_NOT_ALLOWED: Final = frozenset({401, 403})
_REFUSED: Final = frozenset({400, 413, 422})


class ServerEngine:
    """A :class:`~engramlog.engine.ports.VectorEngine` on a Qdrant server of version 1.16 or later.

    Dense vectors go in as arrays ``(rows, dimension)``. Writes are acknowledged when they are applied and in the
    server's log; when that reaches its disk is the server's configuration.

    Args:
        url: ``http(s)://HOST:6333``, or ``:memory:``.
        api_key: The server's API key.
    """

    def __init__(self, url: str, *, api_key: str | None = None) -> None:
        self._url = url
        self._api_key = api_key
        self._client: AsyncQdrantClient | None = None
        self.spec: CollectionSpec | None = None

    async def start(self, spec: CollectionSpec) -> bool:
        """See :class:`~engramlog.engine.ports.VectorEngine`. True as long as nothing was written.

        Raises:
            ConfigurationError: It exists with another model or dimension, the key is wrong, or the server too old.
            StoreUnavailable: The server does not answer.
        """
        if self._url == MEMORY:
            client = AsyncQdrantClient(MEMORY)
        else:
            client = AsyncQdrantClient(
                url=self._url, api_key=self._api_key, timeout=TIMEOUT_S, check_compatibility=False
            )
        try:
            async with _mapped():
                await self._check_version(client)
                await self._create_or_check(client, spec)
                points = (await client.count(spec.name, exact=True)).count
        except BaseException:
            await client.close()
            raise
        self._client, self.spec = client, spec
        return points == 0

    async def _check_version(self, client: AsyncQdrantClient) -> None:
        if self._url == MEMORY:
            return
        version = (await client.info()).version
        parts = tuple(int(part) for part in version.split("-")[0].split(".")[:2] if part.isdigit())
        if parts < OLDEST:
            raise ConfigurationError(f"the Qdrant server has version {version}; 1.16 or later is needed")

    async def _create_or_check(self, client: AsyncQdrantClient, spec: CollectionSpec) -> None:
        wanted = identity_of(model=spec.model, dimension=spec.dimension, extra=spec.extra)
        if not await client.collection_exists(spec.name):
            await self._create(client, spec)
        config = (await client.get_collection(spec.name)).config
        there = (config.metadata or {}).get(_IDENTITY)
        if there is None:
            raise ConfigurationError(f"the collection {spec.name!r} of the Qdrant server was not made by engramlog")
        vectors: Any = config.params.vectors
        size = vectors[DENSE].size if isinstance(vectors, dict) and DENSE in vectors else 0
        if there != wanted or size != spec.dimension:
            raise ConfigurationError(refusal(f"collection {spec.name!r}", {**there, "dimension": size}, wanted))
        if self._url != MEMORY:  # which has no indexes
            for key, kind in _indexes(spec).items():
                await client.create_payload_index(spec.name, key, field_schema=kind, wait=True)

    async def _create(self, client: AsyncQdrantClient, spec: CollectionSpec) -> None:
        best_row = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
        dense = models.VectorParams(size=spec.dimension, distance=models.Distance.DOT, multivector_config=best_row)
        try:
            await client.create_collection(
                spec.name,
                vectors_config={DENSE: dense},
                sparse_vectors_config={TERMS: models.SparseVectorParams()},
                hnsw_config=models.HnswConfigDiff(m=0, payload_m=16),  # a graph for each tenant, none for all
                metadata={_IDENTITY: identity_of(model=spec.model, dimension=spec.dimension, extra=spec.extra)},
            )
        except UnexpectedResponse as error:
            if error.status_code != _CONFLICT:  # another process was first
                raise

    async def stop(self) -> None:
        """See :class:`~engramlog.engine.ports.VectorEngine`."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    async def remove(self, spec: CollectionSpec) -> None:
        """See :class:`~engramlog.engine.ports.VectorEngine`."""
        client = AsyncQdrantClient(url=self._url, api_key=self._api_key, timeout=TIMEOUT_S, check_compatibility=False)
        try:
            async with _mapped():
                if await client.collection_exists(spec.name):
                    await client.delete_collection(spec.name)
        finally:
            await client.close()

    def _open(self) -> tuple[AsyncQdrantClient, CollectionSpec]:
        if self._client is None or self.spec is None:
            raise StoreUnavailable("the vector store is not open")
        return self._client, self.spec

    async def upsert(self, upserts: Sequence[Upsert]) -> None:
        """See :class:`~engramlog.engine.ports.VectorEngine`."""
        client, spec = self._open()
        points = _new_points([upsert.point for upsert in upserts], spec)  # all are checked before one is written
        sequences = iter(upserts)
        async with _mapped():
            for bundle in _bundles(points):
                operations = [_operation(point, next(sequences).sequence) for point in bundle]
                await client.batch_update_points(spec.name, operations, wait=True)

    async def load(self, points: Sequence[models.PointStruct]) -> None:
        """See :class:`~engramlog.engine.ports.VectorEngine`. They are written when it returns."""
        client, spec = self._open()
        new = [*{point.id: point for point in _new_points(points, spec)}.values()]
        async with _mapped():
            for bundle in _bundles(new):
                await client.upsert(spec.name, bundle, wait=True)

    async def set_payload(self, payload: Mapping[str, Any], where: models.Filter) -> None:
        """See :class:`~engramlog.engine.ports.VectorEngine`."""
        client, spec = self._open()
        async with _mapped():
            await client.set_payload(spec.name, dict(payload), points=where, wait=True)

    async def delete(self, where: models.Filter) -> None:
        """See :class:`~engramlog.engine.ports.VectorEngine`."""
        client, spec = self._open()
        async with _mapped():
            await client.delete(spec.name, points_selector=models.FilterSelector(filter=where), wait=True)

    async def query(self, requests: Sequence[models.QueryRequest]) -> list[list[FoundPoint]]:
        """See :class:`~engramlog.engine.ports.VectorEngine`."""
        client, spec = self._open()
        async with _mapped():
            answers = await client.query_batch_points(spec.name, [_plain(request) for request in requests])
        return [[_found(point) for point in answer.points] for answer in answers]

    async def count(self, where: Sequence[models.Filter]) -> list[int]:
        """See :class:`~engramlog.engine.ports.VectorEngine`. One request for each filter, several at once."""
        client, spec = self._open()
        limit = asyncio.Semaphore(_COUNTS_AT_ONCE)

        async def one(filter_: models.Filter) -> int:
            async with limit:
                return (await client.count(spec.name, count_filter=filter_, exact=True)).count

        async with _mapped():
            return await asyncio.gather(*(one(filter_) for filter_ in where))

    async def scroll(
        self, where: models.Filter | None, *, limit: int, offset: Any = None, vectors: bool = False
    ) -> tuple[list[models.Record], Any]:
        """See :class:`~engramlog.engine.ports.VectorEngine`."""
        client, spec = self._open()
        async with _mapped():
            return await client.scroll(
                spec.name, scroll_filter=where, limit=limit, offset=offset, with_payload=True, with_vectors=vectors
            )

    async def flush(self) -> None:
        """See :class:`~engramlog.engine.ports.VectorEngine`. Every write has waited for the server already."""
        self._open()


def _indexes(spec: CollectionSpec) -> dict[str, Any]:
    """The payload indexes by key."""
    kinds: dict[str, Any] = dict.fromkeys((*KEYWORDS, *spec.keyword_keys), models.PayloadSchemaType.KEYWORD)
    kinds |= dict.fromkeys(INTEGERS, models.PayloadSchemaType.INTEGER)
    kinds |= dict.fromkeys(FLOATS, models.PayloadSchemaType.FLOAT)
    kinds |= dict.fromkeys(TIMES, models.PayloadSchemaType.DATETIME)
    tenant = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
    return kinds | {"tenant": tenant}


def _new_points(points: Sequence[models.PointStruct], spec: CollectionSpec) -> list[models.PointStruct]:
    """The points as they go to the server: checked, with lists instead of arrays, which have no JSON."""
    return [_new_point(point, rows) for point, rows in zip(points, dense_of(points, spec), strict=True)]


def _new_point(point: models.PointStruct, rows: Matrix | None) -> models.PointStruct:
    vector: dict[str, Any] = {} if rows is None else {DENSE: rows.tolist()}
    if (sparse := sparse_of(point)) is not None:
        vector[TERMS] = models.SparseVector(indices=sparse[0], values=sparse[1])
    return models.PointStruct.model_construct(id=point.id, vector=vector, payload=point.payload)


def _found(point: models.ScoredPoint) -> FoundPoint:
    vector: Any = point.vector
    return FoundPoint(str(point.id), point.score, point.payload, vector)


def _operation(point: models.PointStruct, sequence: int) -> models.UpsertOperation:
    older = models.Filter(must=[between("sequence", lt=sequence)])
    return models.UpsertOperation(upsert=models.PointsList(points=[point], update_filter=older))


def _bundles(points: Sequence[models.PointStruct]) -> Iterator[list[models.PointStruct]]:
    """Requests that stay well below the 32 MB that a server takes."""
    bundle: list[models.PointStruct] = []
    numbers = 0
    for point in points:
        vector: Any = point.vector
        added = sum(map(len, vector.get(DENSE, ())))
        if bundle and numbers + added > _NUMBERS_A_REQUEST:
            yield bundle
            bundle, numbers = [], 0
        bundle.append(point)
        numbers += added
    if bundle:
        yield bundle


def _plain(request: models.QueryRequest) -> models.QueryRequest:
    """With lists instead of arrays, which have no JSON."""
    query: Any = request.query
    nearest = query.nearest if isinstance(query, models.NearestQuery) else query
    if not isinstance(nearest, np.ndarray):
        return request
    return request.model_copy(update={"query": models.NearestQuery(nearest=nearest.tolist())})


@asynccontextmanager
async def _mapped() -> AsyncIterator[None]:
    """Let only our own errors out."""
    try:
        yield
    except UnexpectedResponse as error:
        raise _of_response(error) from error
    except (ApiException, ResourceExhaustedResponse, OSError, RuntimeError) as error:
        source = getattr(error, "source", error)
        said = str(source).partition("\n")[0] or type(source).__name__
        raise StoreUnavailable(f"the Qdrant server does not answer: {said}") from error
    except ValueError as error:  # of the client itself, before it asks
        raise Unprocessable(f"the vector store refuses a request: {str(error).splitlines()[0]}") from error


def _of_response(error: UnexpectedResponse) -> EngramlogError:
    said = error.content.decode(errors="replace")[:300]
    if error.status_code in _NOT_ALLOWED:
        return ConfigurationError("the Qdrant server refuses the API key (ENGRAMLOG_VECTORS_API_KEY)")
    if error.status_code in _REFUSED:
        return Unprocessable(f"the Qdrant server refuses a request: {said}")
    return StoreUnavailable(f"the Qdrant server answers {error.status_code}: {said}")
