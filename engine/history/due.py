"""Summaries that are due, or were made: one row each, as ``summarise`` keeps them in SQL."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, select, update

from engramlog.engine.history.database import Database
from engramlog.engine.history.tables import AnyRow, Tables
from engramlog.schemas.summaries import SummaryCreated

Address = tuple[str, str, str, str]
"""Tenant, agent, session, user or ''."""
WAITING, ACTIVE, ROLLED = 0, 1, 2
"""States of a summary: to be made, made, made and replaced by one of a higher level."""
_CHUNK = 300


@dataclass(frozen=True, slots=True)
class Due:
    """A summary that is to be made, or was.

    Attributes:
        summary_id: Its id.
        address: Whose.
        partition: Partition of the records.
        level: 1 for a summary of records.
        first: Lowest offset that it covers.
        last: Highest offset.
        record_ids: The records that it covers, oldest first.
        summary_ids: The summaries that it is made from, for a higher level.
        at: As of which offset it was due.
        tokens: Tokens of what it covers.
        reason: As in :class:`~engramlog.schemas.summaries.SummaryCreated`.
        trigger: Likewise.
        replaces: Likewise.
        attempts: How often it failed.
        made_tokens: Its own tokens, once it is made.
        state: Whether it is made, and whether one of a higher level stands for it.
    """

    summary_id: str
    address: Address
    partition: int
    level: int
    first: int
    last: int
    record_ids: tuple[str, ...]
    at: int
    tokens: int
    reason: str
    trigger: str
    summary_ids: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    attempts: int = 0
    made_tokens: int = 0
    state: int = WAITING

    def body(self) -> bytes:
        """What has no column of its own."""
        names = ("last", "record_ids", "at", "tokens", "reason", "trigger", "summary_ids", "replaces")
        return json.dumps({name: getattr(self, name) for name in names}).encode()

    def is_of(self, summary: SummaryCreated) -> bool:
        """Whether a summary is the one that is due: of the same part, in the same place."""
        covers = summary.covers
        theirs = (summary.summary_id, summary.level, summary.at, covers.record_ids, covers.summary_ids)
        ours = (self.summary_id, self.level, self.at, self.record_ids, self.summary_ids)
        return theirs == ours and (covers.first, covers.last) == (self.first, self.last)

    @classmethod
    def of(cls, row: AnyRow) -> "Due":
        """From its row."""
        body = json.loads(bytes(row.body))
        for name in ("record_ids", "summary_ids", "replaces"):
            body[name] = tuple(body[name])
        return cls(
            summary_id=row.summary_id,
            address=(row.tenant, row.agent, row.session_id, row.user_id),
            partition=row.partition,
            level=row.level,
            first=row.first,
            attempts=row.attempts,
            made_tokens=row.tokens,
            state=row.done,
            **body,
        )


def finish(
    connection: Connection,
    database: Database,
    tables: Tables,
    due: Due,
    *,
    tokens: int,
    roll: Callable[[Sequence[Due]], Due | None],
) -> None:
    """A summary is made; unless it was erased or moved meanwhile, or made by another."""
    d = tables.due
    tenant, agent, session, user = due.address
    mine = and_(d.c.tenant == tenant, d.c.agent == agent, d.c.session_id == session, d.c.user_id == user)
    done = connection.execute(
        update(d)
        .where(mine, d.c.summary_id == due.summary_id, d.c.done == WAITING, d.c.body == due.body())
        .values(done=ACTIVE, tokens=tokens)
    )
    if done.rowcount != 1:
        return
    rows = connection.execute(select(d).where(mine, d.c.done == ACTIVE).order_by(d.c.first)).all()
    higher = roll([Due.of(row) for row in rows])
    if higher is None:
        return
    enter(connection, database, tables, higher)
    for chunk in chunks(higher.summary_ids):
        connection.execute(update(d).where(mine, d.c.summary_id.in_(chunk)).values(done=ROLLED))


def enter(connection: Connection, database: Database, tables: Tables, due: Due) -> None:
    """A summary is due; one under the same id is moved, and made again."""
    tenant, agent, session, user = due.address
    row: dict[str, Any] = {
        "tenant": tenant,
        "agent": agent,
        "summary_id": due.summary_id,
        "session_id": session,
        "user_id": user,
        "partition": due.partition,
        "level": due.level,
        "first": due.first,
        "body": due.body(),
        "attempts": 0,
        "next_ms": 0,
        "done": WAITING,
        "tokens": 0,
    }
    keys = ("tenant", "agent", "summary_id")
    new = database.insert(tables.due).values(row)
    # The same records again, in another place: the summary moves with them, and is made again.
    changes = {name: value for name, value in row.items() if name not in keys}
    connection.execute(new.on_conflict_do_update(index_elements=keys, set_=changes))


def stand_again(connection: Connection, tables: Tables, higher: Due) -> None:
    """What one of a higher level was to be made from is active, as before."""
    d, (tenant, agent, _, _) = tables.due, higher.address
    for chunk in chunks(higher.summary_ids):
        mine = and_(d.c.tenant == tenant, d.c.agent == agent, d.c.summary_id.in_(chunk))
        connection.execute(update(d).where(mine).values(done=ACTIVE))


def chunks(ids: Sequence[str]) -> Iterable[Sequence[str]]:
    """Ids in numbers that fit into one statement."""
    return (ids[i : i + _CHUNK] for i in range(0, len(ids), _CHUNK))
