"""``upwire serve``: run the gateway."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import click

from gateway import __version__
from gateway.cli.options import read, setting_options
from gateway.config import Loaded, key_place, load_tokens
from gateway.loops import NoLoop, factory, run
from gateway.settings import Settings, UpstreamEntry
from gateway.upstream.entries import further_entries


@click.command("serve")
@setting_options()
def command(config: str | None, **given: Any) -> int:
    """Run the gateway until a signal ends it.

    Each option is also an environment variable and a key of the TOML file (max_body for --max-body). Flags win over the
    environment, the environment over the file.
    """
    if worker := os.environ.pop("_UPWIRE_WORKER", ""):
        from gateway.workers.worker import work  # noqa: PLC0415

        return work(worker)
    loaded = read(config, given)
    settings = loaded.settings
    token = load_tokens(settings)

    # The other commands need neither aiohttp nor structlog.
    from gateway import log, server  # noqa: PLC0415
    from gateway.index.opening import IndexUnusable  # noqa: PLC0415
    from gateway.server.fellows import WorkerUnusable  # noqa: PLC0415
    from gateway.traces import NoTraces  # noqa: PLC0415
    from gateway.upstream.key import KeyUnusable  # noqa: PLC0415
    from gateway.upstream.route import NoRoute  # noqa: PLC0415
    from gateway.upstream.team import TeamUnusable  # noqa: PLC0415

    log.configure(settings.log_level, settings.log_format)

    def ready(url: str) -> None:
        # Whoever started it may have stopped reading.
        with contextlib.suppress(OSError):
            for line in ready_lines(loaded, url):
                click.echo(line)

    def again() -> Settings:
        return read(config, given).settings

    try:
        made = factory(settings.loop)
        if settings.workers > 1:
            from gateway.workers.parent import serve_workers  # noqa: PLC0415

            # Only the workers have anything to do that a faster loop would help with.
            return run(serve_workers(settings, token=token, ready=ready, again=again), None)
        return run(server.serve(settings, token=token, ready=ready, again=again), made)
    except (
        NoLoop,
        server.CannotListen,
        NoRoute,
        KeyUnusable,
        NoTraces,
        TeamUnusable,
        IndexUnusable,
        WorkerUnusable,
    ) as error:
        raise click.ClickException(str(error)) from None


def ready_lines(loaded: Loaded, url: str) -> list[str]:
    """What is printed when requests are answered. The query of the upstream is left out: it may hold a key."""
    settings = loaded.settings
    base, query, _ = settings.upstream.partition("?")
    return [
        f"upwire {__version__}",
        f"listening on {url}",
        *(f"listening on {address}" for address in settings.listen),
        f"upstream {base}{'?...' if query else ''}",
        *([f"upstream key from {held}"] if (held := key_place(settings)) else []),
        *(further_line(entry) for entry in further_entries(settings)),
        f"mode {settings.mode}, match {settings.match}",
        *([f"workers {settings.workers}"] if settings.workers > 1 else []),
        f"configuration from {origin(loaded)}",
        f"export OPENAI_BASE_URL={url}/v1",
    ]


def further_line(entry: UpstreamEntry) -> str:
    """Where the requests under a local path go, without the query, and whose key goes along."""
    base, query, _ = entry.url.partition("?")
    held = entry.key_file or (f"the environment variable {entry.key_env}" if entry.key_env else "")
    return f"upstream {entry.path} -> {base}{'?...' if query else ''}" + (
        f", key from {held}" if held else ""
    )


def origin(loaded: Loaded) -> str:
    """Where the settings came from, in a few words: each source with the settings that it decided."""
    by_source: dict[str, list[str]] = {}
    for name, source in loaded.sources.items():
        kind = source.partition(" ")[0] if not source.startswith("file ") else source
        if kind != "default":
            by_source.setdefault({"flag": "flags"}.get(kind, kind), []).append(name)
    if loaded.file and f"file {loaded.file}" not in by_source:
        by_source[f"file {loaded.file}"] = []
    parts = [f"{source} ({', '.join(names) or 'decides nothing'})" for source, names in by_source.items()]
    return ", ".join([*parts, "defaults"])
