"""Commands, options and exit codes."""

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from gateway import __version__
from gateway.cli import COMMANDS
from gateway.cli.serve import origin, ready_lines
from gateway.config import Loaded, flag_name, load, variable_name
from gateway.server import bind
from gateway.settings import Settings


def test_version(upwire):
    """The version is one line."""
    assert upwire("--version") == (0, f"upwire {__version__}\n", "")


def test_every_command_says_what_it_does(upwire):
    """The overview lists all commands, and each has a help text of its own."""
    code, out, _ = upwire("--help")
    assert code == 0
    for name in COMMANDS:
        assert f"  {name} " in out
        code, text, _ = upwire(name, "--help")
        assert code == 0
        assert f"Usage: upwire {name}" in text


def test_every_setting_is_a_flag_and_a_variable(upwire):
    """The help of serve names the flag, the environment variable and the choices of every setting."""
    _, out, _ = upwire("serve", "--help")
    words = out.replace("\n", " ").split()
    for setting in (each for each in fields(Settings) if not each.metadata["table"]):
        flag = flag_name(setting.name)
        assert any(word == flag or word.startswith(f"{flag}/") for word in (w.rstrip(",") for w in words)), (
            flag
        )
        assert any(variable_name(setting.name) + ";" in word for word in words), setting.name
        assert setting.metadata["help"].endswith(".")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sevre",), "No such command"),
        (("serve", "--prot", "1"), "No such option"),
        (("serve", "--port", "x"), "not a valid int"),
        (("serve", "--match", "fuzzy"), "'exact', 'equivalent', 'lenient'"),
        (("serve", "--port", "70000"), "port (flag --port) must be between 0 and 65535"),
        (("serve", "--host", "0.0.0.0"), "wider than loopback"),
        (("serve", "--config", "/nonexistent.toml"), "no configuration file"),
        (("stats", "--url", "127.0.0.1"), "must begin with http"),
        (("connect", "codx"), "did you mean codex?"),
        (("connect", "qqqq"), "known are agno, cline"),
    ],
)
def test_what_is_asked_wrongly_exits_with_2(upwire, arguments, words):
    """Usage and configuration errors exit with 2, on standard error, without a traceback."""
    code, out, err = upwire(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err


def test_an_unknown_variable_stops_the_start(upwire, monkeypatch):
    """A misspelt environment variable is named, and so is the right one."""
    monkeypatch.setenv("UPWIRE_UPSTRAEM", "http://h")
    code, _, err = upwire("serve")
    assert code == 2
    assert "UPWIRE_UPSTRAEM; did you mean UPWIRE_UPSTREAM?" in err


def test_a_port_in_use_exits_with_1_and_one_line(upwire):
    """The line says which port and what to do."""
    with bind("127.0.0.1", 0)[0] as taken:
        port = str(taken.getsockname()[1])
        code, out, err = upwire("serve", "--port", port)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert f"port {port}" in err


def test_the_ready_lines_say_what_a_user_needs(tmp_path):
    """Version, address, upstream, match level, where the configuration came from and the variable to export."""
    path = tmp_path / "u.toml"
    path.write_text('match = "exact"\nmax_body = 5\n')
    loaded = load(
        {"port": 1}, {"UPWIRE_UPSTREAM": "http://h/openai?api-version=1&key=secret"}, config=str(path)
    )
    lines = ready_lines(loaded, "http://127.0.0.1:1")
    assert lines == [
        f"upwire {__version__}",
        "listening on http://127.0.0.1:1",
        "upstream http://h/openai?...",
        "mode auto, match exact",
        f"configuration from flags (port), environment (upstream), file {path} (match, max_body), defaults",
        "export OPENAI_BASE_URL=http://127.0.0.1:1/v1",
    ]


def test_origin_names_a_file_that_decides_nothing(tmp_path):
    """A file that was read is named even if all of its values were overruled."""
    loaded = Loaded(Settings(), {"port": "default"}, tmp_path / "u.toml")
    assert origin(loaded) == f"file {tmp_path / 'u.toml'} (decides nothing), defaults"
    assert origin(load({}, {})) == "defaults"


def test_quick_commands_do_not_pay_for_slow_ones():
    """Showing the version, the statistics or a recipe imports no server, no sockets, no SDK."""
    heavy = ["aiohttp", "websockets", "structlog", "openai", "rich", "gateway.simulator", "asyncio"]
    script = (
        "import sys, json\n"
        "import gateway.cli, gateway.cli.connect, gateway.cli.stats, gateway.cli.serve, gateway.cli.demo, "
        "gateway.cli.simulate\n"
        f"print(json.dumps([m for m in {heavy[:-1]!r} if m in sys.modules]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_the_package_is_a_command_too():
    """``python -m gateway`` is the same command."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "--version"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout == f"upwire {__version__}\n"
