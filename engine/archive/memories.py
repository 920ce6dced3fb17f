"""What agents remember, as MEMORY.md files.

The log is folded into a history of its own, in a temporary SQLite file: the same code as the engine's decides what was
invalidated, removed, cleared, corrected or erased, and which summaries are active. It is thrown away afterwards.
"""

import os
import re
import secrets
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from engramlog.engine.archive.lines import Filter
from engramlog.engine.client.copying.ordering import AgentTopic
from engramlog.engine.client.copying.topics import Log
from engramlog.engine.client.reader import Decoded, Message, decode, read
from engramlog.engine.derivers.languages import language_of
from engramlog.engine.history import History
from engramlog.engine.log import Entry, Run
from engramlog.schemas.contexts import StoredSummary, SummariesQuery
from engramlog.schemas.envelope import RecordWritten, ScopeErasedEvent
from engramlog.schemas.formats.memory_md import Language, Memory, Owner, Section, owner_of, write_memory_md
from engramlog.schemas.records import MemoryRecord
from engramlog.schemas.scope import Scope
from engramlog.schemas.stored import StoredRecord

Agent = tuple[str, str]
FILE = "MEMORY.md"
_STATED: frozenset[str] = frozenset({"fact", "preference", "decision", "rule"})
_RUN = 1_000
_SUMMARIES = 200
_NAME_BYTES = 180


@dataclass(slots=True)
class Memories:
    """What agents remember, as far as the log was read.

    Attributes:
        history: A history of its own, started.
        log: The log.
        wanted: Whose memory.
        changed: The agents whose memory may have changed since they were last asked for.
    """

    history: History
    log: Log
    wanted: Filter
    changed: set[Agent] = field(default_factory=set)
    _ids: dict[Agent, set[str]] = field(default_factory=lambda: defaultdict(set))
    _next: dict[tuple[str, int], int] = field(default_factory=dict)
    _known: set[Agent] = field(default_factory=set)

    @property
    def topics(self) -> list[AgentTopic]:
        """The topics that are read: records and summaries."""
        return [one.topic for one in self.log.all if one.role != "derived"]

    async def open(self) -> None:
        """Begin at the log's beginning."""
        for topic in self.topics:
            for partition in range(topic.partitions):
                self._next[topic.name, partition] = await self.history.open_partition(
                    topic.name, partition, cluster_id=None, topic_id=None, end_offset=1 << 62
                )

    async def read(self) -> int:
        """Read on to the log's ends, as they are now; how many messages there were.

        Raises:
            BrokerUnavailable: Kafka does not answer.
        """
        count = 0
        for topic in self.topics:
            starts = {n: self._next[topic.name, n] for n in range(topic.partitions)}
            batches: dict[int, list[Message]] = defaultdict(list)
            source = read(topic.kafka, topic.name, partitions=range(topic.partitions), start=starts)
            async with aclosing(source) as messages:
                async for message in messages:
                    count += 1
                    batch = batches[message.position.partition]
                    batch.append(message)
                    if len(batch) >= _RUN:
                        await self._apply(topic, batches.pop(message.position.partition))
            for batch in batches.values():
                await self._apply(topic, batch)
        return count

    async def of(self, agent: Agent, *, user: str | None, now: datetime) -> list[Memory]:
        """What an agent remembers.

        Args:
            agent: Whose.
            user: As which user sees it, with what is shared; None: everybody's.
            now: What expired before is left out.
        """
        scope = Scope(*agent, user=user, users="all" if user is None else "own")
        core = await self.history.core(scope)
        found = await self.history.recallable(scope, sorted(self._ids[agent]))
        kept = {stored.record.record_id: stored for stored in (*core, *found.values()) if _holds(stored, now)}
        listed = await self.history.read_summaries(scope, SummariesQuery(limit=_SUMMARIES))
        memories = [memory for stored in kept.values() if (memory := _memory(stored)) is not None]
        return memories + [_of_summary(stored) for stored in listed.answer.summaries]

    def agents(self) -> set[Agent]:
        """All that have said anything, or of whom something was erased."""
        return set(self._known)

    async def _apply(self, topic: AgentTopic, messages: list[Message]) -> None:
        partition, last = messages[0].position.partition, messages[-1].position.offset
        decoded = [decode(message, topic.codec, partitions=topic.partitions) for message in messages]
        entries = tuple(_entry(one, topic) for one in decoded if one.error is None and self._is_wanted(one))
        for entry in entries:
            self._note(entry)
        begin = self._next[topic.name, partition]
        await self.history.apply(Run(topic.name, partition, begin, last + 1, entries))
        self._next[topic.name, partition] = last + 1

    def _is_wanted(self, decoded: Decoded) -> bool:
        key = decoded.key
        if key is None or self.wanted.tenant not in {None, key.tenant}:
            return False
        return self.wanted.agent is None or key.agent in {"", self.wanted.agent}

    def _note(self, entry: Entry) -> None:
        event, key = entry.event, entry.key
        if isinstance(event, ScopeErasedEvent) and not key.agent:
            self.changed |= {agent for agent in self._known if agent[0] == key.tenant}
            return
        if not key.agent:
            return
        agent = key.tenant, key.agent
        self._known.add(agent)
        self.changed.add(agent)
        if isinstance(event, RecordWritten) and _section(event.data) is not None:
            self._ids[agent].add(event.data.record_id)


def _entry(decoded: Decoded, topic: AgentTopic) -> Entry:
    message, key = decoded.message, decoded.key
    assert key is not None
    value = b"" if message.value is None else topic.codec.decode_current(message.value)[1]
    event: Any = decoded.event
    return Entry(message.position.offset, round(message.recorded.timestamp() * 1000), key, event, value)


def _section(record: MemoryRecord) -> Section | None:
    """Where a record stands; None: in no file. A summary's record does not: the summary itself does."""
    if record.layer == "core":
        return "core"
    if record.origin == "summary":
        return None
    kind: Any = record.kind
    if kind in _STATED or (kind == "event" and record.layer == "long_term"):
        section: Section = kind
        return section
    return None


def _holds(stored: StoredRecord, now: datetime) -> bool:
    expires_at = stored.record.expires_at
    return stored.invalidated is None and (expires_at is None or expires_at > now)


def _memory(stored: StoredRecord) -> Memory | None:
    section = _section(stored.record)
    if section is None:
        return None
    return Memory(record=stored.record, section=section, session=stored.session, user=stored.user)


def _of_summary(stored: StoredSummary) -> Memory:
    data = stored.summary
    record = MemoryRecord(
        record_id=data.summary_id,
        role="assistant",
        content=data.text,
        timestamp=stored.recorded,
        layer="long_term",
        kind="event",
        importance=data.importance,
        topic=data.topic,
        origin="summary",
        derived_from=(*data.covers.record_ids, *data.covers.summary_ids)[:10_000],
    )
    return Memory(record=record, section="summary", session=stored.session, user=stored.user)


def language_for(memories: Iterable[Memory]) -> Language:
    """Chinese headings where all of the content is Chinese."""
    languages = {language_of(memory.record.content) for memory in memories} - {None}
    return "zh" if languages == {"zh"} else "en"


@dataclass(slots=True)
class Folder:
    """MEMORY.md files below a folder, one an agent: ``tenant/agent/MEMORY.md``.

    Attributes:
        path: The folder.
        written: The agents whose files were written.
        removed: The files that were removed, because nothing is left of their agents.
    """

    path: Path
    written: int = 0
    removed: int = 0

    def put(self, agent: Agent, memories: list[Memory], names: dict[Agent, tuple[str, str]]) -> None:
        """Write the file of an agent: whole or not at all. Without memories there is none.

        Raises:
            OSError: It cannot be written.
        """
        file = self.path.joinpath(*names[agent], FILE)
        if not memories:
            self._remove(file)
            return
        text = write_memory_md(Owner(tenant=agent[0], agent=agent[1]), memories, language=language_for(memories))
        content = text.encode()
        if file.is_file() and file.read_bytes() == content:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{FILE}.{secrets.token_hex(4)}.part")
        try:
            part.write_bytes(content)
            os.replace(part, file)  # noqa: PTH105 - one name for another, whatever lies there
        finally:
            part.unlink(missing_ok=True)
        self.written += 1

    def forget_others(self, known: Collection[Agent], wanted: Filter) -> None:
        """Remove the files that we wrote for agents of whom the log knows nothing any more."""
        for file in self.path.glob(f"*/*/{FILE}"):
            owner = owner_of(file.read_text(encoding="utf-8", errors="replace"))
            if owner is None or (owner.tenant, owner.agent) in known:
                continue
            if wanted.tenant in {None, owner.tenant} and wanted.agent in {None, owner.agent}:
                self._remove(file)

    def _remove(self, file: Path) -> None:
        if file.is_file() and owner_of(file.read_text(encoding="utf-8", errors="replace")) is not None:
            file.unlink()
            self.removed += 1


def names_of(agents: Iterable[Agent]) -> dict[Agent, tuple[str, str]]:
    """The folders of agents. No id leads out of the folder, and no two agents share one, whatever the file system."""
    known = sorted(agents)
    folded: dict[tuple[str, str], list[Agent]] = defaultdict(list)
    plain = {agent: (folder_name(agent[0]), folder_name(agent[1])) for agent in known}
    for agent, (tenant, name) in plain.items():
        folded[tenant.casefold(), name.casefold()].append(agent)
    return {
        agent: (tenant, name)
        if len(folded[tenant.casefold(), name.casefold()]) == 1 or agent == _first(folded, tenant, name)
        else (tenant, f"{name}~{_digest('/'.join(map(repr, agent)))}")
        for agent, (tenant, name) in plain.items()
    }


def _first(folded: dict[tuple[str, str], list[Agent]], tenant: str, name: str) -> Agent:
    """Which of those that differ only in upper and lower case keeps its name: the one in lower case."""
    return max(folded[tenant.casefold(), name.casefold()])


def folder_name(identifier: str) -> str:
    """An id as the name of a folder: letters, digits, ``-`` and ``_`` as they are, all else as ``%XX``.

    A long one is cut, and ends in ``~`` and a part of its SHA-256.
    """
    pieces = re.split(r"([^\w-])", identifier)
    name = "".join(quote(piece, safe="") if index % 2 else piece for index, piece in enumerate(pieces))
    if len(name.encode()) <= _NAME_BYTES:
        return name
    return f"{name.encode()[:_NAME_BYTES].decode(errors='ignore')}~{_digest(identifier)}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
