"""Answers to what is no request, and to failures of our own: in the API's error shape, echoing and logging nothing that was sent.

The library's own answer to malformed HTTP quotes the bytes that it could not parse, in the body and in a traceback in the
log. Those bytes may be a key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.typedefs import Handler, Middleware
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from gateway.downstream.body import CODINGS
from gateway.downstream.passthrough import FLUSH, sever
from gateway.downstream.stalled import StallWatch
from gateway.errors import BadRequest, GatewayError

OnFailure = Callable[[str, BaseException], None]
"""Takes where something failed and the failure, whose text must not be shown: it may quote what was sent."""


def error_response(error: GatewayError, **headers: str) -> web.Response:
    """``error`` as an answer; underscores in the names of ``headers`` stand for hyphens."""
    response = web.Response(
        status=error.status, body=error.body(), headers={"Content-Type": "application/json"}
    )
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    if error.status == 415:
        response.headers["Accept-Encoding"] = CODINGS
    response.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    return response


def answer_errors(on_failure: OnFailure) -> Middleware:
    """The middleware that turns every failure of a handler into an answer, or into a broken connection after the head."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except (ConnectionError, web.HTTPException) as failure:
            answer: web.StreamResponse | None = _known(failure)
        except GatewayError as failure:
            answer = error_response(failure)
        except Exception as failure:  # noqa: BLE001 (the last place where it can still become an answer)
            on_failure("request", failure)
            answer = error_response(_ours())
        if answer is None or request.writer.output_size > 0:
            sever(request)
            # The library takes this as the end of the connection, and says nothing.
            raise ConnectionResetError
        return answer

    return middleware


class Connection(RequestHandler):
    """The library's connection, with our answers, and with an eye on clients that left or take nothing.

    What it does at this moment is told by private names of the library only: there is no public word for the request that is
    being answered, its task, and what was parsed but not yet taken. Without them a client that left is noticed when its
    connection is gone, and a body that stops being HTTP when its connection ends.
    """

    __slots__ = ("_on_failure", "_running", "_stall", "_wire")

    def __init__(
        self,
        manager: web.Server,
        *,
        loop: asyncio.AbstractEventLoop,
        on_failure: OnFailure,
        client_timeout: float,
        **options: Any,
    ) -> None:
        super().__init__(manager, loop=loop, **options)
        self._running = loop
        self._on_failure = on_failure
        self._stall = StallWatch(loop, client_timeout)
        self._wire: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport: the library lets go of it while bytes still wait in it."""
        super().connection_made(transport)
        self._wire = self.transport

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone."""
        self._stall.end()
        self._wire = None
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Bytes wait for the client."""
        super().pause_writing()
        if self._wire is not None:
            self._stall.begin(self._wire)

    def resume_writing(self) -> None:
        """Few enough were left by the client to write on."""
        super().resume_writing()
        self._stall.end()

    def eof_received(self) -> None:
        """The client will send no more: it has left, whatever of its answer still waits for it.

        By itself the loop would tell this only when all that waits has been taken, which may be never.
        """
        super().eof_received()
        if self._wire is None or getattr(self, "_current_request", None) is None:
            return
        self._running.call_later(FLUSH, self._wire.abort)
        task = getattr(self, "_task_handler", None)
        if task is not None:
            task.cancel()

    def data_received(self, data: bytes) -> None:
        """Take bytes; when they are not HTTP, tell whoever waits for the rest of a body, which the library does not."""
        super().data_received(data)
        messages = getattr(self, "_messages", ())
        if not messages or not _is_error(messages[-1]):
            return
        waiting = [payload for message, payload in messages]
        request = getattr(self, "_current_request", None)
        if request is not None:
            waiting.append(request.content)
        for payload in waiting:
            if not payload.is_eof() and payload.exception() is None:
                payload.set_exception(RequestPayloadError())

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 (quotes what was sent)
    ) -> web.StreamResponse:
        """The answer to a request that could not be parsed, or whose handler failed outside of our middleware."""
        if request.writer.output_size > 0:
            raise ConnectionResetError
        if isinstance(exc, HttpProcessingError):
            error: GatewayError = _refusal(exc)
        else:
            if exc is not None:
                self._on_failure("connection", exc)
            error = _ours()
            error.status = status
        response = error_response(error, Server="upwire")
        response.force_close()
        return response

    def log_exception(self, *arguments: Any, **options: Any) -> None:  # noqa: ARG002 (quotes what was sent)
        """Report the type and place of a failure, never its text."""
        failure = options.get("exc_info")
        if isinstance(failure, BaseException) and not isinstance(failure, RequestPayloadError):
            self._on_failure("connection", failure)


class Server(web.Server):
    """Makes connections of ours for ``made``, the library's server, which keeps them and ends them.

    ``options`` are those of Connection; ``client_timeout`` among them is in seconds, for which a client may take nothing.
    """

    def __init__(self, made: web.Server, **options: Any) -> None:
        super().__init__(made.request_handler, request_factory=made.request_factory)
        self.made = made
        self._running = asyncio.get_running_loop()
        self._options = options
        name_missing()

    @property
    def connections(self) -> list[RequestHandler]:
        """The connections that are open."""
        return self.made.connections

    def __call__(self) -> RequestHandler:
        """A new connection."""
        return Connection(self.made, loop=self._running, **self._options)


_PRIVATE = ("_current_request", "_messages", "_task_handler")


def name_missing() -> None:
    """Warn if the library no longer has what Connection looks at; without it requests are answered all the same."""
    if not all(hasattr(RequestHandler, name) for name in _PRIVATE):
        logging.getLogger(__name__).warning(
            "This aiohttp tells less of its connections, so clients that leave are noticed later; install the locked version"
        )


def _is_error(queued: tuple[Any, Any]) -> bool:
    return isinstance(getattr(queued[0], "exc", None), BaseException)


def _refusal(failure: HttpProcessingError) -> BadRequest:
    if isinstance(failure, LineTooLong) or failure.message == "Too many headers received":
        return BadRequest(
            "The request line or the headers are too large.", code="headers_too_large", status=431
        )
    return BadRequest("This is not a well-formed HTTP request.", code="malformed_request")


def _known(failure: Exception) -> web.Response | None:
    """The answer to a failure that the library raises to be answered; None for a connection that is gone."""
    if not isinstance(failure, web.HTTPException):
        return None
    if isinstance(failure, web.HTTPMethodNotAllowed):
        allow = ", ".join(sorted(failure.allowed_methods))
        return error_response(method_not_allowed(), Allow=allow)
    if failure.status == 404:
        return error_response(not_found())
    if failure.status < 500:
        return error_response(
            BadRequest("This request cannot be taken.", code="bad_request", status=failure.status)
        )
    return error_response(_ours())


def method_not_allowed() -> BadRequest:
    """The error for a method that a path of ours does not have."""
    return BadRequest("This path does not take this method.", code="method_not_allowed", status=405)


def not_found(further: Sequence[str] = ()) -> BadRequest:
    """The error for a path that is neither the API's nor ours; ``further`` are the local paths of other upstreams."""
    also = f" and other APIs under {', '.join(further)}" if further else ""
    return BadRequest(
        f"Nothing is here; this gateway serves the API under /v1{also}.", code="not_found", status=404
    )


def _ours() -> GatewayError:
    return GatewayError(
        "The gateway itself failed. Neither the request nor the upstream is at fault; please report it.",
        code="gateway_failure",
    )
