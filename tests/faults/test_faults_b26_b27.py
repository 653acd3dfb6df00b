"""Faults that others met: clients that leave early, and headers that lie about the body."""

import asyncio
import gc
import gzip
import json
import socket
import struct

import brotli
import pytest
from backports import zstd

from gateway.simulator import Fault
from gateway.simulator import faults as f
from tests.faults.scenes import answers, body, said, scene, user
from tests.gateways import Api, running_gateway
from tests.raw_http import head, raw_upstream, talk

# -- B26

STALL = (f.Stall(),)
KEEPALIVES = (f.SendEvent({"type": "keepalive", "sequence_number": 0}), f.Silence(0.02)) * 1500
LEAVING = ["fin", "half_close", "rst"]


async def ask_raw(url, sent):
    """Send a turn on a connection of its own, and hand the connection over."""
    port = int(url.split(":")[2].split("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(sent).encode()
    writer.write(
        b"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer sk-test\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data)
    )
    await writer.drain()
    return reader, writer


def leave(writer, how):
    """Leave by closing, by ending only what is sent, or by a reset."""
    if how == "half_close":
        writer.write_eof()
        return
    if how == "rst":
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort() if how == "rst" else writer.close()


async def until_running(run, count):
    """Wait until so many turns run."""
    async with asyncio.timeout(2):
        while (await run.stats())["turns"]["in_flight"] != count:  # noqa: ASYNC110 (asked over HTTP)
            await asyncio.sleep(0.005)


@pytest.fixture
async def nothing_unretrieved(caplog):
    """No failure of a task or future that nobody looked at."""
    found = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: found.append(context["message"]))
    yield
    gc.collect()
    assert found == []
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("actions", [STALL, KEEPALIVES], ids=["silence", "keepalives"])
@pytest.mark.parametrize("how", LEAVING)
@pytest.mark.usefixtures("nothing_unretrieved")
async def test_b26_a_client_that_leaves_before_the_first_event_ends_its_turn(how, actions, stream):
    """The upstream sees the socket close, nothing stays busy, and the conversation stands at its last completed turn."""
    async with scene(answers([said("a1")], [said("a2")])) as run:
        first = await run.api.create(body([user("u1")], store=True))
        history = [user("u1"), *first.answer["output"]]
        run.simulator.faults.add(Fault(actions=actions))
        reader, writer = await ask_raw(
            run.gateway.url, body([*history, user("left")], store=True, stream=stream)
        )
        await run.simulator.until(lambda journal: len(journal.creates()) == 2)
        await asyncio.sleep(0.05)

        leave(writer, how)
        await run.simulator.until(lambda journal: journal.closed(), seconds=2)
        after = await run.until_idle(seconds=2)

        assert await reader.read() == b""
        writer.close()
        assert (after["turns"]["cancelled"], after["turns"]["failed"]) == (1, 0)
        assert after["connections"]["open"] == 0
        again = await run.api.create(body([*history, user("u2")], store=True))
        assert (again.status, again.mode) == (200, "delta")
        assert run.frames[-1].parent == first.answer["id"]
        assert run.frames[-1].items == [user("u2")]


@pytest.mark.parametrize("how", LEAVING)
@pytest.mark.usefixtures("nothing_unretrieved")
async def test_b26_over_plain_http_the_upstream_sees_it_too(how):
    """A turn that went over plain HTTP ends upstream as soon as its client has gone."""
    async with scene(mode="http") as run:
        run.simulator.faults.add(Fault(actions=f.Stall()))
        _, writer = await ask_raw(run.gateway.url, body([user("u1")]))
        await run.simulator.until(lambda journal: len(journal.creates("http")) == 1)

        leave(writer, how)
        await run.simulator.until(lambda journal: journal.creates()[0].outcome != "running", seconds=2)

        assert run.posts[0].outcome in ("cancelled", "broken")
        assert (await run.until_idle())["turns"]["cancelled"] == 1
        writer.close()


@pytest.mark.parametrize("how", LEAVING)
@pytest.mark.usefixtures("nothing_unretrieved")
async def test_b26_a_client_that_leaves_in_the_queue_for_a_socket_sends_nothing(how):
    """Its turn never goes upstream, and the turn that has the socket is not disturbed."""
    async with scene(sockets_per_identity=1, socket_wait=30) as run:
        run.simulator.faults.add(Fault(actions=f.Silence(0.6)))
        busy = asyncio.get_running_loop().create_task(run.api.create(body([user("first")])))
        await run.simulator.until(lambda journal: journal.creates())
        _, writer = await ask_raw(run.gateway.url, body([user("queued")]))
        await until_running(run, 2)

        leave(writer, how)
        await until_running(run, 1)

        assert (await busy).status == 200
        after = await run.until_idle()
        assert after["turns"]["cancelled"] == 1
        assert [create.items for create in run.simulator.journal.creates()] == [[user("first")]]
        assert (await run.api.create(body([user("next")]))).mode == "full"
        writer.close()


# -- B27

TEXT = b'{"object":"list","data":["' + b"x" * 5000 + b'"]}'
CODINGS = {
    "gzip": gzip.compress(TEXT),
    "br": brotli.compress(TEXT),
    "zstd": zstd.compress(TEXT),
    "identity": TEXT,
}
OTHERS = (
    b"Connection: X-a\r\nx-A: hop\r\nKeep-Alive: timeout=5\r\nTrailer: x-sum\r\nSet-Cookie: one=1; Path=/\r\nset-cookie: two=2\r\n"
    b"X-Request-Id: req_1\r\nX-RateLimit-Remaining-Requests: 9\r\nContent-Type: application/json\r\n"
)


def coded_answer(status, coding, chunked):
    """A raw answer whose body is coded and framed as asked."""
    data = CODINGS[coding]
    lines = b"" if coding == "identity" else b"Content-Encoding: %b\r\n" % coding.encode()
    if chunked:
        framed = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (10, data[:10], len(data) - 10, data[10:])
        return b"HTTP/1.1 %d X\r\n%b%bTransfer-Encoding: chunked\r\n\r\n" % (status, OTHERS, lines) + framed
    return b"HTTP/1.1 %d X\r\n%b%bContent-Length: %d\r\n\r\n" % (status, OTHERS, lines, len(data)) + data


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/models", 200),
        ("GET", "/files/file-1/content", 200),
        ("GET", "/models/none", 404),
        ("POST", "/responses", 200),
        ("POST", "/responses", 400),
    ],
    ids=["list", "file", "error", "turn", "refused turn"],
)
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("coding", list(CODINGS))
async def test_b27_headers_describe_the_bytes_that_come(coding, chunked, method, path, status):
    """The client decodes what it gets; headers of the connection are gone, cookies, ids and limits are not."""

    async def play(connection, _request):
        await connection.send(coded_answer(status, coding, chunked))

    async with (
        raw_upstream(play) as upstream,
        running_gateway(upstream.base, mode="http") as gateway,
        Api(gateway.url) as api,
    ):
        sent = {"json": body([user("u")])} if method == "POST" else {}
        async with api.session.request(method, gateway.url + path, headers=api.headers, **sent) as answer:
            assert await answer.read() == TEXT
            fields = answer.headers
    assert answer.status == status
    assert fields.get("Content-Encoding", "identity") == coding
    assert fields.get("Content-Length") == (None if chunked else str(len(CODINGS[coding])))
    assert not {"x-a", "keep-alive", "trailer"} & {name.lower() for name in fields}
    assert fields.getall("Set-Cookie") == ["one=1; Path=/", "two=2"]
    assert (fields["X-Request-Id"], fields["X-RateLimit-Remaining-Requests"]) == ("req_1", "9")


@pytest.mark.parametrize(
    ("method", "answer", "length"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1234\r\n\r\n", "1234"),
        ("GET", b"HTTP/1.1 204 No Content\r\nX-Request-Id: req_1\r\n\r\n", None),
        ("GET", b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\nContent-Length: 77\r\n\r\n', "77"),
    ],
    ids=["head", "204", "304"],
)
async def test_b27_answers_without_a_body_have_none(method, answer, length):
    """HEAD, 204 and 304 end with their head, and the length that the upstream named is not lost."""

    async def play(connection, _request):
        await connection.send(answer)

    async with raw_upstream(play) as upstream, running_gateway(upstream.base) as gateway:
        port = int(gateway.root.rpartition(":")[2])
        request = b"%b /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % method.encode()
        status, fields, rest = head(await talk(port, request))
    assert status == int(answer.split(b" ")[1])
    assert fields.get("content-length") == length
    assert "transfer-encoding" not in fields
    assert rest == b""


async def test_b27_request_headers_of_the_connection_stay_behind():
    """What the client's Connection header lists, and the known ones, do not go upstream."""

    async def play(connection, _request):
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with raw_upstream(play) as upstream, running_gateway(upstream.base) as gateway:
        port = int(gateway.root.rpartition(":")[2])
        await talk(
            port,
            b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close, X-a\r\nX-A: 1\r\nX-b: 2\r\nTE: trailers\r\n\r\n",
        )
        [request] = upstream.requests
    assert {name.lower() for name, _ in request.fields} == {"host", "x-b"}
