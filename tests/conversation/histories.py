"""Items and requests for tests of the matching floor, made as a client would make them."""

from __future__ import annotations

import json

from gateway.conversation.digests import Digester
from gateway.conversation.items import facts_of
from gateway.conversation.reading import read_request
from gateway.conversation.request import Request

DIGESTER = Digester(b"t" * 32)


def user(text):
    return {"role": "user", "content": text}


def said(text, phase=None, name="msg_1"):
    item = {
        "id": name,
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    return item if phase is None else {**item, "phase": phase}


def thought(name="rs_1", blob=None):
    item = {"id": name, "type": "reasoning", "summary": [{"type": "summary_text", "text": name}]}
    return item if blob is None else {**item, "encrypted_content": blob}


EMPTY = {"role": "assistant", "content": ""}


def reference(name):
    return {"type": "item_reference", "id": name}


def facts(items):
    return [facts_of(json.dumps(item).encode(), DIGESTER) for item in items]


def request(items, **fields):
    found = read_request(json.dumps({"model": "m", "input": items, **fields}).encode(), DIGESTER)
    assert isinstance(found, Request)
    return found
