"""The tables of one version of the history, and what every projection shares.

Where an id is missing the column holds ``''``, which no id can be: unique keys and index ranges then work alike in
SQLite and PostgreSQL. Positions are offsets in the agent's own partition of ``memory.records``.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    LargeBinary,
    MetaData,
    Row,
    SmallInteger,
    Table,
    Text,
    text,
)

PROJECTION = "history"

AnyRow = Row[*tuple[Any, ...]]
"""A row of any width."""


def _text(name: str, *, key: bool = False) -> Column[str]:
    return Column(name, Text, primary_key=key, nullable=False)


def _number(name: str, *, key: bool = False, null: bool = False) -> Column[int]:
    return Column(name, BigInteger, primary_key=key, nullable=null, autoincrement=False)


def _flag(name: str) -> Column[int]:
    return Column(name, SmallInteger, nullable=False)


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one version, side by side with those of others.

    Attributes:
        projection: What the checkpoints of this version are kept under, ``history_v1``.
        metadata: All of them.
        projections: Active version of every projection (shared by all versions).
        claims: What commands were resolved to, by request: the first of several resolvers counts (shared by all
            versions; rows of the last day only).
        checkpoints: Next offset of every partition (shared by all projections).
        records: One row a record: its last copy.
        sessions: One row for each (tenant, agent, session, user) that ever held a record or a mark, with counts.
        marks: Every mutation but erasures, by event id: its last copy.
        targets: The records that a mark names.
        ledger: Erasures, for ever.
        erased: Ids that an erasure deleted or named: no later copy of them is taken.
        refused: Positions that went to the dead letters.
    """

    projection: str
    metadata: MetaData
    projections: Table
    claims: Table
    checkpoints: Table
    records: Table
    sessions: Table
    marks: Table
    targets: Table
    ledger: Table
    erased: Table
    refused: Table


def tables_of(version: int) -> Tables:
    """The tables of a version."""
    metadata = MetaData()
    prefix = f"{PROJECTION}_v{version}"
    return Tables(
        projection=prefix,
        metadata=metadata,
        projections=Table("projections", metadata, _text("name", key=True), _number("active_version")),
        claims=_claims(metadata),
        checkpoints=_checkpoints(metadata),
        records=_records(metadata, prefix),
        sessions=_sessions(metadata, prefix),
        marks=_marks(metadata, prefix),
        targets=_targets(metadata, prefix),
        ledger=_ledger(metadata, prefix),
        erased=Table(
            f"{prefix}_erased",
            metadata,
            _text("tenant", key=True),
            _text("agent", key=True),
            Column("what", SmallInteger, primary_key=True, autoincrement=False),  # 0: a record, 1: another event
            _text("id", key=True),
            sqlite_with_rowid=False,
        ),
        refused=Table(
            f"{prefix}_refused",
            metadata,
            _text("topic", key=True),
            _number("partition", key=True),
            _number("position", key=True),
            _text("reason"),
        ),
    )


def _claims(metadata: MetaData) -> Table:
    table = Table(
        "claims",
        metadata,
        _text("tenant", key=True),
        _text("agent", key=True),
        _text("request_id", key=True),
        _number("at"),  # as of which offset it was resolved
        Column("body", LargeBinary, nullable=False),
        _number("made_ms"),
    )
    Index("claims_made", table.c.made_ms)
    Index("claims_at", table.c.tenant, table.c.agent, table.c.at)
    return table


def _checkpoints(metadata: MetaData) -> Table:
    return Table(
        "checkpoints",
        metadata,
        _text("projection", key=True),
        _text("topic", key=True),
        _number("partition", key=True),
        _number("next"),
        Column("cluster_id", Text),
        Column("topic_id", Text),
        _number("updated_ms"),
    )


def _records(metadata: MetaData, prefix: str) -> Table:
    table = Table(
        f"{prefix}_records",
        metadata,
        _text("tenant"),
        _text("agent"),
        _text("record_id"),
        _text("session_id"),
        _text("user_id"),
        _number("position"),
        _number("recorded_ms"),
        _number("happened_us"),
        _flag("hidden"),
        _number("hidden_at", null=True),  # the least position of a mark that takes it out of the window
        _number("hidden_ms", null=True),  # the least log time of such a mark
        _flag("tool"),  # a tool's result, or a record that calls tools
        _flag("marked"),  # a correction or an invalidation may exist: look
        Column("body", LargeBinary, nullable=False),
    )
    c = table.c
    Index(f"{prefix}_records_id", c.tenant, c.agent, c.record_id, unique=True)
    Index(f"{prefix}_records_session", c.tenant, c.agent, c.session_id, c.user_id, c.hidden, c.position)
    Index(f"{prefix}_records_user", c.tenant, c.agent, c.user_id, c.hidden, c.position)
    Index(f"{prefix}_records_agent", c.tenant, c.agent, c.hidden, c.position)
    calls = text("tool = 1 AND hidden = 0")
    Index(
        f"{prefix}_records_tool",
        c.tenant,
        c.agent,
        c.session_id,
        c.user_id,
        c.position,
        sqlite_where=calls,
        postgresql_where=calls,
    )
    hidden = text("hidden_at IS NOT NULL")  # costs nothing until a record is hidden; finds what one mark hid
    Index(
        f"{prefix}_records_hidden",
        c.tenant,
        c.agent,
        c.hidden_at,
        c.position,
        sqlite_where=hidden,
        postgresql_where=hidden,
    )
    return table


def _sessions(metadata: MetaData, prefix: str) -> Table:
    return Table(
        f"{prefix}_sessions",
        metadata,
        _text("tenant", key=True),
        _text("agent", key=True),
        _text("session_id", key=True),
        _text("user_id", key=True),
        _number("records"),
        _number("visible"),
        sqlite_with_rowid=False,
    )


def _marks(metadata: MetaData, prefix: str) -> Table:
    table = Table(
        f"{prefix}_marks",
        metadata,
        _text("tenant", key=True),
        _text("agent", key=True),
        _text("event_id", key=True),
        _text("kind"),
        _text("scope"),
        _text("users"),
        _text("session_id"),
        _text("user_id"),
        _number("position"),  # where it takes effect: never later than where it lies
        _number("lies_at"),
        _number("recorded_ms"),
        Column("body", LargeBinary, nullable=False),
    )
    c = table.c
    Index(f"{prefix}_marks_kind", c.tenant, c.agent, c.kind, c.session_id, c.user_id, c.position)
    return table


def _targets(metadata: MetaData, prefix: str) -> Table:
    table = Table(
        f"{prefix}_targets",
        metadata,
        _text("tenant", key=True),
        _text("agent", key=True),
        _text("record_id", key=True),
        _text("event_id", key=True),
        _text("kind"),
        _text("scope"),
        _number("position"),
        _number("recorded_ms"),
        sqlite_with_rowid=False,
    )
    Index(f"{prefix}_targets_event", table.c.tenant, table.c.agent, table.c.event_id)
    return table


def _ledger(metadata: MetaData, prefix: str) -> Table:
    return Table(
        f"{prefix}_ledger",
        metadata,
        _text("tenant", key=True),
        _text("agent", key=True),
        _text("event_id", key=True),
        _number("partition", key=True),  # an entry without an agent lies in every partition
        _text("scope"),
        _text("session_id"),
        _text("user_id"),
        _text("record_ids"),  # a JSON array
        _text("request_id"),
        _number("position"),
        _number("recorded_ms"),
    )
