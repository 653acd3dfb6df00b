"""``upwire serve`` as a process of its own, as an operator starts it."""

import asyncio
import contextlib
import os
import sys


class Process:
    """A running ``upwire serve`` and what it printed."""

    def __init__(self, child):
        self.child = child
        self.lines = []
        self.url = ""

    async def ready(self):
        """Reads the lines that tell that it is ready."""
        while not self.lines or not self.lines[-1].startswith("export "):
            line = await asyncio.wait_for(self.child.stdout.readline(), 20)
            assert line, (await self.child.stderr.read()).decode()
            self.lines.append(line.decode().strip())
        self.url = self.lines[1].removeprefix("listening on ")

    async def ended(self, within):
        """Exit code, and all that was printed since; a process that does not end in time is killed."""
        try:
            out, err = await asyncio.wait_for(self.child.communicate(), within)
        except TimeoutError:
            self.child.kill()
            await self.child.communicate()
            raise
        return self.child.returncode, out.decode(), err.decode()


async def begin(*options, **environment):
    """A process that may not be ready yet; whoever asked for it ends it."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", "serve", *options,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={**os.environ, **environment},
    )  # fmt: skip
    return Process(child)


@contextlib.asynccontextmanager
async def serving(*options, **environment):
    """A process that is ready, on a free port; killed at the end if it still runs."""
    process = await begin("--port", "0", *options, **environment)
    try:
        await process.ready()
        yield process
    finally:
        if process.child.returncode is None:
            process.child.kill()
            await process.child.communicate()
