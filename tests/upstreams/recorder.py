"""Stands between a gateway and an upstream and writes down every frame, without changing any."""

import asyncio
import contextlib
import json
from dataclasses import dataclass

import aiohttp
from aiohttp import web

_DROPPED = {"host", "connection", "upgrade", "transfer-encoding", "content-length"}


@dataclass
class Frame:
    """One text message: on which socket, from ``client`` or ``server``, and what it says."""

    socket: int
    sender: str
    data: dict
    size: int


class Recorder:
    """Listens at ``url`` while entered; ``frames`` are in the order in which they passed, ``posts`` the plain HTTP requests."""

    def __init__(self, upstream):
        self._upstream = upstream
        self.frames = []
        self.posts = []
        self.handshakes = []
        self.closes = []

    def sent(self):
        """What the gateway sent over sockets."""
        return [frame for frame in self.frames if frame.sender == "client"]

    async def __aenter__(self):
        self._session = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=60),
        )
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()
        await self._session.close()

    async def _serve(self, request):
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in _DROPPED and not name.lower().startswith("sec-websocket-")
        }
        target = self._upstream + request.path_qs
        if request.headers.get("upgrade", "").lower() == "websocket":
            return await self._socket(request, target, headers)
        body = await request.read()
        if request.method == "POST":
            self.posts.append(json.loads(body))
        async with self._session.request(request.method, target, headers=headers, data=body) as answer:
            given = {n: v for n, v in answer.headers.items() if n.lower() not in _DROPPED}
            response = web.StreamResponse(status=answer.status, headers=given)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            return response

    async def _socket(self, request, target, headers):
        self.handshakes.append(headers)
        number = len(self.handshakes)
        try:
            far = await self._session.ws_connect(target, headers=headers, max_msg_size=0, compress=0)
        except aiohttp.WSServerHandshakeError as refused:
            return web.Response(status=refused.status)
        near = web.WebSocketResponse(max_msg_size=0, compress=False)
        await near.prepare(request)

        async def pass_on(source, target, sender):
            async for message in source:
                if message.type is aiohttp.WSMsgType.TEXT:
                    self.frames.append(Frame(number, sender, json.loads(message.data), len(message.data)))
                    await target.send_str(message.data)
            if sender == "server":
                self.closes.append(source.close_code)
            with contextlib.suppress(ConnectionError):
                await target.close(code=source.close_code or 1000)

        await asyncio.gather(pass_on(near, far, "client"), pass_on(far, near, "server"))
        return near
