"""``engramlog context`` and ``engramlog summaries``: what an agent's model would be given."""

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli import output
from engramlog.engine.cli.asking import asked, name_of, scope_json, stale_code, wait_option
from engramlog.engine.cli.options import (
    as_of_option,
    as_of_options,
    instant,
    json_option,
    scope_options,
    settings_options,
)
from engramlog.engine.cli.recall_options import PRESETS

if TYPE_CHECKING:
    from engramlog.engine.client import AsOf, Context, MemoryClient, Position, Scope, SummaryList
    from engramlog.engine.settings import Settings
    from engramlog.schemas.contexts import LeftOut

_LATE = "the history has not come to the log's end in time"
_SHOWN_LEFT_OUT = 10

_WHOSE = """\b
Tenant and agent are 'default' unless they are named; without --user and --all-users only records that are shared by all
users are seen. The answer covers the log as it ends now: it waits for that up to the timeout (--no-wait: as far as it
has come). An answer that does not is printed as well, marked stale, with exit code 3.
"""
_CONTEXT_EPILOG = f"""\b
Examples:
  engramlog context --session s1 --budget 4000
  engramlog context --session s1 --user ada --topic "what does she like?" --preset dual_source
  engramlog context --session s1 --no-recall --no-summaries --window 20
  engramlog context --session s1 --user ada --as-of 2026-03-01T00:00:00Z
  engramlog context --session s1 --model gpt-4o --json | jq '.messages'

\b
In this order: the leading system message, core memories, the session's summaries, what is recalled for the newest user
message, and the recent turns. Never more tokens than the budget; if not even what is always in fits, the message says
how many tokens that takes (exit code 2).

\b
When talks are summarised is a setting of the engine: by tokens (ENGRAMLOG_SUMMARY_BUDGET_TOKENS, half of it by
default), or by messages: ENGRAMLOG_SUMMARY_MESSAGES=20 is the dual-source window of 10 turns, above which the oldest 4
messages are compressed; --preset dual_source --recall-limit 3 recalls for it.

{_WHOSE}"""
_SUMMARIES_EPILOG = f"""\b
Examples:
  engramlog summaries --session s1
  engramlog summaries --agent helper --all-users --everything --level 1
  engramlog summaries --session s1 --as-of "$TOKEN"
  engramlog summaries --session s1 --json | jq -r '.summaries[].summary.text'

\b
Those of all the agent's sessions without --session. As they are made: 'engramlog tail summaries'. To have a session
summarised now: 'engramlog summarise'.

{_WHOSE}"""


@click.command(epilog=_CONTEXT_EPILOG)
@click.option(
    "--budget", type=click.IntRange(1, 10_000_000), default=4_000, show_default=True, metavar="TOKENS", help="At most."
)
@click.option("--model", metavar="NAME", help="The model that it is for: its encoding counts. [default: o200k_base]")
@click.option("--window", type=click.IntRange(min=0), metavar="N", help="At most N recent records. [default: all]")
@click.option("--topic", metavar="TEXT", help="What memories are recalled for. [default: the newest user message]")
@click.option("--recall/--no-recall", "recalls", default=True, help="Whether memories are recalled.")
@click.option(
    "--preset", type=click.Choice(PRESETS), default="assistant", show_default=True, help="How memories are weighed."
)
@click.option(
    "--recall-limit", type=click.IntRange(0, 200), default=40, show_default=True, metavar="N", help="Memories at most."
)
@click.option("--summaries/--no-summaries", default=True, help="Whether summaries stand for what they cover.")
@click.option("--as-messages", is_flag=True, help="Each recalled memory as a message, not all in one block.")
@click.option("--wait-for-summary", is_flag=True, help="Wait for summaries that are due, up to the timeout.")
@click.option("--keep-rate", type=click.FloatRange(0, 1), default=0.9, show_default=True, help="Score of a step back.")
@click.option("--now", callback=instant, metavar="TIME", help="Ages are measured from it. [default: now]")
@as_of_options
@wait_option
@scope_options
@settings_options(reads=True)
@json_option
def context(
    *,
    settings: "Settings",
    scope: "Scope",
    budget: int,
    recalls: bool,
    preset: Any,
    recall_limit: int,
    topic: str | None,
    now: datetime | None,
    as_of: "AsOf | None",
    wait: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """What an agent's model would be given: messages under a budget of tokens, and what was left out."""
    from engramlog.engine.client import RecallPart

    part = RecallPart(preset=preset, limit=recall_limit) if recalls else None

    async def ask(client: "MemoryClient", seen: "list[Position]") -> "Context":
        return await client.context(
            scope,
            budget_tokens=budget,
            recall=part,
            current_topic=topic,
            now=now,
            as_of=as_of,
            min_positions=seen,
            **options,
        )

    found = asyncio.run(asked(settings, scope, ask, wait=wait))
    if as_json:
        output.print_json({"scope": scope_json(scope), "budget_tokens": budget, **_context_json(found)})
    else:
        _print_context(found, scope, budget)
    for reason in found.degraded:
        output.say(f"degraded: {output.one_line(reason)}")
    return stale_code(_LATE, stale=found.seen.stale)


@click.command(epilog=_SUMMARIES_EPILOG)
@click.option("--level", type=click.IntRange(1, 16), metavar="N", help="Only this level; 1: summaries of records.")
@click.option("--everything", is_flag=True, help="Also those that were replaced.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, metavar="N", help="The newest N."
)
@as_of_option
@wait_option
@scope_options
@settings_options(reads=True)
@json_option
def summaries(
    *,
    settings: "Settings",
    scope: "Scope",
    level: int | None,
    everything: bool,
    limit: int,
    as_of: "AsOf | None",
    wait: bool,
    as_json: bool,
) -> int:
    """The summaries of a session, or of all sessions, oldest first."""

    async def ask(client: "MemoryClient", seen: "list[Position]") -> "SummaryList":
        return await client.list_summaries(
            scope, level=level, active=not everything, limit=limit, as_of=as_of, min_positions=seen
        )

    found = asyncio.run(asked(settings, scope, ask, wait=wait))
    if as_json:
        output.print_json(
            {
                "scope": scope_json(scope),
                "summaries": [stored.model_dump(mode="json") for stored in found.summaries],
                "truncated": found.truncated,
                "stale": found.seen.stale,
                "positions": [str(position) for position in found.seen.positions],
            }
        )
    else:
        _print_summaries(found, scope)
    return stale_code(_LATE, stale=found.seen.stale)


def _print_context(found: "Context", scope: "Scope", budget: int) -> None:
    about = "" if found.exact else ", counted as o200k_base: the model's encoding is not known"
    number = output.count(len(found.messages), "message")
    output.print_table(
        f"{name_of(scope)}: {number}, {found.tokens:,} of {budget:,} tokens{about}",
        ("#", "role", "text"),
        [(n, message.get("role"), _said(message)) for n, message in enumerate(found.messages, 1)],
        right=("#",),
        last_wraps=True,
    )
    output.print_table(
        "tokens by section",
        ("section", "items", "tokens"),
        [(used.section, used.items, f"{used.tokens:,}") for used in found.used],
        right=("items", "tokens"),
    )
    if found.left_out:
        shown = found.left_out[:_SHOWN_LEFT_OUT]
        more = f", the first {len(shown)} of {found.left_out_total:,}" if found.left_out_total > len(shown) else ""
        output.print_table(
            f"left out{more}",
            ("section", "tokens", "score", "id", "why"),
            [(out.section, f"{out.tokens:,}", f"{out.score:.3f}", out.id, _why(out)) for out in shown],
            right=("tokens", "score"),
        )


def _why(left_out: "LeftOut") -> str:
    return {
        "budget": "it did not fit",
        "window": "older than the window",
        "duplicate": "it is in the context already",
        "tools": "a call without its results, or results without their call",
    }[left_out.why]


def _said(message: dict[str, Any]) -> str:
    """What a message says, in one line; it is not cut: this is what the model gets."""
    content = message.get("content")
    if isinstance(content, list):
        pieces = [part.get("text") or f"[{part.get('type')}]" for part in content if isinstance(part, dict)]
    else:
        pieces = [content] if isinstance(content, str) and content else []
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        pieces.append(f"→ {function.get('name', '?')}({function.get('arguments', '')})")
    return output.one_line(" ".join(map(str, pieces))) or "(empty)"


def _context_json(found: "Context") -> dict[str, Any]:
    return {
        "messages": list(found.messages),
        "tokens": found.tokens,
        "exact": found.exact,
        "used": [used.model_dump(mode="json") for used in found.used],
        "left_out": [out.model_dump(mode="json") for out in found.left_out],
        "left_out_total": found.left_out_total,
        "recalled": list(found.recalled),
        "summaries": list(found.summaries),
        "degraded": list(found.degraded),
        "now": None if found.now is None else found.now.isoformat(),
        "stale": found.seen.stale,
        "positions": [str(position) for position in found.seen.positions],
    }


def _print_summaries(found: "SummaryList", scope: "Scope") -> None:
    more = "; there are older ones (--limit)" if found.truncated else ""
    number = f"{len(found.summaries):,} {'summary' if len(found.summaries) == 1 else 'summaries'}"
    rows = []
    for stored in found.summaries:
        data = stored.summary
        state = "active" if stored.active else "replaced"
        covers = f"{data.covers.first}-{data.covers.last}"
        saved = f"{data.tokens_before:,} → {data.tokens_after:,}"
        rows.append((covers, stored.session, stored.user, data.level, state, data.reason, saved, data.topic, data.text))
    output.print_table(
        f"{name_of(scope)}: {number}{more}",
        ("covers", "session", "user", "level", "state", "reason", "tokens", "topic", "text"),
        rows,
        right=("level",),
        last_wraps=True,
    )
