"""How far the vectors have come. They lie elsewhere: SQL holds their checkpoints only.

Of each partition there are two numbers. ``next`` of the derived topic is durable: everything before it was flushed, and
a new owner goes on there. ``covered`` of the records is what a reader may count on: it moves as soon as the points are
in the store, before they are flushed. A killed process loses no point that the store has taken; only a power cut can,
and then they are written again.
"""

from collections.abc import Callable
from dataclasses import replace

from sqlalchemy import Connection, delete, select, update

from engramlog.engine.history.checkpoints import (
    LogEnd,
    advance,
    cover,
    covered,
    next_offset,
    open_checkpoint,
    refused_of,
    write_refused,
)
from engramlog.engine.history.database import Database
from engramlog.engine.history.tables import Tables
from engramlog.engine.log import Run


class VectorCheckpoints:
    """The checkpoints of one collection.

    Args:
        database: The database.
        tables: The tables of any version: checkpoints are shared.
        name: The projection, e.g. ``vectors_v1_g1``.
        clock: Seconds since the epoch, for ``updated_ms``.
    """

    def __init__(self, database: Database, tables: Tables, *, name: str, clock: Callable[[], float]) -> None:
        self._database = database
        self._tables = replace(tables, projection=name)
        self._clock = clock

    async def open_partition(
        self, topic: str, partition: int, *, cluster_id: str | None, topic_id: str | None, end_offset: int
    ) -> int:
        """Where to go on, see :meth:`History.open_partition`."""
        log = LogEnd(topic, partition, cluster_id, topic_id, end_offset)
        return await self._database.write(
            lambda connection: open_checkpoint(connection, self._database, self._tables, log, clock=self._clock)
        )

    async def current(self, topic: str, partition: int) -> int:
        """The durable checkpoint of a partition."""
        return await self._database.read(lambda connection: next_offset(connection, self._tables, topic, partition))

    async def advance(self, run: Run) -> None:
        """Move the durable checkpoint, after a flush.

        Raises:
            Fenced: Another owner moved it.
        """
        await self._database.write(lambda connection: advance(connection, self._tables, run, clock=self._clock))

    async def refuse(self, run: Run) -> None:
        """Note which positions of a run went to the dead letters."""
        await self._database.write(lambda connection: write_refused(connection, self._database, self._tables, run))

    async def refused(self, topic: str, partition: int) -> dict[int, str]:
        """The positions of a partition that went to the dead letters, and why."""
        return await self._database.read(lambda connection: refused_of(connection, self._tables, topic, partition))

    async def rewind(self, topic: str, partition: int, following: int) -> None:
        """Go back to an offset; a checkpoint that is not behind it stays. Whoever goes on does so again from there."""
        t, now_ms = self._tables.checkpoints, round(self._clock() * 1000)
        key = (t.c.projection == self._tables.projection) & (t.c.topic == topic) & (t.c.partition == partition)
        back = update(t).where(key, t.c.next > following).values(next=following, updated_ms=now_ms)
        await self._database.write(lambda connection: connection.execute(back))

    async def cover(self, topic: str, partition: int, following: int) -> None:
        """Say that the records before an offset can be found. Never goes back."""
        now_ms = round(self._clock() * 1000)
        await self._database.write(
            lambda connection: cover(
                connection, self._database, self._tables, (topic, partition), following, now_ms=now_ms
            )
        )

    async def covered(self) -> dict[tuple[str, int], int]:
        """For each (topic, partition) of the records: everything before this offset can be found."""
        return await self._database.read(lambda connection: covered(connection, self._tables))

    async def restart(self) -> bool:
        """Forget how far they have come, because the collection is new: it is built from the log again.

        Returns:
            Whether anything had been known.
        """
        t = self._tables.checkpoints

        def write(connection: Connection) -> bool:
            mine = t.c.projection.in_([self._tables.projection, f"{self._tables.projection}_seen"])
            known = connection.execute(select(t.c.next).where(mine, t.c.next > 0)).first() is not None
            connection.execute(delete(t).where(mine))
            return known

        return await self._database.write(write)
