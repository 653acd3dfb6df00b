"""SIGHUP: the file is read again, what can change does, and what cannot is named."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace

import pytest

from gateway.server.reload import reloaded
from gateway.settings import Settings
from tests.gateways import Api, running_gateway, running_simulator
from tests.serving import serving

BODY = {"model": "gpt-5", "input": [{"role": "user", "content": "hello"}], "store": False}

OTHERS = {str: "http", int: 7, float: 7.5, tuple: ("x",)}


def other(setting):
    """Another value than the default of a setting."""
    if setting.metadata["choices"]:
        return next(c for c in setting.metadata["choices"] if c != setting.default)
    if isinstance(setting.default, bool):
        return not setting.default
    return OTHERS[type(setting.default)]


@pytest.mark.parametrize("setting", fields(Settings), ids=lambda setting: setting.name)
def test_each_setting_is_taken_or_named(setting):
    """A changed value is either in the settings to go on with, or named as one that takes a restart."""
    found = reloaded(Settings(), replace(Settings(), **{setting.name: other(setting)}))
    taken = getattr(found.settings, setting.name) == other(setting)
    assert taken is setting.metadata["reload"]
    assert (setting.name in found.changed) is taken
    assert (setting.name in found.need_restart) is not taken


async def test_what_is_taken_counts_from_the_next_turn():
    """Mode, match, headers, limits and allowed hosts of a running gateway change without losing a conversation."""
    async with (
        running_simulator() as simulator,
        running_gateway(simulator.url) as gateway,
        Api(gateway.url) as api,
    ):
        reconfigure = gateway.gateway.reconfigure
        running = Settings(upstream=simulator.url)
        assert (await api.create(BODY)).mode == "full"
        reconfigure(replace(running, mode="http"))
        seen = await api.create(BODY)
        assert (seen.mode, seen.reason) == ("http", "disabled")
        assert (await api.get("/../stats")).answer["upstream"]["mode"] == "http"
        reconfigure(replace(running, expose_mode=False, server_timing=False))
        first = await api.create(BODY)
        assert not {"x-upwire-mode", "x-upwire-reason", "server-timing"} & first.headers.keys()
        reconfigure(running)
        history = [*BODY["input"], *first.answer["output"], {"role": "user", "content": "more"}]
        seen = await api.create(BODY | {"input": history})
        assert seen.mode == "delta"
        assert seen.headers["server-timing"].startswith("upwire;dur=")
        reconfigure(replace(running, max_frame=10))
        assert (await api.create(BODY)).reason == "too_large"
        reconfigure(replace(running, conversations=1))
        assert (await api.get("/../stats")).answer["conversations"]["known"] == 1
        refused = await api.create(BODY, headers={"host": "me.example"})
        assert refused.status == 403
        reconfigure(replace(running, allowed_hosts=("me.example",)))
        assert (await api.create(BODY, headers={"host": "me.example"})).status == 200


async def lines_until(process, event):
    """The log of a process up to the line of this event."""
    lines = []
    async with asyncio.timeout(10):
        while not lines or lines[-1]["event"] != event:
            lines.append(json.loads(await process.child.stderr.readline()))
    return lines


async def test_a_hangup_reads_the_file_again(tmp_path):
    """New values count, fixed ones are named, a broken file changes nothing, and flags go on to win."""
    path = tmp_path / "config.toml"
    path.write_text('mode = "auto"\nexpose_mode = true\n')
    async with (
        running_simulator() as simulator,
        serving("--config", str(path), "--upstream", simulator.url, "--match", "exact") as process,
        Api(process.url + "/v1") as api,
    ):
        assert (await api.create(BODY)).mode == "full"
        path.write_text('mode = "http"\nmatch = "lenient"\nmax_body = 5000\nlog_level = "debug"\n')
        process.child.send_signal(signal.SIGHUP)
        lines = await lines_until(process, "restart_needed")
        assert lines[-2]["changed"] == ["mode", "log_level"]
        assert lines[-1]["settings"] == ["max_body"]
        seen = await api.create(BODY)
        assert (seen.status, seen.mode) == (200, "http")
        path.write_text('mode = "htpp"\n')
        process.child.send_signal(signal.SIGHUP)
        (line,) = (await lines_until(process, "not_reloaded"))[-1:]
        assert f"mode (file {path}) must be one of auto, http; did you mean http?" in line["why"]
        assert (await api.create(BODY)).mode == "http"
        path.unlink()
        process.child.send_signal(signal.SIGHUP)
        assert "no configuration file" in (await lines_until(process, "not_reloaded"))[-1]["why"]
        process.child.send_signal(signal.SIGTERM)
        assert (await process.ended(10))[0] == 0


# Takes its standard input as controlling terminal, then becomes the gateway.
_IN_A_TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
# Whoever runs the tests may have been started with nohup.
signal.signal(signal.SIGHUP, signal.SIG_IGN if sys.argv[1] == "nohup" else signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, "-m", "gateway", "serve", "--port", "0", "--log-format", "json"])
"""


@pytest.mark.parametrize("how", ["terminal", "nohup"])
def test_a_terminal_that_is_closed(how, tmp_path):
    """Closing the terminal ends a gateway that was started in it, unless it was started with nohup."""
    out = tmp_path / "out"
    terminal, inside = os.openpty()
    with out.open("wb") as file:
        child = subprocess.Popen(
            [sys.executable, "-c", _IN_A_TERMINAL, how],
            stdin=inside,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    os.close(inside)
    try:
        wait_for(lambda: b"export OPENAI_BASE_URL" in out.read_bytes())
        os.close(terminal)
        if how == "terminal":
            assert child.wait(10) == 0
        else:
            wait_for(lambda: b"reloaded" in out.read_bytes())
            assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def wait_for(holds):
    """Polls until it holds, ten seconds at most."""
    until = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)
