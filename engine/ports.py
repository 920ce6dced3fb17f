"""The ports of the engine: what it needs from models and vector engines, each with several implementations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from qdrant_client import models

Matrix: TypeAlias = NDArray[np.float32]
"""Vectors as rows, of unit length."""


class Embedder(Protocol):
    """Turns texts into vectors. Used from one event loop; never blocks it.

    Attributes:
        model: The model's identity; vectors of equal models can be compared. It goes into every derived event.
        dimension: Components of each vector; known after :meth:`start`.
        chunk_chars: Longer texts are to be cut into chunks of about so many characters.
    """

    model: str
    dimension: int
    chunk_chars: int

    async def start(self) -> None:
        """Load the model, or check the endpoint.

        Raises:
            ConfigurationError: It cannot work as configured, e.g. the dimension is another (both numbers are told).
            ModelUnavailable: The endpoint does not answer.
        """

    async def stop(self) -> None:
        """Release what it holds."""

    async def passages(self, texts: Sequence[str]) -> Matrix:
        """Embed what is to be found: ``(len(texts), dimension)``.

        Raises:
            ModelUnavailable: No answer now; the same call may succeed later.
            ModelRefused: The model will never take one of these texts.
        """

    async def query(self, text: str) -> Matrix:
        """Embed a question: ``(dimension,)``. Answers are cached.

        Raises:
            ModelUnavailable: No answer now.
            ModelRefused: The model will never take it.
        """


@dataclass(frozen=True, slots=True)
class CollectionSpec:
    """What a collection is made of; the identity of its vectors.

    Attributes:
        name: Its name; the embedded store makes a directory of it.
        model: The model of its vectors.
        dimension: Their components.
        keyword_keys: Payload keys to be indexed as keywords, besides the built-in ones (filterable metadata).
        extra: Whatever else belongs to the identity, e.g. ``{"generation": "1"}``.
    """

    name: str
    model: str
    dimension: int
    keyword_keys: tuple[str, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Upsert:
    """A point to be written unless a newer one is there.

    Attributes:
        point: The point.
        sequence: It is written if the point is missing or holds a lower number under the payload key ``sequence``.
    """

    point: models.PointStruct
    sequence: int


class FoundPoint(NamedTuple):
    """A point that a query found: what we need of ``models.ScoredPoint``, of which hundreds cost milliseconds.

    Attributes:
        id: Its id.
        score: Its score; 0.0 for what was not scored.
        payload: Its payload, or the keys of it that were wanted.
        vector: Its vectors by name, if wanted: the dense one as rows, of shape ``(chunks, dimension)``.
    """

    id: str
    score: float
    payload: Mapping[str, Any] | None
    vector: Mapping[str, Any] | None


class VectorEngine(Protocol):
    """One collection of a Qdrant. Speaks ``qdrant_client.models``; every filter it gets names a tenant.

    All methods raise :class:`~engramlog.schemas.errors.StoreUnavailable` while the engine does not answer.

    Attributes:
        spec: What it was started with; None: it was not started yet.
    """

    spec: CollectionSpec | None

    async def start(self, spec: CollectionSpec) -> bool:
        """Open the collection, or create it with its indexes.

        Returns:
            Whether it was created: it is empty.

        Raises:
            ConfigurationError: It exists with another model or dimension; the message has both.
        """

    async def stop(self) -> None:
        """Close it. What was written is kept."""

    async def remove(self, spec: CollectionSpec) -> None:
        """Remove a collection with all that is in it; nothing happens if there is none. It must not be open.

        Raises:
            ConfigurationError: A process has it open.
        """

    async def upsert(self, upserts: Sequence[Upsert]) -> None:
        """Write points, each on its condition, in order.

        Raises:
            Unprocessable: The engine will never take one of them.
        """

    async def load(self, points: Sequence[models.PointStruct]) -> None:
        """Write points whatever is there, many at once; of equal ids the last one counts.

        For a collection that nobody else writes to. It may return before they are written; all other methods see them,
        and a later call tells that they could not be. Points that were given stay given: the next call that is let
        through has written them, so that whoever tries again does so with what could not be taken.

        Raises:
            Unprocessable: The engine will never take one of them; none was taken.
            StoreUnavailable: These points were not taken. The engine does not answer, or had to refuse earlier ones.
        """

    async def set_payload(self, payload: Mapping[str, Any], where: models.Filter) -> None:
        """Set payload keys of the points that a filter finds."""

    async def delete(self, where: models.Filter) -> None:
        """Delete the points that a filter finds."""

    async def query(self, requests: Sequence[models.QueryRequest]) -> list[list[FoundPoint]]:
        """Answer several queries: for each the points, best first."""

    async def count(self, where: Sequence[models.Filter]) -> list[int]:
        """Count exactly what each filter finds."""

    async def scroll(
        self, where: models.Filter | None, *, limit: int, offset: Any = None, vectors: bool = False
    ) -> tuple[list[models.Record], Any]:
        """Points in the order of their ids, and where to go on (None: nothing is left). For digests and moving."""

    async def flush(self) -> None:
        """Return when everything written so far survives a kill -9 and a power cut."""
