"""Every command in the documents does what they say: each is run here, or in the test that is named for it."""

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway.index.opening import SHORTEST_SECRET
from tests.documents.commands import commands
from tests.documents.places import README, ROOT, WRITTEN

KEY = "sk-test"
FIRST = (
    "PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "PIP_INDEX_URL", "PIP_CONFIG_FILE", "PIP_CERT", "HTTPS_PROXY", "NO_PROXY",
)  # fmt: skip
"""All that the commands get of this process's environment."""


class Place:
    """A home of its own with a simulated upstream and a gateway that run in it; the commands find both by the environment."""

    def __init__(self, home):
        self.home = home
        kept = {name: os.environ[name] for name in FIRST if name in os.environ}
        self.environment = kept | {
            "HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}",
            "OPENAI_API_KEY": KEY,
            "UPWIRE_SIMULATE_PORT": "0",
            "PYTHONUNBUFFERED": "1",
        }
        (home / "key.txt").write_text(KEY)

    def popen(self, command, **more):
        """The command in a shell that gives its process away, so that signals reach it."""
        given = {**self.environment, **more}
        return subprocess.Popen(
            ["bash", "-c", command], cwd=self.home, env=given, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, command, **more):
        """What it prints; it must end well and say nothing of a failure of its own."""
        child = self.popen(command, **more)
        try:
            out, err = child.communicate(timeout=100)
        finally:
            kill(child)
        assert child.returncode == 0, (command, out, err)
        assert "Traceback" not in err
        return out

    @contextlib.contextmanager
    def running(self, command, until, **more):
        """The lines up to the one that has ``until`` in it; Ctrl-C at the end, on which it ends well."""
        child = self.popen(f"exec {command}", **more)
        try:
            lines = []
            for line in child.stdout:
                lines.append(line.rstrip("\n"))
                if until in line:
                    break
            assert lines and until in lines[-1], (command, lines or child.stderr.read())
            yield lines
            child.send_signal(signal.SIGINT)
            _, err = child.communicate(timeout=30)
            assert child.returncode == 0, (command, err)
            assert "Traceback" not in err
        finally:
            kill(child)

    def here(self, command):
        """The command for this gateway in place of one at the default port."""
        return command.replace("127.0.0.1:7411", f"127.0.0.1:{self.environment['UPWIRE_PORT']}")


def kill(child):
    """End what is left of it, and of what it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Both run, and a first turn has been served."""
    found = Place(tmp_path_factory.mktemp("home"))
    with found.running("upwire simulate", "listening on") as lines:
        found.environment["UPWIRE_UPSTREAM"] = lines[0].split()[-1] + "/v1"
        with found.running("upwire serve", "export ", UPWIRE_PORT="0") as told:
            found.environment["UPWIRE_PORT"] = told[-1].rpartition(":")[2].removesuffix("/v1")
            found.told = told
            found.run(found.here(next(c for c in commands(README.read_text()) if c.startswith("curl"))))
            yield found


def ends(place, command):
    """It ends well and prints something."""
    assert place.run(place.here(command)).strip()


def serves(place, command):
    """It serves until Ctrl-C."""
    with place.running(command, "listening on", UPWIRE_PORT="0"):
        pass


def watches(place, command):
    """It shows the turn that was, or its numbers, until Ctrl-C."""
    with place.running(command, "full"):
        pass


def is_told(place, command):
    """The gateway itself prints this line, with its own port."""
    assert place.here(command) == place.told[-1]


def asks(place, command):
    """The answer tells how the turn went."""
    assert place.run(place.here(command)).split() == [
        "x-upwire-mode:",
        "full",
        "x-upwire-reason:",
        "new_conversation",
    ]


def has_variables(place, command):
    """The program that it runs has the variables."""
    assert is_in(place.here("OPENAI_BASE_URL=http://127.0.0.1:7411/v1"), place.run(command))


def is_in(line, text):
    return line in text.splitlines()


def connects(place, command):
    """The recipe has this gateway's URL."""
    assert place.here("http://127.0.0.1:7411/v1") in place.run(command.replace("NAME", "pi"))


def is_a_target(place, command):
    """Make knows the target and all that it needs; what it would do is printed, not done."""
    words = [word for word in command.split() if word != "CI=true"]
    assert place.run(f"{words[0]} -n -C {ROOT} {' '.join(words[1:])}").strip()


def is_of_this_tree(_, command):
    """The tests it runs are there: they are run with all others."""
    paths = re.search(r"pytest (.*)", command)[1].split()
    assert paths
    assert all((ROOT / path).exists() for path in paths)


def is_there(_, command):
    """The program is there; it measures for longer than a test may take."""
    assert importlib.util.find_spec(re.fullmatch(r"python -m ([\w.]+)( .*)?", command)[1])


def by_another(path, *words):
    """Another test runs it, or all that it reads, and it names what is run."""

    def elsewhere(_, __):
        text = (ROOT / path).read_text()
        assert all(word in text for word in words)

    return elsewhere


def makes_a_secret(place, command):
    """It is as long as a secret has to be."""
    words, _, _ = command.partition(">")
    assert len(place.run(words).strip()) >= SHORTEST_SECRET


INSTALLING = "installing"
"""Run together by ``test_installing``, which needs the package registry."""

RUN = {
    r"python3 -m venv ~/.upwire|~/.upwire/bin/pip install .*|export PATH=.*": INSTALLING,
    r"upwire simulate|upwire serve( --mode http| --log-level debug| --workers 4| --route \S+)?": serves,
    r"upwire serve --index .*": by_another("tests/replicas/test_shared_index.py", "index"),
    r"pip install 'upwire\[redis\]'": by_another("pyproject.toml", "redis = ["),
    r"openssl rand -hex 32 > .*": makes_a_secret,
    r"upwire (tail|stats --watch)": watches,
    r"upwire (stats|stats --json|check|check --live|config|health|health --ready|connect|label alice < key.txt)": ends,
    r"upwire connect \S+": connects,
    r"upwire exec -- env": has_variables,
    r"export OPENAI_BASE_URL=.*": is_told,
    r"curl .*/v1/responses .*": asks,
    r"(CI=true )?make .*": is_a_target,
    r"\.venv/bin/python -m pytest .*": is_of_this_tree,
    r"python -m tests\.bench\..*": is_there,
    r"docker build .*": by_another("tests/deploy/test_deploy_image.py", "Dockerfile"),
    r"docker compose .* up|docker-compose config": by_another(
        "tests/deploy/test_deploy_compose.py", "config"
    ),
    r"kubectl (apply -k|kustomize).*": by_another("tests/deploy/test_deploy_kubernetes.py", "kustomize"),
    r"systemd-analyze verify|systemctl kill .*": by_another("tests/deploy/test_deploy_units.py", "verify"),
    r"haproxy -c": by_another("tests/deploy/test_deploy_balancing.py", "haproxy", '"-c"'),
    r"kill -USR2 (\$?PID|<pid>)": by_another("tests/server/test_handover.py", "SIGUSR2"),
}


def way_of(command):
    """How a command is run: by the first line of the table that knows it."""
    return next((way for pattern, way in RUN.items() if re.fullmatch(pattern, command)), None)


ALL = {path: commands(path.read_text()) for path in WRITTEN}
NAMED = list(dict.fromkeys(command for found in ALL.values() for command in found))


def test_every_command_is_run():
    """One that nothing runs does not get into a document; and nothing is run that no document names."""
    assert [command for command in NAMED if way_of(command) is None] == []
    assert [pattern for pattern in RUN if not any(re.fullmatch(pattern, c) for c in NAMED)] == []
    assert len(ALL[README]) > 30


@pytest.mark.parametrize("command", [c for c in NAMED if way_of(c) not in (None, INSTALLING)])
def test_a_command(place, command):
    """It does what its line of the table says."""
    way_of(command)(place, command)


def test_the_statistics_that_are_shown(place):
    """Each line of the README's example has the name of one that is printed, and its words."""
    (shown,) = re.findall(r"(?ms)^```text\n(delta .*?)^```$", README.read_text())
    wanted = [re.sub(r"[\d.]+", "", line).split() for line in shown.splitlines() if line]
    printed = [set(line.split()) for line in place.run("upwire stats").splitlines()]
    for words in wanted:
        names = {word for word in words if word.isalpha() and word not in ("KB", "MB", "B")}
        assert any(names <= there for there in printed), words


@pytest.mark.system
@pytest.mark.timeout(600)
def test_installing(tmp_path):
    """The README's lines, in their order, make a command ``upwire`` of a clone, and what is installed runs the demo."""
    lines = [c for c in ALL[README] if way_of(c) == INSTALLING]
    assert len(lines) == 4
    if "CI" not in os.environ and not shutil.which("pip"):
        pytest.skip("needs pip and the package registry")
    place = Place(tmp_path)
    clone = tmp_path / "clone"
    shutil.copytree(
        ROOT,
        clone,
        ignore=shutil.ignore_patterns(".*", "dist", "tests"),
    )
    begun = time.monotonic()
    out = place.run(
        f"cd {clone} && " + " && ".join([*lines, "command -v upwire", "upwire --version", "upwire demo"])
    )
    assert f"{tmp_path}/.upwire/bin/upwire" in out
    assert "Answers are equal" in out
    assert time.monotonic() - begun < 500
