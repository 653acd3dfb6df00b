"""Server-sent events: how one event is written, and how a stream of them is read from chunks of any size.

Lines end at CR, LF or CRLF and nowhere else. The general line splitting of Python also splits at characters that models
write inside JSON texts (U+2028, U+2029, U+0085, ...), which loses events; it is not used here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


class EventTooLarge(ValueError):
    """One event is larger than the reader was allowed to hold."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One dispatched event: its ``event`` field ("message" if it had none) and its data lines joined by LF."""

    kind: str
    data: bytes


def sse_event(kind: str, data: bytes) -> bytes:
    """One event as the API writes it: an event line, one data line and the blank line without which clients ignore it.

    ``data`` is a JSON text. Line ends can stand only between its tokens, where a space means the same. ``kind`` must not hold
    a line end (``events.head_of`` gives no such kind); raises ValueError if it does.
    """
    if "\n" in kind or "\r" in kind:
        raise ValueError("an event name cannot span lines")
    if b"\n" in data or b"\r" in data:
        data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    return b"event: " + kind.encode("utf-8", "surrogatepass") + b"\ndata: " + data + b"\n\n"


class SseReader:
    """Reads events from chunks of bytes as they arrive; any cutting of the same bytes gives the same events.

    ``max_event`` bounds, in bytes, what is held of one event. An event without its final blank line is never given out, as
    no client would see it either; ``unfinished`` tells of it once the stream has ended.
    """

    def __init__(self, *, max_event: int) -> None:
        self._max_event = max_event
        self._partial: list[bytes] = []
        self._held = 0
        self._kind = b""
        self._data: list[bytes] = []
        self._after_cr = False
        self._first_line = True

    @property
    def unfinished(self) -> bool:
        """Whether what was read so far ends inside an event."""
        return bool(self._data) or any(not piece.startswith(b":") for piece in self._partial[:1])

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that ``chunk`` completes. Raises EventTooLarge; the reader is of no use after that."""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        events: list[SseEvent] = []
        *lines, rest = _LINE_END.split(chunk)
        for line in lines:
            if self._partial:
                whole = b"".join((*self._partial, line))
                self._held -= len(whole) - len(line)
                self._partial.clear()
                self._line(whole, events)
            else:
                self._line(line, events)
        if rest:
            self._partial.append(rest)
            self._hold(len(rest))
        return events

    def _line(self, line: bytes, events: list[SseEvent]) -> None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                kind = self._kind.decode("utf-8", "replace") or "message"
                events.append(SseEvent(kind, b"\n".join(self._data)))
            self._kind = b""
            self._data.clear()
            self._held = 0
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._hold(len(value) + 1)
        elif field == b"event":
            self._hold(len(value) - len(self._kind))
            self._kind = value

    def _hold(self, size: int) -> None:
        self._held += size
        if self._held > self._max_event:
            raise EventTooLarge(f"an event is larger than {self._max_event} bytes")
