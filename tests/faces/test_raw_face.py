"""The bytes of an answer: head, framing and end, as a client without any library reads them."""

from __future__ import annotations

import json
import re

import pytest

from tests.faces.pairs import TOOLS, USER, pair, plain
from tests.faces.raw_client import RawClient

BODY = {"model": "gpt-5", "input": [USER], "tools": TOOLS}
OWN = {"x-upwire-mode", "x-upwire-reason", "x-request-id", "server-timing"}
# What every answer of the API has and no event carries over a socket.
NOT_OVER_A_SOCKET = {
    "openai-processing-ms", "openai-version", "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "server",
    "cache-control",
}  # fmt: skip


def events_of(body):
    """The events of a stream, by a reading that allows the API's own framing and no other."""
    pieces = re.findall(rb"event: ([a-z_.]+)\ndata: (\{[^\r\n]*\})\n\n", body)
    assert b"".join(b"event: %b\ndata: %b\n\n" % piece for piece in pieces) == body
    events = [json.loads(data) for _, data in pieces]
    assert [event["type"] for event in events] == [name.decode() for name, _ in pieces]
    return events


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_framing_and_head_of_turns(stream):
    """A stream is framed as the API frames it, and a head has no field that the API's has not, but our own."""
    body = {**BODY, "stream": stream}
    async with (
        pair() as sides,
        RawClient(sides.direct.url) as direct,
        RawClient(sides.gateway.url) as through,
    ):
        for _ in range(2):
            one = await direct.ask("POST", "/responses", body)
            other = await through.ask("POST", "/responses", body)

            assert other.line == one.line == "HTTP/1.1 200 OK"
            assert other.value("content-type") == one.value("content-type")
            assert len(other.names) == len(set(other.names))
            assert set(other.names) - OWN == set(one.names) - NOT_OVER_A_SOCKET - OWN
            assert re.fullmatch(r"req_[0-9a-f]{32}", other.value("x-request-id"))
            if stream:
                assert plain(events_of(other.body)) == plain(events_of(one.body))
            else:
                assert plain(json.loads(other.body)) == plain(json.loads(one.body))


async def test_head_of_an_answer_over_plain_http():
    """What goes over plain HTTP keeps every header of the upstream, once and with its own value."""
    async with (
        pair(mode="http") as sides,
        RawClient(sides.direct.url) as direct,
        RawClient(sides.gateway.url) as through,
    ):
        for stream in (True, False):
            one = await direct.ask("POST", "/responses", {**BODY, "stream": stream})
            other = await through.ask("POST", "/responses", {**BODY, "stream": stream})
            assert sorted(other.names) == sorted([*one.names, "x-upwire-mode", "x-upwire-reason"])
            for name in set(one.names) - {"x-request-id", "date", "content-length"}:
                assert other.value(name) == one.value(name)
            assert (events_of if stream else json.loads)(other.body)


async def test_one_connection_serves_request_after_request():
    """Streams and whole answers, turns and other requests, refused ones too, share one kept-alive connection."""
    async with pair() as sides, RawClient(sides.gateway.url) as client:
        for stream in (True, False, True):
            assert (await client.ask("POST", "/responses", {**BODY, "stream": stream})).status == 200
            assert (await client.ask("GET", "/models")).status == 200
            assert (
                await client.ask("POST", "/responses", {"model": "no-such-model", "input": "x"})
            ).status == 404
        client.write(client.request("POST", "/responses", BODY) + client.request("GET", "/models"))
        assert json.loads((await client.answer()).body)["object"] == "response"
        assert json.loads((await client.answer()).body)["object"] == "list"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("asks", [(), (("Connection", "close"),)], ids=["", "close"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_old_clients_and_closing_ones(version, asks, stream):
    """Where the API would close, we close; HTTP/1.0 gets no chunks; the body is whole in each case."""
    async with pair() as sides:
        seen = []
        for url in (sides.direct.url, sides.gateway.url):
            async with RawClient(url) as client:
                answer = await client.ask(
                    "POST", "/responses", {**BODY, "stream": stream}, version=version, headers=asks
                )
                if asks or version == "1.0":
                    assert await client.at_end()
                framing = [answer.value(name) for name in ("transfer-encoding", "connection")]
                content = events_of(answer.body) if stream else json.loads(answer.body)
                seen.append((answer.line, framing, plain(content)))
        assert seen[1] == seen[0]
        assert version == "1.1" or seen[1][1][0] is None


async def test_an_old_client_that_keeps_its_connection():
    """HTTP/1.0 with keep-alive goes on after an answer of known length, and ends with a stream, whose only end that is."""
    keeps = ("Connection", "keep-alive")
    async with pair() as sides:
        for body in (BODY, {**BODY, "model": "no-such-model"}, {**BODY, "background": True}):
            async with RawClient(sides.gateway.url) as client:
                whole = await client.ask("POST", "/responses", body, version="1.0", headers=[keeps])
                assert whole.value("connection") == "keep-alive"
                assert (await client.ask("GET", "/models", version="1.0")).status == 200
        for mode in ("auto", "http"):
            async with RawClient(sides.gateway.url) as client:
                asks = [keeps, ("x-upwire-mode", mode)]
                answer = await client.ask(
                    "POST", "/responses", {**BODY, "stream": True}, version="1.0", headers=asks
                )
                assert events_of(answer.body)[-1]["type"] == "response.completed"
                assert answer.value("connection") != "keep-alive"


@pytest.mark.parametrize("path", ["/models", "/responses", "/responses/resp_none", "/nowhere"])
async def test_head_requests(path):
    """HEAD has the status and the fields of the API, no body, and leaves the connection in step."""
    async with (
        pair() as sides,
        RawClient(sides.direct.url) as direct,
        RawClient(sides.gateway.url) as through,
    ):
        one, other = await direct.ask("HEAD", path), await through.ask("HEAD", path)
        assert (other.line, sorted(other.names)) == (one.line, sorted(one.names))
        assert other.value("content-length") == one.value("content-length")
        assert (await through.ask("GET", "/models")).status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/nowhere"), ("GET", "/responses"), ("PUT", "/responses"), ("DELETE", "/models")],
)
async def test_what_the_api_does_not_know(method, path):
    """Paths and methods that the API refuses are refused by it, not by us."""
    async with (
        pair() as sides,
        RawClient(sides.direct.url) as direct,
        RawClient(sides.gateway.url) as through,
    ):
        one, other = await direct.ask(method, path), await through.ask(method, path)
        assert (other.line, other.body, sorted(other.names)) == (one.line, one.body, sorted(one.names))


async def test_a_body_that_waits_or_comes_in_chunks():
    """A client that waits for 100 Continue, and one that sends its body chunked, get their turn."""
    data = json.dumps(BODY).encode()
    async with pair() as sides, RawClient(sides.gateway.url) as client:
        request = client.request("POST", "/responses", BODY, headers=[("Expect", "100-continue")])
        head, _, body = request.partition(b"\r\n\r\n")
        client.write(head + b"\r\n\r\n")
        assert (await client.answer()).line == "HTTP/1.1 100 Continue"
        client.write(body)
        assert (await client.answer()).status == 200

        head = client.request("POST", "/responses", headers=[("Transfer-Encoding", "chunked")])
        client.write(head + b"".join(b"1\r\n%c\r\n" % byte for byte in data) + b"0\r\n\r\n")
        answer = await client.answer()
        assert answer.status == 200
        assert json.loads(answer.body)["status"] == "completed"
