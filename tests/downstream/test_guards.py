"""Who may talk to the gateway, and how upgrades are answered."""

import asyncio
import json
import time

import pytest
from raw_http import answer, head, raw_upstream, talk
from started_gateway import OK, start_gateway


async def ask(gateway, *fields, path="/v1/models", method="GET", host="localhost"):
    """Send a request with these header lines; status, headers and body."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *fields, "", ""]
    return head(await talk(gateway.port, "\r\n".join(lines).encode()))


def code(body):
    """The error code in a body."""
    return json.loads(body)["error"]["code"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:7411", 200),
        ("localhost.", 200),
        ("app.localhost:1", 200),
        ("127.0.0.1", 200),
        ("127.0.0.1:7411", 200),
        ("127.9.9.9", 200),
        ("[::1]:7411", 200),
        ("[0:0:0:0:0:0:0:1]", 200),
        ("gateway.internal", 200),
        ("GATEWAY.internal:80", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("notlocalhost", 403),
        ("localhost@evil.example", 403),
        ("evil.example#localhost", 403),
        ("192.168.0.1", 403),
        ("[fe80::1]", 403),
        ("localhost:port", 403),
        ("", 403),
        ("[", 403),
    ],
)
async def test_only_our_own_host_names_are_answered(host, status):
    """Loopback names and addresses and allowed hosts pass; anything else that resolves to us does not, and no call goes up."""
    async with (
        raw_upstream(answer(OK)) as upstream,
        start_gateway(upstream.base, allowed_hosts=("Gateway.Internal",)) as gateway,
    ):
        found, _, body = await ask(gateway, host=host)
        assert found == status
        assert len(upstream.requests) == (status == 200)
        if status == 403:
            assert code(body) == "forbidden_host"
            assert not host or host.encode() not in body


async def test_the_listening_name_and_every_host_if_so_set():
    """The name to listen on is ours, and a star allows all names."""
    async with start_gateway(host="box.lan") as gateway:
        assert (await ask(gateway, host="box.lan:7411", path="/stats"))[0] == 200
        assert (await ask(gateway, host="other.lan", path="/stats"))[0] == 403
    async with start_gateway(allowed_hosts=("*",)) as gateway:
        assert (await ask(gateway, host="other.lan", path="/stats"))[0] == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://app.example:3000", 200),
        ("HTTP://APP.example:3000", 200),
        ("http://localhost", 200),
        ("http://app.example", 403),
        ("https://app.example:3000", 403),
        ("http://evil.example", 403),
        ("http://localhost:1", 403),
        ("null", 403),
        ("", 403),
    ],
)
async def test_only_allowed_origins_may_call(origin, status):
    """A page of an allowed origin, or our own, is answered and may read the answer; any other is refused without a call."""
    async with (
        raw_upstream(answer(OK)) as upstream,
        start_gateway(upstream.base, allowed_origins=("http://app.example:3000/",)) as gateway,
    ):
        found, fields, body = await ask(gateway, f"Origin: {origin}")
        assert found == status
        assert len(upstream.requests) == (status == 200)
        if status == 200:
            assert fields["access-control-allow-origin"] == origin
            assert "Origin" in fields["vary"]
        else:
            assert code(body) == "forbidden_origin"
            assert "access-control-allow-origin" not in fields


async def test_preflights_of_allowed_origins_are_answered_here():
    """A preflight names what is allowed and goes nowhere; others are refused; an OPTIONS that is none is passed on."""
    async with (
        raw_upstream(answer(OK)) as upstream,
        start_gateway(upstream.base, allowed_origins=("http://app.example",)) as gateway,
    ):
        asks = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization, x-y")
        status, fields, _ = await ask(
            gateway,
            "Origin: http://app.example",
            *asks,
            "Access-Control-Request-Private-Network: true",
            method="OPTIONS",
            path="/v1/responses",
        )
        assert status == 204
        assert fields["access-control-allow-origin"] == "http://app.example"
        assert fields["access-control-allow-headers"] == "authorization, x-y"
        assert "POST" in fields["access-control-allow-methods"]
        assert fields["access-control-allow-private-network"] == "true"
        assert (await ask(gateway, "Origin: http://evil.example", *asks, method="OPTIONS"))[0] == 403
        assert upstream.requests == []
        assert (await ask(gateway, method="OPTIONS"))[0] == 200
        assert upstream.requests[0].line == "OPTIONS /v1/models HTTP/1.1"


async def test_refusals_come_before_the_body():
    """Whoever is refused is not asked for the body."""
    async with start_gateway() as gateway:
        request = (
            b"POST /v1/responses HTTP/1.1\r\nHost: evil\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"
        )
        back = await talk(gateway.port, request, until_closed=False)
        assert back.startswith(b"HTTP/1.1 403 ") and b"Connection: close" in back
        request = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nExpect: sk-canary\r\nContent-Length: 9\r\n\r\n"
        back = await talk(gateway.port, request, until_closed=False)
        assert back.startswith(b"HTTP/1.1 417 ") and b"canary" not in back


async def test_the_token_is_asked_for_and_never_crosses():
    """With a token, only who presents it gets anywhere but to the probes; it does not go upstream."""
    async with (
        raw_upstream(answer(OK)) as upstream,
        start_gateway(upstream.base, token="sk-canary") as gateway,
    ):
        assert (await ask(gateway, "x-upwire-token: sk-canary"))[0] == 200
        assert (await ask(gateway, path="/healthz?x"))[0] == 200
        for path in ("/v1/models", "/stats", "/nowhere"):
            status, _, body = await ask(gateway, "x-upwire-token: sk-canaryx", path=path)
            assert (status, code(body)) == (401, "invalid_gateway_token")
            assert (await ask(gateway, path=path))[0] == 401
        [request] = upstream.requests
        assert "canary" not in repr(request)


@pytest.mark.parametrize("header", ["authorization: Bearer sk-canary", "api-key: sk-canary"])
async def test_the_token_never_goes_up_as_the_key(header):
    """Where clients bring the API's key themselves, a token in its place is refused before the API can see it."""
    async with (
        raw_upstream(answer(OK)) as upstream,
        start_gateway(upstream.base, token="sk-canary") as gateway,
    ):
        for path, method in (("/v1/models", "GET"), ("/v1/responses", "POST")):
            token = "x-upwire-token: sk-canary"
            status, _, text = await ask(gateway, token, header, path=path, method=method)
            assert (status, code(text)) == (401, "gateway_token_as_key")
            assert b"canary" not in text and not gateway.turns
        assert not upstream.requests
        own = header.replace("canary", "own-key")
        assert (await ask(gateway, "x-upwire-token: sk-canary", own))[0] == 200


async def test_a_scraper_may_present_the_token_as_a_bearer():
    """Scrapers know no header of ours: outside the API, where a key has no use, the token may stand in its place; inside not."""
    async with start_gateway(token="sk-canary") as gateway:
        for path, field, wanted in (
            ("/stats", "authorization: Bearer sk-canary", 200),
            ("/stats", "authorization: Bearer sk-canaryx", 401),
            ("/v1/models", "authorization: Bearer sk-canary", 401),
            ("/v1/responses?/stats", "authorization: Bearer sk-canary", 401),
        ):
            assert (await ask(gateway, field, path=path))[0] == wanted, path


UPGRADE = (
    b"GET /v1/responses%b HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: %b\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@pytest.mark.parametrize("protocol", [b"websocket", b"WebSocket", b"h2c, websocket"])
async def test_an_upgrade_gets_426_at_once_on_a_connection_that_lives_on(protocol):
    """Ten upgrades are refused without an upstream call; a turn on the same connection then works."""
    async with raw_upstream(answer(OK)) as upstream, start_gateway(upstream.base) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        started = time.monotonic()
        for n in range(10):
            writer.write(UPGRADE % (b"" if n else b"?a=b", protocol))
            status, fields, _ = head(await reader.readuntil(b"\r\n\r\n"))
            body = await reader.readexactly(int(fields["content-length"]))
            assert (status, code(body)) == (426, "upgrade_required")
            assert (fields["upgrade"], fields["connection"]) == ("HTTP/1.1", "Upgrade")
        assert time.monotonic() - started < 0.5
        writer.write(b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
        assert head(await asyncio.wait_for(reader.readuntil(b"}"), 5))[0] == 200
        writer.close()
        assert upstream.connections == 0


async def test_a_request_right_behind_an_upgrade_is_answered():
    """What a client sends without waiting for the 426 is not lost."""
    async with start_gateway() as gateway:
        data = (
            UPGRADE % (b"", b"websocket")
            + b"GET /stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        back = await talk(gateway.port, data)
        assert b" 426 " in back and back.endswith(b'{"ours": true}')


@pytest.mark.parametrize("body", [b"", b"hi"])
async def test_other_upgrades_are_ignored(body):
    """A client that would rather speak HTTP/2 gets its answer over HTTP/1.1, and its offer does not cross."""
    async with raw_upstream(answer(OK)) as upstream, start_gateway(upstream.base) as gateway:
        status, _, _ = head(
            await talk(
                gateway.port,
                b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings, close\r\n"
                b"Upgrade: h2c\r\nHTTP2-Settings: AA\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body),
            )
        )
        assert status == 200
        [request] = upstream.requests
        assert request.body == body
        assert [name for name, _ in request.fields] == ["Host", "Content-Length"]
