"""``engramlog config``: the settings reference, made from the code, and what is in force."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli import logs, output
from engramlog.engine.cli.failures import OK
from engramlog.engine.cli.options import json_option, settings_options

if TYPE_CHECKING:
    from engramlog.engine.settings import Settings

_EPILOG = """\b
Examples:
  engramlog config
  engramlog config --set
  engramlog config --json | jq -r 'select(.set) | .variable'
  engramlog config --markdown > docs/SETTINGS.md

\b
Secrets are never shown, only whether they are set. Each secret can also come from a file (Docker and Kubernetes mount
them like that): ENGRAMLOG_SASL_PASSWORD_FILE=/run/secrets/kafka.
"""
_ATTRIBUTE = re.compile(r"^        (\w+): (.+(?:\n            .+)*)", re.MULTILINE)
_FACTORIES = {"data_dir": "`engramlog` in `$XDG_DATA_HOME`, else in `~/.local/share`"}
_INTRODUCTION = """\
# Settings

Environment variables. Made by `engramlog config --markdown` from [engine/settings.py](../engine/settings.py); do not
edit. `engramlog config` shows what is in force, secrets masked. A variable marked *secret* can also be given as a file:
the same name with `_FILE` at its end, and a path as its value.

| variable | type | default | meaning |
|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the reference.

    Attributes:
        name: Field of the settings.
        kind: What it takes, in words.
        default: What it is when nothing is set, in words.
        meaning: What it means.
        secret: Whether its value is never shown.
    """

    name: str
    kind: str
    default: str
    meaning: str
    secret: bool

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"ENGRAMLOG_{self.name.upper()}"


@click.command(epilog=_EPILOG)
@click.option("--set", "only_set", is_flag=True, help="Only what is set.")
@click.option("--markdown", is_flag=True, help="The reference as Markdown, without what is in force here.")
@settings_options(timeout=False)
@json_option
def config(*, settings: "Settings", only_set: bool, markdown: bool, as_json: bool) -> int:
    """Every setting: variable, type, default, meaning, and its value now."""
    if markdown:
        click.echo(reference(), nl=False)
        return OK
    values, given = logs.shown(settings), settings.model_fields_set
    rows = [row for row in rows_of() if row.name in given or not only_set]
    if as_json:
        for row in rows:
            output.print_json(_as_json(row, values[row.name], given=row.name in given))
        return OK
    output.print_table(
        "Settings (* is set)",
        ("variable", "value", "type", "meaning"),
        [
            (row.variable, f"{_text(values[row.name])}{' *' if row.name in given else ''}", row.kind, row.meaning)
            for row in rows
        ],
        last_wraps=True,
    )
    return OK


def reference() -> str:
    """The Markdown page."""
    lines = [
        f"| `{row.variable}` | {row.kind}{', *secret*' if row.secret else ''} | {row.default} | {row.meaning} |\n"
        for row in rows_of()
    ]
    return _INTRODUCTION + "".join(lines).replace("``", "`")


def rows_of() -> list[Setting]:
    """Every setting, in the order of the class."""
    from engramlog.engine.settings import SECRETS, Settings

    meanings = {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(Settings.__doc__ or "")}
    schema: Mapping[str, Any] = Settings.model_json_schema()["properties"]
    return [
        Setting(
            name,
            _kind(schema[name]),
            _FACTORIES.get(name, "see its meaning") if field.default_factory else _text(field.default),
            meanings.get(name, ""),
            name in SECRETS,
        )
        for name, field in Settings.model_fields.items()
    ]


def _kind(schema: Mapping[str, Any]) -> str:
    found = next((s for s in schema.get("anyOf", ()) if s.get("type") != "null"), schema)
    if choices := found.get("enum"):
        return " or ".join(map(str, choices))
    kind = {"path": "path", "password": "text"}.get(found.get("format", ""), str(found.get("type", "text")))
    kind = {"string": "text", "boolean": "true or false"}.get(kind, kind)
    limits = [
        f"{word} {found[name]:g}"
        for name, word in (("minimum", "at least"), ("exclusiveMinimum", "above"), ("maximum", "at most"))
        if name in found
    ]
    return ", ".join([kind, *limits])


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def _as_json(row: Setting, value: Any, *, given: bool) -> dict[str, Any]:
    return {
        "variable": row.variable,
        "type": row.kind,
        "default": row.default,
        "meaning": row.meaning,
        "secret": row.secret,
        "set": given,
        "value": value,
    }
