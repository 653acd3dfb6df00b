"""One OpenTelemetry span per turn, by the conventions for generative models. Needs the extra ``upwire[otel]``.

A span says how a turn went, never what was asked or answered. Where spans go is said by OpenTelemetry's own variables, such as
``OTEL_EXPORTER_OTLP_ENDPOINT``; a collector that is away costs spans, never turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Mapping
from time import time_ns
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gateway import __version__
from gateway.log import bounded_name
from gateway.settings import MAIN
from gateway.stats import TurnRecord

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

LAST_SPANS = 2.0
"""Seconds that the last spans may take to be sent when the gateway ends."""

_NANOSECONDS = 1_000_000_000
_PORTS = {"http": 80, "https": 443}


class NoTraces(Exception):
    """The packages for traces are not installed; the text says how to get them."""


class Traces:
    """Makes a span of each turn that has ended. ``upstreams`` are base URLs by name, of which host and port are told."""

    def __init__(self, provider: TracerProvider, upstreams: Mapping[str, str]) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("upwire", __version__)
        self._servers = {name: _server(url) for name, url in upstreams.items()}

    def turn(self, record: TurnRecord) -> None:
        """Make the span of a turn that ends now; it belongs to the trace that the request named, if it did."""
        from opentelemetry.trace import SpanKind, Status, StatusCode  # noqa: PLC0415

        end = time_ns()
        model = bounded_name(record.model)
        span = self._tracer.start_span(
            f"chat {model}",
            context=_parent(record.trace),
            kind=SpanKind.CLIENT,
            start_time=end - int(record.total * _NANOSECONDS),
            attributes=self._servers.get(record.upstream, {}) | _attributes(record, model),
        )
        if record.outcome == "failed":
            span.set_status(Status(StatusCode.ERROR))
        span.end(end)

    async def close(self) -> None:
        """Send what waits, for a short while."""
        loop = asyncio.get_running_loop()
        sent = asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(sent.set)

        # A thread that nobody waits for: a collector that hangs must not keep the process.
        threading.Thread(target=shut_down, daemon=True).start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_SPANS):
                await sent.wait()


def open_traces(
    upstream: str, processor: SpanProcessor | None = None, *, further: Mapping[str, str] | None = None
) -> Traces:
    """Traces of turns to ``upstream``, and to ``further`` ones by name, that are exported by OTLP over HTTP, or through ``processor``.

    Raises NoTraces.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ModuleNotFoundError:
        raise NoTraces('traces = true needs more packages: pip install "upwire[otel]"') from None
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    resource = Resource.create({} if named else {"service.name": "upwire", "service.version": __version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter()))
    return Traces(provider, {MAIN: upstream, **(further or {})})


def _server(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "server.address": parts.hostname or "",
        "server.port": parts.port or _PORTS.get(parts.scheme, 0),
    }


def _attributes(record: TurnRecord, model: str) -> dict[str, Any]:
    told = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": model,
        "gen_ai.response.time_to_first_chunk": record.first_event,
        "http.response.status_code": record.status,
        "upwire.mode": record.mode,
        "upwire.reason": record.reason,
        "upwire.outcome": record.outcome,
        "upwire.bytes.received": record.client_in,
        "upwire.bytes.sent": record.upstream_out,
        "upwire.added": record.added,
        "upwire.pool_wait": record.waited,
        "upwire.upstream": None if record.upstream == MAIN else record.upstream,
        "upwire.recoveries": record.recoveries or None,
        "error.type": str(record.status) if record.outcome == "failed" else None,
    }
    return {name: value for name, value in told.items() if value is not None}


def _parent(trace: str | None) -> Context | None:
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context  # noqa: PLC0415

    if trace is None:
        return None
    _, trace_id, span_id, flags = trace.split("-")
    found = SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
    )
    return set_span_in_context(NonRecordingSpan(found))
