"""The openai SDK as its users get it, with nothing set but the base URL; one face for its blocking and its asyncio client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import openai


class Blocking:
    """The blocking client, in a thread of its own for each call."""

    def __init__(self, url, **options):
        self.client = openai.OpenAI(base_url=url, api_key="sk-test", **options)

    async def close(self):
        self.client.close()

    async def call(self, choose: Callable[[Any], Callable[..., Any]], *args, **fields):
        """Call the method of the client that ``choose`` picks."""
        return await asyncio.to_thread(choose(self.client), *args, **fields)

    async def events(self, seen, **fields):
        """Append the events of a stream to ``seen``, as far as it comes."""

        def run():
            with self.client.responses.create(stream=True, **fields) as stream:
                seen.extend(stream)

        await asyncio.to_thread(run)

    async def helper(self, seen, **fields):
        """The same through the stream helper; returns its final response."""

        def run():
            with self.client.responses.stream(**fields) as stream:
                for event in stream:
                    seen.append(event)
                return stream.get_final_response()

        return await asyncio.to_thread(run)

    async def lines(self, **fields):
        """The lines of a raw streaming response."""

        def run():
            with self.client.responses.with_streaming_response.create(stream=True, **fields) as response:
                return response.status_code, list(response.iter_lines())

        return await asyncio.to_thread(run)

    async def download(self, file_id):
        return await asyncio.to_thread(lambda: self.client.files.content(file_id).read())


class Asyncio:
    """The asyncio client."""

    def __init__(self, url, **options):
        self.client = openai.AsyncOpenAI(base_url=url, api_key="sk-test", **options)

    async def close(self):
        await self.client.close()

    async def call(self, choose: Callable[[Any], Callable[..., Any]], *args, **fields):
        """Call the method of the client that ``choose`` picks."""
        return await choose(self.client)(*args, **fields)

    async def events(self, seen, **fields):
        """Append the events of a stream to ``seen``, as far as it comes."""
        async with await self.client.responses.create(stream=True, **fields) as stream:
            async for event in stream:
                seen.append(event)

    async def helper(self, seen, **fields):
        """The same through the stream helper; returns its final response."""
        async with self.client.responses.stream(**fields) as stream:
            async for event in stream:
                seen.append(event)
            return await stream.get_final_response()

    async def lines(self, **fields):
        """The lines of a raw streaming response."""
        asked = self.client.responses.with_streaming_response.create(stream=True, **fields)
        async with asked as response:
            return response.status_code, [line async for line in response.iter_lines()]

    async def download(self, file_id):
        return (await self.client.files.content(file_id)).read()


@contextlib.asynccontextmanager
async def sdk_pair(kind, sides, **options):
    """One client of ``kind`` for the direct upstream, and one for the gateway."""
    clients = [kind(url, **options) for url in (sides.direct.url, sides.gateway.url)]
    try:
        yield clients
    finally:
        for client in clients:
            await client.close()


async def outcome(asked):
    """What a call gave, or how it failed: the exception's class and all that a program reads from it."""
    try:
        return await asked
    except openai.APIError as error:
        told = {
            name: getattr(error, name, None)
            for name in ("status_code", "code", "param", "type", "body", "message")
        }
        headers = getattr(getattr(error, "response", None), "headers", {})
        return {"raised": type(error).__name__, **told, "retry-after": headers.get("retry-after")}
