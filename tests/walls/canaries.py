"""Secrets that can be found again wherever they come out, and a gateway process whose every way out is watched."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import sys
from pathlib import Path
from urllib.parse import quote

from tests.serving import Process

STEM = "canary7Qz4k"
PLACES = (
    "key", "querykey", "cookie", "header", "token", "prompt", "reasoning", "instructions", "arguments", "output", "tool", "metadata",
    "parent", "upstream", "reason", "proxy", "malformed", "halfsent", "oversized", "injected",
)  # fmt: skip


def canary(place):
    """The secret that is planted in this place."""
    assert place in PLACES
    return f"{place}-{STEM}-{place}"


def forms(text):
    """How a text may come out again: as it is, escaped, or in base64 at any of its three offsets."""
    raw = text.encode()
    yield text
    yield quote(text)
    yield raw.hex()
    yield text[::-1]
    for lead in range(3):
        coded = base64.b64encode(b"\0" * lead + raw).decode().rstrip("=")
        # What the bytes before and behind have a share in is cut off.
        yield coded[(0, 2, 3)[lead] : len(coded) - 1]


FORMS = tuple(forms(STEM))


def found_in(text):
    """The places in ``text`` where the secret stands in any form, with what is around them."""
    text = text if isinstance(text, str) else text.decode("utf-8", "replace")
    found = []
    for form in FORMS:
        at = text.lower().find(form.lower())
        if at >= 0:
            found.append(text[max(0, at - 150) : at + 150])
    return found


class Watched(Process):
    """A gateway process in a home of its own, with all that asyncio and the interpreter can be made to say."""

    def __init__(self, child, home):
        super().__init__(child)
        self.home = home

    def files(self):
        """Everything that was written under the home: names and contents."""
        for path in sorted(self.home.rglob("*")):
            yield str(path.relative_to(self.home))
            if path.is_file():
                yield path.read_bytes()

    def open_files(self):
        """Ordinary files that the process has open, deleted ones too, but for those of the installation."""
        links = Path(f"/proc/{self.child.pid}/fd")
        if not links.exists():
            return []
        opened = [str(link.readlink()) for link in links.iterdir() if link.is_symlink()]
        mine = (sys.prefix, sys.base_prefix, "/dev/", "/proc/", "/usr/", "/etc/")
        return [name for name in opened if name.startswith("/") and not name.startswith(mine)]


@contextlib.asynccontextmanager
async def watched(home, *options, **environment):
    """A gateway that is ready; killed at the end if it still runs."""
    home.mkdir()
    given = {
        "PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(home), "XDG_CONFIG_HOME": str(home / "config"),
        "PYTHONASYNCIODEBUG": "1", "PYTHONDEVMODE": "1", "PYTHONWARNINGS": "always", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", "serve", "--port", "0", "--log-level", "debug", *options,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=home,
        env={**given, **environment}, limit=1 << 24,
    )  # fmt: skip
    process = Watched(child, home)
    try:
        await process.ready()
        yield process
    finally:
        if child.returncode is None:
            child.kill()
            await child.communicate()
