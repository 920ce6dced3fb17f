"""``engramlog tail summaries``: summaries as they are made."""

from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli import output
from engramlog.engine.cli.live import run_until_stopped
from engramlog.engine.cli.options import DEFAULT_TENANT, instant, json_option, settings_options

if TYPE_CHECKING:
    from engramlog.engine.client import SummaryReceived
    from engramlog.engine.settings import Settings

_EPILOG = """\b
Examples:
  engramlog tail summaries --agent helper
  engramlog tail summaries --tenant acme --from beginning --everything --json | jq -r .summary.text
  engramlog tail summaries --tenant acme --agent helper --group mailer --from beginning --json
  engramlog tail summaries --from 2026-03-01T00:00:00Z --failures -n 10

\b
Reads Kafka alone. With --group the place is remembered: whoever comes back under that name goes on there (at least
once: what was shown last may be shown again), and --from counts the first time only. Of what lies in the log at the
beginning, summaries that others replace are left out (--everything: all are shown); later ones are shown as they come,
with what they replace. Ctrl-C ends it with 130; -n ends it with 0.
"""


@click.command("summaries", epilog=_EPILOG)
@click.option(
    "--from",
    "start",
    default="now",
    show_default=True,
    metavar="now|beginning|TIME",
    help="Where to begin: TIME is the broker's, such as 2026-03-01T00:00:00Z.",
)
@click.option("--group", metavar="NAME", help="Go on where this group was the last time.")
@click.option("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N summaries.")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True, metavar="ID", help="Only this tenant.")
@click.option("--agent", metavar="ID", help="Only this agent.")
@click.option("--session", metavar="ID", help="Only this session.")
@click.option("--user", metavar="ID", help="Only this user.")
@click.option("--level", type=click.IntRange(1, 16), metavar="N", help="Only this level; 1: summaries of records.")
@click.option("--everything", is_flag=True, help="Also old ones that were replaced.")
@click.option("--failures", is_flag=True, help="Also summaries that could not be made.")
@settings_options(timeout=False)
@json_option
@click.pass_context
def tail_summaries(
    ctx: click.Context,
    *,
    settings: "Settings",
    start: str,
    everything: bool,
    limit: int | None,
    as_json: bool,
    tenant: str,
    agent: str | None,
    session: str | None,
    user: str | None,
    level: int | None,
    failures: bool,
    group: str | None,
) -> int:
    """Summaries as they are made, and as they were made before."""
    begin = start if start in {"now", "beginning"} else instant(ctx, ctx.command.params[0], start)
    chosen = {
        "tenant": tenant,
        "agent": agent,
        "session": session,
        "user": user,
        "level": level,
        "failures": failures,
        "group": group,
        "start": begin,
        "active_only": not everything,
    }
    return run_until_stopped(lambda: _tail(settings, chosen, limit=limit, as_json=as_json), stopping="stopped")


async def _tail(settings: "Settings", chosen: dict[str, Any], *, limit: int | None, as_json: bool) -> None:
    from engramlog.engine.client import MemoryClient

    shown = 0
    async with (
        MemoryClient(settings.kafka(), source="engramlog/cli", timeout_s=settings.timeout_s) as client,
        client.summaries(**chosen) as stream,
    ):
        async for received in stream:
            if as_json:
                output.print_json(_as_json(received))
            else:
                click.echo(_line(received))
            shown += 1
            if shown == limit:
                await stream.acknowledge()
                return


def _as_json(received: "SummaryReceived") -> dict[str, Any]:
    position = received.position
    return {
        "topic": position.topic,
        "partition": position.partition,
        "offset": position.offset,
        "recorded": received.recorded.isoformat(),
        "kind": received.kind,
        "id": received.event_id,
        "tenant": received.tenant,
        "agent": received.agent,
        "session": received.session,
        "user": received.user,
        "summary": received.summary.model_dump(mode="json"),
    }


def _line(received: "SummaryReceived") -> str:
    from engramlog.schemas.summaries import SummaryCreated

    summary = received.summary
    whose = " / ".join(part for part in (received.tenant, received.agent, received.session) if part)
    user = f" [{received.user}]" if received.user else ""
    when = received.recorded.isoformat(sep=" ", timespec="milliseconds")
    head = f"{received.position} {when} {whose}{user}"
    if not isinstance(summary, SummaryCreated):
        return output.one_line(f"{head} FAILED {summary.code} (attempt {summary.attempts}): {summary.error}")
    replaces = f", replaces {len(summary.replaces)}" if summary.replaces else ""
    saved = f"{summary.tokens_before:,} → {summary.tokens_after:,} tokens"
    return output.one_line(f"{head} level {summary.level} {summary.reason}{replaces}, {saved}: {summary.text}")
