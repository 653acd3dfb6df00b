"""A wire between a client and what it talks to: bytes pass unchanged in both directions, and what they said is kept."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import h11
from backports import zstd

_RESET = struct.pack("ii", 1, 0)


@dataclass
class Exchange:
    """One request and what came back; ``whole`` tells whether the answer arrived to its end."""

    at: float
    method: str
    path: str
    headers: dict[str, str]
    body: Any
    status: int = 0
    answer_headers: dict[str, str] = field(default_factory=dict)
    answer: bytes = b""
    whole: bool = False

    @property
    def is_turn(self):
        """Whether this asked for a response."""
        return self.method == "POST" and self.path.partition("?")[0] == "/v1/responses"

    @property
    def outcome(self):
        """What the gateway says it did: ``delta``, or the reason why not."""
        mode = self.answer_headers.get("x-upwire-mode")
        return "delta" if mode == "delta" else self.answer_headers.get("x-upwire-reason", mode)

    @property
    def events(self):
        """The events of a streamed answer, as far as they arrived whole."""
        text = self.answer.decode("utf-8", "replace")
        blocks = [block for block in text.split("\n\n")[:-1] if "data: " in block]
        return [json.loads(block.partition("data: ")[2]) for block in blocks]

    @property
    def response(self):
        """The last state of the response object that arrived, or the error body."""
        if not self.answer_headers.get("content-type", "").startswith("text/event-stream"):
            try:
                return json.loads(self.answer)
            except ValueError:
                return None
        states = [event["response"] for event in self.events if isinstance(event.get("response"), dict)]
        return states[-1] if states else None


class Tap:
    """Listens on a free port and connects each caller to ``target`` (a base URL); use as a context manager."""

    def __init__(self, target):
        parts = urlsplit(target)
        self._target = parts.hostname, parts.port
        self._path = parts.path
        self._recordings = []
        self._tasks = set()
        self._server = None
        self.url = ""

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{self._path}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def exchanges(self):
        """All requests so far in the order in which they began."""
        found = []
        for recording in self._recordings:
            found.extend(_read(recording))
        return sorted(found, key=lambda one: one.at)

    def turns(self):
        """Those of ``exchanges`` that asked for a response."""
        return [one for one in self.exchanges() if one.is_turn]

    async def _serve(self, reader, writer):
        # Cancelled when the test is over; the server that started it takes no cancelled tasks.
        with contextlib.suppress(asyncio.CancelledError):
            await self._carry(reader, writer)

    async def _carry(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        recording = []
        self._recordings.append(recording)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            _reset(writer)
            self._tasks.discard(task)
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, far_writer, recording, "request"))
                group.create_task(_pump(far_reader, writer, recording, "answer"))
        except* OSError:
            _reset(far_writer)
            _reset(writer)
        finally:
            for one in (writer, far_writer):
                one.close()
            self._tasks.discard(task)


async def _pump(reader, writer, recording, side):
    loop = asyncio.get_running_loop()
    while data := await reader.read(65536):
        recording.append((loop.time(), side, data))
        writer.write(data)
        await writer.drain()
    recording.append((loop.time(), side, b""))
    with contextlib.suppress(OSError):
        writer.write_eof()


def _reset(writer):
    with contextlib.suppress(OSError, AttributeError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


def _read(recording):
    """The exchanges of one connection: requests and answers take turns on it."""
    asked = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 24)
    told = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 24)
    found, current, raw = [], None, b""
    for at, side, data in recording:
        try:
            if side == "request":
                asked.receive_data(data)
                for event in _events(asked):
                    if isinstance(event, h11.Request):
                        current, raw = _begun(event, at), b""
                        found.append(current)
                        told.send(event)
                    elif isinstance(event, h11.Data):
                        raw += bytes(event.data)
                        told.send(event)
                    elif isinstance(event, h11.EndOfMessage):
                        current.body = _decoded(raw, current.headers)
                        told.send(event)
            else:
                told.receive_data(data)
                for event in _events(told):
                    if isinstance(event, h11.Response):
                        current.status = event.status_code
                        current.answer_headers = _names(event.headers)
                    elif isinstance(event, h11.Data):
                        current.answer += bytes(event.data)
                    elif isinstance(event, h11.EndOfMessage):
                        current.whole = True
                        asked.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                        asked.send(h11.EndOfMessage())
                        if told.our_state is h11.DONE and told.their_state is h11.DONE:
                            told.start_next_cycle()
                        if asked.our_state is h11.DONE and asked.their_state is h11.DONE:
                            asked.start_next_cycle()
        except h11.ProtocolError:
            break  # cut off by either side: what was read so far stands
    return found


def _events(connection):
    while True:
        event = connection.next_event()
        if event in (h11.NEED_DATA, h11.PAUSED) or isinstance(event, h11.ConnectionClosed):
            return
        yield event


def _begun(event, at):
    path = event.target.decode()
    return Exchange(at, event.method.decode(), path, _names(event.headers), None)


def _names(headers):
    return {name.decode().lower(): value.decode("latin-1") for name, value in headers}


def _decoded(raw, headers):
    if headers.get("content-encoding") == "zstd":
        raw = zstd.decompress(raw)
    try:
        return json.loads(raw)
    except ValueError:
        return raw
