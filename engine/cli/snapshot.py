"""``engramlog snapshot``: an embedded node's stores in one file, for a fast start elsewhere."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli import output
from engramlog.engine.cli.options import json_option, settings_options

if TYPE_CHECKING:
    from engramlog.engine.replay.snapshots import Manifest
    from engramlog.engine.settings import Settings

_EPILOG = """\b
Examples:
  engramlog snapshot create memory.snapshot
  engramlog snapshot show memory.snapshot
  ENGRAMLOG_DATA_DIR=/var/lib/node2 engramlog snapshot restore memory.snapshot

\b
A snapshot is a copy of projections at known positions, never the truth. A node that starts from it goes on with the
log from there, without reading all of it and without asking a model. 'engramlog verify' on a restored node compares it
with the log. Snapshots are of embedded stores (SQLite and Qdrant Edge); PostgreSQL and Qdrant servers have their own.
"""


@click.group(epilog=_EPILOG)
def snapshot() -> None:
    """Snapshots of an embedded node, for a fast start elsewhere."""


@snapshot.command(
    epilog="""\b
Examples:
  engramlog snapshot create memory.snapshot
  engramlog snapshot create /backup/memory.snapshot --json

\b
The engine may run meanwhile. The first time the vectors are read from the log; they stay in a working directory, so
that the next snapshot only adds what came since. FILE is written aside and takes its name when it is whole.
"""
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--work",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Working directory. [default: in the data directory]",
)
@settings_options()
@json_option
def create(*, settings: "Settings", file: Path, work: Path | None, as_json: bool) -> int:
    """Write the stores of this node into FILE."""
    from engramlog.engine.replay.opening import Building
    from engramlog.engine.replay.snapshots import create as make

    place = work or settings.data_dir / "snapshots" / settings.prefix
    manifest = asyncio.run(make(settings, file, work=place, building=Building()))
    _tell(manifest, file, as_json=as_json)
    return 0


@snapshot.command(
    epilog="""\b
Examples:
  engramlog snapshot restore memory.snapshot
  ENGRAMLOG_DATA_DIR=/var/lib/node2 engramlog snapshot restore memory.snapshot
"""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@settings_options()
@json_option
def restore(*, settings: "Settings", file: Path, as_json: bool) -> int:
    """Give this node, which has no stores yet, those of FILE."""
    from engramlog.engine.replay.snapshots import restore as put_back

    manifest = asyncio.run(put_back(settings, file))
    _tell(manifest, file, as_json=as_json)
    return 0


@snapshot.command(
    epilog="""\b
Examples:
  engramlog snapshot show memory.snapshot
  engramlog snapshot show memory.snapshot --json
"""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def show(*, file: Path, as_json: bool) -> int:
    """Say what FILE is a snapshot of."""
    from engramlog.engine.replay.snapshots import show as look

    _tell(look(file), file, as_json=as_json)
    return 0


def _tell(manifest: "Manifest", file: Path, *, as_json: bool) -> None:
    told = _told(manifest, file)
    if as_json:
        output.print_json(told)
        return
    rows: list[tuple[str, Any]] = [
        ("made", told["made"]),
        ("cluster, prefix", f"{manifest.cluster_id}, {manifest.prefix} ({manifest.partitions} partitions)"),
        ("versions", ", ".join(f"{name} v{v['number']}" for name, v in manifest.versions.items())),
        *((f"events in {name}", f"{sum(n for *_, n in found):,}") for name, found in manifest.positions.items()),
        ("digest of the history", manifest.digest),
        ("bytes", f"{told['bytes']:,}"),
    ]
    output.print_table(f"snapshot {file}", ("what", "value"), rows, last_wraps=True)


def _told(manifest: "Manifest", file: Path) -> dict[str, Any]:
    from dataclasses import asdict
    from datetime import UTC, datetime

    made = datetime.fromtimestamp(manifest.made_ms / 1000, UTC).isoformat(timespec="seconds")
    return {**asdict(manifest), "made": made, "file": str(file), "bytes": file.stat().st_size}
