"""Traces, where OpenTelemetry is installed and a tracer provider is set; otherwise nothing happens here.

The context travels in Kafka headers, as W3C Trace Context writes it (``traceparent``, ``tracestate``). A header that is
damaged is no context: it never harms the message that carries it. Spans name topics, partitions and kinds of requests,
never what was said, and neither tenants, agents nor users.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError:  # the base install does not bring it
    INSTALLED = False
else:
    INSTALLED = True

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

Headers = Iterable[tuple[str, bytes | None]]
Attributes = Mapping[str, str | int | float | bool]
Kind = Literal["producer", "consumer", "client", "server"]

_SCOPE = "engramlog"
_MAX_HEADER = 512
MAX_LINKS = 64
"""How many contexts one span is linked to, at most."""


class Span:
    """What is going on, for whoever watches; without a tracer it does nothing.

    Args:
        span: OpenTelemetry's span; None: there is no tracer.
    """

    def __init__(self, span: Any = None) -> None:
        self._span = span

    def set(self, **attributes: str | float | bool) -> None:
        """Say more about it; a dot in a name is written ``__``."""
        if self._span is not None:
            self._span.set_attributes({name.replace("__", "."): value for name, value in attributes.items()})

    def fail(self, kind: str) -> None:
        """It went wrong.

        Args:
            kind: An error's type or code; not its message, which may quote what was said.
        """
        if self._span is not None:
            self._span.set_status(trace.StatusCode.ERROR, kind)
            self._span.set_attribute("error.type", kind)


def enabled() -> bool:
    """Whether anybody watches."""
    return INSTALLED and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


@contextmanager
def span(name: str, *, kind: Kind, **attributes: str | float | bool) -> Iterator[Span]:
    """A span as a child of the current one; what is raised inside marks it as failed.

    Args:
        name: Its name: an operation and a topic.
        kind: Its kind.
        attributes: As :meth:`Span.set` takes them.
    """
    if not enabled():
        yield Span()
        return
    with _started(name, kind, None, (), attributes) as started:
        yield started


@contextmanager
def received(
    name: str, contexts: Sequence["SpanContext"], *, kind: Kind, child: bool = True, **attributes: str | float | bool
) -> Iterator[Span]:
    """A span about messages that came from elsewhere. It never belongs to what this process does otherwise.

    Args:
        name: Its name.
        contexts: Where they came from, as :func:`contexts_of` finds them: each is linked, up to :data:`MAX_LINKS`.
        kind: Its kind.
        child: When they all came from one context, the span is its child, so that one trace shows the whole way.
        attributes: As :meth:`Span.set` takes them.
    """
    if not enabled():
        yield Span()
        return
    context = Context()
    if child and len(contexts) == 1:
        context = trace.set_span_in_context(trace.NonRecordingSpan(contexts[0]), context)
    with _started(name, kind, context, contexts[:MAX_LINKS], attributes) as started:
        if len(contexts) > MAX_LINKS:
            started.set(engramlog__links_left_out=len(contexts) - MAX_LINKS)
        yield started


@contextmanager
def _started(
    name: str, kind: Kind, context: Any, links: Sequence["SpanContext"], attributes: Attributes
) -> Iterator[Span]:
    tracer = trace.get_tracer(_SCOPE)
    with tracer.start_as_current_span(
        name,
        context=context,
        kind=trace.SpanKind[kind.upper()],
        links=[trace.Link(link) for link in links],
        record_exception=False,
        set_status_on_exception=False,
    ) as raw:
        started = Span(raw)
        started.set(**attributes)
        try:
            yield started
        except BaseException as error:
            started.fail(type(error).__name__)
            raise


def headers() -> tuple[tuple[str, bytes], ...]:
    """The current context as Kafka headers; none when there is no span or no tracer provider."""
    if not enabled():
        return ()
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return tuple((name, value.encode()) for name, value in carrier.items())


def contexts_of(messages: Iterable[Headers]) -> list["SpanContext"]:
    """The contexts that messages came with, each once, in order; none when nobody watches.

    Args:
        messages: The headers of each message, as any producer may have written them.
    """
    if not enabled():
        return []
    found: dict[tuple[str | None, str | None], SpanContext | None] = {}
    for carried in messages:
        parent, state = _text(carried, "traceparent"), _text(carried, "tracestate")
        if parent is not None and (parent, state) not in found:
            found[parent, state] = _context(parent, state)
    return [context for context in found.values() if context is not None]


def _context(traceparent: str, tracestate: str | None) -> "SpanContext | None":
    carrier = {"traceparent": traceparent, **({"tracestate": tracestate} if tracestate else {})}
    context = TraceContextTextMapPropagator().extract(carrier, Context())
    found = trace.get_current_span(context).get_span_context()
    return found if found.is_valid else None


def _text(carried: Headers, wanted: str) -> str | None:
    for name, value in carried:
        if name == wanted and value is not None and len(value) <= _MAX_HEADER and value.isascii():
            return value.decode()
    return None
