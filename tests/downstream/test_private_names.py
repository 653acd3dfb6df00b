"""Requests are answered rightly also when the library has lost the private names that are looked at."""

import asyncio
import json
import logging

import aiohttp
import pytest
from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from raw_http import answer, head, raw_upstream, talk
from started_gateway import OK, start_gateway

from gateway.downstream import malformed
from gateway.errors import UpstreamLost, UpstreamUnreachable
from gateway.upstream import connector as connecting
from gateway.upstream import plain as plain_http
from gateway.upstream.plain import PlainHttp, PlainOptions
from gateway.upstream.proxy import Proxy


def hide(monkeypatch, module, *names):
    """Make ``module`` find none of ``names``, as after a release of the library that renamed them."""

    def get(thing, name, *default):
        if name in names:
            if default:
                return default[0]
            raise AttributeError(name)
        return getattr(thing, name, *default)

    monkeypatch.setattr(module, "getattr", get, raising=False)
    monkeypatch.setattr(
        module, "hasattr", lambda thing, name: name not in names and hasattr(thing, name), raising=False
    )


async def test_without_the_names_of_a_connection_requests_are_answered(monkeypatch, caplog):
    """Turns, the rest of the API and malformed requests get the same answers, nothing is echoed, and one line warns."""
    hide(monkeypatch, malformed, *malformed._PRIVATE)
    async with raw_upstream(answer(OK)) as upstream, start_gateway(upstream.base) as gateway:
        turn = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
        assert json.loads(head(await talk(gateway.port, turn))[2]) == {"size": 2}
        rest = head(
            await talk(
                gateway.port, b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )
        )
        assert (rest[0], rest[2]) == (200, b"hi")
        back = await talk(gateway.port, b"GET /v1/x HTTP/1.1\r\nHost: localhost\r\nX: sk-canary\x00\r\n\r\n")
        assert (head(back)[0], json.loads(head(back)[2])["error"]["code"]) == (400, "malformed_request")
        assert b"canary" not in back
        assert gateway.failures == []
    warned = [line for line in caplog.records if line.levelno == logging.WARNING]
    assert [line.name for line in warned] == ["gateway.downstream.malformed"]
    assert "canary" not in caplog.text


async def test_without_the_names_a_client_that_left_still_ends_its_request(monkeypatch):
    """The handler of a client that is gone is cancelled when its connection is."""
    hide(monkeypatch, malformed, *malformed._PRIVATE)
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(_request):
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return web.Response()

    async with start_gateway(respond=wait) as gateway:
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
        async with asyncio.timeout(5):
            await began.wait()
            writer.transport.abort()
            await cancelled.wait()


def test_the_locked_version_has_all_names(caplog):
    """With the version that is locked nothing is missed and nothing warns."""
    malformed.name_missing()
    assert all(hasattr(RequestHandler, name) for name in malformed._PRIVATE)
    assert all(hasattr(aiohttp.TCPConnector, name) for name in connecting._REPLACED)
    assert hasattr(aiohttp.StreamReader, "_read_nowait")
    assert caplog.records == []


async def test_without_the_name_for_the_rest_a_break_is_still_a_break(monkeypatch):
    """The reader learns that the answer broke, in the gateway's own error, not of a name that is missing."""
    hide(monkeypatch, plain_http, "_read_nowait")

    async def cut(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello")
        writer.close()
        await writer.wait_closed()

    async def read(plain, port):
        async with plain.request("GET", f"http://127.0.0.1:{port}/", ()) as response:
            async for chunk in response.chunks():
                assert b"hello".startswith(chunk)

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    plain = PlainHttp()
    try:
        async with asyncio.timeout(5):
            with pytest.raises(UpstreamLost):
                await read(plain, server.sockets[0].getsockname()[1])
    finally:
        await plain.close()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("name", connecting._REPLACED)
async def test_without_the_names_for_socks_nothing_goes_around_the_proxy(monkeypatch, caplog, name):
    """What should go through a SOCKS proxy is refused and the log says why; the upstream is not reached directly."""
    hide(monkeypatch, connecting, name)
    reached = []

    async def take(_reader, writer):
        reached.append(writer)
        writer.close()

    async def ask(plain, port):
        async with plain.request("GET", f"http://127.0.0.1:{port}/", ()):
            pass

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    plain = PlainHttp(PlainOptions(proxy=Proxy("socks5", "127.0.0.1", port)))
    try:
        with pytest.raises(UpstreamUnreachable):
            await ask(plain, port)
        assert reached == []
    finally:
        await plain.close()
        server.close()
        await server.wait_closed()
    assert [line.name for line in caplog.records] == ["gateway.upstream.connector"]
