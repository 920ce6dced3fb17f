"""Which records were made from which: facts and summaries go when one of their sources is erased."""

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection, delete, select

from engramlog.engine.history.tables import Tables
from engramlog.engine.history.work import RecordKey, Work, by_agent, chunks

_CHUNK = 300


def trace(work: Work, made: Mapping[RecordKey, Sequence[str]]) -> None:
    """Remember what records were made from, for an erasure of that."""
    rows = [
        {"tenant": tenant, "agent": agent, "source_id": source, "record_id": record_id}
        for (tenant, agent, record_id), sources in made.items()
        for source in sources
        if "\0" not in source
    ]
    if rows:
        work.connection.execute(work.database.insert(work.tables.lineage).on_conflict_do_nothing(), rows)


def forget(work: Work, keys: Iterable[RecordKey]) -> None:
    """A copy of these records is gone, and with it what it was made from. Not for what is erased: that stays known."""
    c = work.tables.lineage.c
    for (tenant, agent), ids in by_agent(sorted(keys)):
        work.connection.execute(
            delete(work.tables.lineage).where(c.tenant == tenant, c.agent == agent, c.record_id.in_(ids))
        )


def made_from(connection: Connection, tables: Tables, tenant: str, agent: str, ids: Iterable[str]) -> set[str]:
    """Ids of all records and summaries that were made from these, directly or not. They stay known after an erasure."""
    found: set[str] = set()
    frontier = set(ids)
    while frontier:
        reached: set[str] = set()
        for chunk in chunks(sorted(frontier), _CHUNK):
            for table, made in ((tables.lineage, "record_id"), (tables.covering, "summary_id")):
                c = table.c
                query = select(c[made]).where(c.tenant == tenant, c.agent == agent, c.source_id.in_(chunk))
                reached.update(connection.execute(query).scalars())
        frontier = reached - found
        found |= reached
    return found
