"""Small proxies for tests, in the test's own loop: HTTP (CONNECT and absolute targets) and SOCKS5, each with credentials or without.

``names`` are hosts that only the proxy can find; ``asked`` lists what clients wanted, as they wrote it.
"""

import asyncio
import base64
import contextlib
import ipaddress
import re
import ssl
from urllib.parse import urlsplit

NAMES = {"api.test": "127.0.0.1"}


class _Proxy:
    def __init__(self, *, credentials=None, names=NAMES, certificate=None, refuse=0):
        self.credentials = credentials
        self.names = names
        self.refuse = refuse
        self.asked = []
        self.turned_away = 0
        self.port = 0
        self._tls = None
        if certificate is not None:
            self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._tls.load_cert_chain(certificate)
        self._server = None

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        await self._server.wait_closed()

    def url(self, scheme, who=None):
        """The URL of the proxy; ``who`` is ``name:password``, escaped."""
        return f"{scheme}://{who + '@' if who else ''}127.0.0.1:{self.port}"

    async def _serve(self, reader, writer):
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                await self._talk(reader, writer)
        finally:
            writer.close()

    async def _open(self, host, port):
        return await asyncio.open_connection(self.names.get(host, host), port)

    @staticmethod
    async def _join(reader, writer, far_reader, far_writer):
        async def one_way(source, target):
            with contextlib.suppress(OSError):
                while data := await source.read(65_536):
                    target.write(data)
                    await target.drain()
            target.close()

        await asyncio.gather(one_way(reader, far_writer), one_way(far_reader, writer))


class HttpProxy(_Proxy):
    """``refuse`` is the status that every CONNECT is answered with."""

    async def _talk(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, target, _ = head.split(None, 2)
        if self.credentials is not None:
            wanted = base64.b64encode(self.credentials.encode()).decode()
            if f"proxy-authorization: basic {wanted.lower()}\r\n" not in head.lower():
                self.turned_away += 1
                writer.write(
                    b"HTTP/1.1 407 Who are you\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n"
                )
                await writer.drain()
                return
        self.asked.append((method, target))
        if method == "CONNECT":
            if self.refuse:
                writer.write(f"HTTP/1.1 {self.refuse} No\r\nContent-Length: 0\r\n\r\n".encode())
                await writer.drain()
                return
            host, _, port = target.rpartition(":")
            far = await self._open(host.strip("[]"), int(port))
            writer.write(b"HTTP/1.1 200 Go on\r\n\r\n")
        else:
            parts = urlsplit(target)
            far = await self._open(parts.hostname, parts.port or 80)
            path = f"{parts.path}?{parts.query}" if parts.query else parts.path
            head = head.replace(target, path, 1)
            far[1].write(re.sub(r"(?i)proxy-authorization:[^\r]*\r\n", "", head).encode("latin-1"))
        await self._join(reader, writer, *far)


class SocksProxy(_Proxy):
    """``refuse`` is the reply code that every request is answered with."""

    async def _talk(self, reader, writer):
        version, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        wanted = 0 if self.credentials is None else 2
        if version != 5 or wanted not in methods:
            self.turned_away += 1
            writer.write(b"\x05\xff")
            return
        writer.write(bytes((5, wanted)))
        if wanted:
            await reader.readexactly(1)
            told = [(await reader.readexactly((await reader.readexactly(1))[0])).decode() for _ in range(2)]
            if ":".join(told) != self.credentials:
                self.turned_away += 1
                writer.write(b"\x01\x01")
                return
            writer.write(b"\x01\x00")
        _, _, _, kind = await reader.readexactly(4)
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            host = str(ipaddress.ip_address(await reader.readexactly(4 if kind == 1 else 16)))
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.asked.append((kind, f"{host}:{port}"))
        code = self.refuse
        if not code:
            try:
                far = await self._open(host, port)
            except OSError:
                code = 5
        writer.write(bytes((5, code, 0, 1, 0, 0, 0, 0, 0, 0)))
        if not code:
            await self._join(reader, writer, *far)
