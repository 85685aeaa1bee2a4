"""Spans with OpenTelemetry, sent over OTLP: the extra `otel`.

The library is imported when tracing is configured, and not otherwise. Spans wait in its bounded
queue and are sent by a thread of its own; those that find it full are dropped, and never wait.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from entrepot.broker.tracing import NONE, PARENT, STATE, Attributes, Span, TraceContext
from entrepot.core import limits

MISSING = "tracing needs OpenTelemetry: pip install 'entrepot[otel]'"
_EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


class OpenTelemetry:
    """Implements `Tracer`."""

    def __init__(self, exporter: Any, *, service: str, version: str, node: str) -> None:
        """Raises ImportError without the library."""
        self._trace = import_module("opentelemetry.trace")
        propagation = import_module("opentelemetry.trace.propagation.tracecontext")
        resources = import_module("opentelemetry.sdk.resources")
        sdk = import_module("opentelemetry.sdk.trace")
        export = import_module("opentelemetry.sdk.trace.export")
        names = {"service.name": service, "service.version": version, "service.instance.id": node}
        resource = resources.Resource.create(names)
        self._provider = sdk.TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(
            export.BatchSpanProcessor(exporter, max_queue_size=limits.SPANS_WAITING_MAX)
        )
        self._tracer = self._provider.get_tracer("entrepot", version)
        self._propagator = propagation.TraceContextTextMapPropagator()

    def begin(
        self,
        name: str,
        context: TraceContext,
        attributes: Attributes = NONE,
        *,
        begun_ms: int | None = None,
    ) -> Span:
        headers = {PARENT: context.parent}
        if context.state is not None:
            headers[STATE] = context.state
        parent = self._propagator.extract(headers)
        begun_ns = None if begun_ms is None else begun_ms * 1_000_000
        return self._start(name, parent, attributes, begun_ns)

    def _start(
        self, name: str, parent: Any, attributes: Attributes, begun_ns: int | None = None
    ) -> Span:
        kind = self._trace.SpanKind.INTERNAL
        span = self._tracer.start_span(
            name, parent, kind=kind, attributes=attributes, start_time=begun_ns
        )
        return _Span(self, span)

    def stop(self) -> None:
        """Send what waits. It may take seconds: call it where nobody waits."""
        self._provider.shutdown()


class _Span:
    def __init__(self, tracer: OpenTelemetry, inner: Any) -> None:
        self._tracer = tracer
        self._inner = inner

    def begin(self, name: str) -> Span:
        parent = self._tracer._trace.set_span_in_context(self._inner)
        return self._tracer._start(name, parent, NONE)

    def end(self, failure: str = "", attributes: Attributes = NONE) -> None:
        self._inner.set_attributes(attributes)
        if failure:
            trace = self._tracer._trace
            self._inner.set_status(trace.Status(trace.StatusCode.ERROR, failure))
        self._inner.end()


def over_http(endpoint: str, *, service: str, version: str, node: str) -> OpenTelemetry:
    """Return what sends spans to a collector, as `http://127.0.0.1:4318`. Raises ImportError."""
    exporter = import_module(_EXPORTER).OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces")
    return OpenTelemetry(exporter, service=service, version=version, node=node)
