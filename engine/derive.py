"""Deriving: from a run of records to the events of the derived topic.

What a record means depends on the talk before it. That part is a fold over each session, in the order of the log, and
its state lies in SQL with the checkpoint. A run is derived like this:

1. refuse a run that is not the next one;
2. take the texts, each with the end of the text before it;
3. embed them all, then understand them one by one (rules), then refine them at once (a language model, if any);
4. publish what came out, and the watermark, and await every acknowledgement;
5. write the folds and move the checkpoint, both or neither.

After a crash between 4 and 5 the run was published: what the topic of derivations has is never computed again. Below
the topic's watermark a run is *recovered*: folded with the vectors and turns that lie there, without a model, and
nothing is published. So a database that is lost costs reading, too, and not one call of a model. It is the checkpoint
that moves on in both cases, run by run, by compare-and-set: a recovery can be killed, and go on, and have two owners.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Protocol

from engramlog.engine import texts
from engramlog.engine.derivation import (
    SOURCE,
    DeriveConfig,
    Folding,
    Outgoing,
    Task,
    address_of,
    addresses,
    change_of,
    envelope_of,
    is_degraded,
    is_said,
    message_of,
)
from engramlog.engine.derivers.understanding import Understanding
from engramlog.engine.embedding import embed
from engramlog.engine.history import History
from engramlog.engine.history.deriving import Forgotten
from engramlog.engine.history.view import instant
from engramlog.engine.log import Entry, Run
from engramlog.engine.ports import Embedder
from engramlog.engine.positions import PositionWatch
from engramlog.engine.recorded import DerivedReader, Recorded, original, passed
from engramlog.schemas import derived as d
from engramlog.schemas.codec import derived_codec
from engramlog.schemas.envelope import RecordCorrectedEvent, RecordWritten, ScopeErasedEvent
from engramlog.schemas.errors import ConfigurationError, ModelRefused, ModelUnavailable
from engramlog.schemas.keys import event_key, record_key
from engramlog.schemas.records import MemoryRecord
from engramlog.schemas.scope import Scope

_log = logging.getLogger(__name__)


class Refiner(Protocol):
    """Understands better than the rules, at a price."""

    version: str

    async def refine(self, record: MemoryRecord, text: str, understanding: Understanding) -> Understanding:
        """Understand a record.

        Raises:
            ModelUnavailable: No answer in time.
            ModelRefused: No answer that can be used.
        """


class DerivedLog(Protocol):
    """The derived topic."""

    async def publish(self, partition: int, messages: Sequence[Outgoing]) -> None:
        """Publish messages to a partition, in order; return when the brokers have them all.

        Raises:
            BrokerUnavailable: Some were not acknowledged.
        """


class Deriving:
    """The projection of ``derive``: its state is SQL, its result is the derived topic.

    Args:
        history: The history, in the same database.
        embedder: What makes vectors.
        log: The derived topic.
        config: What derivations are made with.
        refiner: A language model; None: the rules alone.
        before: Where what was derived before is read; None: it is derived again.
        kept: An earlier generation by the same models: what is not degraded there stands; None: all is derived.
    """

    def __init__(
        self,
        history: History,
        embedder: Embedder,
        log: DerivedLog,
        config: DeriveConfig,
        *,
        refiner: Refiner | None = None,
        before: DerivedReader | None = None,
        kept: DerivedReader | None = None,
    ) -> None:
        self._history = history
        self._state = history.deriving(config.generation)
        self._watch = PositionWatch(history.next_offsets)
        self._embedder = embedder
        self._log = log
        self._config = config
        self._refiner = refiner
        self._before = before
        self._kept = kept
        self._earlier: dict[int, Recorded] = {}
        self._recoveries: dict[tuple[str, int], _Recovery] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def open_partition(
        self, topic: str, partition: int, *, cluster_id: str | None, topic_id: str | None, end_offset: int
    ) -> int:
        """Where to go on, see :meth:`History.open_partition`. From there on what was derived before is recovered."""
        found = await self._state.open_partition(
            topic, partition, cluster_id=cluster_id, topic_id=topic_id, end_offset=end_offset
        )
        self.close_partition(topic, partition)
        if self._before is not None and found < end_offset:
            until = await passed(self._before, partition)
            if found < until:
                _log.info("%s/%d is recovered from %d to %d, without models", topic, partition, found, until)
                self._recoveries[topic, partition] = _Recovery(until, Recorded(self._before, partition))
        return found

    def close_partition(self, topic: str, partition: int) -> None:
        """Nothing is kept of a partition that went to another owner."""
        recovery = self._recoveries.pop((topic, partition), None)
        if recovery is not None:
            closing = asyncio.create_task(recovery.recorded.close(), name="engramlog-recovered")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def stop(self) -> None:
        """Stop waiting for the history, and reading what was derived before."""
        for topic, partition in [*self._recoveries]:
            self.close_partition(topic, partition)
        await asyncio.gather(*self._closing, *(earlier.close() for earlier in self._earlier.values()))
        await self._watch.stop()

    async def apply(self, run: Run) -> None:
        """Derive a run, publish what came out, move the checkpoint. What was derived before is recovered instead.

        Raises:
            Fenced: Another owner was here.
            ModelUnavailable: The embedder does not answer; the run waits for it.
            StoreUnavailable: The history does not answer, or lags.
            BrokerUnavailable: The derived topic does not take it, or cannot be read.
            ConfigurationError: The derived topic belongs to another log.
        """
        recovery = self._recoveries.get((run.topic, run.partition))
        until = 0 if recovery is None else recovery.until
        for part in _cut(run, until):
            if recovery is not None and _lies_before(part, until):
                await self._recover(part, recovery)
            else:
                await self._apply(part)
        if recovery is not None and run.next >= until:
            _log.info("%s/%d is recovered up to %d; %s", run.topic, run.partition, until, recovery)
            self.close_partition(run.topic, run.partition)

    async def _recover(self, run: Run, recovery: "_Recovery") -> None:
        """Fold a run whose derivations are published."""
        await self._state.check(run)
        folding = Folding(await self._state.load(addresses(run.entries)))
        written = [(e.offset, e.event) for e in run.entries if isinstance(e.event, RecordWritten)]
        found = await recovery.recorded.of(written)
        tasks: list[tuple[Task, Sequence[d.RecordDerived]]] = []
        forgotten: list[Forgotten] = []
        for entry in run.entries:
            if isinstance(entry.event, RecordWritten):
                copies = found.get(entry.offset, ())
                task = folding.begin_again(entry, entry.event, copies)
                tasks += [] if task is None else [(task, copies)]
            elif isinstance(entry.event, ScopeErasedEvent) and await self._counts(run, entry, entry.event):
                forgotten.append(_forgotten(entry.event))
        recovery.records += len(written)
        recovery.missing += await asyncio.to_thread(folding.follow, tasks, rules=self._config.rules)
        await self._state.save(run, folding.folds, forgotten, turns=folding.turns)

    async def _apply(self, run: Run) -> None:
        await self._state.check(run)
        folding = Folding(await self._state.load(addresses(run.entries)))
        steps = [await self._step(run, entry, folding) for entry in run.entries]
        tasks = [step for step in steps if isinstance(step, Task)]
        if self._kept is not None:
            await self._keep(run.partition, tasks, self._kept)
        await self._embed([task for task in tasks if task.kept is None])
        # In a thread: it takes a millisecond a record, and answers of the same process must not wait for a whole run.
        await asyncio.to_thread(folding.understand, tasks, rules=self._config.rules)
        await self._refine([task for task in tasks if task.kept is None])
        await self._state.check(run)  # models are slow: who lost the partition meanwhile must not write old copies last
        messages = await asyncio.to_thread(self._messages, steps)
        await self._log.publish(run.partition, [*messages, _watermark(run)])
        erased = [
            entry.event
            for entry, step in zip(run.entries, steps, strict=True)
            if isinstance(entry.event, ScopeErasedEvent) and step is not None
        ]
        forgotten = [_forgotten(event) for event in erased]
        await self._state.save(run, folding.folds, forgotten, turns=folding.turns)

    def _messages(self, steps: Sequence[Task | Outgoing | None]) -> list[Outgoing]:
        return [message_of(s, self._config) if isinstance(s, Task) else s for s in steps if s is not None]

    async def _step(self, run: Run, entry: Entry, folding: Folding) -> Task | Outgoing | None:
        """What one entry leads to: a record to be derived, a message that is known already, or nothing."""
        event, key = entry.event, entry.key
        if event is None:
            if key.record_id is not None:
                return record_key(key.tenant, key.agent, key.record_id), None
            return event_key(key.tenant, key.agent or None, key.event_id or ""), None
        if isinstance(event, RecordWritten):
            return folding.begin(entry, event) or (event.key(), None)
        if isinstance(event, RecordCorrectedEvent):
            return await self._corrected(run, entry, event, folding)
        changed = await self._erased(run, entry, event) if isinstance(event, ScopeErasedEvent) else change_of(entry)
        return None if changed is None else (changed.key(), derived_codec().encode(changed))

    async def _corrected(
        self, run: Run, entry: Entry, event: RecordCorrectedEvent, folding: Folding
    ) -> Task | Outgoing | None:
        """A corrected record is derived anew, in its old place."""
        await self._watch.passed(run.topic, run.partition, entry.offset)
        scope = Scope(event.tenantid, event.agentid, users="all")
        stored = await self._history.record_as_of(scope, event.data.id, entry.offset)
        if stored is None:
            return None
        record = stored.record.model_copy(update={"embedding": None})  # the publisher's vector is of the old words
        written = RecordWritten.of(
            record,
            source=event.source,
            tenant=event.tenantid,
            agent=event.agentid,
            sessionid=stored.session,
            userid=stored.user,
            time=event.time,
        )
        text = texts.content(record)
        if not text.strip() or record.origin == "recall":
            return written.key(), None
        address = address_of(written)
        turn = await self._turn(written, stored.offset, folding)
        if address not in folding.folds:
            folding.folds |= await self._state.load([address])
        return Task(written, stored.offset, address, text, turn, said=is_said(record), again=True)

    async def _turn(self, event: RecordWritten, offset: int, folding: Folding) -> int:
        """The turn of a record that is derived anew."""
        key = (event.tenantid, event.agentid, event.data.record_id)
        if key in folding.turns:
            return folding.turns[key].number
        known = await self._state.turn_of(key)
        return await self._state.turns_before(address_of(event), offset) if known is None else known

    async def _erased(self, run: Run, entry: Entry, event: ScopeErasedEvent) -> d.RecallChangedEvent | None:
        """Pass an erasure on."""
        if not await self._counts(run, entry, event):
            return None
        data, ids = event.data, event.data.record_ids
        if event.agentid is not None and ids:
            made = await self._history.made_from(event.tenantid, event.agentid, ids)
            ids = (*ids, *sorted(made - {*ids}))
        change = d.RecallChanged(cause="erased", before=entry.offset, ids=ids, scope=data.scope)
        return d.RecallChangedEvent(id=event.id, agentid=event.agentid, data=change, **envelope_of(event))

    async def _counts(self, run: Run, entry: Entry, event: ScopeErasedEvent) -> bool:
        """Whether an erasure counts; if its request was erased for already, what came in between stays.

        The history comes first: from then on no late copy is taken, by it or behind it.
        """
        await self._watch.passed(run.topic, run.partition, entry.offset)
        return await self._state.counts_in_ledger(event.tenantid, event.agentid, event.id)

    async def _keep(self, partition: int, tasks: Sequence[Task], kept: DerivedReader) -> None:
        """Let stand what an earlier generation has of these records, unless it is degraded."""
        earlier = self._earlier.setdefault(partition, Recorded(kept, partition))
        found = await earlier.of([(task.offset, task.event) for task in tasks])
        for task in tasks:
            was = original(found.get(task.offset, ()), task.event)
            if was is not None and not is_degraded(was):
                task.keep(was)

    async def _embed(self, tasks: Sequence[Task]) -> None:
        found = await embed(self._embedder, [(task.event.data, task.previous) for task in tasks])
        for task, embedded in zip(tasks, found, strict=True):
            task.embedded, task.degraded = embedded, embedded.degraded
            if embedded.degraded:
                _log.warning("record %s is found by its words only: %s", task.event.id, *embedded.degraded)

    async def _refine(self, tasks: Sequence[Task]) -> None:
        refiner = self._refiner
        if refiner is None:
            return

        async def refine(task: Task) -> None:
            assert task.understanding is not None
            try:
                task.understanding = await refiner.refine(task.event.data, task.text, task.understanding)
                task.deriver = refiner.version
            except (ModelUnavailable, ModelRefused, ConfigurationError) as error:  # a key that is refused: likewise
                task.degraded += (f"{refiner.version}: {error}"[:256],)
                _log.warning("record %s is derived by rules: %s", task.event.id, error)

        await asyncio.gather(*(refine(task) for task in tasks))


@dataclass(slots=True)
class _Recovery:
    """A partition whose state was lost.

    Attributes:
        until: Up to where its records were derived.
        recorded: What was derived.
        records: How many records were folded again.
        missing: Of how many of them nothing was left that was derived when they were written.
    """

    until: int
    recorded: Recorded
    records: int = 0
    missing: int = 0

    def __str__(self) -> str:
        return f"{self.records} records, {self.missing} of them without their first derivation"


def _cut(run: Run, until: int) -> Iterator[Run]:
    """The run in pieces.

    An erasure is alone in its own: what comes after it must not build on what came before. Nor is one piece both before
    and behind an offset.
    """

    def piece_of(entry: Entry) -> tuple[bool, int]:
        return entry.offset < until, entry.offset if isinstance(entry.event, ScopeErasedEvent) else -1

    pieces = [list(group) for _, group in groupby(run.entries, key=piece_of)]
    if len(pieces) <= 1:
        yield run
        return
    begins = [run.expected, *(piece[0].offset for piece in pieces[1:])]
    ends = [*begins[1:], run.next]
    for piece, begin, end in zip(pieces, begins, ends, strict=True):
        yield replace(run, expected=begin, next=end, entries=tuple(piece), refused=())


def _lies_before(run: Run, until: int) -> bool:
    return run.entries[-1].offset < until if run.entries else run.next <= until


def _forgotten(event: ScopeErasedEvent) -> Forgotten:
    """What the folds forget. Of single records they do not know which words came from them: the agent's are emptied."""
    scope = event.data.scope
    return Forgotten(
        event.tenantid,
        event.agentid,
        session=event.sessionid if scope == "session" else None,
        user=event.userid if scope == "user" else None,
        ids=event.data.record_ids,
    )


def _watermark(run: Run) -> Outgoing:
    mark = d.WatermarkPassed(
        id=f"watermark-{run.partition}",
        source=SOURCE,
        time=instant(run.entries[-1].recorded_ms if run.entries else 0),
        data=d.Watermark(partition=run.partition, next=run.next),
    )
    return mark.key(), derived_codec().encode(mark)
