"""The versions of the projections: which there are, and which one is read.

A projection is never migrated. A new version is built beside the live one and then takes its place: which version is
active is a row in SQL, and every transaction of the history looks at that row first. So a switch is one transaction for
all readers and writers, in all processes; a writer whose version is no longer the active one finds its checkpoint
elsewhere, is fenced, and goes on in the new version from where that stands.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sqlalchemy import Connection, delete, func, insert, select, text, update

from engramlog.engine.history.checkpoints import next_offsets
from engramlog.engine.history.database import Database
from engramlog.engine.history.tables import AnyRow, Tables, tables_of
from engramlog.schemas.errors import ConfigurationError

Projected = Literal["history", "vectors"]
HISTORY: Projected = "history"
VECTORS: Projected = "vectors"
PROJECTED: tuple[Projected, ...] = (HISTORY, VECTORS)

BUILDING, READY, DROPPED = "building", "ready", "dropped"

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a projection.

    Attributes:
        projection: ``history`` or ``vectors``.
        number: From 1; a number is never used twice.
        generation: The generation of derivations that it holds.
        state: ``building``, ``ready`` (it may be read), or ``dropped``.
        name: The name of a read-only version; empty: it may become the active one.
        until: For a read-only version: the offset that it ends at, exclusive, by topic and partition.
        made_ms: When it was begun, milliseconds since the epoch.
        current_ms: When it was last known to hold all of the log; 0: never.
        active: Whether it is the one that is read.
    """

    projection: Projected
    number: int
    generation: int
    state: str
    name: str = ""
    until: Mapping[Place, int] | None = None
    made_ms: int = 0
    current_ms: int = 0
    active: bool = False

    @property
    def checkpoints(self) -> str:
        """What its checkpoints are kept under."""
        if self.projection == HISTORY:
            return f"{HISTORY}_v{self.number}"
        return f"{VECTORS}_v{self.number}_g{self.generation}"

    def __str__(self) -> str:
        return f"{self.projection} v{self.number}"


class Versions:
    """The versions of all projections in one database.

    Args:
        database: The database.
        clock: Seconds since the epoch.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float]) -> None:
        self._database = database
        self._tables = tables_of(1)
        self._clock = clock

    async def all(self) -> list[Version]:
        """Every version that is not dropped, by projection and number."""
        return await self._database.read(self._all)

    async def active(self) -> dict[Projected, Version]:
        """The active version of each projection."""
        return {version.projection: version for version in await self.all() if version.active}

    async def named(self, name: str) -> dict[Projected, Version]:
        """The read-only versions of a name; empty: there is none."""
        return {version.projection: version for version in await self.all() if name and version.name == name}

    async def begin(
        self,
        projection: Projected,
        *,
        generation: int,
        name: str = "",
        until: Mapping[Place, int] | None = None,
    ) -> Version:
        """Begin a version, or go on with the one that was begun for the same.

        Args:
            projection: Of which projection.
            generation: What it is to hold.
            name: Its name, for a read-only one.
            until: Where a read-only one ends.

        Raises:
            ConfigurationError: There is another version of that name.
        """
        ends = _written(until)

        def write(connection: Connection) -> Version:
            known = [v for v in self._all(connection) if v.projection == projection]
            for version in known:
                if (
                    name
                    and version.name == name
                    and (version.generation, _written(version.until)) != (generation, ends)
                ):
                    raise ConfigurationError(
                        f"there is another {projection} of the name {name!r}: take another name, or drop it first "
                        f"('engramlog drop {name}')"
                    )
                same = version.name == name and version.generation == generation
                if same and (name or version.state == BUILDING):
                    return version
            v = self._tables.versions
            highest = connection.execute(select(func.max(v.c.number)).where(v.c.projection == projection)).scalar() or 0
            made = Version(
                projection, highest + 1, generation, BUILDING, name, until, made_ms=round(self._clock() * 1000)
            )
            connection.execute(insert(v).values(_row(made, ends)))
            return made

        return await self._database.write(write)

    def adopt(self, connection: Connection, generation: int) -> bool:
        """Let the first versions hold another generation than the first. Returns whether they held that."""
        v = self._tables.versions
        first = (v.c.number == 1) & (v.c.generation == 1)
        return generation != 1 and bool(
            connection.execute(update(v).where(first).values(generation=generation)).rowcount
        )

    async def ready(self, version: Version) -> None:
        """Say that a version may be read."""
        await self._set(version, state=READY)

    async def current(self, versions: Sequence[Version]) -> None:
        """Say that versions hold all of the log, now."""
        for version in versions:
            await self._set(version, current_ms=round(self._clock() * 1000))

    async def _set(self, version: Version, **values: str | int) -> None:
        v = self._tables.versions
        key = (v.c.projection == version.projection) & (v.c.number == version.number)
        await self._database.write(lambda connection: connection.execute(update(v).where(key).values(values)))

    async def next_offsets(self, version: Version) -> dict[Place, int]:
        """For each topic and partition, the offset that a version wants next."""
        tables = replace(self._tables, projection=version.checkpoints)
        return await self._database.read(lambda connection: next_offsets(connection, tables))

    async def behind(self, wanted: Sequence[Version]) -> dict[Place, int]:
        """By topic and partition, how many offsets these versions are behind the active ones."""
        return await self._database.read(lambda connection: self._behind(connection, wanted, lock=False))

    async def switch(self, wanted: Sequence[Version]) -> dict[Place, int]:
        """Make versions the active ones, all in one transaction; only if none is behind the one it takes over from.

        A version that was still being built is ready with it: whoever is killed before finds one that is being built.

        Args:
            wanted: At most one of each projection; complete, as its builder says by calling this.

        Returns:
            Empty: done. Else by how many offsets they are behind, by topic and partition, and nothing was done.

        Raises:
            ConfigurationError: One of them is dropped, or is a read-only one.
        """

        def write(connection: Connection) -> dict[Place, int]:
            known = {(v.projection, v.number): v for v in self._all(connection)}
            for version in wanted:
                found = known.get((version.projection, version.number))
                if found is None or found.name:
                    why = "is dropped" if found is None else "is read-only"
                    raise ConfigurationError(f"{version} cannot become the active one: it {why}")
            missing = self._behind(connection, wanted, lock=True)
            if missing:
                return missing
            t, v = self._tables.projections, self._tables.versions
            for version in wanted:
                key = (v.c.projection == version.projection) & (v.c.number == version.number)
                connection.execute(update(v).where(key).values(state=READY))
                row = {"name": version.projection, "active_version": version.number}
                new = self._database.insert(t).values(row)
                connection.execute(new.on_conflict_do_update(index_elements=["name"], set_=row))
            return {}

        return await self._database.write(write)

    async def drop(self, version: Version) -> None:
        """Drop a version: its tables and its checkpoints. Collections of vectors are their engine's.

        Raises:
            ConfigurationError: It is the active one.
        """

        def write(connection: Connection) -> None:
            known = {(v.projection, v.number): v for v in self._all(connection)}
            found = known.get((version.projection, version.number))
            if found is not None and found.active:
                raise ConfigurationError(f"{version} is the active one: switch to another version first")
            tables = replace(tables_of(version.number), projection=version.checkpoints)
            if version.projection == HISTORY:
                for table in own_tables(tables, version.number):
                    connection.execute(text(f"DROP TABLE IF EXISTS {table}"))
            c = tables.checkpoints.c
            mine = [tables.projection, f"{tables.projection}_seen"]
            connection.execute(delete(tables.checkpoints).where(c.projection.in_(mine)))
            connection.execute(delete(tables.refused).where(tables.refused.c.projection == tables.projection))
            v = tables.versions
            key = (v.c.projection == version.projection) & (v.c.number == version.number)
            connection.execute(update(v).where(key).values(state=DROPPED, name=""))

        await self._database.write(write)

    def _all(self, connection: Connection) -> list[Version]:
        v, p = self._tables.versions, self._tables.projections
        active = {row.name: row.active_version for row in connection.execute(select(p))}
        rows = connection.execute(select(v).where(v.c.state != DROPPED).order_by(v.c.projection, v.c.number))
        return [_version(row, active=active.get(row.projection) == row.number) for row in rows]

    def _behind(self, connection: Connection, wanted: Sequence[Version], *, lock: bool) -> dict[Place, int]:
        active = {v.projection: v for v in self._all(connection) if v.active}
        missing: dict[Place, int] = {}
        for version in wanted:
            before = active.get(version.projection)
            if before is None or before.number == version.number:
                continue
            if lock and not self._database.is_sqlite:  # who applies to it now waits until the switch is over
                c = self._tables.checkpoints
                held = select(c.c.next).where(c.c.projection == before.checkpoints).with_for_update()
                connection.execute(held).all()
            ours, theirs = self._offsets(connection, version), self._offsets(connection, before)
            if version.generation != before.generation:  # their derivations lie in topics of their own
                topics = {topic for topic, _ in ours}
                theirs = {place: end for place, end in theirs.items() if place[0] in topics}
            compared = [(ours, theirs)]
            if version.projection == VECTORS or version.generation != before.generation:
                # What readers count on, too: up to which record the derivations are there; by places of records.
                compared.append(
                    (self._offsets(connection, version, "_seen"), self._offsets(connection, before, "_seen"))
                )
            for has, needs in compared:
                for place, following in needs.items():
                    if following > has.get(place, 0):
                        missing[place] = max(missing.get(place, 0), following - has.get(place, 0))
        return missing

    def _offsets(self, connection: Connection, version: Version, kind: str = "") -> dict[Place, int]:
        return next_offsets(connection, replace(self._tables, projection=f"{version.checkpoints}{kind}"))


def own_tables(tables: Tables, number: int) -> list[str]:
    """The names of the tables that belong to one version of the history alone."""
    return sorted(name for name in tables.metadata.tables if name.startswith(f"{HISTORY}_v{number}_"))


def _row(version: Version, until: str) -> dict[str, object]:
    return {
        "projection": version.projection,
        "number": version.number,
        "generation": version.generation,
        "state": version.state,
        "name": version.name,
        "until": until,
        "made_ms": version.made_ms,
        "current_ms": version.current_ms,
    }


def _version(row: AnyRow, *, active: bool) -> Version:
    until = {(topic, partition): end for topic, partition, end in json.loads(row.until)} if row.until else None
    return Version(
        row.projection,
        row.number,
        row.generation,
        row.state,
        row.name,
        until,
        row.made_ms,
        row.current_ms,
        active=active,
    )


def _written(until: Mapping[Place, int] | None) -> str:
    return "" if until is None else json.dumps(sorted([*place, end] for place, end in until.items()))
