"""``engramlog doctor``: looks at everything the engine stands on, and says what to do about what is wrong."""

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from engramlog.engine.cli import output
from engramlog.engine.cli.failures import FOUND, OK
from engramlog.engine.cli.options import json_option, settings_options

if TYPE_CHECKING:
    from engramlog.engine.settings import Settings

_EPILOG = """\b
Examples:
  engramlog doctor
  engramlog doctor --json | jq -r 'select(.verdict != "ok") | .fix'

\b
It changes nothing but one empty message in the topic of replies, by which the broker's clock is compared with this
machine's. Looked at are the settings of this process: run it where the engine runs, as the same user.
Exit code 1: there is a problem. Warnings do not count.
"""


@click.command(epilog=_EPILOG)
@settings_options()
@json_option
def doctor(*, settings: "Settings", as_json: bool) -> int:
    """Look at broker, topics, our rights, the stores, the model, lag, dead letters, clock, disk and versions."""
    from engramlog.engine.cli.examining import examine

    findings = asyncio.run(examine(settings))
    if as_json:
        for finding in findings:
            output.print_json(asdict(finding))
    else:
        output.print_table(
            "Doctor", ("check", "verdict", "found"), [(f.check, f.verdict, f.found) for f in findings], last_wraps=True
        )
        for finding in findings:
            if finding.fix:
                click.echo(f"{finding.verdict}: {finding.check}: {output.one_line(finding.fix)}")
    return FOUND if any(f.verdict == "problem" for f in findings) else OK
