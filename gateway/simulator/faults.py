"""Failures on command: what goes wrong, at which moment of which request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.simulator.refusal import Shape


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in the life of a request or a connection."""

    kind: Literal["upgrade", "opened", "receipt", "events", "deltas", "before_terminal", "after_terminal"]
    count: int = 0


UPGRADE = Moment("upgrade")
"""Before the answer to an upgrade request."""
OPENED = Moment("opened")
"""Right after a socket was accepted."""
RECEIPT = Moment("receipt")
"""A create was read whole; nothing was checked or answered yet."""
CREATED = Moment("events", 1)
"""``response.created`` was sent."""
BEFORE_TERMINAL = Moment("before_terminal")
AFTER_TERMINAL = Moment("after_terminal")


def after_events(count: int) -> Moment:
    """The moment after the ``count``-th event of a response."""
    return Moment("events", count)


def after_deltas(count: int) -> Moment:
    """The moment after the ``count``-th delta event of a response."""
    return Moment("deltas", count)


@dataclass(frozen=True, kw_only=True, slots=True)
class SendError:
    """Ends the turn with an error: an HTTP answer or a frame, or inside a stream that has begun an event."""

    status: int = 500
    code: str | None = None
    kind: str = "server_error"
    message: str = "The server had an error while processing your request."
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    shape: Shape = "request"
    then_failed: bool = False
    """Whether ``response.failed`` follows, as after an error in the middle of a stream."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fail:
    """Ends the turn with ``response.failed``."""

    code: str = "server_error"
    message: str = "The model produced no answer."


@dataclass(frozen=True, slots=True)
class EndIncomplete:
    """Ends the turn with ``response.incomplete``."""

    reason: str = "max_output_tokens"


@dataclass(frozen=True, slots=True)
class Close:
    """Closes the socket with a close frame; over HTTP, the connection without the last chunk."""

    code: int = 1000
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Abort:
    """Resets the TCP connection."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Ends the TCP connection in good order (FIN) without ending what runs on it."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Sends nothing any more until the peer leaves; ``pong`` tells whether pings are still answered."""

    pong: bool = True


@dataclass(frozen=True, slots=True)
class Silence:
    """Sends nothing for so many seconds, then goes on."""

    seconds: float


@dataclass(frozen=True, slots=True)
class StopReading:
    """Reads nothing more from the connection from now on, then goes on."""


@dataclass(frozen=True, slots=True)
class EndQuietly:
    """Ends the turn without a terminal event: an HTTP body ends cleanly, a socket falls silent."""


@dataclass(frozen=True, slots=True)
class RepeatTerminal:
    """Sends the terminal event once more, then goes on."""


@dataclass(frozen=True, slots=True)
class SendEvent:
    """Sends this event exactly as it is, then goes on: foreign, unknown, out of order or huge ones."""

    event: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SendText:
    """Sends this text as one frame, or as bytes of the body, then goes on."""

    text: str


@dataclass(frozen=True, slots=True)
class SendBinary:
    """Sends these bytes as one binary frame, or as bytes of the body, then goes on."""

    data: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Respond:
    """Answers a plain request or an upgrade with this HTTP response."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class TruncateBody:
    """A JSON answer of which only this share of the announced length is sent before the connection ends."""

    share: float = 0.5


Action = (
    SendError | Fail | EndIncomplete | Close | Abort | Cut | Stall | Silence | StopReading | EndQuietly
    | RepeatTerminal | SendEvent | SendText | SendBinary | Respond | TruncateBody
)  # fmt: skip


def huge_event(size: int, kind: str = "response.future.event") -> SendEvent:
    """An event of an unknown type with ``size`` bytes of padding."""
    return SendEvent({"type": kind, "padding": "x" * size})


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a fault is matched against. ``body`` is None for an upgrade and for what is not a JSON object."""

    transport: Literal["http", "ws"]
    connection: int
    method: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any] | None = None


def _any(_arrival: Arrival) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class Fault:
    """``actions`` happen one after the other at the moment ``at`` of the requests that match.

    Of the requests (or upgrades, for the moments before a socket carries any) on ``transport`` that ``matches`` accepts, the
    first ``skip`` are spared and the next ``times`` hit; None hits all that follow.
    """

    actions: Action | tuple[Action, ...]
    at: Moment = RECEIPT
    transport: Literal["http", "ws", "any"] = "any"
    matches: Callable[[Arrival], bool] = _any
    skip: int = 0
    times: int | None = 1

    def sequence(self) -> tuple[Action, ...]:
        """The actions in order."""
        return self.actions if isinstance(self.actions, tuple) else (self.actions,)


class FaultPlan:
    """The faults of one upstream, and how often each was reached."""

    def __init__(self) -> None:
        self._counts: dict[int, tuple[Fault, int]] = {}

    def add(self, *faults: Fault) -> None:
        """Arm ``faults``; the same object can be armed again after ``clear``."""
        for fault in faults:
            self._counts[len(self._counts)] = (fault, 0)

    def clear(self) -> None:
        """Disarm everything; what already runs goes on."""
        self._counts.clear()

    def take(self, arrival: Arrival, *kinds: str) -> list[Fault]:
        """The faults that hit this arrival, of those whose moment is one of ``kinds``. Counts it."""
        hit = []
        for number, (fault, seen) in self._counts.items():
            if fault.at.kind not in kinds or fault.transport not in ("any", arrival.transport):
                continue
            if not fault.matches(arrival):
                continue
            self._counts[number] = (fault, seen + 1)
            if seen >= fault.skip and (fault.times is None or seen < fault.skip + fault.times):
                hit.append(fault)
        return hit
