"""Units of systemd and launchd: taken by their own tools, hardened, and met by what the program really does."""

import asyncio
import os
import plistlib
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config import load
from tests.deploy.tools import DEPLOY, debian, run
from tests.gateways import Api, running_simulator

SYSTEMD = DEPLOY / "systemd"
PROGRAM = Path(sys.executable).parent / "upwire"


@pytest.fixture
def units(tmp_path):
    """The units with a program that is there, and their drop-ins."""
    shutil.copytree(SYSTEMD, tmp_path / "systemd")
    (tmp_path / "runtime").mkdir()
    for unit in (tmp_path / "systemd").rglob("*.service"):
        text = unit.read_text()
        assert (
            len(re.findall(r"^ExecStart=(?:/opt/upwire|%h/.upwire)/bin/upwire serve", text, re.MULTILINE))
            == 1
        )
        unit.write_text(re.sub(r"(/opt/upwire|%h/.upwire)/bin/upwire", str(PROGRAM), text))
    return tmp_path / "systemd"


@pytest.mark.system
def test_systemd_takes_the_system_unit_with_its_drop_ins(units):
    """Nothing is unknown, missing or wrong; and a wrong line in a drop-in would be seen."""
    program = debian("systemd-analyze", "systemd")
    assert run(program, "verify", "--man=no", units / "upwire.service") == ""
    with (units / "upwire.service.d" / "token.conf").open("a") as drop_in:
        drop_in.write("NoSuchSetting=yes\n")
    assert "NoSuchSetting" in run(program, "verify", "--man=no", units / "upwire.service")


@pytest.mark.system
def test_systemd_takes_the_user_unit(units):
    """The same for a user's own manager."""
    program = debian("systemd-analyze", "systemd")
    environment = os.environ | {"XDG_RUNTIME_DIR": str(units.parent / "runtime")}
    unit = units / "user" / "upwire.service"
    assert run(program, "--user", "verify", "--man=no", unit, env=environment) == ""


@pytest.mark.system
@pytest.mark.parametrize(("unit", "exposure"), [("upwire.service", 15), ("user/upwire.service", 65)])
def test_the_exposure_is_low(units, unit, exposure):
    """By systemd's own measure, in tenths: ten is a unit without any hardening; a user's manager can do little."""
    run(
        debian("systemd-analyze", "systemd"),
        "security", "--offline=true", "--no-pager", f"--threshold={exposure}", units / unit,
    )  # fmt: skip


def test_the_units_wait_for_the_drain_and_name_real_settings():
    """Each stops later than the drain and its grace take, and every variable is a setting."""
    for drop_ins in ((), ("token.conf",), ("socket.conf",)):
        text = (SYSTEMD / "upwire.service").read_text()
        text += "".join((SYSTEMD / "upwire.service.d" / name).read_text() for name in drop_ins)
        variables = dict(re.findall(r"^Environment=(\w+)=(.*)$", text, re.MULTILINE))
        settings = load({}, variables).settings
        stop = float(re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)[-1])
        assert stop >= settings.drain_grace + settings.drain_timeout + 10
        assert "Type=notify" in text
    credentials = re.findall(
        r"^LoadCredential=([\w-]+):", (SYSTEMD / "upwire.service.d" / "token.conf").read_text(), re.MULTILINE
    )
    assert sorted(credentials) == ["openai-key", "token"]


def _allowed_calls():
    """The system calls that the unit's filter lets through."""
    program = debian("systemd-analyze", "systemd")

    def members(name):
        lines = [line.strip() for line in run(program, "syscall-filter", name).splitlines()[1:]]
        found = set()
        for line in filter(lambda each: each and not each.startswith("#"), lines):
            found |= members(line) if line.startswith("@") else {line}
        return found

    text = (SYSTEMD / "upwire.service").read_text()
    allowed = set()
    for line in re.findall(r"^SystemCallFilter=(.*)$", text, re.MULTILINE):
        named = set().union(*map(members, line.removeprefix("~").split()))
        allowed = allowed - named if line.startswith("~") else allowed | named
    return allowed


@pytest.mark.system
@pytest.mark.parametrize(
    ("loop", "waits", "sends"), [("asyncio", "epoll_wait", "sendto"), ("uvloop", "epoll_pwait", "write")]
)
async def test_the_program_needs_no_more_than_the_unit_allows(loop, waits, sends, tmp_path):
    """Serving turns, plain requests and a scrape, it makes only allowed system calls, and no memory that is writable and executable."""
    allowed = _allowed_calls()
    trace = tmp_path / "calls"
    async with running_simulator() as simulator:
        upstream = simulator.url.replace("127.0.0.1", "localhost")
        child = await asyncio.create_subprocess_exec(
            debian("strace", "strace"), "-D", "-f", "-qq", "-o", trace,
            PROGRAM, "serve", "--port", "0", "--upstream", upstream, "--loop", loop,
            stdout=asyncio.subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            url = ""
            while "export" not in (line := (await asyncio.wait_for(child.stdout.readline(), 30)).decode()):
                assert line
                url = url or line.partition("listening on ")[2].strip()
            async with Api(url + "/v1") as api:
                assert (
                    await api.create({"model": "gpt-5", "store": False, "input": "words 2"})
                ).mode == "full"
                await api.get("/models")
                async with api.session.get(url + "/metrics") as answer:
                    assert answer.status == 200
        finally:
            child.send_signal(signal.SIGTERM)
            await asyncio.wait_for(child.communicate(), 30)
    lines = trace.read_text()
    made = set(re.findall(r"^\d+\s+(?:<\.\.\. )?(\w+)[( ]", lines, re.MULTILINE))
    assert {"socket", sends, waits} <= made
    assert made <= allowed, sorted(made - allowed)
    assert not re.findall(r"^.*PROT_WRITE\|PROT_EXEC.*$", lines, re.MULTILINE)


def test_the_launchd_agent_is_a_property_list_that_fits():
    """It parses, starts the program, restarts it only after a failure, and is given time to drain."""
    read = plistlib.loads((DEPLOY / "launchd" / "dev.upwire.plist").read_bytes())
    assert read["Label"] == "dev.upwire"
    assert read["ProgramArguments"] == ["/opt/upwire/bin/upwire", "serve"]
    assert read["KeepAlive"] == {"SuccessfulExit": False}
    assert read["Umask"] == 0o077
    settings = load({}, read["EnvironmentVariables"]).settings
    assert read["ExitTimeOut"] >= settings.drain_grace + settings.drain_timeout + 10
