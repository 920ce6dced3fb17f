"""The turns of each session with their tokens: what decides which summaries are due."""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, select, update

from engramlog.engine.history.database import Database
from engramlog.engine.history.due import WAITING, Address, Due, chunks, enter, finish, stand_again
from engramlog.engine.history.tables import AnyRow, Tables
from engramlog.schemas.summaries import SummaryCreated


@dataclass(frozen=True, slots=True)
class Turn:
    """A record of a session, as far as summarising needs it.

    Attributes:
        record_id: The record.
        position: Where it lies.
        recorded_ms: When it was appended.
        role: Who speaks.
        tool: It calls tools, or is the result of a call.
        kept: It is never summarised away.
        tokens: Its tokens.
        calls: The ids of the calls that it makes; a call without one has ``""``.
        answers: The id of the call that it answers; empty: none is named.
    """

    record_id: str
    position: int
    recorded_ms: int
    role: str
    tool: bool
    kept: bool
    tokens: int
    calls: tuple[str, ...] = ()
    answers: str = ""


@dataclass(slots=True)
class Folded:
    """One transaction of the fold.

    Attributes:
        connection: The transaction.
        database: Its database.
        tables: Its tables.
        partition: The run's partition.
    """

    connection: Connection
    database: Database
    tables: Tables
    partition: int
    _pending: dict[Address, list[Turn]] = field(default_factory=dict)

    def add(self, address: Address, turn: Turn) -> None:
        """A record was written: it takes its place, whatever an older copy had."""
        t = self.tables.turns
        keys = {"tenant": address[0], "agent": address[1], "record_id": turn.record_id}
        values: dict[str, Any] = {
            "session_id": address[2],
            "user_id": address[3],
            "partition": self.partition,
            "position": turn.position,
            "recorded_ms": turn.recorded_ms,
            "role": turn.role,
            "tool": int(turn.tool),
            "kept": int(turn.kept),
            "calls": json.dumps(turn.calls) if turn.calls else "",
            "answers": turn.answers,
            "tokens": turn.tokens,
            "summary_id": "",
        }
        new = self.database.insert(t).values(keys | values)
        self.connection.execute(new.on_conflict_do_update(index_elements=list(keys), set_=values))
        if any(turn.record_id == known.record_id for turns in self._pending.values() for known in turns):
            self._pending.clear()
        elif address in self._pending:
            self._pending[address].append(turn)

    def users(self, tenant: str, agent: str, session: str) -> list[str]:
        """Who has turns in a session."""
        c = self.tables.turns.c
        query = select(c.user_id).where(c.tenant == tenant, c.agent == agent, c.session_id == session).distinct()
        return sorted(self.connection.execute(query).scalars())

    def drop(self, tenant: str, agent: str, ids: Collection[str], *, before: int) -> None:
        """Records left the window: they go into no summary any more."""
        c = self.tables.turns.c
        for chunk in chunks(sorted(ids)):
            self._delete(
                and_(
                    c.tenant == tenant,
                    c.agent == agent,
                    c.record_id.in_(chunk),
                    c.position < before,
                    c.summary_id == "",
                )
            )

    def drop_scope(self, tenant: str, agent: str, *, session: str | None, user: str | None, before: int) -> None:
        """A scope was cleared. ``user`` None: everybody's.

        Its summaries are over: they are neither made nor rolled up. What one covered of later turns is free again, as
        long as it is not made.
        """
        t, d = self.tables.turns, self.tables.due
        self._delete(_within(t.c, tenant, agent, session=session, user=user) & (t.c.position < before))
        of_scope = _within(d.c, tenant, agent, session=session, user=user)
        for due in map(Due.of, self.connection.execute(select(d).where(of_scope, d.c.first < before)).all()):
            if due.last < before or due.state == WAITING:
                self._delete_due(tenant, agent, due.summary_id)
                self._free(tenant, agent, due.summary_id)

    def erase_scope(self, tenant: str, agent: str | None, *, session: str | None, user: str | None) -> None:
        """All of a scope is erased."""
        for table in (self.tables.turns, self.tables.due):
            covered = _within(table.c, tenant, agent, session=session, user=user)
            self.connection.execute(delete(table).where(covered, table.c.partition == self.partition))
        self._pending.clear()

    def erase(self, tenant: str, agent: str, ids: Collection[str]) -> list[Due]:
        """Records are erased. What summaries of them covered besides is free again.

        Returns:
            The summaries of records that are void now, without what was erased.
        """
        t = self.tables.turns
        for chunk in chunks(sorted(ids)):
            self._delete(and_(t.c.tenant == tenant, t.c.agent == agent, t.c.record_id.in_(chunk)))
        void: list[Due] = []
        for due in self._covering(tenant, agent, ids):
            self._free(tenant, agent, due.summary_id)
            void.append(replace(due, record_ids=tuple(i for i in due.record_ids if i not in ids)))
            self._unroll(due)
            self._delete_due(tenant, agent, due.summary_id)
        return void

    def _covering(self, tenant: str, agent: str, ids: Collection[str]) -> list[Due]:
        """The summaries of records that cover one of these, wherever it lies by now. Costs a look at the agent's."""
        d, wanted = self.tables.due, set(ids)
        rows = self.connection.execute(
            select(d)
            .where(d.c.tenant == tenant, d.c.agent == agent, d.c.level == 1)
            .order_by(d.c.first, d.c.summary_id)
        )
        return [due for due in map(Due.of, rows.all()) if not wanted.isdisjoint(due.record_ids)]

    def _free(self, tenant: str, agent: str, summary_id: str) -> None:
        """What a summary covered is in none."""
        t = self.tables.turns
        mine = and_(t.c.tenant == tenant, t.c.agent == agent, t.c.summary_id == summary_id)
        self.connection.execute(update(t).where(mine).values(summary_id=""))
        self._pending.clear()

    def _unroll(self, due: Due) -> None:
        """Summaries of a higher level that were made from one are void, too; the others of theirs stand again."""
        tenant, agent, session, user = due.address
        d = self.tables.due
        rows = self.connection.execute(
            select(d).where(
                d.c.tenant == tenant,
                d.c.agent == agent,
                d.c.session_id == session,
                d.c.user_id == user,
                d.c.level > due.level,
            )
        ).all()
        for higher in map(Due.of, rows):
            if due.summary_id in higher.summary_ids:
                self._unroll(higher)
                self._delete_due(tenant, agent, higher.summary_id)
                stand_again(self.connection, self.tables, higher)

    def pending(self, address: Address) -> list[Turn]:
        """The turns of a session that no summary covers, oldest first. Read once a run."""
        found = self._pending.get(address)
        if found is None:
            found = self._pending[address] = self._read_pending(address)
        return found

    def _read_pending(self, address: Address) -> list[Turn]:
        c = self.tables.turns.c
        query = (
            select(c.record_id, c.position, c.recorded_ms, c.role, c.tool, c.kept, c.tokens, c.calls, c.answers)
            .where(
                c.tenant == address[0],
                c.agent == address[1],
                c.session_id == address[2],
                c.user_id == address[3],
                c.summary_id == "",
            )
            .order_by(c.position)
        )
        return [_turn(row) for row in self.connection.execute(query)]

    def enter(self, due: Due) -> None:
        """A summary is due; its turns are taken."""
        enter(self.connection, self.database, self.tables, due)
        self._pending.pop(due.address, None)
        t = self.tables.turns
        for chunk in chunks(due.record_ids):
            self.connection.execute(
                update(t)
                .where(t.c.tenant == due.address[0], t.c.agent == due.address[1], t.c.record_id.in_(chunk))
                .values(summary_id=due.summary_id)
            )

    def made(
        self, tenant: str, agent: str, summary: SummaryCreated, roll: Callable[[Sequence[Due]], Due | None]
    ) -> None:
        """A summary that is due was made before, see :meth:`SummarisingState.finish`; of another part it is another."""
        d = self.tables.due
        same = and_(d.c.tenant == tenant, d.c.agent == agent, d.c.summary_id == summary.summary_id)
        row = self.connection.execute(select(d).where(same, d.c.done == WAITING)).one_or_none()
        if row is None or not (due := Due.of(row)).is_of(summary):
            return
        finish(self.connection, self.database, self.tables, due, tokens=summary.tokens_after, roll=roll)

    def _delete(self, where: ColumnElement[bool]) -> None:
        self._pending.clear()
        self.connection.execute(delete(self.tables.turns).where(where))

    def _delete_due(self, tenant: str, agent: str, summary_id: str) -> None:
        d = self.tables.due
        self.connection.execute(delete(d).where(d.c.tenant == tenant, d.c.agent == agent, d.c.summary_id == summary_id))


def _turn(row: AnyRow) -> Turn:
    return Turn(
        record_id=row.record_id,
        position=row.position,
        recorded_ms=row.recorded_ms,
        role=row.role,
        tool=bool(row.tool),
        kept=bool(row.kept),
        tokens=row.tokens,
        calls=tuple(json.loads(row.calls)) if row.calls else (),
        answers=row.answers,
    )


def _within(c: Any, tenant: str, agent: str | None, *, session: str | None, user: str | None) -> ColumnElement[bool]:
    """The rows of a scope; None: of all."""
    where: list[ColumnElement[bool]] = [c.tenant == tenant]
    where += [] if agent is None else [c.agent == agent]
    where += [] if session is None else [c.session_id == session]
    where += [] if user is None else [c.user_id == user]
    return and_(*where)
