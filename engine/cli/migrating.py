"""``engramlog topics migrate``: a log under another prefix, or with another number of partitions."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli import output
from engramlog.engine.cli.consent import agree, yes_option
from engramlog.engine.cli.failures import FOUND, OK
from engramlog.engine.cli.options import json_option, settings_options
from engramlog.engine.cli.progress import progress

if TYPE_CHECKING:
    from engramlog.engine.client.copying.copier import Copied
    from engramlog.engine.client.copying.ordering import AgentTopic
    from engramlog.engine.client.copying.topics import Log
    from engramlog.engine.client.fingerprints import Agent
    from engramlog.engine.settings import Settings
    from engramlog.schemas.topics import Topics

_SHOWN_AGENTS = 20
_MIN_TIMEOUT_S = 60.0

_EPILOG = """\b
Examples:
  engramlog topics migrate --to-prefix memory2 --partitions 48
  engramlog topics migrate --prefix staging --to-prefix prod --yes --json

\b
Copies the agent topics (records, what is derived from them in each generation, summaries), event by event, into topics
of the new prefix, which it creates: each agent's events in their order, with their log times; tombstones, too. What
lies there as a dead letter is left out and counted. Whatever an event says in offsets of the records, it says in those
of the new topic: marks, derivations, summaries, watermarks. So a rebuild from the copy is the same memory, and no
model is asked. Then the topics are read and compared, agent by agent. The old topics are never changed or deleted;
inbox, requests, replies and dead letters are not copied.

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
    """Copy the log to another prefix or another number of partitions, and compare."""
    if to_prefix == settings.prefix:
        raise click.UsageError(f"--to-prefix {to_prefix!r} is the prefix of the topics themselves")
    log, topics, messages = asyncio.run(_logs(settings, to_prefix, partitions))
    names = ", ".join(one.topic.name for one in log.all)
    where = f"{names} ({log.topics.partitions} partitions) to the prefix {to_prefix} ({topics.partitions})"
    agree(f"Copy {output.count(messages, 'message')}: {where}?", yes=yes)
    results = asyncio.run(_migrate(settings, log, topics, messages))
    good = all(result.equal for result in results)
    new = {"ENGRAMLOG_PREFIX": to_prefix, "ENGRAMLOG_PARTITIONS": str(topics.partitions)}
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
            "translated": self.copied.translated,
            "superseded": self.copied.superseded,
            "watermarks": self.copied.watermarks,
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
        yield "offsets translated", f"{self.copied.translated:,}"
        if self.copied.superseded:
            yield "derivations of copies that are gone", f"{self.copied.superseded:,}, left out"
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


async def _logs(settings: "Settings", to_prefix: str, partitions: int | None) -> "tuple[Log, Topics, int]":
    """The log that is copied, the table that it is copied to (nothing is made yet), and how many messages it holds."""
    from engramlog.engine.client.admin import inspect_topics
    from engramlog.engine.client.copying.topics import log_of
    from engramlog.schemas.errors import ConfigurationError

    log = await log_of(settings.kafka(), settings.topics())
    new = replace(log.topics, prefix=to_prefix, partitions=partitions or log.topics.partitions)
    for state in (await inspect_topics(_kafka_of(settings, new), topics=new)).states:
        if state.spec.kind != "agent" or not state.partitions:
            continue
        if partitions is not None and state.partitions != partitions:
            raise ConfigurationError(f"{state.spec.name!r} exists with {state.partitions} partitions, not {partitions}")
        new = replace(new, partitions=state.partitions)
    return log, new, await log.size()


def _kafka_of(settings: "Settings", topics: "Topics") -> Any:
    return settings.model_copy(update={"prefix": topics.prefix}).kafka()


async def _migrate(settings: "Settings", log: "Log", new: "Topics", total: int) -> list[_Result]:
    from engramlog.engine.client.copying.logs import copy_log, sources_of
    from engramlog.engine.client.copying.topics import create_like, log_of

    kafka = _kafka_of(settings, new)
    generations = [one.generation for one in log.all if one.generation is not None]
    await create_like(kafka, new, generations, replication=settings.replication, in_sync=settings.min_insync_replicas)
    target = await log_of(kafka, new, unfinished=True)
    ends = await log.ends()
    with progress(f"copying {new.prefix}", total) as step:
        timeout_s = max(settings.timeout_s, _MIN_TIMEOUT_S)
        copied = await copy_log(sources_of(log, ends, step), target, timeout_s=timeout_s)
    return await _compare(log, target, ends, copied)


async def _compare(log: "Log", target: "Log", ends: list[dict[int, int]], copied: "list[Copied]") -> list[_Result]:
    """Read both and compare them, topic by topic."""
    from engramlog.engine.client.copying.copier import ends_of, lag
    from engramlog.engine.client.fingerprints import fingerprint

    results: list[_Result] = []
    old_places: Any = None
    new_places: Any = None
    with progress("comparing", 2 * (await log.size() + await target.size())) as step:
        for one, other, until, done in zip(log.all, target.all, ends, copied, strict=True):
            old = await fingerprint(one.topic, records=old_places, until=until, on_read=step)
            new = await fingerprint(other.topic, records=new_places, on_read=step)
            if one.role == "records":
                old_places, new_places = old.places, new.places
            behind = lag(until, await ends_of(one.topic))
            differing = old.differs_from(new)
            results.append(_Result(one.topic, other.topic, done, len(old.agents), old.bad, new.bad, differing, behind))
    return results
