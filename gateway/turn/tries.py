"""When a turn is tried again, hidden from the client: decisions only.

The rules, in order of need. What was refused or never written did not run, and is tried again. A delta of ours that the
upstream refuses is sent once in full, and a field that it does not take on a socket goes over plain HTTP. A reused socket that turns out to have been dead is worth one repeat. Whatever else was
written and then lost may have run, so the client decides. At most two tries that the upstream may have begun, four in all.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from gateway.conversation.reasons import Reason
from gateway.protocol.refusals import Cause, Refusal

MOST_TRIES = 4
MOST_BEGUN = 2

# A bad key, a missing right and a spent rate are the caller's to know; sending more would not help.
_FINAL = frozenset({401, 403, 429})


class Way(Enum):
    """How a try goes upstream."""

    SOCKET = auto()
    FRESH = auto()  # over a socket, in full, without a parent of ours
    HTTP = auto()


@dataclass(frozen=True, slots=True)
class Again:
    """Try again this way. ``recovery`` is what the statistics count, ``reason`` why the turn is then no delta."""

    way: Way
    reason: Reason
    recovery: str | None


@dataclass(frozen=True, slots=True)
class Loss:
    """How a socket was lost before the first event: see ``SocketLost`` for the fields."""

    flushed: bool
    answered: bool
    ponged: bool
    reused: bool
    too_big: bool


def after_refusal(refusal: Refusal, *, ours: bool) -> Again | None:
    """What follows a refusal as first event; None makes it the client's. ``ours``: the parent was added by us."""
    if refusal.cause is Cause.CONNECTION_LIMIT:
        return Again(Way.FRESH, Reason.CONNECTION_LOST, "reconnect")
    if not ours:
        if refusal.cause is Cause.UNSUPPORTED:
            return Again(Way.HTTP, Reason.NOT_UPGRADABLE, "http_fallback")
        return None
    if refusal.cause is Cause.NOT_FOUND:
        return Again(Way.FRESH, Reason.NOT_FOUND, "full_resend")
    if 400 <= refusal.status < 500 and refusal.status not in _FINAL:
        return Again(Way.FRESH, Reason.DELTA_REFUSED, "full_resend")
    return None


def after_loss(loss: Loss, *, begun: int) -> Again | None:
    """What follows a socket lost before the first event; None ends the turn. ``begun`` counts this try."""
    if loss.too_big and not loss.answered:
        return Again(Way.HTTP, Reason.TOO_LARGE, "http_fallback")
    if not loss.flushed and not loss.answered:
        return Again(Way.HTTP, Reason.CONNECTION_LOST, "http_fallback")
    if loss.reused and not loss.answered and not loss.ponged and begun < MOST_BEGUN:
        return Again(Way.FRESH, Reason.CONNECTION_LOST, "replay")
    return None
