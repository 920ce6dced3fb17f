"""A Qdrant Edge shard and its directory, as the child process holds them.

::

    DIRECTORY/lock              held as long as the shard is open
    DIRECTORY/collection.json   what it is made of: model, dimension, and whatever else identifies it
    DIRECTORY/shard/            Qdrant Edge's own files
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypedDict

import qdrant_edge as edge

from engramlog.engine.vectors import translate
from engramlog.engine.vectors.durability import CAN_SYNC, sync_log
from engramlog.engine.vectors.framing import Asked, Found, NewPoint, unpacked
from engramlog.engine.vectors.frequencies import Frequencies, asked_count, tenant_of
from engramlog.engine.vectors.identity import refusal
from engramlog.engine.vectors.locking import DirectoryLock
from engramlog.schemas.errors import ConfigurationError

WRITE_CHUNK: Final = 64
"""So many points are written before somebody who reads is let in; about 10 ms."""
LOAD_CHUNK: Final = 500
"""So many at once where nobody reads yet: a third less time for each."""
MOST_UNFLUSHED: Final = 500
"""So many operations, each of a chunk at most, are left to the log alone; replaying them takes some seconds."""
FLUSH_AFTER_S: Final = 5.0
"""Seconds without a request before the shard itself is flushed."""
TIDY_AFTER_S: Final = 60.0
"""Seconds without a request before deleted points are vacuumed: that can stop everything for seconds."""
_COMPARED: Final = ["tenant", "sequence", "terms"]


class Opening(TypedDict):
    """How a shard is opened."""

    directory: str
    lock_timeout_s: float
    identity: dict[str, Any]
    collection: translate.Collection


class Shard:
    """The points of one collection. Used by one thread.

    Raises:
        ConfigurationError: The directory is another process's, or was made for other vectors.
    """

    def __init__(self, opening: Opening) -> None:
        directory = Path(opening["directory"])
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = DirectoryLock(directory, timeout_s=opening["lock_timeout_s"])
        try:
            _check_identity(directory / "collection.json", opening["identity"])
            self._edge = _opened(directory / "shard", opening["collection"])
        except BaseException:
            self._lock.release()
            raise
        self._files = directory / "shard"
        self._frequencies = Frequencies()
        self._unflushed = 0
        self._untidy = False

    def points(self) -> int:
        """How many points there are."""
        return self._edge.info().points_count

    def upsert(self, points: Sequence[NewPoint]) -> Iterator[None]:
        """Write points, each unless one with the same or a higher sequence is there; stops now and then."""
        for i in range(0, len(points), WRITE_CHUNK):
            self._write(points[i : i + WRITE_CHUNK])
            yield

    def _write(self, points: Sequence[NewPoint]) -> None:
        """One operation for all of them: this process is the only writer, so what it reads before stays true."""
        there = {str(old.id): old.payload for old in self._edge.retrieve([p.id for p in points], _COMPARED, False)}  # noqa: FBT003 - Edge takes it by position
        accepted: dict[str, NewPoint] = {}
        for point in points:
            before = accepted[point.id].sequence if point.id in accepted else _sequence(there.get(point.id))
            if before is None or before < point.sequence:
                accepted[point.id] = point
        if not accepted:
            return
        new = [translate.point_of(point) for point in accepted.values()]
        self._update(edge.UpdateOperation.upsert_points(new))
        for point in accepted.values():
            old = there.get(point.id)
            if old is not None:
                self._frequencies.changed(old, -1)
            self._frequencies.changed(point.payload, 1)

    def load(self, batch: Path) -> Iterator[None]:
        """Write a batch of points whatever is there; of equal ids the last one. Stops now and then."""
        points = [*{point.id: point for point in unpacked(batch.read_bytes())}.values()]
        for tenant in {point.payload.get("tenant") for point in points}:
            self._frequencies.forget(tenant)
        for i in range(0, len(points), LOAD_CHUNK):
            new = [translate.point_of(point) for point in points[i : i + LOAD_CHUNK]]
            self._update(edge.UpdateOperation.upsert_points(new), chunks=-(-len(new) // WRITE_CHUNK))
            yield

    def set_payload(self, payload: dict[str, Any], where: dict[str, Any]) -> None:
        """Set payload keys of what a filter finds."""
        if not payload.keys().isdisjoint(_COMPARED):
            self._frequencies.forget(tenant_of(where))
        self._update(edge.UpdateOperation.set_payload_by_filter(translate.filter_of(where), payload))

    def delete(self, where: dict[str, Any]) -> None:
        """Delete what a filter finds."""
        self._frequencies.forget(tenant_of(where))
        self._update(edge.UpdateOperation.delete_points_by_filter(translate.filter_of(where)))

    def _update(self, operation: edge.UpdateOperation, *, chunks: int = 1) -> None:
        self._unflushed += chunks
        self._untidy = True
        try:
            self._edge.update(operation)
        except Exception:
            self._frequencies.forget_all()  # it may have been done in part
            raise

    def query(self, asked: Sequence[Asked]) -> list[list[Found]]:
        """Answer queries, best first."""
        answers = self._edge.query_batch(edge.QueryBatchRequest([translate.request_of(one) for one in asked]))
        return [
            [_found(point, vectors=bool(one.vectors)) for point in points]
            for one, points in zip(asked, answers, strict=True)
        ]

    def count(self, filters: Sequence[dict[str, Any]]) -> list[int]:
        """Count what each filter finds."""
        return [self._count(where) for where in filters]

    def _count(self, where: dict[str, Any]) -> int:
        asked = asked_count(where)
        if asked is not None and (known := self._frequencies.known(*asked)) is not None:
            return known
        found = self._edge.count(edge.CountRequest(exact=True, filter=translate.filter_of(where)))
        if asked is not None:
            self._frequencies.learn(*asked, found)
        return found

    def scroll(
        self, where: dict[str, Any] | None, limit: int, offset: str | None, *, vectors: bool
    ) -> tuple[list[Found], str | None]:
        """Points in the order of their ids, and the id to go on at."""
        request = edge.ScrollRequest(
            offset=offset, limit=limit, filter=translate.maybe_filter_of(where), with_payload=True, with_vector=vectors
        )
        points, following = self._edge.scroll(request)
        found = [(str(p.id), 0.0, p.payload, translate.plain_vectors(p.vector)) for p in points]
        return found, None if following is None else str(following)

    def must_flush(self) -> bool:
        """Whether syncing the log is not enough: restoring the shard from it would take long, or it cannot be done."""
        return self._unflushed >= MOST_UNFLUSHED or not CAN_SYNC

    def sync(self) -> None:
        """Return when everything is on the disk. For another thread, beside all other methods."""
        sync_log(self._files)

    def flush(self) -> None:
        """Return when everything is on the disk, and the log is not needed any more."""
        self._edge.flush()
        self._unflushed = 0

    def idle(self, idle_s: float) -> None:
        """Nobody asked for anything for so long: tidy up."""
        if self._unflushed and idle_s >= FLUSH_AFTER_S:
            self.flush()
        if self._untidy and idle_s >= TIDY_AFTER_S:
            self._untidy = False
            self._edge.optimize()

    def close(self) -> None:
        """Close it, and give the directory free."""
        try:
            self._edge.close()
        finally:
            self._lock.release()


def _found(point: edge.ScoredPoint, *, vectors: bool) -> Found:
    return str(point.id), point.score, point.payload, translate.plain_vectors(point.vector) if vectors else None


def _sequence(payload: dict[str, Any] | None) -> int | None:
    return None if payload is None else payload.get("sequence", -1)


def _check_identity(file: Path, wanted: dict[str, Any]) -> None:
    """Compare with what the directory was made for, or note it down there."""
    if not file.exists():
        draft = file.with_suffix(".new")
        with draft.open("w", encoding="utf-8") as out:
            json.dump(wanted, out, ensure_ascii=False, indent=2)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)
        return
    there = json.loads(file.read_text(encoding="utf-8"))
    if there != wanted:
        raise ConfigurationError(refusal(str(file.parent), there, wanted))


def _opened(directory: Path, collection: translate.Collection) -> edge.EdgeShard:
    if not directory.exists():
        _create(directory, collection)
    shard = edge.EdgeShard.load(str(directory), translate.config_of(collection))
    there = shard.info().payload_schema
    for key, kind in translate.indexes_of(collection).items():
        if key not in there:  # a key of metadata that was configured later
            shard.update(edge.UpdateOperation.create_field_index(key, kind))
    return shard


def _create(directory: Path, collection: translate.Collection) -> None:
    """Create a shard aside and move it: a kill in the middle leaves nothing half made."""
    draft = directory.with_suffix(".new")
    shutil.rmtree(draft, ignore_errors=True)
    shard = edge.EdgeShard.create(str(draft), translate.config_of(collection))
    for key, kind in translate.indexes_of(collection).items():
        shard.update(edge.UpdateOperation.create_field_index(key, kind))
    shard.flush()
    shard.close()
    draft.rename(directory)
