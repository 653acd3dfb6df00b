"""``upwire serve --workers N`` for tests that look at what it logged, and that may log a lot."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import tempfile
from dataclasses import dataclass

from tests.gateways import Running


@dataclass
class Workers(Running):
    """Several workers that answer at ``url`` (with ``/v1``); ``process`` is their parent, ``lines`` what was logged, at the end."""

    lines: list

    @property
    def process(self):
        return self.gateway


@contextlib.asynccontextmanager
async def running_workers(upstream, workers, **settings):
    """``workers`` workers in front of ``upstream``, with further settings; they must end with 0 when they are asked to."""
    chosen = {"upstream": upstream, "port": 0, "profile": "openai", "workers": workers, "log_format": "json"}
    options = [part for name, value in (chosen | settings).items() for part in _flag(name, value)]
    with tempfile.TemporaryFile() as log:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway", "serve", *options, stdout=asyncio.subprocess.PIPE, stderr=log
        )
        running = Workers("", child, None, [])
        try:
            async with asyncio.timeout(30):
                while not running.url.endswith("/v1"):
                    line = (await child.stdout.readline()).decode()
                    assert line, "it ended before it was ready"
                    if line.startswith("export "):
                        running.url = line.strip().partition("=")[2]
            yield running
            child.send_signal(signal.SIGTERM)
            async with asyncio.timeout(30):
                assert await child.wait() == 0
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
            log.seek(0)
            running.lines += [json.loads(line) for line in log.read().splitlines() if line.startswith(b"{")]


def _flag(name, value):
    """A setting on the command line."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return ["--" + flag if value else "--no-" + flag]
    return ["--" + flag, str(value)]
