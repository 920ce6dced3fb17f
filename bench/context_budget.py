"""Contexts under a token budget: never above it, and how much of a question's evidence is in them.

LoCoMo's talks are published turn by turn, an agent each, its sessions as sessions; at every 50th turn a context is
asked for. Then each question is asked as the newest user message of the last session. A turn of its evidence counts as
present when it stands in the context, or when one passage of it (a summary, a recalled memory, another message) has
70 % of its content words; a question's coverage is the share of its evidence that is present. It is compared with the
plain window: the newest turns of all sessions that fit into the same budget. The first long talk is published as a
single session as well, to which summaries in the window matter. ``--offline`` leaves Kafka out.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.common import median, percentile, run
from bench.context_inside import inside
from bench.context_measures import Coverage, Evidence, plain_window
from bench.context_memory import Given, Memory, running
from bench.recall_inside import TENANT, KeptEmbedder
from bench.recall_talks import Asked, Talk, load
from engramlog.engine.client import MemoryRecord, Scope
from engramlog.engine.embedders import embedder_of
from engramlog.engine.settings import Settings
from engramlog.engine.tokens import count_message
from engramlog.schemas.contexts import ContextQuery, RecallPart
from engramlog.schemas.formats.openai import to_openai

EVERY: Final = 50
LONG: Final = 600
VARIANTS: Final = ("all", "recall off", "summaries off", "facts off")
WINDOW: Final = "plain window"
_UNSUMMARISED: Final = {"summaries off": ("dialogue", "extracted"), "facts off": ("dialogue", "summary")}


@dataclass(frozen=True)
class Look:
    """A context while the talk goes on.

    Attributes:
        turns: So many turns were said.
        said: Their tokens.
        summarised: Tokens of those of them for which summaries stand.
        given: The context.
    """

    turns: int
    said: int
    summarised: int
    given: Given


@dataclass(frozen=True)
class Answered:
    """A question and what the contexts for it hold.

    Attributes:
        talk: The talk's name.
        category: The question's category.
        coverage: By variant, and that of the plain window.
        tokens: Tokens of each variant's context.
        took_ms: How long the full context took.
    """

    talk: str
    category: str
    coverage: dict[str, Coverage]
    tokens: dict[str, int]
    took_ms: float


def as_one_session(talk: Talk) -> Talk:
    """The same turns, all in one session."""
    whole = tuple(record for _, record in talk.records())
    return Talk(f"{talk.name} in one session", (("whole", whole),), talk.questions)


async def publish(memory: Memory, talk: Talk, *, budget_tokens: int) -> list[Look]:
    """Say a talk turn by turn, and end each session but the last; a context at every 50th turn."""
    looks, told, sizes = [], 0, dict[str, int]()
    scopes = [Scope(TENANT, talk.name, session) for session, _ in talk.sessions]
    for (_, records), scope in zip(talk.sessions, scopes, strict=True):
        for record in records:
            await memory.say(scope, record)
            told += 1
            sizes[record.record_id] = count_message(to_openai(record))
            if told % EVERY == 0:
                await memory.settle([scope])
                query = ContextQuery(budget_tokens=budget_tokens, now=record.timestamp, wait_for_summary=True)
                given = await memory.context(scope, query)
                covered = {i for stored in await memory.summaries(scope) for i in stored.summary.covers.record_ids}
                looks.append(Look(told, sum(sizes.values()), sum(map(sizes.__getitem__, covered)), given))
        if scope != scopes[-1]:
            await memory.end(scope)
    await memory.settle(scopes)
    return looks


def query_of(variant: str, question: MemoryRecord, *, budget_tokens: int) -> ContextQuery:
    """How a variant asks. What happened from the question on, itself included, is no memory."""
    query, part = ContextQuery(budget_tokens=budget_tokens, now=question.timestamp), RecallPart()
    wanted = part.filter.model_copy(
        update={"happened_until": question.timestamp, "origins": _UNSUMMARISED.get(variant, ())}
    )
    recall = None if variant == "recall off" else part.model_copy(update={"filter": wanted})
    return query.model_copy(update={"recall": recall, "summaries": variant != "summaries off"})


async def ask(memory: Memory, talk: Talk, number: int, question: Asked, *, budget_tokens: int) -> Answered:
    """One question: the contexts of all variants, and what they hold of its evidence."""
    records = [record for _, record in talk.records()]
    by_id = {record.record_id: record for record in records}
    evidence = [Evidence.of(by_id[record_id]) for record_id in question.expected]
    asking = MemoryRecord(
        record_id=f"question-{number}",
        role="user",
        content=question.text,
        timestamp=max(record.timestamp for record in records) + timedelta(minutes=1),
    )
    scope = Scope(TENANT, talk.name, talk.sessions[-1][0])
    await memory.say(scope, asking)
    await memory.settle([])
    coverage = {WINDOW: Coverage.of(plain_window(records, asking, budget_tokens=budget_tokens), evidence)}
    tokens, took_ms = {}, 0.0
    for variant in VARIANTS:
        began = time.perf_counter()
        given = await memory.context(scope, query_of(variant, asking, budget_tokens=budget_tokens))
        took_ms = took_ms or (time.perf_counter() - began) * 1_000
        tokens[variant] = given.tokens
        assert given.messages[-1]["content"] == question.text, "the newest user message is the last one"
        coverage[variant] = Coverage.of(given.messages[:-1], evidence)
    await memory.take_back(scope, asking.record_id)
    return Answered(talk.name, question.category, coverage, tokens, took_ms)


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All talks, all questions."""
    talks = [talk for talk in load(args.data, None) if not args.talks or talk.name in args.talks]
    long = next((talk for talk in talks if len(talk.records()) >= LONG), talks[0])
    talks = [replace(talk, questions=talk.questions[: args.limit]) for talk in talks]
    whole = as_one_session(replace(long, questions=long.questions[: args.limit]))
    embedder = KeptEmbedder(embedder_of(Settings()), args.cache)
    opened: AbstractAsyncContextManager[Memory] = running(timeout_s=args.timeout_s)
    if args.offline:
        await embedder.start()
        opened = inside(embedder)
    budget, looks, answered = args.budget_tokens, dict[str, list[Look]](), list[Answered]()
    async with opened as memory:
        for talk in (*talks, whole):
            print(f"publishing {talk.name} …", file=sys.stderr, flush=True)
            looks[talk.name] = await publish(memory, talk, budget_tokens=budget)
            mine = [
                await ask(memory, talk, number, question, budget_tokens=budget)
                for number, question in enumerate(talk.questions)
            ]
            print(f"{talk.name}: {shares(mine)}", file=sys.stderr, flush=True)
            answered += mine
    if args.offline:
        await embedder.stop()
    return report(answered, looks, whole=whole.name, budget_tokens=budget)


def report(
    answered: Sequence[Answered], looks: dict[str, list[Look]], *, whole: str, budget_tokens: int
) -> dict[str, Any]:
    """The tables, and the figures."""
    show_looks(looks[whole], whole)
    apart = [one for one in answered if one.talk != whole]
    groups = {"all questions": apart}
    groups |= {
        f"category {name}": [a for a in apart if a.category == name] for name in sorted({a.category for a in apart})
    }
    groups |= {name: [a for a in answered if a.talk == name] for name in dict.fromkeys(a.talk for a in answered)}
    rows = [{"what": name, "questions": str(len(group)), **shares(group)} for name, group in groups.items() if group]
    used = [look.given.tokens for found in looks.values() for look in found]
    used += [tokens for one in answered for tokens in one.tokens.values()]
    took = [one.took_ms for one in answered]
    total = shares(apart)
    return {
        "rows": rows,
        "contexts": len(used),
        "over_budget": sum(tokens > budget_tokens for tokens in used),
        "evidence_coverage": total["all"],
        "window_coverage": total[WINDOW],
        "without_recall": total["recall off"],
        "without_summaries": total["summaries off"],
        "times_window": round(total["all"] / total[WINDOW], 2) if total[WINDOW] else None,
        "verbatim": round(fmean(one.coverage["all"].verbatim for one in apart), 4),
        "tokens_mean": round(fmean(one.tokens["all"] for one in apart)),
        "latency": {"p50_ms": round(median(took), 1), "p99_ms": round(percentile(took, 0.99), 1)},
        "looks": [line(look) for look in looks[whole]],
        "aim": "over_budget 0; coverage 0.75, and 3 times the window's",
    }


def shares(group: Sequence[Answered]) -> dict[str, float]:
    """The mean coverage of each variant."""
    return {name: round(fmean(one.coverage[name].held for one in group), 4) for name in (*VARIANTS, WINDOW)}


def line(look: Look) -> dict[str, int]:
    """A row of the table of looks: tokens."""
    sections = {used.section: used.tokens for used in look.given.used}
    return {
        "turns": look.turns,
        "tokens in": look.said,
        "of them summarised": look.summarised,
        "context": look.given.tokens,
        "summaries": sections.get("summaries", 0),
        "recalled": sections.get("recalled", 0),
        "recent": sections.get("recent", 0),
    }


def show_looks(looks: Sequence[Look], title: str) -> None:
    """Print what the contexts held while the talk went on."""
    table = Table(title=f"{title}: a context at every {EVERY}th turn, in tokens")
    lines = [line(look) for look in looks]
    for column in lines[0] if lines else ():
        table.add_column(column, justify="right")
    for row in lines:
        table.add_row(*(f"{value:,}" for value in row.values()))
    Console().print(table)


def arguments(parser: argparse.ArgumentParser) -> None:
    """What to measure."""
    parser.add_argument("--data", type=Path, required=True, help="LoCoMo's JSON")
    parser.add_argument("--budget-tokens", type=int, default=4_000, help="the budget of each context (4000)")
    parser.add_argument("--offline", action="store_true", help="without Kafka: the same parts over logs in memory")
    parser.add_argument("--cache", type=Path, help="with --offline: file to keep vectors in between runs (.npz)")
    parser.add_argument("--talks", nargs="+", metavar="NAME", help="only these talks")
    parser.add_argument("--limit", type=int, help="at most so many questions of each talk")
    parser.add_argument("--timeout-s", type=float, default=600.0, help="limit of each call and of indexing (600)")


if __name__ == "__main__":
    run("context_budget: how much of the evidence a context holds", measure, arguments=arguments)
