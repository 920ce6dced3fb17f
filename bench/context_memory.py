"""A memory to be asked for contexts: the running engine, or the same parts without Kafka."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from bench.common import Place, place
from engramlog.consumers.app import Consumers
from engramlog.engine.client import MemoryClient, MemoryRecord, Scope
from engramlog.engine.client.ends import LogEnds
from engramlog.engine.history import History
from engramlog.engine.history.versions import VECTORS, Version
from engramlog.schemas.contexts import ContextQuery, StoredSummary, Used

_POLL_S = 0.2


@dataclass(frozen=True)
class Given:
    """A context, as far as it is measured.

    Attributes:
        messages: Its messages.
        tokens: Their tokens, as the answer states them.
        used: What its sections hold.
    """

    messages: Sequence[dict[str, Any]]
    tokens: int
    used: Sequence[Used]


class Memory(Protocol):
    """What the benchmark needs of a memory."""

    async def say(self, scope: Scope, record: MemoryRecord) -> None:
        """A turn."""

    async def end(self, scope: Scope) -> None:
        """The scope's session is over."""

    async def take_back(self, scope: Scope, record_id: str) -> None:
        """A turn leaves window and recall."""

    async def settle(self, scopes: Sequence[Scope]) -> None:
        """Return when all that was said is stored and indexed, and summarised where that was due, in these sessions."""

    async def context(self, scope: Scope, query: ContextQuery) -> Given:
        """A context."""

    async def summaries(self, scope: Scope) -> Sequence[StoredSummary]:
        """The active summaries of a session."""


@dataclass(frozen=True)
class Engine:
    """The running engine, asked over Kafka.

    Attributes:
        where: Its broker.
        client: Who publishes and asks.
        history: Its history, to see how far it has come.
        timeout_s: Limit of each call, and of settling.
    """

    where: Place
    client: MemoryClient
    history: History
    timeout_s: float

    async def say(self, scope: Scope, record: MemoryRecord) -> None:
        """See :class:`Memory`."""
        await self.client.publish(scope, record)

    async def end(self, scope: Scope) -> None:
        """See :class:`Memory`."""
        await self.client.end_session(scope)

    async def take_back(self, scope: Scope, record_id: str) -> None:
        """See :class:`Memory`."""
        gone = await self.client.pop(scope, 1, leave="both")
        assert [stored.record.record_id for stored in gone] == [record_id], "it is the newest"

    async def settle(self, scopes: Sequence[Scope]) -> None:
        """See :class:`Memory`. Summaries are records, too: it takes until nothing new comes any more."""
        records, ends = self.where.topics.records, LogEnds(self.where.kafka, timeout_s=10)
        checkpoints = self.history.vectors(Version(VECTORS, 1, 1, "ready").checkpoints)
        until = time.monotonic() + self.timeout_s
        try:
            while time.monotonic() < until:
                written = {p: s.end for p, s in (await ends.look({records: self.where.settings.partitions})).items()}
                stored, found = await self.history.next_offsets(), await checkpoints.covered()
                passed = all(stored.get(p, 0) >= end <= found.get(p, 0) for p, end in written.items() if end)
                if passed and all([await self.history.summaries_are_made(scope) for scope in scopes]):
                    return
                await asyncio.sleep(_POLL_S)
        finally:
            await ends.stop()
        raise TimeoutError(f"not everything was indexed and summarised within {self.timeout_s:g} s")

    async def context(self, scope: Scope, query: ContextQuery) -> Given:
        """See :class:`Memory`."""
        found = await self.client.context(
            scope,
            budget_tokens=query.budget_tokens,
            recall=query.recall,
            summaries=query.summaries,
            wait_for_summary=query.wait_for_summary,
            now=query.now,
        )
        return Given(found.messages, found.tokens, found.used)

    async def summaries(self, scope: Scope) -> Sequence[StoredSummary]:
        """See :class:`Memory`."""
        return (await self.client.list_summaries(scope)).summaries


@asynccontextmanager
async def running(*, timeout_s: float) -> AsyncIterator[Engine]:
    """The engine: Kafka, all consumers, a client."""
    async with (
        place(partitions=3) as where,
        Consumers(where.settings),
        MemoryClient(where.kafka, timeout_s=timeout_s) as client,
    ):
        history = History(where.settings.effective_history_url(), topics=where.topics)
        await history.start()
        try:
            yield Engine(where, client, history, timeout_s)
        finally:
            await history.stop()
