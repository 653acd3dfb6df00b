"""``upwire stats``: show what a running gateway has counted."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from typing import Any

import click

from gateway.cli.options import JSON_VARIABLE, URL_VARIABLE, WATCH_VARIABLE, read, setting_options
from gateway.config import load_token
from gateway.settings import Settings

TIMEOUT = 5.0
CLEAR = "\x1b[H\x1b[2J"


@click.command("stats")
@click.option("--url", metavar="URL", envvar=URL_VARIABLE, help=f"Base URL of the gateway.  [{URL_VARIABLE}]")
@click.option("--watch", is_flag=True, envvar=WATCH_VARIABLE, help="Show again each second until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, envvar=JSON_VARIABLE, help="Print the JSON of /stats.")
@setting_options(("host", "port", "token_file"))
def command(*, url: str | None, watch: bool, as_json: bool, config: str | None, **given: Any) -> None:
    """Show the statistics of a running gateway."""
    settings = read(config, given).settings
    base = (url or base_url(settings)).rstrip("/").removesuffix("/v1")
    token = load_token(settings)
    screen = watch and not as_json and sys.stdout.isatty()
    try:
        while True:
            seen = fetch(base, token)
            text = json.dumps(seen) if as_json else table(seen)
            click.echo((CLEAR if screen else "") + text)
            if not watch:
                return
            time.sleep(1)
    except KeyboardInterrupt:
        return


def base_url(settings: Settings) -> str:
    """Where a gateway with these settings is reached from this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host.strip("[]"), settings.host.strip("[]"))
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def fetch(base: str, token: str | None = None) -> dict[str, Any]:
    """The value of ``/stats`` of the gateway at ``base``. Raises click.ClickException in one sentence."""
    if not base.startswith(("http://", "https://")):
        raise click.UsageError("--url must begin with http:// or https://")
    # Statistics of this machine are never asked for through a proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(base + "/stats", headers={"x-upwire-token": token} if token else {})  # noqa: S310
    try:
        with opener.open(request, timeout=TIMEOUT) as answer:
            seen = json.load(answer)
    except urllib.error.HTTPError as error:
        raise click.ClickException(
            f"{base}/stats answered {error.code}; is that an upwire gateway?"
        ) from None
    except ValueError:
        seen = None
    except OSError:
        raise click.ClickException(
            f"{base}/stats cannot be reached; is upwire serve running there?"
        ) from None
    if not isinstance(seen, dict) or "turns" not in seen:
        raise click.ClickException(f"{base}/stats did not answer with statistics; is that an upwire gateway?")
    return seen


def table(seen: dict[str, Any]) -> str:
    """The statistics for people, as lines of text."""
    turns, sizes, sockets, kept = (
        seen.get(k, {}) for k in ("turns", "bytes", "connections", "conversations")
    )
    total, received, saved = turns.get("total", 0), sizes.get("client_in", 0), sizes.get("saved", 0)
    lines = [f"upwire {seen.get('version', '')}, up {_span(seen.get('uptime_seconds', 0))}", ""]
    lines += [
        *(
            _line(mode, f"{turns.get(mode, 0)} turns", _share(turns.get(mode, 0), total))
            for mode in ("delta", "full", "http")
        ),
        _line("all", f"{total} turns", _counts(turns, "in_flight", "failed", "cancelled")),
        "",
        _line("received", _size(received)),
        _line("sent upstream", _size(sizes.get("upstream_out", 0))),
        _line("saved", _size(saved), _share(saved, received)),
        "",
        _line("sockets", f"{sockets.get('open', 0)} open", _counts(sockets, "busy", "opened", "reused")),
        _line("conversations", f"{kept.get('known', 0)} known", _counts(kept, "evicted")),
    ]
    for name, values in seen.get("latency_ms", {}).items():
        shown = "   ".join(f"{q} {_ms(value)}" for q, value in values.items())
        lines.append(f"{name.replace('_', ' '):<14}{'':>4}{shown}")
    for title in ("reasons", "recoveries"):
        counted = sorted(((n, k) for k, n in seen.get(title, {}).items() if n), reverse=True)
        if counted:
            lines += ["", *(f"{name:<20}{n:>4}" for n, name in counted)]
    return "\n".join(lines)


def _line(name: str, value: str, more: str = "") -> str:
    return f"{name:<14}{value:>16}   {more}".rstrip()


def _counts(group: dict[str, Any], *names: str) -> str:
    return ", ".join(f"{group.get(name, 0)} {name.replace('_', ' ')}" for name in names)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _span(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
