"""Events of a scripted upstream for the tests of an exchange."""

import json

from gateway.protocol.exchange import Exchange, Ignored, Violation

FOREIGN, NOTICE, KEEPALIVE = Ignored("foreign"), Ignored("notice"), Ignored("keepalive")


def event(kind, **members):
    """An event as the upstream writes it."""
    return json.dumps({"type": kind, **members}).encode()


def lifecycle(kind, response_id="r1", **members):
    """A lifecycle event of a response."""
    state = {"created": "in_progress"}.get(kind, kind)
    response = {
        "id": response_id,
        "object": "response",
        "status": state,
        "previous_response_id": "resp_ours",
        **members,
    }
    return event(f"response.{kind}", response=response)


CREATED = lifecycle("created", output=[])
ADDED = event(
    "response.output_item.added", output_index=0, item={"id": "m1", "type": "message", "content": []}
)
PART = event(
    "response.content_part.added", output_index=0, content_index=0, part={"type": "output_text", "text": ""}
)
DELTA = event("response.output_text.delta", output_index=0, content_index=0, item_id="m1", delta="hi")
ITEM = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "hi"}],
}
DONE = event("response.output_item.done", output_index=0, item=ITEM)
COMPLETED = lifecycle("completed", output=[ITEM], usage={"total_tokens": 3})
ERROR = event("error", sequence_number=2, error={"type": "server_error", "code": None, "message": "m"})
FAILED = lifecycle("failed", error={"code": "server_error", "message": "m"})


def exchange(*events, ours=True, client_parent=b"null"):
    """An exchange whose frame was sent, fed with some events."""
    new = Exchange(ours=ours, client_parent=client_parent)
    new.sent()
    for each in events:
        assert not isinstance(new.feed(each), Violation)
    return new
