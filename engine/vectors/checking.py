"""What no engine may be given: vectors of another dimension, and numbers that are none."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from qdrant_client import models

from engramlog.engine.ports import CollectionSpec, Matrix
from engramlog.engine.vectors.points import DENSE, TERMS
from engramlog.schemas.errors import Unprocessable


def dense_of(points: Sequence[models.PointStruct], spec: CollectionSpec) -> list[Matrix | None]:
    """The rows of each point's dense vector; None: it has none.

    Raises:
        Unprocessable: Some have another dimension than the collection, or hold NaN or infinity.
    """
    found: list[Matrix | None] = []
    for point in points:
        vector: Any = point.vector
        rows = vector.get(DENSE)
        found.append(None if rows is None else _fitting(np.asarray(rows, dtype=np.float32), spec))
    there = [rows for rows in found if rows is not None]
    if there and not np.isfinite(np.concatenate(there)).all():  # one look at all of them is quicker than one at each
        spoilt = next(i for i, rows in enumerate(found) if rows is not None and not np.isfinite(rows).all())
        raise Unprocessable(f"the dense vector of point {points[spoilt].id} holds NaN or infinity")
    return found


def _fitting(rows: Matrix, spec: CollectionSpec) -> Matrix:
    if rows.ndim != 2 or rows.shape[1] != spec.dimension or not len(rows):  # noqa: PLR2004 - rows of components
        raise Unprocessable(
            f"a vector of {rows.shape[-1]} dimensions does not fit into collection {spec.name!r}, whose vectors are "
            f"of {spec.model} with {spec.dimension} dimensions"
        )
    return rows


def sparse_of(point: models.PointStruct) -> tuple[list[int], list[float]] | None:
    """The indices and values of a point's sparse vector.

    Raises:
        Unprocessable: They hold NaN or infinity.
    """
    vector: Any = point.vector
    sparse = vector.get(TERMS)
    if sparse is None:
        return None
    if not all(map(math.isfinite, sparse.values)):
        raise Unprocessable(f"the sparse vector of point {point.id} holds NaN or infinity")
    return sparse.indices, sparse.values
