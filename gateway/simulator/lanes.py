"""The lanes of one socket: their names, their queues and the one response that each of them remembers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from gateway.simulator.journal import Entry
from gateway.simulator.options import Options
from gateway.simulator.records import Held
from gateway.simulator.refusal import Refusal
from gateway.simulator.validation import LANE_NAME


@dataclass(eq=False)
class Lane:
    """One ordered stream of creates. ``latest`` is all that it remembers."""

    name: str | None
    latest: Held | None = None
    waiting: asyncio.Queue[Entry] = field(default_factory=asyncio.Queue)
    busy: bool = False

    @property
    def occupied(self) -> bool:
        """Whether a create on this lane runs or waits."""
        return self.busy or not self.waiting.empty()

    def evict(self, parent: str | None, *, anyway: bool) -> None:
        """A turn that continued ``parent`` failed: what the lane remembers is lost if it was that, or ``anyway``."""
        if self.latest is not None and (anyway or self.latest.id == parent):
            self.latest = None


class Lanes:
    """All lanes of one socket. The default lane has no name and always exists."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lanes: dict[str | None, Lane] = {None: Lane(None)}

    def named(self, body: dict[str, Any]) -> tuple[Lane, bool]:
        """The lane that ``body`` asks for, and whether it is new. Raises Refusal for a bad, unsupported or surplus name."""
        if "stream_id" not in body:
            return self._lanes[None], False
        name = body["stream_id"]
        if not self._options.lanes:
            raise Refusal(400, "Unsupported parameter: stream_id", shape="detail", echo_lane=False)
        if not isinstance(name, str) or not LANE_NAME.fullmatch(name):
            raise Refusal(
                400, "Invalid 'stream_id'.", code="invalid_stream_id", param="stream_id", echo_lane=False
            )
        if name in self._lanes:
            return self._lanes[name], False
        if len(self._lanes) > self._options.max_lane_names:
            message = "This connection has used all of its stream names."
            raise Refusal(400, message, code="websocket_stream_limit_reached", param="stream_id")
        lane = self._lanes[name] = Lane(name)
        return lane, True

    def remembered(self, response_id: str) -> Held | None:
        """The response with this id, if it is the latest of any lane."""
        for lane in self._lanes.values():
            if lane.latest is not None and lane.latest.id == response_id:
                return lane.latest
        return None

    @property
    def default(self) -> Lane:
        """The lane without a name."""
        return self._lanes[None]
