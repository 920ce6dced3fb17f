"""``engramlog versions`` and ``engramlog drop``: which versions of the projections there are, and being rid of one."""

import asyncio
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli import output
from engramlog.engine.cli.consent import agree, yes_option
from engramlog.engine.cli.options import json_option, settings_options

if TYPE_CHECKING:
    from engramlog.engine.history.versions import Version
    from engramlog.engine.replay.opening import Workshop
    from engramlog.engine.settings import Settings

_NUMBERED = re.compile(r"(history|vectors):([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class Listed:
    """One version, as it is listed.

    Attributes:
        version: The version.
        read: Offsets of its topics that it has passed.
        lag: How many are missing: to the log's ends, or to where it is to end.
    """

    version: "Version"
    read: int
    lag: int


@click.command(
    epilog="""\b
Examples:
  engramlog versions
  engramlog versions --json | jq 'select(.active)'

\b
'current as of' is when a version was last known to hold all of the log. A version that was not for longer than
tombstones are kept is refused by 'engramlog rollback'.
"""
)
@settings_options()
@json_option
def versions(*, settings: "Settings", as_json: bool) -> int:
    """The versions of the projections: which is read, which is being built, which were kept."""
    found = asyncio.run(_list(settings))
    if as_json:
        for one in found:
            output.print_json(_as_json(one))
        return 0
    rows = [
        (
            v.projection,
            f"v{v.number}",
            _state(v),
            v.name or None,
            v.generation,
            f"{one.read:,}",
            f"{one.lag:,}",
            _instant(v.made_ms),
            _instant(v.current_ms),
        )
        for one in found
        for v in [one.version]
    ]
    columns = ("projection", "version", "state", "name", "generation", "events passed", "lag", "begun", "current as of")
    output.print_table("Versions", columns, rows, right=("generation", "events passed", "lag"))
    return 0


@click.command(
    epilog="""\b
Examples:
  engramlog drop history:1
  engramlog drop before-march --yes

\b
Drops a version that 'engramlog versions' lists, or the read-only projection of a name, with all that it holds. The
active version is refused. The log stays: 'engramlog replay' builds a version anew.
"""
)
@click.argument("which", metavar="NAME|history:N|vectors:N")
@yes_option
@settings_options()
@json_option
def drop(*, settings: "Settings", which: str, yes: bool, as_json: bool) -> int:
    """Drop a version of a projection, and give its room free."""
    meant = asyncio.run(_meant(settings, which))
    agree(f"Drop {', '.join(map(str, meant))}?", yes=yes)
    asyncio.run(_drop(settings, meant))
    for version in meant:
        if as_json:
            output.print_json({"projection": version.projection, "version": version.number, "name": version.name})
        else:
            click.echo(f"{version} is dropped")
    return 0


async def _list(settings: "Settings") -> list[Listed]:
    from engramlog.engine.cli.replay_planning import require_history, topics_of
    from engramlog.engine.client.reader import spans
    from engramlog.engine.replay.opening import workshop

    require_history(settings)
    found = []
    async with workshop(settings) as place:
        every = await place.history.versions.all()
        there = {state.spec.name for state in place.cluster.states if state.partitions}
        for version in every:
            names = dict.fromkeys(topics_of(place.topics, version), place.cluster.partitions)
            known = {topic: count for topic, count in names.items() if topic in there or version.generation > 1}
            ends = {at: span.end for at, span in (await spans(settings.kafka(), known)).items()}
            if version.until is not None:
                ends = {at: version.until.get(at, 0) for at in ends}
            here = await place.history.versions.next_offsets(version)
            read = sum(here.get(at, 0) for at in ends)
            found.append(Listed(version, read, sum(max(0, end - here.get(at, 0)) for at, end in ends.items())))
    return found


async def _meant(settings: "Settings", which: str) -> "list[Version]":
    from engramlog.engine.cli.replay_planning import require_history
    from engramlog.engine.replay.opening import workshop
    from engramlog.schemas.errors import ConfigurationError, RequestRefused

    require_history(settings)
    async with workshop(settings) as place:
        found = await _named(place, which)
    if not found:
        raise RequestRefused("not_found", f"there is no version {which!r}: see 'engramlog versions'")
    if active := [version for version in found if version.active]:
        raise ConfigurationError(f"{active[0]} is the active one: switch to another version first")
    return found


async def _named(place: "Workshop", which: str) -> "list[Version]":
    every = await place.history.versions.all()
    if numbered := _NUMBERED.fullmatch(which):
        projection, number = numbered.groups()
        return [v for v in every if (v.projection, v.number) == (projection, int(number))]
    return [v for v in every if v.name == which]


async def _drop(settings: "Settings", meant: "list[Version]") -> None:
    from engramlog.engine.replay.opening import workshop
    from engramlog.engine.replay.replay import drop as drop_one

    async with workshop(settings) as place:
        for version in meant:
            await drop_one(place, version)


def _state(version: "Version") -> str:
    return "active" if version.active else version.state


def _instant(ms: int) -> str | None:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if ms else None


def _as_json(one: Listed) -> dict[str, Any]:
    version = one.version
    return {
        "projection": version.projection,
        "version": version.number,
        "state": _state(version),
        "active": version.active,
        "name": version.name or None,
        "generation": version.generation,
        "events_passed": one.read,
        "lag": one.lag,
        "begun": _instant(version.made_ms),
        "current_as_of": _instant(version.current_ms),
        "until": None
        if version.until is None
        else [{"topic": t, "partition": p, "end": end} for (t, p), end in sorted(version.until.items())],
    }
