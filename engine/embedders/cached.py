"""An embedder that remembers the vectors of questions."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from engramlog.engine.ports import Embedder, Matrix
from engramlog.schemas.errors import ModelUnavailable

DEFAULT_QUESTIONS = 10_000
_LONGEST_KEPT_CHARS = 4_000


class CachedEmbedder:
    """Passes everything on to another embedder, and each question only once.

    Questions that are asked at the same time are asked once, too; if that fails, all who wait get the error, and
    nothing is remembered. Vectors of questions are read-only.

    Args:
        inner: The embedder.
        most: How many questions are remembered, the least recently used being forgotten first. Those of more than
            4,000 characters are not.
    """

    def __init__(self, inner: Embedder, *, most: int = DEFAULT_QUESTIONS) -> None:
        self.inner = inner
        self.model = inner.model
        self.dimension = inner.dimension
        self.chunk_chars = inner.chunk_chars
        self._most = most
        self._known: OrderedDict[str, Matrix] = OrderedDict()
        self._asked: dict[str, asyncio.Task[Matrix]] = {}

    async def start(self) -> None:
        """Start the embedder."""
        await self.inner.start()
        self.model = self.inner.model
        self.dimension = self.inner.dimension
        self.chunk_chars = self.inner.chunk_chars

    async def stop(self) -> None:
        """Forget everything and stop the embedder."""
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)
        self._known.clear()
        await self.inner.stop()

    async def passages(self, texts: Sequence[str]) -> Matrix:
        """Embed passages; they are not remembered."""
        return await self.inner.passages(texts)

    async def query(self, text: str) -> Matrix:
        """Embed a question, or remember its vector."""
        known = self._known.get(text)
        if known is not None:
            self._known.move_to_end(text)
            return known
        task = self._asked.get(text)
        if task is None:
            task = asyncio.create_task(self.inner.query(text))
            self._asked[text] = task
            task.add_done_callback(lambda done: self._answered(text, done))
        try:
            return await asyncio.shield(task)  # one who gives up waiting does not take the answer from the others
        except asyncio.CancelledError:
            us = asyncio.current_task()
            if task.cancelled() and us is not None and not us.cancelling():
                raise ModelUnavailable(f"{self.model} was stopped") from None
            raise

    def _answered(self, text: str, task: asyncio.Task[Matrix]) -> None:
        del self._asked[text]
        if task.cancelled() or task.exception() is not None:
            return
        vector = task.result()
        vector.setflags(write=False)
        if self._most <= 0 or len(text) > _LONGEST_KEPT_CHARS:
            return
        self._known[text] = vector
        if len(self._known) > self._most:
            self._known.popitem(last=False)
