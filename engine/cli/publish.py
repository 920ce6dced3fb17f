"""``engramlog publish``: a file of records or a conversation into memory."""

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from engramlog.engine.cli import output
from engramlog.engine.cli.failures import OK
from engramlog.engine.cli.live import interruptible
from engramlog.engine.cli.options import default_scope_options, json_option, settings_options

if TYPE_CHECKING:
    from engramlog.engine.cli.files import Source
    from engramlog.engine.cli.sending import Sent
    from engramlog.engine.cli.turns import Invalid, Maker
    from engramlog.engine.settings import Settings
    from engramlog.schemas.errors import InvalidEvent

_SAY_EVERY_S = 2.0
_SHOWN_INVALID = 20

_EPILOG = """\b
Examples:
  engramlog publish talk.jsonl --tenant acme --agent helper --session s1 --user ada
  engramlog publish chat.json --format openai --session s2
  engramlog publish camel_memory.json --format camel
  engramlog publish locomo.json
  zcat talk.jsonl.gz | engramlog publish - --json

\b
A line of JSON holds the fields of a MemoryRecord (role is required) and, optionally, tenant, agent, session and
user; the options hold where a line does not say. Tenant and agent are 'default' when nobody says.

\b
A file is read twice: first every record of it is checked, and with one that is invalid nothing is published (exit
code 1, every invalid line named), unless --skip-invalid says to leave those out. Standard input is read once: what
comes before an invalid line is published, then it stops. Records go out in batches of up to 1,000.

\b
Records without an id get a new one (UUIDv7), so that publishing a file twice doubles it; with --ids-from-content the
id is made of the content and its line, so that it does not. LoCoMo's turns keep their own ids. LoCoMo gives an agent
a sample and a session a session, MemoryBank a user and a session a day, unless the options name them.
"""


@click.command(epilog=_EPILOG)
@click.argument("file", default="-", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", "jsonl", "openai", "camel", "locomo", "memorybank"]),
    default="auto",
    show_default=True,
    help="What the file holds.",
)
@click.option("--skip-invalid", is_flag=True, help="Publish the rest of a file with invalid records.")
@click.option("--ids-from-content", is_flag=True, help="Make ids so that publishing it again doubles nothing.")
@default_scope_options
@settings_options()
@json_option
def publish(
    *,
    settings: "Settings",
    file: str,
    form: str,
    skip_invalid: bool,
    ids_from_content: bool,
    tenant: str | None,
    agent: str | None,
    session: str | None,
    user: str | None,
    as_json: bool,
) -> int:
    """Publish records to memory, from FILE or standard input ('-', the default)."""
    from engramlog.engine.cli.conversations import FORMS
    from engramlog.engine.cli.files import open_source
    from engramlog.engine.cli.turns import Maker, Whose

    if file == "-" and sys.stdin.isatty():
        output.say("reading JSON lines from the terminal; Ctrl-D ends")
    source = open_source(file, next((known for known in FORMS if known == form), None))
    maker = Maker(Whose(tenant, agent, session, user), now=datetime.now(UTC), ids_from_content=ids_from_content)
    rejects = _Rejects(skip=skip_invalid)
    if source.repeatable and not skip_invalid:
        _check_all(source, maker)
    began = time.monotonic()
    with interruptible():
        sent = asyncio.run(_publish(settings, source, maker, rejects))
    seconds = time.monotonic() - began
    if as_json:
        positions = sent.positions()
        numbers = {"published": sent.records, "invalid": rejects.count, "seconds": round(seconds, 3)}
        output.print_json({"file": source.name, "format": source.form, **numbers, "positions": positions})
        return OK
    left_out = f", {output.count(rejects.count, 'invalid one')} left out" if rejects.count else ""
    numbers_of = output.count(sent.records, "record")
    output.print_table(
        f"Published {numbers_of} of {source.name} ({source.form}) in {seconds:.2f} s{left_out}",
        ("topic", "partition", "first", "last", "records"),
        [tuple(p.values()) for p in sent.positions()],
        right=("partition", "first", "last", "records"),
    )
    return OK


@dataclass(slots=True)
class _Rejects:
    """What was invalid on the way.

    Attributes:
        skip: Go on without them.
        count: How many there were.
    """

    skip: bool
    count: int = 0

    def __call__(self, invalid: "Invalid") -> "InvalidEvent | None":
        """What stops the publishing; None: it goes on."""
        self.count += 1
        if not self.skip:
            return type(invalid.error)(f"{invalid.where}: {invalid.error}; what came before it is published")
        if self.count <= _SHOWN_INVALID:
            output.say(f"left out: {invalid.where}: {invalid.error}")
        elif self.count == _SHOWN_INVALID + 1:
            output.say("more are left out, and counted only")
        return None


def _check_all(source: "Source", maker: "Maker") -> None:
    """Read it once without publishing.

    Raises:
        InvalidEvent: For the first invalid record, once all were named.
    """
    from engramlog.engine.cli.sending import checked
    from engramlog.engine.cli.turns import Invalid

    first: Invalid | None = None
    count = 0
    for item in checked(source.turns(maker)):
        if not isinstance(item, Invalid):
            continue
        count += 1
        if first is None:
            first = item
        elif count <= _SHOWN_INVALID:
            output.say(f"{item.where}: {item.error}")
    if first is not None:
        raise type(first.error)(
            f"{first.where}: {first.error} ({output.count(count, 'invalid record')} in all; nothing was published, "
            "--skip-invalid publishes the rest)"
        )


async def _publish(settings: "Settings", source: "Source", maker: "Maker", rejects: _Rejects) -> "Sent":
    from engramlog.engine.cli.sending import Sent, checked, send
    from engramlog.engine.cli.turns import SOURCE
    from engramlog.engine.client import MemoryClient

    sent = Sent()
    tell = _Progress(sent, time.monotonic)
    async with MemoryClient(settings.kafka(), source=SOURCE, timeout_s=settings.timeout_s) as client:
        turns = checked(source.turns(maker))
        async for batch in send(client, turns, on_invalid=rejects, timeout_s=settings.timeout_s):
            for _, position in batch:
                sent.add(position)
            tell()
    return sent


@dataclass(slots=True)
class _Progress:
    """Says now and then how far it is."""

    sent: "Sent"
    clock: Callable[[], float]
    said_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.said_at = self.clock()

    def __call__(self) -> None:
        if self.clock() - self.said_at >= _SAY_EVERY_S:
            self.said_at = self.clock()
            output.say(f"{self.sent.records:,} records published")
