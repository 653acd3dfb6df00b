"""The plain-HTTP client against an upstream that shows every byte."""

import asyncio

import pytest
from raw_http import answer, raw_upstream

from gateway.errors import BadRequest, UpstreamLost, UpstreamUnreachable
from gateway.upstream.plain import PlainHttp, PlainOptions

OK = b"HTTP/1.1 200 Fine\r\nContent-Length: 2\r\n\r\nhi"


@pytest.fixture
async def plain():
    """A client."""
    client = PlainHttp(PlainOptions(connect_timeout=2))
    yield client
    await client.close()


async def fetch(plain, method, url, headers=(), body=None):
    """Status, headers and whole body of an answer."""
    async with plain.request(method, url, headers, body) as response:
        return response.status, response.headers, b"".join([chunk async for chunk in response.chunks()])


async def source(*chunks):
    """A streamed body."""
    for chunk in chunks:
        yield chunk


async def test_the_request_goes_out_as_given(plain):
    """Method, path, query and headers are sent byte for byte, with nothing added but Host."""
    async with raw_upstream(answer(OK)) as upstream:
        url = upstream.base + "/a//b%2F/../c?x=%20y&z"
        await fetch(plain, "DELETE", url, [("x-q", "1"), ("X-Q", "2"), ("Y", ""), ("X-q", "3")])
        [request] = upstream.requests
    assert request.line == "DELETE /v1/a//b%2F/../c?x=%20y&z HTTP/1.1"
    assert [f for f in request.fields if f[0] != "Host"] == [
        ("x-q", "1"),
        ("x-q", "2"),
        ("Y", ""),
        ("x-q", "3"),
    ]


async def test_bodies_keep_the_length_they_came_with(plain):
    """Bytes get their length, a streamed body the client's length or chunks."""
    big = bytes(range(256)) * 8192
    async with raw_upstream(answer(OK)) as upstream:
        await fetch(plain, "POST", upstream.base, [("content-length", "999")], big)
        await fetch(plain, "POST", upstream.base, [("Content-Length", "6")], source(b"abc", b"def"))
        await fetch(plain, "POST", upstream.base, [], source(b"abc", b"def"))
        await fetch(plain, "POST", upstream.base, [], b"")
        bodies = [
            (r.values("content-length"), r.values("transfer-encoding"), r.body) for r in upstream.requests
        ]
        assert upstream.connections == 1
    assert bodies == [
        ([str(len(big))], [], big),
        (["6"], [], b"abcdef"),
        ([], ["chunked"], b"abcdef"),
        (["0"], [], b""),
    ]


async def test_the_answer_comes_back_as_it_is(plain):
    """Coded bytes stay coded, repeats and odd bytes stay, connection headers go."""
    text = (
        b"HTTP/1.1 418 I am\r\nContent-Encoding: gzip\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nX-N: caf\xe9\r\n"
        b"Connection: x-hop\r\nX-Hop: 1\r\nX-Upwire-Mode: delta\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\n\x1f\x8b!\r\n0\r\n\r\n"
    )
    async with (
        raw_upstream(answer(text)) as upstream,
        plain.request("GET", upstream.base, [("Cookie", "c=1")]) as response,
    ):
        assert (response.status, response.reason) == (418, "I am")
        assert response.headers == (
            ("Content-Encoding", "gzip"),
            ("Set-Cookie", "a=1"),
            ("set-cookie", "b=2"),
            ("X-N", "café"),
        )
        assert [chunk async for chunk in response.chunks()] == [b"\x1f\x8b!"]
    async with raw_upstream(answer(OK)) as again:
        await fetch(plain, "GET", again.base)
        assert again.requests[0].values("cookie") == []


async def test_redirects_are_answers(plain):
    """A redirect is handed to the client, and nobody goes there with its key."""
    async with (
        raw_upstream(answer(OK)) as elsewhere,
        raw_upstream(
            answer(b"HTTP/1.1 307 T\r\nLocation: %b/x\r\nContent-Length: 0\r\n\r\n" % elsewhere.base.encode())
        ) as upstream,
    ):
        status, headers, _ = await fetch(plain, "POST", upstream.base, [("Authorization", "Bearer k")], b"{}")
        assert status == 307 and headers[0] == ("Location", elsewhere.base + "/x")
        assert elsewhere.connections == 0


async def test_each_chunk_arrives_at_once(plain):
    """Events are passed on while the upstream has more to say."""
    go = asyncio.Event()

    async def play(connection, _request):
        await connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await go.wait()
        await connection.send(b"3\r\ntwo\r\n0\r\n\r\n")

    async with raw_upstream(play) as upstream, plain.request("GET", upstream.base, []) as response:
        chunks = response.chunks()
        assert await anext(chunks) == b"one"
        go.set()
        assert [chunk async for chunk in chunks] == [b"two"]


@pytest.mark.parametrize(
    ("parts", "closes"),
    [
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi"], True),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"], True),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nzz\r\n"], False),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", b"zz\r\n"], False),
        ([b""], True),
        ([b"SSH-2.0-x\r\n\r\n"], False),
        ([b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"], False),
    ],
    ids=["cut", "cut chunks", "bad chunk", "bad chunk later", "nothing", "not http", "switch"],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
async def test_a_broken_answer_is_lost_and_nothing_is_sent_twice(plain, parts, closes, method):
    """Whatever breaks after the request has gone out is UpstreamLost, on one connection, for every method."""

    async def play(connection, _request):
        for part in parts:
            await connection.send(part)
            await asyncio.sleep(0.02)
        if not closes:
            await connection.reader.read()

    async with raw_upstream(play, keep=False) as upstream:
        with pytest.raises(UpstreamLost):
            await asyncio.wait_for(fetch(plain, method, upstream.base), 5)
        assert len(upstream.requests) == 1


async def test_a_kept_connection_that_was_closed_is_not_used_for_another_try(plain):
    """A request that meets the end of a kept connection is reported as lost, not repeated."""

    async def play(connection, _request):
        if len(upstream.requests) == 1:
            await connection.send(OK)
        else:
            connection.reset()

    async with raw_upstream(play) as upstream:
        await fetch(plain, "GET", upstream.base)
        with pytest.raises(UpstreamLost):
            await fetch(plain, "GET", upstream.base)
        assert (len(upstream.requests), upstream.connections) == (2, 1)


@pytest.mark.parametrize("base", ["http://127.0.0.1:{port}/v1", "http://no-such-name.invalid/v1"])
async def test_an_upstream_that_cannot_be_reached_ran_nothing(plain, base, unused_tcp_port):
    """Refused connections and unknown names are UpstreamUnreachable, without a word from the request."""
    url = base.format(port=unused_tcp_port) + "/canary?key=canary"
    with pytest.raises(UpstreamUnreachable) as caught:
        await fetch(plain, "POST", url, [("Authorization", "canary")], b"canary")
    assert "canary" not in repr(caught.value) + caught.value.body().decode()
    assert caught.value.__cause__ is None


async def test_a_tls_handshake_that_never_ends_is_given_up():
    """The limit on connecting covers TLS; nothing was sent."""
    plain = PlainHttp(PlainOptions(connect_timeout=0.1))
    async with raw_upstream(answer(OK)) as upstream:
        with pytest.raises(UpstreamUnreachable):
            await fetch(plain, "GET", upstream.base.replace("http", "https", 1))
    await plain.close()


async def test_leaving_early_closes_the_connection(plain):
    """A body that is not read to its end, or a cancelled request, ends the upstream's connection."""

    async def play(connection, _request):
        await connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await connection.reader.readexactly(1)

    async with raw_upstream(play) as upstream:
        async with plain.request("GET", upstream.base, []) as response:
            assert await anext(response.chunks()) == b"one"
        await asyncio.wait_for(upstream.lost.wait(), 5)


async def test_cancelling_while_waiting_for_the_head_closes_the_connection(plain):
    """Cancellation before any answer reaches the upstream."""
    asked = asyncio.Event()

    async def play(connection, _request):
        asked.set()
        await connection.reader.readexactly(1)

    async with raw_upstream(play) as upstream, asyncio.TaskGroup() as group:
        task = group.create_task(fetch(plain, "POST", upstream.base, [], b"{}"))
        await asyncio.wait_for(asked.wait(), 5)
        task.cancel()
        await asyncio.wait_for(upstream.lost.wait(), 5)


async def test_a_body_that_breaks_breaks_the_request_and_says_why(plain):
    """What the body raised comes out, and the upstream never sees a complete request."""

    async def broken():
        yield b"abc"
        raise BadRequest("cut", code="cut")

    async with raw_upstream(answer(OK)) as upstream:
        with pytest.raises(BadRequest, match="cut"):
            await fetch(plain, "POST", upstream.base, [], broken())
        await asyncio.wait_for(upstream.lost.wait(), 5)
        assert upstream.requests == []


async def test_a_body_that_breaks_after_the_head_breaks_the_answer_too(plain):
    """When the upstream has begun to answer, a broken upload still ends the exchange."""
    begun = asyncio.Event()

    async def broken():
        yield b"abc"
        await begun.wait()
        raise BadRequest("cut", code="cut")

    async def play(connection, _request):
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi")
        await connection.reader.read()

    async def exchange(url):
        async with plain.request("POST", url, [], broken()) as response:
            begun.set()
            return [chunk async for chunk in response.chunks()]

    async with raw_upstream(play, read_body=False) as upstream:
        with pytest.raises(BadRequest, match="cut"):
            await exchange(upstream.base)


async def test_an_early_answer_ends_the_upload(plain):
    """An upstream that refuses before reading everything is heard, and the source is let go."""
    taken = 0

    async def endless():
        nonlocal taken
        while True:
            taken += 1
            yield bytes(65536)

    async def play(connection, _request):
        await connection.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        await connection.reader.readexactly(1 << 30)

    async with raw_upstream(play, read_body=False) as upstream:
        assert (await fetch(plain, "POST", upstream.base, [], endless()))[0] == 413
        before = taken
        await asyncio.wait_for(upstream.lost.wait(), 5)
        assert taken == before


async def test_twenty_megabytes_pass_both_ways(plain):
    """Large bodies are streamed up and down without change."""
    data = bytes(range(256)) * (20 * 4096)

    async def play(connection, request):
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(request.body))
        await connection.send(request.body)

    async with raw_upstream(play) as upstream:
        _, _, back = await fetch(plain, "POST", upstream.base, [], data)
    assert back == data
