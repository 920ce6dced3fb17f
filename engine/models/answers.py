"""Reading the bodies that endpoints answer with. Pure."""

import base64
import binascii

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from engramlog.schemas.errors import ModelRefused


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Embedding(_Body):
    embedding: str | list[float]
    index: int | None = None


class _Embeddings(_Body):
    data: list[_Embedding]


class _Message(_Body):
    content: str | None = None
    refusal: str | None = None


class _Choice(_Body):
    message: _Message
    finish_reason: str | None = None


class _Chat(_Body):
    choices: list[_Choice]


def vectors(body: bytes, count: int, *, source: str) -> NDArray[np.float32]:
    """The vectors of an answer, in the order of the texts, as the model gave them: ``(count, d)``.

    Args:
        body: The answer's bytes; vectors as lists of numbers or as base64 of little-endian float32.
        count: How many texts were sent.
        source: Who answered, for messages.

    Raises:
        ModelRefused: It is no such answer: broken JSON, another number of vectors, unequal lengths, NaN.
    """
    try:
        data = _Embeddings.model_validate_json(body).data
    except ValidationError:
        raise ModelRefused(f"{source} gave no JSON with embeddings") from None
    if len(data) != count:
        raise ModelRefused(f"{source} gave {len(data)} vectors for {count} texts")
    if all(one.index is not None for one in data):
        data = sorted(data, key=lambda one: one.index or 0)
        if [one.index for one in data] != list(range(count)):
            raise ModelRefused(f"{source} gave vectors whose indexes are not 0 to {count - 1}")
    rows = [_row(one.embedding, source) for one in data]
    lengths = sorted({len(row) for row in rows})
    if len(lengths) > 1 or lengths == [0]:
        raise ModelRefused(f"{source} gave vectors of {' and '.join(map(str, lengths))} components")
    matrix = np.stack(rows) if rows else np.empty((0, 0), np.float32)
    if not np.isfinite(matrix).all():
        raise ModelRefused(f"{source} gave a vector with a component that is no finite number")
    return matrix


def _row(embedding: str | list[float], source: str) -> NDArray[np.float32]:
    if isinstance(embedding, list):
        with np.errstate(over="ignore"):  # what overflows becomes infinite, and is refused as such
            return np.asarray(embedding, dtype=np.float32)
    try:
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4").astype(np.float32)
    except (binascii.Error, ValueError):
        raise ModelRefused(f"{source} gave a vector that is no base64 of float32") from None


def said(body: bytes, *, source: str) -> str:
    """The text of a chat answer; empty if there is none.

    Raises:
        ModelRefused: It is no chat answer, the model declined, or its answer was cut off.
    """
    try:
        choices = _Chat.model_validate_json(body).choices
    except ValidationError:
        raise ModelRefused(f"{source} gave no JSON with a chat answer") from None
    if not choices:
        raise ModelRefused(f"{source} gave an answer without a choice")
    choice = choices[0]
    if choice.message.refusal:
        raise ModelRefused(f"the model at {source} declined to answer")
    if choice.finish_reason == "length":
        raise ModelRefused(f"the model at {source} was cut off by the token limit")
    return choice.message.content or ""
