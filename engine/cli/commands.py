"""``engramlog pop``, ``remove``, ``clear`` and the other commands: what changes a memory."""

import asyncio
import functools
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from engramlog.engine.cli import output
from engramlog.engine.cli.asking import name_of, row_of, scope_json
from engramlog.engine.cli.consent import agree, yes_option
from engramlog.engine.cli.failures import OK
from engramlog.engine.cli.options import json_option, scope_options, settings_options

if TYPE_CHECKING:
    from engramlog.engine.client import MemoryClient, Position, Scope
    from engramlog.engine.settings import Settings
    from engramlog.schemas.queries import StoredRecord
    from engramlog.schemas.records import MarkScope

T = TypeVar("T")
Function = Callable[..., Any]

_ONCE = """\b
A command has one effect and one answer for a request id, however often it is asked: if no answer came (exit code 3),
ask again with the --request-id that was printed. Nothing is deleted by any command but 'erase': what left the window is
still there 'as of' earlier positions, and by its id.
"""


def _command(*, leave: bool = False) -> Callable[[Function], Function]:
    """Give a command what all of them have: scope, settings, ``--request-id``, ``--json``, and ``--leave`` if asked."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def command(*, request_id: str | None, **options: Any) -> Any:
            from engramlog.schemas.records import new_id

            return function(request_id=request_id or new_id(), **options)

        made: Function = scope_options(settings_options()(json_option(command)))
        made = click.option("--request-id", metavar="ID", help="The identity of the command. [default: a new one]")(
            made
        )
        if leave:
            made = click.option(
                "--leave",
                type=click.Choice(["window", "recall", "both"]),
                default="window",
                show_default=True,
                help="What the records leave; what left the window alone can still be recalled.",
            )(made)
        return made

    return decorate


_POP_EPILOG = f"""\b
Examples:
  engramlog pop 2 --session s1
  engramlog pop 1 --tenant acme --agent helper --session s1 --user ada --json
  engramlog pop 2 --session s1 --leave both --request-id undo-17

\b
The newest records of the window that the scope sees; never a leading system or developer record.

{_ONCE}"""


@click.command(epilog=_POP_EPILOG)
@click.argument("count", metavar="N", type=click.IntRange(min=0))
@_command(leave=True)
def pop(*, settings: "Settings", scope: "Scope", count: int, leave: "MarkScope", request_id: str, as_json: bool) -> int:
    """Take the newest N records out of the window."""

    async def ask(client: "MemoryClient") -> "list[StoredRecord]":
        return await client.pop(scope, count, leave=leave, request_id=request_id)

    return _taken(settings, scope, ask, request_id, as_json=as_json)


_REMOVE_EPILOG = f"""\b
Examples:
  engramlog remove 3 4 --session s1
  engramlog remove 0 --agent helper --leave both --json

\b
Indices count from 0 for the oldest record of the window ('engramlog history' shows it in that order). Duplicates count
once; the leading system or developer record and indices outside of the window are passed over.

{_ONCE}"""


@click.command(epilog=_REMOVE_EPILOG)
@click.argument("indices", metavar="INDEX...", type=int, nargs=-1, required=True)
@_command(leave=True)
def remove(
    *,
    settings: "Settings",
    scope: "Scope",
    indices: tuple[int, ...],
    leave: "MarkScope",
    request_id: str,
    as_json: bool,
) -> int:
    """Take records out of the window by their indices in it."""

    async def ask(client: "MemoryClient") -> "list[StoredRecord]":
        return await client.remove(scope, indices, leave=leave, request_id=request_id)

    return _taken(settings, scope, ask, request_id, as_json=as_json)


_CLEAN_EPILOG = f"""\b
Examples:
  engramlog clean-tool-calls --session s1
  engramlog clean-tool-calls --agent coder --all-users --json

{_ONCE}"""


@click.command("clean-tool-calls", epilog=_CLEAN_EPILOG)
@_command(leave=True)
def clean_tool_calls(
    *, settings: "Settings", scope: "Scope", leave: "MarkScope", request_id: str, as_json: bool
) -> int:
    """Take tool results, and what called the tools, out of the window."""

    async def ask(client: "MemoryClient") -> "list[StoredRecord]":
        return await client.clean_tool_calls(scope, leave=leave, request_id=request_id)

    return _taken(settings, scope, ask, request_id, as_json=as_json)


_CLEAR_EPILOG = f"""\b
Examples:
  engramlog clear --session s1 --user ada
  engramlog clear --agent helper --all-users --leave both

\b
A new epoch begins. With --user it is that user's records, without it those that all users share, with --all-users both.

{_ONCE}"""


@click.command(epilog=_CLEAR_EPILOG)
@_command(leave=True)
def clear(*, settings: "Settings", scope: "Scope", leave: "MarkScope", request_id: str, as_json: bool) -> int:
    """Everything recorded so far leaves the window."""

    async def ask(client: "MemoryClient") -> "Position":
        return await client.clear(scope, leave=leave, request_id=request_id)

    return _done(settings, scope, ask, request_id, as_json=as_json)


_CORRECT_EPILOG = f"""\b
Examples:
  engramlog correct 0198f1c2-5d1e-7b2c-9a6e-2f1f0c3b4a5d "The table is for three." --user ada
  engramlog correct conv-26/D1:3 - --agent conv-26 --reason "heard wrongly" < text

{_ONCE}"""


@click.command(epilog=_CORRECT_EPILOG)
@click.argument("record_id", metavar="ID")
@click.argument("text", metavar="TEXT")
@click.option("--reason", default="", metavar="TEXT", help="Why, for people.")
@_command()
def correct(
    *,
    settings: "Settings",
    scope: "Scope",
    record_id: str,
    text: str,
    reason: str,
    request_id: str,
    as_json: bool,
) -> int:
    """Give a record new content in its old place; TEXT '-' reads it from standard input."""
    content = sys.stdin.read() if text == "-" else text

    async def ask(client: "MemoryClient") -> "Position":
        return await client.correct(scope, record_id, content, reason=reason, request_id=request_id)

    return _done(settings, scope, ask, request_id, as_json=as_json)


_INVALIDATE_EPILOG = f"""\b
Examples:
  engramlog invalidate conv-26/D1:3 --agent conv-26 --reason "she moved"
  engramlog invalidate old-address --replaced-by new-address --user ada --json

{_ONCE}"""


@click.command(epilog=_INVALIDATE_EPILOG)
@click.argument("record_id", metavar="ID")
@click.option("--reason", default="", metavar="TEXT", help="Why, for people.")
@click.option("--replaced-by", metavar="ID", help="The record that holds the truth now.")
@_command()
def invalidate(
    *,
    settings: "Settings",
    scope: "Scope",
    record_id: str,
    reason: str,
    replaced_by: str | None,
    request_id: str,
    as_json: bool,
) -> int:
    """Say that a record is no longer true: it stays in the history and leaves recall."""

    async def ask(client: "MemoryClient") -> "Position":
        return await client.invalidate(scope, record_id, reason=reason, replaced_by=replaced_by, request_id=request_id)

    return _done(settings, scope, ask, request_id, as_json=as_json)


_END_EPILOG = f"""\b
Examples:
  engramlog end-session --session s1
  engramlog end-session --tenant acme --agent helper --session s1 --reason "said goodbye" --json

{_ONCE}"""


@click.command("end-session", epilog=_END_EPILOG)
@click.option("--reason", default="", metavar="TEXT", help="Why, for people.")
@_command()
def end_session(*, settings: "Settings", scope: "Scope", reason: str, request_id: str, as_json: bool) -> int:
    """Say that the session that --session names is over."""
    _must_name(scope, "session")

    async def ask(client: "MemoryClient") -> "Position":
        return await client.end_session(scope, reason=reason, request_id=request_id)

    return _done(settings, scope, ask, request_id, as_json=as_json)


_SUMMARISE_EPILOG = f"""\b
Examples:
  engramlog summarise --session s1
  engramlog summarise --tenant acme --agent helper --session s1 --user ada --json

\b
It returns once the request is in the log; the summaries come when they are made: 'engramlog tail summaries', or
'engramlog context --wait-for-summary'. Never summarised are system messages, core memories, and the newest user message
with what follows it.

{_ONCE}"""


@click.command(epilog=_SUMMARISE_EPILOG)
@_command()
def summarise(*, settings: "Settings", scope: "Scope", request_id: str, as_json: bool) -> int:
    """Have all of the session that --session names summarised that may be."""
    _must_name(scope, "session")

    async def ask(client: "MemoryClient") -> "Position":
        return await client.summarise(scope, request_id=request_id)

    return _done(settings, scope, ask, request_id, as_json=as_json)


@click.group()
def erase() -> None:
    """Erase for ever: records, a session, a user, an agent or a tenant."""


_ERASED = """\b
From the answer on, nothing shows what was recorded before the position that is printed; what is published after it is
there. The entry of the erasure ledger is permanent and holds no content. Of an erased record no later copy is taken.
It is asked for confirmation; --yes does without. An answer that did not come (exit code 3): ask again with the
--request-id that was printed, so that what was recorded meanwhile is not erased, too.
"""


def _erasing(what: Literal["record", "session", "user", "agent"], examples: str) -> Callable[[Function], Function]:
    def decorate(function: Function) -> Function:
        epilog = f"\b\nExamples:\n{examples}\n\n{_ERASED}"
        made: Function = erase.command(what, epilog=epilog)(_command()(yes_option(function)))
        return made

    return decorate


@_erasing(
    "record",
    "  engramlog erase record 0198f1c2-5d1e-7b2c-9a6e-2f1f0c3b4a5d --agent helper\n"
    "  engramlog erase record r1 r2 --tenant acme --agent helper --all-users --yes --json",
)
@click.argument("record_ids", metavar="ID...", nargs=-1, required=True)
def erase_record(*, record_ids: tuple[str, ...], **options: Any) -> int:
    """Erase named records of the agent."""
    return _erase("record", f"{output.count(len(record_ids), 'record')} of", record_ids=record_ids, **options)


@_erasing(
    "session", "  engramlog erase session --agent helper --session s1\n  engramlog erase session --session s1 --yes"
)
def erase_session(**options: Any) -> int:
    """Erase the session that --session names, with all users' records in it."""
    _must_name(options["scope"], "session")
    return _erase("session", f"the session {options['scope'].session!r} of", **options)


@_erasing("user", "  engramlog erase user --agent helper --user ada\n  engramlog erase user --user ada --yes --json")
def erase_user(**options: Any) -> int:
    """Erase what the agent remembers of the user that --user names."""
    _must_name(options["scope"], "user")
    return _erase("user", f"the user {options['scope'].user!r} with", **options)


@_erasing(
    "agent", "  engramlog erase agent --tenant acme --agent helper\n  engramlog erase agent --agent helper --yes --json"
)
def erase_agent(**options: Any) -> int:
    """Erase everything that the agent remembers."""
    return _erase("agent", "everything of", **options)


@erase.command(
    "tenant",
    epilog="\b\nExamples:\n  engramlog erase tenant --tenant acme\n"
    f"  engramlog erase tenant --tenant acme --user ada --yes --json\n\n{_ERASED}",
)
@click.option("--tenant", required=True, metavar="ID", help="The tenant.")
@click.option("--user", metavar="ID", help="Only this user's records, with all of the tenant's agents.")
@click.option("--request-id", metavar="ID", help="The identity of the command. [default: a new one]")
@yes_option
@settings_options()
@json_option
def erase_tenant(
    *, settings: "Settings", tenant: str, user: str | None, request_id: str | None, yes: bool, as_json: bool
) -> int:
    """Erase a whole tenant, or one user with all of its agents."""
    from engramlog.schemas.records import new_id

    made, whose = request_id or new_id(), f"the user {user!r} with all agents of" if user else "everything of"
    agree(f"Erase {output.one_line(f'{whose} the tenant {tenant!r}')} for ever?", yes=yes)

    async def ask(client: "MemoryClient") -> "list[Position]":
        return await client.erase_tenant(tenant, user=user, request_id=made)

    positions = asyncio.run(_asked(settings, ask, made))
    if as_json:
        events = [{"topic": p.topic, "partition": p.partition, "offset": p.offset} for p in positions]
        output.print_json({"request_id": made, "tenant": tenant, "user": user, "events": events})
    else:
        click.echo(f"{output.one_line(tenant)}: done, as {output.count(len(positions), 'event')}, one a partition")
    return OK


def _erase(
    what: Literal["record", "session", "user", "agent"],
    said: str,
    *,
    settings: "Settings",
    scope: "Scope",
    request_id: str,
    yes: bool,
    as_json: bool,
    record_ids: Sequence[str] = (),
) -> int:
    agree(f"Erase {output.one_line(said)} {output.one_line(f'{scope.tenant} / {scope.agent}')} for ever?", yes=yes)

    async def ask(client: "MemoryClient") -> "Position":
        return await client.erase(scope, what, record_ids=record_ids, request_id=request_id)

    return _done(settings, scope, ask, request_id, as_json=as_json)


def _must_name(scope: "Scope", part: Literal["session", "user"]) -> None:
    if getattr(scope, part) is None:
        raise click.UsageError(f"name it: --{part} ID")


def _taken(
    settings: "Settings",
    scope: "Scope",
    ask: "Callable[[MemoryClient], Awaitable[list[StoredRecord]]]",
    request_id: str,
    *,
    as_json: bool,
) -> int:
    records = asyncio.run(_asked(settings, ask, request_id))
    if as_json:
        dumped = [record.model_dump(mode="json", exclude_defaults=True) for record in records]
        output.print_json({"request_id": request_id, "scope": scope_json(scope), "records": dumped})
        return OK
    output.print_table(
        f"{name_of(scope)}: {output.count(len(records), 'record')} taken out",
        ("offset", "happened", "session", "user", "role", "text"),
        [row_of(record) for record in records],
        right=("offset",),
    )
    return OK


def _done(
    settings: "Settings",
    scope: "Scope",
    ask: "Callable[[MemoryClient], Awaitable[Position]]",
    request_id: str,
    *,
    as_json: bool,
) -> int:
    position = asyncio.run(_asked(settings, ask, request_id))
    if as_json:
        event = {"topic": position.topic, "partition": position.partition, "offset": position.offset}
        output.print_json({"request_id": request_id, "scope": scope_json(scope), "event": event})
    else:
        click.echo(f"{output.one_line(name_of(scope))}: done, as {position}")
    return OK


async def _asked(settings: "Settings", ask: "Callable[[MemoryClient], Awaitable[T]]", request_id: str) -> T:
    from engramlog.engine.client import MemoryClient
    from engramlog.schemas.errors import Transient

    async with MemoryClient(settings.kafka(), source="engramlog/cli", timeout_s=settings.timeout_s) as client:
        try:
            return await ask(client)
        except Transient:
            output.say(f"it may have been done, or not: ask again with --request-id {output.one_line(request_id)}")
            raise
