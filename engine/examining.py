"""Looking at the vectors that this process has open, for whoever compares them with the log."""

from dataclasses import dataclass
from typing import Any

from engramlog.engine.history.versions import Version
from engramlog.engine.vectors.digest import Point, told
from engramlog.engine.vectors.vectors import Vectors
from engramlog.schemas.examining import PointsAnswer, PointsQuery, PointState
from engramlog.schemas.scope import Scope


@dataclass(frozen=True, slots=True)
class Examination:
    """Answers ``points``.

    Attributes:
        vectors: The vectors.
        version: Which version of them that is.
    """

    vectors: Vectors
    version: Version

    async def points(self, scope: Scope, query: PointsQuery) -> PointsAnswer:
        """A page of the points of the scope's agent."""
        agent = (scope.tenant, scope.agent)
        found, after = await self.vectors.points(
            agent=agent, record_ids=query.record_ids, after=query.after, limit=query.limit
        )
        return PointsAnswer(
            kind="points",
            version=self.version.number,
            generation=self.version.generation,
            points=tuple(state_of(point, in_full=bool(query.record_ids)) for point in found),
            after=after,
        )


def state_of(point: Point, *, in_full: bool) -> PointState:
    """A point on the wire."""
    told_of = {"dense": point.dense, "terms": point.terms, "payload": dict(point.payload)} if in_full else {}
    return PointState(
        id=point.id,
        record_id=point.record_id,
        sequence=point.sequence,
        partition=point.partition,
        hash=told(point.hash),
        **told_of,
    )


def point_of_state(state: PointState, agent: tuple[str, str]) -> Point:
    """A point as it came over the wire; without its payload what is known of it stands for that."""
    known: dict[str, Any] = {"tenant": agent[0], "agent": agent[1], "record_id": state.record_id}
    known |= {"sequence": state.sequence, "partition": state.partition}
    return Point(
        state.id,
        int(state.hash, 16),
        known if state.payload is None else state.payload,
        dense=state.dense,
        terms=state.terms,
    )
