"""The paths that tell about the gateway."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gateway.admin import PATHS, Feed, Metrics, admin_routes
from gateway.stats import Stats


@pytest.fixture
async def admin():
    """A client of the admin paths and the list whose last element is the phase."""
    phase = ["starting"]
    app = web.Application()
    stats = Stats()

    def snapshot():
        return stats.snapshot(connections={}, conversations={}, uptime=1, version="1")

    metrics = Metrics(stats, snapshot)
    app.add_routes(admin_routes(snapshot=snapshot, phase=lambda: phase[-1], metrics=metrics, feed=Feed()))
    async with TestClient(TestServer(app)) as client:
        yield client, phase


@pytest.mark.parametrize(("now", "status"), [("starting", 503), ("ready", 200), ("draining", 503)])
async def test_readiness_follows_the_phase_and_liveness_does_not(admin, now, status):
    """Readiness is 503 while starting or draining; liveness is always 200."""
    client, phase = admin
    phase.append(now)
    async with client.get("/readyz") as answer:
        assert (answer.status, await answer.json()) == (status, {"status": now})
    async with client.get("/healthz") as answer:
        assert answer.status == 200


async def test_statistics_are_json_that_nobody_caches(admin):
    """The statistics are one JSON object with the keys of the contract."""
    client, _ = admin
    async with client.get("/stats") as answer:
        assert answer.headers["content-type"].startswith("application/json")
        assert answer.headers["cache-control"] == "no-store"
        assert set(await answer.json()) == {
            "version",
            "uptime_seconds",
            "turns",
            "reasons",
            "bytes",
            "connections",
            "conversations",
            "recoveries",
            "latency_ms",
            "upstream",
            "sockets",
        }


async def test_other_methods_are_refused(admin):
    """Nothing on these paths can be changed from outside."""
    client, _ = admin
    for path in ("/stats", "/healthz", "/readyz"):
        assert path in PATHS
        async with client.post(path) as answer:
            assert answer.status == 405
