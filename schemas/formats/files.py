"""Records from files: OpenAI-style message files, and the files of CAMEL's ``JsonStorage``.

Both yield while they read, so that a file in halves gives what is whole of it, and then its error. Nothing is passed
over in silence: what cannot be read is raised, or told to ``on_bad``.
"""

import itertools
import json
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from engramlog.schemas.errors import InvalidEvent, NotJson, NotUtf8, Permanent, SchemaViolation, TooDeep
from engramlog.schemas.formats.camel import from_camel
from engramlog.schemas.formats.documents import Document
from engramlog.schemas.formats.openai import from_openai
from engramlog.schemas.instants import now
from engramlog.schemas.json_values import SHALLOWER
from engramlog.schemas.records import MemoryRecord

Source = str | os.PathLike[str] | BinaryIO

_IDS = uuid.UUID("0f3a1b62-7d0c-5c4f-8a55-51f0f1a6c2d7")
_BOM = b"\xef\xbb\xbf"
_BLOCK_BYTES = 1 << 18


class BadInput(Permanent, ValueError):  # noqa: N818 - a permanent error, named as that family is
    """A place in a file that holds no record; the message says file, line and what is wrong.

    No ``InvalidEvent``, for no event was read and no dead letter comes of it; its cause is one.

    Attributes:
        file: The file's name.
        line: The line, from 1; in a JSON document the line where the message begins.
        reason: The code of what is wrong, as for an event.
    """

    def __init__(self, file: str, line: int, cause: InvalidEvent, *, within: str = "") -> None:
        super().__init__(f"{file}, line {line}: {within}{cause}")
        self.file = file
        self.line = line
        self.reason = cause.reason
        self.__cause__ = cause


OnBad = Callable[[BadInput], None]


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A record from a file.

    Attributes:
        record: The record, of the origin ``import``.
        session: Which conversation of the file it belongs to, from 0; a file of CAMEL's is one.
        line: Where it stands, from 1.
        agent: CAMEL's ``agent_id``, where the file has one.
    """

    record: MemoryRecord
    session: int
    line: int
    agent: str = ""


@dataclass(frozen=True, kw_only=True)
class _Found:
    """Messages that are imported together or not at all: one, or those of a line with a conversation."""

    line: int
    session: int
    first: int
    messages: Sequence[Any]
    whole: bool = False


def read_openai(
    source: Source, *, ids: str | None = None, timestamp: datetime | None = None, on_bad: OnBad | None = None
) -> Iterator[Imported]:
    """The messages of a file, in order.

    The file is a JSON list of messages, an object with a list ``messages`` (its other keys, such as ``tools``, are no
    memory), or JSON lines: a message each, all of one conversation, or an object with ``messages`` each, as for
    fine-tuning: every line a conversation of its own, read as a whole or not at all.

    Args:
        source: A path, or a file opened for reading bytes.
        ids: A name for what is imported. With it, ids are made of the name, the place in the file and the message:
            importing the same again, also when the file has grown or moved, doubles nothing. Another conversation
            needs another name, or messages that both begin with would be the same records. None: new ids.
        timestamp: When the messages were said, for they do not know it; by default the time of the import.
        on_bad: Is told what cannot be read, and reading goes on behind it (in a JSON document only while it is JSON).
            None: it is raised.

    Raises:
        BadInput: What cannot be read, after all before it was yielded.
        OSError: The file cannot be opened or read.
    """
    said = timestamp or now()
    with _opened(source) as file:
        tell = _Tell(_name(file), on_bad)
        for found in _messages(file, tell):
            try:
                imported = [_import(found, place, ids, said, tell.file) for place in range(len(found.messages))]
            except BadInput as bad:
                tell(bad)
            else:
                yield from imported


def read_camel(source: Source, *, on_bad: OnBad | None = None) -> Iterator[Imported]:
    """The records of a file that CAMEL's ``JsonStorage`` wrote, in order; one JSON object a line.

    The ids are CAMEL's: importing twice doubles nothing. ``to_camel`` of a record is what ``JsonStorage`` wrote, enums
    included (``{"__enum__": "RoleType.USER"}``).

    Args:
        source: A path, or a file opened for reading bytes.
        on_bad: Is told what cannot be read, and reading goes on behind it; None: it is raised.

    Raises:
        BadInput: What cannot be read, after all before it was yielded.
        OSError: The file cannot be opened or read.
    """
    with _opened(source) as file:
        tell = _Tell(_name(file), on_bad)
        for line, raw in _lines(file):
            try:
                data = _parse(raw)
                record = from_camel(data).model_copy(update={"origin": "import"})
            except InvalidEvent as error:
                tell(BadInput(tell.file, line, error))
            else:
                agent = data.get("agent_id")
                yield Imported(record=record, session=0, line=line, agent=agent if isinstance(agent, str) else "")


class _Tell:
    """Raises what is bad, or passes it on."""

    def __init__(self, file: str, on_bad: OnBad | None) -> None:
        self.file = file
        self._on_bad = on_bad

    def __call__(self, bad: BadInput) -> None:
        if self._on_bad is None:
            raise bad
        self._on_bad(bad)


def _import(found: _Found, place: int, ids: str | None, said: datetime, file: str) -> Imported:
    message, index = found.messages[place], found.first + place
    try:
        record = from_openai(message, timestamp=said)
    except InvalidEvent as error:
        raise BadInput(file, found.line, error, within=f"messages[{place}]: " if found.whole else "") from error
    made = {"origin": "import"}
    if ids is not None:
        name = json.dumps([ids, found.session, index, message], sort_keys=True)
        made["record_id"] = str(uuid.uuid5(_IDS, name))
    record = record.model_copy(update=made)
    return Imported(record=record, session=found.session, line=found.line)


def _messages(file: BinaryIO, tell: _Tell) -> Iterator[_Found]:
    line, first = _first(file)
    if _is_document(first):
        yield from _in_document(line, first, file, tell)
    elif first:
        yield from _in_lines(itertools.chain([(line, first)], _lines(file, start=line + 1)), tell)


def _first(file: BinaryIO) -> tuple[int, bytes]:
    """The first line that is not blank, numbered from 1; of a list only its beginning, for it may be the whole file."""
    line = 1
    while raw := file.readline(_BLOCK_BYTES):
        if shorn := _shorn(raw, line):
            whole = shorn.startswith(b"[") or raw.endswith(b"\n")
            return line, shorn if whole else shorn + file.readline()
        line += raw.endswith(b"\n")
    return line, b""


def _is_document(first_line: bytes) -> bool:
    """A list; or an object that goes on behind the line, whereas a line of JSON lines is whole or broken inside."""
    if first_line.startswith(b"["):
        return True
    text = first_line.decode(errors="replace").rstrip()
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return text.startswith("{") and error.pos >= len(text)
    except (ValueError, RecursionError):
        pass
    return False


def _in_document(line: int, first: bytes, file: BinaryIO, tell: _Tell) -> Iterator[_Found]:
    blank = b"\n" * (line - 1)
    document = Document(itertools.chain([blank + first], iter(lambda: file.read(_BLOCK_BYTES), b"")))
    messages = enumerate(document.messages())
    while True:
        try:
            index, (at, message) = next(messages)
        except StopIteration:
            return
        except InvalidEvent as error:
            tell(BadInput(tell.file, document.line, error))
            return
        yield _Found(line=at, session=0, first=index, messages=[message])


def _in_lines(lines: Iterator[tuple[int, bytes]], tell: _Tell) -> Iterator[_Found]:
    conversations: bool | None = None
    for index, (line, raw) in enumerate(lines):
        try:
            value = _parse(raw)
            whole = _is_conversation(value)
            if conversations not in {None, whole}:
                raise SchemaViolation("messages and conversations in one file: split it, one kind a file")
        except InvalidEvent as error:
            tell(BadInput(tell.file, line, error))
            continue
        conversations = whole
        if whole:
            yield _Found(line=line, session=index, first=0, messages=value["messages"], whole=True)
        else:
            yield _Found(line=line, session=0, first=index, messages=[value])


def _is_conversation(value: Any) -> bool:
    if isinstance(value, dict) and "role" in value:
        return False
    if isinstance(value, dict) and isinstance(value.get("messages"), list):
        return True
    raise SchemaViolation("neither a message (an object with 'role') nor a conversation (with a list 'messages')")


def _parse(raw: bytes) -> Any:
    """A line as JSON. NaN passes here; the formats refuse it, with the place."""
    try:
        return json.loads(raw.decode())
    except UnicodeDecodeError as error:
        raise NotUtf8(f"byte {error.start} of the line is not UTF-8 ({error.reason}); save the file as UTF-8") from None
    except RecursionError:
        raise TooDeep(f"nested too deep; {SHALLOWER}") from None
    except ValueError as error:
        torn = "" if raw.endswith(b"\n") else "; the file ends inside of the line"
        raise NotJson(f"the line is not JSON: {error}{torn}") from None


def _lines(file: BinaryIO, *, start: int = 1) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers."""
    for line, raw in enumerate(file, start=start):
        if shorn := _shorn(raw, line):
            yield line, shorn


def _shorn(raw: bytes, line: int) -> bytes:
    """A line without white space in front; the first of a file without its byte order mark."""
    return (raw.removeprefix(_BOM) if line == 1 else raw).lstrip(b" \t\r\n")


def _opened(source: Source) -> AbstractContextManager[BinaryIO]:
    return Path(source).open("rb") if isinstance(source, (str, os.PathLike)) else nullcontext(source)


def _name(file: BinaryIO) -> str:
    return str(getattr(file, "name", "<stream>"))
