"""``upwire check`` against each way in which a set-up can be broken."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys

import pytest

from gateway.cli import check
from gateway.cli.check import port_row, upstream_rows
from gateway.cli.check_live import live_rows
from gateway.settings import Settings
from gateway.simulator import Options
from gateway.upstream.dial import Refusal
from gateway.upstream.remedies import REFUSED_TEXTS
from tests.gateways import Api, running_gateway, running_simulator

KEY = "sk-secret-of-mine"


async def rows_of(upstream, key=KEY, **settings):
    """The steps towards the upstream by name, none of which may show the key."""
    asked = Settings(**{"upstream": upstream, "dial_timeout": 1, **settings})
    rows = {row.name: row async for row in upstream_rows(asked, key)}
    assert KEY not in str(rows)
    return rows


@contextlib.asynccontextmanager
async def middlebox(url, *, upgrade):
    """Something between that lets plain HTTP through and treats an upgrade as told: cut, strip, accept_cut, swallow, html."""
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    tasks = set()

    async def serve(reader, writer):
        tasks.add(asyncio.current_task())
        inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            asks = b"upgrade: websocket" in head.lower()
            if not asks or upgrade not in ("cut", "html"):
                if upgrade == "strip":
                    head = b"".join(line for line in head.splitlines(keepends=True) if b"pgrade" not in line)
                inner_writer.write(head)
                writer.write(await inner_reader.readuntil(b"\r\n\r\n"))
            if asks and upgrade == "html":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>")
            if not asks or upgrade not in ("cut", "html", "accept_cut"):
                forth = None if asks and upgrade == "swallow" else inner_writer
                await asyncio.gather(pipe(reader, forth), pipe(inner_reader, writer))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            for each in (writer, inner_writer):
                each.close()

    async def pipe(reader, writer):
        while data := await reader.read(65536):
            if writer is not None:
                writer.write(data)
        if writer is not None:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("upgrade", "seen"),
    [
        ("cut", "no socket (eof)"),
        ("html", "status 200"),
        ("strip", "status 405"),
        ("accept_cut", "accepted, but nothing comes back over the socket"),
        ("swallow", "accepted, but nothing comes back over the socket"),
    ],
)
async def test_something_between_that_cuts_upgrades(upgrade, seen):
    """Whatever it does to an upgrade, the row says what was seen and to look at proxies, and that turns still work."""
    async with running_simulator() as simulator, middlebox(simulator.url, upgrade=upgrade) as url:
        rows = await rows_of(url)
    assert (rows["upgrade"].verdict, rows["key"].verdict) == ("warning", "ok")
    assert rows["upgrade"].seen == seen
    assert "plain HTTP" in rows["upgrade"].remedy
    assert "before it" in rows["upgrade"].remedy or "proxies" in rows["upgrade"].remedy


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (socket.EAI_AGAIN, "Is there a network?"),
        (socket.EAI_NONAME, "No network, no working DNS, or a misspelt name"),
    ],
)
async def test_no_name_server_or_no_such_name(monkeypatch, number, words):
    """A name server that does not answer is told; where none knows the name, both causes are."""

    async def fails(*_, **__):
        raise socket.gaierror(number, "failed")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", fails)
    rows = await rows_of("https://api.example/v1")
    assert list(rows) == ["proxy", "DNS"]
    assert rows["DNS"].verdict == "failed"
    assert words in rows["DNS"].remedy


async def test_a_name_with_two_addresses_neither_of_which_answers(monkeypatch, closed_ports):
    """The cause is the last address's, never a success."""
    both = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in closed_ports]

    async def two(*_, **__):
        return both

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", two)
    rows = await rows_of("http://two.example/v1")
    assert rows["TCP"].seen == "two.example port 80: Connection refused"


@pytest.fixture
def closed_ports():
    """Two ports on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return [one.getsockname()[1], other.getsockname()[1]]


@pytest.mark.system
@pytest.mark.skipif(
    shutil.which("unshare") is None, reason="needs unshare, to be a machine without a network"
)
@pytest.mark.parametrize(
    ("upstream", "row", "words"),
    [
        ("https://192.0.2.1/v1", ["TCP", "failed"], "This machine has no network, or no way there."),
        ("https://api.example/v1", ["DNS", "failed"], "no name server"),
    ],
)
def test_a_machine_without_a_network(upstream, row, words):
    """In a network namespace of its own, where nothing is reached, the failed step says so and the exit code is 1."""
    done = subprocess.run(
        ["unshare", "-r", "-n", sys.executable, "-m", "gateway", "check", "--port", "0", "--upstream", upstream],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, KEY_VARIABLE: KEY},
    )  # fmt: skip
    if "unshare" in done.stderr:
        pytest.skip("this machine lets nobody make a network namespace")
    assert done.returncode == 1
    last = [line for line in done.stdout.splitlines() if not line.startswith(" ")][-1]
    assert last.split()[:2] == row
    assert words.lower() in done.stdout.lower()
    assert KEY not in done.stdout + done.stderr


KEY_VARIABLE = check.KEY_VARIABLE


@pytest.mark.parametrize(
    ("environment", "settings", "seen", "details"),
    [
        ({}, {}, "none (no proxy variable is set)", ()),
        ({"NO_PROXY": "*"}, {}, "none for this upstream (set here: NO_PROXY)", ()),
        ({"https_proxy": "http://me:secret@p:8080"}, {"proxy": "none"}, "none, by the setting proxy (set here: https_proxy)", ()),
        (
            {"HTTPS_PROXY": "http://me:secret@p.invalid:8080"}, {},
            "http://p.invalid:8080, by the environment; the next two steps are about it", ("set here: HTTPS_PROXY",),
        ),
        (
            {}, {"proxy": "http://me:secret@p.invalid:8080"},
            "http://p.invalid:8080, by the setting proxy; the next two steps are about it", ("no proxy variable is set",),
        ),
    ],
)  # fmt: skip
async def test_which_proxy_and_why(monkeypatch, environment, settings, seen, details):
    """The proxy is named without its password, with the variables that are set."""
    for name in check_variables():
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    row = (await rows_of("https://upstream.invalid/v1", **settings))["proxy"]
    assert (row.seen, row.details) == (seen, details)
    assert "secret" not in str(row)


def check_variables():
    """Every variable that names a proxy."""
    names = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")
    return [*names, *map(str.lower, names)]


async def test_a_running_gateway_is_asked_how_it_fares():
    """Its turns are told, and so is a kill switch, a refusing upstream, another upstream than is checked, or a token that is missing."""
    async with running_simulator() as simulator, running_simulator(Options(websocket=False)) as other:
        for settings, verdict, words in (
            ({"upstream": simulator.url}, "ok", "1 turns, 0% deltas"),
            ({"upstream": simulator.url, "mode": "http"}, "warning", "nothing is upgraded"),
            ({"upstream": other.url}, "warning", "refuses sockets now"),
        ):
            upstream = settings.pop("upstream")
            async with running_gateway(upstream, **settings) as gateway, Api(gateway.url) as api:
                for _ in range(1 if verdict == "ok" else 2):
                    await api.create({"model": "gpt-5", "input": "hello"})
                port = int(gateway.root.rpartition(":")[2])
                row = await asyncio.to_thread(port_row, Settings(port=port, upstream=upstream), None)
                elsewhere = await asyncio.to_thread(port_row, Settings(port=port), None)
            assert row.verdict == verdict
            assert words in row.seen + row.remedy
            assert elsewhere.verdict == "warning"
            assert f"its upstream is {upstream}. The steps below are about https://api" in elsewhere.remedy
        async with running_gateway(simulator.url, token="t" * 32) as gateway:
            asked = Settings(port=int(gateway.root.rpartition(":")[2]), upstream=simulator.url)
            assert "asks for a token" in (await asyncio.to_thread(port_row, asked, None)).seen
            assert (await asyncio.to_thread(port_row, asked, "t" * 32)).verdict == "ok"


async def live(upstream, model="gpt-5", key=KEY, **settings):
    """The rows of two real turns."""
    asked = Settings(upstream=upstream, **settings)
    rows = {row.name: row async for row in live_rows(asked, key, model)}
    assert KEY not in str(rows)
    return rows


async def test_two_real_turns():
    """The second is a delta, and the row says how much smaller it was; no gateway of the user's is involved."""
    async with running_simulator() as simulator:
        rows = await live(simulator.url, port=1, token_file="/nonexistent", host="0.0.0.0")
    assert [(row.name, row.verdict) for row in rows.values()] == [("turn", "ok"), ("delta", "ok")]
    assert "were sent" in rows["delta"].seen


@pytest.mark.parametrize(
    ("options", "model", "name", "verdict", "words"),
    [
        (Options(websocket=False), "gpt-5", "delta", "warning", "upgrade_refused"),
        (Options(ignores_parents=True), "gpt-5", "delta", "warning", "delta_refused"),
        (Options(keys=frozenset({"another"})), "gpt-5", "turn", "failed", "answered 401 (invalid_api_key)"),
        (Options(), "no-such-model", "turn", "failed", "Try another with --model."),
    ],
)
async def test_real_turns_that_are_no_deltas(options, model, name, verdict, words):
    """The reason is named with its remedy; an error is told by its code, never by its text."""
    async with running_simulator(options) as simulator:
        rows = await live(simulator.url, model)
    row = list(rows.values())[-1]
    assert (row.name, row.verdict) == (name, verdict)
    assert words in row.seen + row.remedy
    assert row.remedy


def test_live_is_announced_and_left_out_after_a_failure(upwire, closed_ports, monkeypatch):
    """The cost is said first, on standard error; where an earlier step failed nothing is spent."""
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    upstream = f"http://127.0.0.1:{closed_ports[0]}/v1"
    code, out, err = upwire("check", "--live", "--json", "--port", "0", "--upstream", upstream)
    assert code == 1
    assert err == check.COST + "\n"
    seen = json.loads(out)
    assert seen["ok"] is False
    assert seen["rows"][-1]["name"] == "live"
    assert seen["rows"][-1]["seen"] == "not tried: a step before it failed"
    assert KEY not in out


async def test_the_whole_command_against_a_whole_upstream():
    """All steps are ok, the exit code is 0, and each value that was set is listed with its source."""
    async with running_simulator(Options(keys=frozenset({KEY}))) as simulator:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway", "check", "--live", "--json", "--upstream", simulator.url,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, KEY_VARIABLE: KEY, "UPWIRE_PORT": "0", "UPWIRE_MODEL": "gpt-5"},
        )  # fmt: skip
        out, err = await asyncio.wait_for(child.communicate(), 60)
    seen = json.loads(out)
    assert (child.returncode, seen["ok"]) == (0, True), (seen, err)
    names = ["config", "port", "proxy", "DNS", "TCP", "TLS", "upgrade", "key", "turn", "delta"]
    assert [row["name"] for row in seen["rows"]] == names
    assert "port = 0, from environment UPWIRE_PORT" in seen["rows"][0]["details"]
    assert KEY.encode() not in out + err


def test_every_refusal_has_a_remedy():
    """No reason for which a socket is refused is left without words."""
    assert set(REFUSED_TEXTS) == {*Refusal, "closed_early"}
    for text in REFUSED_TEXTS.values():
        assert text.meaning.endswith(".") and text.remedy.endswith(".")
