"""Reading what a context is packed from: head, core, summaries, what is recalled, the recent turns."""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from engramlog.engine import texts
from engramlog.engine.context import Material, pack
from engramlog.engine.history import History, Read
from engramlog.engine.history.reading import PROTECTED
from engramlog.engine.retrieve import Retrieval
from engramlog.schemas.contexts import ContextAnswer, ContextQuery, StoredSummary, SummariesQuery
from engramlog.schemas.errors import StoreUnavailable
from engramlog.schemas.instants import now as instant_now
from engramlog.schemas.queries import HistoryQuery
from engramlog.schemas.recalls import MAX_HITS, MAX_QUESTION_CHARS, RecallHit, RecallQuery
from engramlog.schemas.scope import Scope
from engramlog.schemas.stored import ContextRecord

_log = logging.getLogger(__name__)

_LEAST_TOKENS = 4
"""What the smallest message takes: no more messages than this allows can be in a context."""
_MOST_RECORDS = 2_000
_BYTES_A_TOKEN = 16
_SPARE_BYTES = 1_000_000
_SUMMARY_POLL_S = 0.05
_QUESTION_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Contexts:
    """Makes contexts.

    Attributes:
        history: The history.
        retrieval: What recalls; None: nothing does in this process.
        clock: The time, for requests that name none.
    """

    history: History
    retrieval: Retrieval | None
    clock: Callable[[], datetime] = instant_now

    async def read(
        self, scope: Scope, query: ContextQuery, *, until: float, models_until: float = math.inf
    ) -> Read[ContextAnswer]:
        """A context.

        Args:
            scope: Whose talk.
            query: What is asked.
            until: Deadline of waiting for a summary, in the running loop's time.
            models_until: When to go on without what models have not answered by then, likewise.

        Raises:
            RequestRefused: Not even head, core memories and the newest user message fit.
            StoreUnavailable: The history does not answer. Without vectors nothing is recalled, and the answer says so.
        """
        if query.wait_for_summary:
            await self._await_summaries(scope, until)
        stand = await self.history.standpoint(scope, query.as_of)
        now = query.now or stand.instant or self.clock()
        head = await self._head(scope, query)
        recent = await self._recent(scope, query)
        core = await self.history.core(scope, view=stand.view)
        summaries = await self._summaries(scope, query)
        turns = [record for record in recent.answer if head is None or record.stored.offset != head.stored.offset]
        recalled, degraded = await self._recalled(scope, query, turns, now=now, until=models_until)
        material = Material(
            head=None if head is None else head.stored,
            core=core,
            summaries=summaries,
            recalled=recalled,
            recent=turns,
        )
        tokens = {}
        if not stand.view.past:  # what is known are the tokens of the texts as they are now
            tokens = await self.history.tokens_of(scope, [record.record.record_id for record in recent.answer])
        answer = await asyncio.to_thread(pack, material, query, now=now, tokens=tokens)
        return Read(answer.model_copy(update={"degraded": (*answer.degraded, *degraded)}), recent.reached)

    async def _head(self, scope: Scope, query: ContextQuery) -> ContextRecord | None:
        read = await self.history.read_history(
            scope, HistoryQuery(window=0, summaries=query.summaries, as_of=query.as_of), max_bytes=_SPARE_BYTES
        )
        return next((record for record in read.answer.records if record.record.role in PROTECTED), None)

    async def _recent(self, scope: Scope, query: ContextQuery) -> "Read[tuple[ContextRecord, ...]]":
        """The newest records, as many as could fit, and more than a window holds: what was left out is told."""
        most = min(_MOST_RECORDS, query.budget_tokens // _LEAST_TOKENS + 1)
        wanted = HistoryQuery(window=most, keep_rate=query.keep_rate, summaries=query.summaries, as_of=query.as_of)
        read = await self.history.read_history(
            scope, wanted, max_bytes=_SPARE_BYTES + _BYTES_A_TOKEN * query.budget_tokens
        )
        return Read(read.answer.records, read.reached)

    async def _summaries(self, scope: Scope, query: ContextQuery) -> tuple[StoredSummary, ...]:
        as_of = query.as_of
        if not query.summaries or scope.session is None or (as_of is not None and as_of.happened is not None):
            return ()
        return (await self.history.read_summaries(scope, SummariesQuery(limit=1_000, as_of=as_of))).answer.summaries

    async def _recalled(
        self, scope: Scope, query: ContextQuery, turns: list[ContextRecord], *, now: datetime, until: float
    ) -> tuple[tuple[RecallHit, ...], tuple[str, ...]]:
        part = query.recall
        topic = query.current_topic or _newest_question(turns)
        if part is None or not part.limit or not topic:
            return (), ()
        if self.retrieval is None:
            return (), ("recall: this process has no vectors; run index and answer in one, or use a Qdrant server",)
        ask = RecallQuery(
            text=topic[:MAX_QUESTION_CHARS],
            preset=part.preset,
            limit=min(MAX_HITS, 2 * part.limit + 20),  # those that are in the context already give way
            now=now,
            filter=part.filter,
            as_of=query.as_of,
        )
        try:
            answer = await self.retrieval.recall(scope, ask, max_bytes=_SPARE_BYTES, until=until)
        except StoreUnavailable as error:
            _log.warning("a context without memories: %s", error)
            return (), (f"recall: {error}",)
        return answer.hits, answer.degraded

    async def _await_summaries(self, scope: Scope, until: float) -> None:
        """Wait until no summary of the session is due any more, of all that the history has, and it has them."""
        loop, state, place = asyncio.get_running_loop(), self.history.summarising(), self.history.place(scope)
        wanted = (await self.history.next_offsets()).get(place, 0)
        while loop.time() < until and not (  # noqa: ASYNC110 - it is in SQL
            await state.reached(*place) >= wanted and await self.history.summaries_are_made(scope)
        ):
            await asyncio.sleep(_SUMMARY_POLL_S)


def _newest_question(turns: list[ContextRecord]) -> str | None:
    """What the newest user message says."""
    for record in reversed(turns):
        if record.record.role == "user":
            said = texts.content(record.record)
            return said[-_QUESTION_CHARS:] if said.strip() else None
    return None
