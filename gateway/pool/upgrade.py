"""What is remembered of upstreams that refused the upgrade, so that they do not cost a dial per turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_NO_WEBSOCKET_HERE = frozenset({404, 405, 426, 501})
_BLOCKED_PERHAPS = frozenset({400, 403})
_BLOCKED_BY_PROXY = "proxy"
_ABOUT_THE_CALLER = frozenset({401})
_TRANSIENT_CLOSES = frozenset({1001, 1009, 1012, 1013})
_BACKOFF = 1.0
_BACKOFF_CAP = 30.0
_CAPACITY = 1024


@dataclass(frozen=True, slots=True)
class Bar:
    """Why an upstream is not dialled now: the refusal that caused it."""

    status: int | None
    reason: str


@dataclass(slots=True)
class _Upstream:
    accepted: bool = False
    answered: bool = False
    blocked: int = 0
    early_closes: int = 0
    failures: int = 0
    until: float = 0.0
    bar: Bar | None = None
    failed_at: float = float("-inf")

    def news(self, began: float, now: float) -> bool:
        """Whether a failure at ``now`` counts beside those before: not if it began before the last of them was known."""
        if began < self.failed_at:
            return False
        self.failed_at = now
        return True


class UpgradeMemory:
    """Decides per upstream URL whether it may be dialled.

    - 404, 405, 426, 501 and any other answer below 400 than 101 mean that no WebSocket is spoken there: not dialled for
      ``memory`` seconds. 400, 403 and a proxy that lets no socket pass mean that only after two in a row (a middlebox, or a
      passing refusal).
    - An upgrade that is accepted and closed before any event counts as blocked after two in a row, unless that
      upstream has ever delivered an event over a socket. Restarts (1001, 1012, 1013) and frames too big (1009) do not count.
    - 401 is about the caller's key and is not remembered.
    - 429, 5xx, other 4xx and dials that fail (name, connection, TLS, time) back off: 1 s, doubling up to 30 s.
    - Many conversations can meet one outage at once: what began before a failure was known is not another one in a row.
    """

    def __init__(self, *, memory: float) -> None:
        self._memory = memory
        self._upstreams: dict[str, _Upstream] = {}

    def barred(self, upstream: str, now: float) -> Bar | None:
        """The refusal that keeps ``upstream`` from being dialled at ``now``, or None."""
        known = self._upstreams.get(upstream)
        return known.bar if known is not None and now < known.until else None

    def proven(self, upstream: str) -> bool:
        """Whether the last dial succeeded; until then one dial at a time probes the upstream for all."""
        known = self._upstreams.get(upstream)
        return known is not None and known.accepted

    def summary(self, now: float) -> dict[str, Any]:
        """Over all URLs: ``works``, ``refused`` or ``untried``, with the refusal that counts and when it is tried again."""
        barred = [known for known in self._upstreams.values() if known.bar is not None and now < known.until]
        working = any(known.accepted for known in self._upstreams.values())
        latest = max(barred, key=lambda known: known.until, default=None)
        bar = latest.bar if latest is not None else None
        return {
            "websocket": "works" if working else "refused" if barred else "untried",
            "refusal": None if bar is None else {"status": bar.status, "reason": bar.reason},
            "retry_in_seconds": None if latest is None else round(latest.until - now, 1),
        }

    def accepted(self, upstream: str) -> None:
        """The upgrade succeeded."""
        known = self._known(upstream)
        known.accepted = True
        known.failures = 0
        known.blocked = 0
        known.until = 0.0

    def answered(self, upstream: str) -> None:
        """A socket delivered its first event: WebSocket works all the way."""
        known = self._known(upstream)
        known.answered = True
        known.early_closes = 0

    def refused(
        self, upstream: str, status: int | None, reason: str, now: float, *, began: float | None = None
    ) -> None:
        """A dial that ``began`` then ended with HTTP ``status``, or, with None, without one."""
        known = self._known(upstream)
        bar = Bar(status, reason)
        if status in _ABOUT_THE_CALLER:
            return
        known.accepted = False
        news = known.news(now if began is None else began, now)
        if status is not None and (status in _NO_WEBSOCKET_HERE or status < 400):
            self._remember(known, bar, now)
        elif status in _BLOCKED_PERHAPS or reason == _BLOCKED_BY_PROXY:
            known.blocked += news
            if known.blocked >= 2:
                self._remember(known, bar, now)
        elif news:
            known.bar = bar
            known.until = now + min(_BACKOFF_CAP, _BACKOFF * 2.0 ** min(known.failures, 10))
            known.failures += 1

    def closed_early(
        self, upstream: str, code: int | None, now: float, *, began: float | None = None
    ) -> None:
        """The upstream closed a socket, opened when it ``began``, after a frame was sent and before any event came."""
        known = self._known(upstream)
        if known.answered or code in _TRANSIENT_CLOSES:
            return
        known.early_closes += known.news(now if began is None else began, now)
        if known.early_closes >= 2:
            known.accepted = False
            self._remember(known, Bar(None, "closed_early"), now)

    def _remember(self, known: _Upstream, bar: Bar, now: float) -> None:
        known.bar = bar
        known.until = now + self._memory
        known.answered = False

    def _known(self, upstream: str) -> _Upstream:
        known = self._upstreams.pop(upstream, None)
        if known is None:
            known = _Upstream()
            if len(self._upstreams) >= _CAPACITY:
                del self._upstreams[next(iter(self._upstreams))]
        self._upstreams[upstream] = known
        return known
