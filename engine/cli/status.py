"""``engramlog status``: consumers, positions, lag."""

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli import output
from engramlog.engine.cli.failures import FOUND, OK, UNAVAILABLE
from engramlog.engine.cli.live import run_until_stopped
from engramlog.engine.cli.options import json_option, settings_options

if TYPE_CHECKING:
    from engramlog.engine.cli.lag import EngineStatus
    from engramlog.engine.settings import Settings

_EPILOG = """\b
Examples:
  engramlog status
  engramlog status --partitions
  engramlog status --watch 2
  TOKEN="$(engramlog status --token)"; engramlog history --as-of "$TOKEN"
  engramlog status --json | jq '.consumers[] | {name, lag}'

\b
The token holds one position a partition: up to where the history has applied the log. Memory can be asked as of it, and
'engramlog replay --until TOKEN' builds it.

\b
The lag of 'store' and 'derive' is the end of the records minus their checkpoints in the history database (what counts),
that of 'index' the end of what is derived minus its checkpoint there, that of the others the end of their topic minus
the offsets of their group. Exit code 1: a topic does not fit, nobody runs a consumer, or the history cannot be read.
"""


@click.command(epilog=_EPILOG)
@click.option("--partitions", "every_partition", is_flag=True, help="Every partition, not only those that lag.")
@click.option("--watch", type=click.FloatRange(min=0.1), metavar="SECONDS", help="Look again and again, until Ctrl-C.")
@click.option("--token", "only_token", is_flag=True, help="Print the token of the positions now, and nothing else.")
@settings_options()
@json_option
def status(*, settings: "Settings", every_partition: bool, watch: float | None, only_token: bool, as_json: bool) -> int:
    """Who runs, how far each consumer has come, and what died."""
    if only_token:
        if watch is not None:
            raise click.UsageError("--token is of one moment: without --watch")
        return _print_token(asyncio.run(_look(settings)), as_json=as_json)
    if watch is None:
        found = asyncio.run(_look(settings))
        _show(found, every_partition=every_partition, as_json=as_json)
        return FOUND if found.problems() else OK

    async def again() -> None:
        while True:
            _show(await _look(settings), every_partition=every_partition, as_json=as_json)
            await asyncio.sleep(watch)

    return run_until_stopped(again, stopping="stopped")


async def _look(settings: "Settings") -> "EngineStatus":
    from engramlog.engine.cli.lag import inspect_engine

    return await inspect_engine(settings)


def _show(found: "EngineStatus", *, every_partition: bool, as_json: bool) -> None:
    if as_json:
        output.print_json(_as_json(found))
        return
    output.print_table(
        "Consumers",
        ("consumer", "group", "state", "members", "lag", "measured by"),
        [
            (c.name, c.group.group_id, c.group.state, len(c.group.members), _or_unknown(c.lag), c.source)
            for c in found.consumers
        ],
        right=("members", "lag"),
    )
    rows = [
        (c.name, f"{p.topic}/{p.partition}", _or_unknown(p.next), p.end, _or_unknown(p.lag), p.refused, p.owner)
        for c in found.consumers
        for p in c.partitions
        if every_partition or p.lag
    ]
    if rows:
        columns = ("consumer", "partition", "next", "end", "lag", "refused", "owner")
        output.print_table("Partitions", columns, rows, right=columns[2:6])
    click.echo(f"dead letters: {found.dead_letters:,}")
    for problem in found.problems():
        click.echo(f"problem: {output.one_line(problem)}")


def _print_token(found: "EngineStatus", *, as_json: bool) -> int:
    if found.token is None or found.applied is None:
        for problem in found.problems():
            output.say(f"problem: {output.one_line(problem)}")
        return UNAVAILABLE
    if as_json:
        positions = [position.model_dump() for position in found.applied]
        output.print_json({"token": found.token, "positions": positions})
    else:
        click.echo(found.token)
    return OK


def _as_json(found: "EngineStatus") -> dict[str, Any]:
    return {
        "cluster_id": found.cluster.cluster_id,
        "partitions": found.cluster.partitions,
        "consumers": [
            {
                "name": c.name,
                "group": c.group.group_id,
                "state": c.group.state,
                "members": [{"client_id": m.client_id, "host": m.host} for m in c.group.members],
                "lag": c.lag,
                "measured_by": c.source,
                "error": c.error,
                "partitions": [asdict(p) for p in c.partitions],
            }
            for c in found.consumers
        ],
        "dead_letters": found.dead_letters,
        "token": found.token,
        "problems": found.problems(),
    }


def _or_unknown(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"
