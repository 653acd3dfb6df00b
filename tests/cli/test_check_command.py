"""``upwire check``."""

import socket

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.cli.check import KEY_VARIABLE, port_row, upstream_rows
from gateway.server import bind
from gateway.settings import Settings
from gateway.simulator import Options, Simulator
from gateway.stats import Stats

KEY = "sk-secret-of-mine"


@pytest.fixture
def closed_port():
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        return held.getsockname()[1]


async def rows_of(key="", **settings):
    """The steps towards the upstream by name, none of which may show the key."""
    rows = {row.name: row async for row in upstream_rows(Settings(dial_timeout=5, **settings), key)}
    assert KEY not in str(rows)
    return rows


def verdicts(rows):
    """The names and verdicts, in order."""
    return [(row.name, row.verdict) for row in rows.values()]


async def test_everything_in_order():
    """A reachable upstream with WebSocket and a valid key is ok at every step."""
    simulator = Simulator(Options(keys=frozenset({KEY})))
    await simulator.start()
    try:
        rows = await rows_of(KEY, upstream=simulator.url)
    finally:
        await simulator.stop()
    assert verdicts(rows) == [(n, "ok") for n in ("proxy", "DNS", "TCP", "TLS", "upgrade", "key")]


async def test_a_wrong_key():
    """The upgrade cannot be judged with a wrong key; the key itself fails and names its variable."""
    simulator = Simulator(Options(keys=frozenset({"another"})))
    await simulator.start()
    try:
        rows = await rows_of(KEY, upstream=simulator.url)
    finally:
        await simulator.stop()
    assert (rows["upgrade"].verdict, rows["key"].verdict) == ("warning", "failed")
    assert "401" in rows["key"].seen
    assert KEY_VARIABLE in rows["key"].remedy


@pytest.mark.parametrize(
    ("key", "seen", "remedy"),
    [("", "401", "valid key"), (KEY, "status 426", "plain HTTP: right, but no faster")],
)
async def test_no_key_or_no_websocket(key, seen, remedy):
    """Both are warnings: the gateway works, though it may not be faster."""
    simulator = Simulator(Options(websocket=False))
    await simulator.start()
    try:
        rows = await rows_of(key, upstream=simulator.url)
    finally:
        await simulator.stop()
    assert rows["upgrade"].verdict == "warning"
    assert seen in rows["upgrade"].seen
    assert remedy in rows["upgrade"].remedy
    assert rows["key"].verdict == ("ok" if key else "warning")


async def test_a_key_that_may_not_list_models():
    """A restricted key is not called wrong."""

    async def forbidden(_request):
        return web.Response(status=403)

    app = web.Application()
    app.router.add_get("/v1/models", forbidden)
    async with TestServer(app) as server:
        rows = await rows_of(KEY, upstream=str(server.make_url("/v1")))
    assert (rows["upgrade"].seen, rows["key"].verdict) == ("status 404", "warning")
    assert "403" in rows["key"].seen


async def test_nobody_listens(closed_port):
    """The steps end at TCP, with what to look at."""
    rows = await rows_of(upstream=f"http://127.0.0.1:{closed_port}/v1")
    assert verdicts(rows) == [("proxy", "ok"), ("DNS", "ok"), ("TCP", "failed")]
    assert rows["TCP"].remedy == "Nothing listens there. Is it running? Is the port right?"


async def test_an_unknown_name():
    """The steps end at DNS."""
    rows = await rows_of(upstream="https://no-such-host.invalid/v1")
    assert verdicts(rows) == [("proxy", "ok"), ("DNS", "failed")]


async def test_tls_spoken_to_a_plain_port():
    """An https upstream on a port without TLS fails at TLS."""
    simulator = Simulator()
    await simulator.start()
    try:
        rows = await rows_of(upstream=simulator.url.replace("http:", "https:"))
    finally:
        await simulator.stop()
    assert verdicts(rows)[-1] == ("TLS", "failed")


async def test_a_proxy_that_is_not_there(closed_port):
    """With a proxy the connection to it is what is tried, and its password is not shown."""
    rows = await rows_of(upstream="https://api.invalid/v1", proxy=f"http://me:{KEY}@127.0.0.1:{closed_port}")
    assert verdicts(rows) == [("proxy", "ok"), ("DNS", "ok"), ("TCP", "failed")]
    rows = await rows_of(upstream="https://api.invalid/v1", proxy="socks4://127.0.0.1:1")
    assert verdicts(rows) == [("proxy", "failed")]


def test_a_port_that_is_free_or_ours_or_taken(answering):
    """A gateway on the port is as good as a free port; anything else fails with a way out."""
    assert port_row(Settings(port=0), None).verdict == "ok"
    with bind("127.0.0.1", 0)[0] as taken:
        port = taken.getsockname()[1]
    assert port_row(Settings(port=port), None).seen.endswith("is free; no gateway runs there now")
    stats = Stats().snapshot(connections={}, conversations={}, uptime=1, version="1.2.3")
    ours = int(answering(200, stats)[0].rpartition(":")[2])
    assert "upwire 1.2.3" in port_row(Settings(port=ours), None).seen
    other = int(answering(200, b"hello")[0].rpartition(":")[2])
    row = port_row(Settings(port=other), None)
    assert row.verdict == "failed"
    assert "--port" in row.remedy


def test_exit_code_and_printed_rows(upwire, closed_port, monkeypatch):
    """A failed step is printed with its remedy and makes the exit code 1; the key is not printed."""
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    code, out, err = upwire("check", "--port", "0", "--upstream", f"http://127.0.0.1:{closed_port}/v1")
    assert (code, err) == (1, "")
    assert [line.split()[:2] for line in out.splitlines() if not line.startswith(" ")] == [
        ["config", "ok"],
        ["port", "ok"],
        ["proxy", "ok"],
        ["DNS", "ok"],
        ["TCP", "failed"],
    ]
    assert "Is it running?" in out
    assert KEY not in out


def test_wrong_settings_are_a_row(upwire):
    """A configuration that makes no sense is the first failed row."""
    code, out, _ = upwire("check", "--upstream", "ftp://h")
    assert code == 1
    assert out.startswith("config   failed   upstream (flag --upstream) must be an http or https URL")
