"""Answering one query from the history store, or carrying out one command."""

import asyncio
import logging
from dataclasses import dataclass

from engramlog.engine.commands import Commands
from engramlog.engine.history import History, Read
from engramlog.engine.positions import PositionWatch
from engramlog.schemas import queries as q
from engramlog.schemas.errors import Permanent, RequestRefused, Transient

_log = logging.getLogger(__name__)

MAX_REPLY_BYTES = 700_000
"""How many bytes of records go into one reply; the rest is for the envelope and what surrounds the records."""
_SPARE_S = 0.25
"""How long before the deadline waiting ends, so that an answer can still be read and sent (at most a quarter)."""

Answer = q.HistoryAnswer | q.RecordsAnswer | q.StatsAnswer


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers queries.

    Attributes:
        history: The history store.
        watch: What waits for positions.
        reads: How many reads run at once; waiting for positions takes no place.
        commands: What carries out commands.
    """

    history: History
    watch: PositionWatch
    reads: asyncio.Semaphore
    commands: Commands

    async def __call__(self, query: q.QueryAsked, *, timeout_s: float) -> q.Reply:  # noqa: PLR0911 - one guard a line
        """Answer, or say why not; never raises.

        Args:
            query: What is asked.
            timeout_s: How much time is left, in seconds.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        until = began + timeout_s - min(_SPARE_S, timeout_s / 4)
        try:
            if isinstance(query.data, q.Command):
                return q.Reply(answer=await self.commands(query, until=until))
            fresh = await self._wait(query, until=until)
            waited = loop.time()
            async with self.reads:
                read = await self._read(query)
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

    async def _wait(self, query: q.QueryAsked, *, until: float) -> bool:
        wanted = query.data.min_positions
        return not wanted or await self.watch.wait(wanted, until=until)

    async def _read(self, query: q.QueryAsked) -> "Read[q.HistoryAnswer] | Read[q.RecordsAnswer] | Read[q.StatsAnswer]":
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
        raise RequestRefused("bad_request", f"{query.data.ask!r} is not a query")


def _code(error: RequestRefused) -> q.ErrorCode:
    return "not_found" if error.code == "not_found" else "bad_request"


def _failure(code: q.ErrorCode, message: str) -> q.Reply:
    return q.Reply(error=q.Failure(code=code, message=message))
