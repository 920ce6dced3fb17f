"""The engine's parts over logs in memory: stored, derived, indexed, summarised and answered as the consumers do."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.context_memory import Given
from engramlog.consumers.summarise import policy_of
from engramlog.engine.client import MemoryRecord, Scope
from engramlog.engine.contexts import Contexts
from engramlog.engine.derivation import DeriveConfig
from engramlog.engine.derive import Deriving
from engramlog.engine.expansion import expanded
from engramlog.engine.history import History
from engramlog.engine.history.versions import VECTORS, Version
from engramlog.engine.index import Indexing
from engramlog.engine.log import Entry, Run
from engramlog.engine.ports import CollectionSpec, Embedder
from engramlog.engine.retrieve import Retrieval
from engramlog.engine.settings import Settings
from engramlog.engine.summarise import Summarising
from engramlog.engine.summarisers import summariser_by_name
from engramlog.engine.vectors.edge import EdgeEngine
from engramlog.engine.vectors.vectors import Vectors
from engramlog.schemas import envelope as e
from engramlog.schemas import records as r
from engramlog.schemas.codec import derived_codec, records_codec, summaries_codec
from engramlog.schemas.contexts import ContextQuery, StoredSummary, SummariesQuery
from engramlog.schemas.keys import parse_key
from engramlog.schemas.records import new_id
from engramlog.schemas.topics import Topics

AT_ONCE: Final = 64
_SOURCE: Final = "bench"
_SHORT_S: Final = 0.01
_ANSWER_S: Final = 60.0


@dataclass
class _Topic:
    """One partition of a topic, and who reads it."""

    name: str
    decode: Callable[[bytes], Any]
    entries: list[Entry] = field(default_factory=list)
    readers: list[Callable[[Run], Awaitable[Any]]] = field(default_factory=list)
    read: int = 0

    def append(self, key: bytes, value: bytes | None) -> None:
        event = None if value is None else self.decode(value)
        entry = Entry(len(self.entries), round(time.time() * 1_000), parse_key(key), event, value or b"")
        self.entries.append(entry)

    async def bring(self) -> bool:
        """Give the readers the next run; False: there is none."""
        part = tuple(self.entries[self.read : self.read + AT_ONCE])
        if not part:
            return False
        run = Run(self.name, 0, self.read, self.read + len(part), part)
        self.read = run.next
        for reader in self.readers:
            await reader(run)
        return True


class Inside:
    """A memory without Kafka, see :func:`inside`. It is the log of ``derive`` and of ``summarise``, too."""

    def __init__(self, history: History, topics: Topics) -> None:
        self._history = history
        self.records = _Topic(topics.records, records_codec().decode)
        self.derived = _Topic(topics.derived, derived_codec().decode)
        self.summarised = _Topic(topics.summaries, summaries_codec().decode)
        self.contexts = Contexts(history, None)

    async def publish(self, _partition: int, *given: Any) -> None:
        """The logs of ``derive`` (messages) and of ``summarise`` (a summary and records)."""
        if len(given) == 1:
            for key, value in given[0]:
                self.derived.append(key, value)
            return
        summary, records = given
        for record in records:
            self.records.append(record.key(), records_codec().encode(record))
        if summary is not None:
            self.summarised.append(summary.key(), summaries_codec().encode(summary))

    async def say(self, scope: Scope, record: MemoryRecord) -> None:
        """See :class:`~bench.context_memory.Memory`."""
        event = e.RecordWritten.of(
            record, source=_SOURCE, tenant=scope.tenant, agent=scope.agent, sessionid=scope.session
        )
        self.records.append(event.key(), records_codec().encode(event))

    async def end(self, scope: Scope) -> None:
        """See :class:`~bench.context_memory.Memory`."""
        self._write(e.SessionEndedEvent, scope, r.SessionEnded())

    async def take_back(self, scope: Scope, record_id: str) -> None:
        """See :class:`~bench.context_memory.Memory`."""
        self._write(e.RecordsRemovedEvent, scope, r.RecordsRemoved(ids=(record_id,), scope="both"))

    def _write(self, kind: Any, scope: Scope, data: Any) -> None:
        frame = {"tenantid": scope.tenant, "agentid": scope.agent, "sessionid": scope.session}
        event = kind(id=new_id(), source=_SOURCE, data=data, **frame)
        self.records.append(event.key(), records_codec().encode(event))

    async def settle(self, scopes: Sequence[Scope]) -> None:
        """See :class:`~bench.context_memory.Memory`."""
        while True:
            while any([await topic.bring() for topic in (self.records, self.derived, self.summarised)]):
                pass
            if all([await self._history.summaries_are_made(scope) for scope in scopes]):
                return
            await asyncio.sleep(_SHORT_S)

    async def context(self, scope: Scope, query: ContextQuery) -> Given:
        """See :class:`~bench.context_memory.Memory`."""
        until = asyncio.get_running_loop().time() + _ANSWER_S
        found = (await self.contexts.read(scope, query, until=until)).answer
        return Given(found.messages, found.tokens, found.used)

    async def summaries(self, scope: Scope) -> Sequence[StoredSummary]:
        """See :class:`~bench.context_memory.Memory`."""
        return (await self._history.read_summaries(scope, SummariesQuery())).answer.summaries


@asynccontextmanager
async def inside(embedder: Embedder) -> AsyncIterator[Inside]:
    """The parts, put together as the consumers do, with the settings' defaults."""
    topics, settings = Topics("bench", 1), Settings()
    with tempfile.TemporaryDirectory(prefix="engramlog-bench-") as name:
        history, engine = History(f"sqlite:///{name}/history.db", topics=topics), EdgeEngine(Path(name) / "vectors")
        await history.start()
        await engine.start(CollectionSpec("bench-context", embedder.model, embedder.dimension))
        vectors, memory = Vectors(engine), Inside(history, topics)
        deriving = Deriving(history, embedder, memory, DeriveConfig())
        first = Version(VECTORS, 1, 1, "ready")
        indexing = Indexing(vectors, history.vectors(first.checkpoints), records=topics.records)
        summarising = Summarising(
            history, summariser_by_name(settings.summariser), memory, policy_of(settings), records=topics.records
        )
        memory.contexts = Contexts(history, Retrieval(vectors, embedder, history, rules=expanded))
        memory.records.readers = [history.apply, deriving.apply, summarising.apply]
        memory.derived.readers = [history.apply, indexing.apply]
        memory.summarised.readers = [history.apply]
        readers = ((topics.records, (history, deriving, summarising)), (topics.derived, (history, indexing)))
        for topic, projections in (*readers, (topics.summaries, (history,))):
            for projection in projections:
                await projection.open_partition(topic, 0, cluster_id=None, topic_id=None, end_offset=0)
        try:
            yield memory
        finally:
            await summarising.stop()
            await deriving.stop()
            await indexing.stop()
            await engine.stop()
            await history.stop()
