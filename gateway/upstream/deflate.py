"""Compression of frames (permessage-deflate), offered to the upstream and used where it accepts.

What a client resends with every turn (instructions, tools) folds to almost nothing once the connection has seen it. Windows of 12
bits are the measured choice: ``python -m tests.bench.compression`` shows 15 to 17 % of the bytes of recorded frames left, at 37 KiB
for packing; 15 bits would leave 5 %, at 150 KiB. Unpacking takes 12 KiB where the upstream keeps to such a window too, else 40 KiB.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from websockets.extensions.base import Extension
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory, PerMessageDeflate
from websockets.frames import Frame
from websockets.typing import ExtensionParameter

WINDOW_BITS = 12
MEMORY_LEVEL = 5
LARGEST = 1024 * 1024
"""Frames of more bytes go as they are: compressing 16 MiB would hold up everybody for a second."""
_GIVEN_UP_FOR = 86_400.0
"""Seconds for which compression that did not work is not offered again: finding out costs a turn."""


class Deflate(PerMessageDeflate):
    """The extension of one connection; ``on_wire`` counts the bytes that the frames received so far took there."""

    on_wire = 0

    def decode(self, frame: Frame, *, max_size: int | None = None) -> Frame:
        """Unpack a frame; one that would unpack to more than ``max_size`` bytes raises PayloadTooBig."""
        self.on_wire += framed(len(frame.data))
        return super().decode(frame, max_size=max_size)

    def encode(self, frame: Frame) -> Frame:
        """Pack a frame, unless it is too large for that: each message says for itself whether it is packed."""
        return frame if len(frame.data) > LARGEST else super().encode(frame)


class Compression:
    """Whether compression is offered. One for all sockets to an upstream: ``failed`` tells of one that did not work with it.

    ``clock`` gives seconds that never run backwards.
    """

    def __init__(self, *, offered: bool = True, clock: Callable[[], float] = monotonic) -> None:
        self._offered = offered
        self._clock = clock
        self._until = 0.0

    def offer(self) -> list[ClientPerMessageDeflateFactory]:
        """What the next handshake offers.

        The upstream is asked for a small window in its own direction too, and then for any: one that says nothing of its window
        is taken as well.
        """
        if not self._offered or self._clock() < self._until:
            return []
        return [_Offer(server_window=WINDOW_BITS), _Offer(server_window=None)]

    def failed(self) -> None:
        """Offer it no more for a day."""
        self._until = self._clock() + _GIVEN_UP_FOR

    def summary(self) -> dict[str, Any]:
        """Whether it is offered, for the statistics, and, where it failed, in how many seconds it is again."""
        left = self._until - self._clock()
        if not self._offered or left <= 0:
            return {
                "compression": "offered" if self._offered else "off",
                "compression_retry_in_seconds": None,
            }
        return {"compression": "failed", "compression_retry_in_seconds": round(left, 1)}


class _Offer(ClientPerMessageDeflateFactory):
    def __init__(self, *, server_window: int | None) -> None:
        super().__init__(
            server_max_window_bits=server_window,
            client_max_window_bits=WINDOW_BITS,
            compress_settings={"memLevel": MEMORY_LEVEL},
        )

    def process_response_params(
        self, params: Sequence[ExtensionParameter], accepted_extensions: Sequence[Extension]
    ) -> PerMessageDeflate:
        """The extension, as the upstream accepted it; raises NegotiationError."""
        agreed = super().process_response_params(params, accepted_extensions)
        return Deflate(
            remote_no_context_takeover=agreed.remote_no_context_takeover,
            local_no_context_takeover=agreed.local_no_context_takeover,
            remote_max_window_bits=agreed.remote_max_window_bits,
            local_max_window_bits=agreed.local_max_window_bits,
            compress_settings=agreed.compress_settings,
        )


def framed(size: int) -> int:
    """The bytes that an upstream's frame with so many bytes of payload takes on the wire."""
    return size + (2 if size < 126 else 4 if size < 65_536 else 10)
