"""A plain pass-through of aiohttp's server and client, streamed both ways. Run as ``python -m tests.bench.passthrough PORT``."""

from __future__ import annotations

import sys

import aiohttp
from aiohttp import web

_DROPPED = {"host", "connection", "transfer-encoding"}


async def application(upstream):
    """The application that passes everything to ``upstream``."""
    session = aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout())

    async def handle(request):
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in _DROPPED]
        async with session.request(
            request.method, upstream + request.raw_path, headers=headers, data=request.content.iter_any()
        ) as answer:
            response = web.StreamResponse(status=answer.status)
            response.content_type = answer.content_type
            response.enable_chunked_encoding()
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    async def close(_):
        await session.close()

    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", handle)
    app.on_cleanup.append(close)
    return app


def main():
    web.run_app(
        application(f"http://127.0.0.1:{sys.argv[1]}"), host="127.0.0.1", port=0, access_log=None, print=_tell
    )


def _tell(text):
    for word in text.split():
        if word.startswith("http://127.0.0.1:"):
            sys.stdout.write(word.rpartition(":")[2] + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
