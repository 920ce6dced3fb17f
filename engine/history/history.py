"""The history projection: one object over one database."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from engramlog.engine.history import commands
from engramlog.engine.history.checkpoints import (
    Checkpoint,
    LogEnd,
    advance,
    all_checkpoints,
    next_offset,
    next_offsets,
    open_checkpoint,
)
from engramlog.engine.history.commands import Claim, Known, Outdated
from engramlog.engine.history.database import Database
from engramlog.engine.history.digest import digest_of
from engramlog.engine.history.prepared import Prepared, Snapshot
from engramlog.engine.history.reading import Read, records_by_id, stats_of, window_of
from engramlog.engine.history.tables import tables_of
from engramlog.engine.history.work import Statements, Work
from engramlog.engine.history.writing import write
from engramlog.engine.log import Run
from engramlog.schemas.keys import partition_for
from engramlog.schemas.queries import HistoryAnswer, HistoryQuery, Reached, RecordsAnswer, StatsAnswer
from engramlog.schemas.scope import Scope
from engramlog.schemas.topics import Topics

A = TypeVar("A")


class History:
    """What was remembered, in order. A function of the compacted log: throw it away, and the log rebuilds it.

    Every method raises :class:`~engramlog.schemas.errors.StoreUnavailable` while the database cannot be used.

    Args:
        url: ``sqlite:///file`` (embedded) or ``postgresql://user@host/database``.
        topics: The engine's topics: what the agents' partitions are computed with.
        version: Version of the tables; another version lives beside it.
        timeout_s: How long to wait for a lock, a free connection, or a reading PostgreSQL statement.
        readers: How many reads run at once; more wait.
        clock: Seconds since the epoch, for the checkpoints' ``updated_ms``.

    Raises:
        ConfigurationError: The URL names no database that we support.
    """

    def __init__(
        self,
        url: str,
        *,
        topics: Topics | None = None,
        version: int = 1,
        timeout_s: float = 10.0,
        readers: int = 4,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._topics = topics or Topics()
        self._version = version
        self._tables = tables_of(version)
        self._database = Database(url, timeout_s=timeout_s, readers=readers)
        self._statements = Statements.of(self._database, self._tables)
        self._prepared = Prepared()
        self._clock = clock

    async def start(self) -> None:
        """Create the tables that are missing; several processes may start at once."""
        self._database.open()
        await self._database.create(self._tables, version=self._version)

    async def stop(self) -> None:
        """Close every connection. Can be started again."""
        await self._database.close()

    async def open_partition(
        self, topic: str, partition: int, *, cluster_id: str | None, topic_id: str | None, end_offset: int
    ) -> int:
        """Find where to go on in a partition, and check that the database belongs to this log.

        Args:
            topic: Full topic name.
            partition: Partition.
            cluster_id: The cluster's id; None: unknown, not compared.
            topic_id: The topic's id; None: unknown, not compared.
            end_offset: The offset that the partition's next event will get.

        Returns:
            Offset of the next event to apply; 0 the first time.

        Raises:
            ConfigurationError: The checkpoint is of another cluster or topic, or ahead of the log.
        """
        log = LogEnd(topic, partition, cluster_id, topic_id, end_offset)
        return await self._database.write(
            lambda connection: open_checkpoint(connection, self._database, self._tables, log, clock=self._clock)
        )

    async def apply(self, run: Run) -> None:
        """Apply a run and move its partition's checkpoint, in one transaction: all of it or nothing.

        Raises:
            Fenced: The checkpoint is not at ``run.expected``: another owner was here, or the run was applied before.
            Unprocessable: The database cannot hold one of the entries.
        """

        def write_run(connection: Connection) -> bool:
            advance(connection, self._tables, run, clock=self._clock)
            work = Work(
                connection,
                self._database,
                self._tables,
                self._statements,
                partition=run.partition,
                partitions=self._topics.partitions,
                erasing=set(),
            )
            return write(work, run)

        if await self._database.write(write_run):
            await self._database.truncate_log()

    async def scrub(self) -> None:
        """Write the file of a SQLite history anew, so that no byte of what was deleted is left in it.

        SQLite overwrites what it deletes, but not the copies that stayed behind when a page of rows was rearranged
        before. Whoever confirms an erasure calls this first. It costs as much as copying the file, and writes wait
        for it; readers do not. PostgreSQL's files, log and backups are its operator's.
        """
        await self._database.scrub()

    async def read_history(self, scope: Scope, query: HistoryQuery, *, max_bytes: int) -> Read[HistoryAnswer]:
        """A window of the history: the protected head, then the newest records, oldest first.

        Args:
            scope: Whose, as whom.
            query: Window, scores, point of view, page.
            max_bytes: A page ends before its encoded records exceed this; it holds at least one.
        """
        return await self._read(
            scope,
            lambda snapshot, reached: window_of(snapshot, scope, query, end=reached - 1, max_bytes=max_bytes),
        )

    async def read_records(self, scope: Scope, record_ids: Sequence[str], *, max_bytes: int) -> Read[RecordsAnswer]:
        """Records by id, removed ones included, in the order asked; an id that is named twice counts once.

        Args:
            scope: Whose, as whom: another user's record is missing, and so is one of another session than the scope's.
            record_ids: The ids.
            max_bytes: What does not fit is named in ``unread``; the first one found always fits.
        """
        return await self._read(
            scope,
            lambda snapshot, _: records_by_id(snapshot, scope, record_ids, max_bytes=max_bytes),
        )

    async def read_stats(self, scope: Scope) -> Read[StatsAnswer]:
        """Counts of what the scope sees."""
        return await self._read(scope, lambda snapshot, _: stats_of(snapshot, scope))

    async def select_newest(self, scope: Scope, count: int) -> tuple[str, ...]:
        """Ids of the newest records of the window, the protected head apart; oldest first."""
        return (await self._read(scope, lambda snapshot, _: commands.newest(snapshot, scope, count))).answer

    async def select_indices(self, scope: Scope, indices: Sequence[int]) -> tuple[str, ...]:
        """Ids of the records at these indices of the window, the head and what lies outside passed over."""
        return (await self._read(scope, lambda snapshot, _: commands.at_indices(snapshot, scope, indices))).answer

    async def select_tool_calls(self, scope: Scope, limit: int) -> tuple[str, ...]:
        """Ids of the window's tool records and of those with tool calls, the oldest ones first."""
        return (await self._read(scope, lambda snapshot, _: commands.tool_calls(snapshot, scope, limit))).answer

    async def find_command(self, tenant: str, agent: str, request_id: str) -> Known | None:
        """What a command was resolved to before; None: never seen."""
        return await self._database.read(
            lambda connection: commands.find(connection, self._tables, tenant, agent, request_id)
        )

    async def claim_command(self, made: Claim) -> Known | Outdated:
        """Claim what a command is resolved to.

        Returns:
            What counts: this claim, or an earlier one of the same request. :class:`Outdated`: it counts nothing,
            because it was resolved without knowing of another command; resolve anew.
        """
        now_ms = round(self._clock() * 1000)
        return await self._database.write(
            lambda connection: commands.claim(connection, self._database, self._tables, made, now_ms=now_ms)
        )

    async def settle_command(self, tenant: str, agent: str, request_id: str) -> None:
        """Say that a claimed event was published and passed. If it left no trace, what it was about is erased."""
        await self._database.write(
            lambda connection: commands.settle(connection, self._tables, tenant, agent, request_id)
        )

    async def next_offsets(self) -> dict[tuple[str, int], int]:
        """The next offset to apply of every (topic, partition); cheap enough to be looked at all the time."""
        return await self._database.read(lambda connection: next_offsets(connection, self._tables))

    async def checkpoints(self) -> list[Checkpoint]:
        """How far every partition was applied, by topic and partition."""
        return await self._database.read(lambda connection: all_checkpoints(connection, self._tables))

    async def digest(self, *, positions: bool = True) -> str:
        """A digest of the state, 64 hexadecimal digits: equal states have equal digests, in any database.

        It covers records, marks and the ledger, not what only saves work (counts, flags, targets), and not the
        remembered ids of erased records: the compacted log no longer holds them all.

        Args:
            positions: Whether places and log times count; without them an imported log compares equal.
        """
        return await self._database.read(lambda connection: digest_of(connection, self._tables, positions=positions))

    def _place(self, scope: Scope) -> tuple[str, int]:
        return self._topics.records, partition_for(scope.tenant, scope.agent, self._topics.partitions)

    async def _read(self, scope: Scope, answer: Callable[[Snapshot, int], A]) -> Read[A]:
        topic, partition = self._place(scope)

        def read(connection: Connection) -> Read[A]:
            reached = next_offset(connection, self._tables, topic, partition)
            seen = (Reached(topic=topic, partition=partition, offset=reached - 1),) if reached else ()
            return Read(answer(Snapshot(connection, self._tables, self._prepared), reached), seen)

        return await self._database.read(read)
