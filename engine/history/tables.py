"""The tables of one version of the history, and what every projection shares.

Where an id is missing the column holds ``''``, which no id can be: unique keys and index ranges then work alike in
SQLite and PostgreSQL. Positions are offsets in the agent's own partition of ``memory.records``.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
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
        versions: Every version of every projection that there ever was (shared by all versions).
        claims: What commands were resolved to, by request: the first of several resolvers counts (shared by all
            versions; rows of the last day only).
        checkpoints: Next offset of every partition (shared by all projections).
        records: One row a record: its last copy.
        sessions: One row for each (tenant, agent, session, user) that ever held a record or a mark, with counts.
        marks: Every mutation but erasures, by event id: its last copy.
        targets: The records that a mark names.
        ledger: Erasures, for ever.
        erased: Ids that an erasure deleted or named: no later copy of them is taken.
        refused: Positions that went to the dead letters, by projection (shared by all versions).
        derived: What was derived from records, as far as SQL needs it: the last derivation of each.
        summaries: Summaries: the last copy of each.
        replaced: Which summaries are active no more, and by which one they were replaced.
        covering: What each summary stands for: records, and summaries. Ids only; after an erasure they stay.
        core: Core memories, which are in every context.
        lineage: Which records were extracted from which: an erasure of the source reaches them. Ids only; they stay.
        folds: What ``derive`` remembers of each session (shared by all versions).
        derived_turns: Which turn of its session each record was, for ``derive`` (shared by all versions).
        turns: What ``summarise`` remembers of each record of a session (shared by all versions).
        due: Summaries that are to be made (shared by all versions).
        generations: What each generation of derivations is made with (shared by all versions).
    """

    projection: str
    metadata: MetaData
    projections: Table
    versions: Table
    claims: Table
    checkpoints: Table
    records: Table
    sessions: Table
    marks: Table
    targets: Table
    ledger: Table
    erased: Table
    refused: Table
    derived: Table
    summaries: Table
    replaced: Table
    covering: Table
    core: Table
    lineage: Table
    folds: Table
    derived_turns: Table
    turns: Table
    due: Table
    generations: Table


def tables_of(version: int) -> Tables:
    """The tables of a version."""
    metadata = MetaData()
    prefix = f"{PROJECTION}_v{version}"
    return Tables(
        projection=prefix,
        metadata=metadata,
        projections=Table("projections", metadata, _text("name", key=True), _number("active_version")),
        versions=_versions(metadata),
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
            "refused",
            metadata,
            _text("projection", key=True),
            _text("topic", key=True),
            _number("partition", key=True),
            _number("position", key=True),
            _text("reason"),
        ),
        derived=_derived(metadata, prefix),
        summaries=_summaries(metadata, prefix),
        replaced=Table(
            f"{prefix}_replaced",
            metadata,
            _text("tenant", key=True),
            _text("agent", key=True),
            _text("summary_id", key=True),
            _text("by", key=True),
            sqlite_with_rowid=False,
        ),
        covering=Table(
            f"{prefix}_covering",
            metadata,
            _text("tenant", key=True),
            _text("agent", key=True),
            _text("source_id", key=True),
            _text("summary_id", key=True),
            sqlite_with_rowid=False,
        ),
        core=Table(
            f"{prefix}_core",
            metadata,
            _text("tenant", key=True),
            _text("agent", key=True),
            _text("record_id", key=True),
            sqlite_with_rowid=False,
        ),
        lineage=_lineage(metadata, prefix),
        folds=_folds(metadata),
        derived_turns=_derived_turns(metadata),
        turns=_turns(metadata),
        due=_due(metadata),
        generations=Table(
            "generations",
            metadata,
            _number("number", key=True),
            _text("model"),
            _number("dimension"),
            _text("settings"),  # JSON: the settings that its deriver differs in from those of the process
        ),
    )


def _versions(metadata: MetaData) -> Table:
    return Table(
        "versions",
        metadata,
        _text("projection", key=True),
        _number("number", key=True),
        _number("generation"),
        _text("state"),  # building, ready or dropped
        _text("name"),  # of a read-only version; '': it may become the active one
        _text("until"),  # JSON: the offsets that a read-only version ends at; '': it goes on
        _number("made_ms"),
        _number("current_ms"),  # when it was last known to hold all of the log
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
        _flag("kept"),  # summaries never stand for it
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
    kept = text("kept = 1")
    Index(
        f"{prefix}_records_kept",
        c.tenant,
        c.agent,
        c.session_id,
        c.user_id,
        c.position,
        sqlite_where=kept,
        postgresql_where=kept,
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


def _derived(metadata: MetaData, prefix: str) -> Table:
    table = Table(
        f"{prefix}_derived",
        metadata,
        _text("tenant", key=True),
        _text("agent", key=True),
        _text("record_id", key=True),
        _text("session_id"),
        _text("user_id"),
        _number("partition"),
        _number("position"),  # of the record
        _number("sequence"),  # of the derivation, in its own topic
        _text("topic"),
        Column("importance", Float, nullable=False),
        _text("language"),
        _number("happened_us"),
    )
    Index(f"{prefix}_derived_topic", table.c.tenant, table.c.agent, table.c.topic)
    return table


def _folds(metadata: MetaData) -> Table:
    return Table(
        "derive_sessions",
        metadata,
        _number("generation", key=True),
        _text("tenant", key=True),
        _text("agent", key=True),
        _text("session_id", key=True),
        _text("user_id", key=True),
        _number("turns"),
        _text("last"),
        _text("topic"),
        sqlite_with_rowid=False,
    )


def _derived_turns(metadata: MetaData) -> Table:
    return Table(
        "derive_turns",
        metadata,
        _number("generation", key=True),
        _text("tenant", key=True),
        _text("agent", key=True),
        _text("record_id", key=True),
        _text("session_id"),
        _text("user_id"),
        _number("turn"),
        sqlite_with_rowid=False,
    )


def _summaries(metadata: MetaData, prefix: str) -> Table:
    table = Table(
        f"{prefix}_summaries",
        metadata,
        _text("tenant", key=True),
        _text("agent", key=True),
        _text("summary_id", key=True),
        _text("session_id"),
        _text("user_id"),
        _number("partition"),
        Column("level", SmallInteger, nullable=False),
        _number("first"),  # positions of the records that it covers
        _number("last"),
        _number("at"),  # as of which position the window shows it
        _number("lies_at"),  # in the topic of summaries
        _number("recorded_ms"),
        Column("body", LargeBinary, nullable=False),
    )
    c = table.c
    Index(f"{prefix}_summaries_session", c.tenant, c.agent, c.session_id, c.user_id, c.last)
    return table


def _lineage(metadata: MetaData, prefix: str) -> Table:
    table = Table(
        f"{prefix}_lineage",
        metadata,
        _text("tenant", key=True),
        _text("agent", key=True),
        _text("source_id", key=True),
        _text("record_id", key=True),
        sqlite_with_rowid=False,
    )
    Index(f"{prefix}_lineage_record", table.c.tenant, table.c.agent, table.c.record_id)
    return table


def _turns(metadata: MetaData) -> Table:
    table = Table(
        "summarise_turns",
        metadata,
        _text("tenant", key=True),
        _text("agent", key=True),
        _text("record_id", key=True),
        _text("session_id"),
        _text("user_id"),
        _number("partition"),
        _number("position"),
        _number("recorded_ms"),
        _text("role"),
        _flag("tool"),  # it calls tools, or is a result
        _flag("kept"),  # it is never summarised away
        _text("calls"),  # JSON: the ids of the calls that it makes
        _text("answers"),  # the id of the call that it answers; '': none
        _number("tokens"),
        _text("summary_id"),  # which summary it goes into; '': none yet
    )
    c = table.c
    Index("summarise_turns_session", c.tenant, c.agent, c.session_id, c.user_id, c.summary_id, c.position)
    Index("summarise_turns_summary", c.tenant, c.agent, c.summary_id)
    Index("summarise_turns_time", c.partition, c.recorded_ms)
    return table


def _due(metadata: MetaData) -> Table:
    table = Table(
        "summarise_due",
        metadata,
        _text("tenant", key=True),
        _text("agent", key=True),
        _text("summary_id", key=True),
        _text("session_id"),
        _text("user_id"),
        _number("partition"),
        Column("level", SmallInteger, nullable=False),
        _number("first"),
        Column("body", LargeBinary, nullable=False),
        _number("attempts"),
        _number("next_ms"),
        _flag("done"),
        _number("tokens"),  # of the finished summary
    )
    Index("summarise_due_next", table.c.done, table.c.partition, table.c.next_ms)
    c = table.c
    Index("summarise_due_session", c.tenant, c.agent, c.session_id, c.user_id, c.done, c.first)
    return table
