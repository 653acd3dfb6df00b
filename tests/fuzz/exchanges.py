"""Fuzz target: the events of one response, mangled, in any order, as text frames of a socket."""

from __future__ import annotations

import json
import time

from gateway.protocol.events import LIFECYCLE
from gateway.protocol.exchange import Exchange, Ignored, Refused, Relay, Violation
from gateway.protocol.observer import StreamObserver
from gateway.protocol.phases import Phase
from gateway.protocol.sse import sse_event
from tests.fuzz.choices import Choices

OURS = "resp_ours"
SLOWEST = 2.0
_ENDED = (Phase.COMPLETED, Phase.INCOMPLETE, Phase.FAILED, Phase.REFUSED)


def frames_of(data):
    """The frames that stand on the lines of ``data``: a socket lets no frame pass that is not UTF-8."""
    return [line for line in data.split(b"\n") if line and _is_text(line)][:64]


def _is_text(line):
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def check(data):
    """Feed every line of ``data`` as a frame: no exception, one ending, one response, nothing that breaks the stream's form."""
    began = time.perf_counter()
    choices = Choices(data)
    flags = choices.below(8)
    frames = frames_of(choices.rest())
    one = Exchange(ours=bool(flags & 1), client_parent=b'"resp_theirs"' if flags & 2 else b"null")
    one.sent()
    ids = set()
    for frame in frames:
        before, ending = one.phase, one.ending
        outcome = one.feed(frame)
        assert isinstance(outcome, Ignored | Relay | Refused | Violation)
        if isinstance(outcome, Relay):
            _check_relayed(outcome, ours=bool(flags & 1), ids=ids)
            assert before in (Phase.SENT, Phase.STREAMING, Phase.ERRORED)
        elif isinstance(outcome, Refused):
            assert before is Phase.SENT
            assert 400 <= outcome.refusal.status < 600
            assert isinstance(json.loads(outcome.refusal.body)["error"], dict)
        else:
            assert one.phase is before
        if before in _ENDED:
            assert one.phase is before
            assert one.ending is ending
    assert len(ids) <= 1
    if one.ending is None or one.ending.kind == "error":
        if one.phase in (Phase.SENT, Phase.STREAMING, Phase.ERRORED):
            one.lost()
        failure = json.loads(one.failure_event(code="c", message="m"))
        assert failure["response"]["status"] == "failed"
    else:
        assert isinstance(json.loads(one.ending.response)["output"], list)
        assert not one.may_commit or one.ending.kind == "completed"
    _observe(frames, json_too=bool(flags & 4))
    assert time.perf_counter() - began < SLOWEST


def _check_relayed(relayed, *, ours, ids):
    told = json.loads(relayed.data)
    assert told["type"] == relayed.kind
    assert "stream_id" not in told
    assert sse_event(relayed.kind, relayed.data).count(b"\n") == 3
    if relayed.kind in LIFECYCLE and isinstance(told.get("response"), dict):
        assert not ours or told["response"].get("previous_response_id") != OURS
        if isinstance(told["response"].get("id"), str):
            ids.add(told["response"]["id"])


def _observe(frames, *, json_too):
    """The same as a plain HTTP answer that is only read along: nothing may be raised either."""
    stream = StreamObserver("text/event-stream", max_bytes=4096)
    for frame in frames:
        stream.feed(b"event: x\r\ndata: " + frame + b"\n\n")
    ending = stream.end()
    assert ending is None or ending.kind in {"completed", "incomplete", "failed", "error"}
    if json_too:
        whole = StreamObserver("application/json")
        whole.feed(b"".join(frames))
        whole.end()


MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
    "content": [{"type": "output_text", "text": "hello", "annotations": []}],
}  # fmt: skip
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "call_1",
    "name": "f",
    "arguments": "{}",
    "status": "completed",
}


def event(kind, **fields):
    """One event as a frame."""
    return json.dumps({"type": kind, **fields}, separators=(",", ":")).encode()


def response(status, **fields):
    """A response object."""
    return {
        "id": "resp_1",
        "object": "response",
        "status": status,
        "output": [],
        "previous_response_id": OURS,
        **fields,
    }


def scripts():
    """Whole responses as upstreams send them, in the ways that they were seen to end."""
    begun = [
        event("response.created", response=response("in_progress"), sequence_number=0),
        event("response.in_progress", response=response("in_progress"), sequence_number=1),
        event(
            "response.output_item.added", output_index=0, item={**MESSAGE, "content": []}, sequence_number=2
        ),
        event(
            "response.content_part.added",
            item_id="msg_1",
            output_index=0,
            content_index=0,
            part={},
            sequence_number=3,
        ),
        event(
            "response.output_text.delta",
            item_id="msg_1",
            output_index=0,
            content_index=0,
            delta="hel",
            sequence_number=4,
        ),
        event("response.output_item.done", output_index=0, item=MESSAGE, sequence_number=5),
    ]
    error = {"type": "server_error", "code": "server_error", "message": "no", "param": None}
    ends = [
        [
            event(
                "response.completed",
                response=response("completed", output=[MESSAGE], usage={"total_tokens": 3}),
            )
        ],
        [event("response.completed", response=response("completed", output=None))],
        [event("response.done", response=response("completed", output=[CALL]))],
        [event("response.incomplete", response=response("incomplete", incomplete_details={"reason": "x"}))],
        [event("response.failed", response=response("failed", error=error))],
        [
            event("error", error=error, sequence_number=6),
            event("response.failed", response=response("failed", error=error)),
        ],
        [event("response.error", error=error), event("keepalive")],
        [
            event("response.completed", response=response("completed", id="resp_2")),
            event("codex.rate_limits"),
        ],
        [event("response.future\nevent: response.completed\ndata: {}\n\n")],
        [],
    ]
    refusals = [
        [event("error", status=429, error={**error, "headers": {"retry-after": "7"}})],
        [
            event(
                "error",
                status=400,
                error={"code": "previous_response_not_found", "message": "Previous response not found"},
            )
        ],
        [event("error", body={"error": {"error": error}}, status_code="503")],
        [event("response.failed", response=response("failed", error=error))],
        [event("error", detail="Unsupported parameter: stream_options", status=400)],
    ]
    return [begun + end for end in ends] + refusals


def seeds():
    """Every script with the flags that matter."""
    return [bytes([flags]) + b"\n".join(script) for script in scripts() for flags in (0, 3)]
