"""From a derived record to its point: id, vectors and payload.

The dense vectors are rows of unit length, so that their dot products are cosines on every engine and every engine keeps
their bytes. The sparse vector is the document's half of BM25; the question brings the other half, the weights of its
terms. Times are RFC 3339 in UTC with microseconds, values of metadata are JSON texts (``3`` and ``"3"`` differ): both
are compared exactly on every engine.
"""

import hashlib
import json
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import numpy as np
from qdrant_client import models

from engramlog.engine.ports import Matrix, Upsert
from engramlog.schemas.derived import Derived, RecordDerived
from engramlog.schemas.derived import Vectors as Embedding
from engramlog.schemas.errors import Unprocessable
from engramlog.schemas.keys import record_key

DENSE: Final = "dense"
"""Name of the dense multivector: one row a chunk, compared by its best row."""
TERMS: Final = "terms"
"""Name of the sparse vector, and of the payload key with the same indexes."""
K1: Final = 0.9
B: Final = 0.4
AVERAGE_TERMS: Final = 20.0
"""Length in terms of the text that BM25 takes for average; a constant, so that no point changes with the others."""

KEYWORDS: Final = (
    *("tenant", "agent", "session", "user", "record_id", "role", "layer", "kind", "origin", "tags", "topic"),
    *("left", "invalid"),
)
INTEGERS: Final = ("terms", "position", "turn")
TIMES: Final = ("happened", "expires")
FLOATS: Final = ("importance", "confidence")
HINTS: Final = ("left", "invalid")
"""Payload keys that only spare the reader a look: no part of what the point says."""

_NAMESPACE = uuid.UUID("6f5d2f0e-3a5b-5d0c-9a52-7c1be0a4d3f1")
_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}
"""The first digit of the fourth group of an id, by that of the hash (RFC 9562)."""
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_NEARLY_ONE = 1e-5
"""A squared length so near to 1 is left as it is: the model's own bytes are kept."""
_MOST: Final = 2**63 - 1
"""The largest integer that every engine keeps as one."""


@lru_cache(maxsize=262_144)
def term_index(term: str) -> int:
    """Index of a term in the sparse vector: CRC-32 of its UTF-8."""
    return zlib.crc32(term.encode())


def point_id(tenant: str, agent: str, record_id: str) -> str:
    """Id of a record's point, computed from the record's key."""
    # uuid.uuid5(_NAMESPACE, key) in a quarter of its time
    h = hashlib.sha1(_NAMESPACE.bytes + record_key(tenant, agent, record_id), usedforsecurity=False).hexdigest()
    return f"{h[:8]}-{h[8:12]}-5{h[13:16]}-{_VARIANT[h[16]]}{h[17:20]}-{h[20:32]}"


def instant_text(time: datetime) -> str:
    """A time as the payload holds it."""
    return in_utc(time).isoformat(timespec="microseconds")


def in_utc(time: datetime) -> datetime:
    """The same instant in UTC; at the ends of the calendar the last one that UTC has."""
    try:
        return time.astimezone(UTC)
    except OverflowError:
        return _FIRST if time.year == _FIRST.year else _LAST


def metadata_text(value: object) -> str:
    """A scalar of metadata as the payload holds it: ``1.0`` is ``1``, as in JSON Schema, and no ``true``."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, ensure_ascii=False)


def picked(metadata: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Of metadata the values under dotted keys, as nested objects of lists of texts; other values are left out."""
    found: dict[str, Any] = {}
    for key in keys:
        *parents, last = key.split(".")
        value: Any = metadata
        for part in (*parents, last):
            value = value.get(part) if isinstance(value, Mapping) else None
        texts = [metadata_text(v) for v in (value if isinstance(value, (list, tuple)) else [value]) if _is_scalar(v)]
        if texts:
            place = found
            for part in parents:
                place = place.setdefault(part, {})
            place[last] = texts
    return found


def _is_scalar(value: object) -> bool:
    return isinstance(value, (str, bool, int, float))


def dense_rows(embeddings: Sequence[Embedding | None]) -> list[Matrix | None]:
    """Of each embedding the vectors at unit length; rows of zeros, which have no direction, are left out.

    All those of one dimension are looked at together: one by one numpy takes longer to be called than to compute.
    """
    found: list[Matrix | None] = [None] * len(embeddings)
    by_dimension: dict[int, list[int]] = {}
    for i, embedding in enumerate(embeddings):
        if embedding is not None:
            by_dimension.setdefault(embedding.dimension, []).append(i)
    for dimension, places in by_dimension.items():
        packed = [embedding.packed() for i in places if (embedding := embeddings[i]) is not None]
        rows = np.frombuffer(b"".join(packed), dtype="<f4").reshape(-1, dimension)
        kept = bool(np.all(_are_one(_squares(rows))))
        begin = 0
        for i, one in zip(places, packed, strict=True):
            end = begin + len(one) // (4 * dimension)
            found[i] = rows[begin:end] if kept else unit(rows[begin:end])
            begin = end
    return found


def unit(rows: Matrix) -> Matrix | None:
    """Rows at unit length, without those that are zero; None: none is left."""
    rows = np.asarray(rows, dtype=np.float32)
    squares = _squares(rows)
    if not np.all(_are_one(squares)):
        whole = squares > 0.0
        lengths = np.where(_are_one(squares), 1.0, np.sqrt(squares))
        rows = (rows[whole] / lengths[whole, None]).astype(np.float32)
    return rows if len(rows) else None


def _squares(rows: Matrix) -> Any:
    return np.einsum("ij,ij->i", rows, rows, dtype=np.float64)


def _are_one(squares: Any) -> Any:
    return np.abs(squares - 1.0) < _NEARLY_ONE


def document_weights(derived: Derived) -> dict[int, float]:
    """The document's half of BM25 by index: ``tf·(k1+1) / (tf + k1·(1 - b + b·length/average))``.

    Terms of the same index are summed.
    """
    slope = K1 * (1.0 - B + B * derived.length / AVERAGE_TERMS)
    weights: dict[int, float] = {}
    for term, tf in derived.terms.items():
        index = term_index(term)
        weights[index] = weights.get(index, 0.0) + tf * (K1 + 1.0) / (tf + slope)
    return dict(sorted(weights.items()))


def check_numbers(event: RecordDerived) -> None:
    """Refuse what no engine keeps as it is.

    Raises:
        Unprocessable: A number has more than 63 bits.
    """
    if event.data.offset > _MOST or event.data.turn > _MOST:
        raise Unprocessable(f"'offset' and 'turn' of {event.data.record_id!r} must be below 2^63")


def upsert_of(event: RecordDerived, *, sequence: int, partition: int, metadata_keys: Iterable[str] = ()) -> Upsert:
    """The point of a derived record, to be written unless a later one is there. See :func:`point_struct`."""
    (rows,) = dense_rows([event.data.embedding])
    point = point_struct(event, rows, sequence=sequence, partition=partition, metadata_keys=metadata_keys)
    return Upsert(point, sequence)


def point_struct(
    event: RecordDerived, rows: Matrix | None, *, sequence: int, partition: int, metadata_keys: Iterable[str] = ()
) -> models.PointStruct:
    """The point of a derived record.

    Args:
        event: What was derived.
        rows: Its vectors, see :func:`dense_rows`; they stay an array: lists of floats are slow.
        sequence: Offset of the event in its topic.
        partition: Partition of the record.
        metadata_keys: Dotted keys of the metadata that can be filtered by.
    """
    derived = event.data
    weights = document_weights(derived)
    vector: dict[str, Any] = {}
    if rows is not None:
        vector[DENSE] = rows
    if weights:  # nothing is to be validated: it was decoded, and computed from what was
        vector[TERMS] = models.SparseVector.model_construct(indices=list(weights), values=list(weights.values()))
    payload = _payload(event, metadata_keys)
    payload |= {"sequence": sequence, "partition": partition, "terms": list(weights)}
    return models.PointStruct.model_construct(
        id=point_id(event.tenantid, event.agentid, derived.record_id), vector=vector, payload=payload
    )


def _payload(event: RecordDerived, metadata_keys: Iterable[str]) -> dict[str, Any]:
    d = event.data
    payload: dict[str, Any] = {
        "tenant": event.tenantid,
        "agent": event.agentid,
        "session": event.sessionid or "",
        "user": event.userid or "",
        "position": d.offset,
        "record_id": d.record_id,
        "role": d.role,
        "kind": d.kind,
        "origin": d.origin,
        "importance": d.importance,
        "happened": instant_text(d.timestamp),
        "turn": d.turn,
    }
    if d.layer is not None:
        payload["layer"] = d.layer
    if d.tags:
        payload["tags"] = list(d.tags)
    if d.topic is not None:
        payload["topic"] = d.topic
    if d.confidence is not None:
        payload["confidence"] = d.confidence
    if d.expires_at is not None:
        payload["expires"] = instant_text(d.expires_at)
    if d.role_name:
        payload["speaker"] = d.role_name.lower()
    if metadata := picked(d.metadata, metadata_keys):
        payload["metadata"] = metadata
    return payload
