"""``upwire health``: ask a running gateway whether it lives, for probes that can run a program but reach no loopback address.

It needs no shell, no other program, no token, and nothing of the upstream.
"""

from __future__ import annotations

import http.client
import socket
from typing import Any

import click

from gateway.cli.options import read, setting_options
from gateway.cli.stats import base_url
from gateway.config import unix_path

TIMEOUT = 5.0


class UnixConnection(http.client.HTTPConnection):
    """A connection through a socket file."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect to the file."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@click.command("health")
@click.option("--ready", is_flag=True, help="Ask whether it takes work, not only whether it lives.")
@click.option(
    "--timeout", type=float, default=TIMEOUT, show_default=True, metavar="SECONDS", help="How long to wait."
)
@setting_options(("host", "port", "listen"))
def command(*, ready: bool, timeout: float, config: str | None, **given: Any) -> int:
    """Exit with 0 if the gateway with these settings answers, with 1 if not."""
    settings = read(config, given).settings
    if settings.port:
        where = base_url(settings)
        connection = http.client.HTTPConnection(where.removeprefix("http://"), timeout=timeout)
    elif settings.listen:
        where = settings.listen[0]
        connection = UnixConnection(unix_path(where), timeout)
    else:
        raise click.UsageError("port 0 does not tell where it listens; give --port, or --listen unix:PATH")
    path = "/readyz" if ready else "/healthz"
    try:
        connection.request("GET", path)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        click.echo(f"{where}{path} does not answer ({type(error).__name__})", err=True)
        return 1
    finally:
        connection.close()
    click.echo(f"{where}{path} {status}")
    return 0 if status == 200 else 1
