"""Plain HTTP to the upstream: what the client asked for goes out as it came, and the answer comes back as it is.

Nothing is added, decoded, followed or remembered: no headers of the library's own, no decompression, no redirects, no cookies,
no settings from the environment. Nothing is ever sent twice, not even after a kept-alive connection turns out to be closed:
the upstream may have begun. To make that rare, a connection is reused only while it has been idle for less than the shortest
idle limit of common servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.client_middlewares import ClientHandlerType
from multidict import CIMultiDict
from yarl import URL

from gateway.errors import GatewayError, UpstreamLost, UpstreamUnreachable
from gateway.upstream.connector import PlainOptions, connector, http_proxy
from gateway.upstream.identity import OWN_PREFIX, header_pairs, one_spelling, response_headers
from gateway.upstream.upload import Upload, slices

_MAX_HEADERS = 512

# Raised while connecting: no byte of the request has been written.
_NOTHING_SENT = (
    aiohttp.ClientConnectorError,
    aiohttp.ClientConnectorCertificateError,
    aiohttp.ClientConnectorSSLError,
    aiohttp.ClientHttpProxyError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.InvalidURL,
    aiohttp.ServerFingerprintMismatch,
)


@dataclass(frozen=True, slots=True)
class PlainResponse:
    """An upstream's answer: its head, and its body as it arrives.

    ``headers`` are the end-to-end ones, in the upstream's order and spelling. ``connection`` headers and the transfer coding are
    gone; a content coding is not, and ``chunks`` gives the coded bytes.
    """

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    _response: aiohttp.ClientResponse

    @property
    def all_headers(self) -> tuple[tuple[str, str], ...]:
        """``headers``, and those of the gateway's own that another process of it added."""
        raw = header_pairs(self._response.raw_headers)
        return *self.headers, *((n, v) for n, v in raw if n.lower().startswith(OWN_PREFIX))

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives; raises UpstreamLost if it ends before it is complete. To be read once."""
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError, TimeoutError):
            # What came before the end is the reader's; the library keeps it back once it knows of the end.
            # It has no public way to it; without the private one the reader gets less before it learns of the break.
            take = getattr(self._response.content, "_read_nowait", None)
            if take is not None and (rest := take(-1)):
                yield rest
            raise _lost() from None


class PlainHttp:
    """The client for plain HTTP; one for the process, used from one event loop, closed once."""

    def __init__(self, options: PlainOptions | None = None) -> None:
        """Must be called with a running event loop."""
        self._options = options or PlainOptions()
        self._proxy, self._proxy_authorization = http_proxy(self._options.proxy)
        self._session = aiohttp.ClientSession(
            connector=connector(self._options),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=self._options.connect_timeout),
            auto_decompress=False,
            trust_env=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            max_line_size=self._options.max_header,
            max_field_size=self._options.max_header,
            max_headers=_MAX_HEADERS,
            request_class=_Request,
            middlewares=(_never_twice,),
        )

    async def close(self) -> None:
        """Close all connections; running requests fail."""
        await self._session.close()

    @asynccontextmanager
    async def request(
        self,
        method: str,
        url: str,
        headers: Sequence[tuple[str, str]],
        body: bytes | AsyncIterator[bytes] | None = None,
    ) -> AsyncIterator[PlainResponse]:
        """Send a request and give its answer as soon as the head is there.

        ``url`` is sent as written, escapes included. ``headers`` must be fit for upstream (``upstream_headers``); a
        Content-Length among them is kept for a streamed body, which goes out chunked without one. The connection is reused only if
        the body of the answer was read to its end, and is closed otherwise, as on cancellation.

        Raises UpstreamUnreachable if nothing was sent, UpstreamLost if the upstream went away later or did not answer in HTTP,
        and whatever ``body`` raised, which breaks off the request.
        """
        fields = CIMultiDict(one_spelling(headers))
        upload: Upload | None = None
        if isinstance(body, bytes):
            fields["Content-Length"] = str(len(body))
            upload = Upload(slices(body)) if body else None
        elif body is not None:
            upload = Upload(body)
        try:
            response = await self._send(method, url, fields, upload)
        except BaseException:
            if upload is not None:
                await upload.settled()
            raise
        if upload is not None:
            upload.response = response
        unwatch = _watch(response)
        try:
            yield PlainResponse(
                response.status,
                response.reason or "",
                response_headers(header_pairs(response.raw_headers)),
                response,
            )
        except UpstreamLost:
            if upload is not None and upload.failure is not None:
                raise upload.failure from None
            raise
        finally:
            unwatch()
            response.close()
            if upload is not None:
                await upload.settled()

    async def _send(
        self, method: str, url: str, fields: CIMultiDict[str], upload: Upload | None
    ) -> aiohttp.ClientResponse:
        through: dict[str, Any] = {}
        if self._proxy is not None:
            through["proxy"] = self._proxy
            if (own := self._proxy_authorization) is not None:
                # A tunnel is asked for with it; without one it goes with the request.
                if url[:6].lower() == "https:":
                    through["proxy_headers"] = {"Proxy-Authorization": own}
                else:
                    fields["Proxy-Authorization"] = own
        try:
            response = await self._session.request(
                method,
                URL(url, encoded=True),
                headers=fields,
                data=upload,
                allow_redirects=False,
                **through,
            )
        except GatewayError:
            if upload is not None and upload.failure is not None:
                raise upload.failure from None
            raise
        if response.status == 101:
            response.close()
            raise _lost()
        return response


class _Request(aiohttp.ClientRequest):
    """Adds no Content-Length to a request that has no body.

    The library has no setting for it. One that no longer asks this method adds ``Content-Length: 0``, which says the same.
    """

    def update_body_from_data(self, body: Any, *arguments: Any, **options: Any) -> None:
        if body is not None:
            super().update_body_from_data(body, *arguments, **options)


async def _never_twice(request: aiohttp.ClientRequest, handler: ClientHandlerType) -> aiohttp.ClientResponse:
    """Turn the library's errors into ours, which it does not take as a reason to repeat the request."""
    try:
        return await handler(request)
    except _NOTHING_SENT as failure:
        raise UpstreamUnreachable(
            f"The upstream could not be reached ({_cause(failure)}). Nothing was sent; check the gateway's upstream setting "
            "and the network.",
            code="upstream_unreachable",
        ) from None
    except (aiohttp.ClientError, OSError, TimeoutError):
        raise _lost() from None


def _watch(response: aiohttp.ClientResponse) -> Callable[[], object]:
    """Make reading the body fail when the connection ends before the body does; call the result when done.

    The library closes the connection when a later part of the body is malformed (a bad chunk), but leaves its reader waiting.
    """
    protocol = response.connection.protocol if response.connection is not None else None
    closed = protocol.closed if protocol is not None else None
    if closed is None:
        return lambda: None

    def break_off(_closed: asyncio.Future[None]) -> None:
        if not response.content.is_eof() and response.content.exception() is None:
            response.content.set_exception(aiohttp.ClientPayloadError())

    closed.remove_done_callback(_retrieved)
    closed.add_done_callback(_retrieved)
    closed.add_done_callback(break_off)
    return lambda: closed.remove_done_callback(break_off)


def _retrieved(closed: asyncio.Future[None]) -> None:
    """Keep the loop from reporting the failure of a connection that nobody waits for."""
    if not closed.cancelled():
        closed.exception()


def _cause(failure: Exception) -> str:
    """Why connecting failed, in words of our own: texts of the library name addresses and URLs."""
    if isinstance(failure, aiohttp.ClientConnectorDNSError):
        return "its name is not known"
    if isinstance(failure, aiohttp.ClientConnectorCertificateError | aiohttp.ServerFingerprintMismatch):
        return "its certificate is not trusted"
    if isinstance(failure, aiohttp.ClientConnectorSSLError):
        return "TLS failed"
    if isinstance(failure, aiohttp.ConnectionTimeoutError):
        return "no connection in time"
    if isinstance(failure, aiohttp.ClientProxyConnectionError):
        return "no connection to the proxy"
    if isinstance(failure, aiohttp.ClientHttpProxyError):
        if failure.status == 407:
            return "the proxy asks for other credentials"
        return "the proxy refused" if failure.status < 500 else "the proxy could not connect"
    return "no connection"


def _lost() -> UpstreamLost:
    return UpstreamLost(
        "The connection to the upstream broke before its answer was complete. The request may have run.",
        code="upstream_connection_lost",
    )


__all__ = ["PlainHttp", "PlainOptions", "PlainResponse"]
