"""The errors that a client can see, each saying whose fault it is, what happened and what to do.

    GatewayError
      BadRequest          the client's fault: 4xx, not worth repeating
      Unavailable         nobody's fault for long: 503 with retry-after
      UpstreamLost        the upstream went away after it may have begun: 502, the client's retry policy decides
      UpstreamUnreachable the upstream could not be reached, nothing ran: 502
      WorkerLost          another process of this gateway went away after the request may have begun: 502

Texts never hold anything that a client or an upstream sent: a key or a prompt could be in it.
"""

from __future__ import annotations

from typing import Any

import orjson


def error_body(*, message: str, kind: str, code: str | None = None, param: str | None = None) -> bytes:
    """The API's own error shape, ``{"error": {"message", "type", "param", "code"}}``, as JSON bytes."""
    return orjson.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})


class GatewayError(Exception):
    """Base of all errors that end a turn with an answer of our own.

    ``status`` is the HTTP status, ``kind`` the API's ``error.type``, ``code`` its ``error.code``.
    ``retry_after`` is in seconds, or None.
    """

    status = 500
    kind = "server_error"

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int | None = None,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param
        self.retry_after = retry_after
        if status is not None:
            self.status = status

    def error(self) -> dict[str, Any]:
        """The value of the ``error`` key of an answer."""
        return {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}

    def body(self) -> bytes:
        """The whole JSON answer."""
        return error_body(message=self.message, kind=self.kind, code=self.code, param=self.param)


class BadRequest(GatewayError):
    """The client sent what no API could take; repeating it will not help."""

    status = 400
    kind = "invalid_request_error"


class Unavailable(GatewayError):
    """The gateway cannot take this turn now (draining, full); the client may try again after ``retry_after``."""

    status = 503
    kind = "service_unavailable_error"


class UpstreamLost(GatewayError):
    """The connection to the upstream broke after the request may have begun to run: never repeated by us."""

    status = 502
    kind = "server_error"


class UpstreamUnreachable(GatewayError):
    """The upstream could not be reached at all; nothing ran."""

    status = 502
    kind = "server_error"


class WorkerLost(GatewayError):
    """The process of this gateway that handled the turn ended, which may have begun upstream: never repeated by us."""

    status = 502
    kind = "server_error"
