"""Upstreams with addresses of both families, with names that change or are not known yet, and with old versions of TLS."""

import asyncio
import contextlib
import shutil
import socket
import ssl
import time

import pytest

from gateway.simulator import FunctionScript, Options
from tests.faults.scenes import answers, body, said, scene, user
from tests.gateways import Api, running_gateway, running_simulator
from tests.networks.proxies import HttpProxy, SocksProxy
from tests.tls import Authority, tls_front

NAME = "api.test"


def has_ipv6():
    """Whether this machine has an IPv6 loopback."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="needs IPv6")


class Names:
    """What the system's resolver says of one name; nothing else is changed."""

    def __init__(self, monkeypatch):
        self.addresses = []
        real = socket.getaddrinfo

        def look_up(host, port, *rest, **options):
            if host != NAME:
                return real(host, port, *rest, **options)
            if not self.addresses:
                raise socket.gaierror(socket.EAI_NONAME, "not known")
            return [entry for address in self.addresses for entry in real(address, port, *rest, **options)]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.fixture
def names(monkeypatch):
    """A name that the test can point anywhere."""
    return Names(monkeypatch)


async def _simulator(stack, host, port=0):
    """A simulated upstream on this address, stopped with ``stack``."""
    simulator = await stack.enter_async_context(
        running_simulator(Options(), FunctionScript(answers([said("a1")], [said("a2")])))
    )
    await simulator.stop()
    await simulator.start(host, port)
    return simulator


@pytest.mark.parametrize("way", ["direct", "http", "socks5h"])
@needs_ipv6
async def test_an_ipv6_address(way):
    """An upstream named by an address in brackets works on both transports, directly and through proxies."""
    async with contextlib.AsyncExitStack() as stack:
        simulator = await _simulator(stack, "::1")
        kind = SocksProxy if way == "socks5h" else HttpProxy
        proxy = await stack.enter_async_context(kind())
        settings = {"proxy": "none" if way == "direct" else proxy.url(way)}
        gateway = await stack.enter_async_context(running_gateway(simulator.url, **settings))
        api = await stack.enter_async_context(Api(gateway.url))
        first = await api.create(body([user("u1")]))
        second = await api.create(body([user("u1"), said("a1"), user("u2")]))
        other = await api.get("/models")
    assert "[::1]" in simulator.url
    assert (first.mode, second.mode, other.status) == ("full", "delta", 200)
    port = simulator.port
    assert [place for _, place in proxy.asked] == {
        "direct": [],
        "http": [f"[::1]:{port}", f"http://[::1]:{port}/v1/models"],
        "socks5h": [f"::1:{port}", f"::1:{port}"],
    }[way]


@needs_ipv6
async def test_a_family_of_addresses_that_leads_nowhere(names):
    """The first address never answers a connection: the second is used within a moment, by the socket too."""
    async with contextlib.AsyncExitStack() as stack:
        simulator = await _simulator(stack, "127.0.0.1")
        dead = stack.enter_context(socket.socket(socket.AF_INET6))
        dead.bind(("::1", simulator.port))
        dead.listen(0)
        # Nobody accepts, so the queue fills and then nothing is answered any more.
        for _ in range(8):
            waiting = stack.enter_context(socket.socket(socket.AF_INET6))
            waiting.setblocking(False)
            waiting.connect_ex(("::1", simulator.port))
        names.addresses = ["::1", "127.0.0.1"]
        gateway = await stack.enter_async_context(
            running_gateway(f"http://{NAME}:{simulator.port}/v1", dial_timeout=5.0)
        )
        api = await stack.enter_async_context(Api(gateway.url))
        began = time.monotonic()
        turn, other = await api.create(body([user("u1")])), await api.get("/models")
    assert (turn.status, turn.mode, other.status) == (200, "full", 200)
    assert time.monotonic() - began < 3


async def test_a_changed_address_is_taken_when_sockets_are_renewed(names):
    """An open socket stays where it is; the one that takes its place is opened at the new address, and the turn is sent in full."""
    async with contextlib.AsyncExitStack() as stack:
        old = await _simulator(stack, "127.0.0.1")
        new = await _simulator(stack, "127.0.0.2", old.port)
        names.addresses = ["127.0.0.1"]
        gateway = await stack.enter_async_context(
            running_gateway(f"http://{NAME}:{old.port}/v1", socket_age=1.0)
        )
        api = await stack.enter_async_context(Api(gateway.url))
        items = [user("u1")]
        first = await api.create(body(items))
        names.addresses = ["127.0.0.2"]
        items += [said("a1"), user("u2")]
        second = await api.create(body(items))
        items += [said("a2"), user("u3")]
        async with asyncio.timeout(5):
            while old.open_sockets:  # noqa: ASYNC110 (nothing announces it)
                await asyncio.sleep(0.02)
        third = await api.create(body(items))
    assert [(one.mode, one.reason) for one in (first, second, third)] == [
        ("full", "new_conversation"),
        ("delta", None),
        ("full", "parent_lost"),
    ]
    assert (len(old.journal.creates("ws")), len(new.journal.creates("ws"))) == (2, 1)


async def test_the_network_is_down_at_the_start(names):
    """The gateway starts and is ready; turns say what is wrong, and soon after the name is known they go over a socket."""
    async with scene(answers([said("a1")])) as run:
        url = f"http://{NAME}:{run.simulator.port}/v1"
        async with running_gateway(url) as gateway, Api(gateway.url) as api:
            async with api.session.get(gateway.root + "/readyz") as ready:
                assert ready.status == 200
            down = await api.create(body([user("u1")]))
            names.addresses = ["127.0.0.1"]
            at_once = await api.create(body([user("u1")]))
            async with asyncio.timeout(5):
                up = at_once
                while up.mode == "http":
                    await asyncio.sleep(0.05)
                    up = await api.create(body([user("u1")]))
    assert (down.status, down.answer["error"]["code"]) == (502, "upstream_unreachable")
    assert "name is not known" in down.answer["error"]["message"]
    assert (at_once.status, at_once.mode) == (200, "http")
    assert (up.status, up.mode) == (200, "full")


@pytest.mark.parametrize("minimum", ["1.2", "1.3"])
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
async def test_the_oldest_version_of_tls_holds_for_both_transports(minimum, tmp_path):
    """An upstream that speaks 1.2 at most is good enough for the default; with 1.3 as the oldest both are refused."""
    authority = Authority(tmp_path)
    server = authority.issue("server", "IP:127.0.0.1")
    async with scene() as run, tls_front(server, run.simulator.port, newest=ssl.TLSVersion.TLSv1_2) as front:
        async with running_gateway(front.url, ca_file=authority.file, tls_minimum=minimum) as gateway:
            async with Api(gateway.url) as api:
                turn, other = await api.create(body([user("u1")])), await api.get("/models")
    if minimum == "1.2":
        assert (turn.mode, other.status) == ("full", 200)
    else:
        assert (turn.status, other.status, turn.answer) == (502, 502, other.answer)
        assert turn.answer["error"]["code"] == "upstream_unreachable"
