"""``upwire connect`` and ``upwire exec``."""

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from gateway.cli.recipes import environment, markdown_table, names, recipe

ROOT = Path(__file__).parents[2]
CLIENTS = sorted(path.stem for path in (ROOT / "config" / "clients").glob("*.toml"))


def test_all_clients_are_listed(upwire):
    """Without a name the command lists every client that has a file, with its title."""
    code, out, _ = upwire("connect")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == names() == CLIENTS
    assert len(CLIENTS) >= 12
    assert all(line.split(maxsplit=1)[1] for line in out.splitlines())


@pytest.mark.parametrize(
    ("client", "hint"), [("codx", "did you mean codex?"), ("nope", f"known are {', '.join(CLIENTS)}.")]
)
def test_a_client_without_recipe(upwire, client, hint):
    """Whole sentences say what is known, and what does for any client."""
    code, out, err = upwire("connect", client, "--port", "5")
    assert (code, out) == (2, "")
    said = f"no recipe for '{client}'; {hint} Any other client: base URL http://127.0.0.1:5/v1."
    assert said in " ".join(err.split())


@pytest.mark.parametrize("client", CLIENTS)
def test_every_recipe_has_the_url(upwire, client):
    """Each recipe has a title, a way to set it up and the gateway's own base URL, and leaves no placeholder."""
    code, out, _ = upwire("connect", client, "--port", "5")
    assert code == 0
    found = recipe(client, "http://127.0.0.1:5/v1")
    assert out.startswith(f"# {found.title}\n")
    assert found.package.split(":")[0] in ("pypi", "npm")
    assert found.sections()
    for _, block in found.sections():
        assert "http://127.0.0.1:5/v1" in block
        assert "    " + block.splitlines()[0] in out
    assert "{base_url}" not in out
    assert upwire("connect", client, "--url", "http://h:9/v1/")[1] == recipe(client, "http://h:9/v1").text()


@pytest.mark.parametrize("client", ["opencode", "pi"])
def test_json_recipes_are_json(client):
    """What is to be copied into a JSON file is valid JSON."""
    (file,) = recipe(client, "http://h/v1").files
    assert file.path.endswith(".json")
    assert "http://h/v1" in json.dumps(json.loads(file.text))


def test_the_codex_recipe_is_toml():
    """What stands in Codex's file is one key on top, and the flag for one run sets the same."""
    found = recipe("codex", "http://h/v1")
    assert tomllib.loads(found.files[0].text) == {"openai_base_url": "http://h/v1"}
    assert 'openai_base_url="http://h/v1"\'' in found.flags["codex"]


def test_recipes_agree_on_variables():
    """No two clients want different values under one name, so that one environment serves them all."""
    values = {}
    for name in CLIENTS:
        for variable, value in recipe(name, "http://h/v1").environment.items():
            assert values.setdefault(variable, value) == value
    assert values == environment("http://h/v1") == {"OPENAI_BASE_URL": "http://h/v1"}


def upwire_exec(*arguments, **variables):
    """The command in a process of its own, since it gives its process away."""
    return subprocess.run(
        [sys.executable, "-m", "gateway", "exec", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        cwd=ROOT,
        env={**os.environ, **variables},
    )


def test_a_program_is_run_with_the_environment():
    """The program gets its own arguments, the variables, all other variables, and its exit code is passed on."""
    show = (
        "import os, sys; print(os.environ['OPENAI_BASE_URL'], os.environ['OTHER'], sys.argv[1:]); sys.exit(7)"
    )
    ran = upwire_exec("--port", "5", "--", sys.executable, "-c", show, "--port", "x", OTHER="kept")
    assert ran.stdout == "http://127.0.0.1:5/v1 kept ['--port', 'x']\n"
    assert ran.returncode == 7


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--", "no-such-program-here"), 127, "cannot run no-such-program-here"),
        (("--", "/etc"), 126, "cannot run /etc"),
        ((), 2, "Missing argument"),
    ],
)
def test_what_cannot_be_run_is_said(arguments, code, words):
    """A program that is not there, or is none, ends with the exit code that shells give."""
    ran = upwire_exec(*arguments)
    assert ran.returncode == code
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_readme_has_the_table():
    """The README's table of clients is the one made from the recipes."""
    text = (ROOT / "README.md").read_text("utf-8")
    between = text.partition("<!-- clients -->\n")[2].partition("<!-- /clients -->")[0]
    assert between == markdown_table()


def test_a_wheel_carries_the_recipes(tmp_path):
    """Whoever installs the wheel has the recipes of the clone."""
    from hatchling.builders.wheel import WheelBuilder  # noqa: PLC0415 (only here)

    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    held = {
        Path(name).stem
        for name in zipfile.ZipFile(built).namelist()
        if name.startswith("gateway/cli/clients/")
    }
    assert held == set(CLIENTS)
