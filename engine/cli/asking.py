"""``engramlog history``, ``record`` and ``stats``: what an agent would be told."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from engramlog.engine.cli import output
from engramlog.engine.cli.failures import OK, UNAVAILABLE
from engramlog.engine.cli.options import (
    as_of_happened_option,
    as_of_option,
    instant,
    json_option,
    scope_options,
    settings_options,
)

if TYPE_CHECKING:
    from engramlog.engine.client import History, MemoryClient, Position, Scope
    from engramlog.engine.settings import Settings
    from engramlog.schemas.queries import AsOf, StoredRecord

T = TypeVar("T")

_WHOSE = """\b
Tenant and agent are 'default' unless they are named. Without --session it is all of the agent's sessions in log
order; without --user and --all-users only records that are shared by all users are seen.

\b
The answer covers the log as it ends now: it waits for that up to the timeout (--no-wait: as far as it has come).
An answer that does not is printed as well, marked stale, with exit code 3.
"""
_HISTORY_EPILOG = f"""\b
Examples:
  engramlog history --window 20
  engramlog history --tenant acme --agent helper --session s1 --user ada
  engramlog history --all-users --json | jq -r '.records[].stored.record.content'
  engramlog history --as-of 2026-03-01T00:00:00Z
  engramlog history --as-of 1200
  engramlog history --as-of "$(engramlog status --token)"

{_WHOSE}"""
_RECORD_EPILOG = f"""\b
Examples:
  engramlog record 0198f1c2-5d1e-7b2c-9a6e-2f1f0c3b4a5d --user ada
  engramlog record conv-26/D1:3 --agent conv-26 --json

{_WHOSE}"""
_STATS_EPILOG = f"""\b
Examples:
  engramlog stats --all-users
  engramlog stats --tenant acme --agent helper --json

{_WHOSE}"""

wait_option = click.option("--wait/--no-wait", default=True, help="Whether the answer must cover the log's end.")


@click.command(epilog=_HISTORY_EPILOG)
@click.option("--window", type=int, metavar="N", help="Only the newest N, and the protected head. [default: all]")
@click.option("--keep-rate", type=float, default=0.9, show_default=True, help="Score of each step back, 0 to 1.")
@as_of_option
@click.option("--as-of-offset", type=click.IntRange(min=0), metavar="OFFSET", help="As of this offset of the log.")
@click.option("--as-of-recorded", callback=instant, metavar="TIME", help="As of what was recorded until then.")
@as_of_happened_option
@wait_option
@scope_options
@settings_options(reads=True)
@json_option
def history(
    *,
    settings: "Settings",
    scope: "Scope",
    window: int | None,
    keep_rate: float,
    as_of: "AsOf | None",
    as_of_offset: int | None,
    as_of_recorded: datetime | None,
    as_of_happened: datetime | None,
    wait: bool,
    as_json: bool,
) -> int:
    """What was said, oldest first; the newest scores 1.0, each step back --keep-rate times as much."""
    point = _as_of(as_of, as_of_offset, as_of_recorded, as_of_happened)

    async def ask(client: "MemoryClient", seen: "list[Position]") -> "History":
        return await client.history(scope, window=window, keep_rate=keep_rate, as_of=point, min_positions=seen)

    found = asyncio.run(asked(settings, scope, ask, wait=wait))
    if as_json:
        output.print_json(
            {
                "scope": scope_json(scope),
                "records": [r.model_dump(mode="json", exclude_defaults=True) for r in found.records],
                "truncated": found.truncated,
                "stale": found.seen.stale,
                "positions": [str(p) for p in found.seen.positions],
            }
        )
    else:
        more = "; older ones exist" if found.truncated else ""
        rows = [(f"{r.score:.3f}", *row_of(r.stored)) for r in found.records]
        output.print_table(
            f"{name_of(scope)}: {output.count(len(found.records), 'record')}{more}",
            ("score", "offset", "happened", "session", "user", "role", "text"),
            rows,
            right=("score", "offset"),
        )
    return stale_code("the history has not come to the log's end in time", stale=found.seen.stale)


@click.command(epilog=_RECORD_EPILOG)
@click.argument("record_id", metavar="ID")
@wait_option
@scope_options
@settings_options(reads=True)
@json_option
def record(*, settings: "Settings", scope: "Scope", record_id: str, wait: bool, as_json: bool) -> int:
    """One record by its id, also one that was removed from the window."""

    async def ask(client: "MemoryClient", seen: "list[Position]") -> "StoredRecord":
        return await client.record(scope, record_id, min_positions=seen)

    found = asyncio.run(asked(settings, scope, ask, wait=wait))
    if as_json:
        output.print_json(found.model_dump(mode="json", exclude_defaults=True))
        return OK
    fields = {**found.model_dump(mode="json", exclude_defaults=True, exclude={"record"}), **_fields(found)}
    output.print_table(f"{name_of(scope)}: {record_id}", ("field", "value"), list(fields.items()), last_wraps=True)
    return OK


@click.command(epilog=_STATS_EPILOG)
@wait_option
@scope_options
@settings_options(reads=True)
@json_option
def stats(*, settings: "Settings", scope: "Scope", wait: bool, as_json: bool) -> int:
    """How much is remembered in a scope."""

    async def ask(client: "MemoryClient", seen: "list[Position]") -> Any:
        return await client.stats(scope, min_positions=seen)

    found = asyncio.run(asked(settings, scope, ask, wait=wait)).model_dump(mode="json", exclude={"kind"})
    if as_json:
        output.print_json({"scope": scope_json(scope), **found})
    else:
        output.print_table(name_of(scope), ("what", "value"), list(found.items()), right=("value",))
    return OK


async def asked(
    settings: "Settings",
    scope: "Scope",
    ask: "Callable[[MemoryClient, list[Position]], Awaitable[T]]",
    *,
    wait: bool,
) -> T:
    """Ask with a client of its own.

    Args:
        settings: The settings.
        scope: Whose memory.
        ask: Asks; it gets the client, and the positions that the answer must have seen.
        wait: Whether that is the log's end as it is now; otherwise there are none.
    """
    from engramlog.engine.client import MemoryClient

    seen = await _log_end(settings, scope) if wait and settings.projection is None else []
    client = MemoryClient(
        settings.kafka(), source="engramlog/cli", timeout_s=settings.timeout_s, projection=settings.projection
    )
    async with client:
        return await ask(client, seen)


async def _log_end(settings: "Settings", scope: "Scope") -> "list[Position]":
    """The last position of the agent's partition, as it is now; empty when nothing lies there."""
    from engramlog.engine.client import Position
    from engramlog.engine.client.admin import inspect_topics
    from engramlog.engine.client.reader import spans
    from engramlog.schemas.keys import partition_for
    from engramlog.schemas.topics import Topics

    kafka, topic = settings.kafka(), Topics(settings.prefix).records
    partitions = (await inspect_topics(kafka)).require().partitions_of(topic)
    partition = partition_for(scope.tenant, scope.agent, partitions)
    span = (await spans(kafka, {topic: partitions}))[topic, partition]
    return [Position(topic, partition, span.end - 1)] if span.end > span.begin else []


def _as_of(
    as_of: "AsOf | None", offset: int | None, recorded: datetime | None, happened: datetime | None
) -> "AsOf | None":
    from engramlog.schemas.queries import AsOf

    given = sum(axis is not None for axis in (as_of, offset, recorded, happened))
    if given > 1:
        raise click.UsageError("give one of --as-of, --as-of-offset, --as-of-recorded and --as-of-happened")
    return as_of or (AsOf(offset=offset, recorded=recorded, happened=happened) if given else None)


def stale_code(why: str, *, stale: bool) -> int:
    """The exit code of an answer, and a line on standard error where it is stale."""
    if not stale:
        return OK
    output.say(f"stale: {why}; see 'engramlog status'")
    return UNAVAILABLE


def row_of(stored: "StoredRecord") -> tuple[Any, ...]:
    """A record for a table: offset, happened, session, user, role, text."""
    said = stored.record
    name = f"{said.role} ({said.role_name})" if said.role_name else said.role
    happened = said.timestamp.isoformat(sep=" ", timespec="seconds")
    return stored.offset, happened, stored.session, stored.user, name, output.said(said)


def _fields(stored: "StoredRecord") -> dict[str, Any]:
    return stored.record.model_dump(mode="json", exclude_defaults=True)


def name_of(scope: "Scope") -> str:
    """A scope for people."""
    parts = [scope.tenant, scope.agent, *([scope.session] if scope.session else [])]
    seen = "every user" if scope.users == "all" else f"user {scope.user}" if scope.user else "shared"
    return f"{' / '.join(parts)} ({seen})"


def scope_json(scope: "Scope") -> dict[str, Any]:
    """A scope for programs."""
    return {
        "tenant": scope.tenant,
        "agent": scope.agent,
        "session": scope.session,
        "user": scope.user,
        "users": scope.users,
    }
