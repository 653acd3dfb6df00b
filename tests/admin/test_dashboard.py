"""The dashboard in a real browser, while turns run."""

import asyncio
import contextlib
import json
import os
from pathlib import Path

import aiohttp
import pytest

from gateway.simulator import Options
from tests.admin.browser import browsing, chromium
from tests.gateways import Api, running_gateway, running_simulator
from tests.upstreams_several.worlds import PATH, two_upstreams

pytestmark = [pytest.mark.system, pytest.mark.timeout(200)]

SECRET = "a private prompt"
MODEL = "private-deployment-name"
ROWS = "document.querySelectorAll('#recent tbody tr').length"


@pytest.fixture(scope="session")
def program():
    """The browser."""
    return chromium()


@pytest.fixture
async def page(program, tmp_path):
    """A page of a new browser."""
    async with browsing(program, tmp_path / "profile") as opened:
        yield opened


@pytest.fixture
def pictures(tmp_path):
    """Where pictures are kept, for whoever wants to look at them."""
    place = Path(os.environ.get("DASHBOARD_PICTURES", tmp_path / "pictures"))
    place.mkdir(parents=True, exist_ok=True)
    return place


@contextlib.asynccontextmanager
async def product(**settings):
    """A gateway before a simulated upstream, with a client."""
    options = Options(words=4, token_pace=0.002)
    async with (
        running_simulator(options) as simulator,
        running_gateway(simulator.url, log_level="error", **settings) as gateway,
        Api(gateway.url) as api,
    ):
        yield gateway, api


async def converse(api, turns, *, model="gpt-5", **headers):
    """One conversation of so many turns."""
    history = [{"role": "user", "content": f"{SECRET} " * 50}]
    for _ in range(turns):
        seen = await api.create({"model": model, "input": history, "store": False}, headers=headers)
        assert seen.status == 200
        history += [*seen.answer["output"], {"role": "user", "content": "and then?"}]


@contextlib.asynccontextmanager
async def traffic(api):
    """Conversations of several kinds, one after the other, for as long as the block runs."""

    async def run():
        while True:
            await converse(api, 5, model="gpt-5.1-codex-2026-01-01")
            await converse(api, 1, model=MODEL)
            await converse(api, 2, **{"x-upwire-mode": "http"})

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run())
        try:
            yield
        finally:
            running.cancel()


async def test_everything_is_shown_under_live_traffic(page, pictures):
    """All parts fill and follow; nothing is asked of anyone else, nothing private is shown, and no policy is broken."""
    async with product() as (gateway, api):
        await page.look(width=1280)
        await page.go(gateway.root + "/dashboard")
        await page.until("document.getElementById('state').textContent === 'live'")
        assert "No turn has ended yet" in await page.ask("document.body.innerText")
        async with traffic(api):
            await page.until(f"{ROWS} >= 30")
            before = await page.ask("document.querySelector('#recent tbody tr').dataset.n")
            await page.until(f"document.querySelector('#recent tbody tr').dataset.n > {before}")
            await page.until(
                "document.querySelectorAll('#turns rect.delta, #turns rect.full, #turns rect.http').length >= 3"
            )
            await page.picture(pictures / "light.png")
        stats = (await api.get("/../stats")).answer
        total = f"{stats['turns']['delta']} of {stats['turns']['total']} turns"
        await page.until(f"document.getElementById('sum').innerText.includes({json.dumps(total)})")
        text = await page.ask("document.body.innerText")
        for words in (
            "new_conversation", "disabled", "first event of the upstream", "added by the gateway", "WebSocket\nworks",
            "socket age limit", "1 idle", "holds a conversation", "gpt-5.1-codex", "other", "delta", "http",
        ):  # fmt: skip
            assert words in text, words
        for private in (SECRET, "private", MODEL, "sk-test"):
            assert private not in text
        assert (
            await page.ask("document.querySelectorAll('#bytes rect.plainly, #bytes rect.sent').length") >= 2
        )
        assert (
            await page.ask("document.title")
            == f"upwire: {round(100 * stats['turns']['delta'] / stats['turns']['total'])} % delta"
        )
        assert set(page.requests) == {gateway.root + "/dashboard", gateway.root + "/events"}
        assert page.said == []


async def test_only_the_last_hundred_turns_are_kept(page):
    """The list is bounded, newest first, also across a page that comes late."""
    async with product() as (gateway, api):
        await asyncio.gather(*(converse(api, 6) for _ in range(20)))
        await page.go(gateway.root + "/dashboard")
        await page.until(f"{ROWS} === 100")
        numbers = await page.ask(
            "[...document.querySelectorAll('#recent tbody tr')].map(r => Number(r.dataset.n))"
        )
        assert numbers == list(range(120, 20, -1))
        await converse(api, 3)
        await page.until("document.querySelector('#recent tbody tr').dataset.n === '123'")
        assert await page.ask(ROWS) == 100


CONTRAST = """
(() => {
  const light = (c) => {
    const [r, g, b] = c.match(/[0-9.]+/g).slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const solid = (n) => { for (; n; n = n.parentElement) { const c = getComputedStyle(n).backgroundColor; if (!c.endsWith(', 0)')) return c; } };
  const found = [];
  for (const node of document.querySelectorAll('h1, h2, p, dt, dd, small, td, th, li, a, summary, span, b, text, rect.delta, rect.full, rect.http')) {
    const style = getComputedStyle(node), svg = node instanceof SVGElement;
    if (!svg && !node.innerText?.trim()) continue;
    const [a, b] = [light(svg ? style.fill : style.color), light(solid(svg ? node.closest('section') : node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05), wanted = node.tagName === 'rect' ? 3 : 4.5;
    if (ratio < wanted) found.push([node.tagName, node.className?.baseVal ?? node.className, node.textContent.slice(0, 30), ratio]);
  }
  return found;
})()
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390, 320])
async def test_readable_in_both_themes_and_on_a_phone(page, pictures, width, dark):
    """Every text stands out by 4.5 to 1 and every bar by 3 to 1, and nothing is wider than the screen."""
    async with product() as (gateway, api):
        await converse(api, 6)
        await converse(api, 1, **{"x-upwire-mode": "http"})
        await page.look(width=width, height=844, dark=dark)
        await page.go(gateway.root + "/dashboard")
        await page.until("document.querySelectorAll('#turns rect.delta').length > 0")
        assert await page.ask(CONTRAST) == []
        assert await page.ask("document.documentElement.scrollWidth") <= width
        wide = "[...document.querySelectorAll('section')].filter(s => s.scrollWidth > s.clientWidth + 1).map(s => s.innerText.slice(0, 20))"
        assert await page.ask(wide) == []
        await page.picture(pictures / f"{width}-{'dark' if dark else 'light'}.png")
        assert page.said == []


@pytest.mark.parametrize("width", [1280, 320])
async def test_several_upstreams_are_a_table(page, pictures, width):
    """Each by its name; with one upstream there is none, and the page stays as wide as the screen."""
    async with product() as (gateway, api):
        await converse(api, 1)
        await page.go(gateway.root + "/dashboard")
        await page.until("document.querySelectorAll('#turns rect.full').length > 0")
        assert await page.ask("document.getElementById('several').hidden")
    async with two_upstreams(second=Options(websocket=False)) as world:
        async with world.api() as one, world.api(second=True) as two:
            await converse(one, 3)
            await converse(two, 1)
        await page.look(width=width, height=844)
        await page.go(world.gateway.root + "/dashboard")
        await page.until("document.querySelectorAll('#upstreams tbody tr').length === 2")
        rows = await page.ask(
            "[...document.querySelectorAll('#upstreams tbody tr')].map(r => [...r.children].map(c => c.textContent))"
        )
        assert rows == [
            ["main", "/v1", world.main.url, "openai", "works", "3", "67 %", "0", "1"],
            ["second", PATH, world.second.url, "openai", "refused", "1", "0 %", "0", "0"],
        ]
        assert await page.ask("document.documentElement.scrollWidth") <= width
        assert await page.ask(CONTRAST) == []
        await page.picture(pictures / f"upstreams-{width}.png")
        assert page.said == []


async def test_by_keyboard(page):
    """All that can be used is reached by Tab and says where it is; a chart is read bar by bar and as a table."""
    async with product() as (gateway, api):
        await converse(api, 4)
        await page.go(gateway.root + "/dashboard")
        await page.until("document.querySelectorAll('#turns rect.delta').length > 0")
        await page.key("Tab")
        assert await page.ask("document.activeElement.className") == "skip"
        assert await page.ask("document.activeElement.getBoundingClientRect().width > 50")
        await page.key("Enter")
        assert await page.ask("document.activeElement.id") == "main"
        reached = []
        while "BODY " not in reached:
            await page.key("Tab")
            reached.append(
                await page.ask(
                    "document.activeElement.tagName + ' ' + (document.activeElement.getAttribute('aria-label') ?? '')"
                )
            )
            outline = await page.ask(
                "document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle"
            )
            assert outline in ("solid", "auto", True)
            if reached[-1].startswith("svg Turns by mode"):
                await page.key("ArrowLeft")
                told = await page.ask("document.querySelector('#turns output').textContent")
                assert "delta 3, full 1, http 0" in told
                await page.key("Home")
                assert "delta 0" in await page.ask("document.querySelector('#turns output').textContent")
                await page.key("Escape")
                assert await page.ask("document.querySelector('#turns output').textContent") == ""
            if reached[-1].startswith("SUMMARY") and await page.ask(
                "!!document.activeElement.closest('#turns')"
            ):
                await page.key("Enter")
                table = await page.until("document.querySelector('#turns tbody').innerText")
                assert table.split()[1:] == ["3", "1", "0"]
        names = " ".join(reached)
        for name in ("svg Turns by mode", "svg Bytes sent", "SUMMARY", "DIV", "A "):
            assert name in names


async def test_for_a_screen_reader(page):
    """Every part has a heading or a name, charts say their sums, tables have headers, and only changes of state are announced."""
    async with product() as (gateway, api):
        await converse(api, 4)
        await page.go(gateway.root + "/dashboard")
        await page.until("document.querySelectorAll('#turns rect.delta').length > 0")
        tree = await page.tree()
        named = dict.fromkeys(tree)
        headings = [name for role, name in named if role == "heading"]
        for name in (
            "upwire", "In short", "Turns by mode", "Why turns were not deltas", "Latency", "Upstream, and what it taught",
            "Hidden failures and closed sockets", "Sockets", "Last turns",
        ):  # fmt: skip
            assert name in headings
        roles = {role for role, _ in named}
        assert {
            "banner",
            "main",
            "contentinfo",
            "region",
            "table",
            "columnheader",
            "rowheader",
            "status",
            "list",
        } <= roles
        charts = [
            name for role, name in named if role in ("group", "bar chart") and "last 15 minutes" in name
        ]
        assert any("delta 3, full 1, http 0" in name for name in charts)
        assert all(name for role, name in tree if role in ("link", "button", "region", "heading", "textbox"))
        assert await page.ask("document.documentElement.lang") == "en"
        assert await page.ask("document.querySelectorAll('[aria-live], [role=status]').length") == 3


async def test_the_token_is_asked_for_in_the_page(page):
    """Where the gateway asks for its token the page opens, shows nothing, and asks; the token goes along as a header only."""
    token = "t" * 32
    async with product(token=token) as (gateway, _), aiohttp.ClientSession() as session:
        for path, status in (("/stats", 401), ("/events", 401), ("/metrics", 401), ("/dashboard", 200)):
            async with session.get(gateway.root + path) as answer:
                assert answer.status == status
        await page.go(gateway.root + "/dashboard")
        await page.until("document.activeElement.id === 'token'")
        assert await page.ask("document.getElementById('state').textContent") == "needs the token"
        await page.call("Input.insertText", text="wrong")
        await page.key("Enter")
        await page.until("document.getElementById('state').textContent === 'needs the token'")
        await page.ask("document.getElementById('token').select()")
        await page.call("Input.insertText", text=token)
        await page.key("Enter")
        await page.until("document.getElementById('state').textContent === 'live'")
        assert await page.ask("document.getElementById('door').hidden")
        assert not any(token in url for url in page.requests)
        assert await page.ask("localStorage.length + sessionStorage.length + document.cookie.length") == 0


async def test_a_gateway_that_restarts(page):
    """The page says that it is gone and goes on by itself when it is back, with the new process's turns."""
    async with product() as (gateway, api):
        await converse(api, 3)
        port = int(gateway.root.rpartition(":")[2])
        await page.go(gateway.root + "/dashboard")
        await page.until(f"{ROWS} === 3")
    await page.until("document.getElementById('state').textContent === 'gone, waiting for it'")
    async with product(port=port) as (gateway, api):
        assert gateway.root.endswith(f":{port}")
        await converse(api, 1)
        await page.until(f"document.getElementById('state').textContent === 'live' && {ROWS} === 1")


async def test_nothing_else_can_run_in_the_page(page):
    """The policy stops markup made from text, scripts that are added, and anything from elsewhere."""
    async with product() as (gateway, _):
        await page.go(gateway.root + "/dashboard")
        await page.until("document.getElementById('state').textContent === 'live'")
        assert page.said == []
        script = "try { document.body.innerHTML = '<b>x</b>'; 'done' } catch (error) { error.name }"
        assert await page.ask(script) == "TypeError"
        assert await page.ask("fetch('http://127.0.0.1:9/').then(() => 'done', () => 'stopped')") == "stopped"
        added = "try { document.createElement('script').textContent = 'x = 1'; 'done' } catch (error) { error.name }"
        assert await page.ask(added) == "TypeError"
        image = "new Promise(d => { const i = new Image(); i.onload = () => d('done'); i.onerror = () => d('stopped'); i.src = '/healthz' })"
        assert await page.ask(image) == "stopped"
        style = "(() => { const b = document.body; b.setAttribute('style', 'color: red'); return getComputedStyle(b).color })()"
        assert await page.ask(style) != "rgb(255, 0, 0)"
        assert page.said
