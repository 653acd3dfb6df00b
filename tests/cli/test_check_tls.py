"""``upwire check`` against TLS servers with certificates of several kinds."""

import asyncio
import contextlib
import random
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from gateway.cli.certificate import subject_and_issuer
from gateway.cli.check import upstream_rows
from gateway.settings import Settings

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command"),
]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Makes a self-signed certificate for the given name; gives the PEM file with its key."""

    def make(name, days=30):
        path = tmp_path_factory.mktemp("tls") / "both.pem"
        done = subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", str(days), "-subj", "/O=Some Proxy/CN=test",
             "-addext", f"subjectAltName={name}", "-keyout", "-", "-out", "-"],
            capture_output=True, check=True,
        )  # fmt: skip
        path.write_bytes(done.stdout)
        return str(path)

    return make


async def tls_row(pem, **settings):
    """The TLS step against a server with the certificate ``pem``."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem)
    if "client_cert" in settings:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(settings["client_cert"])

    async def serve(_reader, writer):
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        asked = Settings(upstream=f"https://127.0.0.1:{port}/v1", dial_timeout=5, **settings)
        return {row.name: row async for row in upstream_rows(asked, "")}["TLS"]


async def test_an_unknown_authority_is_named_with_the_way_out(certificate):
    """A certificate that nobody vouches for fails, with the setting that would trust it."""
    row = await tls_row(certificate("IP:127.0.0.1"))
    assert row.verdict == "failed"
    assert "certificate not trusted: self" in row.seen
    assert "--ca-file" in row.remedy
    assert row.details == ("it is for test (Some Proxy), issued by test (Some Proxy)",)


async def test_a_private_authority_is_trusted_by_setting_and_by_variable(certificate, monkeypatch):
    """``ca_file`` and SSL_CERT_FILE both make the same certificate trusted."""
    pem = certificate("IP:127.0.0.1")
    assert (await tls_row(pem, ca_file=pem)).verdict == "ok"
    monkeypatch.setenv("SSL_CERT_FILE", pem)
    assert (await tls_row(pem)).verdict == "ok"


async def test_another_hosts_certificate_is_refused(certificate):
    """A trusted authority does not make up for the wrong name."""
    pem = certificate("DNS:another.example")
    row = await tls_row(pem, ca_file=pem)
    assert row.verdict == "failed"
    assert "127.0.0.1" in row.seen


async def test_a_client_certificate_is_presented(certificate):
    """A server that asks for a client certificate gets the one of the setting."""
    pem = certificate("IP:127.0.0.1")
    assert (await tls_row(pem, ca_file=pem, client_cert=pem)).verdict == "ok"


async def test_a_certificate_is_told_with_its_issuer_and_a_warning_before_its_end(certificate):
    """Whose it is, who issued it and for how long it is valid; little time left is a warning."""
    pem = certificate("IP:127.0.0.1")
    row = await tls_row(pem, ca_file=pem)
    assert "certificate of test (Some Proxy), issued by test (Some Proxy), valid for 29 days" in row.seen
    pem = certificate("IP:127.0.0.1", days=3)
    row = await tls_row(pem, ca_file=pem)
    assert (row.verdict, row.remedy) == ("warning", "Whoever runs this upstream should renew it.")


def test_names_in_a_certificate_of_any_bytes(certificate):
    """What is cut or changed is no certificate, or one with other names; nothing else comes of it."""
    der = ssl.PEM_cert_to_DER_cert(
        Path(certificate("DNS:x")).read_text().partition("-----END PRIVATE KEY-----")[2].strip()
    )
    assert subject_and_issuer(der) == ("test (Some Proxy)", "test (Some Proxy)")
    rng = random.Random(1)
    for _ in range(500):
        changed = bytearray(der[: rng.randrange(len(der) + 1)])
        for _ in range(rng.randrange(3)):
            if changed:
                changed[rng.randrange(len(changed))] = rng.randrange(256)
        with contextlib.suppress(ValueError):
            assert all(text.isprintable() and len(text) < 180 for text in subject_and_issuer(bytes(changed)))
