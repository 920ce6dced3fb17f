"""Snapshots: an embedded node's stores in one file, so that another starts without reading the whole log.

A snapshot is never the truth: it is a copy of projections at known positions, and whoever starts from it goes on with
the log from there. ``engramlog snapshot verify`` compares one with the log.

The SQL part is a copy of the database, made while the engine runs: the active history, what ``derive`` and
``summarise`` keep, the checkpoints. The vectors cannot be copied from under a running engine; they are built from the
derived topic, in a working directory that is kept, so that the next snapshot only adds what came since.
"""

import asyncio
import hashlib
import io
import json
import shutil
import tarfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import zstandard

from engramlog.engine.client.admin import inspect_topics
from engramlog.engine.history import History
from engramlog.engine.history.snapshot import strip
from engramlog.engine.history.versions import VECTORS
from engramlog.engine.replay.opening import Building, Workshop, workshop
from engramlog.engine.settings import Settings
from engramlog.schemas.errors import ConfigurationError
from engramlog.schemas.topics import Topics

FORMAT = 1
DATABASE = "history.db"
COLLECTIONS = "vectors"
MANIFEST = "manifest.json"
_LEVEL = 3
_MOST_MANIFEST_BYTES = 4_000_000


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a snapshot is of.

    Attributes:
        format: Version of the file format.
        made_ms: When it was made, milliseconds since the epoch.
        cluster_id: The cluster's id; None: unknown.
        prefix: What the topics' names begin with.
        partitions: Number of partitions of every agent topic.
        versions: The versions that it holds, by projection: number and generation.
        positions: By projection, ``[topic, partition, next offset]`` of each partition.
        digest: The history's digest.
        sha256: Of each file but this one, by its path.
    """

    format: int
    made_ms: int
    cluster_id: str | None
    prefix: str
    partitions: int
    versions: dict[str, dict[str, int]]
    positions: dict[str, list[list[Any]]]
    digest: str
    sha256: dict[str, str]


def inside(settings: Settings, directory: Path) -> Settings:
    """The settings of a node whose embedded stores lie in a directory."""
    return settings.model_copy(update={"data_dir": directory, "history_url": None, "vectors_url": None})


def require_embedded(settings: Settings) -> None:
    """Refuse what is no embedded node.

    Raises:
        ConfigurationError: The stores are servers, which have snapshots of their own.
    """
    if not settings.effective_history_url().startswith("sqlite") or settings.vectors_are_served():
        raise ConfigurationError(
            "snapshots are of embedded stores (SQLite and Qdrant Edge); PostgreSQL (pg_basebackup, pg_dump) and a "
            "Qdrant server (its snapshots) have their own"
        )


async def create(settings: Settings, file: Path, *, work: Path, building: Building) -> Manifest:
    """Make a snapshot, while the engine runs or not.

    Args:
        settings: The node.
        file: Where to; written aside and renamed when it is whole.
        work: A directory of its own, kept for the next snapshot.
        building: How the vectors are built.

    Raises:
        ConfigurationError: The stores are not embedded, or the directory is another node's.
        StoreUnavailable: A store does not answer.
        BrokerUnavailable: Kafka does not answer.
    """
    require_embedded(settings)
    await asyncio.to_thread(work.mkdir, parents=True, exist_ok=True)
    await _copy_database(settings, work / DATABASE)
    async with workshop(inside(settings, work)) as place:
        version = (await place.history.versions.active())[VECTORS]
        if version.generation in await place.history.generations.all():
            async with place.build(version, building) as build:
                await build.advance()
        manifest = await _manifest(place, settings)
    return await asyncio.to_thread(_pack, work, manifest, file)


async def _copy_database(settings: Settings, target: Path) -> None:
    """Copy the database; what the working directory already knows of its vectors stays."""
    live = History(settings.effective_history_url(), topics=Topics(settings.prefix))
    await live.start()
    draft = target.with_suffix(".new")
    draft.unlink(missing_ok=True)
    try:
        await live.copy_to(draft)
    finally:
        await live.stop()
    await asyncio.to_thread(strip, draft, before=target)
    for suffix in ("-wal", "-shm"):
        target.with_name(target.name + suffix).unlink(missing_ok=True)
    draft.replace(target)


async def _manifest(place: Workshop, settings: Settings) -> Manifest:
    active = await place.history.versions.active()
    known = await place.history.all_checkpoints()
    return Manifest(
        format=FORMAT,
        made_ms=round(time.time() * 1000),
        cluster_id=place.cluster.cluster_id,
        prefix=settings.prefix,
        partitions=place.cluster.partitions,
        versions={name: {"number": v.number, "generation": v.generation} for name, v in active.items()},
        positions={name: [[c.topic, c.partition, c.next] for c in found] for name, found in known.items()},
        digest=await place.history.digest(),
        sha256={},
    )


def _files(work: Path) -> list[Path]:
    collections = sorted(path for path in (work / COLLECTIONS).rglob("*") if path.is_file() and path.name != "lock")
    return [work / DATABASE, *collections]


def _pack(work: Path, manifest: Manifest, file: Path) -> Manifest:
    sums = {str(path.relative_to(work)): _sha256(path) for path in _files(work)}
    manifest = replace(manifest, sha256=sums)
    told = json.dumps(asdict(manifest), indent=2).encode()
    draft = file.with_name(file.name + ".new")
    try:
        with (
            draft.open("wb") as out,
            zstandard.ZstdCompressor(level=_LEVEL).stream_writer(out) as packed,
            tarfile.open(fileobj=packed, mode="w|") as archive,
        ):
            entry = tarfile.TarInfo(MANIFEST)
            entry.size = len(told)
            archive.addfile(entry, io.BytesIO(told))
            for path in _files(work):
                archive.add(path, arcname=str(path.relative_to(work)), recursive=False)
        draft.replace(file)
        return manifest
    finally:
        draft.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def show(file: Path) -> Manifest:
    """What a snapshot is of.

    Raises:
        ConfigurationError: It is none, or of a format that this engramlog does not know.
    """
    with _Reading(file) as archive:
        return _told(archive, file)


def _told(archive: tarfile.TarFile, file: Path) -> Manifest:
    first = archive.next()
    content = archive.extractfile(first) if first is not None and first.name == MANIFEST else None
    if first is None or content is None or first.size > _MOST_MANIFEST_BYTES:
        raise ConfigurationError(f"{file} is no snapshot of engramlog: it does not begin with a manifest")
    try:
        found: dict[str, Any] = json.loads(content.read())
        if found.get("format") != FORMAT:
            raise ConfigurationError(f"{file} is a snapshot of format {found.get('format')}; this one knows {FORMAT}")
        return Manifest(**found)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{file} is no snapshot of engramlog: its manifest is damaged ({error})") from None


class _Reading:
    """An archive to be read from its beginning; what is damaged is told as such."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __enter__(self) -> tarfile.TarFile:
        self._raw = self._file.open("rb")
        try:
            stream = zstandard.ZstdDecompressor().stream_reader(self._raw)
            self._archive = tarfile.open(fileobj=stream, mode="r|")
        except (tarfile.TarError, zstandard.ZstdError, OSError) as error:
            self._raw.close()
            raise ConfigurationError(f"{self._file} is no snapshot of engramlog ({error})") from None
        return self._archive

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        with suppress(tarfile.TarError, zstandard.ZstdError, OSError):
            self._archive.close()
        self._raw.close()
        if isinstance(error, (tarfile.TarError, zstandard.ZstdError, EOFError)):
            raise ConfigurationError(f"the snapshot {self._file} is damaged: {error}") from None


def unpack(file: Path, directory: Path) -> Manifest:
    """Unpack a snapshot into an empty directory, and check every file.

    Raises:
        ConfigurationError: It is damaged, or no snapshot; the directory is removed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with _Reading(file) as archive:
            manifest = _told(archive, file)
            while (entry := archive.next()) is not None:
                _check(entry.name in manifest.sha256 and entry.isfile(), file, f"it holds {entry.name!r}")
                archive.extract(entry, directory, filter="data")
        for name, wanted in manifest.sha256.items():
            path = directory / name
            _check(path.is_file() and _sha256(path) == wanted, file, f"{name} is missing or is not what it was")
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return manifest


def _check(good: bool, file: Path, what: str) -> None:  # noqa: FBT001 - a condition, as in an assertion
    if not good:
        raise ConfigurationError(f"the snapshot {file} is damaged: {what}")


async def restore(settings: Settings, file: Path) -> Manifest:
    """Give a new node the stores of a snapshot. The engine then goes on with the log from its positions.

    Args:
        settings: The node: its data directory must hold no stores yet.
        file: The snapshot.

    Raises:
        ConfigurationError: The node has stores, the snapshot is damaged, or of another cluster or prefix.
        BrokerUnavailable: Kafka does not answer.
    """
    require_embedded(settings)
    history, vectors = settings.data_dir / DATABASE, settings.data_dir / COLLECTIONS
    if settings.history_url is not None or settings.vectors_url is not None:
        raise ConfigurationError(
            "a snapshot is restored into the data directory: unset ENGRAMLOG_HISTORY_URL and ENGRAMLOG_VECTORS_URL"
        )
    if there := [str(path) for path in (history, vectors) if path.exists()]:
        raise ConfigurationError(
            f"this node has stores already: {', '.join(there)}; name an empty data directory "
            "(ENGRAMLOG_DATA_DIR), or move them away"
        )
    manifest = await asyncio.to_thread(show, file)
    cluster = (await inspect_topics(settings.kafka(), topics=settings.topics())).require()
    ours = (cluster.cluster_id, settings.prefix, cluster.partitions)
    theirs = (manifest.cluster_id, manifest.prefix, manifest.partitions)
    if ours != theirs:
        raise ConfigurationError(
            f"the snapshot is of cluster {theirs[0]}, prefix {theirs[1]!r}, {theirs[2]} partitions; the settings name "
            f"cluster {ours[0]}, prefix {ours[1]!r}, {ours[2]} partitions"
        )
    draft = settings.data_dir / "snapshot.new"
    await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)
    await asyncio.to_thread(unpack, file, draft)
    if (draft / COLLECTIONS).exists():
        (draft / COLLECTIONS).replace(vectors)
    (draft / DATABASE).replace(history)  # last: with it the node has its stores
    shutil.rmtree(draft, ignore_errors=True)
    return manifest


@asynccontextmanager
async def unpacked(settings: Settings, file: Path, directory: Path) -> AsyncIterator[Settings]:
    """The settings of a node that a snapshot was unpacked for, in a directory that is removed afterwards."""
    await asyncio.to_thread(unpack, file, directory)
    try:
        yield inside(settings, directory)
    finally:
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
