"""Looking at the vectors from outside: ``points``, for comparing them with the log.

One request looks at one agent's points; of everybody's, ``users`` must be ``all``. What is told are hashes, and, for
records that are named, the payload that recall filters by. No text of a record is in it.
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from engramlog.schemas.asking import Offset, Query
from engramlog.schemas.json_values import JsonObject
from engramlog.schemas.records import Wire
from engramlog.schemas.scope import Identifier

Hash = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2})*$", max_length=64)]
PointId = Annotated[str, StringConstraints(min_length=1, max_length=64)]
MAX_POINTS = 1_000


class PointsQuery(Query):
    """The points of an agent, in the order of their ids, a page at a time.

    Attributes:
        users: ``all``: points are looked at as a whole.
        record_ids: Of these records only, with their payload; empty: of all, without.
        after: Where to go on, as the page before said; None: at the beginning.
        limit: So many at most.
    """

    ask: Literal["points"] = "points"
    users: Literal["all"] = "all"
    record_ids: Annotated[tuple[Identifier, ...], Field(max_length=100)] = ()
    after: PointId | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_POINTS, strict=True)] = MAX_POINTS


class PointState(Wire):
    """What counts of a point.

    Attributes:
        id: Its id.
        record_id: Of which record.
        sequence: Offset of what it was made from in the derived topic.
        partition: The partition of that.
        hash: Of all that counts, 64 hexadecimal digits.
        dense: Hash of its dense rows; empty: it has none. Told of named records.
        terms: Hash of its terms, likewise.
        payload: Its payload without hints. Told of named records.
    """

    id: PointId
    record_id: str
    sequence: Offset
    partition: Offset
    hash: Hash
    dense: Hash = ""
    terms: Hash = ""
    payload: JsonObject | None = None


class PointsAnswer(Wire):
    """Points of an agent.

    Attributes:
        version: Number of the version of the vectors that was looked at.
        generation: The generation of derivations that it holds.
        points: In the order of their ids.
        after: Where the next page goes on; None: that was all.
    """

    kind: Literal["points"]
    version: Offset
    generation: Offset
    points: tuple[PointState, ...]
    after: PointId | None = None
