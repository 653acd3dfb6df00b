"""Traces: what comes in is forwarded and logged, and one span per turn goes out."""

import asyncio
import contextlib
import sys
import time

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from gateway.stats import TurnRecord
from gateway.traces import NoTraces, open_traces
from gateway.turn.call import Call
from tests.gateways import Api, running_gateway, running_simulator

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
SECRET = "a private prompt"
BODY = {"model": "gpt-5", "input": [{"role": "user", "content": SECRET}], "store": False}


def record(**change):
    """A turn, with changes."""
    values = {
        "mode": "full", "reason": "new_conversation", "outcome": "ok", "status": 200, "client_in": 10, "upstream_out": 12,
        "first_event": 0.25, "added": 0.002, "total": 1.5, "recoveries": (), "model": "gpt-5", "waited": 0.01,
    }  # fmt: skip
    return TurnRecord(**(values | change))


@pytest.fixture
def spans():
    """Makes traces for an upstream and gives them with the list of finished spans."""
    exporter = InMemorySpanExporter()
    return open_traces(
        "https://api.example/v1?key=secret", SimpleSpanProcessor(exporter)
    ), exporter.get_finished_spans


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        (TRACEPARENT, True),
        (TRACEPARENT.replace("00-", "01-", 1), True),
        (TRACEPARENT.replace("00-", "ff-", 1), False),
        (f"00-{'0' * 32}-{SPAN_ID}-01", False),
        (f"00-{TRACE_ID}-{'0' * 16}-01", False),
        (TRACEPARENT.upper(), False),
        (TRACEPARENT + "-more", False),
        (TRACEPARENT[:-1], False),
        ("", False),
        (SECRET, False),
    ],
)
def test_only_a_well_formed_context_is_taken(value, taken):
    """What is not one could be anything, and is neither logged nor exported."""
    call = Call(target="/", headers=(("Traceparent", value),), body=b"", token=None, received=0.0)
    assert call.trace() == (value if taken else None)
    assert Call(target="/", headers=(), body=b"", token=None, received=0.0).trace() is None


def test_a_span_tells_how_a_turn_went(spans):
    """Name, kind, times and attributes follow the conventions for generative models, beside our own."""
    traces, finished = spans
    before = time.time_ns()
    traces.turn(record(trace=TRACEPARENT))
    (span,) = finished()
    assert (span.name, span.kind) == ("chat gpt-5", SpanKind.CLIENT)
    assert before <= span.end_time <= time.time_ns()
    assert span.end_time - span.start_time == 1_500_000_000
    assert format(span.context.trace_id, "032x") == TRACE_ID
    assert format(span.parent.span_id, "016x") == SPAN_ID
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5",
        "gen_ai.response.time_to_first_chunk": 0.25, "http.response.status_code": 200, "server.address": "api.example",
        "server.port": 443, "upwire.mode": "full", "upwire.reason": "new_conversation", "upwire.outcome": "ok",
        "upwire.bytes.received": 10, "upwire.bytes.sent": 12, "upwire.added": 0.002, "upwire.pool_wait": 0.01,
    }  # fmt: skip
    assert span.status.status_code is StatusCode.UNSET
    assert span.resource.attributes["service.name"] == "upwire"


def test_failures_and_odd_models(spans):
    """A failed turn is an error with its status; a text in place of a model is not exported; without a parent it is a root."""
    traces, finished = spans
    traces.turn(
        record(
            mode="delta",
            reason=None,
            outcome="failed",
            status=502,
            recoveries=("replay",),
            model=SECRET,
            added=None,
        )
    )
    (span,) = finished()
    assert span.name == "chat other"
    assert span.parent is None
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "502"
    assert span.attributes["upwire.recoveries"] == ("replay",)
    assert not {"upwire.reason", "upwire.added"} & set(span.attributes)
    assert "secret" not in str(span.to_json())


def test_the_name_of_the_service_can_be_set(monkeypatch):
    """OpenTelemetry's own variables win over ours."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    exporter = InMemorySpanExporter()
    open_traces("http://h/v1", SimpleSpanProcessor(exporter)).turn(record())
    (span,) = exporter.get_finished_spans()
    assert span.resource.attributes["service.name"] == "mine"


async def test_a_turn_is_exported_with_its_trace_and_nothing_private(monkeypatch):
    """The context goes on to the upstream over plain HTTP, and the spans of all turns to the collector."""
    taken = []

    async def take(request):
        taken.append(await request.read())
        return web.Response(body=b"", content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    async with TestServer(app) as collector, running_simulator() as simulator:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", str(collector.make_url("")).rstrip("/"))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        async with running_gateway(simulator.url, traces=True) as gateway, Api(gateway.url) as api:
            await api.create(BODY, headers={"traceparent": TRACEPARENT})
            await api.create(BODY, headers={"traceparent": TRACEPARENT, "x-upwire-mode": "http"})
        forwarded = [entry.headers.get("traceparent") for entry in simulator.journal]
    assert TRACEPARENT in forwarded
    assert taken
    message = ExportTraceServiceRequest()
    spans = []
    for data in taken:
        assert SECRET.encode() not in data
        assert b"sk-test" not in data
        message.ParseFromString(data)
        spans += [s for r in message.resource_spans for scope in r.scope_spans for s in scope.spans]
    assert {span.trace_id.hex() for span in spans} == {TRACE_ID}
    assert {span.parent_span_id.hex() for span in spans} == {SPAN_ID}
    modes = [next(a.value.string_value for a in span.attributes if a.key == "upwire.mode") for span in spans]
    assert sorted(modes) == ["full", "http"]


async def test_a_collector_that_hangs_keeps_neither_turns_nor_the_end(monkeypatch):
    """Turns are served as ever, and the gateway ends within a few seconds."""
    hung = asyncio.Event()

    async def hang(_reader, writer):
        hung.set()
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await asyncio.sleep(60)
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3")
    try:
        async with running_simulator() as simulator:
            async with running_gateway(simulator.url, traces=True) as gateway, Api(gateway.url) as api:
                assert (await api.create(BODY)).status == 200
                began = time.monotonic()
            assert time.monotonic() - began < 4
            assert hung.is_set()
    finally:
        server.close()


def test_without_the_packages(monkeypatch):
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(NoTraces, match=r"upwire\[otel\]"):
        open_traces("http://h/v1")
