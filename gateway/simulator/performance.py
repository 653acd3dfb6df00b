"""How one create is served: its faults at their moments, its admission, its events in order, its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from gateway.simulator import faults as fault
from gateway.simulator.events import TERMINAL, Event, response_events
from gateway.simulator.faults import Action, Fault, Moment
from gateway.simulator.journal import Entry, Outcome
from gateway.simulator.model import Turn
from gateway.simulator.options import Options
from gateway.simulator.refusal import Refusal

Leaving = (
    fault.Close
    | fault.Abort
    | fault.Cut
    | fault.Stall
    | fault.EndQuietly
    | fault.Respond
    | fault.TruncateBody
)


class Sink(Protocol):
    """Where a performance goes. Every method may raise ConnectionError when the peer has left."""

    async def event(self, event: Event) -> None:
        """Deliver one event."""

    async def text(self, text: str) -> None:
        """Deliver raw text."""

    async def binary(self, data: bytes) -> None:
        """Deliver raw bytes."""

    async def refuse(self, refusal: Refusal, sequence_number: int) -> None:
        """Deliver an error; the turn is over."""

    async def leave(self, action: Leaving) -> None:
        """End the turn without ending the response."""

    def stop_reading(self) -> None:
        """Read nothing more from the peer."""


class TurnOver(Exception):
    """The turn has ended before its answer did."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome: Outcome = outcome


class Performance:
    """One create on its way to ``sink``. ``entry`` is told how it goes."""

    def __init__(
        self, sink: Sink, hits: Sequence[Fault], options: Options, draft: dict[str, Any], entry: Entry
    ) -> None:
        self._sink = sink
        self._hits = hits
        self._options = options
        self._response = draft
        self._entry = entry
        self._turn: Turn | None = None
        self._sequence = 0
        self._terminal: Event | None = None
        self._commit: Callable[[Turn, dict[str, Any]], None] = lambda _turn, _response: None

    async def run(
        self, admit: Callable[[dict[str, Any]], Turn], commit: Callable[[Turn, dict[str, Any]], None]
    ) -> Outcome:
        """Serve the create; returns how it ended, which the entry then says too.

        ``commit`` is called with the ended response right before its terminal event is sent.
        """
        self._commit = commit
        try:
            outcome = await self._serve(admit)
        except TurnOver as over:
            outcome = over.outcome
        except ConnectionError:
            outcome = "cancelled"
        except asyncio.CancelledError:
            if self._entry.outcome == "running":
                self._entry.outcome = "cancelled"
            raise
        if self._entry.outcome == "running":
            self._entry.outcome = outcome
        return outcome

    async def _serve(self, admit: Callable[[dict[str, Any]], Turn]) -> Outcome:
        await self._at(fault.RECEIPT)
        try:
            self._turn = turn = admit(self._response)
        except Refusal as refusal:
            self._refused(refusal, "refused")
            await self._sink.refuse(refusal, self._sequence)
            return "refused"
        self._response = turn.begun
        self._entry.response_id = turn.begun["id"]
        self._entry.digests = turn.context.digests
        await _wait(self._options.cost_per_request + self._options.cost_per_kb * turn.unseen / 1000)
        await self._play(turn)
        return self._entry.outcome

    async def _play(self, turn: Turn) -> None:
        deltas = 0
        set_up = self._options.setup_events or self._entry.transport == "http"
        padded = self._options.obfuscation and (turn.body.get("stream_options") or {}).get(
            "include_obfuscation", True
        )
        one_object = self._entry.transport == "http" and turn.body.get("stream") is not True
        profile = replace(self._options, terminal_output="filled") if one_object else self._options
        events = response_events(turn.begun, turn.ended, profile, set_up=set_up)
        for number, event in enumerate(events, start=1):
            if event["type"] in TERMINAL:
                await self._at(fault.BEFORE_TERMINAL)
                await self._end(event)
                await self._at(fault.AFTER_TERMINAL)
                return
            is_delta = event["type"].endswith(".delta")
            if is_delta:
                await _wait(self._options.token_pace)
                if padded:
                    event["obfuscation"] = "x" * (self._sequence % 7 + 1)
            await self._send(event)
            await self._at(fault.after_events(number))
            if is_delta:
                deltas += 1
                await self._at(fault.after_deltas(deltas))

    async def _send(self, event: Event) -> None:
        if event["type"].startswith("response.") or event["type"] == "keepalive":
            event["sequence_number"] = self._sequence
            self._sequence += 1
        await self._sink.event(event)

    async def _end(self, event: Event) -> None:
        """Commit and send a terminal event."""
        response = event["response"]
        if self._turn is not None:
            self._commit(self._turn, {**response, "output": self._whole_output(response)})
        self._entry.outcome = response["status"]
        self._terminal = event
        await self._send(event)

    def _whole_output(self, response: dict[str, Any]) -> list[Any]:
        whole = self._turn.ended["output"] if self._turn else []
        return list(whole) if response["status"] != "failed" else []

    async def _at(self, moment: Moment) -> None:
        for hit in self._hits:
            if hit.at == moment:
                await self.perform_all(hit.sequence())

    async def perform_all(self, actions: Sequence[Action]) -> None:
        """Do ``actions`` in order, also those behind one that ends the turn."""
        over: TurnOver | None = None
        for action in actions:
            try:
                await self.perform(action)
            except TurnOver as ended:
                over = over or ended
        if over is not None:
            raise over

    async def perform(self, action: Action) -> None:
        """Do what ``action`` says; raises TurnOver if the turn ends with it."""
        match action:
            case fault.SendError():
                await self._error(action)
            case fault.Fail(code=code, message=message):
                error = {"code": code, "message": message}
                await self._break_off("failed", error=error)
            case fault.EndIncomplete(reason=reason):
                await self._break_off("incomplete", incomplete_details={"reason": reason})
            case fault.Silence(seconds=seconds):
                await asyncio.sleep(seconds)
            case fault.StopReading():
                self._sink.stop_reading()
            case fault.RepeatTerminal():
                if self._terminal is not None:
                    await self._send(dict(self._terminal))
            case fault.SendEvent(event=event):
                await self._sink.event(dict(event))
            case fault.SendText(text=text):
                await self._sink.text(text)
            case fault.SendBinary(data=data):
                await self._sink.binary(data)
            case _:
                if self._entry.outcome == "running":
                    self._entry.outcome = "broken"
                if isinstance(action, fault.Respond):
                    self._entry.status = action.status
                await self._sink.leave(action)
                raise TurnOver("broken")

    async def _error(self, action: fault.SendError) -> None:
        refusal = Refusal(
            action.status,
            action.message,
            code=action.code,
            param=action.param,
            kind=action.kind,
            headers=action.headers,
            shape=action.shape,
        )
        self._refused(refusal, "error")
        if action.then_failed:
            await self._sink.event(refusal.frame(self._sequence))
            self._sequence += 1
            error = {"code": action.code or "server_error", "message": action.message}
            await self._send(
                {
                    "type": "response.failed",
                    "response": {**self._response, "status": "failed", "error": error},
                }
            )
        else:
            await self._sink.refuse(refusal, self._sequence)
        raise TurnOver("error")

    def _refused(self, refusal: Refusal, outcome: Outcome) -> None:
        if self._entry.outcome == "running":
            self._entry.outcome = outcome
            self._entry.status = refusal.status
            self._entry.code = refusal.code

    async def _break_off(self, status: Outcome, **details: Any) -> None:
        ended = {**self._response, "status": status, "output": [], **details}
        await self._end({"type": f"response.{status}", "response": ended})
        raise TurnOver(status)


async def _wait(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(seconds)
