r"""MEMORY.md: what an agent remembers, as Markdown for people; written, and read again.

A file that we wrote names its agent in a comment at the top, and each memory in one behind its bullet, so that it can
be read again without loss and without doubling anything::

    # Memory of helper
    <!-- engramlog memory-md 1 {"tenant":"acme","agent":"helper"} -->

    ## Preferences
    - [2026-03-01] I like my tea green. *(confidence 0.8)* <!-- engramlog {"id":"…","kind":"preference",…} -->

A file that somebody wrote is read like this: each bullet is a fact (or what its heading says: Preferences, Decisions,
Rules, Core memories, in English or Chinese), lines that are indented below it go on with it, its innermost heading is
its topic, and all its headings are its tags. ``[2026-03-01]`` or ``2026-03-01:`` in front of it is its date. Its id is
made of its headings and its text. What is neither heading nor bullet is counted, not read; so is what stands in a
fenced block.

In a text, a backslash in front of ASCII punctuation is dropped, as in Markdown.
"""

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import ValidationError

from engramlog.schemas.codec import invalid
from engramlog.schemas.errors import InvalidEvent, NotUtf8, SchemaViolation
from engramlog.schemas.formats.making import make_record
from engramlog.schemas.records import MemoryRecord

Language = Literal["en", "zh"]
Section = Literal["core", "fact", "preference", "decision", "rule", "event", "summary"]

TITLES: dict[Section, tuple[str, str]] = {
    "core": ("Core memories", "核心记忆"),
    "fact": ("Facts", "事实"),
    "preference": ("Preferences", "偏好"),
    "decision": ("Decisions", "决定"),
    "rule": ("Rules", "规则"),
    "event": ("Events", "事件"),
    "summary": ("Summaries", "摘要"),
}
"""The sections in their order, in English and Chinese."""
_WORDS = {
    "title": ("Memory of", "记忆"),
    "importance": ("importance", "重要性"),
    "confidence": ("confidence", "可信度"),
}
_SESSIONS = ("Session", "会话")
_IDS = uuid.UUID("6c0d5c52-2f7e-5a0e-9a55-0d2b7c1e4a31")
_MARK = re.compile(r"<!-- engramlog memory-md 1 (\{.*\}) -->")
_COMMENT = re.compile(r" ?<!-- engramlog (\{.*\}) -->$")
_BULLET = re.compile(r"^( {0,3}|\t*| +)[-*+] +(.*)$")
_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)[ \t#]*$")
_DATE = re.compile(r"^(?:\[(\d{4}-\d\d-\d\d)\] |(\d{4}-\d\d-\d\d)[:\uff1a] ?)")
_SHARES = re.compile(r" \*\([^()]*\)\*$")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_TO_ESCAPE = re.compile(r"[\\<]")
_STARTS_BLOCK = re.compile(r"^(?=[-*+#>`~]|\d+[.)])")
_TAG_CHARACTERS = 256
_KEPT = ("tags", "topic", "role", "role_name", "name", "expires_at", "metadata", "derived_from")


@dataclass(frozen=True, kw_only=True)
class Memory:
    """A memory, as a file has it.

    Attributes:
        record: The record.
        section: Where it stands.
        session: Its session.
        user: Whose it is; None: shared.
        line: Where it stands in a file, from 1; 0: it is not from a file.
    """

    record: MemoryRecord
    section: Section
    session: str | None = None
    user: str | None = None
    line: int = 0


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Whose memories a file that we wrote holds."""

    tenant: str
    agent: str


@dataclass(slots=True)
class Read:
    """What a file holds.

    Attributes:
        owner: Whose memories they are; None: we did not write it.
        memories: The memories, in their order.
        passed_over: How many lines are neither headings nor bullets.
        bad: What cannot be a record, with its line.
    """

    owner: Owner | None = None
    memories: list[Memory] = field(default_factory=list)
    passed_over: int = 0
    bad: list[tuple[int, InvalidEvent]] = field(default_factory=list)


def write_memory_md(owner: Owner, memories: Iterable[Memory], *, language: Language = "en") -> str:
    """The file of an agent: by section, newest first; summaries by session.

    Args:
        owner: Whose.
        memories: The memories, in any order.
        language: Of the headings.
    """
    word = 0 if language == "en" else 1
    by_section: dict[Section, list[Memory]] = {section: [] for section in TITLES}
    for memory in memories:
        by_section[memory.section].append(memory)
    lines = [f"# {_WORDS['title'][word]} {_one_line(owner.agent)}", owner_mark(owner)]
    for section, titles in TITLES.items():
        if found := sorted(by_section[section], key=_newest_first):
            lines += ["", f"## {titles[word]}"]
            lines += _by_session(found, word) if section == "summary" else [_bullet(one, word) for one in found]
    return "\n".join(lines) + "\n"


def owner_mark(owner: Owner) -> str:
    """The line by which a file that we wrote is known."""
    return f"<!-- engramlog memory-md 1 {_json({'tenant': owner.tenant, 'agent': owner.agent})} -->"


def owner_of(text: str) -> Owner | None:
    """Whose memories a file that we wrote holds; None: we did not write it."""
    for line in text.split("\n", 8)[:8]:
        if (match := _MARK.fullmatch(line.strip())) and isinstance(said := _parsed(match[1]), dict):
            tenant, agent = said.get("tenant"), said.get("agent")
            if isinstance(tenant, str) and isinstance(agent, str):
                return Owner(tenant=tenant, agent=agent)
    return None


def read_memory_md(data: bytes, *, now: datetime) -> Read:
    """The memories of a file.

    Args:
        data: The file, in UTF-8.
        now: When a memory happened that has no date.

    Raises:
        NotUtf8: It is no text.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotUtf8(f"byte {error.start} is not UTF-8 ({error.reason}); save the file as UTF-8") from None
    read = Read(owner=owner_of(text))
    for item in _items(text, read):
        try:
            memory = _known(item) or _made(item, now)
        except InvalidEvent as error:
            read.bad.append((item.line, error))
        else:
            if memory is not None:
                read.memories.append(memory)
    return read


def _newest_first(memory: Memory) -> tuple[float, str]:
    return -memory.record.timestamp.timestamp(), memory.record.record_id


def _by_session(found: Sequence[Memory], word: int) -> Iterator[str]:
    sessions: dict[str | None, list[Memory]] = {}
    for memory in found:
        sessions.setdefault(memory.session, []).append(memory)
    for session, memories in sessions.items():
        if session is not None:
            yield f"### {_SESSIONS[word]} {_one_line(session)}"
        yield from (_bullet(memory, word) for memory in memories)


def _bullet(memory: Memory, word: int) -> str:
    record = memory.record
    said: dict[str, Any] = {"id": record.record_id, "section": memory.section, "kind": record.kind}
    said |= {"time": record.timestamp.isoformat(), "layer": record.layer}
    said |= {"session": memory.session, "user": memory.user}
    said |= {"importance": record.importance, "confidence": record.confidence}
    dumped = record.model_dump(mode="json", include={*_KEPT}, exclude_defaults=True)
    shown = _shown(record.content)
    if _unshown(shown) != record.content:
        said["text"] = record.content
    shares = [
        f"{_WORDS[name][word]} {value:g}"
        for name, value in (("importance", record.importance), ("confidence", record.confidence))
        if value is not None
    ]
    behind = f" *({', '.join(shares)})*" if shares else ""
    known = {name: value for name, value in (said | dumped).items() if value is not None}
    return f"- [{record.timestamp.date().isoformat()}] {shown}{behind} <!-- engramlog {_json(known)} -->"


def _shown(text: str) -> str:
    """A text as the rest of a bullet: escaped, its further lines indented."""
    lines = [_TO_ESCAPE.sub(r"\\\g<0>", line) for line in text.replace("\r", "").strip().split("\n")]
    return "\n".join([lines[0], *(f"  {_STARTS_BLOCK.sub(chr(92) * 2, line)}" for line in lines[1:])])


def _unshown(shown: str) -> str:
    first, *rest = shown.split("\n")
    lines = [first, *(line.removeprefix("  ") for line in rest)]
    return _ESCAPED.sub(r"\1", "\n".join(lines))


@dataclass(slots=True)
class _Item:
    """A bullet with the lines that belong to it."""

    line: int
    headings: tuple[str, ...]
    section: Section | None
    lines: list[str]


def _items(text: str, read: Read) -> Iterator[_Item]:
    """The bullets of a file."""
    path: list[tuple[int, str]] = []
    item: _Item | None = None
    fence = ""
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.removesuffix("\r")
        mark = line.strip()[:3]
        if fence or mark in {"```", "~~~"}:
            fence = "" if fence and mark == fence else fence or mark
            read.passed_over += 1
            continue
        heading, bullet = _HEADING.match(line), _BULLET.match(line)
        if item is not None and not heading and _goes_on(item, line, bullet):
            item.lines.append(line)
            continue
        if item is not None:
            yield item
            item = None
        if heading:
            level = len(heading[1])
            path = [*((n, name) for n, name in path if n < level), (level, _ESCAPED.sub(r"\1", heading[2]))]
        elif bullet:
            names = tuple(name for n, name in path if name and not (n == 1 and number > 1 and len(path) > 1))
            item = _Item(number, names, _section(names), [bullet[2]])
        elif line.strip() and not _MARK.fullmatch(line.strip()):
            read.passed_over += 1
    if item is not None:
        yield item


def _goes_on(item: _Item, line: str, bullet: "re.Match[str] | None") -> bool:
    """Whether a line belongs to the bullet before it: one that we wrote ends with its comment."""
    if _COMMENT.search(item.lines[-1]):
        return False
    return bullet is None and line.startswith((" ", "\t"))


def _section(headings: Sequence[str]) -> Section | None:
    for name in reversed(headings):
        for section, titles in TITLES.items():
            if name.strip().casefold() in {title.casefold() for title in titles}:
                return section
    return None


def _known(item: _Item) -> Memory | None:
    """A memory that we wrote; None: somebody else did.

    Raises:
        InvalidEvent: Its comment was damaged.
    """
    match = _COMMENT.search(item.lines[-1])
    said = _parsed(match[1]) if match else None
    if match is None or not isinstance(said, dict) or not isinstance(said.get("id"), str):
        return None
    body = "\n".join([*item.lines[:-1], item.lines[-1][: match.start()]])
    body = _DATE.sub("", body, count=1)
    if "importance" in said or "confidence" in said:
        body = _SHARES.sub("", body)
    kept = said.get("text")
    text = kept if isinstance(kept, str) and _shown(kept) == body else _unshown(body)
    section = said.get("section")
    fields: dict[str, Any] = {name: said[name] for name in (*_KEPT, "kind", "layer") if name in said}
    fields |= {name: said[name] for name in ("importance", "confidence") if name in said}
    fields |= {"record_id": said["id"], "content": text, "timestamp": said.get("time"), "origin": "import"}
    try:
        record = MemoryRecord.model_validate_json(json.dumps({"role": "user"} | fields))
    except ValidationError as error:
        raise invalid(error) from None
    return Memory(
        record=record,
        section=section if section in TITLES else "fact",
        session=_id(said.get("session")),
        user=_id(said.get("user")),
        line=item.line,
    )


def _id(value: object) -> str | None:
    """A session or user of a comment.

    Raises:
        SchemaViolation: It is none.
    """
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= 128 or not value.isprintable():  # noqa: PLR2004 - as ids of records
        raise SchemaViolation(f"{value!r} is no id")
    return value


def _made(item: _Item, now: datetime) -> Memory | None:
    """A memory that somebody wrote; None: there is no text."""
    lines = [item.lines[0], *(line.strip() for line in item.lines[1:])]
    text = "\n".join(lines).strip()
    happened = now
    if (match := _DATE.match(text)) is not None:
        try:
            happened = datetime.fromisoformat(match[1] or match[2]).replace(tzinfo=UTC)
        except ValueError:
            match = None
    text = _ESCAPED.sub(r"\1", text[match.end() :] if match else text).strip()
    if not text:
        return None
    section = item.section or "fact"
    own = [name for name in item.headings if _section([name]) is None]
    name = json.dumps([item.headings, text], ensure_ascii=False)
    fields: dict[str, Any] = {
        "record_id": str(uuid.uuid5(_IDS, name)),
        "role": "user",
        "content": text,
        "timestamp": happened,
        "kind": "event" if section == "summary" else "fact" if section == "core" else section,
        "layer": "core" if section == "core" else "long_term",
        "topic": own[-1][:_TAG_CHARACTERS] if own else None,
        "tags": tuple(dict.fromkeys(name[:_TAG_CHARACTERS] for name in own)),
        "origin": "import",
    }
    return Memory(record=make_record(fields), section=section, line=item.line)


def _one_line(text: str) -> str:
    return _TO_ESCAPE.sub(r"\\\g<0>", " ".join(text.split()))


def _json(value: Any) -> str:
    """JSON that can stand in a comment: nothing in it ends one."""
    dumped = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return (
        dumped.replace(">", "\\u003e").replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    )


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
