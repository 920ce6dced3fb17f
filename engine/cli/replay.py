"""``engramlog replay`` and ``engramlog rollback``: projections built anew from the log, and put in their place."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli.failures import INTERRUPTED
from engramlog.engine.cli.live import run_until_stopped
from engramlog.engine.cli.options import instant, json_option, settings_options

if TYPE_CHECKING:
    from engramlog.engine.settings import Settings

WHAT = click.Choice(["history", "vectors", "all"])
_GOES_ON = "stopping; the same command goes on from here"
_TOKENS = "p1."  # schemas.asking.POSITIONS_PREFIX, which a command that only shows its help must not load

_EPILOG = """\b
Examples:
  engramlog replay
  engramlog replay history --dry-run
  engramlog replay --json | jq 'select(.event == "done")'
  engramlog replay --until 2026-03-01T00:00:00Z --name before-march

\b
Builds the next version of a projection beside the live one, from the log's beginning, while the engine runs: no model
is asked and nothing is published. When it has caught up it takes over, in one transaction; the old one is kept for
'engramlog rollback'. Interrupted or killed, the same command goes on. What the live projection dead-lettered is passed
over and counted; any other event that cannot be processed stops the replay with its position.
With --until nothing is switched: it makes a read-only projection NAME, for queries that name it ('projection').
Exit code 1: an event stopped it, or the new version does not hold what the live one holds.
"""


def _until(ctx: click.Context, param: click.Parameter, value: str | None) -> "datetime | str | None":
    return value if value is None or value.startswith(_TOKENS) else instant(ctx, param, value)


@click.command(epilog=_EPILOG)
@click.argument("what", type=WHAT, default="all")
@click.option("--dry-run", is_flag=True, help="Say what would be read and built, and do nothing.")
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    metavar="N",
    help="How many older versions stay for a rollback.",
)
@click.option("--batch", type=click.IntRange(1, 100_000), metavar="N", help="Events a transaction. [default: chosen]")
@click.option(
    "--dead-letter-new",
    is_flag=True,
    help="An event that only the new version refuses becomes a dead letter. Without it, the "
    "new version differs from the live one: see --accept-differences.",
)
@click.option("--accept-differences", is_flag=True, help="Switch also if the new version does not hold the same.")
@click.option(
    "--until",
    callback=_until,
    metavar="TIME|TOKEN",
    help="Memory as it was recorded before TIME (2026-03-01T00:00:00Z), or at the positions of a TOKEN "
    "('engramlog status --token'). Needs --name.",
)
@click.option("--name", metavar="NAME", help="What the read-only projection of --until is called.")
@settings_options()
@json_option
def replay(
    *,
    settings: "Settings",
    what: str,
    dry_run: bool,
    keep: int,
    batch: int | None,
    dead_letter_new: bool,
    accept_differences: bool,
    until: "datetime | str | None",
    name: str | None,
    as_json: bool,
) -> int:
    """Build projections anew from the log, and switch to them."""
    from engramlog.engine.cli.replay_planning import plan, show_plan
    from engramlog.engine.cli.replay_running import Run, build_named, rebuild

    if (until is None) != (name is None):
        raise click.UsageError("--until and --name belong together")
    if name is not None:
        _check_name(name)
    if dry_run:
        show_plan(asyncio.run(plan(settings, what, until=until)), as_json=as_json)
        return 0
    run = Run(settings, what, batch=batch, dead_letter_new=dead_letter_new, as_json=as_json)
    if until is not None and name is not None:
        at, called = until, name
        return carried_out(lambda: build_named(run, until=at, name=called))
    return carried_out(lambda: rebuild(run, keep=keep, accept_differences=accept_differences))


@click.command(
    epilog="""\b
Examples:
  engramlog rollback
  engramlog rollback vectors --json

\b
The version that was active before takes over again, once it has caught up with the log. It is refused when that
version was away for longer than tombstones are kept: it may hold what was erased since.
"""
)
@click.argument("what", type=WHAT, default="all")
@click.option("--batch", type=click.IntRange(1, 100_000), metavar="N", help="Events a transaction. [default: chosen]")
@click.option("--dead-letter-new", is_flag=True, help="An event that the older version refuses becomes a dead letter.")
@settings_options()
@json_option
def rollback(*, settings: "Settings", what: str, batch: int | None, dead_letter_new: bool, as_json: bool) -> int:
    """Go back to the version of the projections before."""
    from engramlog.engine.cli.replay_running import Run, go_back

    run = Run(settings, what, batch=batch, dead_letter_new=dead_letter_new, as_json=as_json)
    return carried_out(lambda: go_back(run))


def carried_out(body: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run to the end, or until Ctrl-C; it says that the same command goes on."""
    codes: list[int] = []

    async def run() -> None:
        codes.append(await body())

    run_until_stopped(run, stopping=_GOES_ON)
    return codes[0] if codes else INTERRUPTED  # after SIGTERM, too: it is not done


def _check_name(name: str) -> None:
    from pydantic import TypeAdapter, ValidationError

    from engramlog.schemas.asking import ProjectionName

    try:
        TypeAdapter(ProjectionName).validate_python(name)
    except ValidationError:
        message = f"--name {name!r}: letters, digits, '.', '_' and '-', at most 64, the first a letter or a digit"
        raise click.UsageError(message) from None
