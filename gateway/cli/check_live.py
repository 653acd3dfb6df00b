"""The step of ``upwire check --live``: two real turns through a gateway of its own, the second of which should be a delta."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import orjson

from gateway import log
from gateway.cli.check_upstream import Row
from gateway.cli.numbers import size
from gateway.server import Stop, assemble, bind, run, url_of
from gateway.settings import Settings
from gateway.stats import REASON_TEXTS

PATIENCE = 120.0
"""Seconds that one answer may take."""

_WORD = re.compile(r"[a-z0-9_]{1,60}")


async def live_rows(settings: Settings, key: str, model: str) -> AsyncIterator[Row]:
    """How two turns of one conversation went."""
    log.configure("error", settings.log_format)
    local = replace(
        settings,
        host="127.0.0.1",
        port=0,
        listen=(),
        token_file="",
        index="",
        allow_remote=False,
        expose_mode=True,
        drain_timeout=1.0,
    )
    headers = {"authorization": f"Bearer {key}"} if key else {}
    question = [{"role": "user", "content": "Answer with the one word: yes."}]
    async with _gateway(local) as url, aiohttp.ClientSession(headers=headers) as session:
        first = await _ask(session, url, {"model": model, "store": False, "input": question})
        yield first.row(
            "turn", f"{model} answered over {'a socket' if first.mode != 'http' else 'plain HTTP'}"
        )
        if first.status != 200:
            return
        more = [*question, *first.answer.get("output", []), {"role": "user", "content": "Once more."}]
        second = await _ask(session, url, {"model": model, "store": False, "input": more})
        if second.status != 200:
            yield second.row("delta", "")
        elif second.mode == "delta":
            yield Row(
                "delta",
                "ok",
                f"the second turn was {size(second.received)}, and {size(second.sent)} were sent",
            )
        else:
            text = REASON_TEXTS.get(second.reason)
            seen = f"the second turn was sent as {second.mode}, for the reason {second.reason}"
            yield Row("delta", "warning", seen, text.remedy if text else "", (text.meaning,) if text else ())


class _Seen:
    """One answer, and what the gateway counted for it."""

    def __init__(self, status: int, headers: Any, answer: Any, counted: dict[str, int]) -> None:
        self.status = status
        self.mode = headers.get("x-upwire-mode", "?")
        self.reason = headers.get("x-upwire-reason", "")
        self.answer = answer if isinstance(answer, dict) else {}
        self.received, self.sent = counted["client_in"], counted["upstream_out"]

    def row(self, name: str, seen: str) -> Row:
        """Whether it is an answer at all."""
        if self.status == 200:
            return Row(name, "ok", seen)
        error = self.answer.get("error")
        words = [str(error.get(key) or "") for key in ("code", "type")] if isinstance(error, dict) else []
        # Only what is one word of the API's: texts may quote a key or a request.
        code = next(filter(_WORD.fullmatch, words), "no code")
        remedy = (
            "Try another with --model."
            if self.status in (400, 404)
            else "See what the upstream says of this key."
        )
        return Row(name, "failed", f"answered {self.status} ({code})", remedy)


async def _ask(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> _Seen:
    before = await _bytes(session, url)
    try:
        async with (
            asyncio.timeout(PATIENCE),
            session.post(
                f"{url}/v1/responses", data=orjson.dumps(body), headers={"content-type": "application/json"}
            ) as got,
        ):
            raw, status, headers = await got.read(), got.status, got.headers
    except (TimeoutError, aiohttp.ClientError):
        raw, status, headers = b"", 504, {}  # type: ignore[assignment]
    try:
        answer = orjson.loads(raw)
    except ValueError:
        answer = None
    after = await _bytes(session, url)
    return _Seen(status, headers, answer, {name: after[name] - before[name] for name in after})


async def _bytes(session: aiohttp.ClientSession, url: str) -> dict[str, int]:
    async with session.get(f"{url}/stats") as got:
        counted: dict[str, int] = orjson.loads(await got.read())["bytes"]
        return counted


@asynccontextmanager
async def _gateway(settings: Settings) -> AsyncIterator[str]:
    # Labels of tokens mean nothing where none is asked for.
    alone = replace(settings, team_file="")
    listeners = bind(settings.host, 0)
    stop, ready = Stop(), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(
            run(assemble(alone, token=None), listeners, drain_timeout=1.0, stop=stop, ready=ready.set)
        )
        await ready.wait()
        try:
            yield url_of(settings.host, listeners)
        finally:
            stop.ask()
