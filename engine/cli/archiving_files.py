"""Message files and MEMORY.md files into the log: found out, read, and published where they are not there yet."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli import output
from engramlog.engine.cli.progress import progress

if TYPE_CHECKING:
    from engramlog.engine.settings import Settings
    from engramlog.schemas.envelope import RecordWritten
    from engramlog.schemas.records import MemoryRecord

_LOOKED_AT = 1 << 16
_SHOWN = 20
_SOURCE = "engramlog/import"
_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Into:
    """Whose memory a file becomes.

    Attributes:
        tenant: The tenant; None: not given.
        agent: The agent; None: not given.
        session: The session; None: the file's own.
        user: The user; None: the file's own, else shared.
    """

    tenant: str | None
    agent: str | None
    session: str | None
    user: str | None


def form_of(path: Path) -> str | None:
    """What a file holds, by its beginning and its name; None: unknown."""
    from engramlog.engine.archive.files import is_archive
    from engramlog.engine.cli.conversations import form_of as form_of_line

    with path.open("rb") as file:
        first = file.readline(_LOOKED_AT).removeprefix(b"\xef\xbb\xbf")
    if is_archive(first):
        return "archive"
    if form_of_line(first) == "camel":
        return "camel"
    if first.lstrip()[:1] in {b"{", b"["}:
        return "openai"
    return "memory-md" if path.suffix.lower() in {".md", ".markdown"} or first.startswith(b"#") else None


def import_file(settings: "Settings", path: Path, name: str, form: str, into: Into, *, dry_run: bool) -> dict[str, Any]:
    """Publish what a file holds and the log does not; what was done, as JSON takes it.

    Raises:
        click.UsageError: It is not said whose memory it is.
        InvalidEvent: Something in the file cannot be a record; nothing was published.
    """
    read = _read(path, name, form, into)
    new, there = asyncio.run(_publish(settings, read.events, dry_run=dry_run))
    found: dict[str, Any] = {"file": name, "format": form, "dry_run": dry_run}
    found |= {"published": new, "already_there": there, "records": len(read.events)}
    return found | ({"passed_over": read.passed_over} if form == "memory-md" else {})


@dataclass(slots=True)
class _Read:
    events: "list[RecordWritten]" = field(default_factory=list)
    passed_over: int = 0


def _read(path: Path, name: str, form: str, into: Into) -> _Read:
    """All of a file, before anything of it is published."""
    if form == "memory-md":
        return _memories(path, name, into)
    from engramlog.schemas.formats import BadInput, read_camel, read_openai

    bad: list[BadInput] = []
    session = into.session or name
    if form == "camel":
        items = read_camel(path, on_bad=bad.append)
    else:
        items = read_openai(path, ids=session, timestamp=datetime.now(UTC), on_bad=bad.append)
    read = _Read()
    for item in items:
        at = session if not item.session else f"{session}/{item.session}"
        read.events.append(_event(item.record, into, agent=item.agent or None, session=at, user=None))
    if bad:
        for one in bad[1:_SHOWN]:
            output.say(str(one))
        raise click.UsageError(f"{bad[0]} ({output.count(len(bad), 'bad place')} in all; nothing was published)")
    return read


def _memories(path: Path, name: str, into: Into) -> _Read:
    from engramlog.schemas.formats.memory_md import read_memory_md

    found = read_memory_md(path.read_bytes(), now=datetime.now(UTC))
    if found.bad:
        line, error = found.bad[0]
        raise click.UsageError(f"{name}, line {line}: {error} ({len(found.bad)} in all; nothing was published)")
    owner = found.owner
    if owner is not None:
        into = Into(into.tenant or owner.tenant, into.agent or owner.agent, into.session, into.user)
    read = _Read(passed_over=found.passed_over)
    for memory in found.memories:
        event = _event(memory.record, into, agent=None, session=memory.session, user=memory.user)
        read.events.append(event)
    return read


def _event(
    record: "MemoryRecord", into: Into, *, agent: str | None, session: str | None, user: str | None
) -> "RecordWritten":
    from pydantic import ValidationError

    from engramlog.schemas.codec import invalid
    from engramlog.schemas.envelope import RecordWritten

    named = into.agent or agent
    if into.tenant is None or named is None:
        raise click.UsageError("whose memory is it? Give --tenant and --agent")
    try:
        return RecordWritten.of(
            record,
            source=_SOURCE,
            tenant=into.tenant,
            agent=named,
            sessionid=into.session or session,
            userid=into.user or user,
            time=record.timestamp,
        )
    except ValidationError as error:
        raise invalid(error) from None


async def _publish(settings: "Settings", events: "list[RecordWritten]", *, dry_run: bool) -> tuple[int, int]:
    """How many were (or would be) published, and how many the log has already."""
    from engramlog.engine.archive.standing import standing
    from engramlog.engine.client import MemoryClient
    from engramlog.engine.client.copying.topics import log_of
    from engramlog.schemas.codec import records_codec

    codec = records_codec()
    for event in events:
        codec.encode(event)  # raises before anything is published
    unique = list({event.key(): event for event in events}.values())
    log = await log_of(settings.kafka(), settings.topics())
    known = await standing(log.all[0].topic, [(e.tenantid, e.agentid, e.data.record_id) for e in unique])
    new = [e for e in unique if known.get((e.tenantid, e.agentid, e.data.record_id)) != e.data.content]
    if not dry_run:
        async with MemoryClient(settings.kafka(), source=_SOURCE, timeout_s=settings.timeout_s) as client:
            with progress("publishing", len(new)) as step:
                for batch in _batches(new):
                    await client.publish_events(batch)
                    step(len(batch))
    return len(new), len(unique) - len(new)


def _batches(events: "list[RecordWritten]") -> "Iterator[list[RecordWritten]]":
    for start in range(0, len(events), _BATCH):
        yield events[start : start + _BATCH]
