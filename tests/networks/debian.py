"""Programs from Debian's packages, installed where continuous integration may do so, and started for one test."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

IN_CI = os.environ.get("CI", "").lower() == "true"
_MINUTES = 5


def program(name, package):
    """The path of a program. With CI=true its package is installed if need be; otherwise the test is skipped."""
    path = os.environ["PATH"] + os.pathsep + "/usr/sbin"
    if (found := shutil.which(name, path=path)) is not None:
        return found
    if not IN_CI:
        pytest.skip(f"{name} is not here; apt-get install {package}, or set CI=true")
    apt = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=120"]
    for command in (["update"], ["install", "--no-install-recommends", package]):
        subprocess.run(
            [*apt, *command], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            timeout=60 * _MINUTES, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        )  # fmt: skip
    return shutil.which(name, path=path)


@contextlib.contextmanager
def open_folder():
    """A folder that a program may read after it has changed to another user."""
    with tempfile.TemporaryDirectory(prefix="upwire-proxy-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


@contextlib.asynccontextmanager
async def started(port, *command, log):
    """The program, once it listens on ``port``; what it prints goes to ``log``. Ended with the block."""
    with log.open("ab") as out:
        child = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        async with asyncio.timeout(20):
            while True:
                assert child.returncode is None, log.read_text()
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await asyncio.sleep(0.05)
        yield child
    finally:
        if child.returncode is None:
            child.terminate()
        try:
            await asyncio.wait_for(child.wait(), 10)
        except TimeoutError:
            child.kill()
            await child.wait()
