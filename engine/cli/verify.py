"""``engramlog verify``: whether the stores hold what the log says."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from engramlog.engine.cli.failures import INTERRUPTED
from engramlog.engine.cli.live import run_until_stopped
from engramlog.engine.cli.options import json_option, settings_options

if TYPE_CHECKING:
    from engramlog.engine.settings import Settings

_EPILOG = """\b
Examples:
  engramlog verify
  engramlog verify history --tenant acme --agent helper
  engramlog verify --json | jq 'select(.event == "done")'
  engramlog verify --digest

\b
Reads the whole log and rebuilds the stores beside the live ones, in a directory that is removed afterwards, while the
engine runs. Then both are compared at the same positions, and what differs is told record by record: which one, what
differs, the live value and what the log says. No model is asked, no event is published, nothing live is changed. The
vectors of an embedded store that a running engine has open are looked at through its 'answer'.
Of the history it compares records and what hides them, marks, erasures, derivations, summaries; not the counts and
flags that are made from those. A digest is of all that, in no order: it is the same on any database.

\b
--digest prints the digests of the live stores with their positions, and reads no log: two machines that stand at the
same positions must print the same. With --position-free a history compares equal to one of an imported or migrated
log: without offsets and log times, and without what was derived.
Exit code 1: something differs.
"""


@click.command(epilog=_EPILOG)
@click.argument("what", type=click.Choice(["history", "vectors", "all"]), default="all")
@click.option("--tenant", metavar="ID", help="Compare this tenant only. All of the log is read nevertheless.")
@click.option("--agent", metavar="ID", help="Compare this agent only, with --tenant.")
@click.option("--digest", "digest_only", is_flag=True, help="Print the digests of the live stores; compare nothing.")
@click.option("--position-free", is_flag=True, help="With --digest: offsets, times and derivations do not count.")
@click.option(
    "--scratch",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where to rebuild; needs as much room as the stores. [default: the data directory]",
)
@settings_options()
@json_option
def verify(
    *,
    settings: "Settings",
    what: str,
    tenant: str | None,
    agent: str | None,
    digest_only: bool,
    position_free: bool,
    scratch: Path | None,
    as_json: bool,
) -> int:
    """Compare the live stores with what the log says."""
    from engramlog.engine.cli.verify_running import Wanted, compare, digests

    if agent is not None and tenant is None:
        raise click.UsageError("--agent needs --tenant")
    if position_free and not digest_only:
        raise click.UsageError("--position-free belongs to --digest")
    if position_free and what == "vectors":
        raise click.UsageError("--position-free is for the history: vectors are derived")
    wanted = Wanted(settings, what, tenant, agent, scratch or settings.data_dir, as_json=as_json)
    codes: list[int] = []

    async def run() -> None:
        codes.append(await (digests(wanted, positions=not position_free) if digest_only else compare(wanted)))

    run_until_stopped(run, stopping="stopping; what was rebuilt is removed")
    return codes[0] if codes else INTERRUPTED
