"""Vectors of any OpenAI-compatible endpoint."""

import logging
from collections.abc import Sequence

import numpy as np

from engramlog.engine.embedders.chunking import CHUNK_CHARS
from engramlog.engine.embedders.together import each
from engramlog.engine.embedders.vectors import unit_rows
from engramlog.engine.models.clean import cleaned
from engramlog.engine.models.endpoints import Endpoints
from engramlog.engine.ports import Matrix
from engramlog.schemas.errors import ConfigurationError, ModelRefused, ModelUnavailable

log = logging.getLogger(__name__)

DEFAULT_MODEL = "text-embedding-3-small"
BATCH_TEXTS = 256
BATCH_CHARS = 100_000
AT_ONCE = 4
PROBE_S = 5.0
_BLANK = "."
"""What is sent for a text without content: endpoints refuse an empty one."""


class Remote:
    """An :class:`~engramlog.engine.ports.Embedder`.

    Without ``dimensions``, :meth:`start` asks the endpoint for one vector to learn the dimension. With them it asks,
    too, but starts without an answer: what has to be known is known.

    Args:
        endpoints: Who answers; they are stopped with the embedder.
        model: The model's name there.
        dimensions: Components to ask for, of models that can be asked; None: what the model gives.
    """

    def __init__(self, endpoints: Endpoints, *, model: str = DEFAULT_MODEL, dimensions: int | None = None) -> None:
        self.model = model if dimensions is None else f"{model}@{dimensions}"
        self.dimension = dimensions or 0
        self.chunk_chars = CHUNK_CHARS
        self._endpoints = endpoints
        self._name = model
        self._dimensions = dimensions

    async def start(self) -> None:
        """Check the endpoint and learn the dimension.

        Raises:
            ConfigurationError: It refuses the model or the key, or gives another dimension (both numbers are told).
            ModelUnavailable: It does not answer, and the dimension is not known.
        """
        try:
            probe = await self._endpoints.embed(
                ["dimension"],
                model=self._name,
                dimensions=self._dimensions,
                timeout_s=None if self._dimensions is None else PROBE_S,
            )
        except ModelUnavailable as error:
            if self._dimensions is None:
                raise
            log.warning("started without the embedding endpoint: %s", error)
            return
        except ModelRefused as error:
            raise ConfigurationError(
                f"the embedding model {self._name!r} cannot be used: {error} "
                "(ENGRAMLOG_EMBEDDING_MODEL, ENGRAMLOG_EMBEDDING_URLS, ENGRAMLOG_EMBEDDING_DIMENSIONS)"
            ) from None
        given = probe.shape[1]
        if self._dimensions not in {None, given}:
            raise ConfigurationError(
                f"{self._name} gives vectors of {given} components, ENGRAMLOG_EMBEDDING_DIMENSIONS={self._dimensions}"
            )
        self.dimension = given

    async def stop(self) -> None:
        """Close the connections."""
        await self._endpoints.stop()

    async def passages(self, texts: Sequence[str]) -> Matrix:
        """Embed passages, at most 256 texts and about 100,000 characters a request, four requests at once."""
        if not self.dimension:
            raise ModelUnavailable(f"{self.model} is not started")
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        cut = batches([_with_content(text) for text in texts])
        parts: dict[int, Matrix] = {}

        async def embed(numbered: tuple[int, Sequence[str]]) -> None:
            parts[numbered[0]] = await self._embed(numbered[1])

        await each(enumerate(cut), embed, at_once=min(AT_ONCE, len(cut)))
        return np.concatenate([parts[number] for number in range(len(cut))])

    async def query(self, text: str) -> Matrix:
        """Embed a question."""
        if not self.dimension:
            raise ModelUnavailable(f"{self.model} is not started")
        return (await self._embed([_with_content(text)])).reshape(self.dimension)

    async def _embed(self, texts: Sequence[str]) -> Matrix:
        rows = await self._endpoints.embed(texts, model=self._name, dimensions=self._dimensions)
        return unit_rows(rows, count=len(texts), dimension=self.dimension, model=self.model)


def batches(texts: Sequence[str]) -> list[Sequence[str]]:
    """Texts in order, cut where a request would hold more than 256 of them or more than 100,000 characters."""
    cut, start, chars = [], 0, 0
    for place, text in enumerate(texts):
        full = place - start >= BATCH_TEXTS or chars + len(text) > BATCH_CHARS
        if full and place > start:
            cut.append(texts[start:place])
            start, chars = place, 0
        chars += len(text)
    return [*cut, texts[start:]] if texts else []


def _with_content(text: str) -> str:
    clean = cleaned(text)
    return clean if clean.strip() else _BLANK
