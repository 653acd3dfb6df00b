"""Turns against one upstream: what is known of it, and the rules that decide where a turn goes."""

from __future__ import annotations

import re
from typing import Any

import structlog

from gateway.conversation.arriving import Body
from gateway.conversation.items import Level
from gateway.conversation.plan import Plan, Rules
from gateway.conversation.reasons import Reason
from gateway.conversation.request import NotUpgradable, Request
from gateway.conversation.transcripts import Transcript
from gateway.pool import MAIN, Line
from gateway.settings import Settings
from gateway.stats import TurnRecord
from gateway.turn.call import Call, Headers
from gateway.turn.lessons import Lessons
from gateway.turn.shared import Shared
from gateway.turn.turn import Turn
from gateway.upstream.identity import has_key, identity_digest
from gateway.upstream.key import UpstreamKey
from gateway.upstream.plain import PlainHttp
from gateway.upstream.profile import profile_of

# Stands among the headers where callers are told apart; the space keeps it from being one.
_QUERY = "url query"

# What the SDKs send by themselves on every request; any other key asks for a promise that a socket cannot keep.
_AUTOMATIC_KEY = re.compile(r"stainless-", re.ASCII)


class TurnDriver:
    """Makes turns. ``turn`` is called once per ``POST /v1/responses`` with its decoded body.

    ``settings`` are those of a gateway with this upstream only. ``line`` is what the pool knows it by, ``key`` the key for it that
    the gateway holds, if any.
    """

    def __init__(
        self,
        settings: Settings,
        shared: Shared,
        *,
        plain: PlainHttp,
        line: Line = MAIN,
        key: UpstreamKey | None = None,
    ) -> None:
        self.upstream = settings.upstream
        self.profile = profile_of(settings.upstream, settings.profile)
        self.line = line
        self.lessons = Lessons(None if line.name == MAIN.name else line.name)
        self.plain = plain
        self.index = shared.index
        self.places = shared.places
        self.parties = shared.parties
        self.retention = shared.retention
        self.store = shared.store
        self.pool = shared.pool
        self.clock = shared.clock
        self.digester = shared.digester
        self.reader = shared.reader
        self.deleted = shared.deleted
        self._shared = shared
        self._key = key
        # Headers that are about one request count for nothing, also those that the operator gave to an upstream: two upstreams of one
        # URL are two.
        self._place = self.upstream if line.name == MAIN.name else f"{self.upstream}#{line.name}"
        self._log = structlog.get_logger("upwire")
        self.reconfigure(settings)

    def reconfigure(self, settings: Settings) -> None:
        """Go on with other settings, from the next turn; ``upstream`` and what hangs on it stays."""
        self.upgrades = settings.mode == "auto"
        self.checks_parent = settings.check_parent
        self.max_waiting = settings.max_waiting
        self.survives_errors = settings.survives_errors and self.profile.survives_errors
        self.lessons.go_by(min(settings.max_frame, self.profile.max_frame), memory=settings.upgrade_memory)
        self._settings = settings
        self._rules = Rules(
            Level[settings.match.upper()],
            any_change_is_full=settings.settings == "full",
            chain_stored=settings.stored == "delta",
        )

    @property
    def per_request(self) -> tuple[str, ...]:
        """Patterns of the headers that are about one request."""
        return self._settings.per_request_headers

    @property
    def level(self) -> Level:
        """How alike a resent history must be now."""
        return self._rules.level

    def turn(self, call: Call) -> Turn:
        """A turn for this call, to be entered with ``async with``; the caller holds a place for it."""
        return Turn(self, call, call.body.owner, self.reader.read(call.body))

    def body(self, identity: bytes) -> Body:
        """An empty body for a call of ``identity``, to be fed as it arrives."""
        return Body(identity, self.store.scan(identity, self.digester.running()))

    def identity(self, headers: Headers, token: str | None, query: str) -> bytes:
        """Whose request this is: sockets and conversations of one identity are never used for another.

        The client's own ``query`` is a part of the upstream's URL: a socket has the one that it was opened with, and a key or
        a version may stand there.
        """
        told = _with_query(headers, query)
        return identity_digest(self._shared.key, self._place, told, self._settings.per_request_headers, token)

    def begin(self) -> None:
        """A turn starts."""
        self._shared.counter.begin()

    def end(self, record: TurnRecord, call: Call) -> None:
        """The turn of ``call`` has ended."""
        self._shared.counter.end(record)
        if self._key is not None and not has_key(call.headers, self._key.latest, self.profile.key_header):
            # The key was replaced meanwhile; this turn may have opened a socket with the old one since.
            self.pool.outdate(self.line, call.body.owner)

    def switched_off(self, wish: str | None) -> bool:
        """Whether a turn goes over plain HTTP because somebody said so: the settings, or its header ``x-upwire-mode``."""
        return not self.upgrades or (wish or "").strip().lower() == "http"

    def forward_reason(self, call: Call, request: Request | NotUpgradable) -> Reason | None:
        """Why this turn must go over plain HTTP, if it must."""
        settings = self._settings
        if self.switched_off(call.header("x-upwire-mode")):
            return Reason.DISABLED
        key = call.header("idempotency-key")
        if isinstance(request, NotUpgradable) or (key is not None and not _AUTOMATIC_KEY.match(key)):
            return Reason.NOT_UPGRADABLE
        if self.lessons.only_http(request.stream, (member.name for member in request.members), self.clock()):
            return Reason.NOT_UPGRADABLE
        volatile = self._shared.volatile.observe(
            self._place, _with_query(call.headers, call.query), settings.per_request_headers, call.token
        )
        if volatile is None:
            return None
        if volatile.first:
            self._log.warning(
                "header_keeps_changing",
                header=volatile.name,
                remedy="such turns go over plain HTTP; name the header in per_request_headers if it tells nobody apart",
            )
        return Reason.NOT_UPGRADABLE

    def plan(self, identity: bytes, request: Request) -> Plan:
        """What the upstream may already hold of this request."""
        self.store.expire(self.clock())
        if request.client_parent is None and self.lessons.chains_nothing(self.clock()):
            return Plan((), Reason.DELTA_REFUSED)
        found = self.store.plan(identity, request, self._rules)
        told = self._shared.told_of_reasoning
        if (
            found.reason is Reason.REASONING_OMITTED
            and identity not in told
            and len(told) < self._settings.conversations
        ):
            told.add(identity)
            self._log.info(
                "reasoning_omitted",
                remedy="this client leaves reasoning items out, so its turns are sent in full; match = lenient would make them "
                "deltas, and let the model keep reasoning that the client did not resend",
            )
        return found

    def continued(self, identity: bytes, transcript: Transcript) -> None:
        """A transcript is being continued."""
        self.store.touch(identity, transcript, self.clock())

    def forgotten(self, identity: bytes, transcript: Transcript) -> None:
        """The upstream does not know this response any more."""
        self.pool.forget(identity, transcript.response_id)
        if transcript.stored:
            if self.retention.missing(identity, transcript.response_id):
                self.pool.forgets_stored(identity, self.line)
            if self.index is not None:
                self.index.forgotten(identity, transcript.response_id)
        self.store.forget(identity, transcript.response_id)

    def learned(self) -> dict[str, Any]:
        """What this upstream taught, for the statistics."""
        return self.lessons.snapshot(self.clock())

    def own_headers(self, mode: str, reason: Reason | None, added: float | None) -> Headers:
        """The headers that say how a turn went, and the time in seconds that the gateway added, unless switched off."""
        told: list[tuple[str, str]] = []
        if self._settings.expose_mode:
            told.append(("x-upwire-mode", mode))
            if reason is not None:
                told.append(("x-upwire-reason", reason.value))
        if self._settings.server_timing and added is not None:
            told.append(("server-timing", f"upwire;dur={added * 1000:.3f}"))
        return tuple(told)


def _with_query(headers: Headers, query: str) -> Headers:
    return (*headers, (_QUERY, query)) if query else headers
