"""Any model of the package ``sentence-transformers``."""

import asyncio
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from engramlog.engine.embedders.chunking import CHUNK_CHARS
from engramlog.engine.embedders.threads import Threads
from engramlog.engine.embedders.vectors import unit_row, unit_rows
from engramlog.engine.models.clean import cleaned
from engramlog.engine.ports import Matrix
from engramlog.schemas.errors import ConfigurationError, ModelUnavailable

DEFAULT_MODEL = "intfloat/multilingual-e5-small"
_E5 = re.compile(r"(^|[/_-])e5([_-]|$)", re.IGNORECASE)
_GROUP = 32


class SentenceTransformers:
    """An :class:`~engramlog.engine.ports.Embedder`. Models of the e5 family get the prefixes that they were trained on.

    Args:
        model: The model's name at Hugging Face, or a directory.
        dimensions: Components that it must have; None: whatever it has.
    """

    def __init__(self, *, model: str = DEFAULT_MODEL, dimensions: int | None = None) -> None:
        self.model = model
        self.dimension = dimensions or 0
        self.chunk_chars = CHUNK_CHARS
        self._wanted = dimensions
        self._prefixes = ("query: ", "passage: ") if _E5.search(model) else ("", "")
        self._threads: Threads | None = None
        self._encoder: Any = None

    async def start(self) -> None:
        """Load the model; the first time it is downloaded.

        Raises:
            ConfigurationError: The package is not installed, there is no such model, or it has another dimension.
        """
        if self._threads is not None:
            return
        self._encoder = await asyncio.to_thread(_loaded, self.model)
        has = int(self._encoder.get_sentence_embedding_dimension())
        if self._wanted not in {None, has}:
            raise ConfigurationError(
                f"{self.model} has {has} components, ENGRAMLOG_EMBEDDING_DIMENSIONS={self._wanted}"
            )
        self.dimension = has
        self._threads = Threads(1, name="sentence-transformers")

    async def stop(self) -> None:
        """End the threads."""
        threads, self._threads = self._threads, None
        if threads is not None:
            await threads.stop()
        self._encoder = None

    async def passages(self, texts: Sequence[str]) -> Matrix:
        """Embed passages."""
        threads = self._running()
        sent = [self._prefixes[1] + cleaned(text) for text in texts]
        groups = [sent[start : start + _GROUP] for start in range(0, len(sent), _GROUP)]
        parts = [await threads.in_batch(partial(self._encode, group)) for group in groups]
        rows = np.concatenate(parts) if parts else np.empty((0, self.dimension), dtype=np.float32)
        return unit_rows(rows, count=len(texts), dimension=self.dimension, model=self.model)

    async def query(self, text: str) -> Matrix:
        """Embed a question; it does not wait for batches."""
        threads = self._running()
        row = await threads.now(partial(self._encode, [self._prefixes[0] + cleaned(text)]))
        return unit_row(row[0], dimension=self.dimension, model=self.model)

    def _encode(self, texts: list[str]) -> Matrix:
        rows = self._encoder.encode(texts, convert_to_numpy=True, show_progress_bar=False)
        return np.asarray(rows, dtype=np.float32)

    def _running(self) -> Threads:
        if self._threads is None:
            raise ModelUnavailable(f"{self.model} is not started")
        return self._threads


def _loaded(model: str) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise ConfigurationError(
            "sentence-transformers is not installed: pip install engramlog[sentence-transformers]"
        ) from None
    try:
        return SentenceTransformer(model)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"ENGRAMLOG_EMBEDDING_MODEL={model} cannot be loaded: {error}") from None
