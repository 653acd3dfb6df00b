"""Faults that others met: events without their blank line, URLs put together wrongly."""

import asyncio
import json
import re
import socket

import pytest

from gateway.simulator import Fault
from gateway.simulator import faults as f
from gateway.turn import attempt
from tests.faults.scenes import body, scene, user
from tests.gateways import running_gateway
from tests.raw_http import raw_upstream, talk

# -- B51

FRAME = re.compile(rb"event: ([^\r\n]+)\ndata: (\{[^\r\n]*\})\n\n")
ENDINGS = {
    "completed": (None, "response.completed", True),
    "failed": (f.Fail(), "response.failed", True),
    "incomplete": (f.EndIncomplete(), "response.incomplete", True),
    "error": (f.SendError(shape="stream"), "error", True),
    "error then failed": (f.SendError(shape="stream", then_failed=True), "response.failed", True),
    "reset": (f.Abort(), "response.failed", False),
    "closed": (f.Close(1011), "response.failed", False),
    "no event": (f.SendText("not json"), "response.failed", False),
    "binary": (f.SendBinary(b"{}"), "response.failed", False),
}


def request_bytes(sent):
    """A turn as bytes of HTTP/1.1."""
    data = json.dumps(sent).encode()
    return (
        b"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer sk-test\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data)
    )


def unchunked(raw):
    """The body inside a chunked answer, and whether its last chunk came."""
    rest = raw.partition(b"\r\n\r\n")[2]
    parts = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        count = int(size, 16)
        if count == 0:
            return b"".join(parts), True
        parts.append(rest[:count])
        rest = rest[count + 2 :]
    return b"".join(parts), False


def kinds_of(stream):
    """The type of each event, after checking that all is written as the API writes it."""
    frames = FRAME.findall(stream)
    assert b"".join(b"event: %b\ndata: %b\n\n" % frame for frame in frames) == stream
    kinds = [kind.decode() for kind, _ in frames]
    assert [json.loads(data)["type"] for _, data in frames] == kinds
    return kinds


@pytest.mark.parametrize("ending", list(ENDINGS))
async def test_b51_every_event_is_whole_however_the_stream_ends(ending, monkeypatch):
    """Each has its event line, one data line and its blank line, the last one too; only the upstream's own end is a clean one."""
    monkeypatch.setattr(attempt, "_TRAILING_FAILURE", 0.1)
    action, last, clean = ENDINGS[ending]
    async with scene() as run:
        if action is not None:
            run.simulator.faults.add(Fault(at=f.after_events(3), actions=action))
        port = int(run.gateway.root.rpartition(":")[2])
        raw = await talk(port, request_bytes(body([user("hello")], stream=True)))
    stream, ended = unchunked(raw)
    kinds = kinds_of(stream)
    assert (kinds[0], kinds[-1], ended) == ("response.created", last, clean)
    assert kinds.count("response.failed") == (last == "response.failed")
    assert b"[DONE]" not in stream


async def test_b51_a_stream_that_the_shutdown_breaks_ends_with_a_whole_event():
    """The grace runs out in the middle of an answer: one failure event, and no clean end."""
    async with scene(drain_timeout=0.1) as run:
        run.simulator.faults.add(Fault(at=f.CREATED, actions=f.Stall()))
        port = int(run.gateway.root.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_bytes(body([user("hello")], stream=True)))
        raw = await asyncio.wait_for(reader.readuntil(b"\n\n"), 5)
    raw += await asyncio.wait_for(reader.read(), 5)
    writer.close()
    stream, ended = unchunked(raw)
    assert kinds_of(stream) == ["response.created", "response.failed"]
    assert not ended


# -- B54

BASES = {
    "": "/v1",
    "/v1": "/v1",
    "/v1/": "/v1",
    "/openai/v1": "/openai/v1",
    "/openai?api-version=p": "/openai",
}
PATHS = ["/v1/responses", "/v1/responses/", "/responses", "/openai/v1/responses", "//v1/responses"]
QUERIES = ["", "?api-version=q", "?api-version=q&x=%2F", "?b=2&a=1&b=%20"]


@pytest.mark.parametrize("base", list(BASES))
async def test_b54_path_and_query_are_joined_once(base):
    """Every spelling of our URL and of the upstream's meets in one target, the same for the upgrade and the POST."""

    async def play(connection, request):
        # 401 says nothing about the upgrade as such, so each turn tries it.
        status = b"401 No" if request.line.startswith("GET") else b"200 OK"
        await connection.send(b"HTTP/1.1 %b\r\nContent-Length: 2\r\n\r\n{}" % status)

    async with raw_upstream(play) as upstream:
        given = upstream.base.removesuffix("/v1") + base
        async with running_gateway(given) as gateway:
            port = int(gateway.root.rpartition(":")[2])
            for path in PATHS:
                for query in QUERIES:
                    sent = request_bytes(body([user("u")])).replace(
                        b"/v1/responses", (path + query).encode(), 1
                    )
                    assert (await talk(port, sent)).startswith(b"HTTP/1.1 200")
                    upgrade, post = upstream.requests[-2:]
                    assert (upgrade.line[:4], post.line[:5]) == ("GET ", "POST ")
                    own = base.partition("?")[2]
                    parts = [p for p in (own if "api-version" not in query else "", query[1:]) if p]
                    expected = BASES[base] + "/responses" + ("?" + "&".join(parts) if parts else "")
                    assert (upgrade.target, post.target) == (expected, expected)
    assert len(upstream.requests) == 2 * len(PATHS) * len(QUERIES)


async def test_b54_other_paths_keep_every_byte():
    """Escapes, empty segments and the order of the query of any other path of the API go up as they came."""

    async def play(connection, _request):
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    async with raw_upstream(play) as upstream, running_gateway(upstream.base) as gateway:
        port = int(gateway.root.rpartition(":")[2])
        for path in (
            "/files/a%2Fb//c?x=%2F&a=%20&x",
            "/models",
            "/v1/models?",
            "/responses/resp_1?include=a&include=b",
        ):
            await talk(
                port, b"GET /v1%b HTTP/1.1\r\nHost: h.localhost\r\nConnection: close\r\n\r\n" % path.encode()
            )
    assert [request.target for request in upstream.requests] == [
        "/v1/files/a%2Fb//c?x=%2F&a=%20&x",
        "/v1/models",
        "/v1/models",
        "/v1/responses/resp_1?include=a&include=b",
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
async def test_b54_both_loopback_addresses_answer(host, unused_tcp_port):
    """The gateway listens where it is told, on IPv4 and IPv6 loopback alike."""
    if not _has(host):
        pytest.skip(f"this machine has no {host}")
    async with running_gateway(f"http://127.0.0.1:{unused_tcp_port}/v1", host=host) as gateway:
        port = int(gateway.root.rpartition(":")[2])
        families = {entry[0] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        for family in families:
            address = "127.0.0.1" if family == socket.AF_INET else "::1"
            reader, writer = await asyncio.open_connection(address, port)
            writer.write(
                b"GET /healthz HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n"
                % (b"[::1]" if ":" in host else b"localhost")
            )
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
            writer.close()


def _has(host):
    try:
        for family, kind, proto, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, proto) as probe:
                probe.bind(address)
    except OSError:
        return False
    return True
