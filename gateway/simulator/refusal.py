"""Errors of the API: one refusal, and the shapes in which upstreams were seen to wrap it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Shape = Literal[
    "request",
    "stream",
    "flat",
    "nested",
    "body",
    "message",
    "detail",
    "status_code",
    "untyped",
    "response.error",
]


class Refusal(Exception):
    """A request that is answered with an error instead of a response."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        kind: str = "invalid_request_error",
        headers: Mapping[str, str] | None = None,
        shape: Shape = "request",
        echo_lane: bool = True,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.kind = kind
        self.headers = dict(headers or {})
        self.shape: Shape = shape
        self.echo_lane = echo_lane

    def details(self) -> dict[str, Any]:
        """The object that stands under ``error``."""
        return {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}

    def body(self) -> dict[str, Any]:
        """The JSON body over HTTP."""
        return {"detail": self.message} if self.shape == "detail" else {"error": self.details()}

    def frame(self, sequence_number: int = 0) -> dict[str, Any]:
        """The event over a socket, or inside a stream that has begun.

        ``request`` is the refusal of a request (a status, no sequence number), ``stream`` an error in the middle of a
        response (the reverse); the others are variants seen on compatible upstreams.
        """
        details = self.details()
        if self.headers and self.shape != "status_code":
            details["headers"] = self.headers
        head: dict[str, Any] = {"type": "error", "status": self.status}
        match self.shape:
            case "request":
                return {**head, "error": details}
            case "stream":
                return {"type": "error", "sequence_number": sequence_number, "error": details}
            case "flat":
                flat = {"code": self.code, "message": self.message, "param": self.param}
                return {"type": "error", **flat, "sequence_number": sequence_number}
            case "nested":
                return {**head, "error": {"error": details}}
            case "body":
                return {**head, "body": {"error": details}}
            case "message":
                return {**head, "error": {"message": self.message}}
            case "detail":
                return {**head, "detail": self.message}
            case "status_code":
                return {
                    "type": "error",
                    "status_code": self.status,
                    "headers": self.headers,
                    "error": details,
                }
            case "untyped":
                del details["type"]
                return {**head, "error": details}
            case "response.error":
                return {"type": "response.error", "error": details}


def parent_not_found(response_id: str) -> Refusal:
    """The refusal of a ``previous_response_id`` that is not held here for this caller."""
    return Refusal(
        400,
        f"Previous response with id '{response_id}' not found.",
        code="previous_response_not_found",
        param="previous_response_id",
    )
