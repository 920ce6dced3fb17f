"""A digest of the state that depends neither on the order of rows, nor on the database, nor on who wrote them.

What is in it is a function of the compacted log up to given positions, whatever order its topics were read in: records
with what hides them, what they were made from and whether they are core; marks; the ledger; what was derived from the
records that exist; summaries, whether they are active, what they cover and replaced.

What is left out, and why:

* counts of sessions, targets of marks and the flag ``marked`` only save work: all are made from what is in it;
* remembered ids of what was erased: the compacted log no longer holds them all, and the ledger is in it;
* derivations, lineage, core flags and coverings of what does not exist: they wait for it, or stayed behind when it was
  erased; nobody reads them, and which of them there are depends on the order in which topics were read;
* what ``derive`` and ``summarise`` remember: they write for every version, and are none.

Without positions only what was said counts (records, marks, ledger): in a log that was imported or migrated, what is
derived from it is made anew.
"""

import hashlib
import json
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, FromClause, Select, and_, select, text

from engramlog.engine.history.checkpoints import next_offsets
from engramlog.engine.history.summaries import is_active
from engramlog.engine.history.tables import Tables

SAID: Final = ("record", "lineage", "core", "mark", "ledger")
"""Kinds of rows that come of what was said."""
MADE: Final = ("derived", "summary", "covering", "replaced")
"""Kinds of rows that come of what was made from it."""
KINDS: Final = (*SAID, *MADE)

Agent = tuple[str, str]
"""Tenant, and agent; ``''``: an erasure of all agents."""
Place = tuple[str, int]
"""Topic and partition."""
RowKey = tuple[str, str]
"""Kind, and id within its agent."""

_BITS: Final = 256
_BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class Row:
    """A row as it counts.

    Attributes:
        agent: Whose it is.
        key: Which one.
        line: All that counts of it, as canonical JSON.
    """

    agent: Agent
    key: RowKey
    line: bytes

    def hash(self) -> bytes:
        """Its hash, 32 bytes."""
        return hashlib.blake2b(self.line, digest_size=_BITS // 8).digest()


@dataclass(slots=True)
class Digest:
    """A sum of hashes, and how many rows of each kind are in it.

    Attributes:
        total: The sum; not yet modulo 2^256.
        counts: Rows by kind.
    """

    total: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, hashed: int) -> None:
        """Add one row."""
        self.total += hashed
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def __str__(self) -> str:
        return told(self.total)


@dataclass(frozen=True, slots=True)
class Examined:
    """The state at one moment.

    Attributes:
        checkpoints: Next offset of every partition, by topic and partition.
        by_agent: The digest of each agent. An erasure of all of a tenant's agents is under ``(tenant, '')``.
        digest: Of all of it, 64 hexadecimal digits: the sum of the agents' digests.
        counts: Rows by kind.
    """

    checkpoints: Mapping[Place, int]
    by_agent: Mapping[Agent, Digest]
    digest: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Kept:
    """A row of one agent, kept for a comparison.

    Attributes:
        hash: Its hash.
        line: What counts of it; None: there were too many to keep them.
    """

    hash: bytes
    line: bytes | None


@dataclass(frozen=True, slots=True)
class AgentRows:
    """All rows of one agent at one moment.

    Attributes:
        checkpoints: As in :class:`Examined`.
        rows: By key.
    """

    checkpoints: Mapping[Place, int]
    rows: Mapping[RowKey, Kept]


def told(total: int) -> str:
    """A sum of hashes modulo 2^256, in hexadecimal."""
    return f"{total % (1 << _BITS):064x}"


def examine(
    connection: Connection, tables: Tables, *, positions: bool, kinds: Collection[str] | None = None
) -> Examined:
    """The digests of all agents, in one transaction. Cost grows with the rows, memory with the agents.

    Args:
        connection: A transaction that reads one snapshot.
        tables: The version.
        positions: Whether places and log times count; if not, only what was said does.
        kinds: Kinds of rows that count, all by default.
    """
    by_agent: dict[Agent, Digest] = {}
    counts: dict[str, int] = {}
    for row in rows_of(connection, tables, positions=positions, kinds=kinds):
        kind = row.key[0]
        by_agent.setdefault(row.agent, Digest()).add(kind, int.from_bytes(row.hash()))
        counts[kind] = counts.get(kind, 0) + 1
    total = told(sum(digest.total for digest in by_agent.values()))
    return Examined(next_offsets(connection, tables), by_agent, total, counts)


def keep(
    connection: Connection, tables: Tables, agent: Agent, *, kinds: Collection[str] | None = None, max_bytes: int
) -> AgentRows:
    """The rows of one agent with positions, by key; their contents as far as they fit into ``max_bytes``."""
    found: dict[RowKey, Kept] = {}
    left = max_bytes
    for row in rows_of(connection, tables, positions=True, kinds=kinds, agent=agent):
        left -= sys.getsizeof(row.line)
        found[row.key] = Kept(row.hash(), row.line if left > 0 else None)
    return AgentRows(next_offsets(connection, tables), found)


def rows_of(
    connection: Connection,
    tables: Tables,
    *,
    positions: bool,
    kinds: Collection[str] | None = None,
    agent: Agent | None = None,
) -> Iterator[Row]:
    """The rows that count, in no order; streams. Arguments as for :func:`examine`, ``agent``: only this one's."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL statement_timeout = 0"))
    counted = KINDS if positions else SAID
    for kind, query in _queries(tables, positions=positions).items():
        if kind not in counted or (kinds is not None and kind not in kinds):
            continue
        if agent is not None:
            c = query.selected_columns
            query = query.where(c.tenant == agent[0], c.agent == agent[1])  # noqa: PLW2901 - narrowed
        with connection.execute(query.execution_options(yield_per=_BATCH)) as found:
            for row in found:
                values = _values(kind, row._mapping, positions=positions)  # noqa: SLF001 - its public name
                if values is not None:
                    yield _row(kind, values)


def _queries(tables: Tables, *, positions: bool) -> dict[str, Select[Any]]:
    r, m, e, s = tables.records.c, tables.marks.c, tables.ledger.c, tables.summaries.c
    d, core, line = tables.derived.c, tables.core.c, tables.lineage.c
    cover, replaced = tables.covering.c, tables.replaced.c
    record = [r.tenant, r.agent, r.record_id, r.session_id, r.user_id, r.happened_us, r.hidden, r.tool, r.kept, r.body]
    mark = [m.tenant, m.agent, m.event_id, m.session_id, m.user_id, m.kind, m.scope, m.users, m.body]
    entry = [e.tenant, e.agent, e.event_id, e.scope, e.session_id, e.user_id, e.record_ids, e.request_id]
    if positions:
        record += [r.position, r.recorded_ms, r.hidden_at, r.hidden_ms]
        mark += [m.position, m.lies_at, m.recorded_ms]
        entry += [e.partition, e.position, e.recorded_ms]
    is_record = _with(tables.records, d, "record_id")
    # Of a record that is core no more the row may have stayed; what is kept is core, or instructs.
    is_core = and_(_with(tables.records, core, "record_id"), r.kept == 1)
    return {
        "record": select(*record),
        "lineage": select(line.tenant, line.agent, line.record_id, line.source_id).join_from(
            tables.lineage, tables.records, _with(tables.records, line, "record_id")
        ),
        "core": select(core.tenant, core.agent, core.record_id, r.body).join_from(tables.core, tables.records, is_core),
        "mark": select(*mark),
        "ledger": select(*entry),
        "derived": select(*d).join_from(tables.derived, tables.records, is_record),
        "summary": select(*s, is_active(tables).label("active")),
        "covering": select(cover.tenant, cover.agent, cover.summary_id, cover.source_id).join_from(
            tables.covering, tables.summaries, _with(tables.summaries, cover, "summary_id")
        ),
        "replaced": select(replaced.tenant, replaced.agent, replaced.summary_id, replaced.by),
    }


def _with(table: FromClause, columns: Any, key: str) -> Any:
    """The condition that a row's record, or summary, exists."""
    c = table.c
    return and_(c.tenant == columns.tenant, c.agent == columns.agent, c[key] == columns[key])


_IDS: Mapping[str, tuple[str, ...]] = {
    "record": ("record_id",),
    "lineage": ("record_id", "source_id"),
    "core": ("record_id",),
    "mark": ("event_id",),
    "ledger": ("event_id", "partition"),
    "derived": ("record_id",),
    "summary": ("summary_id",),
    "covering": ("summary_id", "source_id"),
    "replaced": ("summary_id", "by"),
}


def _values(kind: str, found: Mapping[Any, Any], *, positions: bool) -> dict[str, Any] | None:
    """What counts of a row; None: nothing."""
    values = {key: _document(value) if key == "body" else value for key, value in found.items()}
    body = values.get("body")
    data: Any = body.get("data") if isinstance(body, dict) else None
    if kind == "core":
        del values["body"]
        return values if isinstance(data, dict) and data.get("layer") == "core" else None
    if kind == "summary":
        values["active"] = bool(values["active"])
    if kind == "mark" and not positions and isinstance(data, dict):
        data.pop("at", None)  # an offset, which a migration translates
    return values


def _row(kind: str, values: Mapping[str, Any]) -> Row:
    line = json.dumps([kind, values], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    ids = (str(values[name]) for name in _IDS[kind] if name in values)
    return Row((values["tenant"], values["agent"]), (kind, " < ".join(ids)), line.encode("utf-8", "surrogatepass"))


def _document(body: bytes | str) -> Any:
    """A body without its whitespace and order of keys; one that is no JSON as it is."""
    try:
        return json.loads(body)
    except ValueError:
        return body if isinstance(body, str) else bytes(body).hex()
