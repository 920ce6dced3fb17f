"""A digest of points that depends neither on their order nor on the engine."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from qdrant_client import models

from engramlog.engine.vectors.points import DENSE, HINTS, TERMS

_BITS: Final = 256
_SHORT: Final = 16


@dataclass(frozen=True, slots=True)
class Point:
    """What counts of a point.

    Attributes:
        id: Its id.
        hash: Of all that counts, see :func:`hash_of`.
        payload: Its payload without hints.
        dense: Hash of its dense rows, 32 hexadecimal digits; empty: it has none.
        terms: Hash of its terms and their weights, likewise.
    """

    id: str
    hash: int
    payload: Mapping[str, Any]
    dense: str = ""
    terms: str = ""

    @property
    def agent(self) -> tuple[str, str]:
        """Whose it is: tenant and agent."""
        return str(self.payload.get("tenant")), str(self.payload.get("agent"))

    @property
    def record_id(self) -> str:
        """Of which record."""
        return str(self.payload.get("record_id"))

    @property
    def sequence(self) -> int:
        """Offset of what it was made from in the derived topic."""
        return int(self.payload.get("sequence", 0))

    @property
    def partition(self) -> int:
        """The partition of that."""
        return int(self.payload.get("partition", 0))


def examined(point: models.Record) -> Point:
    """A point as it counts."""
    payload = {key: value for key, value in (point.payload or {}).items() if key not in HINTS}
    dense, terms = _vectors(point)
    return Point(str(point.id), hash_of(point), payload, dense=_short(dense), terms=_short(terms))


def hash_of(point: models.Record) -> int:
    """A point's hash: of its id, payload without hints, and the bytes of its vectors as float32."""
    payload = {key: value for key, value in (point.payload or {}).items() if key not in HINTS}
    line = json.dumps([str(point.id), payload], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    digest = hashlib.blake2b(line.encode("utf-8", "surrogatepass"), digest_size=_BITS // 8)
    for part in _vectors(point):
        digest.update(part)
    return int.from_bytes(digest.digest())


def _vectors(point: models.Record) -> tuple[bytes, bytes]:
    """The bytes of its dense rows, and of its terms; empty: it has none."""
    vectors: Any = point.vector or {}
    dense = terms = b""
    rows = vectors.get(DENSE)
    if rows is not None:
        dense = b"\0dense\0" + np.ascontiguousarray(rows, dtype="<f4").tobytes()
    sparse = vectors.get(TERMS)
    if sparse is not None:
        indices = np.asarray(sparse.indices, dtype="<u4")
        order = np.argsort(indices)
        weights = np.asarray(sparse.values, dtype="<f4")[order]
        terms = b"\0terms\0" + indices[order].tobytes() + weights.tobytes()
    return dense, terms


def _short(part: bytes) -> str:
    return hashlib.blake2b(part, digest_size=_SHORT).hexdigest() if part else ""


def told(total: int) -> str:
    """The sum of hashes modulo 2^256, in hexadecimal."""
    return f"{total % (1 << _BITS):064x}"
