"""``engramlog topics migrate``: the agent topics under another prefix, or with another number of partitions."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli import output
from engramlog.engine.cli.consent import agree, yes_option
from engramlog.engine.cli.failures import FOUND, OK
from engramlog.engine.cli.options import json_option, settings_options

if TYPE_CHECKING:
    from engramlog.engine.client.fingerprints import Agent
    from engramlog.engine.client.migration import AgentTopic, Copied
    from engramlog.engine.settings import Settings
    from engramlog.schemas.topics import Topics

_SHOWN_AGENTS = 20
_STAMPED = {"message.timestamp.type": "LogAppendTime"}
_AS_GIVEN = {"message.timestamp.type": "CreateTime"}
_MIN_TIMEOUT_S = 60.0

_EPILOG = """\b
Examples:
  engramlog topics migrate --to-prefix memory2 --partitions 48
  engramlog topics migrate --prefix staging --to-prefix prod --yes --json

\b
Copies every agent topic, event by event, into topics of the new prefix, which it creates: each agent's events in their
order, with their log times; tombstones, too. What lies there as a dead letter is left out and counted. Where a mark
says at which offset it was resolved, it says so for the new topic. Then both topics are read and compared, agent by
agent. The old topics are never changed or deleted; inbox, requests, replies and dead letters are not copied.

\b
It can be interrupted: the same command goes on. So a running engine is moved like this:
  1. run it while the engine runs, which takes as long as it takes;
  2. stop all publishers and 'engramlog run', and run it again: it copies what has come since, and compares;
  3. start everything with the settings that it prints. The history is a new one, rebuilt from the new topics;
     never point the old one's database at them;
  4. delete the old topics when you are sure.
Until a copy is complete, its topic keeps the log times that it is given, so that no process of engramlog runs on it.
It needs the rights to create and to configure the new topics (AlterConfigs).
Exit code 1: the topics differ; do not switch.
"""


@click.command(epilog=_EPILOG)
@click.option("--to-prefix", required=True, metavar="NAME", help="What the names of the new topics begin with.")
@click.option(
    "--partitions", type=click.IntRange(1, 10_000), metavar="N", help="Of each new topic. [default: as many as now]"
)
@yes_option
@settings_options()
@json_option
def migrate(*, settings: "Settings", to_prefix: str, partitions: int | None, yes: bool, as_json: bool) -> int:
    """Copy the agent topics to another prefix or another number of partitions, and compare."""
    if to_prefix == settings.prefix:
        raise click.UsageError(f"--to-prefix {to_prefix!r} is the prefix of the topics themselves")
    pairs, messages = asyncio.run(_pairs(settings, to_prefix, partitions))
    names = ", ".join(f"{a.name} ({a.partitions} partitions) to {b.name} ({b.partitions})" for a, b in pairs)
    agree(f"Copy {output.count(messages, 'message')}: {names}?", yes=yes)
    results = [asyncio.run(_migrate(settings, source, target)) for source, target in pairs]
    good = all(result.equal for result in results)
    new = {"ENGRAMLOG_PREFIX": to_prefix, "ENGRAMLOG_PARTITIONS": str(pairs[0][1].partitions)}
    if as_json:
        output.print_json({"equal": good, "settings": new, "topics": [result.as_json() for result in results]})
    else:
        for result in results:
            output.print_table(
                f"{result.source.name} → {result.target.name}", ("what", "value"), result.rows(), last_wraps=True
            )
        click.echo(_advice(results, new) if good else "The topics differ: do not switch.")
    return OK if good else FOUND


@dataclass(frozen=True, slots=True)
class _Result:
    """What became of one topic."""

    source: "AgentTopic"
    target: "AgentTopic"
    copied: "Copied"
    agents: int
    bad: Counter[str]
    bad_copies: Counter[str]
    different: "list[Agent]"
    behind: int

    @property
    def equal(self) -> bool:
        return not self.different and not self.bad_copies

    def as_json(self) -> dict[str, Any]:
        return {
            "from": self.source.name,
            "from_partitions": self.source.partitions,
            "to": self.target.name,
            "to_partitions": self.target.partitions,
            "copied": self.copied.copied,
            "already_there": self.copied.already_there,
            "marks_translated": self.copied.marks,
            "left_out": dict(self.bad),
            "agents": self.agents,
            "equal": self.equal,
            "different": [{"tenant": tenant, "agent": agent} for tenant, agent in self.different],
            "unreadable_copies": dict(self.bad_copies),
            "behind": self.behind,
        }

    def rows(self) -> Iterator[tuple[str, Any]]:
        yield "copied", f"{self.copied.copied:,}"
        yield "already there", f"{self.copied.already_there:,}"
        yield "left out", ", ".join(f"{reason} {n:,}" for reason, n in self.bad.most_common()) or "nothing"
        yield "agents", f"{self.agents:,}"
        if self.bad_copies:
            yield "unreadable copies", ", ".join(f"{reason} {n:,}" for reason, n in self.bad_copies.most_common())
        names = [" / ".join(agent) for agent in self.different[:_SHOWN_AGENTS]]
        more = f" and {len(self.different) - len(names):,} more" if len(self.different) > len(names) else ""
        yield "different", f"{', '.join(names)}{more}" if names else "none: both hold the same memory"
        if self.behind:
            yield "came since", f"{self.behind:,}; run the command again when nobody publishes any more"


def _advice(results: list[_Result], new: dict[str, str]) -> str:
    first = (
        "Messages came meanwhile: stop all publishers and consumers, and run it again. Then start"
        if any(result.behind for result in results)
        else "Start"
    )
    lines = "\n".join(f"  {name}={value}" for name, value in new.items())
    return (
        f"{first} everything with\n{lines}\n"
        "and with a new history (ENGRAMLOG_HISTORY_URL, or another ENGRAMLOG_DATA_DIR), rebuilt from the new topics."
    )


async def _pairs(
    settings: "Settings", to_prefix: str, partitions: int | None
) -> "tuple[list[tuple[AgentTopic, AgentTopic]], int]":
    """The agent topics and what they are copied to; nothing is made yet. And how many messages the old ones hold."""
    from engramlog.engine.client.admin import inspect_topics
    from engramlog.engine.client.migration import AgentTopic
    from engramlog.engine.client.reader import spans
    from engramlog.schemas.codec import records_codec
    from engramlog.schemas.errors import ConfigurationError

    kafka, topics = settings.kafka(), settings.topics()
    held = (await inspect_topics(kafka, topics=topics)).require()
    new = replace(topics, prefix=to_prefix, partitions=partitions or held.partitions)
    there = await inspect_topics(_kafka_of(settings, new), topics=new)
    codecs = {topics.records: records_codec()}
    pairs, counts = [], {}
    for state, other in zip(held.states, there.states, strict=True):
        if state.spec.kind != "agent":
            continue
        count = other.partitions or new.partitions
        if partitions is not None and count != partitions:
            raise ConfigurationError(f"{other.spec.name!r} exists with {count} partitions, not {partitions}")
        if (codec := codecs.get(state.spec.name)) is None:
            raise ConfigurationError(f"what lies in {state.spec.name!r} cannot be copied by this version")
        counts[state.spec.name] = state.partitions
        pairs.append(
            (
                AgentTopic(kafka, state.spec.name, state.partitions, codec),
                AgentTopic(_kafka_of(settings, new), other.spec.name, count, codec),
            )
        )
    return pairs, sum(span.end - span.begin for span in (await spans(kafka, counts)).values())


def _kafka_of(settings: "Settings", topics: "Topics") -> Any:
    return settings.model_copy(update={"prefix": topics.prefix}).kafka()


async def _migrate(settings: "Settings", source: "AgentTopic", target: "AgentTopic") -> _Result:
    from engramlog.engine.client.admin import create_topics, set_topic_config
    from engramlog.engine.client.fingerprints import fingerprint
    from engramlog.engine.client.migration import Copier
    from engramlog.engine.client.reader import spans

    await create_topics(
        target.kafka,
        topics=replace(settings.topics(), prefix=target.kafka.prefix, partitions=target.partitions),
        replication=settings.replication,
        min_insync_replicas=settings.min_insync_replicas,
    )
    total = await _size(source)
    with _progress(f"copying {source.name}", total) as step:
        copier = Copier(source, target, timeout_s=max(settings.timeout_s, _MIN_TIMEOUT_S), on_read=step)
        await copier.look()
        await set_topic_config(target.kafka, target.name, _AS_GIVEN)
        copied = await copier()
        await set_topic_config(target.kafka, target.name, _STAMPED)
    with _progress("comparing", 2 * (total + await _size(target))) as step:
        old = await fingerprint(source, until=copied.until, on_read=step)
        new = await fingerprint(target, on_read=step)
    ends = await spans(source.kafka, {source.name: source.partitions})
    behind = sum(span.end - copied.until[n] for (_, n), span in ends.items())
    return _Result(source, target, copied, len(old.agents), old.bad, new.bad, old.differs_from(new), behind)


async def _size(topic: "AgentTopic") -> int:
    from engramlog.engine.client.reader import spans

    held = await spans(topic.kafka, {topic.name: topic.partitions})
    return sum(span.end - span.begin for span in held.values())


@contextmanager
def _progress(doing: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda steps: bar.advance(task, steps)
