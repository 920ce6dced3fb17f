"""What lay in the log when ``summarise`` opened a partition: no summary of it is made again."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from engramlog.engine.history import History
from engramlog.engine.log import Run
from engramlog.engine.positions import WAIT_S, PositionWatch
from engramlog.schemas.errors import StoreUnavailable
from engramlog.schemas.queries import Reached


class SummaryReader(Protocol):
    """The topic of summaries, as far as it can be waited for."""

    async def last(self, partition: int) -> Reached | None:
        """The last position of a partition; None: it is empty.

        Raises:
            BrokerUnavailable: Kafka does not answer.
        """


@dataclass(slots=True)
class Opening:
    """A partition, and what the log held when it was opened.

    Attributes:
        end: Where the records ended.
        folded: How far they are folded.
        last: The last summary; None: there was none.
        looked: Whether ``last`` was looked for.
        ready: Whether the fold has passed the end, and the history the last summary.
    """

    end: int
    folded: int
    last: Reached | None = None
    looked: bool = False
    ready: bool = False


class Openings:
    """The partitions that are open here.

    Args:
        history: The history, which has the summaries.
        watch: Waits for it.
        before: Where the summaries that were made before lie; None: the history has them all.
    """

    def __init__(self, history: History, watch: PositionWatch, before: SummaryReader | None) -> None:
        self._history = history
        self._watch = watch
        self._before = before
        self._open: dict[int, Opening] = {}

    def add(self, partition: int, *, end: int, folded: int) -> None:
        """A partition was opened, anew."""
        self._open[partition] = Opening(end, folded)

    def remove(self, partition: int) -> None:
        """A partition went to another owner."""
        self._open.pop(partition, None)

    def folded(self, run: Run) -> None:
        """A run was folded."""
        opening = self._open.get(run.partition)
        if opening is not None:
            opening.folded = run.next

    def past(self, run: Run) -> Opening | None:
        """The opening, if something of a run was in the log by then."""
        opening = self._open.get(run.partition)
        return None if opening is None or run.expected >= opening.end else opening

    def caught_up(self) -> frozenset[int]:
        """The partitions that are folded up to where the log ended when they were opened."""
        return frozenset(p for p, opening in self._open.items() if opening.folded >= opening.end)

    async def await_summaries(self, partition: int, opening: Opening) -> None:
        """Wait until the history has every summary of that time.

        Raises:
            StoreUnavailable: It has not in time.
            BrokerUnavailable: The end of the summaries cannot be looked for.
        """
        await self._look(partition, opening)
        until = asyncio.get_running_loop().time() + WAIT_S
        if opening.last is not None and not await self._watch.wait([opening.last], until=until):
            raise StoreUnavailable(f"the history has not all summaries of partition {partition} yet")

    async def ready(self) -> set[int]:
        """The partitions of which it is known what was made before. Errors as above."""
        folded = {p: o for p, o in self._open.items() if not o.ready and o.folded >= o.end}
        if folded:
            await asyncio.gather(*(self._look(*one) for one in folded.items()))
            reached = await self._history.next_offsets()
            for opening in folded.values():
                last = opening.last
                opening.ready = last is None or reached.get((last.topic, last.partition), 0) > last.offset
        return {p for p, opening in self._open.items() if opening.ready}

    async def _look(self, partition: int, opening: Opening) -> None:
        """Find where the summaries end, once an opening."""
        if not opening.looked:
            opening.last = None if self._before is None else await self._before.last(partition)
            opening.looked = True
