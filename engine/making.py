"""Making the summaries that are due: the worker beside the fold.

It takes the text from the history, asks the summariser, publishes, and only then marks the summary as made: after a
crash it is made again, under the same id. Of each session one is made at a time, oldest first, so that what they cover
has no holes; a model that fails delays that session alone.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from engramlog.engine.history import History
from engramlog.engine.history.due import Due
from engramlog.engine.openings import Openings
from engramlog.engine.positions import PositionWatch
from engramlog.engine.summaries import (
    Material,
    created,
    created_again,
    failed,
    inheriting,
    is_own,
    material_of,
    outputs,
)
from engramlog.engine.summarisers.checking import checked
from engramlog.engine.summarisers.passages import Summariser, Summary, SummaryRefused
from engramlog.engine.tokens import count_text
from engramlog.schemas.envelope import AgentEvent, RecordWritten
from engramlog.schemas.errors import EngramlogError, ModelUnavailable
from engramlog.schemas.scope import Scope
from engramlog.schemas.summaries import SummaryCreated, SummaryCreatedEvent, SummaryFailedEvent

_log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.2
AT_ONCE = 2
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 300.0
_BYTES = 50_000_000


class SummaryLog(Protocol):
    """Where summaries and what is extracted with them go."""

    async def publish(
        self, partition: int, summary: SummaryCreatedEvent | SummaryFailedEvent | None, records: Sequence[AgentEvent]
    ) -> None:
        """Publish a summary, if there is one, and events of the records; return when the brokers have it all.

        Raises:
            BrokerUnavailable: They do not.
        """


class Maker:
    """Makes what is due in the partitions that are open, for ever.

    Args:
        history: The history, in the same database.
        summariser: What makes summaries.
        log: Where they go.
        openings: The partitions that are open.
        watch: Waits for the history.
        records: The topic of records.
        roll: Decides, from the active summaries of a session, oldest first, what is rolled up.
        max_tokens: Tokens of one summary at most.
        timeout_s: How long one summary may take.
        first_pause_s: Pause after a first failure; doubled after each further one.
    """

    def __init__(
        self,
        history: History,
        summariser: Summariser,
        log: SummaryLog,
        openings: Openings,
        watch: PositionWatch,
        *,
        records: str,
        roll: Callable[[Sequence[Due]], Due | None],
        max_tokens: int,
        timeout_s: float,
        first_pause_s: float,
    ) -> None:
        self._history = history
        self._state = history.summarising()
        self._summariser = summariser
        self._log = log
        self._openings = openings
        self._watch = watch
        self._records = records
        self._roll = roll
        self._max_tokens = max_tokens
        self._timeout_s = timeout_s
        self._first_pause_s = first_pause_s
        self._worker: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    def start(self) -> None:
        """Begin, if it was not begun."""
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work(), name="engramlog-summarise")

    def wake(self) -> None:
        """Something may be due."""
        self._news.set()

    async def stop(self) -> None:
        """Make no more; one under way is made again by the next owner."""
        if self._worker is not None:
            self._worker.cancel()
            with suppress(asyncio.CancelledError):
                await self._worker

    async def _work(self) -> None:
        """Make what is due, a few at a time, for ever."""
        under_way: dict[tuple[str, ...], asyncio.Task[None]] = {}
        try:
            while True:
                self._news.clear()
                under_way = {key: task for key, task in under_way.items() if not task.done()}
                if len(under_way) < AT_ONCE:
                    for due in await self._due():
                        if due.address not in under_way and len(under_way) < AT_ONCE:
                            under_way[due.address] = asyncio.create_task(self._make(due))
                with suppress(TimeoutError):  # wait_for of Python 3.11 can swallow the cancellation by stop()
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await self._news.wait()
        finally:
            for task in under_way.values():
                task.cancel()
            await asyncio.gather(*under_way.values(), return_exceptions=True)

    async def _due(self) -> list[Due]:
        try:
            ready = await self._openings.ready()
            return await self._state.next_due(ready, limit=2 * AT_ONCE) if ready else []
        except EngramlogError as error:
            _log.warning("cannot look for summaries that are due: %s", error)
            return []

    async def _make(self, due: Due) -> None:
        """Make one summary. Whatever goes wrong, it is tried again later, and the window stays as it is."""
        try:
            await self._try(due)
        except SummaryRefused as error:
            await self._failed(due, error.code, error.message)
        except ModelUnavailable as error:
            await self._failed(due, "unavailable", str(error))
        except EngramlogError as error:
            _log.warning("summary %s waits: %s", due.summary_id, error)
            await self._later(due)
        except Exception:  # noqa: BLE001 - logged; a fault of ours must not be tried again without a pause
            _log.exception("summary %s waits", due.summary_id)
            await self._later(due)
        self._news.set()

    async def _try(self, due: Due) -> None:
        await self._watch.passed(self._records, due.partition, due.at)
        if await self._is_made(due):
            return
        material = await material_of(self._history, due)
        if material is None:
            await self._state.drop(due)
            return
        summary = await self._summarised(due, material)
        event, records = await asyncio.to_thread(_events, due, summary, material)
        await self._log.publish(due.partition, event, records)
        await self._state.finish(due, event.data.tokens_after, self._roll)

    async def _is_made(self, due: Due) -> bool:
        """Whether a summary lies in the log; if so, it is done, once the records that belong to it are there, too."""
        scope = Scope(due.address[0], due.address[1], users="all")
        stored = await self._history.summaries_named(scope, [due.summary_id])
        if not stored or not due.is_of(stored[0].summary):
            return False
        _log.info("summary %s was made before", due.summary_id)
        if not await self._there(scope, [due.summary_id]):  # its own record is published last
            missing = await self._missing(scope, due, stored[0].summary)
            if any(isinstance(event, RecordWritten) for event in missing):
                await self._log.publish(due.partition, None, missing)
        await self._state.finish(due, stored[0].summary.tokens_after, self._roll)
        return True

    async def _missing(self, scope: Scope, due: Due, summary: SummaryCreated) -> list[AgentEvent]:
        """What belongs to a summary, and is not in the log. What was there and is erased does not come back."""
        material = await material_of(self._history, due)
        if material is None:
            return []
        events = await asyncio.to_thread(_records, created_again(due, summary, time=material.time), material)
        ids = [event.data.record_id for event in events if isinstance(event, RecordWritten)]
        known = await self._there(scope, ids)
        known |= await self._history.made_from(*due.address[:2], due.record_ids) - {due.summary_id}
        return [e for e in events if not isinstance(e, RecordWritten) or e.data.record_id not in known]

    async def _there(self, scope: Scope, ids: Sequence[str]) -> set[str]:
        read = await self._history.read_records(scope, ids, max_bytes=_BYTES)
        return {stored.record.record_id for stored in read.answer.records} | {*read.answer.unread}

    async def _summarised(self, due: Due, material: Material) -> Summary:
        """Ask the summariser, which may be anybody's: whatever it does, the stream says why there is no summary."""
        most = min(self._max_tokens, max(30, due.tokens // 2))
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._summariser.summarise(material.passages, max_tokens=most, previous=None)
        except TimeoutError:
            raise ModelUnavailable(f"no summary within {self._timeout_s:g} s") from None
        except (SummaryRefused, ModelUnavailable):
            raise
        except EngramlogError as error:
            raise ModelUnavailable(str(error)) from error
        except Exception as error:
            _log.exception("the summariser %s failed", self._summariser.model)
            raise SummaryRefused("invalid", f"the summariser failed: {type(error).__name__}: {error}") from error

    async def _later(self, due: Due) -> None:
        """Try again after a pause, without a word on the stream: it is not the summariser's fault."""
        try:
            await self._state.fail(due, pause_s=self._pause_s(due))
        except EngramlogError:
            await asyncio.sleep(self._first_pause_s)

    async def _failed(self, due: Due, code: str, message: str) -> None:
        _log.warning("summary %s failed (%s), attempt %d: %s", due.summary_id, code, due.attempts + 1, message)
        event = failed(due, code, message, model=self._summariser.model)
        try:
            await self._log.publish(due.partition, event, [])
            await self._state.fail(due, pause_s=self._pause_s(due))
        except EngramlogError as error:
            _log.warning("the failure of summary %s was not written down: %s", due.summary_id, error)
            await asyncio.sleep(self._first_pause_s)

    def _pause_s(self, due: Due) -> float:
        return float(min(LONGEST_PAUSE_S, self._first_pause_s * 2 ** min(due.attempts, 16)))


def _events(due: Due, summary: Summary, material: Material) -> tuple[SummaryCreatedEvent, list[AgentEvent]]:
    """A summary's event and the records that go with it. For a thread: rules read all that it covers.

    Raises:
        SummaryRefused: It is none of this talk.
    """
    checked(summary, material.passages)
    whole = inheriting(summary, material.below)
    event = created(due, whole, tokens=count_text(whole.text.strip()), time=material.time)
    return event, _records(event, material)


def _records(event: SummaryCreatedEvent, material: Material) -> list[AgentEvent]:
    """The records that go with a summary. The summary's own is the last: where it is, all of it is. For a thread."""
    return sorted(outputs(event, material), key=lambda one: isinstance(one, RecordWritten) and is_own(one))
