"""The vectors of records: kept in step with the derived topic, and searched by meaning and by words."""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from qdrant_client import models

from engramlog.engine.ports import FoundPoint, Matrix, Upsert, VectorEngine
from engramlog.engine.vectors import selecting
from engramlog.engine.vectors.candidates import PAYLOAD_KEYS, Candidate, candidate_of
from engramlog.engine.vectors.changes import Change, Dropped, Left, Unhinted, Written
from engramlog.engine.vectors.digest import Point, examined, hash_of, told
from engramlog.engine.vectors.points import (
    DENSE,
    TERMS,
    check_numbers,
    dense_rows,
    point_id,
    point_struct,
    term_index,
    unit,
)
from engramlog.schemas.errors import Unprocessable

__all__ = ["Candidate", "Change", "Dropped", "Frequencies", "Left", "Unhinted", "Vectors", "Written"]

LOAD: Final = 500
"""So many points are handed to the engine at once while a collection is built."""
_PAGE: Final = 256
_HINT: Final = {"cleared": "left", "removed": "left", "invalidated": "invalid"}


@dataclass(frozen=True, slots=True)
class Frequencies:
    """How common terms are.

    Attributes:
        total: How many records the tenant has.
        counts: How many of them hold each term.
    """

    total: int
    counts: Mapping[str, int]


class Vectors:
    """The vectors of one collection.

    All methods raise :class:`~engramlog.schemas.errors.StoreUnavailable` while the engine does not answer.

    Args:
        engine: Where they lie; started and stopped by whoever made it.
        metadata_keys: Dotted keys of the metadata that can be filtered by.
    """

    def __init__(self, engine: VectorEngine, *, metadata_keys: Sequence[str] = ()) -> None:
        self._engine = engine
        self._metadata_keys = tuple(metadata_keys)

    async def apply(self, changes: Sequence[Change]) -> None:
        """Apply changes in order. Doing it again, or with changes that were applied later, changes nothing.

        Raises:
            Unprocessable: A vector is of another model or dimension than the collection; nothing was applied then.
        """
        self._check(changes)
        for group in _grouped(changes):
            if isinstance(group, list):
                points = zip(group, self._points(group), strict=True)
                await self._engine.upsert([Upsert(point, change.sequence) for change, point in points])
            else:
                await self._take_out(group)

    async def build(self, changes: Sequence[Change]) -> None:
        """Apply changes in order to a collection that nobody else writes to: the result is that of :meth:`apply`.

        Several times quicker, because no condition is looked at: whatever comes counts. So the changes of a partition
        must come in its order. After an interruption they may be repeated from an earlier place on, all of them: the
        points are older for a while, and right again once all has been repeated.

        It may return before all is written (see :meth:`VectorEngine.load`); every other method waits for that.

        Raises:
            Unprocessable: A vector is of another model or dimension than the collection; nothing was applied then.
            StoreUnavailable: Some or none were applied. The same changes can be given again.
        """
        self._check(changes)
        for group in _grouped(changes):
            if isinstance(group, list):
                last = [*{_record(change): change for change in group}.values()]
                for i in range(0, len(last), LOAD):
                    await self._engine.load(self._points(last[i : i + LOAD]))
            else:
                await self._take_out(group)

    def _check(self, changes: Sequence[Change]) -> None:
        spec = self._engine.spec
        for change in changes:
            if not isinstance(change, Written):
                continue
            check_numbers(change.event)
            embedding = change.event.data.embedding
            if embedding and spec and (embedding.model, embedding.dimension) != (spec.model, spec.dimension):
                raise Unprocessable(
                    f"the vectors of {change.event.data.record_id!r} are of {embedding.model} with "
                    f"{embedding.dimension} dimensions, those of collection {spec.name!r} of {spec.model} with "
                    f"{spec.dimension}"
                )

    def _points(self, changes: Sequence[Written]) -> list[models.PointStruct]:
        rows = dense_rows([change.event.data.embedding for change in changes])
        keys = self._metadata_keys
        return [
            point_struct(c.event, r, sequence=c.sequence, partition=c.partition, metadata_keys=keys)
            for c, r in zip(changes, rows, strict=True)
        ]

    async def _take_out(self, change: Change) -> None:
        if isinstance(change, Dropped):
            where = selecting.with_ids(
                selecting.of_tenant(change.tenant), [point_id(change.tenant, change.agent, change.record_id)]
            )
            earlier = selecting.between("sequence", lt=change.sequence)
            await self._engine.delete(models.Filter(must=[*selecting.conditions(where), earlier]))
        elif isinstance(change, Unhinted):
            await self._engine.set_payload(dict.fromkeys(_HINT.values()), selecting.hinted(change.tenant, change.agent))
        elif isinstance(change, Left):
            data = change.event.data
            if not data.ids and (data.cause in {"removed", "invalidated"} or data.scope == "record"):
                return
            where = selecting.leaving(change.event, partition=change.partition)
            if data.cause == "erased":
                await self._engine.delete(where)
            else:
                await self._engine.set_payload({_HINT[data.cause]: "1"}, where)

    async def flush(self) -> None:
        """Return when what was applied survives a kill and a power cut."""
        await self._engine.flush()

    async def search(
        self,
        where: models.Filter,
        *,
        dense: Matrix | None,
        words: Mapping[str, float] | None,
        limit: int,
        vectors: bool = False,
    ) -> list[Candidate]:
        """The best points by meaning and the best by words, each with both scores; in no order.

        Args:
            where: Which points, see :func:`~engramlog.engine.vectors.selecting.selection`.
            dense: The question's vector, ``(dimension,)``; None: not by meaning.
            words: Weights (inverse document frequencies) of the question's terms; None or empty: not by words.
            limit: So many of each kind at most.
            vectors: Whether the candidates' vectors are wanted.
        """
        arms = _arms(dense, words)
        if not arms:
            return []
        wanted: list[str] = [DENSE] if vectors else []
        answers = await self._engine.query(
            [_request(arm, where, limit=limit, payload=PAYLOAD_KEYS, vectors=wanted) for arm in arms]
        )
        found = {point.id: point for answer in answers for point in answer}
        scores = [{point.id: point.score for point in answer} for answer in answers]
        missing = [[key for key in found if key not in known] for known in scores]
        asked = [
            (i, _request(arm, selecting.with_ids(where, missing[i]), limit=len(missing[i])))
            for i, arm in enumerate(arms)
            if missing[i]
        ]
        if asked:
            rest = await self._engine.query([request for _, request in asked])
            for (i, _), answer in zip(asked, rest, strict=True):
                scores[i].update({point.id: point.score for point in answer})
        return _scored(found, arms, scores)

    async def frequencies(self, tenant: str, terms: Collection[str]) -> Frequencies:
        """How many records a tenant has, and how many of them hold each term."""
        wanted = list(dict.fromkeys(terms))
        total, *counts = await self._engine.count(
            [selecting.of_tenant(tenant), *(selecting.with_term(tenant, term_index(term)) for term in wanted)]
        )
        return Frequencies(total, dict(zip(wanted, counts, strict=True)))

    async def count(self, tenant: str) -> int:
        """How many records a tenant has."""
        (total,) = await self._engine.count([selecting.of_tenant(tenant)])
        return total

    async def points(
        self,
        *,
        agent: tuple[str, str] | None = None,
        record_ids: Sequence[str] = (),
        after: str | None = None,
        limit: int = _PAGE,
    ) -> tuple[list[Point], str | None]:
        """What counts of points, in the order of their ids, a page at a time.

        Args:
            agent: Of this tenant's agent only; None: of all.
            record_ids: Of these records only, with ``agent``.
            after: Where to go on, as the page before said.
            limit: So many at most.

        Returns:
            The points, and where the next page goes on; None: that was all.
        """
        where = None
        if agent is not None:
            must: list[models.Condition] = [selecting.equals("tenant", agent[0]), selecting.equals("agent", agent[1])]
            where = models.Filter(must=[*must, *([selecting.among("record_id", record_ids)] if record_ids else [])])
        found, following = await self._engine.scroll(where, limit=limit, offset=after, vectors=True)
        return [examined(point) for point in found], None if following is None else str(following)

    async def digest(self, *, tenant: str | None = None) -> str:
        """A digest of all points, or a tenant's: their vectors and payload, without hints.

        It depends neither on the order in which they were written nor on the engine.
        """
        where = None if tenant is None else selecting.of_tenant(tenant)
        total, offset = 0, None
        while True:
            points, offset = await self._engine.scroll(where, limit=_PAGE, offset=offset, vectors=True)
            total += sum(hash_of(point) for point in points)
            if offset is None:
                return told(total)


def _grouped(changes: Sequence[Change]) -> Iterator[list[Written] | Change]:
    """What is written, as long runs; whatever else, one by one."""
    for written, group in itertools.groupby(changes, key=lambda change: isinstance(change, Written)):
        if written:
            yield [change for change in group if isinstance(change, Written)]
        else:
            yield from group


def _record(change: Written) -> tuple[str, str, str]:
    return change.event.tenantid, change.event.agentid, change.event.data.record_id


@dataclass(frozen=True, slots=True)
class _Arm:
    """A way of searching: by which vector, and nearest to what."""

    using: str
    query: Any


def _arms(dense: Matrix | None, words: Mapping[str, float] | None) -> list[_Arm]:
    arms = []
    row = None if dense is None else unit(np.atleast_2d(dense))
    if row is not None:
        arms.append(_Arm(DENSE, row))
    weights: dict[int, float] = {}
    for term, weight in (words or {}).items():
        weights[term_index(term)] = weights.get(term_index(term), 0.0) + weight
    if weights:
        arms.append(_Arm(TERMS, models.SparseVector(indices=list(weights), values=list(weights.values()))))
    return arms


def _request(
    arm: _Arm, where: models.Filter, *, limit: int, payload: Sequence[str] = (), vectors: Sequence[str] = ()
) -> models.QueryRequest:
    return models.QueryRequest.model_construct(
        query=models.NearestQuery.model_construct(nearest=arm.query),  # an array: see EdgeEngine
        using=arm.using,
        filter=where,
        limit=limit,
        with_payload=list(payload) or False,
        with_vector=list(vectors) or False,
    )


def _scored(
    found: Mapping[str, FoundPoint], arms: Sequence[_Arm], scores: Sequence[Mapping[str, float]]
) -> list[Candidate]:
    by_name = {arm.using: known for arm, known in zip(arms, scores, strict=True)}
    dense, words = by_name.get(DENSE, {}), by_name.get(TERMS, {})
    return [
        candidate_of(point.payload or {}, dense=dense.get(key), words=words.get(key, 0.0), vector=point.vector)
        for key, point in found.items()
    ]
