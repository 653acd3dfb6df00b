"""What a gateway that is one of several processes has to do with the others, as far as putting it together goes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from aiohttp import web

from gateway.admin.routes import Everywhere
from gateway.downstream.responses import Elsewhere
from gateway.server.lifecycle import Requests
from gateway.server.links import Link
from gateway.server.observe import Observation
from gateway.settings import Settings
from gateway.turn.shared import Shared
from gateway.upstream.local_paths import LocalPaths
from gateway.upstream.team import Team

DIVIDED = (
    "max_in_flight", "in_flight_per_identity", "sockets", "sockets_per_identity", "conversations", "conversation_items",
)  # fmt: skip
"""Settings that limit all processes together; each process keeps its part, rounded up."""


class WorkerUnusable(Exception):
    """A process of several cannot work with these settings; the text is that of what it met."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of this process that the others ask for something."""

    settings: Settings
    links: LocalPaths[Link]
    shared: Shared
    observed: Observation
    requests: Requests
    read: Callable[[web.Request, Callable[[bytes], None]], Awaitable[None]]


class Fellows(Protocol):
    """The other processes. ``key`` is that of everybody's digests, ``count`` how many processes there are with this one.

    ``team`` is the team that all of them have, which may have been read before its file changed.
    """

    key: bytes
    count: int
    team: Team

    def meet(self, parts: Parts) -> tuple[Elsewhere, Everywhere]:
        """Begin to work together; called once, when this process is put together."""

    async def deleted(self, identity: bytes, response_id: str) -> None:
        """Tell the others that a response was deleted."""


def part_of(settings: Settings, count: int) -> Settings:
    """The settings of one of ``count`` processes."""
    parts = {name: -(-getattr(settings, name) // count) for name in DIVIDED}
    return replace(settings, **parts)


def team_part(team: Team, count: int) -> Team:
    """The team with the limits of one of ``count`` processes."""

    def part(limit: int | None) -> int | None:
        return None if limit is None else -(-limit // count)

    members = {
        digest: replace(member, in_flight=part(member.in_flight), sockets=part(member.sockets))
        for digest, member in team.members.items()
    }
    return replace(team, members=members)
