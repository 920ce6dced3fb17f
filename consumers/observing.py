"""What a consumer tells about its work: metrics and spans. Nothing here decides anything."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiokafka import ConsumerRecord

from engramlog.consumers.metrics import Metrics
from engramlog.engine.client import tracing
from engramlog.engine.log import Run
from engramlog.schemas import queries as q

Message: TypeAlias = "ConsumerRecord[Any, Any]"


@dataclass(slots=True)
class Applying:
    """A run under way.

    Attributes:
        done: Set it when the run was applied.
    """

    done: bool = False


class Answering:
    """A request under way.

    Args:
        observer: Who watches.
        ask: What is asked.
        span: Its span.
    """

    def __init__(self, observer: "Observer", ask: str, span: tracing.Span) -> None:
        self._observer, self._ask, self._span = observer, ask, span

    def replied(self, reply: q.Reply) -> None:
        """This is the reply."""
        metrics, outcome = self._observer.metrics, "stale" if reply.stale else "answered"
        if reply.error is not None:
            outcome = "failed"
            self._span.fail(reply.error.code)
            metrics.failures.labels(self._ask, reply.error.code).inc()
        else:
            metrics.wait_seconds.labels(self._ask).observe(reply.waited_ms / 1000)
            self._span.set(
                engramlog__stale=reply.stale, engramlog__waited_ms=reply.waited_ms, engramlog__took_ms=reply.took_ms
            )
        metrics.requests.labels(self._ask, outcome).inc()


@dataclass(frozen=True, slots=True)
class Observer:
    """Watches one consumer.

    Attributes:
        consumer: Its name.
        group: Its consumer group.
        metrics: Where it is counted.
    """

    consumer: str
    group: str
    metrics: Metrics

    def dead_letter(self, reason: str) -> None:
        """A message went to the dead letters."""
        self.metrics.dead_letters.labels(self.consumer, reason).inc()

    @contextmanager
    def applying(self, run: Run, messages: Sequence[Message]) -> Iterator[Applying]:
        """A run is applied. Its span is linked to what wrote its records, and is its child if that was one."""
        contexts = tracing.contexts_of(m.headers for m in messages)
        began, applying = time.perf_counter(), Applying()
        with tracing.received(f"apply {run.topic}", contexts, kind="consumer") as span:
            span.set(
                **self._about(run.topic),
                messaging__operation__name="apply",
                messaging__destination__partition__id=str(run.partition),
                messaging__batch__message_count=len(messages),
                messaging__kafka__offset=run.expected,
                engramlog__next_offset=run.next,
                engramlog__refused=len(run.refused),
            )
            yield applying
            if not applying.done:
                span.fail("not_applied")
        if applying.done:
            self.metrics.run_records.labels(self.consumer).observe(len(run.entries))
            self.metrics.run_seconds.labels(self.consumer).observe(time.perf_counter() - began)
        else:
            self.metrics.run_failures.labels(self.consumer).inc()

    @contextmanager
    def answering(self, ask: str, request: Message) -> Iterator[Answering]:
        """A request is answered. Its span is a child of the caller's."""
        contexts = tracing.contexts_of((request.headers,))
        under_way = self.metrics.under_way.labels(ask)
        under_way.inc()
        try:
            with tracing.received(f"answer {ask}", contexts, kind="consumer") as span:
                span.set(
                    **self._about(request.topic),
                    messaging__operation__name="answer",
                    messaging__destination__partition__id=str(request.partition),
                    messaging__kafka__offset=request.offset,
                    engramlog__ask=ask,
                )
                yield Answering(self, ask, span)
        finally:
            under_way.dec()
        self.metrics.request_seconds.labels(ask).observe(max(0.0, time.time() - request.timestamp / 1000))

    @contextmanager
    def forwarding(self, message: Message) -> Iterator[None]:
        """A message is published anew. Of one that came without a trace nothing is told: there may be very many."""
        if not (contexts := tracing.contexts_of((message.headers,))):
            yield
            return
        with tracing.received(f"{self.consumer} {message.topic}", contexts, kind="consumer") as span:
            span.set(
                **self._about(message.topic),
                messaging__operation__name=self.consumer,
                messaging__destination__partition__id=str(message.partition),
                messaging__kafka__offset=message.offset,
            )
            yield

    def late(self, ask: str) -> None:
        """A request was dropped: nobody waits for it any more, or it has no reply address."""
        self.metrics.requests.labels(ask, "late").inc()

    def unreadable(self) -> None:
        """A request could not be read."""
        self.metrics.requests.labels("unknown", "unreadable").inc()

    def _about(self, topic: str) -> dict[str, str]:
        return {
            "messaging__system": "kafka",
            "messaging__operation__type": "process",
            "messaging__destination__name": topic,
            "messaging__consumer__group__name": self.group,
        }
