"""Clients that resend their whole history each turn over a new connection, as a pool of short-lived ones does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from tests.gateways import seen


class Talk:
    """One conversation by its key and opening words; ``store`` and ``stream`` as a client would set them."""

    def __init__(self, url, opening, *, key="sk-test", store=False, stream=True, **fields):
        self.url = url
        self.headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        self.fields = {"model": "gpt-5", "store": store, "stream": stream, **fields}
        self.history = [{"role": "user", "content": opening}]
        self.answers = []

    async def turn(self, text="go on", *, url=None, grow=True, headers=None, **more):
        """One turn over a connection of its own; its answer becomes part of the history."""
        if self.answers:
            self.history.append({"role": "user", "content": text})
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            body = {**self.fields, "input": self.history, **more}
            sent = {**self.headers, **(headers or {})}
            async with session.post((url or self.url) + "/v1/responses", json=body, headers=sent) as answer:
                found = await seen(answer)
        self.answers.append(found)
        if grow and found.status == 200 and found.answer.get("status") == "completed":
            self.history += found.answer["output"]
        return found


async def talk_all(talks, turns):
    """Every conversation takes ``turns`` turns, all conversations at once."""

    async def play(talk):
        for number in range(turns):
            await talk.turn(f"say {number}")

    await asyncio.gather(*map(play, talks))


def texts(talk):
    """What the upstream said, which digests the whole context."""
    return [
        [
            part["text"]
            for item in answer.answer["output"]
            for part in item.get("content") or ()
            if "text" in part
        ]
        for answer in talk.answers
    ]


async def stats(process_url, **headers):
    """The value of ``/stats``."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(process_url + "/stats", headers=headers) as answer,
    ):
        assert answer.status == 200
        return await answer.json()


def workers_of(parent):
    """The processes that ``parent`` has started, by the system's list."""
    return [int(number) for number in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def lives(process):
    """Whether there is a process of this number."""
    return Path(f"/proc/{process}").exists()


async def status_of(url, **more):
    """The status of a request over a connection of its own."""
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        async with session.request(more.pop("method", "GET"), url, **more) as answer:
            await answer.read()
            return answer.status


async def until(check, within=8.0):
    """Ask again and again until the answer is true; gives it."""
    async with asyncio.timeout(within):
        while not (found := await check()):  # noqa: ASYNC110 (it is asked of other processes)
            await asyncio.sleep(0.01)
    return found


async def in_flight(url, count):
    """Wait until so many turns run."""

    async def check():
        return (await stats(url))["turns"]["in_flight"] == count

    await until(check)
