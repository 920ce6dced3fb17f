"""The group ``engramlog``: what stands before every command, and how a failure ends."""

import errno
import traceback
from typing import Any

import click

from engramlog.engine.cli import failures, output
from engramlog.engine.cli.archiving import export_, import_
from engramlog.engine.cli.asking import history, record, stats
from engramlog.engine.cli.commands import (
    clean_tool_calls,
    clear,
    correct,
    end_session,
    erase,
    invalidate,
    pop,
    remove,
    summarise,
)
from engramlog.engine.cli.config import config
from engramlog.engine.cli.contexts import context, summaries
from engramlog.engine.cli.dead_letters import dead_letters
from engramlog.engine.cli.demo import demo
from engramlog.engine.cli.doctor import doctor
from engramlog.engine.cli.eval_embedders import eval_embedders
from engramlog.engine.cli.kafka import kafka
from engramlog.engine.cli.options import LEVELS, Flags
from engramlog.engine.cli.publish import publish
from engramlog.engine.cli.recall import recall, similar, subjects
from engramlog.engine.cli.rederive import rederive
from engramlog.engine.cli.replay import replay, rollback
from engramlog.engine.cli.replay_versions import drop, versions
from engramlog.engine.cli.snapshot import snapshot
from engramlog.engine.cli.status import status
from engramlog.engine.cli.tail import tail
from engramlog.engine.cli.tail_summaries import tail_summaries
from engramlog.engine.cli.topics import topics
from engramlog.engine.cli.up import run, up
from engramlog.engine.cli.verify import verify

_EPILOG = f"""\b
Examples:
  engramlog demo
  engramlog up
  engramlog publish talk.jsonl --session s1
  engramlog history --session s1 --window 20
  engramlog recall "what do they like?" --explain
  engramlog context --session s1 --budget 4000
  engramlog status

\b
Tables are for people, --json for programs: JSON lines on standard output and nothing else there. Logs, progress and
errors go to standard error. Settings are options or environment variables ENGRAMLOG_*.

{failures.EXIT_CODES}"""


class Root(click.Group):
    """A group that ends every failure with one line and an exit code that means something."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; its result is the exit code."""
        try:
            code = super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:  # whoever read us has gone: click knows
                raise
            if ctx.params.get("debug"):
                output.say("".join(traceback.format_exception(error)).rstrip())
            output.say(f"engramlog: {failures.message(error)}")
            code = failures.exit_code(error)
        ctx.exit(code if isinstance(code, int) else failures.OK)


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's form
    if not value or ctx.resilient_parsing:
        return
    from importlib.metadata import version

    click.echo(f"engramlog {version('engramlog')}")
    ctx.exit()


@click.group(
    cls=Root,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.option("--log-level", type=click.Choice(LEVELS, case_sensitive=False), help="[env: ENGRAMLOG_LOG_LEVEL]")
@click.option("--debug", is_flag=True, help="Show the traceback of a failure.")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show it.")
@click.pass_context
def cli(ctx: click.Context, *, log_level: str | None, debug: bool) -> None:
    """The event-sourced memory engine for AI agents, on Kafka: the log is the memory."""
    ctx.obj = Flags(log_level, debug)


for command in (
    demo,
    up,
    run,
    publish,
    history,
    record,
    stats,
    recall,
    similar,
    subjects,
    context,
    summaries,
    tail,
    status,
    replay,
    verify,
    rollback,
    versions,
    drop,
    snapshot,
    rederive,
    export_,
    import_,
    topics,
    kafka,
    config,
    doctor,
    eval_embedders,
    dead_letters,
    pop,
    remove,
    clean_tool_calls,
    clear,
    correct,
    invalidate,
    end_session,
    summarise,
    erase,
):
    cli.add_command(command)
tail.add_command(tail_summaries)
