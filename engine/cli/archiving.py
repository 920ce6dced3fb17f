"""``engramlog export`` and ``engramlog import``: a log in a file, and back."""

import asyncio
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli import output
from engramlog.engine.cli.failures import OK
from engramlog.engine.cli.options import default_scope_options, json_option, settings_options
from engramlog.engine.cli.progress import progress

if TYPE_CHECKING:
    from engramlog.engine.archive.exporting import Exported
    from engramlog.engine.archive.importing import Imported
    from engramlog.engine.archive.lines import Filter
    from engramlog.engine.client.copying.topics import Log
    from engramlog.engine.settings import Settings

_MIN_TIMEOUT_S = 60.0
_COPIED = 64 * 1024

_EXPORT = """\b
Examples:
  engramlog export memory.jsonl.zst
  engramlog export helper.jsonl.zst --tenant acme --agent helper
  engramlog export - --json | zstd -d | head
  engramlog export --format memory-md memories --tenant acme --watch

\b
An archive is zstd-compressed JSON lines: a manifest, a line for each message of the agent topics (records, what was
derived from them in every generation, summaries) with its key, place, log time and event, and a footer with counts
and a checksum. The ends are taken at the start, so that it may be made while agents talk. It is written under another
name, and renamed when it is whole; '-' is standard output (what --json says goes to standard error then).

\b
With --tenant or --agent it holds theirs alone, with the erasures that concern them: one of a whole tenant becomes, for
a single agent, one of that agent. Watermarks are always in it. What is no event of ours is there as base64, counted,
and left out by the import. An archive holds everything that its log holds, also what was removed or erased but not yet
compacted away: treat it as the log itself.

\b
--format memory-md writes what agents remember for people: DIR/tenant/agent/MEMORY.md, with core memories, facts,
preferences, decisions and active summaries, newest first; every user's, unless --user names one (then that user's and
what is shared). What was invalidated, removed, cleared or erased is not in it. --watch keeps the files fresh until
Ctrl-C.
"""

_IMPORT = """\b
Examples:
  engramlog import memory.jsonl.zst --dry-run
  engramlog import memory.jsonl.zst
  engramlog import chat.json --tenant acme --agent helper --session s1 --user ada
  engramlog import MEMORY.md notes.md --tenant acme --agent helper --format memory-md

\b
An archive is read twice: first its checksum, counts and every event are checked, and that nothing newer of the same
agents lies where it is to go; then it is copied into the agent topics of the settings, which exist, with any number of
partitions: in order, with log times and keys, and with what events say in offsets translated. So no model is asked
again. Importing again changes nothing; interrupted, the same command goes on. Stop the consumers of that log
meanwhile: until the archive is whole, its topics keep the log times that they are given, and none starts on them.
The imported log has positions of its own: compare it with a digest that is free of positions.

\b
OpenAI-style messages, CAMEL's JSON memory and MEMORY.md become records of --tenant and --agent, with the origin
'import' and ids made of their content and place (or their own, where they have some), so that importing them again
changes nothing. A conversation without --session gets the file's name as its session.
"""


@click.command(name="export", epilog=_EXPORT)
@click.argument("path", type=click.Path(allow_dash=True))
@click.option("--format", "form", type=click.Choice(["archive", "memory-md"]), default="archive", show_default=True)
@click.option("--tenant", metavar="ID", help="This tenant only.")
@click.option("--agent", metavar="ID", help="This agent only.")
@click.option("--generation", type=click.IntRange(min=1), metavar="N", help="Derivations of this generation only.")
@click.option("--user", metavar="ID", help="For memory-md: this user's memories and those that are shared.")
@click.option("--watch", is_flag=True, help="For memory-md: keep the files fresh until Ctrl-C.")
@settings_options()
@json_option
def export_(
    *,
    settings: "Settings",
    path: str,
    form: str,
    tenant: str | None,
    agent: str | None,
    generation: int | None,
    user: str | None,
    watch: bool,
    as_json: bool,
) -> int:
    """Write the log to an archive PATH, or what agents remember to MEMORY.md files below it."""
    from engramlog.engine.archive.lines import Filter

    if form == "memory-md":
        from engramlog.engine.cli.archiving_memories import write_memories

        if generation is not None or path == "-":
            raise click.UsageError("--format memory-md writes files below a folder, and knows no generations")
        whose = Filter(tenant=tenant, agent=agent)
        return write_memories(settings, Path(path), whose, user=user, watch=watch, as_json=as_json)
    if user is not None or watch:
        raise click.UsageError("--user and --watch go with --format memory-md")
    if path == "-" and sys.stdout.isatty():
        raise click.UsageError("an archive is no text: redirect standard output, or name a file")
    wanted = Filter(tenant=tenant, agent=agent, generation=generation)
    done = asyncio.run(_export(settings, path, wanted))
    _tell_exported(done, path, as_json=as_json)
    return OK


async def _export(settings: "Settings", path: str, wanted: "Filter") -> "Exported":
    from engramlog.engine.archive.exporting import chosen, export
    from engramlog.engine.archive.files import written
    from engramlog.engine.client.copying.topics import log_of

    log = chosen(await log_of(settings.kafka(), settings.topics()), wanted.generation)
    with progress("exporting", await log.size()) as step, written(path) as out:
        return await export(log, out, wanted=wanted, created=datetime.now(UTC), on_read=step)


def _tell_exported(done: "Exported", path: str, *, as_json: bool) -> None:
    footer = done.footer
    if as_json:
        said = {"path": path, **footer.model_dump(), "manifest": done.manifest.model_dump(mode="json")}
        if path == "-":
            import json

            output.say(json.dumps(said))
        else:
            output.print_json(said)
        return
    rows = [(topic, f"{count:,}") for topic, count in footer.messages.items()]
    title = f"Exported {output.count(sum(footer.messages.values()), 'message')} to {path}"
    if footer.undecodable:
        title += f", {footer.undecodable:,} of them no events"
    if path == "-":
        output.say(title)
    else:
        output.print_table(title, ("topic", "messages"), rows, right=("messages",))


@click.command(name="import", epilog=_IMPORT)
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", "archive", "openai", "camel", "memory-md"]),
    default="auto",
    show_default=True,
    help="What the files hold.",
)
@click.option("--dry-run", is_flag=True, help="Check and count; write nothing.")
@default_scope_options
@settings_options()
@json_option
def import_(
    *,
    settings: "Settings",
    paths: tuple[str, ...],
    form: str,
    dry_run: bool,
    tenant: str | None,
    agent: str | None,
    session: str | None,
    user: str | None,
    as_json: bool,
) -> int:
    """Bring archives, message files or MEMORY.md files into the log of the settings."""
    from engramlog.engine.cli.archiving_files import Into, form_of, import_file

    for path in paths:
        with ExitStack() as stack:
            file, name = _as_file(path, stack)
            found = form_of(file) if form == "auto" else form
            if found is None:
                raise click.UsageError(f"{name}: unknown form: name it with --format archive|openai|camel|memory-md")
            if found == "archive":
                _import_archive(settings, file, name, dry_run=dry_run, as_json=as_json)
                continue
            into = Into(tenant, agent, session, user)
            told = import_file(settings, file, name, found, into, dry_run=dry_run)
            if as_json:
                output.print_json(told)
            else:
                left = {k: v for k, v in told.items() if k not in {"file", "format", "dry_run"}}
                output.print_table(f"{name} ({found})", ("what", "value"), list(left.items()))
    return OK


def _as_file(path: str, stack: ExitStack) -> tuple[Path, str]:
    """A file that can be read twice: standard input is kept in a temporary one."""
    if path != "-":
        return Path(path), Path(path).name
    import tempfile

    kept = stack.enter_context(tempfile.NamedTemporaryFile(prefix="engramlog-import-"))  # noqa: SIM115 - the stack does
    while block := sys.stdin.buffer.read(_COPIED):
        kept.write(block)
    kept.flush()
    return Path(kept.name), "standard input"


def _import_archive(settings: "Settings", path: Path, name: str, *, dry_run: bool, as_json: bool) -> None:
    done = asyncio.run(_copy_archive(settings, str(path), dry_run=dry_run))
    topics = {
        role: {
            "copied": copied.copied,
            "already_there": copied.already_there,
            "left_out": dict(copied.bad),
            "superseded": copied.superseded,
            "translated": copied.translated,
            "watermarks": copied.watermarks,
        }
        for role, copied in done.topics.items()
    }
    if as_json:
        manifest = done.manifest.model_dump(mode="json")
        output.print_json(
            {"file": name, "format": "archive", "dry_run": dry_run, "topics": topics, "manifest": manifest}
        )
        return
    rows: list[tuple[Any, ...]] = [
        (role, numbers["copied"], numbers["already_there"], sum(copied.bad.values()), copied.superseded)
        for (role, numbers), copied in zip(topics.items(), done.topics.values(), strict=True)
    ]
    verb = "Would import" if dry_run else "Imported"
    columns = ("topic", "copied", "already there", "left out", "superseded")
    output.print_table(f"{verb} {name}", columns, rows, right=columns[1:])


async def _copy_archive(settings: "Settings", path: str, *, dry_run: bool) -> "Imported":
    from engramlog.engine.archive.files import opened
    from engramlog.engine.archive.importing import check, import_archive

    with opened(path) as reader:
        manifest = reader.manifest
    total = sum(end - begin for topic in manifest.topics for begin, end in zip(topic.begin, topic.end, strict=True))
    roles = [topic.role for topic in manifest.topics]
    log = await _target(settings, roles, dry_run=dry_run)
    with progress("checking", total) as step:
        checked = await check(path, log, on_read=step)
    if dry_run:
        return checked
    with progress("importing", total) as step:
        timeout_s = max(settings.timeout_s, _MIN_TIMEOUT_S)
        return await import_archive(path, log, timeout_s=timeout_s, on_read=step)


async def _target(settings: "Settings", roles: list[str], *, dry_run: bool) -> "Log":
    """The log of the settings; its topics exist, except those of further generations, which are made."""
    from dataclasses import replace

    from engramlog.engine.client.copying.topics import create_like, log_of

    kafka = settings.kafka()
    log = await log_of(kafka, settings.topics(), unfinished=True)
    there = {one.generation for one in log.all}
    wanted = {int(role.partition(".g")[2]) for role in roles if role.startswith("derived.g")}
    if dry_run or wanted <= there:
        return log
    topics = replace(log.topics, partitions=log.topics.partitions)
    await create_like(
        kafka, topics, sorted(wanted), replication=settings.replication, in_sync=settings.min_insync_replicas
    )
    return await log_of(kafka, settings.topics(), unfinished=True)
