"""Faults that others met: a private authority that plain HTTP trusts and the socket does not."""

import contextlib
import shutil
import time

import pytest

from gateway.settings import Settings
from tests.faults.scenes import answers, body, said, scene, user
from tests.gateways import Api, running_gateway
from tests.tls import Authority, tls_front

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """An authority that no system knows."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority):
    """The certificate of the upstream."""
    return authority.issue("server", "IP:127.0.0.1,DNS:localhost")


@contextlib.asynccontextmanager
async def behind_tls(certificate, *, clients=None, **settings):
    """A gateway whose upstream is reached over TLS: the simulated upstream, the front and a client."""
    async with (
        scene(answers([said("a1")], [said("a2")])) as run,
        tls_front(certificate, run.simulator.port, clients=clients) as front,
        running_gateway(front.url, dial_timeout=5.0, **settings) as gateway,
        Api(gateway.url) as api,
    ):
        yield run.simulator, front, api


async def both_work(simulator, api):
    """A turn over a socket and a request over plain HTTP are served."""
    turn = await api.create(body([user("u1")]))
    assert (turn.status, turn.mode) == (200, "full")
    assert [create.transport for create in simulator.journal.creates()] == ["ws"]
    assert (await api.get("/models")).status == 200


async def neither_works(simulator, front, api):
    """Both are refused with a 502 that says why, soon, and without trying again and again."""
    began = time.monotonic()
    turn = await api.create(body([user("u1")]))
    other = await api.get("/models")
    assert time.monotonic() - began < 3
    assert (turn.status, other.status) == (502, 502)
    assert turn.answer == other.answer
    assert front.connections == 3
    assert list(simulator.journal) == []
    return turn.answer["error"]


TRUST = ["setting", "SSL_CERT_FILE", "SSL_CERT_DIR"]


@pytest.fixture
def no_trust(monkeypatch):
    """No authority is named by the environment."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)


@pytest.mark.parametrize("way", TRUST)
@pytest.mark.usefixtures("no_trust")
async def test_b55_one_trust_serves_both_transports(way, authority, server, monkeypatch):
    """The setting and both variables make the private authority good for the socket and for plain HTTP."""
    settings = {"ca_file": authority.file} if way == "setting" else {}
    if way != "setting":
        monkeypatch.setenv(way, authority.file if way == "SSL_CERT_FILE" else authority.directory)
    async with behind_tls(server, **settings) as (simulator, _, api):
        await both_work(simulator, api)


@pytest.mark.usefixtures("no_trust")
async def test_b55_without_trust_both_are_refused(server):
    """Nobody vouches for the certificate: that is the error of both, and verification is on without being asked for."""
    async with behind_tls(server) as (simulator, front, api):
        error = await neither_works(simulator, front, api)
    assert error["code"] == "upstream_unreachable"
    assert "certificate is not trusted" in error["message"]
    assert not [name for name in Settings.__slots__ if "verify" in name or "insecure" in name]


@pytest.mark.usefixtures("no_trust")
async def test_b55_another_hosts_certificate_is_refused_by_both(authority):
    """A trusted authority does not make up for the wrong name."""
    wrong = authority.issue("wrong", "DNS:another.example")
    async with behind_tls(wrong, ca_file=authority.file) as (simulator, front, api):
        error = await neither_works(simulator, front, api)
    assert (error["code"], "certificate" in error["message"]) == ("upstream_unreachable", True)


@pytest.mark.usefixtures("no_trust")
async def test_b55_a_client_certificate_is_presented_by_both(authority, server):
    """An upstream that asks for a client certificate gets it on both transports."""
    own = authority.issue("client", "DNS:client.example")
    settings = {"ca_file": authority.file, "client_cert": own}
    async with behind_tls(server, clients=authority.file, **settings) as (simulator, _, api):
        await both_work(simulator, api)


@pytest.mark.usefixtures("no_trust")
async def test_b55_a_client_certificate_that_is_missing_is_missed_by_both(authority, server):
    """Without it both get the same 502, and the upstream behind TLS sees nothing."""
    async with behind_tls(server, clients=authority.file, ca_file=authority.file) as (simulator, front, api):
        error = await neither_works(simulator, front, api)
    assert error["code"] in ("upstream_unreachable", "upstream_connection_lost")
