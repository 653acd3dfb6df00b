"""What an upstream sent before it broke off is given to whoever reads, also when the end is known before anybody reads."""

import asyncio

import pytest

from gateway.errors import UpstreamLost
from gateway.upstream.plain import PlainHttp

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("pieces", [[b"5\r\nhello\r\n"], [b"5\r\nhello\r\n", b"6\r\n world\r\n"]])
async def test_the_last_bytes_before_a_break_are_not_lost(pieces):
    """The reader gets them, and then learns that the body is not complete."""

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"".join(pieces))
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    plain = PlainHttp()
    seen = b""

    async def read():
        nonlocal seen
        async with plain.request("GET", f"http://127.0.0.1:{port}/", ()) as response:
            async with asyncio.timeout(5):
                while response._response.content.exception() is None:  # noqa: ASYNC110 (the library has no event for it)
                    await asyncio.sleep(0)
            async for chunk in response.chunks():
                seen += chunk

    try:
        with pytest.raises(UpstreamLost):
            await read()
        assert seen == b"".join(piece.split(b"\r\n")[1] for piece in pieces)
    finally:
        await plain.close()
        server.close()
        await server.wait_closed()
