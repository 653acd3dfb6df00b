"""Everything but turns goes through both ways untouched, on real sockets."""

import asyncio

import aiohttp
import pytest
from raw_http import answer, head, raw_upstream, talk
from started_gateway import OK, start_gateway

END = b"Host: localhost\r\nConnection: close\r\n"


async def test_the_request_crosses_byte_for_byte():
    """Method, path, query, repeated headers and body arrive as sent; hop-by-hop and own headers do not."""
    async with raw_upstream(answer(OK)) as upstream, start_gateway(upstream.base) as gateway:
        back = await talk(
            gateway.port,
            b"PATCH /v1/a//b%2Fc/../d;x?z=1&a=%20+&a=%2f&q=?/ HTTP/1.1\r\nHost: localhost:9\r\nX-A: 1\r\nx-a: 2\r\n"
            b"X-a: 3\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\nKeep-Alive: 5\r\nX-Upwire-Mode: http\r\n"
            b"Proxy-Authorization: x\r\nContent-Encoding: zstd\r\nAuthorization: Bearer k\r\nContent-Length: 4\r\n\r\n\x00\xff\r\n",
        )
        [request] = upstream.requests
    assert head(back)[0] == 200
    assert request.line == "PATCH /v1/a//b%2Fc/../d;x?z=1&a=%20+&a=%2f&q=?/ HTTP/1.1"
    assert request.body == b"\x00\xff\r\n"
    assert request.fields == [
        ("Host", f"127.0.0.1:{upstream.port}"),
        ("X-A", "1"),
        ("X-A", "2"),
        ("X-A", "3"),
        ("Content-Encoding", "zstd"),
        ("Authorization", "Bearer k"),
        ("Content-Length", "4"),
    ]


async def test_nothing_is_added_to_a_bare_request():
    """A request without body and headers has none upstream either."""
    async with raw_upstream(answer(OK)) as upstream, start_gateway(upstream.base) as gateway:
        for method in (b"GET", b"DELETE", b"POST", b"OPTIONS"):
            await talk(gateway.port, method + b" /v1/models HTTP/1.1\r\n" + END + b"\r\n")
        assert [request.fields for request in upstream.requests] == [
            [("Host", f"127.0.0.1:{upstream.port}")]
        ] * 4


async def test_the_answer_crosses_byte_for_byte():
    """Status, reason, end-to-end headers with their repeats and the coded body come back; nothing is added."""
    text = (
        b"HTTP/1.1 299 Very Fine\r\nContent-Encoding: br\r\nSet-Cookie: a=1; Path=/\r\nset-cookie: b=2\r\nX-Request-Id: req_1\r\n"
        b"x-ratelimit-limit: 5\r\nConnection: X-Hop\r\nX-Hop: 1\r\nTrailer: X-T\r\nX-Upwire-Mode: delta\r\nContent-Length: 3\r\n\r\n\x00\xffx"
    )
    async with raw_upstream(answer(text)) as upstream, start_gateway(upstream.base) as gateway:
        back = await talk(gateway.port, b"GET /v1/files/f/content HTTP/1.1\r\n" + END + b"\r\n")
    assert back == (
        b"HTTP/1.1 299 Very Fine\r\nContent-Encoding: br\r\nSet-Cookie: a=1; Path=/\r\nset-cookie: b=2\r\nX-Request-Id: req_1\r\n"
        b"x-ratelimit-limit: 5\r\nContent-Length: 3\r\nConnection: close\r\n\r\n\x00\xffx"
    )


@pytest.mark.parametrize(
    ("method", "text", "expected"),
    [
        (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nETag: x\r\n\r\n", (200, "99")),
        (b"HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", (200, None)),
        (b"GET", b"HTTP/1.1 204 No Content\r\n\r\n", (204, None)),
        (b"GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\nETag: x\r\n\r\n", (304, "99")),
        (b"GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", (200, "0")),
        (
            b"GET",
            b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n",
            (404, "0"),
        ),
    ],
)
async def test_answers_without_a_body(method, text, expected):
    """HEAD, 204, 304 and empty answers keep their headers, have no body, and leave both connections usable."""
    async with raw_upstream(answer(text)) as upstream, start_gateway(upstream.base) as gateway:
        request = method + b" /v1/x HTTP/1.1\r\nHost: localhost\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        for _ in range(2):
            writer.write(request)
            status, fields, _ = head(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5))
            assert (status, fields.get("content-length")) == expected
            assert "transfer-encoding" not in fields and "content-type" not in fields
        writer.write(b"GET /stats HTTP/1.1\r\n" + END + b"\r\n")
        assert (await asyncio.wait_for(reader.read(), 5)).startswith(b"HTTP/1.1 200 OK")
        writer.close()
        assert upstream.connections == 1


async def test_each_event_is_flushed_at_once():
    """A stream of events is passed on event by event, in chunks whatever the upstream's framing."""
    go = asyncio.Event()

    async def play(connection, _request):
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        await connection.send(b"data: 1\n\n")
        await go.wait()
        await connection.send(b"data: 2\n\n")

    async with raw_upstream(play, keep=False) as upstream, start_gateway(upstream.base) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(b"GET /v1/responses/r?stream=true HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"chunked" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        assert await asyncio.wait_for(reader.readuntil(b"data: 1\n\n\r\n"), 5) == b"9\r\ndata: 1\n\n\r\n"
        go.set()
        assert await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 5) == b"9\r\ndata: 2\n\n\r\n0\r\n\r\n"
        writer.close()


async def test_an_old_client_gets_the_body_up_to_the_end_of_the_connection():
    """HTTP/1.0 knows no chunks: the body ends with the connection."""
    text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n2\r\nho\r\n0\r\n\r\n"
    async with raw_upstream(answer(text)) as upstream, start_gateway(upstream.base) as gateway:
        assert await talk(gateway.port, b"GET /v1/x HTTP/1.0\r\n\r\n") == b"HTTP/1.0 200 OK\r\n\r\nhiho"


async def test_the_head_does_not_wait_for_the_body():
    """Status and headers of an answer reach the client while its body is still to come."""

    async def play(connection, _request):
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
        await connection.reader.read()

    async with raw_upstream(play) as upstream, start_gateway(upstream.base) as gateway:
        back = await talk(gateway.port, b"GET /v1/x HTTP/1.1\r\nHost: localhost\r\n\r\n", until_closed=False)
        assert back.startswith(b"HTTP/1.1 200 OK")


async def test_a_client_that_waits_for_100_continue_uploads():
    """The body is asked for once the upstream is reached; the expectation itself does not cross."""
    async with raw_upstream(answer(OK)) as upstream, start_gateway(upstream.base) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(
            b"POST /v1/files HTTP/1.1\r\n" + END + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        )
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5) == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"abc")
        assert head(await asyncio.wait_for(reader.read(), 5))[0] == 200
        writer.close()
        [request] = upstream.requests
        assert (request.body, request.values("expect")) == (b"abc", [])


async def test_an_upload_is_not_asked_for_when_the_upstream_is_gone(unused_tcp_port):
    """An upstream that cannot be reached is a 502 without 100 Continue and without a word from the request."""
    async with start_gateway(f"http://127.0.0.1:{unused_tcp_port}/v1") as gateway:
        request = (
            b"POST /v1/files?sk-canary HTTP/1.1\r\n"
            + END
            + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        )
        back = await talk(gateway.port, request, until_closed=False)
    assert back.startswith(b"HTTP/1.1 502 ") and b"canary" not in back


@pytest.mark.parametrize(
    "text",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n",
    ],
    ids=["short", "cut", "bad chunk"],
)
@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
async def test_a_broken_answer_does_not_look_complete(text, version):
    """When the upstream's body breaks, the client's does: short, without a final chunk, or by a reset."""

    async def play(connection, _request):
        at = text.index(b"half") + 4
        await connection.send(text[:at])
        await asyncio.sleep(0.05)
        await connection.send(text[at:])

    async with raw_upstream(play, keep=False) as upstream, start_gateway(upstream.base) as gateway:
        request = b"GET /v1/x HTTP/%b\r\nHost: localhost\r\n\r\n" % version
        if version == b"1.0":
            with pytest.raises(ConnectionResetError):
                await talk(gateway.port, request)
        else:
            back = await talk(gateway.port, request)
            assert b"half" in back and not back.endswith(b"0\r\n\r\n")
            assert len(head(back)[2]) < 10
        assert gateway.failures == []


async def test_an_upstream_that_answers_with_nothing_is_a_502():
    """A connection that closes before the head is an error in the API's shape."""
    async with raw_upstream(answer(b""), keep=False) as upstream, start_gateway(upstream.base) as gateway:
        status, fields, body = head(await talk(gateway.port, b"GET /v1/x HTTP/1.1\r\n" + END + b"\r\n"))
    assert (status, fields["content-type"]) == (502, "application/json")
    assert b"upstream_connection_lost" in body


async def test_a_client_that_leaves_ends_the_upstream_request():
    """Closing the client's connection closes the upstream's, before the head and during the body."""
    for begin in (b"", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"):
        asked = asyncio.Event()

        async def play(connection, _request, begin=begin, asked=asked):
            await connection.send(begin)
            asked.set()
            await connection.reader.readexactly(1)

        async with raw_upstream(play) as upstream, start_gateway(upstream.base) as gateway:
            _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(b"GET /v1/x HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await asyncio.wait_for(asked.wait(), 5)
            writer.close()
            await asyncio.wait_for(upstream.lost.wait(), 5)
            assert gateway.failures == []


async def test_a_client_that_leaves_during_an_upload_ends_it():
    """A half-sent upload never looks complete upstream."""
    async with raw_upstream(answer(OK)) as upstream, start_gateway(upstream.base) as gateway:
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(
            b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
        )
        await asyncio.wait_for(upstream.accepted.wait(), 5)
        writer.close()
        await asyncio.wait_for(upstream.lost.wait(), 5)
        assert (upstream.requests, gateway.failures) == ([], [])


async def test_an_early_refusal_of_an_upload_is_relayed():
    """An upstream that answers before it has read everything is heard while the client still sends."""

    async def play(connection, _request):
        await connection.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await connection.reader.readexactly(1 << 30)

    async with (
        raw_upstream(play, read_body=False) as upstream,
        start_gateway(upstream.base) as gateway,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(
            b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n"
            + bytes(100_000)
        )
        assert head(await asyncio.wait_for(reader.readuntil(b"no"), 5))[0] == 413
        await asyncio.wait_for(upstream.lost.wait(), 5)
        writer.close()
        assert gateway.failures == []


@pytest.mark.parametrize("chunked", [False, True])
async def test_twenty_megabytes_up_and_down(chunked):
    """Large uploads and downloads pass without change, beyond the cap on turns, over one pair of connections."""
    data = bytes(range(256)) * (20 * 4096)

    async def play(connection, request):
        if chunked:
            await connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            await connection.send(b"%x\r\n" % len(request.body) + request.body + b"\r\n0\r\n\r\n")
        else:
            await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(request.body))
            await connection.send(request.body)

    async def pieces():
        for at in range(0, len(data), 100_000):
            yield data[at : at + 100_000]

    async with (
        raw_upstream(play) as upstream,
        start_gateway(upstream.base, max_body=1000) as gateway,
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{gateway.port}/v1/files", data=pieces()) as response,
    ):
        assert await response.read() == data
        assert upstream.requests[0].values("transfer-encoding") == ["chunked"]


async def test_a_slow_reader_holds_up_the_upstream_and_not_our_memory():
    """A client that does not read stops the transfer at the socket buffers."""
    sent = 0

    async def play(connection, _request):
        nonlocal sent
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\n")
        for _ in range(200):
            await connection.send(bytes(1_000_000))
            sent += 1

    async with raw_upstream(play) as upstream, start_gateway(upstream.base) as gateway:
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(b"GET /v1/x HTTP/1.1\r\nHost: localhost\r\n\r\n")
        before = -1
        while sent == 0 or sent != before:
            before = sent
            await asyncio.sleep(0.1)
        assert sent < 100
        writer.close()


async def test_a_deleted_response_is_reported_before_the_client_knows():
    """The hook gets identity and id of a successful DELETE of a response, and of nothing else."""
    replies = {"resp_1": b"200 OK", "a%20b": b"204 No Content", "resp_gone": b"404 Not Found"}

    async def play(connection, request):
        name = request.target.split("?")[0].rstrip("/").rpartition("/")[2]
        await connection.send(b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % replies.get(name, b"200 OK"))

    async with raw_upstream(play) as upstream, start_gateway(upstream.base) as gateway:
        for method, path in [
            ("DELETE", "/v1/responses/resp_1"),
            ("DELETE", "/responses/a%20b/?x=1"),
            ("DELETE", "/v1/responses/resp_gone"),
            ("DELETE", "/v1/responses/"),
            ("DELETE", "/v1/responses/resp_1/items"),
            ("DELETE", "/v1/files/f"),
            ("GET", "/v1/responses/resp_1"),
        ]:
            await talk(
                gateway.port,
                f"{method} {path} HTTP/1.1\r\nAuthorization: Bearer a\r\n".encode() + END + b"\r\n",
            )
        assert [name for _, name in gateway.deleted] == ["resp_1", "a b"]
        assert len({identity for identity, _ in gateway.deleted}) == 1
