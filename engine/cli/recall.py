"""``engramlog recall``, ``similar`` and ``subjects``: what an agent remembers by meaning."""

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli import explaining, output
from engramlog.engine.cli.asking import asked, name_of, scope_json, stale_code, wait_option
from engramlog.engine.cli.options import (
    as_of_options,
    json_option,
    scope_options,
    settings_options,
    talk_scope_options,
)
from engramlog.engine.cli.recall_options import filter_options, weight_options

if TYPE_CHECKING:
    from engramlog.engine.client import AsOf, MemoryClient, Position, Recall, RecallFilter, Scope, TopicList
    from engramlog.engine.settings import Settings

_LATE = "what was published last may be missing: 'derive' and 'index' have not come to the log's end in time"
_SHOWN_QUESTION = 80

_WHOSE = """\b
Tenant and agent are 'default' unless they are named. All sessions of the agent are looked at, unless --sessions names
some; without --user and --all-users only records that are shared by all users are seen.

\b
The answer covers the log as it ends now: it waits until all of it is derived and indexed, up to the timeout (--no-wait:
as far as it has come). An answer that does not is printed as well, marked stale, with exit code 3.
"""
_RECALL_EPILOG = f"""\b
Examples:
  engramlog recall "what must the cook know?" --user ada --explain
  engramlog recall "那里天气怎么样" --agent 旅行 --session s1 --user 王芳
  engramlog recall "retries" --preset coding --meta project_id=billing --kind rule --kind decision
  engramlog recall "money" --all-users --since 2026-03-01T00:00:00Z --min-importance 0.5 --limit 5
  engramlog recall "diet" --user ada --as-of 2026-03-01T00:00:00Z
  engramlog recall "diet" --user ada --with-invalidated --json | jq -r '.hits[].stored.record.content'

\b
The score is the sum of value x weight over relevance, importance and recency; --explain shows every part, what the
relevance is made of, and the question's words that were found. {explaining.CONFLICT} marks memories that contradict
each other. TEXT '-' reads it from standard input.

\b
--as-of shows what would have been recalled then: what was removed, cleared, invalidated or corrected since is there as
it was, and ages count from then. A record that was sent again since is absent: its last copy is the only one.

{_WHOSE}"""
_SIMILAR_EPILOG = f"""\b
Examples:
  engramlog similar "a light laptop around 5,000" --user ada
  engramlog similar "宠物" --agent 客服 --all-users --limit 10 --min-similarity 0.8 --json

\b
The score is the cosine similarity and nothing else; 'engramlog recall' weighs words, importance and time, too.

{_WHOSE}"""
_SUBJECTS_EPILOG = """\b
Examples:
  engramlog subjects --all-users
  engramlog subjects --agent helper --session s1 --user ada --json | jq -r '.topics[].topic'

\b
These are the topics of the talk, as 'derive' labels them; Kafka's are 'engramlog topics'. With --session only that
session's. To recall what was said on one: engramlog recall TEXT --topic TOPIC.
"""


@click.command(epilog=_RECALL_EPILOG)
@click.argument("text", metavar="TEXT")
@click.option("--explain", is_flag=True, help="Every part of every score.")
@weight_options
@filter_options
@as_of_options
@wait_option
@talk_scope_options
@settings_options(reads=True)
@json_option
def recall(
    *,
    settings: "Settings",
    scope: "Scope",
    text: str,
    explain: bool,
    chosen: "RecallFilter",
    as_of: "AsOf | None",
    wait: bool,
    as_json: bool,
    **weights: Any,
) -> int:
    """The memories that matter for TEXT: by meaning, words, importance and time."""
    question = _question(text)

    async def ask(client: "MemoryClient", seen: "list[Position]") -> "Recall":
        return await client.recall(scope, question, filter=chosen, as_of=as_of, min_positions=seen, **weights)

    found = asyncio.run(asked(settings, scope, ask, wait=wait))
    return _shown(found, scope, question, explain=explain, as_json=as_json)


@click.command(epilog=_SIMILAR_EPILOG)
@click.argument("text", metavar="TEXT")
@click.option("--limit", type=click.IntRange(min=1), default=3, show_default=True, metavar="N", help="At most so many.")
@click.option("--min-similarity", type=click.FloatRange(-1, 1), metavar="S", help="Least cosine similarity, -1 to 1.")
@filter_options
@as_of_options
@wait_option
@talk_scope_options
@settings_options(reads=True)
@json_option
def similar(
    *,
    settings: "Settings",
    scope: "Scope",
    text: str,
    limit: int,
    min_similarity: float | None,
    chosen: "RecallFilter",
    as_of: "AsOf | None",
    wait: bool,
    as_json: bool,
) -> int:
    """The memories nearest to TEXT in meaning, by cosine similarity alone."""
    question = _question(text)

    async def ask(client: "MemoryClient", seen: "list[Position]") -> "Recall":
        return await client.similar(
            scope,
            question,
            limit=limit,
            min_similarity=min_similarity,
            filter=chosen,
            as_of=as_of,
            min_positions=seen,
        )

    found = asyncio.run(asked(settings, scope, ask, wait=wait))
    return _shown(found, scope, question, explain=False, as_json=as_json)


@click.command(epilog=_SUBJECTS_EPILOG)
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, metavar="N", help="At most.")
@as_of_options
@wait_option
@scope_options
@settings_options(reads=True)
@json_option
def subjects(
    *, settings: "Settings", scope: "Scope", limit: int, as_of: "AsOf | None", wait: bool, as_json: bool
) -> int:
    """The topics of the talk, latest first, with counts and times (not Kafka's: those are 'engramlog topics')."""

    async def ask(client: "MemoryClient", seen: "list[Position]") -> "TopicList":
        return await client.topics(scope, limit=limit, as_of=as_of, min_positions=seen)

    found = asyncio.run(asked(settings, scope, ask, wait=wait))
    if as_json:
        output.print_json(
            {
                "scope": scope_json(scope),
                "topics": [topic.model_dump(mode="json") for topic in found.topics],
                "truncated": found.truncated,
                "stale": found.seen.stale,
                "positions": [str(position) for position in found.seen.positions],
            }
        )
    else:
        more = "; there are more (--limit)" if found.truncated else ""
        output.print_table(
            f"{name_of(scope)}: {output.count(len(found.topics), 'topic')}{more}",
            ("last", "first", "records", "sessions", "topic"),
            [
                (t.last.isoformat(" ", "minutes"), t.first.isoformat(" ", "minutes"), t.records, t.sessions, t.topic)
                for t in found.topics
            ],
            right=("records", "sessions"),
        )
    return stale_code(_LATE, stale=found.seen.stale)


def _question(text: str) -> str:
    return sys.stdin.read().strip() if text == "-" else text


def _shown(found: "Recall", scope: "Scope", question: str, *, explain: bool, as_json: bool) -> int:
    """Print what was recalled; returns the exit code."""
    if as_json:
        output.print_json({"scope": scope_json(scope), "text": question, **explaining.as_json(found)})
    else:
        more = f"; {found.unread:,} more did not fit into the reply" if found.unread else ""
        expanded = f" (asked as “{output.one_line(found.asked, _SHOWN_QUESTION)}”)" if found.asked else ""
        memories = f"{len(found.hits):,} {'memory' if len(found.hits) == 1 else 'memories'}"
        text = output.one_line(question, _SHOWN_QUESTION)
        explaining.print_hits(f"{name_of(scope)}: {memories} for “{text}”{expanded}{more}", found.hits)
        if explain:
            explaining.print_explanations(found.hits)
    for reason in found.degraded:
        output.say(f"degraded: {output.one_line(reason)}")
    return stale_code(_LATE, stale=found.seen.stale)
