"""What a search finds."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np

from engramlog.engine.ports import Matrix
from engramlog.engine.vectors.points import DENSE

PAYLOAD_KEYS: Final = (
    "record_id",
    "session",
    "user",
    "position",
    "sequence",
    "turn",
    "role",
    "speaker",
    "layer",
    "kind",
    "origin",
    "topic",
    "importance",
    "confidence",
    "happened",
    "expires",
    "terms",
)
"""What a candidate needs of a point's payload."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A record that a search found.

    Attributes:
        record_id: Its id.
        session: Its session; empty: none.
        user: Its user; empty: it is shared.
        position: Its offset in the agent's partition of records.
        sequence: Offset of its derivation in the derived topic.
        turn: The how-many-th of its session it is.
        role: As derived; so are the following.
        speaker: Who said it, in lower case.
        layer: Its layer.
        kind: Its kind.
        origin: Its origin.
        topic: Its topic.
        importance: 0 to 1.
        confidence: 0 to 1; None: not stated.
        happened: When it happened, in UTC.
        expires: From when on it is no longer recalled.
        terms: Indexes of its terms, see :func:`~engramlog.engine.vectors.points.term_index`.
        dense: Cosine similarity of its nearest chunk; None: it has no vector, or none was asked for.
        words: BM25 of the question's terms; 0.0: it holds none of them.
        vector: Its chunks as rows of unit length, where they were wanted and are there.
    """

    record_id: str
    session: str
    user: str
    position: int
    sequence: int
    turn: int
    role: str
    speaker: str | None
    layer: str | None
    kind: str
    origin: str
    topic: str | None
    importance: float
    confidence: float | None
    happened: datetime
    expires: datetime | None
    terms: frozenset[int]
    dense: float | None
    words: float
    vector: Matrix | None = None


def candidate_of(payload: Mapping[str, Any], *, dense: float | None, words: float, vector: Any = None) -> Candidate:
    """A candidate from a point's payload, its scores and (where wanted) its vectors by name."""
    rows = vector.get(DENSE) if vector else None
    expires = payload.get("expires")
    return Candidate(
        record_id=payload["record_id"],
        session=payload["session"],
        user=payload["user"],
        position=payload["position"],
        sequence=payload["sequence"],
        turn=payload["turn"],
        role=payload["role"],
        speaker=payload.get("speaker"),
        layer=payload.get("layer"),
        kind=payload["kind"],
        origin=payload["origin"],
        topic=payload.get("topic"),
        importance=payload["importance"],
        confidence=payload.get("confidence"),
        happened=datetime.fromisoformat(payload["happened"]),
        expires=None if expires is None else datetime.fromisoformat(expires),
        terms=frozenset(payload.get("terms") or ()),
        dense=dense,
        words=words,
        vector=None if rows is None else np.asarray(rows, dtype=np.float32),
    )
