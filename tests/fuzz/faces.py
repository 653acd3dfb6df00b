"""Fuzz target: mangled events of an upstream, through a running gateway, as a client of either face sees them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from unittest import mock

import aiohttp
from aiohttp import WSMsgType, web

from gateway import log
from tests.fuzz.choices import Choices
from tests.fuzz.exchanges import OURS, frames_of, scripts
from tests.gateways import running_gateway

LONGEST = 5.0
TERMINAL = ("response.completed", "response.incomplete", "response.failed")
_NAMED = json.dumps(OURS).encode()
GOOD = [frame.replace(b"resp_1", b"resp_0") for frame in scripts()[0]]
"""A whole response; its id must never be shown as the parent of another, because no client names it."""
FIRST = {"model": "m", "input": [{"role": "user", "content": "a"}], "store": False}
SETTINGS = {"upgrade_memory": 0.0, "log_level": "error", "ping_interval": 1.0, "ping_timeout": 1.0}


class Faces:
    """A gateway and an upstream that answers what it is told, in an event loop of their own; to be closed."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._stack = contextlib.AsyncExitStack()
        self._frames = []
        self._end = 0
        self._good = False
        self._failures = []
        self._run(self._open())

    def close(self):
        """Stop everything."""
        self._run(self._stack.aclose())
        self._loop.close()

    def check(self, data):
        """One turn, or a delta behind a turn that went well, answered with the lines of ``data``."""
        choices = Choices(data)
        stream, delta, self._end = choices.below(2), choices.below(2), choices.below(3)
        self._frames = frames_of(choices.rest())
        self._run(asyncio.wait_for(self._check(stream=bool(stream), delta=bool(delta)), LONGEST))
        failures, self._failures[:] = tuple(self._failures), ()
        assert not failures

    def _run(self, work):
        return self._loop.run_until_complete(work)

    async def _open(self):
        self._stack.enter_context(
            mock.patch.object(log, "failed", lambda what, failure: self._failures.append((what, failure)))
        )
        self._stack.enter_context(mock.patch.object(log, "turn_line"))
        app = web.Application()
        app.router.add_get("/v1/responses", self._socket)
        app.router.add_post("/v1/responses", self._post)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        upstream = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        self._url = (await self._stack.enter_async_context(running_gateway(upstream, **SETTINGS))).url
        self._session = await self._stack.enter_async_context(aiohttp.ClientSession())

    async def _socket(self, request):
        ws = web.WebSocketResponse(compress=False, max_msg_size=0)
        await ws.prepare(request)
        with contextlib.suppress(ConnectionError):
            async for message in ws:
                good, self._good = self._good, False
                parent = json.dumps(json.loads(message.data).get("previous_response_id")).encode()
                for frame in GOOD if good else self._frames:
                    await ws.send_frame(frame.replace(_NAMED, parent), WSMsgType.TEXT)
                if not good:
                    await self._leave(ws, request)
        return ws

    async def _leave(self, ws, request):
        if self._end < 2:
            await ws.close(code=(1000, 1011)[self._end])
        elif request.transport is not None:
            request.transport.close()

    async def _post(self, request):
        await request.read()
        return web.json_response({"id": "resp_http", "status": "completed", "output": [], "over": "http"})

    async def _check(self, *, stream, delta):
        body = {**FIRST, "stream": stream}
        if delta:
            self._good = True
            await self._ask(body)
            message = {"type": "message", "role": "assistant", "content": "hello"}
            body["input"] = [*FIRST["input"], message, {"role": "user", "content": "b"}]
        status, kind, raw, whole = await self._ask(body)
        if kind.startswith("text/event-stream"):
            assert stream
            assert status == 200
            check_stream(raw, whole=whole)
        else:
            assert whole
            check_object(status, raw, stream=stream)

    async def _ask(self, body):
        raw, whole = b"", False
        async with self._session.post(
            self._url + "/responses", json=body, headers={"authorization": "Bearer k"}
        ) as answer:
            with contextlib.suppress(aiohttp.ClientPayloadError):
                async for piece in answer.content.iter_any():
                    raw += piece
                whole = True
            return answer.status, answer.headers.get("content-type", ""), raw, whole


def check_stream(raw, *, whole):
    """Every event is one line of JSON under its own name; one ending, which is the upstream's if the body is whole."""
    assert raw.endswith(b"\n\n")
    kinds, ids = [], set()
    for part in raw[:-2].split(b"\n\n"):
        name, data = part.split(b"\n")
        assert name.startswith(b"event: ")
        assert data.startswith(b"data: ")
        told = json.loads(data[6:])
        assert told["type"].encode() == name[7:]
        kinds.append(told["type"])
        response = told.get("response")
        if told["type"] in (*TERMINAL, "response.created", "response.in_progress") and isinstance(
            response, dict
        ):
            assert response.get("previous_response_id") != "resp_0"
            ids |= {response["id"]} if isinstance(response.get("id"), str) else set()
    endings = [kind for kind in kinds if kind in TERMINAL]
    assert len(ids) <= 1
    assert len(endings) <= 1
    assert kinds[-1] in (*TERMINAL, "error")
    assert whole is not (kinds[-1] == "response.failed" and b'"upstream_connection_lost"' in data)


def check_object(status, raw, *, stream):
    """An error says so; a whole response has its output and is not one that failed."""
    told = json.loads(raw)
    if status != 200:
        assert 400 <= status < 600
        assert isinstance(told["error"], dict)
    elif "over" not in told:
        assert not stream
        assert isinstance(told["output"], list)
        assert told.get("previous_response_id") != "resp_0"


_SHARED = []


def check(data):
    """As ``Faces.check``, with a gateway that stays."""
    if not _SHARED:
        _SHARED.append(Faces())
    _SHARED[0].check(data)


def seeds():
    """Every script, for both faces, as a first turn and as a delta."""
    return [
        bytes([stream, delta, number % 3]) + b"\n".join(script)
        for number, script in enumerate(scripts())
        for stream in (0, 1)
        for delta in (0, 1)
    ]
