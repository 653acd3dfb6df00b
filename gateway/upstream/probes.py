"""One dial that finds out for all whether an unproven upstream can be reached."""

from __future__ import annotations

import asyncio

from gateway.upstream.dial import UpgradeRefused

_ABOUT_THE_CALLER = frozenset({401, 403, 429})


class Probes:
    """The dials in progress to upstreams of which nothing good is known, one for each URL."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[int, bytes, asyncio.Future[UpgradeRefused | None]]] = {}

    def __contains__(self, url: str) -> bool:
        return url in self._running

    def begin(self, url: str, socket_id: int, identity: bytes) -> None:
        """The dial for ``socket_id`` probes ``url`` with the credentials of ``identity``."""
        self._running[url] = (socket_id, identity, asyncio.get_running_loop().create_future())

    def finish(self, url: str, socket_id: int, refusal: UpgradeRefused | None) -> None:
        """The dial for ``socket_id`` ended, with a refusal, or in success, or it was given up."""
        if url in self._running and self._running[url][0] == socket_id:
            self._running.pop(url)[2].set_result(refusal)

    async def outcome(self, url: str, identity: bytes) -> None:
        """Wait for the probe of ``url``, if there is one, and raise its refusal unless that is about another caller only."""
        if url not in self._running:
            return
        _, prober, future = self._running[url]
        await asyncio.wait([future])
        refusal = future.result()
        if refusal is not None and (prober == identity or refusal.status not in _ABOUT_THE_CALLER):
            raise UpgradeRefused(refusal.status, refusal.reason, remembered=True)
