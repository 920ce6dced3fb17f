"""The client: what an agent uses to remember and to be reminded.

What each method promises is told here; how it is kept, in the modules beside it: :mod:`remembering`, :mod:`reading`,
:mod:`recalling`, :mod:`context`, :mod:`subscribing`, :mod:`loop` and :mod:`commanding`.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Literal, Self, Unpack, overload

from engramlog.engine.client import commanding, loop, reading, recalling, subscribing
from engramlog.engine.client import context as contexts
from engramlog.engine.client.asking import REMEMBERED, Asking, query_of
from engramlog.engine.client.connection import KafkaConfig
from engramlog.engine.client.context import RECALLED, Context, ContextOptions, SummaryList
from engramlog.engine.client.loop import Said
from engramlog.engine.client.publisher import Publisher
from engramlog.engine.client.reading import History
from engramlog.engine.client.recalling import Expand, Recall, TopicList
from engramlog.engine.client.remembering import Remembering
from engramlog.engine.client.subscribing import Start, SummaryStream
from engramlog.schemas import queries as q
from engramlog.schemas import records as r
from engramlog.schemas.asking import PointInTime, point_of
from engramlog.schemas.envelope import AgentEvent
from engramlog.schemas.recalls import PresetName
from engramlog.schemas.records import MemoryRecord
from engramlog.schemas.scope import Position, Scope
from engramlog.schemas.topics import Topics

_log = logging.getLogger(__name__)


class MemoryClient:
    """Publishes memory to Kafka and asks the engine for it. Safe to share between tasks of one event loop.

    ::

        async with MemoryClient("localhost:9092") as memory:
            scope = Scope(tenant="acme", agent="helper", session="s1")
            await memory.publish(scope, MemoryRecord(role="user", content="My name is Ada."))
            window = await memory.history(scope, window=20)
            found = await memory.recall(scope, "What is the user called?")

    A client reads its own writes: what it has published to an agent is in every later answer about that agent, or the
    answer says ``stale``.

    Args:
        kafka: The cluster: bootstrap servers, or a whole configuration.
        source: Who publishes: the CloudEvents ``source`` of its events.
        timeout_s: Default limit of a call, in seconds.
        projection: The name of a read-only projection to ask, memory as it was; None: memory as it is. Commands are
            refused there.
    """

    def __init__(
        self,
        kafka: KafkaConfig | str,
        *,
        source: str = "engramlog/client",
        timeout_s: float = 10.0,
        projection: str | None = None,
    ) -> None:
        self._kafka = KafkaConfig(kafka) if isinstance(kafka, str) else kafka
        self._timeout_s = timeout_s
        self._publisher = Publisher(self._kafka)
        self._ask = Asking(self._kafka, self._publisher, source=source, projection=projection)
        self._write = Remembering(self._ask, self._publisher, Topics(self._kafka.prefix).records, source)
        self._warned: OrderedDict[Scope, None] = OrderedDict()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Send what is buffered and let go of Kafka. Calls that wait for an answer are cancelled."""
        await self._ask.stop()
        await self._publisher.stop()

    @overload
    async def publish(self, scope: Scope, records: MemoryRecord, *, timeout_s: float | None = None) -> Position: ...

    @overload
    async def publish(
        self, scope: Scope, records: Iterable[MemoryRecord], *, timeout_s: float | None = None
    ) -> list[Position]: ...

    async def publish(
        self, scope: Scope, records: MemoryRecord | Iterable[MemoryRecord], *, timeout_s: float | None = None
    ) -> Position | list[Position]:
        """Remember one record, or any number in order.

        Publishing a record again (same ``record_id``) never doubles it: the last copy counts.

        Args:
            scope: Whose memory; its session and user are stamped on the records.
            records: What to remember.
            timeout_s: Limit in seconds, for all of them.

        Returns:
            Where each record lies in the log, once all in-sync replicas have it.

        Raises:
            InvalidEvent: A record is too large or not valid; nothing was published.
            DeadlineExceeded: Not all were acknowledged in time; publishing them again is safe.
            ConfigurationError: The topics do not exist.
        """
        if isinstance(records, MemoryRecord):
            return (await self.publish_events(self._write.written(scope, [records]), timeout_s=timeout_s))[0]
        return await self.publish_events(self._write.written(scope, records), timeout_s=timeout_s)

    async def publish_events(self, events: Sequence[AgentEvent], *, timeout_s: float | None = None) -> list[Position]:
        """Publish events of ``memory.records`` as they are: records or mutations.

        Args:
            events: The events; those of one agent keep their order.
            timeout_s: Limit in seconds, for all of them.

        Returns:
            Where each event lies in the log.

        Raises:
            InvalidEvent: An event is too large; nothing was published.
            DeadlineExceeded: Not all were acknowledged in time; publishing them again is safe.
            ConfigurationError: The topics do not exist.
        """
        return await self._write.publish(events, limit_s=self._limit_s(timeout_s))

    async def history(
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
        """The newest records of a session, or of all sessions of the agent in log order.

        The newest scores 1.0, each step back ``keep_rate`` times as much. A leading system or developer record is
        protected: it comes first, scores 1.0 and does not count as one of the window.

        Args:
            scope: Whose history, as which user sees it.
            window: How many records besides the protected head. None: all. 0: only the head.
            keep_rate: Decay for each step back, 0 to 1.
            as_of: Memory as it was: an :class:`AsOf`, a time (when it was recorded), or a text: such a time, an offset
                of the agent's partition, or a token of ``engramlog status --token``. None: as it is. :class:`AsOf`
                says what can be told of the past.
            summaries: Whether records that a session's summaries cover are left out. False: all are there.
            min_positions: What the answer must have seen besides this client's own writes.
            timeout_s: Limit in seconds, for each page of a long history.

        Raises:
            RequestRefused: A parameter is out of range.
            DeadlineExceeded: No answer in time.
        """
        query = query_of(
            q.HistoryQuery, scope, window=window, keep_rate=keep_rate, as_of=point_of(as_of), summaries=summaries
        )
        limit_s = self._limit_s(timeout_s)
        found = await reading.read_history(self._ask, scope, query, limit_s=limit_s, min_positions=min_positions)
        if found.truncated:
            self._warn_truncated(scope, window)
        return found

    async def record(
        self,
        scope: Scope,
        record_id: str,
        *,
        min_positions: Sequence[Position] = (),
        timeout_s: float | None = None,
    ) -> q.StoredRecord:
        """One record by its id, also when it was removed from the window.

        Raises:
            RequestRefused: With code ``not_found`` when the scope has no such record.
            DeadlineExceeded: No answer in time.
        """
        query = query_of(q.RecordQuery, scope, record_id=record_id)
        answer, _ = await self._ask(
            scope, query, q.RecordsAnswer, limit_s=self._limit_s(timeout_s), min_positions=min_positions
        )
        return answer.records[0]

    async def records(
        self,
        scope: Scope,
        record_ids: Iterable[str],
        *,
        min_positions: Sequence[Position] = (),
        timeout_s: float | None = None,
    ) -> list[q.StoredRecord]:
        """Records by their ids, also removed ones, in the order asked; ids that do not exist are left out.

        Raises:
            DeadlineExceeded: No answer in time.
        """
        limit_s = self._limit_s(timeout_s)
        return await reading.read_records(self._ask, scope, record_ids, limit_s=limit_s, min_positions=min_positions)

    async def stats(
        self, scope: Scope, *, min_positions: Sequence[Position] = (), timeout_s: float | None = None
    ) -> q.StatsAnswer:
        """How much is remembered in the scope.

        Raises:
            DeadlineExceeded: No answer in time.
        """
        answer, _ = await self._ask(
            scope,
            query_of(q.StatsQuery, scope),
            q.StatsAnswer,
            limit_s=self._limit_s(timeout_s),
            min_positions=min_positions,
        )
        return answer

    # -- recall: by meaning, weight and time ---------------------------------------------------------------------------

    async def recall(
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
        """The memories that matter for a text: by meaning, words, importance and time, each with its score explained.

        They come from all sessions of the agent: the scope's session is the one that asks (its talk says what "it" and
        "there" mean); ``filter=RecallFilter(sessions=("s1",))`` restricts. The weights and limits that are None are
        those of the preset. Records are found once ``derive`` and ``index`` have passed them: what this client
        published before is waited for until shortly before the deadline, then the answer says ``seen.stale``.

        Args:
            scope: Whose memory, as which user sees it.
            text: What to look for, 1 to 20,000 characters. Of a long one the beginning and the end are compared in
                meaning, and all words are looked for.
            preset: Weights and limits for a kind of use.
            limit: At most so many, up to 200.
            candidates: How many memories each way of searching contributes before they are scored.
            semantic: Weight of relevance, 0 to 100; likewise the next two.
            importance: Weight of importance.
            recency: Weight of recency.
            half_life_days: Age in days at which recency has halved.
            diversity: 0 (the default): the best ones; towards 1: rather different ones.
            expand: Whether pronouns and ellipsis are resolved from the session's talk: by rules, a language model, or
                not at all.
            now: The instant that ages and expiry are measured from. None: when it is answered, or that of ``as_of``.
            filter: Which memories are looked at. None: all but system and developer records, what is no longer true
                and what has expired.
            as_of: Memory as it was: an :class:`AsOf`, a time (when it was recorded), or a text: such a time, an offset
                of the agent's partition, or a token of ``engramlog status --token``. None: as it is. :class:`AsOf`
                says what can be told of the past.
            min_positions: What the answer must have seen besides this client's own writes.
            timeout_s: Limit in seconds.

        Raises:
            RequestRefused: A parameter is out of range, or the preset wants more than was given (a user, a filter).
            StoreUnavailable: The engine cannot answer now.
            DeadlineExceeded: No answer in time.
        """
        query = query_of(
            q.RecallQuery,
            scope,
            text=text,
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
            filter=filter or q.RecallFilter(),
            as_of=point_of(as_of),
        )
        limit_s = self._limit_s(timeout_s)
        return await recalling.recall(self._ask, scope, query, limit_s=limit_s, min_positions=min_positions)

    async def similar(
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
        """The memories nearest in meaning, scored by cosine similarity alone. See :meth:`recall`.

        Args:
            scope: Whose memory, as which user sees it.
            text: What to look for.
            limit: At most so many, up to 200.
            min_similarity: Least cosine similarity, -1 to 1. None: any.
            filter: Which memories are looked at.
            as_of: Memory as it was: an :class:`AsOf`, a time (when it was recorded), or a text: such a time, an offset
                of the agent's partition, or a token of ``engramlog status --token``. None: as it is. :class:`AsOf`
                says what can be told of the past.
            min_positions: What the answer must have seen besides this client's own writes.
            timeout_s: Limit in seconds.
        """
        query = query_of(
            q.SimilarQuery,
            scope,
            text=text,
            limit=limit,
            min_similarity=min_similarity,
            filter=filter or q.RecallFilter(),
            as_of=point_of(as_of),
        )
        limit_s = self._limit_s(timeout_s)
        return await recalling.recall(self._ask, scope, query, limit_s=limit_s, min_positions=min_positions)

    async def topics(
        self,
        scope: Scope,
        *,
        limit: int = 100,
        as_of: PointInTime | None = None,
        min_positions: Sequence[Position] = (),
        timeout_s: float | None = None,
    ) -> TopicList:
        """What was talked about in the scope, latest first, with counts and times. See :meth:`recall`.

        Args:
            scope: Whose memory: one session's topics, or those of all the agent's sessions.
            limit: At most so many, up to 1,000.
            as_of: Memory as it was, see :meth:`recall`; None: as it is.
            min_positions: What the answer must have seen besides this client's own writes.
            timeout_s: Limit in seconds.
        """
        query, limit_s = query_of(q.TopicsQuery, scope, limit=limit, as_of=point_of(as_of)), self._limit_s(timeout_s)
        return await recalling.list_topics(self._ask, scope, query, limit_s=limit_s, min_positions=min_positions)

    # -- what a model is given: contexts, summaries, turns -------------------------------------------------------------

    async def context(
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
        """What an agent's model is to be given, as OpenAI messages that never have more tokens than the budget.

        In this order: the leading system message, core memories, the session's summaries, what is recalled for the
        newest user message from all of the agent's sessions, and the recent turns. The newest user message is always
        in; tool calls stand with their results.

        Args:
            scope: Whose talk; without a session the agent's whole history.
            budget_tokens: Never more tokens than this, message overhead included.
            model: The model that it is for: its encoding counts. None: ``o200k_base``.
            window: How many recent records at most. None: as many as fit.
            recall: What is recalled: preset, limit, share of the budget, filter. None: nothing.
            current_topic: What memories are recalled for. None: the newest user message.
            summaries: Whether summaries stand for what they cover. False: the records themselves, as far as they fit.
            as_messages: Each recalled memory as a message of its own, instead of one labelled block.
            wait_for_summary: Whether to wait, within the limit, for summaries that are due.
            keep_rate: Score of a recent record divided by that of the next newer one, 0 to 1.
            now: The instant that ages are measured from: the same request at the same positions gives the same bytes.
            as_of: All of memory as it was, see :meth:`recall`; ages are measured from then, unless ``now`` is given.
            min_positions: What the answer must have seen besides this client's own writes.
            timeout_s: Limit in seconds.

        Raises:
            RequestRefused: A parameter is out of range, or not even what is always in fits: the message says how many
                tokens that takes.
            StoreUnavailable: The engine cannot answer now.
            DeadlineExceeded: No answer in time.
        """
        query = query_of(
            q.ContextQuery,
            scope,
            budget_tokens=budget_tokens,
            model=model,
            window=window,
            recall=contexts.NOTHING if recall is None else recall,
            current_topic=current_topic,
            summaries=summaries,
            as_messages=as_messages,
            wait_for_summary=wait_for_summary,
            keep_rate=keep_rate,
            now=now,
            as_of=point_of(as_of),
        )
        limit_s = self._limit_s(timeout_s)
        return await contexts.read_context(self._ask, scope, query, limit_s=limit_s, min_positions=min_positions)

    async def before_turn(
        self,
        scope: Scope,
        user_message: Said,
        *,
        budget_tokens: int = 4_000,
        timeout_s: float | None = None,
        **options: Unpack[ContextOptions],
    ) -> Context:
        """Remember what the user says, and get the context that ends with it: what the model is to be given.

        Args:
            scope: Whose talk.
            user_message: A text, an OpenAI message, or a record: with an id of its own it can be given again after a
                failure, and is remembered once.
            budget_tokens: See :meth:`context`.
            timeout_s: Limit in seconds, for each of the two.
            options: What :meth:`context` takes besides.

        Raises:
            StoreUnavailable: The message is in the log, but the history has not come as far in time.
            RequestRefused: See :meth:`context`.
            InvalidEvent: The message is too large or not valid; nothing was published.
            DeadlineExceeded: Not done in time.
        """
        positions = await self.publish(scope, loop.records_of(user_message, role="user"), timeout_s=timeout_s)
        found = await self.context(scope, budget_tokens=budget_tokens, timeout_s=timeout_s, **options)
        return loop.holding(found, positions[-1])

    async def after_turn(
        self, scope: Scope, reply: Said | Sequence[Said], *, timeout_s: float | None = None
    ) -> Position:
        """Remember what the agent did and said in its turn, in order.

        Args:
            scope: Whose talk.
            reply: A text, an OpenAI message or a record; or several: the assistant's message with its tool calls, the
                tools' results, the answer.
            timeout_s: Limit in seconds.

        Returns:
            Where the last of it lies.

        Raises:
            InvalidEvent: Something of it is too large, or no message; nothing was published.
            DeadlineExceeded: Not all was acknowledged in time.
        """
        return (await self.publish(scope, loop.records_of(reply, role="assistant"), timeout_s=timeout_s))[-1]

    async def list_summaries(
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
        """The summaries of a session, or of all the agent's sessions, oldest first.

        Args:
            scope: Whose, as which user sees it.
            level: Only this level: 1 for summaries of records, more for summaries of summaries.
            active: Only those that stand in the window now. False: also those that were replaced.
            limit: At most so many, the newest ones, up to 1,000.
            as_of: Those that were due then, active as they were then, see :meth:`recall`; not of the axis ``happened``.
            min_positions: What the answer must have seen besides this client's own writes.
            timeout_s: Limit in seconds.
        """
        query = query_of(q.SummariesQuery, scope, level=level, active=active, limit=limit, as_of=point_of(as_of))
        limit_s = self._limit_s(timeout_s)
        return await contexts.list_summaries(self._ask, scope, query, limit_s=limit_s, min_positions=min_positions)

    def summaries(
        self,
        *,
        tenant: str,
        agent: str | None = None,
        user: str | None = None,
        session: str | None = None,
        level: int | None = None,
        active_only: bool = True,
        failures: bool = False,
        group: str | None = None,
        start: Start = "now",
    ) -> SummaryStream:
        """Subscribe to summaries: each as it is made, or as it was made before. Reads Kafka itself, not the engine.

        ::

            async with memory.summaries(tenant="acme", agent="helper", group="mailer") as summaries:
                async for received in summaries:
                    await send(received.summary.text)

        Delivery is at least once, in order for each agent. ``group`` makes it durable: its place is committed once the
        next summary was asked for, and whoever comes back under that name goes on there; members of a group share the
        agents among them. Without a group nothing is remembered: begin behind ``received.position``. Nothing is fetched
        while the caller works. It reads what Kafka's ACLs let it: a user is a filter here, no restriction.

        Args:
            tenant: Only this tenant's.
            agent: Only this agent's; likewise the next two. None: any.
            user: Only this user's. None: everybody's, and the shared ones.
            session: Only this session's.
            level: Only of this level.
            active_only: Of what lies in the log when the subscription begins, or comes back, only what nothing in it
                replaces. What is made from then on is passed as it comes: its ``replaces`` says what it takes the place
                of. False: everything.
            failures: Also ``summary.failed``: one for each summary that could not be made, the last failure counting.
            group: The name of a durable subscription. Away for longer than the broker keeps offsets of groups (7 days
                by default) it begins anew.
            start: Where to begin; for a group: when it is new. The end as it is now, the beginning, an instant of the
                log's clock, or behind positions.

        Returns:
            An async iterator that goes on until it is closed. Closing the client does not close it.

        Raises:
            RequestRefused: Of ``group`` or ``start``: they cannot be.
        """
        topic = Topics(self._kafka.prefix).summaries
        return SummaryStream(
            self._kafka,
            topic,
            lambda: self._ask.partitions_of(topic),
            subscribing.Wanted(tenant, agent, user, session, level, active_only, failures),
            group=subscribing.group_id(self._kafka.prefix, group),
            start=start,
        )

    # -- commands: one effect and one answer for each request id ------------------------------------------------------

    async def pop(
        self,
        scope: Scope,
        count: int,
        *,
        leave: r.MarkScope = "window",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> list[q.StoredRecord]:
        """Take the newest records out of the window; never the protected head.

        Like every command it has one effect and one answer for a ``request_id``, however often it is asked: after a
        :class:`DeadlineExceeded` or :class:`StoreUnavailable` ask again under the same id. Ids are made up by default.

        Args:
            scope: Whose window.
            count: How many, 0 to 10,000.
            leave: What they leave: the window (they can still be recalled), recall, or both.
            request_id: The identity of the command.
            timeout_s: Limit in seconds.

        Returns:
            The records that were taken out, oldest first.

        Raises:
            RequestRefused: ``count`` is negative.
            DeadlineExceeded: No answer in time.
            StoreUnavailable: The engine could not do it now.
        """
        return await self._taken(scope, query_of(q.PopCommand, scope, count=count, leave=leave), request_id, timeout_s)

    async def remove(
        self,
        scope: Scope,
        indices: Iterable[int],
        *,
        leave: r.MarkScope = "window",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> list[q.StoredRecord]:
        """Take records out of the window by their indices in it, from 0 for the oldest.

        Duplicates count once; the protected head and indices outside of the window are passed over. See :meth:`pop`.
        """
        query = query_of(q.RemoveCommand, scope, indices=tuple(indices), leave=leave)
        return await self._taken(scope, query, request_id, timeout_s)

    async def clean_tool_calls(
        self,
        scope: Scope,
        *,
        leave: r.MarkScope = "window",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> list[q.StoredRecord]:
        """Take tool and function records, and assistant records with tool calls, out of the window. See :meth:`pop`."""
        query = query_of(q.CleanToolCallsCommand, scope, leave=leave)
        return await self._taken(scope, query, request_id, timeout_s)

    async def clear(
        self,
        scope: Scope,
        *,
        leave: r.MarkScope = "window",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Position:
        """Begin a new epoch: what was recorded so far leaves the view; ``as_of`` an earlier position still shows it.

        A scope with a user clears that user's records, one without clears the shared ones, ``users="all"`` both.

        Returns:
            Where the event lies. See :meth:`pop` for the rest.
        """
        return await self._done(scope, query_of(q.ClearCommand, scope, leave=leave), request_id, timeout_s)

    async def correct(
        self,
        scope: Scope,
        record_id: str,
        content: str,
        *,
        reason: str = "",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Position:
        """Give a record new content in its old place; ``as_of`` an earlier position still shows the old content.

        Returns:
            Where the event lies.

        Raises:
            RequestRefused: With code ``not_found`` when the scope has no such record. See :meth:`pop` for the rest.
        """
        query = query_of(q.CorrectCommand, scope, record_id=record_id, content=content, reason=reason)
        return await self._done(scope, query, request_id, timeout_s)

    async def invalidate(
        self,
        scope: Scope,
        record_id: str,
        *,
        reason: str = "",
        replaced_by: str | None = None,
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Position:
        """Say that a record is no longer true: it stays in the history and leaves recall. See :meth:`correct`."""
        query = query_of(q.InvalidateCommand, scope, record_id=record_id, reason=reason, replaced_by=replaced_by)
        return await self._done(scope, query, request_id, timeout_s)

    async def end_session(
        self, scope: Scope, *, reason: str = "", request_id: str | None = None, timeout_s: float | None = None
    ) -> Position:
        """Say that the scope's session is over. See :meth:`clear`."""
        return await self._done(scope, query_of(q.EndSessionCommand, scope, reason=reason), request_id, timeout_s)

    async def summarise(
        self, scope: Scope, *, request_id: str | None = None, timeout_s: float | None = None
    ) -> Position:
        """Have all of the scope's session summarised that may be; the summaries come when they are made.

        Never summarised are the newest user message and what follows it, system messages and core memories. See
        :meth:`clear`.
        """
        return await self._done(scope, query_of(q.SummariseCommand, scope), request_id, timeout_s)

    async def erase(
        self,
        scope: Scope,
        what: Literal["record", "session", "user", "agent"],
        *,
        record_ids: Iterable[str] = (),
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Position:
        """Erase for ever: named records, the scope's session, its user's records with this agent, or the agent.

        From the answer on, nothing shows what was recorded before the returned position; what is published after it is
        there. Of an erased record no later copy is ever taken.

        Returns:
            Where the entry of the erasure ledger lies. See :meth:`pop` for the rest.
        """
        query = query_of(q.EraseCommand, scope, what=what, record_ids=tuple(record_ids))
        return await self._done(scope, query, request_id, timeout_s)

    async def erase_tenant(
        self, tenant: str, *, user: str | None = None, request_id: str | None = None, timeout_s: float | None = None
    ) -> list[Position]:
        """Erase a whole tenant, or one user with all of the tenant's agents, for ever.

        Args:
            tenant: The tenant.
            user: Only this user's records; None: everything of the tenant.
            request_id: The identity of the command: asked again under the same id it erases nothing more.
            timeout_s: Limit in seconds.

        Returns:
            Where the entries of the erasure ledger lie, one in each partition. From now on nothing shows what was
            recorded before them.

        Raises:
            DeadlineExceeded: Not done in time; ask again under the same id.
            StoreUnavailable: The entries are in the log, but not yet applied everywhere.
        """
        limit_s = self._limit_s(timeout_s)
        return await self._write.erase_tenant(tenant, user=user, request_id=request_id, limit_s=limit_s)

    async def _taken(
        self, scope: Scope, query: q.Command, request_id: str | None, timeout_s: float | None
    ) -> list[q.StoredRecord]:
        limit_s = self._limit_s(timeout_s)
        return await commanding.taken(self._ask, scope, query, request_id=request_id, limit_s=limit_s)

    async def _done(self, scope: Scope, query: q.Command, request_id: str | None, timeout_s: float | None) -> Position:
        limit_s = self._limit_s(timeout_s)
        return await commanding.done(self._ask, scope, query, request_id=request_id, limit_s=limit_s)

    def _limit_s(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else timeout_s

    def _warn_truncated(self, scope: Scope, window: int | None) -> None:
        if scope not in self._warned:
            _log.warning("the history of %s is longer than the window of %s; said once for each scope", scope, window)
            self._warned[scope] = None
            if len(self._warned) > REMEMBERED:
                self._warned.popitem(last=False)
