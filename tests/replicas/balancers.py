"""The balancers of deploy/balancing, started with the addresses of one test in place of those that stand there."""

from __future__ import annotations

import contextlib
import shutil

from tests.deploy.tools import DEPLOY
from tests.networks.debian import open_folder, program, started

FILES = {"haproxy": DEPLOY / "balancing" / "haproxy.cfg", "nginx": DEPLOY / "balancing" / "nginx.conf"}
FRONT, ONE, TWO = "127.0.0.1:7400", "127.0.0.1:7411", "127.0.0.1:7412"


def configured(name, port, one, two):
    """The example's text with other ports."""
    text = FILES[name].read_text()
    for old, new in ((FRONT, port), (ONE, one), (TWO, two)):
        assert text.count(old) == 1
        text = text.replace(old, f"127.0.0.1:{new}")
    return text


@contextlib.asynccontextmanager
async def running_balancer(name, port, one, two):
    """HAProxy or nginx on ``port``, in front of two gateways."""
    path = program(name, name)
    with open_folder() as folder:
        file = folder / FILES[name].name
        file.write_text(configured(name, port, one, two))
        if name == "haproxy":
            command = [path, "-db", "-f", str(file)]
        else:
            for part in ("logs", "body"):
                (folder / part).mkdir()
            shutil.chown(folder, "root") if folder.owner() == "root" else None
            command = [
                path,
                "-c",
                str(file),
                "-p",
                str(folder),
                "-e",
                str(folder / "error.log"),
                "-g",
                f"daemon off; pid {folder}/pid;",
            ]
        async with started(port, *command, log=folder / "log"):
            yield f"http://127.0.0.1:{port}/v1"
