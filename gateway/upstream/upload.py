"""A request body on its way upstream over plain HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp

_SLICE = 256 * 1024


class Upload:
    """A request body on its way; remembers why it broke, and tells when nobody reads its source any more.

    ``response`` is the answer that came before the body was all sent; it is closed should the body break.
    """

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._reading = asyncio.Event()
        self._reading.set()
        self.failure: Exception | None = None
        self.response: aiohttp.ClientResponse | None = None

    def __aiter__(self) -> Upload:
        return self

    async def __anext__(self) -> bytes:
        self._reading.clear()
        try:
            return await anext(self._chunks)
        except StopAsyncIteration:
            raise
        except Exception as failure:
            self.failure = failure
            if self.response is not None:
                self.response.close()
            raise
        finally:
            self._reading.set()

    async def settled(self) -> None:
        """Wait until the source is not being read; the library cancels its reader without waiting for it."""
        await self._reading.wait()


async def slices(body: bytes) -> AsyncIterator[bytes]:
    """``body`` in pieces that are written without holding up anybody else."""
    view = memoryview(body)
    for start in range(0, len(view), _SLICE):
        yield view[start : start + _SLICE]  # type: ignore[misc]
