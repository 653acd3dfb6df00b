"""Request bodies: framed, decoded and bounded, without holding up anybody else.

The content codings are undone piece by piece. What comes out is limited in bytes and in proportion to what came in, an
unfinished or overlong stream is refused, and the event loop gets its turn after every MiB.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Protocol

import brotli  # type: ignore[import-untyped]
from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError

from gateway.errors import BadRequest

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CODINGS = "gzip, deflate, br, zstd"
"""What is understood, as an Accept-Encoding value."""

PIECE = 1024 * 1024
"""Most bytes that are decoded between two turns of the event loop."""

MODEST = 48 * 1024 * 1024
"""Decoded bytes that any body may have, however small it was when it came."""

RATIO = 1000
"""Beyond ``MODEST``, decoded bytes for each byte that came; real histories stay far below."""

_MAX_STAGES = 4
_MAX_MEMBERS = 4096


async def read_body(request: web.Request, *, max_decoded: int) -> bytes:
    """The whole body of ``request``, decoded; see ``take_body``."""
    parts: list[bytes] = []
    await take_body(request, parts.append, max_decoded=max_decoded)
    return b"".join(parts)


async def take_body(
    request: web.Request,
    take: Callable[[bytes], None],
    *,
    max_decoded: int,
    patience: float | None = None,
) -> None:
    """Give the body of ``request``, decoded, to ``take`` piece by piece as it arrives; ``max_decoded`` in bytes.

    ``patience`` is for how many seconds nothing of it may come. Raises BadRequest: 413 over the cap (at once if the length says so,
    and never having read much more), 415 for an unknown content coding, 408 for a body that does not come, 400 for one that is cut,
    corrupt, has bytes behind its end, or is not framed as HTTP.
    """
    stages = _stages(request.headers.getall("Content-Encoding", ()))
    if (request.content_length or 0) > max_decoded:
        raise _too_large()
    if not request.body_exists:
        return
    if patience is None or request.content.is_eof():
        # All of it is here, as it mostly is.
        await _take(request, take, stages, max_decoded)
        return
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(patience) as limit:

            def came(piece: bytes) -> None:
                limit.reschedule(loop.time() + patience)
                take(piece)

            await _take(request, came, stages, max_decoded)
    except TimeoutError:
        raise BadRequest(
            "The rest of the request body did not come in time.", code="body_timeout", status=408
        ) from None


async def _take(
    request: web.Request, take: Callable[[bytes], None], stages: Sequence[_Stage], max_decoded: int
) -> None:
    came = decoded = worked = 0
    async for chunk in body_chunks(request):
        came += len(chunk)
        if came > max_decoded:
            raise _too_large()
        for size, piece in _decode(chunk, stages):
            decoded += len(piece)
            worked += size
            if decoded > max_decoded or worked > max(MODEST, came * RATIO) * max(len(stages), 1):
                raise _too_large()
            if piece:
                take(piece)
            if stages:
                await asyncio.sleep(0)
    if not all(stage.complete for stage in stages):
        raise BadRequest("The compressed request body ends too early.", code="invalid_body")


async def body_chunks(request: web.Request) -> AsyncIterator[bytes]:
    """The body of ``request`` as it arrives, not decoded; asks a client for it that waits for 100 Continue.

    Raises BadRequest if the body is not framed as HTTP.
    """
    if request.version >= (1, 1) and request.headers.get("Expect") and not request.content.is_eof():
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # An interim answer is none: whoever asks later whether an answer has begun must not be misled.
        request.writer.output_size = 0
    try:
        async for chunk in request.content.iter_any():
            yield chunk
    except RequestPayloadError:
        raise BadRequest("The request body is not framed as its headers say.", code="invalid_body") from None


class _Stage(Protocol):
    """One content coding being undone."""

    @property
    def complete(self) -> bool:
        """Whether what came so far is a whole stream."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decode ``data``, at most about ``PIECE`` bytes at a time."""


def _decode(data: bytes, stages: Sequence[_Stage]) -> Iterator[tuple[int, bytes]]:
    """Send ``data`` through ``stages``: pairs of how many bytes any stage made, and of the outcome of the last."""
    if not stages:
        yield len(data), data
        return
    try:
        for piece in stages[0].feed(data):
            if len(stages) == 1:
                yield len(piece), piece
            else:
                yield len(piece), b""
                yield from _decode(piece, stages[1:])
    except (zlib.error, brotli.error, zstd.ZstdError, EOFError):
        raise _corrupt() from None


def _stages(headers: Sequence[str]) -> list[_Stage]:
    names = [name.strip().lower() for header in headers for name in header.split(",")]
    names = [name for name in names if name not in ("", "identity")]
    if len(names) > _MAX_STAGES or any(name not in _KNOWN for name in names):
        raise BadRequest(
            f"The content coding of the request body is not supported; supported are {CODINGS}.",
            code="unsupported_content_encoding",
            status=415,
        )
    # The header lists codings in the order in which they were applied.
    return [_KNOWN[name]() for name in reversed(names)]


class _Gzip:
    def __init__(self) -> None:
        self._member: zlib._Decompress | None = None
        self._members = 0

    @property
    def complete(self) -> bool:
        return self._members > 0 and self._member is None

    def feed(self, data: bytes) -> Iterator[bytes]:
        more = bool(data)
        while more:
            if self._member is None:
                self._member = zlib.decompressobj(31)
            piece = self._member.decompress(data, PIECE)
            data = self._member.unconsumed_tail
            more = bool(data) or len(piece) == PIECE
            if self._member.eof:
                data = self._member.unused_data
                more = bool(data)
                self._member = None
                self._members = _counted(self._members)
            yield piece


class _Deflate:
    """Both that the name is used for: zlib's format, as specified, and the bare stream, as some send."""

    def __init__(self) -> None:
        self._held = b""
        self._stream: zlib._Decompress | None = None

    @property
    def complete(self) -> bool:
        return self._stream is not None and self._stream.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._stream is None:
            data = self._held + data
            if len(data) < 2:
                self._held = data
                return
            zlib_header = data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
            self._stream = zlib.decompressobj(15 if zlib_header else -15)
        more = bool(data)
        while more:
            if self._stream.eof:
                raise _corrupt()
            piece = self._stream.decompress(data, PIECE)
            data = self._stream.unconsumed_tail or self._stream.unused_data
            more = bool(data) or (len(piece) == PIECE and not self._stream.eof)
            yield piece


class _Brotli:
    def __init__(self) -> None:
        self._stream = brotli.Decompressor()

    @property
    def complete(self) -> bool:
        return bool(self._stream.is_finished())

    def feed(self, data: bytes) -> Iterator[bytes]:
        while True:
            # Bytes behind the end make this raise.
            piece = self._stream.process(data, output_buffer_limit=PIECE)
            if not piece and self._stream.can_accept_more_data():
                return
            yield piece
            # It may claim to want more input while it still holds output; only an empty piece tells.
            data = b""


class _Zstd:
    def __init__(self) -> None:
        self._frame: zstd.ZstdDecompressor | None = None
        self._frames = 0

    @property
    def complete(self) -> bool:
        return self._frames > 0 and self._frame is None

    def feed(self, data: bytes) -> Iterator[bytes]:
        more = bool(data)
        while more:
            if self._frame is None:
                self._frame = zstd.ZstdDecompressor()
            piece = self._frame.decompress(data, PIECE)
            more, data = not self._frame.needs_input, b""
            if self._frame.eof:
                data = self._frame.unused_data
                more = bool(data)
                self._frame = None
                self._frames = _counted(self._frames)
            yield piece


_KNOWN: dict[str, Callable[[], _Stage]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstd,
}


def _counted(members: int) -> int:
    if members >= _MAX_MEMBERS:
        raise _corrupt()
    return members + 1


def _too_large() -> BadRequest:
    return BadRequest(
        "The request body is larger than this gateway takes.", code="body_too_large", status=413
    )


def _corrupt() -> BadRequest:
    return BadRequest(
        "The request body is not what its content coding says, or has bytes behind its end.",
        code="invalid_body",
    )
