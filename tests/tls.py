"""A private authority for certificates, made with the openssl command, and TLS before a server that has none."""

import asyncio
import contextlib
import shutil
import ssl
import subprocess
from dataclasses import dataclass

# From Python 3.13 on, an authority that does not say so is not trusted.
_SIGNS = "keyUsage=critical,keyCertSign,cRLSign"


class Authority:
    """A private authority in a directory of its own, made with the openssl command."""

    def __init__(self, place):
        self.place = place
        self._run(
            "req",
            "-x509",
            *_NEW_KEY,
            "-subj",
            "/CN=Private",
            "-addext",
            _SIGNS,
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
        )
        self.file = str(place / "ca.pem")
        # OpenSSL finds an authority in a directory by the hash of its name.
        name = self._run("x509", "-hash", "-noout", "-in", "ca.pem").decode().strip()
        (place / "dir").mkdir()
        shutil.copy(self.file, place / "dir" / f"{name}.0")
        self.directory = str(place / "dir")

    def issue(self, name, alternative):
        """A certificate for this name: the PEM file that has it and its key."""
        (self.place / "ext").write_text(f"subjectAltName={alternative}\nauthorityKeyIdentifier=keyid\n")
        self._run("req", *_NEW_KEY, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", "csr")
        made = self._run(
            "x509", "-req", "-in", "csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", "ext",
        )  # fmt: skip
        path = self.place / f"{name}.pem"
        path.write_bytes(made + (self.place / f"{name}.key").read_bytes())
        return str(path)

    def _run(self, *arguments):
        return subprocess.run(
            ["openssl", *arguments], cwd=self.place, capture_output=True, check=True, timeout=20
        ).stdout


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass
class Front:
    """A TLS server before an upstream."""

    url: str = ""
    port: int = 0
    connections: int = 0


@contextlib.asynccontextmanager
async def tls_front(certificate, inner_port, *, clients=None, newest=None):
    """TLS before the port of an upstream, one server for https and wss.

    ``clients`` is the authority that clients must have, ``newest`` the newest version that is spoken.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients)
    if newest is not None:
        context.maximum_version = newest
    front = Front()

    async def pipe(reader, writer):
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader, writer):
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", inner_port)
            await asyncio.gather(pipe(reader, inner_writer), pipe(inner_reader, writer))

    # Every attempt is counted, also one whose handshake fails.
    async def outer(reader, writer):
        front.connections += 1
        try:
            tls_reader, tls_writer = await asyncio.open_connection(
                "127.0.0.1", inner.sockets[0].getsockname()[1]
            )
            await asyncio.gather(pipe(reader, tls_writer), pipe(tls_reader, writer))
        finally:
            writer.close()

    inner = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    outside = await asyncio.start_server(outer, "127.0.0.1", 0)
    async with inner, outside:
        front.port = outside.sockets[0].getsockname()[1]
        front.url = f"https://127.0.0.1:{front.port}/v1"
        yield front
