"""What is asked of the embedded engine, said twice: in plain values for the pipe, and in the classes of Qdrant Edge.

The plain form of a filter is that of Qdrant's REST interface. This module does without ``qdrant_client``, whose import
would take the child most of a second and tens of megabytes.
"""

from collections.abc import Mapping
from typing import Any, TypedDict

import numpy as np
import qdrant_edge as edge

from engramlog.engine.vectors.framing import Asked, NewPoint, PlainVectors

_RANGE = ("gt", "gte", "lt", "lte")


class Collection(TypedDict):
    """What a shard is made of."""

    dimension: int
    keywords: list[str]
    integers: list[str]
    floats: list[str]
    times: list[str]


def config_of(collection: Collection) -> edge.EdgeConfig:
    """A shard without graph: with a tenant in the filter, comparing with all of its points is exact and fast."""
    best_row = edge.MultiVectorConfig(edge.MultiVectorComparator.MaxSim)
    dense = edge.EdgeVectorParams(size=collection["dimension"], distance=edge.Distance.Dot, multivector_config=best_row)
    return edge.EdgeConfig(
        vectors={"dense": dense},
        sparse_vectors={"terms": edge.EdgeSparseVectorParams()},
        optimizers=edge.EdgeOptimizersConfig(indexing_threshold=1_000_000_000),
        wal_enabled=True,
    )


def indexes_of(collection: Collection) -> dict[str, Any]:
    """The payload indexes by key."""
    kinds = {
        "keywords": edge.PayloadSchemaType.Keyword,
        "integers": edge.PayloadSchemaType.Integer,
        "floats": edge.PayloadSchemaType.Float,
        "times": edge.PayloadSchemaType.Datetime,
    }
    wanted: dict[str, Any] = {key: kind for name, kind in kinds.items() for key in collection[name]}  # type: ignore[literal-required]  # keys of a TypedDict
    wanted["tenant"] = edge.KeywordIndexParams(is_tenant=True)
    return wanted


def filter_of(plain: Mapping[str, Any]) -> edge.Filter:
    """A filter."""
    return edge.Filter(
        must=_conditions(plain.get("must")),
        should=_conditions(plain.get("should")),
        must_not=_conditions(plain.get("must_not")),
    )


def maybe_filter_of(plain: Mapping[str, Any] | None) -> edge.Filter | None:
    """A filter, or none."""
    return None if plain is None else filter_of(plain)


def _conditions(plain: Any) -> list[Any] | None:
    if plain is None:
        return None
    return [condition_of(one) for one in (plain if isinstance(plain, list) else [plain])]


def condition_of(plain: Mapping[str, Any]) -> Any:
    """A condition.

    Raises:
        ValueError: It is none that we translate.
    """
    if "key" in plain:
        return edge.FieldCondition(plain["key"], match=_match(plain.get("match")), range=_range(plain.get("range")))
    if "has_id" in plain:
        return edge.HasIdCondition(set(plain["has_id"]))
    if "has_vector" in plain:
        return edge.HasVectorCondition(plain["has_vector"])
    if "is_empty" in plain:
        return edge.IsEmptyCondition(plain["is_empty"]["key"])
    if plain.keys() <= {"must", "should", "must_not"}:
        return filter_of(plain)
    raise ValueError(f"no translation for a condition on {sorted(plain)}")


def _match(plain: Mapping[str, Any] | None) -> Any:
    if plain is None:
        return None
    if "value" in plain:
        return edge.MatchValue(plain["value"])
    if "any" in plain:
        return edge.MatchAny(list(plain["any"]))
    if "except" in plain:
        return edge.MatchExcept(list(plain["except"]))
    raise ValueError(f"no translation for a match of {sorted(plain)}")


def _range(plain: Mapping[str, Any] | None) -> Any:
    if plain is None:
        return None
    bounds = {name: plain[name] for name in _RANGE if plain.get(name) is not None}
    if any(hasattr(bound, "isoformat") for bound in bounds.values()):
        return edge.RangeDateTime(**{name: bound.isoformat() for name, bound in bounds.items()})
    return edge.RangeFloat(**bounds)


def request_of(asked: Asked) -> edge.QueryRequest:
    """A query: nearest to a dense or sparse vector, or just what the filter finds."""
    query = None
    if asked.dense is not None:
        rows = np.frombuffer(asked.dense, dtype="<f4").reshape(asked.rows, -1)
        query = edge.Query.Nearest(rows.tolist(), using="dense")
    elif asked.sparse is not None:
        query = edge.Query.Nearest(edge.SparseVector(*asked.sparse), using="terms")
    return edge.QueryRequest(
        limit=asked.limit,
        query=query,
        filter=maybe_filter_of(asked.where),
        with_payload=asked.payload,
        with_vector=asked.vectors,
    )


def point_of(new: NewPoint) -> edge.Point:
    """A point."""
    vector: dict[str, Any] = {}
    if new.dense is not None:
        vector["dense"] = np.frombuffer(new.dense, dtype="<f4").reshape(new.rows, -1).tolist()
    if new.sparse is not None:
        vector["terms"] = edge.SparseVector(*new.sparse)
    return edge.Point(id=new.id, vector=vector, payload=new.payload)


def plain_vectors(vector: Any) -> PlainVectors | None:
    """The vectors of a found point."""
    if vector is None:
        return None
    found: PlainVectors = {}
    if "dense" in vector:
        rows = vector["dense"]
        found["dense"] = (np.asarray(rows, dtype="<f4").tobytes(), len(rows))
    if "terms" in vector:
        found["terms"] = (vector["terms"].indices, vector["terms"].values)
    return found
