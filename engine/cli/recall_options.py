"""Options that say which memories are looked at, and how they are weighed."""

import functools
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli.options import Function, instant, with_options

if TYPE_CHECKING:
    from engramlog.schemas.recalls import RecallFilter

PRESETS = ("assistant", "customer_service", "coding", "research", "agent_recall", "dual_source")
EXPANSIONS = ("rules", "llm", "off")
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
LAYERS = ("core", "working", "long_term")
KINDS = ("turn", "fact", "preference", "decision", "rule", "event")
ORIGINS = ("dialogue", "tool", "recall", "import", "extracted", "summary")
"""As the schemas have them, which cost too much to import for ``--help``; a test compares."""

_SHARE = click.FloatRange(0, 1)
_WEIGHT = click.FloatRange(0, 100)
_FIELDS = {
    "in_sessions": "sessions",
    "layer": "layers",
    "kind": "kinds",
    "tag": "tags",
    "all_tags": "all_tags",
    "topic": "topics",
    "role": "roles",
    "origin": "origins",
    "since": "happened_from",
    "until": "happened_until",
    "min_importance": "min_importance",
    "min_confidence": "min_confidence",
    "meta": "metadata",
    "with_invalidated": "invalidated",
    "with_expired": "expired",
}
"""Fields of :class:`RecallFilter` by the names of the options' values."""


def filter_options(function: Function) -> Function:
    """Give a command the options of :class:`RecallFilter`; it is called with ``chosen``."""

    @functools.wraps(function)
    def command(**given: Any) -> Any:
        chosen = {field: given.pop(name) for name, field in _FIELDS.items()}
        return function(chosen=make_filter(chosen), **given)

    return with_options(_filters(), command)


def weight_options(function: Function) -> Function:
    """Give a command the options of ``recall`` that weigh; it is called with them by their names in the client."""
    number = click.IntRange(min=1)
    return with_options(
        [
            click.option(
                "--preset",
                type=click.Choice(PRESETS),
                default="assistant",
                show_default=True,
                help="Weights and limits for a kind of use.",
            ),
            click.option("--limit", type=number, metavar="N", help="At most so many. [default: the preset's]"),
            click.option("--candidates", type=number, metavar="N", help="How many each way of searching contributes."),
            click.option("--semantic", type=_WEIGHT, metavar="W", help="Weight of relevance. [default: the preset's]"),
            click.option("--importance", type=_WEIGHT, metavar="W", help="Weight of importance."),
            click.option("--recency", type=_WEIGHT, metavar="W", help="Weight of recency."),
            click.option(
                "--half-life-days",
                type=click.FloatRange(min=0, min_open=True),
                metavar="DAYS",
                help="Age at which recency has halved.",
            ),
            click.option(
                "--diversity", type=_SHARE, metavar="D", help="0: the best; towards 1: rather different ones."
            ),
            click.option(
                "--expand",
                type=click.Choice(EXPANSIONS),
                default="rules",
                show_default=True,
                help="How 'it' and 'there' are resolved.",
            ),
            click.option("--now", callback=instant, metavar="TIME", help="Ages are measured from it. [default: now]"),
        ],
        function,
    )


def _filters() -> list[Callable[[Any], Any]]:
    return [
        _several("--sessions", "in_sessions", "Only memories of this session"),
        _several("--layer", "layer", "Only this layer", choices=LAYERS),
        _several("--kind", "kind", "Only this kind", choices=KINDS),
        _several("--tag", "tag", "Only with this tag", metavar="TAG"),
        _several("--all-tags", "all_tags", "Only with all of these tags", metavar="TAG"),
        _several("--topic", "topic", "Only on this topic, see 'engramlog subjects'", metavar="TOPIC"),
        _several("--role", "role", "Only of this role [default: all but system and developer]", choices=ROLES),
        _several("--origin", "origin", "Only of this origin", choices=ORIGINS),
        click.option("--since", callback=instant, metavar="TIME", help="Only what happened from then on."),
        click.option("--until", callback=instant, metavar="TIME", help="Only what happened before."),
        click.option("--min-importance", type=_SHARE, metavar="I", help="Only what is at least so important, 0 to 1."),
        click.option("--min-confidence", type=_SHARE, metavar="C", help="Only what is at least so sure, 0 to 1."),
        click.option(
            "--meta",
            multiple=True,
            callback=_metadata,
            metavar="KEY=TEXT",
            help="Only with this metadata; KEY:=3 and KEY:=true are no texts. A key again: any of its values.",
        ),
        click.option("--with-invalidated", is_flag=True, help="Also what is no longer true."),
        click.option("--with-expired", is_flag=True, help="Also what has expired."),
    ]


def make_filter(fields: dict[str, Any]) -> "RecallFilter":
    """A filter of options.

    Raises:
        click.UsageError: A value is not valid.
    """
    from pydantic import ValidationError

    from engramlog.schemas.recalls import RecallFilter

    try:
        return RecallFilter(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        names = {field: f"--{name.removeprefix('in_').replace('_', '-')} " for name, field in _FIELDS.items()}
        if not first["loc"]:
            raise click.UsageError("--until must be later than --since") from None
        raise click.UsageError(f"{names[str(first['loc'][0])]}{first['input']!r}: {first['msg']}") from None


def _several(
    name: str, parameter: str, text: str, *, choices: Sequence[str] = (), metavar: str = "ID"
) -> Callable[[Any], Any]:
    return click.option(
        name,
        parameter,
        multiple=True,
        type=click.Choice(choices) if choices else str,
        metavar=None if choices else metavar,
        help=f"{text}; may be repeated.",
    )


def _metadata(ctx: click.Context, param: click.Parameter, pairs: Sequence[str]) -> dict[str, Any]:
    """``KEY=TEXT`` and ``KEY:=JSON``, several times: what each key may be."""
    found: dict[str, list[Any]] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.removesuffix(":"):
            raise click.BadParameter(f"{pair!r}: write KEY=TEXT, KEY:=3 or KEY:=true", ctx, param)
        value: Any = _literal(ctx, param, pair, text) if key.endswith(":") else text
        found.setdefault(key.removesuffix(":"), []).append(value)
    return {key: values[0] if len(values) == 1 else tuple(values) for key, values in found.items()}


def _literal(ctx: click.Context, param: click.Parameter, pair: str, text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, (str, bool, int)):
        raise click.BadParameter(f'{pair!r}: behind := stands a whole number, true, false or a "text"', ctx, param)
    return value
