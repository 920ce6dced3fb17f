"""``engramlog dead-letters``: what could not be processed, and what becomes of it."""

import asyncio
import base64
import functools
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli import output
from engramlog.engine.cli.consent import agree, yes_option
from engramlog.engine.cli.failures import FOUND, OK
from engramlog.engine.cli.options import instant, json_option, settings_options
from engramlog.engine.cli.replaying import carry_out, partitions_of, plan_replay, safe, tell_of_the_rest

if TYPE_CHECKING:
    from engramlog.engine.client.dead_letters import Found, Letter, Wanted
    from engramlog.engine.settings import Settings

_SHOWN_BYTES = 2_000
_ERROR = 160

_FILTERS = """\b
Filters narrow each other down. --topic is the topic that a message came from: its full name, or the part after the
prefix ('records'). --tenant and --agent find letters whose Kafka key is one of ours. Times are those of the death.
A letter that was written twice (a consumer died between publishing and committing) is shown once.
"""
_LIST_EPILOG = f"""\b
Examples:
  engramlog dead-letters list
  engramlog dead-letters list --count
  engramlog dead-letters list --reason wrong_partition --topic records --since 2026-03-01T00:00:00Z
  engramlog dead-letters list --tenant acme --newest-first -n 20 --json | jq -r .error

{_FILTERS}"""
_SHOW_EPILOG = """\b
Examples:
  engramlog dead-letters show memory.records/3/1200
  engramlog dead-letters show memory.inbox/0/17 --raw | jq .
  engramlog dead-letters show memory.records/3/1200 --raw --output event.json

\b
The name of a letter is where its message came from: topic/partition/offset, as 'list' shows it. Bytes are shown
escaped, so that nothing in them steers the terminal; --raw writes exactly the bytes that came. If several consumers
gave up on it, the last one is shown.
"""
_REPLAY_EPILOG = f"""\b
Examples:
  engramlog dead-letters replay --reason retries_exhausted --dry-run
  engramlog dead-letters replay memory.records/3/1200 --yes
  engramlog dead-letters replay --reason wrong_partition --since 2026-03-01T00:00:00Z
  engramlog dead-letters replay --all --json --yes

\b
The raw bytes are published anew under their own key, at the end of the topic that they came from, in the order of
their origins; no checkpoint moves. In an agent topic a message goes to its agent's partition where the key tells it:
what was 'wrong_partition' is right then. Nothing is mended: what still cannot be read becomes a dead letter again,
under a new origin, and is counted beforehand. Requests (the topic of queries) are replayed only if --topic or an origin
names them: nobody waits for the answer any more, and a command would be carried out now.
The letters stay until they are purged, or the topic's retention takes them. Replaying twice is harmless for records
(the last copy of a key counts), but a record's newest copy may be overtaken by the old one.

{_FILTERS}"""
_PURGE_EPILOG = """\b
Examples:
  engramlog dead-letters purge --before 2026-03-01T00:00:00Z
  engramlog dead-letters purge --yes --json

\b
A Kafka log can be cut off at its old end and nowhere else: single letters, or those of one reason, cannot be deleted.
Without --before everything goes that lies there when the command starts; what dies meanwhile stays. Left alone, letters
go by themselves after the topic's retention (ENGRAMLOG_DEAD_LETTERS_RETENTION_MS; 30 days by default).
"""


@click.group("dead-letters")
def dead_letters() -> None:
    """What could not be processed: list it, look at it, send it anew, purge it."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """The filters, as options gave them."""

    reasons: tuple[str, ...]
    consumers: tuple[str, ...]
    topics: tuple[str, ...]
    partition: int | None
    since: datetime | None
    until: datetime | None
    tenant: str | None
    agent: str | None

    def __bool__(self) -> bool:
        return any(
            value not in {(), None}
            for value in (self.reasons, self.consumers, self.topics, self.partition, self.since, self.until)
        ) or (self.tenant is not None or self.agent is not None)

    def wanted(self, prefix: str, origins: tuple[str, ...] = ()) -> "Wanted":
        from engramlog.engine.client.dead_letters import Wanted
        from engramlog.schemas.topics import Topics

        known = {spec.name for spec in Topics(prefix).table()}
        names = (f"{prefix}.{name}" if f"{prefix}.{name}" in known else name for name in self.topics)
        return Wanted(
            frozenset(self.reasons),
            frozenset(self.consumers),
            frozenset(names),
            self.partition,
            self.since,
            self.until,
            self.tenant,
            self.agent,
            frozenset(origins),
        )


def _filters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the filters; it is called with ``asked``."""

    @functools.wraps(function)
    def command(**options: Any) -> Any:
        names = ("reasons", "consumers", "topics", "partition", "since", "until", "tenant", "agent")
        return function(asked=_Asked(**{name: options.pop(name) for name in names}), **options)

    options = [
        click.option("--reason", "reasons", multiple=True, metavar="CODE", help="Only of this reason (repeatable)."),
        click.option("--consumer", "consumers", multiple=True, metavar="NAME", help="Only of this consumer."),
        click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only from this topic."),
        click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Only from this partition."),
        click.option("--since", callback=instant, metavar="TIME", help="Only what died then or later."),
        click.option("--until", callback=instant, metavar="TIME", help="Only what died before."),
        click.option("--tenant", metavar="ID", help="Only of this tenant, where the key tells."),
        click.option("--agent", metavar="ID", help="Only of this agent, where the key tells."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@dead_letters.command("list", epilog=_LIST_EPILOG)
@click.option("--count", is_flag=True, help="Only count them, by reason.")
@click.option("--newest-first/--oldest-first", default=False, help="The order of death. [default: oldest first]")
@click.option("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="Show only the first N.")
@_filters
@settings_options(timeout=False)
@json_option
def list_(
    *, settings: "Settings", asked: _Asked, count: bool, newest_first: bool, limit: int | None, as_json: bool
) -> int:
    """The dead letters, oldest first, each once."""
    found = asyncio.run(_find(settings, asked.wanted(settings.prefix)))
    tell_of_the_rest(found)
    letters = found.letters[::-1] if newest_first else found.letters
    if count:
        _print_counts(found, as_json=as_json)
        return OK
    shown = letters[:limit]
    if as_json:
        for letter in shown:
            output.print_json(_as_json(letter))
        return OK
    more = f"; {len(letters) - len(shown):,} more are not shown" if len(shown) < len(letters) else ""
    output.print_table(
        f"{output.count(len(letters), 'dead letter')}{more}",
        ("died", "reason", "consumer", "origin", "whose", "bytes", "error"),
        [_row(letter) for letter in shown],
        right=("bytes",),
    )
    return OK


@dead_letters.command(epilog=_SHOW_EPILOG)
@click.argument("origin", metavar="TOPIC/PARTITION/OFFSET")
@click.option("--raw", is_flag=True, help="Write the raw value, byte by byte, and nothing else.")
@click.option(
    "--output", "file", type=click.Path(dir_okay=False, path_type=Path), help="With --raw: write into this file."
)
@settings_options(timeout=False)
@json_option
def show(*, settings: "Settings", origin: str, raw: bool, file: Path | None, as_json: bool) -> int:
    """One dead letter: why it died, its key and headers, its bytes."""
    if (file is not None and not raw) or (raw and as_json):
        raise click.UsageError("--output goes with --raw, and --raw does not go with --json")
    letter, value = asyncio.run(_one(settings, _checked(origin)))
    if raw:
        if letter.about.tombstone:
            output.say("a tombstone: the value is null, nothing is written")
        if file is not None:
            file.write_bytes(value or b"")
        else:
            sys.stdout.buffer.write(value or b"")
            sys.stdout.buffer.flush()
        return OK
    if as_json:
        packed = None if value is None else base64.b64encode(value).decode()
        headers = [[safe(name), None if v is None else safe(v)] for name, v in letter.headers]
        output.print_json(
            {**_as_json(letter), "headers": headers, "value": None if value is None else safe(value), "base64": packed}
        )
        return OK
    output.print_table(f"Dead letter {safe(letter.origin)}", ("what", "value"), list(_shown(letter)), last_wraps=True)
    if value is None:
        click.echo("(a tombstone: the value is null)")
    else:
        click.echo(safe(value[:_SHOWN_BYTES]))
        if len(value) > _SHOWN_BYTES:
            output.say(f"the first {_SHOWN_BYTES:,} of {len(value):,} bytes; all of them: --raw")
    return OK


@dead_letters.command(epilog=_REPLAY_EPILOG)
@click.argument("origins", nargs=-1, metavar="[TOPIC/PARTITION/OFFSET]...")
@click.option("--all", "everything", is_flag=True, help="All of them; otherwise an origin or a filter is needed.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
@yes_option
@_filters
@settings_options()
@json_option
def replay(
    *,
    settings: "Settings",
    asked: _Asked,
    origins: tuple[str, ...],
    everything: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Publish the raw bytes of dead letters anew, at the end of the topics that they came from."""
    if not (origins or asked or everything):
        raise click.UsageError("name origins, give a filter, or --all")
    wanted = asked.wanted(settings.prefix, tuple(map(_checked, origins)))
    replaying = asyncio.run(plan_replay(settings, wanted, requests=bool(origins or asked.topics)))
    text = replaying.text()
    if not dry_run and replaying.planned:
        agree(f"{text} Publish?", yes=yes)
        asyncio.run(carry_out(settings, replaying))
    if as_json:
        output.print_json({**replaying.as_json(), "dry_run": dry_run})
    else:
        click.echo(text if dry_run else f"{text} {output.count(replaying.published, 'message')} published.")
    return OK if not replaying.refused and len(replaying.letters) == replaying.planned else FOUND


@dead_letters.command(epilog=_PURGE_EPILOG)
@click.option("--before", callback=instant, metavar="TIME", help="Only what was written to the topic before this time.")
@yes_option
@settings_options(timeout=False)
@json_option
def purge(*, settings: "Settings", before: datetime | None, yes: bool, as_json: bool) -> int:
    """Delete all dead letters, or those before a time. Single ones cannot be deleted from a Kafka log."""
    from engramlog.engine.client.dead_letters import purge as cut_off

    cuts, messages = asyncio.run(_cuts(settings, before))
    if messages:
        since = f" written before {before.isoformat()}" if before else ""
        topic = settings.topics().dead_letters
        agree(f"Delete {output.count(messages, 'message')}{since} from {topic}, for ever?", yes=yes)
        asyncio.run(cut_off(settings.kafka(), topic, cuts))
    if as_json:
        output.print_json({"purged": messages, "before": before and before.isoformat(), "offsets": cuts})
    else:
        click.echo(f"{output.count(messages, 'message')} purged.")
    return OK


def _checked(origin: str) -> str:
    topic, _, rest = origin.partition("/")
    if not topic or not all(part.isdecimal() for part in rest.split("/")) or rest.count("/") != 1:
        raise click.UsageError(f"{origin!r} is no origin; write topic/partition/offset, as 'list' shows it")
    return origin


async def _find(settings: "Settings", wanted: "Wanted") -> "Found":
    from engramlog.engine.client.dead_letters import find

    topic = settings.topics().dead_letters
    return await find(settings.kafka(), topic, partitions=(await partitions_of(settings))[topic], wanted=wanted)


def _print_counts(found: "Found", *, as_json: bool) -> None:
    reasons = Counter(letter.about.reason for letter in found.letters)
    if as_json:
        counts = {"unreadable": found.unreadable, "incomplete": found.incomplete}
        output.print_json({"total": len(found.letters), "reasons": dict(reasons.most_common()), **counts})
        return
    title = output.count(len(found.letters), "dead letter")
    output.print_table(title, ("reason", "letters"), reasons.most_common(), right=("letters",))


def _row(letter: "Letter") -> tuple[Any, ...]:
    about, whose = letter.about, letter.whose
    name = f"{whose.tenant} / {whose.agent}" if whose else None
    died = about.died.isoformat(sep=" ", timespec="seconds")
    size = "tombstone" if about.tombstone else f"{letter.size:,}"
    return died, about.reason, about.consumer, letter.origin, name, size, output.one_line(about.error, _ERROR)


def _as_json(letter: "Letter") -> dict[str, Any]:
    about, whose = letter.about, letter.whose
    return {
        "origin": safe(letter.origin),
        "topic": safe(about.topic),
        "partition": about.partition,
        "offset": about.offset,
        "reason": safe(about.reason),
        "error": safe(about.error),
        "consumer": safe(about.consumer),
        "attempts": about.attempts,
        "died": about.died.isoformat(),
        "recorded_ms": about.recorded_ms,
        "key": None if letter.key is None else safe(letter.key),
        "key_bytes_left_out": about.key_bytes_left_out,
        "headers_left_out": about.headers_left_out,
        "tenant": whose and safe(whose.tenant),
        "agent": whose and safe(whose.agent),
        "bytes": letter.size,
        "tombstone": about.tombstone,
        "places": [str(place) for place in letter.places],
    }


def _shown(letter: "Letter") -> Any:
    hidden = {"topic", "partition", "offset", "recorded_ms", "places"}
    for name, value in _as_json(letter).items():
        if name not in hidden and value not in {None, False}:
            yield name.replace("_", " "), value
    yield "recorded", datetime.fromtimestamp(letter.about.recorded_ms / 1000).astimezone().isoformat(sep=" ")
    yield "lies at", ", ".join(map(str, letter.places))
    for name, header in letter.headers:
        yield f"header {safe(name)}", "(null)" if header is None else output.one_line(safe(header[:_SHOWN_BYTES]))


async def _one(settings: "Settings", origin: str) -> "tuple[Letter, bytes | None]":
    from engramlog.engine.client.dead_letters import Wanted, raw_values
    from engramlog.schemas.errors import RequestRefused

    found = await _find(settings, Wanted(origins=frozenset({origin})))
    async for letter, value in raw_values(settings.kafka(), found.letters[-1:]):
        return letter, value
    raise RequestRefused("not_found", f"no dead letter from {safe(origin)}: see 'engramlog dead-letters list'")


async def _cuts(settings: "Settings", before: datetime | None) -> tuple[dict[int, int], int]:
    """By partition, the first offset that is kept, and how many messages lie before those."""
    from engramlog.engine.client.reader import places_at, spans

    topic = settings.topics().dead_letters
    count = (await partitions_of(settings))[topic]
    held = {n: span for (_, n), span in (await spans(settings.kafka(), {topic: count})).items()}
    ends = {n: span.end for n, span in held.items()}
    if before is not None:
        found = await places_at(settings.kafka(), topic, partitions=range(count), time=before)
        ends = {n: min(end, found[n]) for n, end in ends.items()}
    cuts = {n: end for n, end in sorted(ends.items()) if end > held[n].begin}
    return cuts, sum(end - held[n].begin for n, end in cuts.items())
