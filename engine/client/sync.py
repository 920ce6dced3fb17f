"""The synchronous facade of :class:`~engramlog.engine.client.MemoryClient`, for code without an event loop.

Thin on purpose: one thread with an event loop, in which one ``MemoryClient`` lives. What a method does, takes, returns
and raises is told at the method of the same name there. What goes on for ever, ``summaries``, is not here.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Literal, Self, Unpack, overload

from engramlog.engine.client.client import MemoryClient
from engramlog.engine.client.connection import KafkaConfig
from engramlog.engine.client.context import RECALLED, Context, ContextOptions, SummaryList
from engramlog.engine.client.loop import Said
from engramlog.engine.client.loop_thread import LoopThread, refuse_in_a_loop
from engramlog.engine.client.reading import History
from engramlog.engine.client.recalling import Expand, Recall, TopicList
from engramlog.schemas import queries as q
from engramlog.schemas import records as r
from engramlog.schemas.asking import PointInTime
from engramlog.schemas.envelope import AgentEvent
from engramlog.schemas.recalls import PresetName
from engramlog.schemas.records import MemoryRecord
from engramlog.schemas.scope import Position, Scope


class SyncMemoryClient:
    """Publishes memory to Kafka and asks the engine for it, blocking. Safe to share between threads.

    ::

        with SyncMemoryClient("localhost:9092") as memory:
            scope = Scope(tenant="acme", agent="helper", session="s1")
            memory.publish(scope, MemoryRecord(role="user", content="My name is Ada."))
            window = memory.history(scope, window=20)
            found = memory.recall(scope, "What is the user called?")

    Calls of several threads run side by side. Ctrl-C interrupts a call: what it asked for is cancelled here, but may
    have been published. Do not use it where an event loop runs: it would stand still meanwhile; every method raises
    ``RuntimeError`` there, and so it does after :meth:`close`. Make one for each process: none survives a fork.

    Args:
        kafka: The cluster: bootstrap servers, or a whole configuration.
        source: Who publishes: the CloudEvents ``source`` of its events.
        timeout_s: Default limit of a call, in seconds.
        projection: As for :class:`MemoryClient`.
    """

    def __init__(
        self,
        kafka: KafkaConfig | str,
        *,
        source: str = "engramlog/client",
        timeout_s: float = 10.0,
        projection: str | None = None,
    ) -> None:
        self._thread = LoopThread()
        self._client = MemoryClient(kafka, source=source, timeout_s=timeout_s, projection=projection)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """See :meth:`MemoryClient.close`. Calls of other threads that wait are ended by a ``RuntimeError``."""
        refuse_in_a_loop()
        self._thread.stop(self._client.close)

    @overload
    def publish(self, scope: Scope, records: MemoryRecord, *, timeout_s: float | None = None) -> Position: ...

    @overload
    def publish(
        self, scope: Scope, records: Iterable[MemoryRecord], *, timeout_s: float | None = None
    ) -> list[Position]: ...

    def publish(
        self, scope: Scope, records: MemoryRecord | Iterable[MemoryRecord], *, timeout_s: float | None = None
    ) -> Position | list[Position]:
        """See :meth:`MemoryClient.publish`."""
        if isinstance(records, MemoryRecord):
            one = records
            return self._thread.run(lambda: self._client.publish(scope, one, timeout_s=timeout_s))
        many = list(records)  # here, not in the loop: it may be a generator that takes its time
        return self._thread.run(lambda: self._client.publish(scope, many, timeout_s=timeout_s))

    def publish_events(self, events: Sequence[AgentEvent], *, timeout_s: float | None = None) -> list[Position]:
        """See :meth:`MemoryClient.publish_events`."""
        return self._thread.run(lambda: self._client.publish_events(events, timeout_s=timeout_s))

    def history(
        self,
        scope: Scope,
        *,
        window: int | None = None,
        keep_rate: float = 0.9,
        as_of: PointInTime | None = None,
        summaries: bool = True,
        min_positions: Sequence[Position] = (),
        timeout_s: float | None = None,
    ) -> History:
        """See :meth:`MemoryClient.history`."""
        return self._thread.run(
            lambda: self._client.history(
                scope,
                window=window,
                keep_rate=keep_rate,
                as_of=as_of,
                summaries=summaries,
                min_positions=min_positions,
                timeout_s=timeout_s,
            )
        )

    def record(
        self,
        scope: Scope,
        record_id: str,
        *,
        min_positions: Sequence[Position] = (),
        timeout_s: float | None = None,
    ) -> q.StoredRecord:
        """See :meth:`MemoryClient.record`."""
        return self._thread.run(
            lambda: self._client.record(scope, record_id, min_positions=min_positions, timeout_s=timeout_s)
        )

    def records(
        self,
        scope: Scope,
        record_ids: Iterable[str],
        *,
        min_positions: Sequence[Position] = (),
        timeout_s: float | None = None,
    ) -> list[q.StoredRecord]:
        """See :meth:`MemoryClient.records`."""
        ids = list(record_ids)
        return self._thread.run(
            lambda: self._client.records(scope, ids, min_positions=min_positions, timeout_s=timeout_s)
        )

    def stats(
        self, scope: Scope, *, min_positions: Sequence[Position] = (), timeout_s: float | None = None
    ) -> q.StatsAnswer:
        """See :meth:`MemoryClient.stats`."""
        return self._thread.run(lambda: self._client.stats(scope, min_positions=min_positions, timeout_s=timeout_s))

    def recall(
        self,
        scope: Scope,
        text: str,
        *,
        preset: PresetName = "assistant",
        limit: int | None = None,
        candidates: int | None = None,
        semantic: float | None = None,
        importance: float | None = None,
        recency: float | None = None,
        half_life_days: float | None = None,
        diversity: float | None = None,
        expand: Expand = "rules",
        now: datetime | None = None,
        filter: q.RecallFilter | None = None,  # noqa: A002 - what everybody calls it
        as_of: PointInTime | None = None,
        min_positions: Sequence[Position] = (),
        timeout_s: float | None = None,
    ) -> Recall:
        """See :meth:`MemoryClient.recall`."""
        return self._thread.run(
            lambda: self._client.recall(
                scope,
                text,
                preset=preset,
                limit=limit,
                candidates=candidates,
                semantic=semantic,
                importance=importance,
                recency=recency,
                half_life_days=half_life_days,
                diversity=diversity,
                expand=expand,
                now=now,
                filter=filter,
                as_of=as_of,
                min_positions=min_positions,
                timeout_s=timeout_s,
            )
        )

    def similar(
        self,
        scope: Scope,
        text: str,
        *,
        limit: int = 3,
        min_similarity: float | None = None,
        filter: q.RecallFilter | None = None,  # noqa: A002 - what everybody calls it
        as_of: PointInTime | None = None,
        min_positions: Sequence[Position] = (),
        timeout_s: float | None = None,
    ) -> Recall:
        """See :meth:`MemoryClient.similar`."""
        return self._thread.run(
            lambda: self._client.similar(
                scope,
                text,
                limit=limit,
                min_similarity=min_similarity,
                filter=filter,
                as_of=as_of,
                min_positions=min_positions,
                timeout_s=timeout_s,
            )
        )

    def topics(
        self,
        scope: Scope,
        *,
        limit: int = 100,
        as_of: PointInTime | None = None,
        min_positions: Sequence[Position] = (),
        timeout_s: float | None = None,
    ) -> TopicList:
        """See :meth:`MemoryClient.topics`."""
        return self._thread.run(
            lambda: self._client.topics(
                scope, limit=limit, as_of=as_of, min_positions=min_positions, timeout_s=timeout_s
            )
        )

    def context(
        self,
        scope: Scope,
        *,
        budget_tokens: int = 4_000,
        model: str | None = None,
        window: int | None = None,
        recall: q.RecallPart | None = RECALLED,
        current_topic: str | None = None,
        summaries: bool = True,
        as_messages: bool = False,
        wait_for_summary: bool = False,
        keep_rate: float = 0.9,
        now: datetime | None = None,
        as_of: PointInTime | None = None,
        min_positions: Sequence[Position] = (),
        timeout_s: float | None = None,
    ) -> Context:
        """See :meth:`MemoryClient.context`."""
        return self._thread.run(
            lambda: self._client.context(
                scope,
                budget_tokens=budget_tokens,
                model=model,
                window=window,
                recall=recall,
                current_topic=current_topic,
                summaries=summaries,
                as_messages=as_messages,
                wait_for_summary=wait_for_summary,
                keep_rate=keep_rate,
                now=now,
                as_of=as_of,
                min_positions=min_positions,
                timeout_s=timeout_s,
            )
        )

    def before_turn(
        self,
        scope: Scope,
        user_message: Said,
        *,
        budget_tokens: int = 4_000,
        timeout_s: float | None = None,
        **options: Unpack[ContextOptions],
    ) -> Context:
        """See :meth:`MemoryClient.before_turn`."""
        return self._thread.run(
            lambda: self._client.before_turn(
                scope, user_message, budget_tokens=budget_tokens, timeout_s=timeout_s, **options
            )
        )

    def after_turn(self, scope: Scope, reply: Said | Sequence[Said], *, timeout_s: float | None = None) -> Position:
        """See :meth:`MemoryClient.after_turn`."""
        return self._thread.run(lambda: self._client.after_turn(scope, reply, timeout_s=timeout_s))

    def list_summaries(
        self,
        scope: Scope,
        *,
        level: int | None = None,
        active: bool = True,
        limit: int = 100,
        as_of: PointInTime | None = None,
        min_positions: Sequence[Position] = (),
        timeout_s: float | None = None,
    ) -> SummaryList:
        """See :meth:`MemoryClient.list_summaries`."""
        return self._thread.run(
            lambda: self._client.list_summaries(
                scope,
                level=level,
                active=active,
                limit=limit,
                as_of=as_of,
                min_positions=min_positions,
                timeout_s=timeout_s,
            )
        )

    def pop(
        self,
        scope: Scope,
        count: int,
        *,
        leave: r.MarkScope = "window",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> list[q.StoredRecord]:
        """See :meth:`MemoryClient.pop`."""
        return self._thread.run(
            lambda: self._client.pop(scope, count, leave=leave, request_id=request_id, timeout_s=timeout_s)
        )

    def remove(
        self,
        scope: Scope,
        indices: Iterable[int],
        *,
        leave: r.MarkScope = "window",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> list[q.StoredRecord]:
        """See :meth:`MemoryClient.remove`."""
        wanted = list(indices)
        return self._thread.run(
            lambda: self._client.remove(scope, wanted, leave=leave, request_id=request_id, timeout_s=timeout_s)
        )

    def clean_tool_calls(
        self,
        scope: Scope,
        *,
        leave: r.MarkScope = "window",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> list[q.StoredRecord]:
        """See :meth:`MemoryClient.clean_tool_calls`."""
        return self._thread.run(
            lambda: self._client.clean_tool_calls(scope, leave=leave, request_id=request_id, timeout_s=timeout_s)
        )

    def clear(
        self,
        scope: Scope,
        *,
        leave: r.MarkScope = "window",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Position:
        """See :meth:`MemoryClient.clear`."""
        return self._thread.run(
            lambda: self._client.clear(scope, leave=leave, request_id=request_id, timeout_s=timeout_s)
        )

    def correct(
        self,
        scope: Scope,
        record_id: str,
        content: str,
        *,
        reason: str = "",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Position:
        """See :meth:`MemoryClient.correct`."""
        return self._thread.run(
            lambda: self._client.correct(
                scope, record_id, content, reason=reason, request_id=request_id, timeout_s=timeout_s
            )
        )

    def invalidate(
        self,
        scope: Scope,
        record_id: str,
        *,
        reason: str = "",
        replaced_by: str | None = None,
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Position:
        """See :meth:`MemoryClient.invalidate`."""
        return self._thread.run(
            lambda: self._client.invalidate(
                scope, record_id, reason=reason, replaced_by=replaced_by, request_id=request_id, timeout_s=timeout_s
            )
        )

    def end_session(
        self, scope: Scope, *, reason: str = "", request_id: str | None = None, timeout_s: float | None = None
    ) -> Position:
        """See :meth:`MemoryClient.end_session`."""
        return self._thread.run(
            lambda: self._client.end_session(scope, reason=reason, request_id=request_id, timeout_s=timeout_s)
        )

    def summarise(self, scope: Scope, *, request_id: str | None = None, timeout_s: float | None = None) -> Position:
        """See :meth:`MemoryClient.summarise`."""
        return self._thread.run(lambda: self._client.summarise(scope, request_id=request_id, timeout_s=timeout_s))

    def erase(
        self,
        scope: Scope,
        what: Literal["record", "session", "user", "agent"],
        *,
        record_ids: Iterable[str] = (),
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Position:
        """See :meth:`MemoryClient.erase`."""
        ids = list(record_ids)
        return self._thread.run(
            lambda: self._client.erase(scope, what, record_ids=ids, request_id=request_id, timeout_s=timeout_s)
        )

    def erase_tenant(
        self, tenant: str, *, user: str | None = None, request_id: str | None = None, timeout_s: float | None = None
    ) -> list[Position]:
        """See :meth:`MemoryClient.erase_tenant`."""
        return self._thread.run(
            lambda: self._client.erase_tenant(tenant, user=user, request_id=request_id, timeout_s=timeout_s)
        )
