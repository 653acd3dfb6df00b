"""Sockets and plain HTTP reach the upstream through the same proxy, and never past it."""

import contextlib
import shutil

import pytest

from tests.faults.scenes import answers, body, said, scene, user
from tests.gateways import Api, running_gateway
from tests.networks.proxies import HttpProxy, SocksProxy
from tests.tls import Authority, tls_front

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")

WHO = "me%40home:p%3Ass%2Fw%25rd"
"""As written in a URL, and as the proxy must get it."""
CREDENTIALS = "me@home:p:ss/w%rd"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """An authority that no system knows."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def certificate(authority):
    """The certificate of the upstream and of a proxy that speaks TLS."""
    return authority.issue("server", "DNS:api.test,DNS:localhost,IP:127.0.0.1")


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch):
    for name in ("https_proxy", "http_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@contextlib.asynccontextmanager
async def upstream_at(host, certificate=None):
    """A simulated upstream that is asked for by ``host``, over TLS with a certificate."""
    async with contextlib.AsyncExitStack() as stack:
        run = await stack.enter_async_context(scene(answers([said("a1")], [said("a2")], [said("a3")])))
        run.front = None
        if certificate is None:
            run.url = f"http://{host}:{run.simulator.port}/v1"
        else:
            run.front = await stack.enter_async_context(tls_front(certificate, run.simulator.port))
            run.url = f"https://{host}:{run.front.port}/v1"
        yield run


async def both(api):
    """One turn over a socket, one over plain HTTP."""
    turn = await api.create(body([user("u1")]))
    other = await api.get("/models")
    return turn, other


# -- which proxy


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
@needs_openssl
async def test_both_spellings_lead_both_transports_through_the_proxy(
    variable, authority, certificate, monkeypatch
):
    """A name that only the proxy can find is reached by the socket and by plain HTTP, each through a tunnel."""
    async with HttpProxy() as proxy, upstream_at("api.test", certificate) as run:
        monkeypatch.setenv(variable, proxy.url("http"))
        async with running_gateway(run.url, ca_file=authority.file) as gateway, Api(gateway.url) as api:
            turn, other = await both(api)
    assert (turn.status, turn.mode, other.status) == (200, "full", 200)
    assert proxy.asked == [("CONNECT", f"api.test:{run.front.port}")] * 2


@pytest.mark.parametrize("variable", ["NO_PROXY", "no_proxy"])
@needs_openssl
async def test_both_spellings_of_no_proxy_lead_past_it(variable, authority, certificate, monkeypatch):
    """A host that is exempt is dialled directly by both, which the proxy never hears of."""
    async with HttpProxy() as proxy, upstream_at("127.0.0.1", certificate) as run:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url("http"))
        monkeypatch.setenv(variable, "other.test,127.0.0.0/8")
        async with running_gateway(run.url, ca_file=authority.file) as gateway, Api(gateway.url) as api:
            turn, other = await both(api)
    assert (turn.mode, other.status, proxy.asked) == ("full", 200, [])


# -- each kind of proxy


@pytest.mark.parametrize("scheme", ["http", "https", "socks5", "socks5h", "socks"])
@pytest.mark.parametrize("tls", [False, True], ids=["http upstream", "https upstream"])
@needs_openssl
async def test_every_kind_of_proxy_with_credentials(scheme, tls, authority, certificate):
    """Credentials with escapes arrive decoded, names go to the proxy except with socks5, and one trust serves both hops."""
    kind = SocksProxy if scheme.startswith("socks") else HttpProxy
    host = "localhost" if scheme == "socks5" else "api.test"
    own = {"certificate": certificate} if scheme == "https" else {}
    async with (
        kind(credentials=CREDENTIALS, **own) as proxy,
        upstream_at(host, certificate if tls else None) as run,
    ):
        settings = {"proxy": proxy.url(scheme, WHO), "ca_file": authority.file}
        async with running_gateway(run.url, **settings) as gateway, Api(gateway.url) as api:
            first, other = await both(api)
            second = await api.create(body([user("u1"), said("a1"), user("u2")]))
            stats = await run.api.get("/models") and await _stats(api, gateway)
    assert (first.status, first.mode, other.status, second.mode) == (200, "full", 200, "delta")
    assert stats["upstream"]["websocket"] == "works"
    assert proxy.turned_away == 0
    port = run.front.port if tls else run.simulator.port
    if kind is SocksProxy:
        assert {place for _, place in proxy.asked} <= {f"{host}:{port}", f"127.0.0.1:{port}", f"::1:{port}"}
        assert {kind for kind, _ in proxy.asked} == ({1} if scheme == "socks5" else {3})
    else:
        plain = ("CONNECT", f"{host}:{port}") if tls else ("GET", f"http://{host}:{port}/v1/models")
        assert proxy.asked == [("CONNECT", f"{host}:{port}"), plain]


async def _stats(api, gateway):
    async with api.session.get(gateway.root + "/stats") as answer:
        return await answer.json()


# -- never past it


@pytest.mark.parametrize(
    ("kind", "scheme", "trouble", "words", "reason"),
    [
        (HttpProxy, "http", {"credentials": CREDENTIALS}, "the proxy asks for other credentials", "proxy"),
        (HttpProxy, "http", {"refuse": 403}, "the proxy refused", "proxy"),
        (HttpProxy, "http", {"refuse": 502}, "the proxy could not connect", "connect"),
        (SocksProxy, "socks5h", {"credentials": CREDENTIALS}, "the proxy refused", "proxy"),
        (SocksProxy, "socks5h", {"refuse": 2}, "the proxy refused", "proxy"),
        (SocksProxy, "socks5h", {"refuse": 4}, "no connection", "connect"),
        (HttpProxy, "socks5h", {}, "no connection in time", "timeout"),
    ],
    ids=["407", "403", "502", "socks credentials", "socks rules", "socks unreachable", "no socks at all"],
)
@needs_openssl
async def test_a_proxy_that_does_not_let_pass_is_not_passed_by(  # noqa: PLR0917
    kind, scheme, trouble, words, reason, authority, certificate
):
    """The upstream listens on this very machine and is not dialled; the answer says what the proxy did, and no secret."""
    async with kind(**trouble) as proxy, upstream_at("127.0.0.1", certificate) as run:
        settings = {"proxy": proxy.url(scheme, "someone:secretword"), "ca_file": authority.file}
        async with running_gateway(run.url, dial_timeout=0.5, **settings) as gateway, Api(gateway.url) as api:
            turn, other = await both(api)
            await both(api)
            upstream = (await _stats(api, gateway))["upstream"]
        assert run.front.connections == 0
    assert (turn.status, other.status) == (502, 502)
    assert turn.answer == other.answer
    assert turn.answer["error"]["code"] == "upstream_unreachable"
    assert words in turn.answer["error"]["message"]
    assert b"secretword" not in turn.raw
    assert upstream["refusal"]["reason"] == reason


@pytest.mark.parametrize("scheme", ["http", "https", "socks5", "socks5h"])
@needs_openssl
async def test_a_proxy_that_is_not_there_is_not_passed_by(scheme, authority, certificate):
    """Both transports say 502 while the upstream itself could be reached."""
    async with HttpProxy() as proxy:
        gone = proxy.url(scheme)
    async with upstream_at("127.0.0.1", certificate) as run:
        async with running_gateway(run.url, proxy=gone, ca_file=authority.file) as gateway:
            async with Api(gateway.url) as api:
                turn, other = await both(api)
        assert run.front.connections == 0
    assert (turn.status, other.status, turn.answer) == (502, 502, other.answer)


# -- a proxy that lets plain HTTP pass only


async def test_a_proxy_that_cuts_upgrades_is_remembered():
    """Plain HTTP passes, tunnels do not: turns go over plain HTTP, few dials are made, and the statistics say so."""
    async with HttpProxy(refuse=403) as proxy, upstream_at("api.test") as run:
        async with running_gateway(run.url, proxy=proxy.url("http")) as gateway, Api(gateway.url) as api:
            seen = [await api.create(body([user(f"u{n}")])) for n in range(6)]
            upstream = (await _stats(api, gateway))["upstream"]
    assert {(one.status, one.mode, one.reason) for one in seen} == {(200, "http", "upgrade_refused")}
    assert [method for method, _ in proxy.asked].count("CONNECT") == 2
    assert upstream["websocket"] == "refused"
    assert upstream["refusal"] == {"status": None, "reason": "proxy"}
    assert upstream["retry_in_seconds"] > 200
