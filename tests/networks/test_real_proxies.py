"""Sockets and plain HTTP through proxies that others wrote: tinyproxy, squid and microsocks."""

import contextlib
import shutil
import subprocess

import pytest

from tests.faults.scenes import answers, body, said, scene, user
from tests.gateways import Api, running_gateway
from tests.networks.debian import open_folder, program, started
from tests.ports import free_port
from tests.tls import Authority, tls_front

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command"),
]

WHO = "me:%70w1"
"""As written in a URL; tinyproxy takes letters and digits only."""
PASSWORD = "pw1"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """An authority that no system knows."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def certificate(authority):
    """The certificate of the upstream and of a proxy that speaks TLS."""
    return authority.issue("server", "DNS:api.test,DNS:localhost,IP:127.0.0.1")


@contextlib.asynccontextmanager
async def tinyproxy(folder, *, tunnels=True):
    """The URL of a tinyproxy with credentials; without ``tunnels`` it refuses CONNECT to any port but 443."""
    port, log = free_port(), folder / "log"
    (folder / "conf").write_text(
        f"Port {port}\nListen 127.0.0.1\nMaxClients 20\nBasicAuth me {PASSWORD}\nLogLevel Info\n"
        + ("" if tunnels else "ConnectPort 443\n")
    )
    async with started(
        port, program("tinyproxy", "tinyproxy-bin"), "-d", "-c", str(folder / "conf"), log=log
    ):
        yield f"http://{WHO}@127.0.0.1:{port}", log


@contextlib.asynccontextmanager
async def squid(folder, *, certificate=None):
    """The URL of a squid with credentials, http or, with a certificate, https; it alone knows where api.test is."""
    port, log = free_port(), folder / "access"
    (folder / "users").write_text(f"me:{hashed(PASSWORD)}")
    (folder / "hosts").write_text("127.0.0.1 api.test\n")
    listening = f"http_port 127.0.0.1:{port}"
    if certificate is not None:
        shutil.copy(certificate, folder / "cert.pem")
        listening = f"https_port 127.0.0.1:{port} tls-cert={folder}/cert.pem"
    (folder / "conf").write_text(
        f"""{listening}
hosts_file {folder}/hosts
auth_param basic program /usr/lib/squid/basic_ncsa_auth {folder}/users
acl known proxy_auth REQUIRED
http_access allow known
http_access deny all
cache deny all
access_log stdio:{log}
cache_log {folder}/cache.log
pid_filename none
shutdown_lifetime 0 seconds
"""
    )
    for path in folder.iterdir():
        path.chmod(0o644)
    command = (program("squid", "squid"), "-N", "-f", str(folder / "conf"))
    async with started(port, *command, log=folder / "out"):
        yield f"{'http' if certificate is None else 'https'}://{WHO}@127.0.0.1:{port}", log


@contextlib.asynccontextmanager
async def microsocks(folder, *, scheme="socks5h"):
    """The URL of a microsocks with credentials."""
    port, log = free_port(), folder / "log"
    command = (
        program("microsocks", "microsocks"),
        "-i",
        "127.0.0.1",
        "-p",
        str(port),
        "-u",
        "me",
        "-P",
        PASSWORD,
    )
    async with started(port, *command, log=log):
        yield f"{scheme}://{WHO}@127.0.0.1:{port}", log


def hashed(password):
    """A password as squid's helper keeps it."""
    command = ["openssl", "passwd", "-apr1", password]
    return subprocess.run(command, capture_output=True, check=True, timeout=20).stdout.decode()


PROXIES = {
    "tinyproxy": (tinyproxy, "localhost", {}),
    "squid": (squid, "api.test", {}),
    "squid over TLS": (squid, "api.test", {"certificate"}),
    "microsocks, names there": (microsocks, "localhost", {"scheme": "socks5h"}),
    "microsocks, names here": (microsocks, "localhost", {"scheme": "socks5"}),
}


@pytest.mark.parametrize("name", PROXIES)
@pytest.mark.parametrize("tls", [False, True], ids=["http upstream", "https upstream"])
async def test_three_turns_through_a_real_proxy(name, tls, authority, certificate):
    """One socket carries the conversation as deltas, plain HTTP works beside it, and the proxy's log has both."""
    start, host, options = PROXIES[name]
    if options == {"certificate"}:
        options = {"certificate": certificate}
    with open_folder() as folder:
        async with contextlib.AsyncExitStack() as stack:
            proxy, log = await stack.enter_async_context(start(folder, **options))
            run = await stack.enter_async_context(scene(answers(*([said(f"a{n}")] for n in (1, 2, 3)))))
            port, scheme = run.simulator.port, "http"
            if tls:
                front = await stack.enter_async_context(tls_front(certificate, port))
                port, scheme = front.port, "https"
            url = f"{scheme}://{host}:{port}/v1"
            behind = running_gateway(url, proxy=proxy, ca_file=authority.file)
            api = await stack.enter_async_context(Api((await stack.enter_async_context(behind)).url))
            items, modes = [], []
            for n in (1, 2, 3):
                items.append(user(f"u{n}"))
                seen = await api.create(body(items))
                modes.append((seen.status, seen.mode))
                items.append(said(f"a{n}"))
            other = await api.get("/models")
            opened = {create.connection for create in run.frames}
        # A line is written when a connection ends: all have ended now.
        lines = [line for line in log.read_text().splitlines() if f":{port}" in line]
    assert modes == [(200, "full"), (200, "delta"), (200, "delta")]
    assert (other.status, len(opened)) == (200, 1)
    assert len(lines) >= 2


async def test_a_real_proxy_that_lets_no_tunnel_pass():
    """Turns go over plain HTTP, after two refused tunnels no more are asked for, and the statistics say so."""
    with open_folder() as folder:
        async with tinyproxy(folder, tunnels=False) as (proxy, log), scene() as run:
            url = f"http://localhost:{run.simulator.port}/v1"
            async with running_gateway(url, proxy=proxy) as gateway, Api(gateway.url) as api:
                seen = [await api.create(body([user(f"u{n}")])) for n in range(5)]
                async with api.session.get(gateway.root + "/stats") as answer:
                    upstream = (await answer.json())["upstream"]
        refused = log.read_text().count("CONNECT localhost")
    assert {(one.status, one.mode, one.reason) for one in seen} == {(200, "http", "upgrade_refused")}
    assert refused == 2
    assert (upstream["websocket"], upstream["refusal"]["reason"]) == ("refused", "proxy")


@pytest.mark.parametrize("start", [tinyproxy, squid, microsocks], ids=lambda start: start.__name__)
async def test_a_real_proxy_that_does_not_take_the_credentials(start, authority, certificate):
    """Both transports are refused in words about the proxy, and the upstream on this machine is not dialled."""
    with open_folder() as folder:
        async with (
            start(folder) as (proxy, _),
            scene() as run,
            tls_front(certificate, run.simulator.port) as front,
        ):
            wrong = proxy.replace(WHO, "me:secretword")
            async with running_gateway(front.url, proxy=wrong, ca_file=authority.file) as gateway:
                async with Api(gateway.url) as api:
                    turn, other = await api.create(body([user("u1")])), await api.get("/models")
            assert front.connections == 0
    assert (turn.status, other.status, turn.answer) == (502, 502, other.answer)
    assert "proxy" in turn.answer["error"]["message"]
    assert b"secretword" not in turn.raw
