"""One WebSocket connection to an upstream: frames as they come, liveness, and an end that is never missed.

The library's own receiving queue and keepalive are not used. Its reader pauses when nobody takes frames, and then pongs
are not seen either and a healthy socket is killed; here the reader never pauses, and the owner bounds what waits.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from websockets.asyncio.client import ClientConnection
from websockets.client import ClientProtocol
from websockets.exceptions import PayloadTooBig
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN, Event

from gateway.upstream.deflate import Deflate, framed
from gateway.upstream.inbox import Ended, Ending, Inbox
from gateway.upstream.liveness import Liveness, Patience

_LONGEST_HEAD = 65_536


class SocketOwner(Protocol):
    """Whoever keeps the socket and hears from it what concerns no turn."""

    def socket_answered(self, socket: UpstreamSocket) -> None:
        """The first text frame ever came."""

    def socket_idle_frames(self, socket: UpstreamSocket, frames: list[bytes]) -> None:
        """Frames came while no turn had the socket."""

    def socket_ended(self, socket: UpstreamSocket, ending: Ending) -> None:
        """The socket ended other than by us."""


class UpstreamSocket(ClientConnection):
    """The connection. Its owner attaches an Inbox for each turn and detaches it after; ``start`` comes first.

    ``below_tls`` is the transport below TLS, for whoever knows it before the connection is made.

    ``answered`` says whether any text frame ever came, ``refused_status`` what else than 101 answered the upgrade, and
    ``last_ended`` is for its owner to note which response ended last.
    """

    def __init__(self, protocol: ClientProtocol, *, patience: Patience, **options: Any) -> None:
        super().__init__(protocol, **options)
        self.ending: Ending | None = None
        self.refused_status: int | None = None
        self.answered = False
        self.last_ended: str | None = None
        self.below_tls: asyncio.Transport | None = None
        self._close_within = patience.close_timeout
        self._alive = Liveness(patience, send_ping=self._send_ping, unsent=self._unsent, die=self._die)
        self._owner: SocketOwner | None = None
        self._inbox: Inbox | None = None
        self._inner: asyncio.Transport | None = None
        self._abort_timer: asyncio.TimerHandle | None = None
        self._head = b""
        self._batch: list[bytes] = []
        self._parts: list[bytes] = []
        self._received = 0
        self._framed = 0
        self._violation: Ended | None = None
        self._close_seen = False

    @property
    def deflate(self) -> Deflate | None:
        """What packs and unpacks the frames, if the upstream accepted compression."""
        return next((each for each in self.protocol.extensions if isinstance(each, Deflate)), None)

    @property
    def lent(self) -> bool:
        """Whether a turn has the socket."""
        return self._inbox is not None

    def start(self, owner: SocketOwner) -> None:
        """Begin to report to ``owner``, at once if the socket has already ended, and to keep it alive."""
        self._owner = owner
        if self.ending is None:
            self._alive.start()
        else:
            owner.socket_ended(self, self.ending)

    def attach(self, inbox: Inbox) -> None:
        """Give what comes from now on to ``inbox``."""
        self._inbox = inbox
        if self.ending is not None:
            inbox.end(self.ending)

    def detach(self) -> list[bytes] | None:
        """Take the socket from its turn: the frames that the turn left, or None if the socket is not clean.

        It is not clean when it ended, when our own bytes have not all left, or in the middle of a frame of the upstream's.
        """
        inbox, self._inbox = self._inbox, None
        if inbox is None or self.ending is not None or self.paused:
            return None
        deflate = self.deflate
        if self._parts or self._received != (self._framed if deflate is None else deflate.on_wire):
            return None
        return inbox.take()

    def write(self, frame: bytes) -> None:
        """Write one text frame and a ping behind it; the attached inbox learns when all of it has left our buffers."""
        inbox = self._inbox
        if inbox is None or self.ending is not None or self.protocol.state is not OPEN:
            return
        inbox.begin()
        self.protocol.send_text(frame)
        self.send_data()
        # Seen before the ping: a frame that has left may already be answered, and its connection reset, when the ping is
        # written, and a ping that fails must not make it look as if the frame had never left.
        broken = self._closing()
        if self._inner is None and not self.paused:
            inbox.flushed = not broken
        # The ping shows two things: that the upstream still lives after the frame, and, on TLS, when the transport below
        # has written the frame, because only then does it take the ping from the TLS layer.
        inbox.ping = self._alive.ping()
        self._alive.frame_written()
        if not self.paused:
            inbox.flushed = not broken

    def ask_for_pong(self) -> None:
        """Send a ping alone, whose pong the attached inbox learns of."""
        if self._inbox is not None and self.ending is None:
            self._inbox.ping = self._alive.ping()

    def close_politely(self) -> None:
        """Send a close frame and give the upstream the close timeout to close the connection; returns at once."""
        self._end(Ending(Ended.OURS))
        if self.protocol.state is OPEN:
            self.protocol.send_close(1000)
            self.send_data()
        self._abort_later()

    def abort(self) -> None:
        """Send a close frame if it fits and drop the connection at once; idempotent."""
        self._end(Ending(Ended.OURS))
        if self.protocol.state is OPEN and not self.paused:
            self.protocol.send_close(1000)
            self.send_data()
        self.transport.abort()

    # What the transport and the library call.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Have the transport tell when its buffer is empty."""
        super().connection_made(transport)
        # TLS keeps a second buffer in the transport below it, which only a private name leads to. Without it,
        # unsent bytes there count as sent, which is the safe side: what counts as sent is not sent again.
        inner = self.below_tls or getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
        if inner is not None:
            self._inner = inner
            inner.set_write_buffer_limits(0)
        # A TLS transport compares with >=, a plain one with >.
        on_tls = transport.get_extra_info("ssl_object") is not None
        self.transport.set_write_buffer_limits(1 if on_tls else 0, 0)

    def data_received(self, data: bytes) -> None:
        """Take what one read brought and hand it over in one piece."""
        self._alive.heard()
        if self.response is None:
            self._watch_head(data)
        else:
            self._received += len(data)
        super().data_received(data)
        self._deliver()

    def process_event(self, event: Event) -> None:
        """Sort one frame."""
        if self.response is None or not isinstance(event, Frame):
            super().process_event(event)
            return
        self._framed += framed(len(event.data))
        if self._violation is not None:
            return
        if event.opcode is Opcode.PONG:
            number = self._alive.ponged(bytes(event.data))
            inbox = self._inbox
            if number is not None and inbox is not None and inbox.ping is not None and number >= inbox.ping:
                inbox.ponged = True
        elif event.opcode is Opcode.CLOSE:
            self._close_seen = True
        elif event.opcode is Opcode.BINARY:
            self._violation = Ended.BINARY
        elif event.opcode in {Opcode.TEXT, Opcode.CONT}:
            self._parts.append(bytes(event.data))
            if event.fin:
                self._message()

    def eof_received(self) -> None:
        """The upstream will send no more, so nothing that waits to be written matters either."""
        super().eof_received()
        if self.response is not None:
            self._end(Ending(Ended.EOF))
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._end(Ending(Ended.EOF if exc is None else Ended.RESET))
        if self._abort_timer is not None:
            self._abort_timer.cancel()
            self._abort_timer = None
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Bytes of ours wait in the transport."""
        super().pause_writing()
        self._alive.writing()

    def resume_writing(self) -> None:
        """All our bytes have left."""
        super().resume_writing()
        self._alive.written()
        inbox = self._inbox
        if inbox is not None and inbox.ping is not None and not self._closing():
            inbox.flushed = True
            inbox.wake()

    def _watch_head(self, data: bytes) -> None:
        """Read the status of the upgrade's answer, so that a refusal need not wait for its body."""
        if len(self._head) < _LONGEST_HEAD:
            self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end >= 0:
            self._received = len(self._head) - end - 4
        line, newline, _ = self._head.partition(b"\n")
        words = line.split() if newline else []
        if len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit() and words[1] != b"101":
            self.refused_status = int(words[1][:3])
            self.transport.abort()

    def _message(self) -> None:
        parts, self._parts = self._parts, []
        message = parts[0] if len(parts) == 1 else b"".join(parts)
        if not message.isascii():
            try:
                message.decode()
            except UnicodeDecodeError:
                self._violation = Ended.PROTOCOL
                return
        self._batch.append(message)

    def _deliver(self) -> None:
        batch, self._batch = self._batch, []
        if self.response is None or self.ending is not None:
            return
        if batch:
            self._hand_over(batch)
        failure = self.protocol.parser_exc
        if self._violation is not None:
            self._die(self._violation)
        elif failure is not None and not isinstance(failure, EOFError):
            self._die(Ended.TOO_LARGE if isinstance(failure, PayloadTooBig) else Ended.PROTOCOL)
        elif self._close_seen:
            received = self.protocol.close_rcvd
            self._end(Ending(Ended.CLOSED, None if received is None else int(received.code)))
            self._abort_later()

    def _hand_over(self, batch: list[bytes]) -> None:
        if not self.answered:
            self.answered = True
            if self._owner is not None:
                self._owner.socket_answered(self)
        if self._inbox is not None:
            self._inbox.put(batch)
        elif self._owner is not None:
            self._owner.socket_idle_frames(self, batch)

    def _end(self, ending: Ending) -> None:
        if self.ending is not None:
            return
        self.ending = ending
        self._alive.stop()
        if self._inbox is not None:
            self._inbox.end(ending)
        if self._owner is not None and ending.how is not Ended.OURS:
            self._owner.socket_ended(self, ending)

    def _die(self, how: Ended) -> None:
        self._end(Ending(how))
        self.transport.abort()

    def _abort_later(self) -> None:
        if self._abort_timer is None and not self.connection_lost_waiter.done():
            self._abort_timer = self.loop.call_later(self._close_within, self.transport.abort)

    def _send_ping(self, payload: bytes) -> None:
        self.protocol.send_ping(payload)
        self.send_data()

    def _unsent(self) -> int:
        below = 0 if self._inner is None else self._inner.get_write_buffer_size()
        return self.transport.get_write_buffer_size() + below

    def _closing(self) -> bool:
        return self.transport.is_closing() or (self._inner is not None and self._inner.is_closing())
