"""Upstreams that cannot be reached at all: the client gets the error that plain HTTP gives, at the price of one dial."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from dataclasses import dataclass

import pytest

from tests.gateways import Api, running_gateway

BODY = {"model": "gpt-5", "input": "hello"}


@dataclass
class Counted:
    """A server that counts who connects."""

    port: int = 0
    connections: int = 0


@contextlib.asynccontextmanager
async def speaking(text, *, then_close=True):
    """A server that sends ``text`` to whoever connects, and nothing else."""
    counted = Counted()
    writers = []

    async def serve(_reader, writer):
        counted.connections += 1
        writers.append(writer)
        writer.write(text)
        if then_close:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    counted.port = server.sockets[0].getsockname()[1]
    try:
        yield counted
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()


async def ask_many(upstream, **settings):
    """Twenty requests in sequence and twenty at once; all answers, which are told to be alike for both modes."""
    async with running_gateway(upstream, **settings) as gateway, Api(gateway.url) as api:
        bodies = [{**BODY, "stream": number % 2 == 0} for number in range(20)]
        one_by_one = [await api.create(body) for body in bodies]
        return one_by_one + await asyncio.gather(*(api.create(body) for body in bodies))


def check(answers, plain):
    """All are the one error of ours that plain HTTP ends with, and say that nothing was sent."""
    assert {answer.status for answer in answers} == {answer.status for answer in plain} == {502}
    assert {answer.raw for answer in answers} == {answer.raw for answer in plain}
    assert {answer.headers["content-type"] for answer in answers} == {"application/json"}
    assert len({answer.raw for answer in answers}) == 1
    return answers[0].answer["error"]


async def test_no_connection(unused_tcp_port):
    """A refused connection is a 502 that says so."""
    upstream = f"http://127.0.0.1:{unused_tcp_port}/v1"
    error = check(await ask_many(upstream), await ask_many(upstream, mode="http"))
    assert error["code"] == "upstream_unreachable"
    assert "no connection" in error["message"]


async def test_no_such_name(monkeypatch):
    """A name that nobody knows is a 502 that says so; beside the requests themselves one dial asks for it."""
    if not isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop):
        pytest.skip("this loop looks names up by itself, where no test can see it")
    lookups = []
    known = socket.getaddrinfo

    def unknown(host, *args, **kwargs):
        if host != "api.test.invalid":
            return known(host, *args, **kwargs)
        lookups.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    upstream = "http://api.test.invalid/v1"
    answers = await ask_many(upstream)
    assert 1 < len(lookups) <= len(answers) + 1
    error = check(answers, await ask_many(upstream, mode="http"))
    assert error["code"] == "upstream_unreachable"
    assert "name is not known" in error["message"]


async def test_no_tls():
    """A server that does not speak TLS is a 502 that says so; the sockets cost one dial beside the requests themselves."""
    async with speaking(b"HTTP/1.1 400 Bad Request\r\n\r\n") as server:
        upstream = f"https://127.0.0.1:{server.port}/v1"
        answers = await ask_many(upstream)
        assert server.connections == len(answers) + 1
        error = check(answers, await ask_many(upstream, mode="http"))
    assert error["code"] == "upstream_unreachable"
    assert "TLS" in error["message"]


async def test_no_http():
    """A server that talks something else is a 502 after each request, which may have run, and one dial in all."""
    async with speaking(b"220 mail.example ESMTP\r\n") as server:
        upstream = f"http://127.0.0.1:{server.port}/v1"
        answers = await ask_many(upstream)
        assert server.connections == len(answers) + 1
        error = check(answers, await ask_many(upstream, mode="http"))
    assert error["code"] == "upstream_connection_lost"


async def test_tls_that_never_answers():
    """A server that accepts and says nothing costs one dial's time, then the time that plain HTTP takes to give up."""
    async with speaking(b"", then_close=False) as server:
        began = time.monotonic()
        async with (
            running_gateway(f"https://127.0.0.1:{server.port}/v1", dial_timeout=0.2) as gateway,
            Api(gateway.url) as api,
        ):
            answers = await asyncio.gather(*(api.create(BODY) for _ in range(20)))
            assert {answer.answer["error"]["code"] for answer in answers} == {"upstream_unreachable"}
        assert server.connections == 21
        assert time.monotonic() - began < 3
