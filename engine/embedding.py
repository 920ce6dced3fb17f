"""Embedding records: long texts in chunks, a publisher's own vector where it fits, one bad text apart from others."""

import asyncio
import base64
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engramlog.engine.embedders.chunking import chunks
from engramlog.engine.ports import Embedder, Matrix
from engramlog.engine.texts import embeddable
from engramlog.schemas import derived as d
from engramlog.schemas.errors import ModelRefused, ModelUnavailable
from engramlog.schemas.records import MemoryRecord

OVERLAP_SHARE = 0.1
"""Which share of a chunk the next one repeats."""
_HARMLESS = "hello"
"""What every model takes: when it does not, it is the model that is at fault and not the text."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vectors of one record.

    Attributes:
        vectors: As the event has them; None: the model would not take the text.
        first: The vector of the first chunk.
        unembedded: How many characters at the end are in no vector.
        degraded: What went wrong.
    """

    vectors: d.Vectors | None = None
    first: Matrix | None = None
    unembedded: int = 0
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be embedded for one record; ``own``: the vector that its publisher had."""

    spans: list[tuple[int, int]]
    texts: list[str]
    unembedded: int
    own: Matrix | None = None


async def embed(embedder: Embedder, records: Sequence[tuple[MemoryRecord, str]]) -> list[Embedded]:
    """Embed records, each given with the end of the text before it.

    Raises:
        ModelUnavailable: The embedder does not answer now, or gives nonsense for any text (broken answers, another
            dimension): nothing is derived without its vector because of that.
    """
    plans = await asyncio.to_thread(_plans, embedder, records)  # where to cut is looked for character by character
    texts = [text for plan in plans for text in plan.texts]
    try:
        matrix = await embedder.passages(texts)
    except ModelRefused:
        await _check(embedder)
        return [await _alone(embedder, plan) for plan in plans]
    found, taken = [], 0
    for plan in plans:
        rows = matrix[taken : taken + len(plan.texts)]
        taken += len(plan.texts)
        found.append(_packed(embedder, plan, rows))
    return found


def _plans(embedder: Embedder, records: Sequence[tuple[MemoryRecord, str]]) -> list[_Plan]:
    return [_plan(embedder, record, previous) for record, previous in records]


def _plan(embedder: Embedder, record: MemoryRecord, previous: str) -> _Plan:
    text = embeddable(record, None)
    own = record.embedding
    if own is not None and own.model == embedder.model and own.dimension == embedder.dimension:
        vector = np.asarray(own.vector(), dtype=np.float32)
        length = float(np.linalg.norm(vector))
        if length > 0.0:
            return _Plan([(0, len(text))], [], 0, own=(vector / length)[None, :])
    size = embedder.chunk_chars
    spans = chunks(text, chunk_chars=size, overlap_chars=round(size * OVERLAP_SHARE), most=d.MAX_CHUNKS)
    texts = [text[begin:end] for begin, end in spans]
    if texts and previous and len(spans) == 1:
        texts[0] = embeddable(record, previous)
    return _Plan(spans, texts, len(text) - spans[-1][1] if spans else len(text))


async def _check(embedder: Embedder) -> None:
    try:
        await embedder.passages([_HARMLESS])
    except ModelRefused as error:
        raise ModelUnavailable(f"the embedder gives nothing that can be used: {error}") from None


async def _alone(embedder: Embedder, plan: _Plan) -> Embedded:
    """Embed one record for itself: one of the batch was refused, and it may not be this one."""
    try:
        return _packed(embedder, plan, await embedder.passages(plan.texts))
    except ModelRefused as error:
        return Embedded(unembedded=plan.spans[-1][1] + plan.unembedded, degraded=(f"embedding: {error}"[:256],))


def _packed(embedder: Embedder, plan: _Plan, rows: Matrix) -> Embedded:
    matrix = plan.own if plan.own is not None else rows
    if not plan.spans:
        return Embedded(unembedded=plan.unembedded)
    packed = base64.b64encode(np.ascontiguousarray(matrix, dtype="<f4").tobytes()).decode()
    vectors = d.Vectors(model=embedder.model, dimension=embedder.dimension, values=packed, spans=tuple(plan.spans))
    return Embedded(vectors, matrix[0], plan.unembedded)
