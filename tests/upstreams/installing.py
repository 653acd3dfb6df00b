"""Upstreams that others wrote, installed on first use into a cache outside the source tree."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

IN_CI = os.environ.get("CI", "").lower() == "true"
_MINUTES = 10


def node_package(name, version):
    """The folder that has ``node_modules`` with this package; the test is skipped where it may not be installed."""
    place = _cache() / f"{name.rpartition('/')[2]}-{version}"
    if not place.exists():
        npm = shutil.which("npm")
        if npm is None or not (IN_CI or os.environ.get("UPWIRE_INSTALL")):
            pytest.skip(f"{name} is not installed; set CI=true, where there is npm")
        fresh = Path(tempfile.mkdtemp(dir=_cache()))
        (fresh / "package.json").write_text('{"private": true}')
        wanted = f"{name}@{version}"
        _run([npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", wanted], cwd=fresh)
        fresh.rename(place)
    return place


def python_package(wanted):
    """The ``bin`` folder of a virtual environment that has this package; otherwise as ``node_package``."""
    place = (
        _cache() / f"{wanted.replace('[', '-').replace(']', '')}-{sys.version_info[0]}.{sys.version_info[1]}"
    )
    if not (place / "installed").exists():
        if not (IN_CI or os.environ.get("UPWIRE_INSTALL")):
            pytest.skip(f"{wanted} is not installed; set CI=true")
        shutil.rmtree(place, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(place)])
        _run(
            [
                str(place / "bin" / "python"),
                "-m",
                "pip",
                "--disable-pip-version-check",
                "install",
                "-q",
                wanted,
            ]
        )
        (place / "installed").touch()
    return place / "bin"


def _cache():
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    place = Path(base) / "upwire-upstreams"
    place.mkdir(parents=True, exist_ok=True)
    return place


def _run(command, cwd=None):
    subprocess.run(command, cwd=cwd, check=True, stdin=subprocess.DEVNULL, timeout=60 * _MINUTES)
