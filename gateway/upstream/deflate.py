"""Compression of frames (permessage-deflate), offered to the upstream and used where it accepts.

What a client resends with every turn (instructions, tools) folds to almost nothing once the connection has seen it. Windows of 12
bits are the measured choice: ``python -m tests.bench.compression`` shows 15 to 17 % of the bytes of recorded frames left, at 37 KiB
for packing; 15 bits would leave 5 %, at 150 KiB. Unpacking takes what window the upstream chose, 40 KiB at most.
"""

from __future__ import annotations

from collections.abc import Sequence

from websockets.extensions.base import Extension
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory, PerMessageDeflate
from websockets.frames import Frame
from websockets.typing import ExtensionParameter

WINDOW_BITS = 12
MEMORY_LEVEL = 5
LARGEST = 1024 * 1024
"""Frames of more bytes go as they are: compressing 16 MiB would hold up everybody for a second."""


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
    """Whether compression is offered. One for all sockets to an upstream: ``failed`` tells of one that did not work with it."""

    def __init__(self, *, offered: bool = True) -> None:
        self._offered = offered

    def offer(self) -> list[ClientPerMessageDeflateFactory]:
        """What the next handshake offers.

        Nothing is asked of the upstream's own direction: an upstream that says nothing of it would have to be turned down.
        """
        return [_Offer()] if self._offered else []

    def failed(self) -> None:
        """Offer it no more."""
        self._offered = False


class _Offer(ClientPerMessageDeflateFactory):
    def __init__(self) -> None:
        super().__init__(client_max_window_bits=WINDOW_BITS, compress_settings={"memLevel": MEMORY_LEVEL})

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
