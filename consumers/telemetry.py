"""Sending traces to a collector (OTLP over HTTP), when one is named."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from importlib.metadata import version
from typing import Any

from engramlog.engine.client import tracing
from engramlog.engine.settings import Settings
from engramlog.schemas.errors import ConfigurationError

_SERVICE = "engramlog"


def middlewares() -> Sequence[Any]:
    """FastStream's spans for what is published within a trace, which pass it on; none when nobody watches.

    Only its publishing side: what is read comes in batches without headers (``wire.py``), and is told by run and by
    request instead (``observing.py``). And without the keys, which name tenants and agents.
    """
    if not tracing.enabled():
        return ()
    from faststream.kafka.opentelemetry.provider import KafkaTelemetrySettingsProvider
    from faststream.kafka.response import KafkaPublishCommand
    from faststream.opentelemetry import TelemetryMiddleware
    from opentelemetry import trace
    from opentelemetry.metrics import NoOpMeterProvider

    class Publishing(KafkaTelemetrySettingsProvider):
        def get_publish_attrs_from_cmd(self, cmd: KafkaPublishCommand) -> dict[str, Any]:
            return {k: v for k, v in super().get_publish_attrs_from_cmd(cmd).items() if not k.endswith("message.key")}

    def settings(message: Any) -> Publishing | None:
        within = trace.get_current_span().get_span_context().is_valid
        return Publishing() if message is None and within else None

    return (TelemetryMiddleware(settings_provider_factory=settings, meter_provider=NoOpMeterProvider()),)


@contextlib.asynccontextmanager
async def exporting(settings: Settings, names: Sequence[str]) -> AsyncIterator[None]:
    """Export traces while inside, if the settings name a collector; what is left is sent at the end.

    Sampling, headers, the service's name and everything else are OpenTelemetry's own variables (``OTEL_…``).

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """
    if not settings.otlp_endpoint:
        yield
        return
    provider = _provider(settings.otlp_endpoint, names)
    from opentelemetry import trace

    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        await asyncio.to_thread(provider.shutdown)


def _provider(endpoint: str, names: Sequence[str]) -> Any:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        message = f"ENGRAMLOG_OTLP_ENDPOINT names a collector, but {error.name!r} is not installed"
        raise ConfigurationError(f"{message}: pip install 'engramlog[telemetry]'") from None
    ours = {
        "service.name": _SERVICE,
        "service.version": version("engramlog"),
        "engramlog.consumers": ",".join(names),
    }
    resource = Resource.create(ours).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")))
    return provider
