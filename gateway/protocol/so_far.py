"""What a relayed event stream has told so far, so that it can be ended in the right shape when whoever sends it is gone.

Nothing is parsed while all goes well: the few pieces that an ending needs are kept, and read when the stream has broken.
"""

from __future__ import annotations

from gateway.protocol.exchange import Exchange
from gateway.protocol.sse import SseReader, sse_event

_BLANK = b"\n\n"
_CREATED = b"response.created"
_FINISHED = b"response.output_item.done"
_MOST = 16 * 1024 * 1024
"""Bytes kept of one stream; an ending of one that needs more goes without the items."""
_MOST_HELD = 1024 * 1024
"""Bytes of an event that has not come whole that are held back; of a larger one the beginning goes out."""


class StreamSoFar:
    """Passes on whole events, so that none is cut where the stream breaks. Fed with a stream of this gateway's own making."""

    def __init__(self) -> None:
        self._held = b""
        self._kept: list[bytes] = []
        self._size = 0
        self._last = b""
        self._cut = False

    def feed(self, chunk: bytes) -> bytes:
        """The next bytes: what of them, and of those before, can be passed on now."""
        text = self._held + chunk
        end = text.rfind(_BLANK) + len(_BLANK)
        if end < len(_BLANK):
            if len(text) <= _MOST_HELD:
                self._held = text
                return b""
            end = len(text)
        whole, self._held = text[:end], text[end:]
        goes_on, self._cut = self._cut, not whole.endswith(_BLANK)
        tells = _FINISHED in whole or _CREATED in whole
        if self._size <= _MOST and (tells or (goes_on and not self._last)):
            self._kept.append(whole)
            self._size += len(whole)
            self._last = b""
        else:
            self._last = self._last + whole if goes_on else whole
        return whole

    def rest(self) -> bytes:
        """What was held back of a stream that came to its end."""
        return self._held

    def failure(self, *, code: str, message: str) -> bytes | None:
        """The event that ends the stream where it broke, or None where it had ended, or an event has gone out in part."""
        exchange = Exchange(ours=False)
        exchange.sent()
        kept = b"".join((*self._kept, self._last))
        for event in SseReader(max_event=len(kept)).feed(kept):
            exchange.feed(event.data)
        if self._cut or (exchange.ending is not None and exchange.ending.kind != "error"):
            return None
        return sse_event("response.failed", exchange.failure_event(code=code, message=message))
