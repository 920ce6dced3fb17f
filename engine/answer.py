"""Answering one query from the history and the vectors, or carrying out one command."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from engramlog.engine.commands import Commands
from engramlog.engine.contexts import Contexts
from engramlog.engine.examining import Examination
from engramlog.engine.history import History, Read
from engramlog.engine.history.view import offset_of
from engramlog.engine.named import Named
from engramlog.engine.positions import PositionWatch
from engramlog.engine.retrieve import Retrieval
from engramlog.schemas import queries as q
from engramlog.schemas.errors import Permanent, RequestRefused, Transient
from engramlog.schemas.scope import Scope

_log = logging.getLogger(__name__)

MAX_REPLY_BYTES = 700_000
"""How many bytes of records go into one reply; the rest is for the envelope and what surrounds the records."""
_SPARE_S = 0.25
"""How long before the deadline waiting ends, so that an answer can still be read and sent (at most a quarter)."""
_SPARE_SEARCHING_S = 1.5
"""Likewise of what is answered by meaning: the question is embedded, and the vectors are searched."""
_SPARE_FOUND_S = 0.75
"""How long before the deadline its models are waited for no longer (at most an eighth): the vectors are searched."""
_SEARCHING = frozenset({"recall", "similar", "context"})

Found = (
    Read[q.HistoryAnswer]
    | Read[q.RecordsAnswer]
    | Read[q.StatsAnswer]
    | Read[q.TopicsAnswer]
    | Read[q.RecallAnswer]
    | Read[q.ContextAnswer]
    | Read[q.SummariesAnswer]
    | Read[q.PointsAnswer]
)


@dataclass(frozen=True, slots=True)
class Searching:
    """What answers by meaning.

    Attributes:
        retrieval: What finds memories.
        watch: What waits until records can be found, and tells up to where they can.
        partition_of: The partition of records that holds an agent's events, with its topic.
    """

    retrieval: Retrieval
    watch: PositionWatch
    partition_of: Callable[[Scope], tuple[str, int]]

    async def read(self, scope: Scope, query: q.RecallQuery | q.SimilarQuery, *, until: float) -> Read[q.RecallAnswer]:
        """Search. The position is taken before: the answer may hold more, never less.

        Args:
            scope: Who asks.
            query: What is asked.
            until: When to go on without what models have not answered by then, in the running loop's time.
        """
        topic, partition = self.partition_of(scope)
        covered = (await self.watch.look()).get((topic, partition), 0)
        seen = (q.Reached(topic=topic, partition=partition, offset=covered - 1),) if covered else ()
        if isinstance(query, q.SimilarQuery):
            return Read(await self.retrieval.similar(scope, query, max_bytes=MAX_REPLY_BYTES, until=until), seen)
        return Read(await self.retrieval.recall(scope, query, max_bytes=MAX_REPLY_BYTES, until=until), seen)


@dataclass(frozen=True, slots=True)
class _Limits:
    """When to go on with what there is, in the running loop's time.

    Attributes:
        waiting: For positions and summaries.
        models: For what makes the question's vector, or expands it.
    """

    waiting: float
    models: float


def _limits(query: q.QueryAsked, began: float, timeout_s: float) -> _Limits:
    deadline = began + timeout_s
    spare_s = _SPARE_SEARCHING_S if query.data.ask in _SEARCHING else _SPARE_S
    return _Limits(deadline - min(spare_s, timeout_s / 4), deadline - min(_SPARE_FOUND_S, timeout_s / 8))


def unavailable_here() -> RequestRefused:
    """Why a process cannot search."""
    return RequestRefused(
        "unavailable",
        "this process has no vectors: the embedded store belongs to the process that runs 'index'; run both in one "
        "('engramlog up', or 'engramlog run … index answer'), or set ENGRAMLOG_VECTORS_URL to a Qdrant server",
    )


@dataclass(slots=True)
class Answers:
    """Answers queries. Where it searches may be replaced at any time.

    Attributes:
        history: The history store.
        watch: What waits for positions.
        reads: How many reads run at once; waiting for positions takes no place.
        commands: What carries out commands.
        derived: What waits until derivations are in the history.
        contexts: What makes contexts.
        searching: What answers by meaning; None: nothing does in this process.
        named: The named projections.
        examination: What looks at the vectors as a whole; None: this process has none.
    """

    history: History
    watch: PositionWatch
    reads: asyncio.Semaphore
    commands: Commands
    derived: PositionWatch
    contexts: Contexts
    searching: Searching | None = None
    named: Named | None = None
    examination: Examination | None = None

    async def __call__(self, query: q.QueryAsked, *, timeout_s: float) -> q.Reply:  # noqa: PLR0911 - one guard a line
        """Answer, or say why not; never raises.

        Args:
            query: What is asked.
            timeout_s: How much time is left, in seconds.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        limits = _limits(query, began, timeout_s)
        try:
            if query.data.projection is not None:
                return await self._answer_named(query, query.data.projection, limits)
            if isinstance(query.data, q.Command):
                return q.Reply(answer=await self.commands(query, until=limits.waiting))
            fresh = await self._wait(query, until=limits.waiting)
            waited = loop.time()
            async with self.reads:
                read = await self._read(query, limits)
        except Transient as error:
            return _failure("unavailable", f"{error}; try again")
        except RequestRefused as error:
            return _failure(_code(error), error.message)
        except Permanent as error:
            return _failure("bad_request", str(error))
        except Exception:  # noqa: BLE001 - logged; a fault of ours must not leave the caller waiting
            _log.exception("query %s failed", query.id)
            return _failure("internal", f"query {query.id} failed; the engine's log has the reason")
        if isinstance(query.data, q.RecordQuery) and isinstance(read.answer, q.RecordsAnswer):
            if read.answer.missing:
                return _failure("not_found", f"no record {query.data.record_id!r} in this scope")
            if read.answer.unread:
                return _failure("too_large", f"the record {query.data.record_id!r} does not fit into one reply")
        return q.Reply(
            answer=read.answer,
            positions=read.reached,
            stale=not fresh,
            waited_ms=round((waited - began) * 1000, 3),
            took_ms=round((loop.time() - waited) * 1000, 3),
        )

    async def _answer_named(self, query: q.QueryAsked, name: str, limits: _Limits) -> q.Reply:
        """Answer from a named projection: it stands still, so there is nothing to wait for."""
        if isinstance(query.data, q.Command) or self.named is None:
            raise RequestRefused("bad_request", f"the projection {name!r} is read-only")
        found = await self.named.reading(name)
        searching = None
        if found.retrieval is not None:
            searching = Searching(found.retrieval, PositionWatch(found.history.next_offsets), found.history.place)
        there = replace(
            self, history=found.history, contexts=found.contexts, searching=searching, named=None, examination=None
        )
        async with self.reads:
            read = await there._read(query, limits)  # noqa: SLF001 - one of us
        if isinstance(query.data, q.RecordQuery) and isinstance(read.answer, q.RecordsAnswer) and read.answer.missing:
            return _failure("not_found", f"no record {query.data.record_id!r} in this scope of {name!r}")
        return q.Reply(answer=read.answer, positions=read.reached)

    async def _wait(self, query: q.QueryAsked, *, until: float) -> bool:
        wanted = (*query.data.min_positions, *self._ahead(query))
        return not wanted or await self._watch_for(query).wait(wanted, until=until)

    def _ahead(self, query: q.QueryAsked) -> tuple[q.Reached, ...]:
        """The position that memory is asked as of: it may not have been passed yet."""
        topic, partition = self.history.place(query.scope())
        offset = offset_of(getattr(query.data, "as_of", None), (topic, partition))
        return () if offset is None or offset < 0 else (q.Reached(topic=topic, partition=partition, offset=offset),)

    def _watch_for(self, query: q.QueryAsked) -> PositionWatch:
        match query.data:
            case q.RecallQuery() | q.SimilarQuery() if self.searching is not None:
                return self.searching.watch
            case q.TopicsQuery():
                return self.derived
            case _:
                return self.watch

    async def _read(self, query: q.QueryAsked, limits: _Limits) -> Found:  # noqa: C901, PLR0911 - a question a line
        scope = query.scope()
        match query.data:
            case q.HistoryQuery() as ask:
                return await self.history.read_history(scope, ask, max_bytes=MAX_REPLY_BYTES)
            case q.RecordQuery() as ask:
                return await self.history.read_records(scope, [ask.record_id], max_bytes=MAX_REPLY_BYTES)
            case q.RecordsQuery() as ask:
                return await self.history.read_records(scope, ask.record_ids, max_bytes=MAX_REPLY_BYTES)
            case q.StatsQuery():
                return await self.history.read_stats(scope)
            case q.TopicsQuery() as ask:
                return await self.history.read_topics(scope, ask)
            case q.SummariesQuery() as ask:
                return await self.history.read_summaries(scope, ask)
            case q.ContextQuery() as ask:
                return await self.contexts.read(scope, ask, until=limits.waiting, models_until=limits.models)
            case q.RecallQuery() | q.SimilarQuery() as ask:
                if self.searching is None:
                    raise unavailable_here()
                return await self.searching.read(scope, ask, until=limits.models)
            case q.PointsQuery() as ask:
                if self.examination is None:
                    raise unavailable_here()
                return Read(await self.examination.points(scope, ask), ())
        raise RequestRefused("bad_request", f"{query.data.ask!r} is not a query")


def _code(error: RequestRefused) -> q.ErrorCode:
    match error.code:
        case "not_found" | "unavailable" as code:
            return code
        case _:
            return "bad_request"


def _failure(code: q.ErrorCode, message: str) -> q.Reply:
    return q.Reply(error=q.Failure(code=code, message=message))
