"""What ``summarise`` keeps in SQL: the turns of each session with their tokens, and the summaries that are due.

Both move with the checkpoint over the records in one transaction. What is due is done by whoever owns the partition,
whenever the model answers; the fold over the records never waits for it.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, or_, select, update

from engramlog.engine.history.checkpoints import LogEnd, advance, next_offset, open_checkpoint
from engramlog.engine.history.database import Database
from engramlog.engine.history.due import WAITING, Address, Due, finish, stand_again
from engramlog.engine.history.erasure import in_ledger
from engramlog.engine.history.tables import Tables
from engramlog.engine.history.turns import Folded
from engramlog.engine.log import Run

PROJECTION = "summarise_g1"
"""What its checkpoints are kept under."""


@dataclass(frozen=True, slots=True)
class Idle:
    """A session in which nothing was said for a while.

    Attributes:
        tenant: The tenant.
        agent: The agent.
        session: The session.
        partition: Partition of its records.
        position: Where its newest turn lies.
        recorded_ms: When that was appended.
    """

    tenant: str
    agent: str
    session: str
    partition: int
    position: int
    recorded_ms: int


class SummarisingState:
    """The state of ``summarise``.

    Args:
        database: The database.
        tables: The tables of any version: this state is shared.
        live: The tables of the version that is active in a transaction.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        database: Database,
        tables: Tables,
        *,
        live: Callable[[Connection], Tables],
        clock: Callable[[], float],
    ) -> None:
        self._database = database
        self._live = live
        self._tables = replace(tables, projection=PROJECTION)
        self._clock = clock

    async def open_partition(
        self, topic: str, partition: int, *, cluster_id: str | None, topic_id: str | None, end_offset: int
    ) -> int:
        """Where to go on, see :meth:`History.open_partition`."""
        log = LogEnd(topic, partition, cluster_id, topic_id, end_offset)
        return await self._database.write(
            lambda connection: open_checkpoint(connection, self._database, self._tables, log, clock=self._clock)
        )

    async def fold(self, run: Run, do: Callable[[Folded], None]) -> None:
        """Move the checkpoint over a run, and do what it comes to, in one transaction.

        Raises:
            Fenced: Another owner was here; nothing was written.
        """

        def write(connection: Connection) -> None:
            advance(connection, self._tables, run, clock=self._clock)
            do(Folded(connection, self._database, self._tables, run.partition))

        await self._database.write(write)

    async def reached(self, topic: str, partition: int) -> int:
        """The checkpoint."""
        return await self._database.read(lambda connection: next_offset(connection, self._tables, topic, partition))

    async def next_due(self, partitions: Collection[int], *, limit: int) -> list[Due]:
        """Summaries to be made now: of each session the first one, if its time has come."""
        d, now_ms = self._tables.due.c, round(self._clock() * 1000)
        o = self._tables.due.alias().c
        older = exists().where(
            o.tenant == d.tenant,
            o.agent == d.agent,
            o.session_id == d.session_id,
            o.user_id == d.user_id,
            o.done == WAITING,
            or_(o.first < d.first, and_(o.first == d.first, o.level < d.level)),
        )
        query = (
            select(self._tables.due)
            .where(d.done == WAITING, d.partition.in_(sorted(partitions)), d.next_ms <= now_ms, ~older)
            .order_by(d.next_ms, d.first, d.summary_id)
            .limit(limit)
        )
        return await self._database.read(lambda connection: [Due.of(row) for row in connection.execute(query)])

    async def fell_idle(self, partitions: Collection[int], *, after_ms: int, until_ms: int) -> list[Idle]:
        """Sessions whose newest turn was recorded in a span of time. Costs the turns of that span.

        Args:
            partitions: Of these partitions.
            after_ms: Exclusive.
            until_ms: Inclusive.
        """
        t, later = self._tables.turns, self._tables.turns.alias()

        def read(connection: Connection) -> list[Idle]:
            newer = exists().where(
                later.c.tenant == t.c.tenant,
                later.c.agent == t.c.agent,
                later.c.session_id == t.c.session_id,
                later.c.position > t.c.position,
            )
            query = select(t.c.tenant, t.c.agent, t.c.session_id, t.c.partition, t.c.position, t.c.recorded_ms).where(
                t.c.partition.in_(sorted(partitions)),
                t.c.recorded_ms > after_ms,
                t.c.recorded_ms <= until_ms,
                t.c.session_id != "",
                ~newer,
            )
            return [Idle(*row) for row in connection.execute(query)]

        return await self._database.read(read)

    async def waiting(self, address: Address) -> int:
        """How many summaries of a session are to be made."""
        d = self._tables.due.c
        query = select(d.summary_id).where(
            d.tenant == address[0],
            d.agent == address[1],
            d.session_id == address[2],
            d.user_id == address[3],
            d.done == WAITING,
        )
        return await self._database.read(lambda connection: len(connection.execute(query).all()))

    async def fail(self, due: Due, *, pause_s: float) -> None:
        """A try failed: it is tried again after a pause."""
        d, now_ms = self._tables.due, round(self._clock() * 1000)
        next_ms = now_ms + round(pause_s * 1000)
        await self._database.write(
            lambda connection: connection.execute(
                update(d).where(self._same(due)).values(attempts=due.attempts + 1, next_ms=next_ms)
            )
        )

    async def drop(self, due: Due) -> None:
        """There is nothing left to summarise. What it would have been made from stands again."""
        d = self._tables.due

        def write(connection: Connection) -> None:
            dropped = connection.execute(delete(d).where(self._same(due), d.c.done == WAITING))
            if dropped.rowcount == 1:
                stand_again(connection, self._tables, due)

        await self._database.write(write)

    async def counts_in_ledger(self, tenant: str, agent: str | None, event_id: str) -> bool:
        """Whether an erasure is in the ledger; a repetition of an earlier request is not."""
        return await self._database.read(
            lambda connection: in_ledger(connection, self._live(connection), tenant, agent, event_id)
        )

    async def finish(self, due: Due, tokens: int, roll: Callable[[Sequence[Due]], Due | None]) -> None:
        """A summary was published.

        Args:
            due: The summary.
            tokens: Its tokens.
            roll: Decides, from the active summaries of the session, oldest first, what is rolled up.
        """
        await self._database.write(
            lambda connection: finish(connection, self._database, self._tables, due, tokens=tokens, roll=roll)
        )

    def _same(self, due: Due) -> ColumnElement[bool]:
        d = self._tables.due.c
        return and_(d.tenant == due.address[0], d.agent == due.address[1], d.summary_id == due.summary_id)
