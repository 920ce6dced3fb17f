"""The same memory without Kafka: records derived by rules, embedded, and laid into the embedded store at once.

It gives the single ways of searching to compare with, and ``--offline`` a quick answer. Vectors are kept in a file
between runs where ``--cache`` names one.
"""

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bench.recall_talks import Talk
from engramlog.engine import texts
from engramlog.engine.derivers.rules import understand
from engramlog.engine.embedding import embed
from engramlog.engine.history.standpoint import HERE, Standpoint
from engramlog.engine.ports import CollectionSpec, Embedder, Matrix
from engramlog.engine.scoring import rarity
from engramlog.engine.terms import term_counts, terms
from engramlog.engine.vectors.changes import Written
from engramlog.engine.vectors.edge import EdgeEngine
from engramlog.engine.vectors.selecting import selection
from engramlog.engine.vectors.vectors import Vectors
from engramlog.schemas.asking import AsOf
from engramlog.schemas.derived import Derived, RecordDerived
from engramlog.schemas.instants import now
from engramlog.schemas.recalls import RecallFilter
from engramlog.schemas.scope import Scope
from engramlog.schemas.stored import StoredRecord

TENANT = "bench"


class KeptEmbedder:
    """An embedder that remembers what it made in a file."""

    def __init__(self, inner: Embedder, path: Path | None) -> None:
        self._inner, self._path = inner, path
        self.model, self.dimension, self.chunk_chars = inner.model, inner.dimension, inner.chunk_chars
        self._known: dict[str, Matrix] = {}
        if path is not None and path.exists():
            with np.load(path) as kept:
                self._known = dict(zip(kept["keys"].tolist(), kept["rows"], strict=True))

    async def start(self) -> None:
        """Load the model."""
        await self._inner.start()
        self.dimension = self._inner.dimension

    async def stop(self) -> None:
        """Write the file."""
        await self._inner.stop()
        if self._path is not None and self._known:
            np.savez(self._path, keys=np.array(list(self._known)), rows=np.vstack(list(self._known.values())))

    async def passages(self, given: Sequence[str]) -> Matrix:
        """As the inner one."""
        keys = [self._key("p", text) for text in given]
        missing = {key: text for key, text in zip(keys, given, strict=True) if key not in self._known}
        if missing:
            rows = await self._inner.passages(list(missing.values()))
            self._known.update(zip(missing, rows, strict=True))
        return np.vstack([self._known[key] for key in keys])

    async def query(self, text: str) -> Matrix:
        """As the inner one."""
        key = self._key("q", text)
        if key not in self._known:
            self._known[key] = await self._inner.query(text)
        return self._known[key]

    def _key(self, side: str, text: str) -> str:
        return hashlib.sha256(f"{self.model}/{side}/{text}".encode()).hexdigest()


class Everything:
    """The history of talks in which nothing was ever taken back."""

    def __init__(self, talks: Sequence[Talk]) -> None:
        self._stored = {
            talk.name: {
                record.record_id: StoredRecord(record=record, session=session, offset=i, recorded=record.timestamp)
                for i, (session, record) in enumerate(talk.records())
            }
            for talk in talks
        }

    async def standpoint(self, _scope: Scope, _as_of: AsOf | None) -> Standpoint:
        """The present: nobody asks for the past."""
        return HERE

    async def cleared(self, *_: Any, **__: Any) -> tuple[()]:
        """Nothing."""
        return ()

    async def recallable(self, scope: Scope, record_ids: Sequence[str], **_: Any) -> Mapping[str, StoredRecord]:
        """All of them."""
        return {record_id: self._stored[scope.agent][record_id] for record_id in record_ids}

    async def recent(self, *_: Any, **__: Any) -> tuple[()]:
        """Nothing: questions are asked from nowhere."""
        return ()


@asynccontextmanager
async def filled(talks: Sequence[Talk], embedder: Embedder, directory: Path) -> AsyncIterator[Vectors]:
    """A store with all talks in it."""
    engine = EdgeEngine(directory)
    await engine.start(CollectionSpec("bench-recall", embedder.model, embedder.dimension))
    vectors = Vectors(engine)
    try:
        for partition, talk in enumerate(talks):
            await vectors.apply(await _derived(talk, embedder, partition))
        yield vectors
    finally:
        await engine.stop()


async def _derived(talk: Talk, embedder: Embedder, partition: int) -> list[Written]:
    found: list[Written] = []
    for session, records in talk.sessions:
        befores = ["", *(texts.previous(record) for record in records[:-1])]
        embedded = await embed(embedder, list(zip(records, befores, strict=True)))
        state = None
        for turn, (record, vectors) in enumerate(zip(records, embedded, strict=True)):
            understanding, state = understand(record, texts.content(record), state, vector=vectors.first)
            counts, length = term_counts(texts.searchable(record))
            offset = len(found)
            derived = Derived(
                record_id=record.record_id,
                offset=offset,
                turn=turn,
                role=record.role,
                role_name=record.role_name,
                timestamp=record.timestamp,
                topic=understanding.topic,
                importance=understanding.importance,
                embedding=vectors.vectors,
                terms=counts,
                length=length,
                deriver="rules.v1",
            )
            event = RecordDerived(
                source="bench",
                tenantid=TENANT,
                agentid=talk.name,
                sessionid=session,
                time=record.timestamp,
                data=derived,
            )
            found.append(Written(event, offset, partition))
    return found


async def single_ways(vectors: Vectors, embedder: Embedder, talk: Talk, text: str) -> dict[str, list[str]]:
    """Ids, best first, by BM25 alone, by meaning alone, and by reciprocal rank fusion of both with k = 60."""
    where = selection(Scope(TENANT, talk.name), RecallFilter(), now=now())
    asked = list(dict.fromkeys(terms(text)))
    known = await vectors.frequencies(TENANT, asked)
    words = {term: rarity(known.total, known.counts[term]) for term in asked}
    found = await vectors.search(where, dense=await embedder.query(text), words=words, limit=2_000)
    by_words = [c.record_id for c in sorted(found, key=lambda c: (-c.words, c.position)) if c.words > 0]
    by_meaning = [c.record_id for c in sorted(found, key=lambda c: (-(c.dense or 0.0), c.position))]
    fused: dict[str, float] = {}
    for ranking in (by_words, by_meaning):
        for place, record_id in enumerate(ranking):
            fused[record_id] = fused.get(record_id, 0.0) + 1 / (61 + place)
    return {"bm25": by_words, "dense": by_meaning, "rrf": sorted(fused, key=lambda key: -fused[key])}
