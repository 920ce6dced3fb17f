"""The history projection: one object over one database."""

import copy
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, select

from engramlog.engine.history import commands, derivations, summaries
from engramlog.engine.history.bodies import load
from engramlog.engine.history.checkpoints import (
    Checkpoint,
    LogEnd,
    advance,
    all_checkpoints,
    by_projection,
    covered,
    next_offset,
    next_offsets,
    open_checkpoint,
    refused_of,
)
from engramlog.engine.history.commands import Claim, Known, Outdated
from engramlog.engine.history.database import Database
from engramlog.engine.history.deriving import DerivingState
from engramlog.engine.history.digest import Agent, AgentRows, Examined, examine, keep
from engramlog.engine.history.editions import Edition, Editions
from engramlog.engine.history.generations import Generations
from engramlog.engine.history.lineage import made_from
from engramlog.engine.history.prepared import Snapshot
from engramlog.engine.history.reading import Read, records_by_id, stats_of, window_of
from engramlog.engine.history.recalling import Epoch, core_of, epochs_of, recallable, topics_of
from engramlog.engine.history.standpoint import HERE, Standpoint, stand
from engramlog.engine.history.summaries import all_made
from engramlog.engine.history.summarising import PROJECTION as SUMMARISE
from engramlog.engine.history.summarising import SummarisingState
from engramlog.engine.history.tables import Tables, tables_of
from engramlog.engine.history.vectors import VectorCheckpoints
from engramlog.engine.history.versions import VECTORS, Version, Versions
from engramlog.engine.history.view import NOW, View
from engramlog.engine.history.work import Work, chunks
from engramlog.engine.history.writing import write
from engramlog.engine.log import Run
from engramlog.schemas.contexts import StoredSummary, SummariesAnswer, SummariesQuery
from engramlog.schemas.errors import Fenced
from engramlog.schemas.keys import partition_for
from engramlog.schemas.queries import (
    AsOf,
    HistoryAnswer,
    HistoryQuery,
    Reached,
    RecordsAnswer,
    StatsAnswer,
    StoredRecord,
    TopicsAnswer,
    TopicsQuery,
)
from engramlog.schemas.scope import Scope
from engramlog.schemas.topics import Topics

A = TypeVar("A")


class History:
    """What was remembered, in order. A function of the compacted log: throw it away, and the log rebuilds it.

    Every method raises :class:`~engramlog.schemas.errors.StoreUnavailable` while the database cannot be used.

    Args:
        url: ``sqlite:///file`` (embedded) or ``postgresql://user@host/database``.
        topics: The engine's topics: what the agents' partitions are computed with.
        version: A version to stay with, whichever is active. None: the active one, whichever that is at the moment.
        timeout_s: How long to wait for a lock, a free connection, or a reading PostgreSQL statement.
        readers: How many reads run at once; more wait.
        clock: Seconds since the epoch, for the checkpoints' ``updated_ms``.

    Attributes:
        versions: The versions of all projections in this database.
        generations: The generations of derivations.

    Raises:
        ConfigurationError: The URL names no database that we support.
    """

    def __init__(
        self,
        url: str,
        *,
        topics: Topics | None = None,
        version: Version | None = None,
        timeout_s: float = 10.0,
        readers: int = 4,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._topics = topics or Topics()
        self._database = Database(url, timeout_s=timeout_s, readers=readers)
        self._clock = clock
        self._version = version
        self._tables = tables_of(1)
        self._editions = Editions(self._database)
        self.versions = Versions(self._database, clock=clock)
        self.generations = Generations(self._database)

    async def start(self) -> None:
        """Create the tables that are missing; several processes may start at once."""
        self._database.open()
        await self._editions.create(self._version)

    async def is_new(self) -> bool:
        """Whether no record was ever applied to this database, nor derived."""
        return await self._database.read(self._is_new)

    async def adopt(self, generation: int) -> bool:
        """Let a new database begin with this generation of derivations. Returns whether it was the first to say so."""

        def write(connection: Connection) -> bool:
            return self._is_new(connection) and self.versions.adopt(connection, generation)

        changed = await self._database.write(write)
        self._editions.forget()
        return changed

    def _is_new(self, connection: Connection) -> bool:
        g, c = self._tables.generations.c, self._tables.checkpoints.c
        known = select(g.number), select(c.next).where(c.projection != SUMMARISE)
        return all(connection.execute(query.limit(1)).first() is None for query in known)

    def of(self, version: Version) -> "History":
        """This history's database, with another version of the tables; it lives as long as this history does."""
        found = copy.copy(self)
        found._version = version  # noqa: SLF001 - a copy of this
        return found

    async def prepare(self) -> None:
        """Create the tables of the version that this history stays with. For one made by :meth:`of`."""
        await self._editions.create(self._version)

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

        def open_here(connection: Connection) -> int:
            tables = self._for(connection, topic).tables
            return open_checkpoint(connection, self._database, tables, log, clock=self._clock)

        return await self._database.write(open_here)

    def close_partition(self, topic: str, partition: int) -> None:
        """Nothing is kept of a partition that went to another owner."""

    async def apply(self, run: Run) -> None:
        """Apply a run and move its partition's checkpoint, in one transaction: all of it or nothing.

        Raises:
            Fenced: The checkpoint is not at ``run.expected``: another owner was here, the run was applied before, or
                another version is active now.
            Unprocessable: The database cannot hold one of the entries.
        """

        def write_run(connection: Connection) -> bool:
            edition = self._for(connection, run.topic)
            advance(connection, edition.tables, run, clock=self._clock)
            work = Work(
                connection,
                self._database,
                edition.tables,
                edition.statements,
                partition=run.partition,
                partitions=self._topics.partitions,
                erasing=set(),
            )
            if run.topic == self._topics.records:
                return write(work, run)
            if run.topic == self._topics.summaries:
                summaries.write(work, run)
                return False
            derivations.write(work, run, records=self._topics.records, now_ms=round(self._clock() * 1000))
            return False

        if await self._database.write(write_run):
            await self._database.truncate_log()

    async def copy_to(self, file: Path) -> None:
        """Write a copy of a SQLite history as it is at one moment, with all its versions and checkpoints.

        Raises:
            ConfigurationError: It is in PostgreSQL, which has its own tools.
            StoreUnavailable: The copy cannot be written.
        """
        await self._database.copy_to(file)

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
            lambda snapshot, reached: window_of(
                snapshot, scope, query, place=self.place(scope), end=reached - 1, max_bytes=max_bytes
            ),
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

    async def read_topics(self, scope: Scope, query: TopicsQuery) -> Read[TopicsAnswer]:
        """What the talk was about, latest first: topics of records that can be recalled."""
        view = View.of(query.as_of, self.place(scope))
        return await self._read(scope, lambda snapshot, _: topics_of(snapshot, scope, query, view=view))

    async def read_summaries(self, scope: Scope, query: SummariesQuery) -> Read[SummariesAnswer]:
        """Summaries of the scope, oldest first."""
        view = View.of(query.as_of, self.place(scope))
        return await self._read(scope, lambda snapshot, _: summaries.summaries_of(snapshot, scope, query, view=view))

    async def summaries_named(self, scope: Scope, summary_ids: Sequence[str]) -> list[StoredSummary]:
        """Summaries of the scope's agent by id, replaced ones included, in the order of what they cover."""
        return (await self._read(scope, lambda snapshot, _: summaries.named(snapshot, scope, summary_ids))).answer

    async def made_from(self, tenant: str, agent: str, ids: Sequence[str]) -> set[str]:
        """Ids of the facts and summaries that were made from these records, also after their erasure."""
        return await self._database.read(
            lambda connection: made_from(connection, self._here(connection), tenant, agent, ids)
        )

    async def standpoint(self, scope: Scope, as_of: AsOf | None) -> Standpoint:
        """Where a point in the past is, for the reads that follow.

        Raises:
            RequestRefused: It is of another log.
        """
        if as_of is None:
            return HERE
        place = self.place(scope)
        return (
            await self._read(
                scope, lambda snapshot, reached: stand(snapshot, scope, as_of, place=place, end=reached - 1)
            )
        ).answer

    async def cleared(self, scope: Scope, *, view: View = NOW) -> list[Epoch]:
        """The clears that reach recall, of what the scope sees, as a view has them."""
        return (await self._read(scope, lambda snapshot, _: epochs_of(snapshot, scope, view=view))).answer

    async def recallable(
        self, scope: Scope, record_ids: Sequence[str], *, view: View = NOW
    ) -> Mapping[str, StoredRecord]:
        """The records among these that the scope's user sees and that did not leave recall, by id.

        An invalidated record is among them, and says so; the session of the scope restricts nothing.
        """
        return (await self._read(scope, lambda snapshot, _: recallable(snapshot, scope, record_ids, view=view))).answer

    async def core(self, scope: Scope, *, view: View = NOW) -> list[StoredRecord]:
        """The core memories of the scope's agent, of all its sessions, oldest first."""
        return (await self._read(scope, lambda snapshot, _: core_of(snapshot, scope, view=view))).answer

    async def tokens_of(self, scope: Scope, record_ids: Sequence[str]) -> dict[str, int]:
        """Tokens of records (o200k_base), where ``summarise`` has counted them."""
        t = self._tables.turns.c

        def read(connection: Connection) -> dict[str, int]:
            found: dict[str, int] = {}
            for chunk in chunks(record_ids, 500):
                query = select(t.record_id, t.tokens).where(
                    t.tenant == scope.tenant, t.agent == scope.agent, t.record_id.in_(chunk)
                )
                found |= {row.record_id: row.tokens for row in connection.execute(query)}
            return found

        return await self._database.read(read)

    async def summaries_are_made(self, scope: Scope) -> bool:
        """Whether every summary that is due in the scope's session is made, and here."""
        return (await self._read(scope, lambda snapshot, _: all_made(snapshot, scope))).answer

    async def recent(
        self, scope: Scope, count: int, *, as_of: AsOf | None = None, max_bytes: int = 100_000
    ) -> tuple[StoredRecord, ...]:
        """The newest records of the scope's window, oldest first, as far as they are small."""
        query = HistoryQuery(window=count, as_of=as_of)
        answer = (await self.read_history(scope, query, max_bytes=max_bytes)).answer
        return tuple(record.stored for record in answer.records)

    async def record_as_of(self, scope: Scope, record_id: str, offset: int) -> StoredRecord | None:
        """A record as it was at an offset, corrected where it was corrected until then; None: it did not exist."""

        def read(snapshot: Snapshot, _reached: int) -> StoredRecord | None:
            found = load(snapshot, scope, [record_id], View(at=offset)).get(record_id)
            return found if found is not None and found.offset <= offset else None

        return (await self._read(scope, read)).answer

    def deriving(self, generation: int) -> DerivingState:
        """What ``derive`` keeps for a generation, in the same database."""
        return DerivingState(self._database, self._tables, live=self._here, generation=generation, clock=self._clock)

    def summarising(self) -> SummarisingState:
        """What ``summarise`` keeps, in the same database."""
        return SummarisingState(self._database, self._tables, live=self._here, clock=self._clock)

    def vectors(self, name: str) -> VectorCheckpoints:
        """How far a collection of vectors has come, kept in the same database."""
        return VectorCheckpoints(self._database, self._tables, name=name, clock=self._clock)

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
            lambda connection: commands.find(connection, self._here(connection), tenant, agent, request_id)
        )

    async def claim_command(self, made: Claim) -> Known | Outdated:
        """Claim what a command is resolved to.

        Returns:
            What counts: this claim, or an earlier one of the same request. :class:`Outdated`: it counts nothing,
            because it was resolved without knowing of another command; resolve anew.
        """
        now_ms = round(self._clock() * 1000)
        return await self._database.write(
            lambda connection: commands.claim(connection, self._database, self._here(connection), made, now_ms=now_ms)
        )

    async def settle_command(self, tenant: str, agent: str, request_id: str) -> None:
        """Say that a claimed event was published and passed. If it left no trace, what it was about is erased."""
        await self._database.write(
            lambda connection: commands.settle(connection, self._here(connection), tenant, agent, request_id)
        )

    async def next_offsets(self) -> dict[tuple[str, int], int]:
        """The next offset to apply of every (topic, partition); cheap enough to be looked at all the time."""
        return await self._database.read(lambda connection: next_offsets(connection, self._here(connection)))

    async def checkpoints(self) -> list[Checkpoint]:
        """How far every partition was applied, by topic and partition."""
        return await self._database.read(lambda connection: all_checkpoints(connection, self._here(connection)))

    async def derived_offsets(self) -> dict[tuple[str, int], int]:
        """For each (topic, partition) of the records: of everything before this offset the derivations are here."""
        return await self._database.read(lambda connection: covered(connection, self._here(connection)))

    async def all_checkpoints(self) -> dict[str, list[Checkpoint]]:
        """How far every active projection in this database has come: ``history``, ``derive``, ``vectors``, ..."""
        active = await self.versions.active()
        names = {projection: version.checkpoints for projection, version in active.items()} | {"summarise": SUMMARISE}
        if VECTORS in active:
            names["derive"] = f"derive_g{active[VECTORS].generation}"
        return await self._database.read(lambda connection: by_projection(connection, self._tables, names))

    async def derived_checkpoints(self, generation: int) -> list[Checkpoint]:
        """How far the records were derived in a generation, by topic and partition."""
        tables = replace(self._tables, projection=f"derive_g{generation}")
        return await self._database.read(lambda connection: all_checkpoints(connection, tables))

    async def refused(self, topic: str, partition: int) -> dict[int, str]:
        """The positions of a partition that went to the dead letters, and why."""
        return await self._database.read(
            lambda connection: refused_of(connection, self._here(connection), topic, partition)
        )

    async def digest(self, *, positions: bool = True) -> str:
        """A digest of the state, 64 hexadecimal digits: equal states have equal digests, in any database.

        What is in it, and what is not, says :mod:`engramlog.engine.history.digest`.

        Args:
            positions: Whether places and log times count. Without them an imported log compares equal, and only what
                was said counts.
        """
        return (await self.examined(positions=positions)).digest

    async def examined(self, *, positions: bool = True, kinds: Collection[str] | None = None) -> Examined:
        """The digest of each agent and of all, with the checkpoints that they were read at, in one transaction.

        Args:
            positions: As for :meth:`digest`.
            kinds: Kinds of rows that count, all by default.
        """
        return await self._database.read(
            lambda connection: examine(connection, self._here(connection), positions=positions, kinds=kinds)
        )

    async def rows_examined(self, agent: Agent, *, kinds: Collection[str] | None = None, max_bytes: int) -> AgentRows:
        """The rows of one agent that the digest is made of, with the checkpoints, in one transaction.

        Args:
            agent: Tenant and agent.
            kinds: Kinds of rows that count, all by default.
            max_bytes: How many bytes of contents are kept; hashes are kept of all.
        """
        return await self._database.read(
            lambda connection: keep(connection, self._here(connection), agent, kinds=kinds, max_bytes=max_bytes)
        )

    async def agents(self) -> list[Agent]:
        """Tenant and agent of everybody who has records, in order."""

        def read(connection: Connection) -> list[Agent]:
            r = self._here(connection).records.c
            found = connection.execute(select(r.tenant, r.agent).distinct().order_by(r.tenant, r.agent))
            return [(tenant, agent) for tenant, agent in found]

        return await self._database.read(read)

    def place(self, scope: Scope) -> tuple[str, int]:
        """The topic of records, and the partition of it that holds the events of a scope's agent."""
        return self._topics.records, partition_for(scope.tenant, scope.agent, self._topics.partitions)

    def _here(self, connection: Connection) -> Tables:
        return self._editions.of(connection, self._version).tables

    def _for(self, connection: Connection, topic: str) -> Edition:
        """The version that takes events of a topic.

        Raises:
            Fenced: It holds another generation of derivations.
        """
        edition = self._editions.of(connection, self._version)
        records, summaries = self._topics.records, self._topics.summaries
        if topic not in {records, summaries, self._topics.derived_of(edition.generation)}:
            raise Fenced(f"{edition.tables.projection} holds generation {edition.generation}: {topic} is not for it")
        return edition

    async def _read(self, scope: Scope, answer: Callable[[Snapshot, int], A]) -> Read[A]:
        topic, partition = self.place(scope)

        def read(connection: Connection) -> Read[A]:
            edition = self._editions.of(connection, self._version)
            reached = next_offset(connection, edition.tables, topic, partition)
            seen = (Reached(topic=topic, partition=partition, offset=reached - 1),) if reached else ()
            return Read(answer(Snapshot(connection, edition.tables, edition.prepared), reached), seen)

        return await self._database.read(read)
