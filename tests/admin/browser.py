"""A real browser without a screen, driven by its own debugging protocol: nothing between the test and what it shows."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
from pathlib import Path

from websockets.asyncio.client import connect

from tests.networks.debian import program

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-port=0",
)  # fmt: skip


def chromium():
    """The browser of this machine, installed from Debian's packages where continuous integration may do so."""
    return shutil.which("google-chrome") or program("chromium", "chromium")


class Page:
    """One page; ``said`` is what it told its console, errors of the page and of its policy included."""

    def __init__(self, socket):
        self.said = []
        self.requests = []
        self._socket = socket
        self._session = None
        self._numbers = iter(range(1, 1_000_000))
        self._answers = {}

    async def call(self, method, **parameters):
        """One command of the protocol; gives its result, raises if it failed."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        await self._socket.send(json.dumps(message))
        async with asyncio.timeout(30):
            found = await answer
        assert "error" not in found, (method, found)
        return found["result"]

    async def begin(self):
        """Make the page and listen to it."""
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            await self.call(f"{domain}.enable")

    async def listen(self):
        """Take what the browser sends, until it ends."""
        async for text in self._socket:
            message = json.loads(text)
            if "id" in message:
                self._answers.pop(message["id"]).set_result(message)
                continue
            found = message.get("params", {})
            match message["method"]:
                case "Runtime.exceptionThrown":
                    self.said.append(
                        found["exceptionDetails"].get("exception", {}).get("description", "exception")
                    )
                case "Runtime.consoleAPICalled" if found["type"] in ("error", "warning"):
                    self.said.append(str([a.get("value", a.get("description")) for a in found["args"]]))
                case "Log.entryAdded" if found["entry"]["level"] in ("error", "warning"):
                    self.said.append(found["entry"]["text"])
                case "Network.requestWillBeSent":
                    self.requests.append(found["request"]["url"])

    async def go(self, url):
        """Open a URL."""
        await self.call("Page.navigate", url=url)
        await self.until(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    async def ask(self, expression):
        """The value of an expression in the page."""
        found = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression, seconds=20):
        """Wait until an expression holds in the page; gives its value."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            if value := await self.ask(expression):
                return value
            await asyncio.sleep(0.05)
        raise AssertionError(f"never true: {expression}; the page said {self.said}")

    async def key(self, key, code=None):
        """Press a key, as a user does."""
        text = {"Enter": "\r", " ": " "}.get(key)
        numbers = {
            "Tab": 9,
            "Enter": 13,
            "ArrowLeft": 37,
            "ArrowRight": 39,
            "Escape": 27,
            "Home": 36,
            "End": 35,
            " ": 32,
        }
        extra = {"text": text} if text else {}
        shared = {"key": key, "code": code or key, "windowsVirtualKeyCode": numbers.get(key, 0)}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **shared, **extra)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    async def look(self, *, width, height=900, dark=False):
        """Be a screen of this size and theme."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 700,
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def picture(self, path):
        """Keep a picture of the whole page."""
        shot = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        await asyncio.to_thread(Path(path).write_bytes, base64.b64decode(shot["data"]))

    async def tree(self):
        """What a screen reader is given: role and name of everything that has one."""
        found = await self.call("Accessibility.getFullAXTree")
        return [
            (node.get("role", {}).get("value"), node.get("name", {}).get("value", ""))
            for node in found["nodes"]
            if not node.get("ignored")
        ]


@contextlib.asynccontextmanager
async def browsing(program, profile):
    """A page of a new browser with an empty profile; the browser is gone at the end."""
    child = await asyncio.create_subprocess_exec(
        program, *FLAGS, f"--user-data-dir={profile}", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        port_file = Path(profile) / "DevToolsActivePort"
        async with asyncio.timeout(60):
            while not port_file.exists() or port_file.read_text().count("\n") < 1:
                assert child.returncode is None
                await asyncio.sleep(0.05)
        port, path = port_file.read_text().splitlines()[:2]
        async with connect(f"ws://127.0.0.1:{port}{path}", max_size=None, proxy=None) as socket:
            page = Page(socket)
            async with asyncio.TaskGroup() as tasks:
                listening = tasks.create_task(page.listen())
                await page.begin()
                try:
                    yield page
                finally:
                    listening.cancel()
    finally:
        if child.returncode is None:
            child.terminate()
            try:
                async with asyncio.timeout(10):
                    await child.wait()
            except TimeoutError:
                child.kill()
                await child.wait()
