"""How far each partition was applied: moved in the transaction of the rows, by compare-and-set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sqlalchemy import Connection, func, select, update

from engramlog.engine.history.database import Database
from engramlog.engine.history.tables import Tables
from engramlog.engine.log import Run
from engramlog.schemas.errors import ConfigurationError, Fenced


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a partition was applied.

    Attributes:
        topic: Full topic name.
        partition: Partition.
        next: Offset of the first event that was not applied.
        updated_ms: When it last moved, milliseconds since the epoch by the writer's clock.
        refused: How many of its positions went to the dead letters.
    """

    topic: str
    partition: int
    next: int
    updated_ms: int
    refused: int


@dataclass(frozen=True, slots=True)
class LogEnd:
    """A partition as the cluster knows it.

    Attributes:
        topic: Full topic name.
        partition: Partition.
        cluster_id: The cluster's id; None: unknown, not compared.
        topic_id: The topic's id; None: unknown, not compared.
        end_offset: Offset that its next event will get.
    """

    topic: str
    partition: int
    cluster_id: str | None
    topic_id: str | None
    end_offset: int


def open_checkpoint(
    connection: Connection, database: Database, tables: Tables, log: LogEnd, *, clock: Callable[[], float]
) -> int:
    """The offset to go on at, see :meth:`History.open_partition`."""
    t = tables.checkpoints
    key = (t.c.projection == tables.projection) & (t.c.topic == log.topic) & (t.c.partition == log.partition)
    row = {
        "projection": tables.projection,
        "topic": log.topic,
        "partition": log.partition,
        "next": 0,
        "cluster_id": log.cluster_id,
        "topic_id": log.topic_id,
        "updated_ms": round(clock() * 1000),
    }
    connection.execute(database.insert(t).values(row).on_conflict_do_nothing())
    found = connection.execute(select(t.c.next, t.c.cluster_id, t.c.topic_id).where(key)).one()
    _check(database, tables, log, found=(found.next, found.cluster_id, found.topic_id))
    known = {"cluster_id": found.cluster_id, "topic_id": found.topic_id}
    learnt = {"cluster_id": found.cluster_id or log.cluster_id, "topic_id": found.topic_id or log.topic_id}
    if learnt != known:
        connection.execute(update(t).where(key).values(learnt))
    return int(found.next)


def _check(database: Database, tables: Tables, log: LogEnd, *, found: tuple[int, str | None, str | None]) -> None:
    next_offset, cluster_id, topic_id = found
    where = f"the checkpoint of {log.topic}/{log.partition} in {tables.projection} of {database}"
    advice = (
        "name the database that belongs to this log, or give the projection an empty database: it is then rebuilt "
        "from the log"
    )
    for what, ours, theirs in (("cluster", cluster_id, log.cluster_id), ("topic", topic_id, log.topic_id)):
        if ours and theirs and ours != theirs:
            raise ConfigurationError(f"{where} is of {what} id {ours}, but the broker says {theirs}: {advice}")
    if next_offset > log.end_offset:
        raise ConfigurationError(
            f"the database is ahead of its log: {where} wants offset {next_offset}, but the log ends at "
            f"{log.end_offset}; events were lost, or this is another log: {advice}"
        )


def advance(connection: Connection, tables: Tables, run: Run, *, clock: Callable[[], float]) -> None:
    """Move the checkpoint over a run; holds its row's lock until the transaction ends.

    Raises:
        Fenced: The checkpoint is not where the run begins: another owner was here, or it was never opened.
    """
    t = tables.checkpoints
    moved = connection.execute(
        update(t)
        .where(
            t.c.projection == tables.projection,
            t.c.topic == run.topic,
            t.c.partition == run.partition,
            t.c.next == run.expected,
        )
        .values(next=run.next, updated_ms=round(clock() * 1000))
    )
    if moved.rowcount != 1:
        raise Fenced(
            f"the checkpoint of {run.topic}/{run.partition} in {tables.projection} is not at {run.expected}: another "
            "process owns the partition now, or this run was applied before; nothing was written"
        )


def write_refused(connection: Connection, database: Database, tables: Tables, run: Run) -> None:
    """Note which positions of a run went to the dead letters: a rebuild passes over them."""
    if run.refused:
        rows = [
            {
                "projection": tables.projection,
                "topic": run.topic,
                "partition": run.partition,
                "position": refused.offset,
                "reason": refused.reason.replace("\0", ""),
            }
            for refused in run.refused
        ]
        connection.execute(database.insert(tables.refused).on_conflict_do_nothing(), rows)


def refused_of(connection: Connection, tables: Tables, topic: str, partition: int) -> dict[int, str]:
    """The positions of a partition that went to the dead letters, and why."""
    c = tables.refused.c
    found = select(c.position, c.reason).where(
        c.projection == tables.projection, c.topic == topic, c.partition == partition
    )
    return {row.position: row.reason for row in connection.execute(found)}


def cover(
    connection: Connection, database: Database, tables: Tables, place: tuple[str, int], following: int, *, now_ms: int
) -> None:
    """Say that everything before an offset can be found. Never goes back, and is nobody's to go on from.

    Args:
        connection: A writing transaction.
        database: Its database.
        tables: With the projection's name; readers find the number under ``{projection}_seen``.
        place: Topic of the records, and partition.
        following: The offset.
        now_ms: For ``updated_ms``.
    """
    t, seen = tables.checkpoints, f"{tables.projection}_seen"
    row = {"projection": seen, "topic": place[0], "partition": place[1], "next": 0, "updated_ms": now_ms}
    connection.execute(database.insert(t).values(row).on_conflict_do_nothing())
    key = (t.c.projection == seen) & (t.c.topic == place[0]) & (t.c.partition == place[1])
    connection.execute(update(t).where(key, t.c.next < following).values(next=following, updated_ms=now_ms))


def covered(connection: Connection, tables: Tables) -> dict[tuple[str, int], int]:
    """What :func:`cover` has said of a projection, by topic of the records and partition."""
    return next_offsets(connection, replace(tables, projection=f"{tables.projection}_seen"))


def next_offset(connection: Connection, tables: Tables, topic: str, partition: int) -> int:
    """The checkpoint of a partition; 0: never opened."""
    t = tables.checkpoints
    found = connection.execute(
        select(t.c.next).where(t.c.projection == tables.projection, t.c.topic == topic, t.c.partition == partition)
    )
    return int(found.scalar_one_or_none() or 0)


def next_offsets(connection: Connection, tables: Tables) -> dict[tuple[str, int], int]:
    """The next offset of every partition of this version."""
    t = tables.checkpoints.c
    found = connection.execute(select(t.topic, t.partition, t.next).where(t.projection == tables.projection))
    return {(topic, partition): following for topic, partition, following in found}


def all_checkpoints(connection: Connection, tables: Tables) -> list[Checkpoint]:
    """Every checkpoint of this version, by topic and partition."""
    t, r = tables.checkpoints, tables.refused
    here = (r.c.projection == t.c.projection, r.c.topic == t.c.topic, r.c.partition == t.c.partition)
    refused = select(func.count()).where(*here).scalar_subquery()
    found = connection.execute(
        select(t.c.topic, t.c.partition, t.c.next, t.c.updated_ms, refused)
        .where(t.c.projection == tables.projection)
        .order_by(t.c.topic, t.c.partition)
    )
    return [Checkpoint(*row) for row in found]


def by_projection(connection: Connection, tables: Tables, names: Mapping[str, str]) -> dict[str, list[Checkpoint]]:
    """The durable checkpoints of projections, by their plain names: ``history``, ``derive``, ``vectors``, ...

    Args:
        connection: A transaction.
        tables: The tables of any version.
        names: What the checkpoints of each are kept under, by plain name.
    """
    return {
        plain: all_checkpoints(connection, replace(tables, projection=name)) for plain, name in sorted(names.items())
    }
