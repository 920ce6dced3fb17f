"""Where the vectors of a subject point: a running mean, packed so small that it fits a session's state."""

import base64
import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from engramlog.engine.ports import Matrix

COMPONENTS: Final = 384
"""Of a longer vector only the first components count: the state stays small, whatever the model."""
PACKED_LENGTH: Final = 512
"""Characters of a packed centroid."""

_NEWEST: Final = 0.3
_MOST: Final = 16
_SHORTEST: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Seen:
    """A subject's vectors so far.

    Attributes:
        centroid: Their running mean: ``int8``, base64.
        nearness: The mean cosine of vectors with their centroid.
        vectors: How many vectors that is the mean of, up to 16.
    """

    centroid: str
    nearness: float
    vectors: int


def seen(centroid: str, usual: float, vectors: int, vector: Matrix | None) -> Seen | None:
    """One more vector; None: it says nothing. An empty centroid, or one of another model, begins anew."""
    direction = _unit(vector)
    if direction is None:
        return None
    near = nearness(centroid, vector)
    if near is None:
        return Seen(_packed(direction), usual, max(1, vectors))
    # Single precision differs between machines in the last digits: what is kept is rounded far above them.
    usual = round(usual + (near - usual) / max(1, vectors), 4)
    mixed = (1.0 - _NEWEST) * _unpacked(centroid) + _NEWEST * direction
    return Seen(_packed(mixed), usual, min(_MOST, vectors + 1))


def nearness(centroid: str, vector: Matrix | None) -> float | None:
    """The cosine of a vector with the centroid, to four digits; None: one is missing, or they differ in length."""
    direction = _unit(vector)
    if direction is None or not centroid:
        return None
    centre = _unpacked(centroid)
    if len(centre) != len(direction):
        return None
    return round(float(direction @ centre), 4)


def _unit(vector: Matrix | None) -> Matrix | None:
    if vector is None:
        return None
    cut = np.asarray(vector, dtype=np.float32).ravel()[:COMPONENTS]
    length = float(np.linalg.norm(cut))
    return cut / np.float32(length) if math.isfinite(length) and length > _SHORTEST else None


def _packed(direction: Matrix) -> str:
    scaled = np.rint(direction / (np.abs(direction).max() or 1.0) * 127.0).astype(np.int8)
    return base64.b64encode(scaled.tobytes()).decode()


def _unpacked(centroid: str) -> Matrix:
    values = np.frombuffer(base64.b64decode(centroid), dtype=np.int8).astype(np.float32)
    return values / np.float32(np.linalg.norm(values) or 1.0)
