"""A body while it arrives: compared piece by piece with what is known, and put together only if somebody needs it whole.

Most of a growing history is known. For a turn that continues it, the known part is digested while it is still in the processor's
cache, and never copied.
"""

from __future__ import annotations

from gateway.conversation.beginnings import Scan
from gateway.conversation.transcripts import Known

NAME = b'"input":'
OPENINGS = (b"[", b" [")
"""What usually follows the name."""
_REACH = len(NAME) + max(map(len, OPENINGS))


class Body:
    """A decoded request body of ``owner`` (an identity). The caller feeds it, and asks when all of it has come.

    ``scan`` looks for a known beginning of the input's items; None where nothing can be known.
    """

    __slots__ = ("_held", "_pieces", "_scan", "_size", "_start", "owner")

    def __init__(self, owner: bytes, scan: Scan | None) -> None:
        self.owner = owner
        self._pieces: list[bytes] = []
        self._size = 0
        self._scan = scan
        self._start: int | None = None
        self._held = b""

    def __len__(self) -> int:
        return self._size

    def feed(self, piece: bytes) -> None:
        """The next bytes."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._scan is None:
            return
        if self._start is not None:
            self._scan.feed(memoryview(piece))
        else:
            self._look_for_input(piece)

    def known(self) -> tuple[int, Known] | None:
        """Where the bracket stands that opens the input, and what is known of the items behind it; to be checked by who uses it."""
        if self._scan is None or self._start is None:
            return None
        found = self._scan.found()
        return None if found is None else (self._start, found)

    def whole(self) -> bytes:
        """All of it in one piece."""
        if len(self._pieces) != 1:
            self._pieces = [b"".join(self._pieces)]
        return self._pieces[0]

    def without(self, start: int, end: int) -> bytes:
        """All of it but the bytes from ``start`` to ``end``."""
        kept: list[memoryview] = []
        at = 0
        for piece in self._pieces:
            text, size = memoryview(piece), len(piece)
            kept += (text[: max(0, start - at)], text[max(0, end - at) :])
            at += size
        return b"".join(kept)

    def _look_for_input(self, piece: bytes) -> None:
        text = self._held + piece
        begins = self._size - len(text)
        found = text.find(NAME)
        if found < 0:
            self._held = text[-_REACH:]
            return
        behind = found + len(NAME)
        for opening in OPENINGS:
            if text.startswith(opening, behind):
                after = behind + len(opening)
                self._start = begins + after - 1
                self._held = b""
                if self._scan is not None:
                    self._scan.feed(memoryview(text)[after:])
                return
        if len(text) - behind < max(map(len, OPENINGS)):
            self._held = text[found:]
        else:
            self._scan = None
