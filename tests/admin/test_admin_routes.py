"""The paths that tell about the gateway."""

import asyncio
import base64
import hashlib
import json
import re

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gateway.admin import PATHS, Feed, Metrics, admin_routes
from gateway.admin.feed import WAITING, WATCHERS
from gateway.stats import CLOSED_TEXTS, REASON_TEXTS, RECOVERY_TEXTS, Stats, TurnRecord


@pytest.fixture
async def served():
    """A client of the admin paths, the list whose last element is the phase, and what watchers are told."""
    phase = ["starting"]
    app = web.Application()
    stats = Stats()
    feed = Feed()

    def snapshot():
        return stats.snapshot(connections={}, conversations={}, uptime=1, version="1")

    metrics = Metrics(stats, snapshot)
    app.add_routes(admin_routes(snapshot=snapshot, phase=lambda: phase[-1], metrics=metrics, feed=feed))
    async with TestClient(TestServer(app, handler_cancellation=True)) as client:
        yield client, phase, feed
        feed.close()


@pytest.fixture
def admin(served):
    """The client and the phase."""
    client, phase, _ = served
    return client, phase


@pytest.fixture
def watched(served):
    """The client of a ready gateway, and what watchers are told."""
    client, phase, feed = served
    phase.append("ready")
    return client, feed


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
            "upstreams",
            "identities",
            "sockets",
            "index",
        }


async def test_other_methods_are_refused(admin):
    """Nothing on these paths can be changed from outside."""
    client, _ = admin
    for path in ("/stats", "/metrics", "/events", "/healthz", "/readyz", "/dashboard"):
        assert path in PATHS
        async with client.post(path) as answer:
            assert answer.status == 405


async def test_the_page_is_one_piece_with_a_strict_policy(admin):
    """It names no other place, its policy allows exactly its own script and style, and every counted word is explained in it."""
    client, _ = admin
    async with client.get("/dashboard") as answer:
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        page = await answer.text()
        policy = answer.headers["content-security-policy"]
    assert set(re.findall(r'(?:src|href)="(.*?)"', page)) == {"data:,", "#main", "/stats", "/metrics"}
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    for kind in ("script", "style"):
        (text,) = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for texts in (REASON_TEXTS, RECOVERY_TEXTS, CLOSED_TEXTS):
        for word, text in texts.items():
            assert f'"{word}"' in page
            assert text.meaning in page


def turn(number):
    """A turn of the given size."""
    return TurnRecord(
        mode="delta", reason=None, outcome="ok", status=200, client_in=number, upstream_out=1, first_event=0.1, added=None,
        total=0.5, recoveries=(), model="a prompt",
    )  # fmt: skip


async def read_until(stream, kind, count=1):
    """The values of the next events of a kind."""
    values = []
    async with asyncio.timeout(10):
        while len(values) < count:
            assert (await stream.readuntil(b"event: ")) == b"event: "
            name = (await stream.readline()).decode().strip()
            value = json.loads((await stream.readline()).removeprefix(b"data: "))
            assert await stream.readline() == b"\n"
            if name == kind:
                values.append(value)
    return values


async def test_the_stream_begins_with_what_is_kept_and_goes_on_with_each_turn(watched):
    """First the last hundred turns and the sums over time, then every turn as it ends, and the statistics in between."""
    client, feed = watched
    for number in range(1, 151):
        feed.add(turn(number), at=1000.0 + number)
    async with client.get("/events") as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        (recent,) = await read_until(answer.content, "recent")
        assert [each["bytes_in"] for each in recent["turns"]] == list(range(51, 151))
        assert sum(point["delta"] for point in recent["history"]) == 150
        assert [point["at"] for point in recent["history"]] == list(range(1000, 1160, 10))
        assert recent["turns"][-1] == {
            "n": 150, "at": 1150.0, "model": "other", "mode": "delta", "reason": None, "outcome": "ok", "status": 200,
            "bytes_in": 150, "bytes_sent": 1, "first_event_ms": 100.0, "added_ms": None, "duration_ms": 500.0,
            "recoveries": [],
        }  # fmt: skip
        (stats,) = await read_until(answer.content, "stats")
        assert stats["phase"] == "ready"
        feed.add(turn(151), at=1200.0)
        feed.add(turn(152), at=1201.0)
        assert [each["n"] for each in await read_until(answer.content, "turn", 2)] == [151, 152]


async def test_a_watcher_who_falls_behind_is_given_all_again(watched):
    """What waits for it is bounded; then it begins anew instead of being told of turns with a gap."""
    _, feed = watched
    watcher = feed.watch()
    assert await watcher.news(0) == []
    watcher.behind = False
    for number in range(WAITING):
        feed.add(turn(number), at=1.0)
    assert len(await watcher.news(0)) == WAITING
    for number in range(WAITING + 1):
        feed.add(turn(number), at=1.0)
    assert watcher.behind
    assert await watcher.news(0) == []


async def test_only_so_many_may_watch(watched):
    """Beyond the limit the answer is 503 in the API's shape; a place is free again when somebody leaves."""
    client, feed = watched
    places = [feed.watch() for _ in range(WATCHERS)]
    async with client.get("/events") as answer:
        assert answer.status == 503
        assert (await answer.json())["error"]["code"] == "too_many_watchers"
    feed.leave(places[0])
    async with client.get("/events") as answer:
        assert answer.status == 200
        await read_until(answer.content, "recent")
        assert feed.watch() is None
    for _ in range(500):
        if (place := feed.watch()) is not None:
            break
        await asyncio.sleep(0.01)
    assert place.behind


async def test_watchers_are_let_go_when_the_gateway_ends(watched):
    """Their streams end at once, so that nobody waits for them, and no new one begins."""
    client, feed = watched
    async with client.get("/events") as answer:
        await read_until(answer.content, "stats")
        feed.close()
        async with asyncio.timeout(2):
            await answer.content.read()
    async with client.get("/events") as answer:
        assert answer.status == 503


async def test_head_of_the_stream(watched):
    """A HEAD request ends with the head."""
    client, _ = watched
    async with asyncio.timeout(5), client.head("/events") as answer:
        assert answer.status == 200
