"""What goes wrong in a storm, and what a client may then see: nothing but a whole answer, unless the table says otherwise.

The rules behind the table. What was refused, or never written, did not run and is tried again, hidden. What was written and
then lost may have run: the client is told (502), unless the socket had served before and shows no sign of having lived. Once
an event of the answer went to the client nothing is repeated: a stream breaks off behind one failure event, a JSON answer is
a 502. A refusal by the upstream is what plain HTTP would have answered, but a delta of ours that is refused is sent once more in
full. Over plain HTTP the client sees what the upstream did.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.simulator import Fault
from gateway.simulator import faults as f

LOST, BROKEN, WHOLE, REFUSED, FAILED, LEFT = "lost", "broken", "completed", "refused", "failed", "left"


@dataclass(frozen=True, eq=False)
class Hazard:
    """One thing that happens to a turn.

    ``ws`` and ``http`` name the ends that are allowed when it hit a try on that transport, ``delta`` those when the try was a
    delta of the gateway's own making. When it hit none, only a whole answer is. ``every`` hits all tries, not only the first.
    ``leave`` is what the client does: it leaves before the ``head``, in the ``stream``, or when its ``patience`` ends.
    """

    family: str
    name: str
    actions: tuple[f.Action, ...] = ()
    at: f.Moment = f.RECEIPT
    transport: str = "ws"
    ws: frozenset[str] = frozenset({WHOLE})
    http: frozenset[str] = frozenset({WHOLE})
    delta: frozenset[str] | None = None
    status: int = 0
    every: bool = False
    leave: str = ""
    forget: bool = False
    begins: bool = True
    """Whether a try that it hit counts as begun by the upstream."""

    @property
    def label(self):
        """Family and name, for the table."""
        return f"{self.family}: {self.name}"


def _ends(text):
    return frozenset(text.split())


def _closings(*codes):
    """Every way to end a connection, by name."""
    return {"reset": f.Abort(), "fin": f.Cut(), **{str(code): f.Close(code) for code in codes}}


def _gone_before_the_write():
    """The socket dies behind an answer. The next turn on it must not notice."""
    for name, action in _closings(1000, 1001, 1008, 1009, 1011, 1012).items():
        yield Hazard("socket gone after the answer", name, (action,), f.AFTER_TERMINAL)
    yield Hazard("socket gone after the answer", "deaf", (f.StopReading(),), f.AFTER_TERMINAL)


def _gone_after_the_write():
    for name, action in _closings(1000, 1001, 1008, 1011, 1012).items():
        for every in (False, True):
            more = ", every try" if every else ""
            ends = _ends("completed lost")
            yield Hazard("lost after the write", name + more, (action,), ws=ends, every=every)
    for every in (False, True):
        more = ", every try" if every else ""
        yield Hazard("too big", "1009" + more, (f.Close(1009),), every=every, begins=False)
    yield Hazard("lost after the write", "no pong", (f.Stall(pong=False),), ws=_ends("completed lost"))


def _gone_in_the_stream():
    # The first event may be a notice of the transport's, and not yet one of the response.
    moments = [f.after_events(count) for count in (2, 3, 5)] + [f.BEFORE_TERMINAL]
    for at in moments:
        where = f"{at.kind} {at.count}" if at.count else at.kind
        for name, action in _closings(1000, 1001, 1008, 1009, 1011, 1012).items():
            ends = _ends("broken lost")
            yield Hazard("lost in the stream", f"{name} at {where}", (action,), at, ws=ends)
    yield Hazard("lost in the stream", "no pong", (f.Stall(pong=False),), f.after_events(3), ws=ends)
    yield Hazard("lost in the stream", "binary", (f.SendBinary(b"\0"),), f.after_events(2), ws=ends)
    yield Hazard("lost in the stream", "no event", (f.SendText("{"),), f.after_events(2), ws=ends)
    yield Hazard("lost after the write", "no event", (f.SendText("oops"),), ws=_ends("lost"))


def _refusals():
    both = {"transport": "any", "ws": _ends("refused"), "http": _ends("refused")}
    for status, shape in [
        (401, "request"), (403, "request"), (429, "request"), (429, "status_code"), (500, "request"), (503, "nested"),
    ]:  # fmt: skip
        error = f.SendError(status=status, shape=shape, headers={"retry-after": "7"})
        yield Hazard("refused", f"{status} {shape}", (error,), status=status, begins=False, **both)
    for status, shape in [(400, "request"), (404, "detail"), (409, "message"), (422, "body")]:
        error = f.SendError(status=status, shape=shape, message="no", kind="invalid_request_error")
        for every in (False, True):
            yield Hazard(
                "refused", f"{status} {shape}{', every try' * every}", (error,), status=status, every=every, begins=False,
                delta=_ends("refused" if every else "completed"), **both,
            )  # fmt: skip
    failed = (f.Fail(),)
    yield Hazard("refused", "failed first", failed, ws=_ends("refused"), status=500, begins=False)


def _hidden_refusals():
    for shape in ("request", "nested", "flat", "message", "body"):
        message = "Previous response with id 'resp_1' not found."
        error = f.SendError(
            status=400, code="previous_response_not_found", message=message, shape=shape, param="previous_response_id"
        )  # fmt: skip
        yield Hazard(
            "not found",
            shape,
            (error,),
            ws=_ends("refused"),
            delta=_ends("completed"),
            status=400,
            begins=False,
        )
    yield Hazard("not found", "forgotten", forget=True)
    for every in (False, True):
        error = f.SendError(
            status=400,
            code="websocket_connection_limit_reached",
            message="limit",
            kind="invalid_request_error",
        )
        yield Hazard("age limit", "error" + ", every try" * every, (error,), every=every, begins=False)


def _errors_in_the_stream():
    for count in (2, 4):
        for shape in ("stream", "request", "response.error"):
            for then_failed in (False, True):
                error = f.SendError(status=500, code="server_error", shape=shape, then_failed=then_failed)
                name = f"{shape}{' and failed' * then_failed} at {count}"
                yield Hazard(
                    "error in the stream", name, (error,), f.after_events(count), ws=_ends("failed refused"), status=500
                )  # fmt: skip
        yield Hazard(
            "error in the stream", f"failed at {count}", (f.Fail(),), f.after_events(count), "any", status=500,
            ws=_ends("failed refused"), http=_ends("failed"),
        )  # fmt: skip
        yield Hazard(
            "incomplete", f"at {count}", (f.EndIncomplete(),), f.after_events(count), "any",
            ws=_ends("incomplete"), http=_ends("incomplete"),
        )  # fmt: skip


def _slow_and_odd():
    yield Hazard("slow", "before", (f.Silence(0.1),), transport="any")
    yield Hazard("slow", "within", (f.Silence(0.1),), f.after_events(4), "any")
    stays = {"ws": _ends("left"), "http": _ends("left"), "leave": "patience"}
    for at in (f.RECEIPT, f.after_events(2), f.after_events(4)):
        yield Hazard("stalled", f"{at.kind} {at.count}", (f.Stall(),), at, "any", **stays)
    yield Hazard("stalled", "quiet end", (f.EndQuietly(),), f.after_events(4), **stays)
    other = {
        "type": "response.completed",
        "response": {"id": "resp_other", "status": "completed", "output": []},
    }
    delta = {
        "type": "response.output_text.delta",
        "delta": "STRAY",
        "output_index": 0,
        "content_index": 0,
        "item_id": "msg_x",
    }
    yield Hazard("stray events", "other's end before", (f.SendEvent(other),))
    yield Hazard("stray events", "other's end within", (f.SendEvent(other),), f.after_events(3))
    yield Hazard("stray events", "other's text before", (f.SendEvent(delta),))
    yield Hazard("stray events", "other's text after", (f.SendEvent(delta),), f.AFTER_TERMINAL)
    yield Hazard("stray events", "end twice", (f.RepeatTerminal(),), f.AFTER_TERMINAL)
    yield Hazard("stray events", "notice", (f.SendEvent({"type": "codex.x"}),), f.after_events(2))
    yield Hazard(
        "stray events", "keepalive before", (f.SendEvent({"type": "keepalive", "sequence_number": 0}),)
    )


def _upgrades():
    answers = [f.Respond(status=status) for status in (401, 403, 404, 426, 429, 503)]
    for action in [*answers, f.Respond(status=200, body=b"<html>"), f.Abort(), f.Cut()]:
        name = str(getattr(action, "status", type(action).__name__.lower()))
        yield Hazard("upgrade", name, (action,), f.UPGRADE, begins=False)
    yield Hazard("upgrade", "slow", (f.Silence(0.2),), f.UPGRADE, begins=False)
    for name, action in _closings(1000, 1001, 1012).items():
        yield Hazard(
            "lost after the write", name + " at once", (action,), f.OPENED, ws=_ends("completed lost")
        )


def _plain():
    """Over plain HTTP the client sees what the upstream does, a cut as a cut."""
    for name, action in {"reset": f.Abort(), "fin": f.Cut()}.items():
        yield Hazard("plain HTTP", name + " before", (action,), transport="http", http=_ends("lost"))
        yield Hazard(
            "plain HTTP", name + " within", (action,), f.after_events(3), "http", http=_ends("broken lost")
        )
    yield Hazard(
        "plain HTTP",
        "500",
        (f.Respond(status=500, body=b"{}"),),
        transport="http",
        http=_ends("refused"),
        status=500,
    )


def _clients():
    ends = {"ws": _ends("left completed"), "http": _ends("left completed")}
    yield Hazard("client leaves", "head", leave="head", **ends)
    yield Hazard("client leaves", "stream", leave="stream", **ends)
    yield Hazard("client leaves", "stream, reset", leave="stream reset", **ends)
    # The upstream is still at work on what was left when the next turn comes.
    for name in ("head", "stream", "stream reset"):
        slow = (f.Silence(0.15),)
        yield Hazard("client leaves", name + ", slow", slow, f.after_events(3), "any", leave=name, **ends)


HAZARDS = tuple(
    hazard
    for kinds in (
        _gone_before_the_write, _gone_after_the_write, _gone_in_the_stream, _refusals, _hidden_refusals,
        _errors_in_the_stream, _slow_and_odd, _upgrades, _plain, _clients,
    )
    for hazard in kinds()
)  # fmt: skip
FAMILIES = tuple(dict.fromkeys(hazard.family for hazard in HAZARDS))
OUTAGE = frozenset({WHOLE, LOST, BROKEN, "unreachable"})
"""What a turn may end with that ran while the upstream was away, or while all its sockets were closed."""


_WHEN_ADMITTED = {"events", "deltas", "before_terminal", "after_terminal"}


@dataclass(frozen=True)
class Hit:
    """A try that a hazard hit."""

    transport: str
    ours: bool


class Arming:
    """Which turn meets which hazard, as faults of a simulated upstream."""

    def __init__(self, faults):
        self._armed = {}
        self.hits = {}
        for hazard in HAZARDS:
            if hazard.actions:
                faults.add(
                    Fault(
                        actions=hazard.actions,
                        at=hazard.at,
                        transport=hazard.transport,
                        matches=lambda arrival, hazard=hazard: self._hits(hazard, arrival),
                        times=None,
                    )
                )

    def arm(self, turn, hazard, *, client_parent):
        """Let ``hazard`` happen to the turn of this name."""
        self._armed[turn] = (hazard, client_parent)

    def allowed(self, turn, hazard, entries):
        """The ends that ``turn`` may have by what hit its tries, which the journal has as ``entries``."""
        met = self.hits.get(turn)
        if met and hazard.at.kind in _WHEN_ADMITTED and not hazard.every:
            # A try that the upstream refused met nothing that happens later.
            met = next(e for e in entries if e.transport == met[0].transport).outcome != "refused"
        if hazard is None or (hazard.actions and not met):
            return frozenset({WHOLE, LEFT} if hazard is not None and hazard.leave else {WHOLE})
        if not hazard.actions:
            return hazard.ws
        ends = frozenset()
        for hit in self.hits[turn]:
            by_delta = hazard.delta if hit.ours else None
            ends |= by_delta if by_delta is not None else getattr(hazard, hit.transport)
        return ends

    def _hits(self, hazard, arrival):
        body = arrival.body
        turn = body["client_metadata"]["turn"] if body else arrival.headers.get("x-client-request-id")
        armed, client_parent = self._armed.get(turn, (None, None))
        if armed is not hazard or (turn in self.hits and not hazard.every):
            return False
        ours = bool(body and body.get("previous_response_id")) and client_parent is None
        if hazard.family == "not found" and not ours:
            return False
        self.hits.setdefault(turn, []).append(Hit(arrival.transport, ours))
        return True
