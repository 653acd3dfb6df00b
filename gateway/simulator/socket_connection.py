"""One WebSocket connection of the simulated upstream."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, cast

import orjson
from aiohttp import WSMsgType, web

from gateway.simulator import faults as fault
from gateway.simulator.events import TERMINAL, Event
from gateway.simulator.faults import Arrival
from gateway.simulator.http_sinks import reset
from gateway.simulator.journal import Entry
from gateway.simulator.lanes import Lane, Lanes
from gateway.simulator.model import Turn
from gateway.simulator.performance import Leaving, Performance, TurnOver
from gateway.simulator.records import Held, Owner
from gateway.simulator.refusal import Refusal
from gateway.simulator.upstream import Upstream
from gateway.simulator.validation import check, parse

_CLOSE_PATIENCE = 2.0
_ENDS = TERMINAL | {"error", "response.error"}
_REQUEST_MOMENTS = ("receipt", "events", "deltas", "before_terminal", "after_terminal")


class SocketConnection:
    """Reads frames as they come, queues creates on their lanes and serves each lane one by one."""

    def __init__(self, upstream: Upstream, request: web.Request, owner: Owner) -> None:
        self._upstream = upstream
        self._options = upstream.options
        self._request = request
        self._owner = owner
        self._number = upstream.connection_number(request)
        self._lanes = Lanes(self._options)
        self._running = asyncio.Semaphore(self._options.max_running)
        self._workers: list[asyncio.Task[None]] = []
        self._closed = asyncio.Event()
        self._closed_by: Literal["client", "server", "lost"] = "lost"
        self._close_code = 1006
        self._opened_at = 0.0
        self._heard_at = 0.0
        self._model: Any = None
        self.answers_pings = True
        self.ws = web.WebSocketResponse(
            timeout=_CLOSE_PATIENCE,
            autoping=False,
            compress=self._options.compression,
            max_msg_size=self._options.max_frame * 4
            + 1024,  # read whole, so that the close is not lost in a reset
            decode_text=False,
        )

    async def serve(self) -> None:
        """Accept the upgrade and run until the connection ends."""
        try:
            await self._serve()
        except* ConnectionError:
            pass  # the client left while something was written to it, be it the answer to its upgrade

    async def _serve(self) -> None:
        await self.ws.prepare(self._request)
        self._opened_at = self._heard_at = asyncio.get_running_loop().time()
        opening = self._upstream.record(self._request, "open", socket=self._number)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._start(tasks, self._lanes.default)
                if self._options.ping_interval is not None:
                    self._workers.append(tasks.create_task(self._ping(self._options.ping_interval)))
                self._workers.append(tasks.create_task(self._open(opening)))
                await self._read(tasks)
                for worker in self._workers:
                    worker.cancel()
        finally:
            closing = self._upstream.record(self._request, "close", socket=self._number)
            closing.outcome = "answered"
            closing.close_code, closing.closed_by = self._close_code, self._closed_by

    async def close(self, code: int, reason: str = "") -> None:
        """Close with a close frame, and wait a little for the client's."""
        if self._closed_by == "lost":
            self._closed_by, self._close_code = "server", code
        try:
            await self.ws.close(code=code, message=reason.encode())
        finally:
            self._closed.set()

    async def after_error(self) -> None:
        """What an upstream does with its socket when it has sent an error."""
        if not self._options.survives_errors:
            await self.close(1000)

    def abort(self) -> None:
        """Reset the TCP connection."""
        reset(self._request.transport)

    def stop_reading(self) -> None:
        """Read nothing more, not even pings."""
        if self._request.transport is not None:
            cast("asyncio.ReadTransport", self._request.transport).pause_reading()

    def remembered(self, response_id: str) -> Held | None:
        """What this connection holds in memory under this id."""
        return self._lanes.remembered(response_id)

    def _start(self, tasks: asyncio.TaskGroup, lane: Lane) -> None:
        self._workers.append(tasks.create_task(self._work(lane)))

    async def _open(self, entry: Entry) -> None:
        arrival = Arrival("ws", entry.connection, entry.method, entry.path, entry.headers)
        sink = SocketSink(self, self._lanes.default)
        entry.outcome = "answered"
        performance = Performance(sink, (), self._options, {}, entry)
        for hit in self._upstream.faults.take(arrival, "opened"):
            try:
                await performance.perform_all(hit.sequence())
            except (TurnOver, ConnectionError):
                continue

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            message = await self.ws.receive()
            self._heard_at = asyncio.get_running_loop().time()
            match message.type:
                case WSMsgType.TEXT:
                    await self._frame(tasks, bytes(message.data))
                case WSMsgType.BINARY:
                    self._upstream.record(self._request, "frame", bytes(message.data), socket=self._number)
                    await self.close(1003, "only text frames are understood")
                    return
                case WSMsgType.PING:
                    if self.answers_pings:
                        await self.ws.pong(message.data)
                case WSMsgType.PONG:
                    pass
                case WSMsgType.CLOSE:
                    if self._closed_by == "lost":
                        self._closed_by, self._close_code = "client", int(message.data)
                    return
                case WSMsgType.CLOSING:
                    await self._closed.wait()
                    return
                case WSMsgType.ERROR:
                    self._closed_by, self._close_code = "server", self.ws.close_code or 1006
                    return
                case _:
                    return

    async def _frame(self, tasks: asyncio.TaskGroup, raw: bytes) -> None:
        entry = self._upstream.record(self._request, "frame", raw, socket=self._number)
        if len(raw) >= self._options.max_frame:
            entry.outcome, entry.close_code = "refused", 1009
            await self.close(1009, "message too big")
            return
        try:
            entry.body = parse(raw)
            lane = self._lane_for(entry, tasks)
        except Refusal as refusal:
            entry.outcome, entry.status, entry.code = "refused", refusal.status, refusal.code
            await SocketSink(self, Lane(entry.lane)).refuse(refusal, 0)
            return
        entry.kind = "create"
        if self._options.one_model and self._model not in (None, entry.body.get("model")):
            entry.outcome, entry.close_code = "refused", 1008
            await self.close(1008, "one model per connection")
            return
        self._model = entry.body.get("model")
        entry.overlapped = lane.occupied
        lane.waiting.put_nowait(entry)

    def _lane_for(self, entry: Entry, tasks: asyncio.TaskGroup) -> Lane:
        body = entry.body
        if body.get("type") != "response.create":
            message = "Invalid value for 'type': only 'response.create' is understood."
            raise Refusal(400, message, code="invalid_value", param="type")
        entry.lane = body["stream_id"] if isinstance(body.get("stream_id"), str) else None
        lane, new = self._lanes.named(body)
        if new:
            self._start(tasks, lane)
        return lane

    async def _work(self, lane: Lane) -> None:
        while True:
            entry = await lane.waiting.get()
            lane.busy = True
            try:
                async with self._running:
                    await self._serve_create(lane, entry)
            finally:
                lane.busy = False

    async def _serve_create(self, lane: Lane, entry: Entry) -> None:
        body, model = entry.body, self._upstream.model
        arrival = Arrival("ws", entry.connection, entry.method, entry.path, entry.headers, body)
        hits = self._upstream.faults.take(arrival, *_REQUEST_MOMENTS)

        def admit(draft: dict[str, Any]) -> Turn:
            self._check_age()
            check(body, self._options, socket=True)
            return model.admit(
                body, self._owner, draft, size=len(entry.raw), transport="ws", remembered=self.remembered
            )

        def commit(turn: Turn, response: dict[str, Any]) -> None:
            held = model.remember(turn, response)
            lane.latest = held if response["status"] == "completed" else None

        draft = model.draft(body)
        sink = SocketSink(self, lane)
        outcome = await Performance(sink, hits, self._options, draft, entry).run(admit, commit)
        if outcome not in ("completed", "failed", "incomplete"):
            lane.evict(entry.parent, anyway=self._options.any_error_evicts)

    def _check_age(self) -> None:
        age = asyncio.get_running_loop().time() - self._opened_at
        if self._options.max_age is not None and age >= self._options.max_age:
            message = "Responses websocket connection limit reached (60 minutes). Create a new websocket connection."
            raise Refusal(400, message, code="websocket_connection_limit_reached")

    async def _ping(self, interval: float) -> None:
        while True:
            asked_at = asyncio.get_running_loop().time()
            await self.ws.ping()
            await asyncio.sleep(interval)
            if self._heard_at < asked_at:
                await self.close(1011, "keepalive ping timeout")
                return

    async def leave(self, action: Leaving) -> None:
        """End or freeze the connection as ``action`` says."""
        match action:
            case fault.Close(code=code, reason=reason):
                await self.close(code, reason)
            case fault.Abort():
                self.abort()
            case fault.Cut() | fault.TruncateBody() | fault.Respond():
                if self._request.transport is not None:
                    self._request.transport.close()
            case fault.Stall(pong=pong):
                self.answers_pings = pong
                await asyncio.Event().wait()
            case fault.EndQuietly():
                pass


class SocketSink:
    """Delivery on one lane of a socket."""

    def __init__(self, connection: SocketConnection, lane: Lane) -> None:
        self._connection = connection
        self._lane = lane

    async def event(self, event: Event) -> None:
        """One text frame, which names the lane unless it is the default one."""
        if event["type"] in _ENDS:
            self._lane.busy = False  # the client may send the next create as soon as it has this
        if self._lane.name is not None and event["type"].split(".")[0] in ("response", "error", "keepalive"):
            event = {**event, "stream_id": self._lane.name}
        await self._connection.ws.send_frame(orjson.dumps(event), WSMsgType.TEXT)

    async def text(self, text: str) -> None:
        """One text frame as it is."""
        await self._connection.ws.send_str(text)

    async def binary(self, data: bytes) -> None:
        """One binary frame."""
        await self._connection.ws.send_bytes(data)

    async def refuse(self, refusal: Refusal, sequence_number: int) -> None:
        """An error frame; some upstreams close the socket after it."""
        frame = refusal.frame(sequence_number)
        if not refusal.echo_lane:
            self._lane.busy = False
            await self._connection.ws.send_frame(orjson.dumps(frame), WSMsgType.TEXT)
        else:
            await self.event(frame)
        await self._connection.after_error()

    async def leave(self, action: Leaving) -> None:
        """End or freeze the whole connection."""
        await self._connection.leave(action)

    def stop_reading(self) -> None:
        """Read nothing more from the client."""
        self._connection.stop_reading()
