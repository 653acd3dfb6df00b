"""What an event of the upstream means for the client that waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from gateway.protocol.refusals import Refusal


@dataclass(frozen=True, slots=True)
class Ignored:
    """Nothing for the client. ``why`` is ``keepalive`` or ``notice`` (harmless) or ``foreign`` (see ``Exchange.foreign``)."""

    why: Literal["keepalive", "notice", "foreign"]


class Relay(msgspec.Struct, frozen=True, gc=False):
    """An event for the client: its type and its JSON."""

    kind: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """The upstream's first event was an error: nothing has been relayed, so it can still be a status, or be tried again."""

    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Violation:
    """The upstream sent what is no event. The caller must end the turn as lost; ``reason`` quotes nothing of it."""

    reason: str


Outcome = Ignored | Relay | Refused | Violation
