"""Bytes that are no request, and failures of our own, on real sockets."""

import asyncio
import json
import logging

import pytest
from aiohttp import web
from raw_http import answer, head, raw_upstream, talk
from started_gateway import OK, start_gateway

CANARY = b"sk-canary"
HOST = b"Host: localhost\r\nAuthorization: Bearer sk-canary\r\n"

REFUSED = {
    "length and coding": b"POST /v1/x HTTP/1.1\r\n%bContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding and length": b"POST /v1/x HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST /v1/x HTTP/1.1\r\n%bContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "same length twice": b"POST /v1/x HTTP/1.1\r\n%bContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "length list": b"POST /v1/x HTTP/1.1\r\n%bContent-Length: 5, 5\r\n\r\nhello",
    "signed length": b"POST /v1/x HTTP/1.1\r\n%bContent-Length: +5\r\n\r\nhello",
    "odd coding": b"POST /v1/x HTTP/1.1\r\n%bTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "coding not last": b"POST /v1/x HTTP/1.1\r\n%bTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "coding twice": b"POST /v1/x HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding with control": b"POST /v1/x HTTP/1.1\r\n%bTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "coding in 1.0": b"POST /v1/x HTTP/1.0\r\n%bTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bad chunk size": b"POST /v1/x HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\nsk-canary\r\n\r\n",
    "chunk too long": b"POST /v1/x HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n2\r\nsk-canary\r\n0\r\n\r\n",
    "chunk ended by lf": b"POST /v1/x HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n2\nhi\r\n0\r\n\r\n",
    "folded header": b"GET /v1/x HTTP/1.1\r\n%bX: sk-canary\r\n folded\r\n\r\n",
    "bare lf": b"GET /v1/x HTTP/1.1\nHost: localhost\nX: sk-canary\n\n",
    "one bare lf": b"GET /v1/x HTTP/1.1\r\n%bX: sk-canary\nY: 1\r\n\r\n",
    "bare cr": b"GET /v1/x HTTP/1.1\r\n%bX: sk-canary\rY: 1\r\n\r\n",
    "nul": b"GET /v1/x HTTP/1.1\r\n%bX: sk-canary\x00\r\n\r\n",
    "space before colon": b"GET /v1/x HTTP/1.1\r\n%bX-Key : sk-canary\r\n\r\n",
    "no host": b"GET /v1/x HTTP/1.1\r\nX: sk-canary\r\n\r\n",
    "two hosts": b"GET /v1/x HTTP/1.1\r\n%bHost: sk-canary\r\n\r\n",
    "absolute form": b"GET http://localhost/v1/sk-canary HTTP/1.1\r\n%b\r\n",
    "authority form": b"CONNECT localhost:443 HTTP/1.1\r\n%b\r\n",
    "authority form of get": b"GET localhost:443 HTTP/1.1\r\n%b\r\n",
    "connect to a path": b"CONNECT /v1/x HTTP/1.1\r\n%b\r\n",
    "asterisk form": b"OPTIONS * HTTP/1.1\r\n%b\r\n",
    "asterisk form of get": b"GET * HTTP/1.1\r\n%b\r\n",
    "fragment": b"GET /v1/x#sk-canary HTTP/1.1\r\n%b\r\n",
    "raw bytes in path": b"GET /v1/\xff\xfe HTTP/1.1\r\n%b\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03sk-canary",
    "http 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http 0.9": b"GET /v1/x\r\n\r\n",
    "http 3.7": b"GET /v1/x HTTP/3.7\r\n%b\r\n",
    "unknown method": b"FOO /v1/x HTTP/1.1\r\n%b\r\n",
    "lower-case method": b"get /v1/x HTTP/1.1\r\n%b\r\n",
    "junk": b"sk-canary\r\n\r\n",
    "old websocket": b"GET /v1/x HTTP/1.1\r\n%bSec-WebSocket-Key1: sk-canary\r\n\r\n",
}


def fill(data):
    """Put the usual headers in."""
    return data.replace(b"%b", HOST)


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_no_clear_request_is_refused(name, caplog, capfd):
    """It is answered in the API's shape and the connection ends; nothing of it is echoed, logged or sent on."""
    caplog.set_level(logging.DEBUG)
    async with raw_upstream(answer(OK)) as upstream, start_gateway(upstream.base) as gateway:
        back = await talk(gateway.port, fill(REFUSED[name]))
        assert upstream.requests == []
        assert gateway.failures == []
    status, fields, body = head(back)
    assert status == 400
    assert fields["content-type"] == "application/json"
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
    out = capfd.readouterr()
    assert CANARY not in back
    assert "canary" not in caplog.text + out.out + out.err


@pytest.mark.parametrize(
    "data",
    [
        b"GET /v1/x HTTP/1.1\r\n%bX: " + CANARY * 8000 + b"\r\n\r\n",
        b"GET /v1/" + CANARY * 8000 + b" HTTP/1.1\r\n%b\r\n",
        b"GET /v1/x HTTP/1.1\r\n%b" + b"X: sk-canary\r\n" * 300 + b"\r\n",
    ],
    ids=["long field", "long line", "many fields"],
)
async def test_absurd_headers_are_too_large(data, caplog):
    """Headers over the limits get 431 without an echo."""
    async with start_gateway() as gateway:
        back = await talk(gateway.port, fill(data))
    status, _, body = head(back)
    assert (status, json.loads(body)["error"]["code"]) == (431, "headers_too_large")
    assert CANARY not in back and "canary" not in caplog.text


async def test_large_headers_within_the_limit_pass():
    """A field of 60 KB is a request like any other."""
    async with raw_upstream(answer(OK)) as upstream, start_gateway(upstream.base) as gateway:
        data = (
            b"GET /v1/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: " + b"a" * 60000 + b"\r\n\r\n"
        )
        assert head(await talk(gateway.port, data))[0] == 200
        assert upstream.requests[0].values("x") == ["a" * 60000]


async def test_a_transfer_coding_beside_chunked_is_not_undone_silently():
    """A body in a transfer coding that we would drop is refused."""
    async with raw_upstream(answer(OK)) as upstream, start_gateway(upstream.base) as gateway:
        data = b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
        assert head(await talk(gateway.port, data))[0] == 501
        assert upstream.requests == []


@pytest.mark.parametrize("path", [b"/v1/responses", b"/v1/files"])
async def test_a_body_that_stops_being_http_ends_the_request(path):
    """A bad chunk that comes later reaches whoever waits for the body: 400 at once, and no whole request upstream."""
    async with raw_upstream(answer(OK)) as upstream, start_gateway(upstream.base) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(
            b"POST %b HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n" % path
        )
        await asyncio.sleep(0.05)
        writer.write(b"sk-canary\r\n")
        status, fields, body = head(await asyncio.wait_for(reader.read(), 5))
        writer.close()
        assert (status, fields["connection"]) == (400, "close")
        assert json.loads(body)["error"]["code"] == "invalid_body"
        assert (upstream.requests, gateway.failures) == ([], [])


async def test_a_second_request_that_is_no_request_does_not_disturb_the_first():
    """Garbage behind a whole request is answered after it."""
    async with raw_upstream(answer(OK)) as upstream, start_gateway(upstream.base) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi")
        await asyncio.sleep(0.05)
        writer.write(b"sk-canary\r\n\r\n")
        back = await asyncio.wait_for(reader.read(), 5)
        writer.close()
    assert back.startswith(b"HTTP/1.1 200 OK") and b" 400 " in back and CANARY not in back


async def test_a_failure_of_ours_is_our_fault_and_tells_nothing(caplog, capfd):
    """A handler that fails gives a 500 in the API's shape; what failed goes to the hook only."""
    caplog.set_level(logging.DEBUG)

    async def respond(_request):
        raise ValueError("sk-canary")

    async with start_gateway(respond=respond) as gateway:
        data = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
        back = await talk(gateway.port, data)
        [(where, failure)] = gateway.failures
    status, _, body = head(back)
    assert (status, json.loads(body)["error"]["type"]) == (500, "server_error")
    assert (where, type(failure)) == ("request", ValueError)
    out = capfd.readouterr()
    assert "canary" not in back.decode() + caplog.text + out.out + out.err


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
async def test_a_failure_of_ours_after_the_head_breaks_the_connection(version, caplog):
    """An answer that fails half way never looks complete: no final chunk, and a reset where a close would be an end."""

    async def respond(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        raise ValueError("sk-canary")

    async with start_gateway(respond=respond) as gateway:
        data = b"POST /v1/responses HTTP/%b\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}" % version
        if version == b"1.0":
            with pytest.raises(ConnectionResetError):
                await talk(gateway.port, data)
        else:
            back = await talk(gateway.port, data)
            assert back.endswith(b"4\r\nhalf\r\n")
        assert len(gateway.failures) == 1
    assert "canary" not in caplog.text


async def test_library_errors_become_answers_in_the_api_shape():
    """An HTTP exception raised by a handler keeps its status and gets our body."""

    async def respond(_request):
        raise web.HTTPConflict(text="sk-canary")

    async with start_gateway(respond=respond) as gateway:
        data = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
        status, _, body = head(await talk(gateway.port, data))
        assert (status, json.loads(body)["error"]["code"]) == (409, "bad_request")
        assert gateway.failures == []
