"""What commands print: tables for people, JSON lines for programs; everything else goes to standard error."""

import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from engramlog.schemas.records import MemoryRecord

_SAID = 200
_MIN_WIDTH = 140
_MAX_COLUMN = 44
_MIN_LAST = 24
_PADDING = 3
_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def print_json(value: Any) -> None:
    """One JSON line on standard output."""
    utf8 = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
    click.echo(json.dumps(value, ensure_ascii=not utf8, separators=(",", ":"), default=str))
    sys.stdout.flush()


def say(text: str) -> None:
    """A line of progress or warning, on standard error."""
    click.echo(text, err=True)


def console() -> "Console":
    """Where tables go: standard output, and wide enough when that is no terminal."""
    from rich.console import Console

    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=max(found.width, _MIN_WIDTH))


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    right: Sequence[str] = (),
    last_wraps: bool = False,
) -> None:
    """A table on standard output. Values are shown as they are: nothing in them is markup.

    Args:
        title: Above the table.
        columns: Names of the columns; the last one gets what room is left.
        rows: A value for each column; None: empty.
        right: Names of columns that are aligned to the right.
        last_wraps: Whether the last column wraps instead of being cut.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    cells = [["" if value is None else one_line(str(value)) for value in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    widths = [min(width, _MAX_COLUMN) for width in widths[:-1]] + widths[-1:]
    where = console()
    room = max(_MIN_LAST, where.width - sum(widths[:-1]) - _PADDING * len(widths))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(columns):
        last = index == len(columns) - 1
        table.add_column(
            name,
            justify="right" if name in right else "left",
            width=min(widths[index], room) if last else widths[index],
            no_wrap=not (last and last_wraps),
            overflow="fold" if last and last_wraps else "ellipsis",
        )
    for row in cells:
        table.add_row(*map(Text, row))
    where.print(Text(one_line(title), style="bold"), soft_wrap=True)
    where.print(table)


def one_line(text: str, limit: int | None = None) -> str:
    """Text for one line of a terminal: white space runs are one space, nothing in it steers the terminal."""
    flat = " ".join(text.split())
    safe = "".join("\ufffd" if unicodedata.category(c) == "Cc" or c in _BIDI else c for c in flat)
    return safe if limit is None or len(safe) <= limit else safe[: limit - 1] + "…"


def count(number: int, noun: str) -> str:
    """``1 record``, ``2,000 records``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def said(record: "MemoryRecord") -> str:
    """What a record says, for one line: its text, its calls, its parts by reference."""
    pieces = [record.content] if record.content.strip() else []
    for call in record.tool_calls:
        function = call.get("function")
        known = function if isinstance(function, dict) else {}
        pieces.append(f"→ {known.get('name', '?')}({known.get('arguments', '')})")
    pieces += [f"[{part.type}]" for part in record.parts if part.type != "text"]
    return one_line(" ".join(pieces), _SAID) or "(empty)"
