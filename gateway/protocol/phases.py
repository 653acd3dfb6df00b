"""The phases of one exchange (a request and its response), what each allows, and the only ways from one to the next.

The rules:

- A request may be sent again as long as no event of its response was seen. Whether it should be is decided elsewhere, by what
  the upstream may have begun.
- Events are passed on from the first event of the response to its terminal event. After a mid-stream ``error`` one
  ``response.failed`` may still come.
- Only a completed response may become the parent of another.
- A socket can be used again when the response on it has ended by its own terminal event, or when nothing was written to
  it. After a refusal that depends on the upstream (some close the socket behind an error) and on the refusal: it must be
  certain that it was this request's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import Final


class Phase(Enum):
    """Where an exchange stands."""

    # Enum's own is a Python function, and every event looks up a pair of these.
    __hash__ = object.__hash__

    PLANNED = auto()
    SENT = auto()
    STREAMING = auto()
    ERRORED = auto()
    COMPLETED = auto()
    INCOMPLETE = auto()
    FAILED = auto()
    REFUSED = auto()
    LOST = auto()
    """The connection went before any event of the response."""
    BROKEN = auto()
    """The connection went in the middle of the response."""
    CANCELLED = auto()


class Signal(Enum):
    """What moves an exchange."""

    # Enum's own is a Python function, and every event looks up a pair of these.
    __hash__ = object.__hash__

    SEND = auto()
    """The frame is about to be written."""
    REFUSE = auto()
    """An error as first event."""
    START = auto()
    """The response made itself known."""
    PROGRESS = auto()
    """Any further event of the response."""
    ERROR = auto()
    """An ``error`` event within the response."""
    COMPLETE = auto()
    INCOMPLETE = auto()
    FAIL = auto()
    LOSE = auto()
    """The connection is gone, or the upstream broke the protocol."""
    CANCEL = auto()
    """The client is gone."""


@dataclass(frozen=True, slots=True)
class Permit:
    """What a phase allows. ``socket_reusable`` None means: if this upstream keeps its socket after errors."""

    may_repeat: bool = False
    may_relay: bool = False
    may_commit: bool = False
    socket_reusable: bool | None = False
    ended: bool = False


PERMITS: Final = MappingProxyType(
    {
        Phase.PLANNED: Permit(may_repeat=True, socket_reusable=True),
        Phase.SENT: Permit(may_repeat=True),
        Phase.STREAMING: Permit(may_relay=True),
        Phase.ERRORED: Permit(may_relay=True),
        Phase.COMPLETED: Permit(may_commit=True, socket_reusable=True, ended=True),
        Phase.INCOMPLETE: Permit(socket_reusable=True, ended=True),
        Phase.FAILED: Permit(socket_reusable=True, ended=True),
        Phase.REFUSED: Permit(may_repeat=True, socket_reusable=None, ended=True),
        Phase.LOST: Permit(may_repeat=True, ended=True),
        Phase.BROKEN: Permit(ended=True),
        Phase.CANCELLED: Permit(ended=True),
    }
)

TRANSITIONS: Final = MappingProxyType(
    {
        (Phase.PLANNED, Signal.SEND): Phase.SENT,
        (Phase.PLANNED, Signal.LOSE): Phase.LOST,
        (Phase.PLANNED, Signal.CANCEL): Phase.CANCELLED,
        (Phase.SENT, Signal.START): Phase.STREAMING,
        (Phase.SENT, Signal.REFUSE): Phase.REFUSED,
        (Phase.SENT, Signal.LOSE): Phase.LOST,
        (Phase.SENT, Signal.CANCEL): Phase.CANCELLED,
        (Phase.STREAMING, Signal.PROGRESS): Phase.STREAMING,
        (Phase.STREAMING, Signal.ERROR): Phase.ERRORED,
        (Phase.STREAMING, Signal.COMPLETE): Phase.COMPLETED,
        (Phase.STREAMING, Signal.INCOMPLETE): Phase.INCOMPLETE,
        (Phase.STREAMING, Signal.FAIL): Phase.FAILED,
        (Phase.STREAMING, Signal.LOSE): Phase.BROKEN,
        (Phase.STREAMING, Signal.CANCEL): Phase.CANCELLED,
        (Phase.ERRORED, Signal.FAIL): Phase.FAILED,
        (Phase.ERRORED, Signal.LOSE): Phase.BROKEN,
        (Phase.ERRORED, Signal.CANCEL): Phase.CANCELLED,
    }
)


class IllegalTransition(RuntimeError):
    """The caller did what the phase of the exchange does not allow: a defect of ours, never of the upstream."""


def step(phase: Phase, signal: Signal) -> Phase:
    """The phase that follows; raises IllegalTransition if there is none."""
    try:
        return TRANSITIONS[phase, signal]
    except KeyError:
        raise IllegalTransition(f"{signal.name} in phase {phase.name}") from None
