"""Reads along while a plain HTTP answer is relayed, to learn how the response ended. It never alters a byte."""

from __future__ import annotations

from gateway.protocol.ending import Ending, ending_of_json
from gateway.protocol.exchange import Exchange, Violation
from gateway.protocol.sse import EventTooLarge, SseReader

_DONE = b"[DONE]"
"""A marker that some upstreams send as last data, and that is no JSON."""


class StreamObserver:
    """Watches one answer, an event stream or one JSON object by its content type; anything else is not looked at.

    It never raises and holds at most about twice ``max_bytes``; an answer that needs more is given up on, which costs only
    the knowledge. The caller must show every chunk of the decoded body, in order, and call ``end`` when it came to its end.
    """

    def __init__(self, content_type: str, *, max_bytes: int = 64 * 1024 * 1024) -> None:
        media = content_type.partition(";")[0].strip().lower()
        self._max_bytes = max_bytes
        self._reader = SseReader(max_event=max_bytes) if media == "text/event-stream" else None
        self._body: list[bytes] = []
        self._size = 0
        self._given_up = self._reader is None and media != "application/json"
        self._exchange = Exchange(ours=False)
        self._exchange.sent()

    def feed(self, chunk: bytes) -> None:
        """Look at the next chunk."""
        if self._given_up:
            return
        if self._reader is None:
            self._body.append(chunk)
            self._size += len(chunk)
            if self._size > self._max_bytes:
                self._give_up()
            return
        try:
            events = self._reader.feed(chunk)
        except EventTooLarge:
            self._give_up()
            return
        for event in events:
            if event.data != _DONE and isinstance(self._exchange.feed(event.data), Violation):
                self._give_up()
                return
        if self._exchange.held_bytes > self._max_bytes:
            self._give_up()

    def end(self) -> Ending | None:
        """How the response ended; None if that was not to be read, or the answer was cut."""
        if self._given_up:
            return None
        if self._reader is None:
            return ending_of_json(b"".join(self._body))
        # With events of two responses in one stream nobody knows which of them the upstream holds.
        return None if self._exchange.foreign else self._exchange.ending

    def _give_up(self) -> None:
        self._given_up = True
        self._body.clear()
        self._reader = None
        self._exchange = Exchange(ours=False)
