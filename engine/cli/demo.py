"""``engramlog demo``: what the engine does, seen with one command."""

import asyncio
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli import logs, output
from engramlog.engine.cli.failures import FOUND, OK
from engramlog.engine.cli.options import Flags, json_option

if TYPE_CHECKING:
    from engramlog.engine.cli.demonstration import Demonstration
    from engramlog.engine.cli.turns import Turn

_EDGE = 20
_NAMED = 10

_EPILOG = """\b
Examples:
  engramlog demo
  engramlog demo --data locomo.json --limit 500
  engramlog demo --json | jq .lost

\b
The broker is Tansu, in memory; the history is SQLite in a temporary folder. Nothing of it is kept, nothing else is
touched, and the settings of the environment do not count. Exit code 1: something was lost, doubled or refused.
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="A conversation of your own: JSON lines of records, OpenAI messages, LoCoMo or MemoryBank.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N records.")
@click.option("--all", "show_all", is_flag=True, help="Show every position, not only the first and last 20.")
@click.option("--keep", is_flag=True, help="Keep the folder with the history, and say where it is.")
@json_option
def demo(*, data: str | None, limit: int | None, show_all: bool, keep: bool, as_json: bool) -> int:
    """Publish a conversation, project it and read it back, on a broker of its own.

    It shows what went where, position by position, and what came back, and compares the two by their ids.
    """
    began = time.monotonic()
    flags = click.get_current_context().find_object(Flags) or Flags()
    logs.set_up((flags.log_level or "WARNING").upper(), brief=flags.log_level is None)
    turns = _turns(data, limit)
    folder = Path(tempfile.mkdtemp(prefix="engramlog-demo-"))
    try:
        from engramlog.engine.cli.demonstration import demonstrate

        shown = asyncio.run(demonstrate(turns, folder, output.say))
    finally:
        if keep:
            output.say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    seconds = time.monotonic() - began
    if as_json:
        output.print_json(_as_json(shown, seconds))
    else:
        _print(shown, seconds, edge=sys.maxsize if show_all or data is None else _EDGE)
    return OK if shown.outcome.good and not shown.dead_letters else FOUND


def _turns(data: str | None, limit: int | None) -> "list[Turn]":
    from engramlog.engine.cli.files import open_source, sample
    from engramlog.engine.cli.turns import Invalid, Maker, Whose

    source = open_source(data) if data else sample()
    turns = []
    for turn in islice(source.turns(Maker(Whose(), now=datetime.now(UTC))), limit):
        if isinstance(turn, Invalid):
            raise type(turn.error)(f"{turn.where}: {turn.error}")
        turns.append(turn)
    return turns


def _as_json(shown: "Demonstration", seconds: float) -> dict[str, Any]:
    outcome = shown.outcome
    agents = {turn.key[:2] for turn, _ in shown.placed}
    return {
        "engine": shown.engine,
        "broker": shown.broker,
        "sent": shown.sent.records,
        "published": outcome.published,
        "projected": outcome.projected,
        "dead_letters": shown.dead_letters,
        "lost": len(outcome.lost),
        "duplicated": len(outcome.duplicated),
        "unexpected": len(outcome.unexpected),
        "out_of_order": len(outcome.out_of_order),
        "tenants": len({tenant for tenant, _ in agents}),
        "agents": len(agents),
        "sessions": len({(*turn.key[:2], turn.event.sessionid) for turn, _ in shown.placed if turn.event.sessionid}),
        "seconds": round(seconds, 3),
        "publish_seconds": round(shown.publish_s, 3),
        "read_seconds": round(shown.read_s, 3),
        "positions": shown.sent.positions(),
    }


def _print(shown: "Demonstration", seconds: float, *, edge: int) -> None:
    placed = shown.placed
    rows = [_row(turn, str(position)) for turn, position in placed[:edge]]
    if len(placed) > 2 * edge:
        rows += [("…", f"{len(placed) - 2 * edge:,} more (--all shows them)", "", "", "")]
    rows += [_row(turn, str(position)) for turn, position in placed[max(edge, len(placed) - edge) :]]
    output.print_table("What went where", ("position", "tenant / agent / session", "user", "role", "text"), rows)
    for window in shown.windows:
        records = window.history.records
        more = ", older ones exist" if window.history.truncated else ""
        output.print_table(
            f"Read back: {' / '.join(window.session)} ({output.count(len(records), 'record')}{more})",
            ("score", "offset", "role", "text"),
            [(f"{r.score:.3f}", r.stored.offset, r.stored.record.role, output.said(r.stored.record)) for r in records],
            right=("score", "offset"),
        )
    _print_summary(shown, seconds)


def _row(turn: "Turn", position: str) -> tuple[str, ...]:
    event = turn.event
    whose = f"{event.tenantid} / {event.agentid} / {event.sessionid or '-'}"
    return position, whose, event.userid or "(shared)", event.data.role, output.said(event.data)


def _print_summary(shown: "Demonstration", seconds: float) -> None:
    outcome = shown.outcome
    output.print_table(
        f"engramlog {shown.engine} on {shown.broker}, {seconds:.1f} s",
        ("what", "number", "how it was counted"),
        [
            (
                "published",
                f"{outcome.published:,}",
                f"distinct ids, acknowledged by the broker ({shown.publish_s:.2f} s)",
            ),
            ("projected", f"{outcome.projected:,}", f"of those, read back through the client ({shown.read_s:.2f} s)"),
            ("lost", len(outcome.lost), "published, but missing from their agent's or session's history"),
            ("duplicated", len(outcome.duplicated), "read back more than once"),
            ("unexpected", len(outcome.unexpected), "read back where they were not published"),
            ("out of order", len(outcome.out_of_order), "agents and sessions that came back in another order"),
            ("dead letters", shown.dead_letters, "messages that the consumers could not process"),
        ],
        right=("number",),
    )
    for name, keys in (("lost", outcome.lost), ("duplicated", outcome.duplicated), ("unexpected", outcome.unexpected)):
        for key in keys[:_NAMED]:
            output.say(f"{name}: {' / '.join(key)}")
