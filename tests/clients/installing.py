"""Installing the clients, pinned, into a cache outside the source tree."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PINS = Path(__file__).parent / "pins"
IN_CI = os.environ.get("CI", "").lower() == "true"
_MINUTES = 10


class NotInstalled(Exception):
    """The client is not there; the text says why."""


def cache_folder():
    """Where all clients are kept."""
    base = os.environ.get("UPWIRE_CLIENTS") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "upwire-clients"


def place_of(pin):
    """The folder of one installed client; other pins, another folder."""
    files = sorted(path for path in (PINS / pin).iterdir() if path.name != "requirements.in")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files))
    if (PINS / pin / "requirements.txt").exists():
        digest.update(sys.version.encode())
    return cache_folder() / f"{pin}-{digest.hexdigest()[:12]}"


def is_python(pin):
    """Whether a client comes from the Python registry, else it is a Node one."""
    return (PINS / pin / "requirements.txt").exists()


def version_of(pin):
    """The pinned version of the client itself."""
    if is_python(pin):
        first = (PINS / pin / "requirements.in").read_text("utf-8").split()[0]
        return first.partition("==")[2]
    named = json.loads((PINS / pin / "package.json").read_text("utf-8"))["dependencies"]
    return next(iter(named.values())).removesuffix("-linux-x64")


def ensure(pin, *, install):
    """The folder of an installed client. Installs it with ``install``; raises NotInstalled."""
    place = place_of(pin)
    if place.exists():
        return place
    if not install:
        raise NotInstalled(f"{pin} is not installed; run make test-clients, or set CI=true")
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{pin}-", dir=place.parent))
    try:
        _install(pin, fresh, place)
    except subprocess.CalledProcessError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(place, ignore_errors=True)
        raise NotInstalled(f"{pin}: {error.cmd[0]} failed: {error.stdout[-600:]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(place, ignore_errors=True)
        raise NotInstalled(f"{pin}: {type(error).__name__}: {error}") from None
    return place


def _install(pin, fresh, place):
    if is_python(pin):
        # Scripts of a virtual environment name their interpreter by path, so it is made where it will stay.
        fresh.rmdir()
        _run([sys.executable, "-m", "venv", str(place)])
        pip = [
            str(place / "bin" / "python"),
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "--quiet",
        ]
        _run([*pip, "--require-hashes", "-r", str(PINS / pin / "requirements.txt")])
        return
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PINS / pin / name, fresh)
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled(f"{pin}: there is no npm here")
    _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=fresh)
    fresh.rename(place)


def _run(command, cwd=None):
    subprocess.run(
        command,
        cwd=cwd,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        timeout=60 * _MINUTES,
    )
