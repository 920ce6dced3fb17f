"""``engramlog tail``: the log itself, message by message, as it is written."""

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli import output
from engramlog.engine.cli.live import run_until_stopped
from engramlog.engine.cli.options import instant, json_option, settings_options

if TYPE_CHECKING:
    from engramlog.engine.client.reader import Decoded
    from engramlog.engine.settings import Settings

_EPILOG = """\b
Examples:
  engramlog tail records
  engramlog tail records --tenant acme --agent helper
  engramlog tail records --from beginning --no-follow --json | jq -r .event.data.content
  engramlog tail records --from 2026-03-01T00:00:00Z -n 100

\b
Needs neither a store nor a consumer, joins no group and commits nothing. Every message is decoded by itself: one that
cannot be is shown with what is wrong with it. Messages of one agent come in order; of several, in no promised one.
Ctrl-C ends it with 130; -n and --no-follow end it with 0.
"""


@click.group()
def tail() -> None:
    """Watch the log."""


@tail.command(epilog=_EPILOG)
@click.option(
    "--from",
    "start",
    default="now",
    show_default=True,
    metavar="now|beginning|TIME",
    help="Where to begin: TIME is the broker's, such as 2026-03-01T00:00:00Z.",
)
@click.option("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N messages.")
@click.option("--follow/--no-follow", default=True, help="Wait for more, or stop at the log's end as it is now.")
@click.option("--tenant", metavar="ID", help="Only this tenant.")
@click.option("--agent", metavar="ID", help="Only this agent.")
@click.option("--session", metavar="ID", help="Only this session.")
@click.option("--user", metavar="ID", help="Only this user.")
@settings_options(timeout=False)
@json_option
@click.pass_context
def records(
    ctx: click.Context,
    *,
    settings: "Settings",
    start: str,
    limit: int | None,
    follow: bool,
    tenant: str | None,
    agent: str | None,
    session: str | None,
    user: str | None,
    as_json: bool,
) -> int:
    """The messages of memory.records: records, mutations, tombstones, and what is none of them."""
    begin = start if start in {"now", "beginning"} else instant(ctx, ctx.command.params[0], start)
    wanted = _Filter(tenant, agent, session, user)
    return run_until_stopped(
        lambda: _tail(settings, begin, wanted, limit=limit, follow=follow, as_json=as_json), stopping="stopped"
    )


@dataclass(frozen=True, slots=True)
class _Filter:
    """Which messages are shown; None: any."""

    tenant: str | None
    agent: str | None
    session: str | None
    user: str | None

    def partitions(self, count: int) -> range:
        """Where the messages can lie."""
        from engramlog.schemas.keys import partition_for

        if self.tenant is None or self.agent is None:
            return range(count)
        only = partition_for(self.tenant, self.agent, count)
        return range(only, only + 1)

    def __call__(self, decoded: "Decoded") -> bool:
        """Whether it is shown; a message that names nobody always is."""
        key, event = decoded.key, decoded.event
        if key is not None and self.tenant not in {None, key.tenant}:
            return False
        if key is not None and key.agent and self.agent not in {None, key.agent}:
            return False
        if event is None:
            return True
        return self.session in {None, event.sessionid} and self.user in {None, event.userid}


async def _tail(
    settings: "Settings", start: Any, wanted: _Filter, *, limit: int | None, follow: bool, as_json: bool
) -> None:
    from engramlog.engine.client.admin import inspect_topics
    from engramlog.engine.client.reader import decode, read
    from engramlog.schemas.codec import records_codec
    from engramlog.schemas.topics import Topics

    kafka, topic = settings.kafka(), Topics(settings.prefix).records
    count = (await inspect_topics(kafka)).partitions_of(topic)
    if not count:
        from engramlog.schemas.errors import ConfigurationError

        raise ConfigurationError(f"the topic {topic!r} does not exist: run 'engramlog topics create'")
    shown = 0
    messages = read(kafka, topic, partitions=wanted.partitions(count), start=start, follow=follow)
    async with aclosing(messages):
        async for message in messages:
            decoded = decode(message, records_codec(), partitions=count)
            if not wanted(decoded):
                continue
            if as_json:
                output.print_json(_as_json(decoded))
            else:
                click.echo(_line(decoded))
            shown += 1
            if shown == limit:
                return


def _as_json(decoded: "Decoded") -> dict[str, Any]:
    message = decoded.message
    position = message.position
    found: dict[str, Any] = {
        "topic": position.topic,
        "partition": position.partition,
        "offset": position.offset,
        "recorded": message.recorded.isoformat(),
        "key": None if message.key is None else message.key.decode(errors="backslashreplace"),
    }
    if decoded.error is not None:
        bad = None if message.value is None else message.value.decode(errors="backslashreplace")
        return {**found, "error": {"reason": decoded.error.reason, "message": str(decoded.error)}, "value": bad}
    if decoded.event is None:
        return {**found, "tombstone": True}
    return {**found, "event": decoded.event.model_dump(mode="json", exclude_none=True, exclude_unset=True)}


def _line(decoded: "Decoded") -> str:
    from engramlog.schemas.envelope import RecordWritten

    message, event = decoded.message, decoded.event
    head = f"{message.position} {message.recorded.isoformat(sep=' ', timespec='milliseconds')}"
    key = output.one_line("(no key)" if message.key is None else message.key.decode(errors="backslashreplace"))
    if decoded.error is not None:
        shown = output.one_line((message.value or b"")[:200].decode(errors="backslashreplace"))
        return f"{head} {key} BAD {decoded.error.reason}: {output.one_line(str(decoded.error))} | {shown}"
    if event is None:
        return f"{head} {key} TOMBSTONE"
    agent = decoded.key.agent if decoded.key is not None else ""
    whose = " / ".join(part for part in (event.tenantid, agent, event.sessionid) if part)
    user = f" [{event.userid}]" if event.userid else ""
    if isinstance(event, RecordWritten):
        return output.one_line(f"{head} {whose}{user} {event.data.role}: ") + " " + output.said(event.data)
    kind = str(getattr(event, "type", "")).removeprefix("engramlog.")
    return f"{head} {output.one_line(whose + user)} {kind} {key}"
