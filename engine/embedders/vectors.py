"""Vectors as the engine wants them: float32, of unit length. Pure."""

import numpy as np
from numpy.typing import NDArray

from engramlog.engine.ports import Matrix
from engramlog.schemas.errors import ModelRefused

SMALLEST_LENGTH = 1e-6


def unit_rows(rows: NDArray[np.floating], *, count: int, dimension: int, model: str) -> Matrix:
    """Rows of unit length: ``(count, dimension)``, float32, C order.

    A vector without a direction (shorter than 1e-6) is refused, not replaced: whatever stood in its place would be
    near to something it has nothing to do with.

    Args:
        rows: As a model gave them.
        count: How many there must be.
        dimension: Components that each must have.
        model: Who gave them, for messages.

    Raises:
        ModelRefused: Another shape (both numbers are told), a component that is no finite number, a zero vector.
    """
    if count == 0:
        return np.empty((0, dimension), dtype=np.float32)
    if rows.ndim != 2 or len(rows) != count:  # noqa: PLR2004 - rows and columns
        raise ModelRefused(f"{model} gave an array of shape {rows.shape} for {count} texts")
    if rows.shape[1] != dimension:
        raise ModelRefused(f"{model} gave vectors of {rows.shape[1]} components, expected are {dimension}")
    if not np.isfinite(rows).all():
        raise ModelRefused(f"{model} gave a vector with a component that is no finite number")
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    if (lengths < SMALLEST_LENGTH).any():
        raise ModelRefused(f"{model} gave a vector of length zero, which has no direction")
    return np.ascontiguousarray(rows / lengths, dtype=np.float32)


def unit_row(row: NDArray[np.floating], *, dimension: int, model: str) -> Matrix:
    """One vector of unit length: ``(dimension,)``. Errors as :func:`unit_rows`."""
    rows = unit_rows(row[np.newaxis], count=1, dimension=dimension, model=model)
    return rows.reshape(dimension)
