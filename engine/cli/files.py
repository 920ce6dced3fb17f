"""Opening a conversation file, or standard input, and finding out what form it has."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import click

from engramlog.engine.cli.conversations import (
    FORMS,
    Form,
    form_of,
    form_of_document,
    read_camel,
    read_document,
    read_lines,
)
from engramlog.engine.cli.turns import Invalid, Maker, Turn

_BOM = b"\xef\xbb\xbf"
_LINES = {".jsonl", ".ndjson"}
_STREAMED = {"jsonl": read_lines, "camel": read_camel}


@dataclass(frozen=True, slots=True)
class Source:
    """An opened conversation.

    Attributes:
        name: Its name, for messages.
        form: Its form.
        repeatable: Whether it can be read more than once; standard input, as JSON lines, cannot.
        path: The file of JSON lines that can be read again.
        lines: The JSON lines that cannot.
        document: The JSON document of any other form.
    """

    name: str
    form: Form
    repeatable: bool
    path: Path | None = None
    lines: Iterable[bytes] = ()
    document: Any = None

    def turns(self, make: Maker) -> Iterator[Turn | Invalid]:
        """Read it; JSON lines one by one."""
        if self.form not in _STREAMED:
            yield from read_document(self.document, self.form, make, name=self.name)
        elif self.path is None:
            yield from _STREAMED[self.form](self.lines, make, name=self.name)
        else:
            with self.path.open("rb") as file:
                yield from _STREAMED[self.form](_without_bom(file), make, name=self.name)


def open_source(path: str, form: Form | None = None) -> Source:
    """Open a file, ``-`` for standard input, and find its form out unless it is given.

    Raises:
        click.UsageError: Its form is unknown, or it is not of the form that was said.
        OSError: It cannot be read.
    """
    if path == "-":
        return _of_stream(sys.stdin.buffer, "standard input", form)
    file_path = Path(path)
    if not file_path.is_file():  # a pipe: it can be read once only, and stays open until it was
        return _of_stream(file_path.open("rb"), file_path.name, form)
    with file_path.open("rb") as file:
        first = file.readline().removeprefix(_BOM)
        guessed = form or form_of(first) or ("jsonl" if file_path.suffix in _LINES else None)
        if guessed in _STREAMED:
            return Source(file_path.name, guessed, repeatable=True, path=file_path)
        return _of_document(first + file.read(), file_path.name, form)


def sample() -> Source:
    """The project's own conversation."""
    path = files("engramlog.engine") / "samples" / "conversation.jsonl"
    return Source("sample", "jsonl", repeatable=False, lines=path.read_bytes().splitlines())


def _of_stream(stream: BinaryIO, name: str, form: Form | None) -> Source:
    first = stream.readline().removeprefix(_BOM)
    guessed = form or form_of(first)
    if guessed in _STREAMED:
        return Source(name, guessed, repeatable=False, lines=chain([first], stream))
    return _of_document(first + stream.read(), name, form)


def _of_document(content: bytes, name: str, form: Form | None) -> Source:
    try:
        document = json.loads(content)
    except ValueError as error:
        raise click.UsageError(
            f"{name} is neither JSON ({error}) nor JSON lines of records: name its form with --format {'|'.join(FORMS)}"
        ) from None
    found = form or form_of_document(document)
    if found is None:
        raise click.UsageError(f"{name}: unknown form of conversation: name it with --format {'|'.join(FORMS)}")
    return Source(name, found, repeatable=True, document=document)


def _without_bom(lines: Iterable[bytes]) -> Iterator[bytes]:
    for number, line in enumerate(lines):
        yield line if number else line.removeprefix(_BOM)
