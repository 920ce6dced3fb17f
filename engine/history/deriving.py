"""What ``derive`` keeps in SQL: a small state for each session, moved with its checkpoint in one transaction."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, func, or_, select, update

from engramlog.engine.history.checkpoints import LogEnd, advance, next_offset, open_checkpoint
from engramlog.engine.history.database import Database
from engramlog.engine.history.erasure import in_ledger
from engramlog.engine.history.tables import Tables
from engramlog.engine.history.work import RecordKey
from engramlog.engine.log import Run
from engramlog.schemas.errors import Fenced

_CHUNK = 500

Address = tuple[str, str, str, str]
"""Tenant, agent, session or '', user or ''."""


@dataclass(frozen=True, slots=True)
class SessionFold:
    """What is remembered of a session, as one user has it, to derive its next record.

    Attributes:
        turns: How many records it had.
        last: The end of the newest text; what comes next is understood after it.
        topic: The running topic, as the deriver wrote it; empty: none yet.
    """

    turns: int = 0
    last: str = ""
    topic: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """Which turn of its session a record is.

    Attributes:
        number: The how-many-th, from 0.
        session: Its session, or ''.
        user: Its user, or ''.
    """

    number: int
    session: str
    user: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """An erasure: what the folds must forget of the content.

    Attributes:
        tenant: The tenant.
        agent: The agent; None: all of the tenant's.
        session: One session; None: all.
        user: One user; None: all.
        ids: Single records; empty: all.
    """

    tenant: str
    agent: str | None = None
    session: str | None = None
    user: str | None = None
    ids: tuple[str, ...] = ()


class DerivingState:
    """The state of one generation of derivations.

    Args:
        database: The database.
        tables: The tables of any version: checkpoints are shared.
        live: The tables of the version that is active in a transaction.
        generation: The generation, from 1.
        clock: Seconds since the epoch, for the checkpoints' ``updated_ms``.
    """

    def __init__(
        self,
        database: Database,
        tables: Tables,
        *,
        live: Callable[[Connection], Tables],
        generation: int,
        clock: Callable[[], float],
    ) -> None:
        self._database = database
        self._live = live
        self._tables = replace(tables, projection=f"derive_g{generation}")
        self._folds = tables.folds
        self._turns = tables.derived_turns
        self._generation = generation
        self._clock = clock

    async def open_partition(
        self, topic: str, partition: int, *, cluster_id: str | None, topic_id: str | None, end_offset: int
    ) -> int:
        """Where to go on, see :meth:`History.open_partition`."""
        log = LogEnd(topic, partition, cluster_id, topic_id, end_offset)
        return await self._database.write(
            lambda connection: open_checkpoint(connection, self._database, self._tables, log, clock=self._clock)
        )

    async def check(self, run: Run) -> None:
        """Refuse a run that is not the next one, before anything is published for it.

        Raises:
            Fenced: The checkpoint is not where the run begins.
        """
        found = await self._database.read(
            lambda connection: next_offset(connection, self._tables, run.topic, run.partition)
        )
        if found != run.expected:
            raise Fenced(
                f"{run.topic}/{run.partition} is derived up to {found}, not {run.expected}: it has a new owner"
            )

    async def load(self, addresses: Collection[Address]) -> dict[Address, SessionFold]:
        """The folds of these sessions, empty where there is none yet."""
        c = self._folds.c
        wanted = list(addresses)

        def read(connection: Connection) -> dict[Address, SessionFold]:
            found = dict.fromkeys(wanted, SessionFold())
            for tenant, agent, session, user in wanted:
                query = select(c.turns, c.last, c.topic).where(self._at(tenant, agent, session, user))
                row = connection.execute(query).one_or_none()
                if row is not None:
                    found[tenant, agent, session, user] = SessionFold(row.turns, row.last, row.topic)
            return found

        return await self._database.read(read)

    async def save(
        self,
        run: Run,
        folds: Mapping[Address, SessionFold],
        forgotten: Collection[Forgotten],
        *,
        turns: Mapping[RecordKey, Turn],
    ) -> None:
        """Move the checkpoint over a run and write folds and turns; what an erasure covered is forgotten first.

        Raises:
            Fenced: Another owner was here; nothing was written.
        """

        def write(connection: Connection) -> None:
            advance(connection, self._tables, run, clock=self._clock)
            for erased in forgotten:
                connection.execute(update(self._folds).where(self._covered(erased)).values(last="", topic=""))
                for some in _chunked(erased.ids):
                    connection.execute(delete(self._turns).where(self._turns_covered(erased, some)))
            for address, fold in folds.items():
                self._put(connection, address, fold)
            self._put_turns(connection, turns)

        await self._database.write(write)

    async def turn_of(self, key: RecordKey) -> int | None:
        """Which turn of its session a record was, as it was last derived; None: it was not, or is erased."""
        c = self._turns.c
        here = and_(c.generation == self._generation, c.tenant == key[0], c.agent == key[1], c.record_id == key[2])
        found = await self._database.read(
            lambda connection: connection.execute(select(c.turn).where(here)).scalar_one_or_none()
        )
        return None if found is None else int(found)

    async def turns_before(self, address: Address, position: int) -> int:
        """How many records of a session lie before a position: the turn, where none was noted down."""
        tenant, agent, session, user = address

        def count(connection: Connection) -> int:
            r = self._live(connection).records.c
            here = and_(r.tenant == tenant, r.agent == agent, r.session_id == session, r.user_id == user)
            return int(connection.execute(select(func.count()).where(here, r.position < position)).scalar_one())

        return await self._database.read(count)

    async def counts_in_ledger(self, tenant: str, agent: str | None, event_id: str) -> bool:
        """Whether an erasure is in the ledger; a repetition of an earlier request is not."""
        return await self._database.read(
            lambda connection: in_ledger(connection, self._live(connection), tenant, agent, event_id)
        )

    def _at(self, tenant: str, agent: str, session: str, user: str) -> ColumnElement[bool]:
        c = self._folds.c
        return and_(
            c.generation == self._generation,
            c.tenant == tenant,
            c.agent == agent,
            c.session_id == session,
            c.user_id == user,
        )

    def _covered(self, erased: Forgotten) -> ColumnElement[bool]:
        c = self._folds.c
        where = [c.generation == self._generation, c.tenant == erased.tenant]
        where += [c.agent == erased.agent] if erased.agent is not None else []
        where += [c.session_id == erased.session] if erased.session is not None else []
        # A user's words may stand in what was shared in the same talk.
        where += [or_(c.user_id == erased.user, c.user_id == "")] if erased.user is not None else []
        return and_(*where)

    def _turns_covered(self, erased: Forgotten, ids: Sequence[str]) -> ColumnElement[bool]:
        c = self._turns.c
        where = [c.generation == self._generation, c.tenant == erased.tenant]
        where += [c.agent == erased.agent] if erased.agent is not None else []
        where += [c.session_id == erased.session] if erased.session is not None else []
        where += [c.user_id == erased.user] if erased.user is not None else []
        where += [c.record_id.in_(ids)] if ids else []
        return and_(*where)

    def _put_turns(self, connection: Connection, turns: Mapping[RecordKey, Turn]) -> None:
        rows = [
            {
                "generation": self._generation,
                "tenant": tenant,
                "agent": agent,
                "record_id": record_id,
                "session_id": turn.session,
                "user_id": turn.user,
                "turn": turn.number,
            }
            for (tenant, agent, record_id), turn in turns.items()
        ]
        if not rows:
            return
        new = self._database.insert(self._turns)
        values = {name: new.excluded[name] for name in ("session_id", "user_id", "turn")}
        keys = ["generation", "tenant", "agent", "record_id"]
        connection.execute(new.on_conflict_do_update(index_elements=keys, set_=values), rows)

    def _put(self, connection: Connection, address: Address, fold: SessionFold) -> None:
        tenant, agent, session, user = address
        keys: dict[str, Any] = {
            "generation": self._generation,
            "tenant": tenant,
            "agent": agent,
            "session_id": session,
            "user_id": user,
        }
        values: dict[str, Any] = {"turns": fold.turns, "last": fold.last, "topic": fold.topic}
        new = self._database.insert(self._folds).values(keys | values)
        connection.execute(new.on_conflict_do_update(index_elements=list(keys), set_=values))


def _chunked(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """In parts that fit into one statement; no ids, which are all: one empty part."""
    yield from (ids[i : i + _CHUNK] for i in range(0, max(1, len(ids)), _CHUNK))
