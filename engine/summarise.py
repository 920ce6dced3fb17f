"""Summarising: a fold over the records decides what is due, a worker beside it makes the summaries.

The fold is pure: which part of a session is cut off depends on the log alone, never on a model or the clock. What is
due lies in SQL, with the checkpoint; :mod:`engramlog.engine.making` does it.

A summary that lies in the log is never made again. When the database was lost, the fold begins anew, and the history
has the summaries: each is taken as made where its own record lies in the log, which is where it was made then. The
worker begins when the fold is past what the log held at the start, and the history has every summary of that time; what
is still due then, and in the history, was published just before a crash: what is missing of it is published, and that
is all.
"""

import asyncio
from collections.abc import Sequence

from engramlog.engine.cutting import CutPolicy, cuts, due_of, rolled_up
from engramlog.engine.history import History
from engramlog.engine.history.due import Address, Due
from engramlog.engine.history.marks import HIDING, effective
from engramlog.engine.history.turns import Folded, Turn
from engramlog.engine.history.work import is_kept
from engramlog.engine.log import Entry, Run
from engramlog.engine.making import FIRST_PAUSE_S, Maker, SummaryLog
from engramlog.engine.openings import Openings, SummaryReader
from engramlog.engine.positions import PositionWatch
from engramlog.engine.summaries import is_own
from engramlog.engine.summarisers.passages import Summariser
from engramlog.engine.tokens import record_tokens
from engramlog.schemas.envelope import (
    HistoryClearedEvent,
    RecordsRemovedEvent,
    RecordWritten,
    ScopeErasedEvent,
    SessionEndedEvent,
    SessionIdledEvent,
)
from engramlog.schemas.scope import Scope
from engramlog.schemas.summaries import SummaryCreated, Trigger

_NOT_TURNS = frozenset({"extracted", "summary", "recall"})
_TOOLS = frozenset({"tool", "function"})


class Summarising:
    """The projection of ``summarise``: its state is SQL, its results are the topic of summaries and extracted records.

    Args:
        history: The history, in the same database.
        summariser: What makes summaries.
        log: Where they go.
        policy: When they are due.
        records: The topic of records.
        max_tokens: Tokens of one summary at most.
        timeout_s: How long one summary may take.
        first_pause_s: Pause after a first failure; doubled after each further one.
        before: Where the summaries that were made before lie; None: the history has them all.
    """

    def __init__(
        self,
        history: History,
        summariser: Summariser,
        log: SummaryLog,
        policy: CutPolicy,
        *,
        records: str,
        max_tokens: int = 400,
        timeout_s: float = 60.0,
        first_pause_s: float = FIRST_PAUSE_S,
        before: SummaryReader | None = None,
    ) -> None:
        self._history = history
        self._state = history.summarising()
        self._policy = policy
        self._records = records
        self._watch = PositionWatch(history.next_offsets)
        self._openings = Openings(history, self._watch, before)
        self._maker = Maker(
            history,
            summariser,
            log,
            self._openings,
            self._watch,
            records=records,
            roll=self._roll,
            max_tokens=max_tokens,
            timeout_s=timeout_s,
            first_pause_s=first_pause_s,
        )

    async def open_partition(
        self, topic: str, partition: int, *, cluster_id: str | None, topic_id: str | None, end_offset: int
    ) -> int:
        """Where to go on, see :meth:`History.open_partition`. What is due there is made here, once all is folded."""
        found = await self._state.open_partition(
            topic, partition, cluster_id=cluster_id, topic_id=topic_id, end_offset=end_offset
        )
        self._openings.add(partition, end=end_offset, folded=found)
        self._maker.start()
        return found

    def close_partition(self, topic: str, partition: int) -> None:  # noqa: ARG002 - there is one topic
        """A partition went to another owner, who makes what is due there."""
        self._openings.remove(partition)

    def owned(self) -> frozenset[int]:
        """The partitions that are open here, and folded up to where the log ended then."""
        return self._openings.caught_up()

    async def stop(self) -> None:
        """Make no more summaries; one under way is made again by the next owner."""
        await self._maker.stop()
        await self._watch.stop()

    async def apply(self, run: Run) -> None:
        """Fold a run of records, and move the checkpoint.

        Raises:
            Fenced: Another owner was here.
            StoreUnavailable: The database does not answer, or the history lags.
            BrokerUnavailable: The end of the summaries cannot be looked for.
        """
        turns = await asyncio.to_thread(_turns, run)  # counting takes time
        repeated, made = await self._repeated(run), await self._made(run)

        def fold(state: Folded) -> None:
            for entry in run.entries:
                if entry.offset not in repeated:
                    self._fold_entry(state, entry, turns.get(entry.offset))
                if entry.offset in made:
                    state.made(entry.key.tenant, entry.key.agent, made[entry.offset], self._roll)

        await self._state.fold(run, fold)
        self._openings.folded(run)
        self._maker.wake()

    def _roll(self, active: Sequence[Due]) -> Due | None:
        return rolled_up(active, self._policy)

    async def _made(self, run: Run) -> dict[int, SummaryCreated]:
        """The summaries that were made before, by where their own records lie. Only while the past is folded."""
        opening = self._openings.past(run)
        if opening is None:
            return {}
        wanted: dict[tuple[str, str], dict[str, int]] = {}
        for entry in run.entries:
            if isinstance(entry.event, RecordWritten) and entry.offset < opening.end and is_own(entry.event):
                wanted.setdefault((entry.key.tenant, entry.key.agent), {})[entry.event.id] = entry.offset
        if not wanted:
            return {}
        await self._openings.await_summaries(run.partition, opening)
        found: dict[int, SummaryCreated] = {}
        for (tenant, agent), offsets in wanted.items():
            stored = await self._history.summaries_named(Scope(tenant, agent, users="all"), [*offsets])
            found |= {offsets[one.summary.summary_id]: one.summary for one in stored}
        return found

    async def _repeated(self, run: Run) -> set[int]:
        """Erasures of a request that was erased for before: they count nothing, as the history knows by then."""
        found: set[int] = set()
        for entry in run.entries:
            event = entry.event
            if isinstance(event, ScopeErasedEvent) and event.data.request_id is not None:
                await self._watch.passed(self._records, run.partition, entry.offset)
                if not await self._state.counts_in_ledger(event.tenantid, event.agentid, event.id):
                    found.add(entry.offset)
        return found

    def _fold_entry(self, state: Folded, entry: Entry, turn: Turn | None) -> None:
        event = entry.event
        if isinstance(event, RecordWritten):
            if turn is None:  # an earlier copy may have been said
                state.drop(event.tenantid, event.agentid, [event.data.record_id], before=entry.offset)
            else:
                address = event.tenantid, event.agentid, event.sessionid or "", event.userid or ""
                state.add(address, turn)
                self._cut(state, entry, address, "tokens")
        elif event is None:
            key = entry.key
            if key.record_id is not None:
                self._erase(state, entry, key.tenant, key.agent, [key.record_id])
        elif isinstance(event, (SessionIdledEvent, SessionEndedEvent)):
            self._close(state, entry, event)
        elif isinstance(event, RecordsRemovedEvent) and event.data.scope in HIDING:
            state.drop(event.tenantid, event.agentid, event.data.ids, before=effective(entry, event))
        elif isinstance(event, HistoryClearedEvent) and event.data.scope in HIDING:
            user = None if event.data.users == "all" else event.userid or ""
            state.drop_scope(
                event.tenantid, event.agentid, session=event.sessionid, user=user, before=effective(entry, event)
            )
        elif isinstance(event, ScopeErasedEvent):
            if event.data.scope == "record":
                assert event.agentid is not None
                self._erase(state, entry, event.tenantid, event.agentid, event.data.record_ids)
            else:
                session = event.sessionid if event.data.scope == "session" else None
                user = event.userid if event.data.scope == "user" else None
                state.erase_scope(event.tenantid, event.agentid, session=session, user=user)

    def _close(self, state: Folded, entry: Entry, event: SessionIdledEvent | SessionEndedEvent) -> None:
        """All that may go into summaries, goes, for each user of the session."""
        trigger: Trigger = "ended"
        if isinstance(event, SessionIdledEvent):
            trigger = "idled" if event.data.idle_s > 0 else "request"
        for user in state.users(event.tenantid, event.agentid, event.sessionid):
            self._cut(state, entry, (event.tenantid, event.agentid, event.sessionid, user), trigger)

    def _cut(self, state: Folded, entry: Entry, address: Address, trigger: Trigger) -> None:
        if not address[2]:  # without a session there is no talk to summarise
            return
        turns = state.pending(address)
        left = sum(turn.tokens for turn in turns if not turn.kept)
        for part in cuts(turns, self._policy, trigger):
            by_count = trigger == "tokens" and left <= self._policy.threshold_tokens
            why: Trigger = "messages" if by_count else trigger
            left -= sum(turn.tokens for turn in part)
            state.enter(due_of(address, part, partition=state.partition, at=entry.offset, trigger=why))

    def _erase(self, state: Folded, entry: Entry, tenant: str, agent: str, ids: Sequence[str]) -> None:
        """Summaries of what is erased are made anew without it."""
        for void in state.erase(tenant, agent, ids):
            left = [turn for turn in state.pending(void.address) if turn.record_id in set(void.record_ids)]
            if len(left) > 1:
                again = due_of(
                    void.address,
                    left,
                    partition=state.partition,
                    at=entry.offset,
                    trigger="erased",
                    replaces=[void.summary_id],
                )
                state.enter(again)


def _turns(run: Run) -> dict[int, Turn]:
    """The turns of a run by their offsets."""
    return {entry.offset: turn for entry in run.entries if (turn := _turn(entry)) is not None}


def _turn(entry: Entry) -> Turn | None:
    """What summarising remembers of a record; None: nobody said it."""
    event = entry.event
    if not isinstance(event, RecordWritten):
        return None
    record = event.data
    recalled_by_tool = record.origin == "recall" and record.role in _TOOLS  # it goes with its call
    if record.origin in _NOT_TURNS and not recalled_by_tool:
        return None
    return Turn(
        record_id=record.record_id,
        position=entry.offset,
        recorded_ms=entry.recorded_ms,
        role=record.role,
        tool=record.role in _TOOLS or bool(record.tool_calls),
        kept=is_kept(record),
        tokens=record_tokens(record),
        calls=tuple(str(call.get("id") or "") for call in record.tool_calls),
        answers=(record.tool_call_id or "") if record.role in _TOOLS else "",
    )
