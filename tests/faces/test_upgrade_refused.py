"""Upstreams that take no sockets: the client gets what plain HTTP gives, and few dials are spent on finding out."""

from __future__ import annotations

import asyncio
import time

import pytest

from gateway.simulator import Fault, Options
from gateway.simulator.faults import UPGRADE, Abort, Cut, Respond, Stall
from tests.faces.pairs import USER, Dialogue, pair, same_face

HTML = {"content-type": "text/html"}
REFUSALS = {
    "401": (Options(websocket=False, upgrade_status=401), None),
    "403": (Options(websocket=False, upgrade_status=403), None),
    "404": (Options(websocket=False, upgrade_status=404), None),
    "405": (Options(websocket=False, upgrade_status=405), None),
    "426": (Options(websocket=False, upgrade_status=426), None),
    "429": (Options(websocket=False, upgrade_status=429), None),
    "500": (Options(websocket=False, upgrade_status=500), None),
    "503": (Options(websocket=False, upgrade_status=503), None),
    "a page": (Options(), Respond(status=200, headers=HTML, body=b"<html>Welcome</html>")),
    "a redirect": (Options(), Respond(status=307, headers={"location": "http://127.0.0.1:9/v1/responses"})),
    "a proxy's page": (Options(), Respond(status=403, headers=HTML, body=b"<html>Blocked</html>")),
    "reset": (Options(), Abort()),
    "hung up": (Options(), Cut()),
    "silence": (Options(), Stall()),
}
# 401 is about the key and says nothing about sockets, so each turn in sequence tries its own; 403 needs two to be believed.
MOST_IN_SEQUENCE = {"401": 20, "403": 2, "a proxy's page": 2}


def dials(sides):
    """Upgrades that the upstream saw."""
    return [entry for entry in sides.behind.journal if entry.kind in {"upgrade_refused", "open"}]


def refusing(sides, action):
    if action is not None:
        sides.behind.faults.add(Fault(at=UPGRADE, actions=action, times=None))


@pytest.mark.parametrize("name", REFUSALS)
async def test_the_client_gets_the_answer_of_plain_http(name):
    """Whatever answers the upgrade, the turns go over plain HTTP, look like it, and do not dial again and again."""
    options, action = REFUSALS[name]
    async with pair(options, dial_timeout=0.3) as sides:
        refusing(sides, action)
        talk = Dialogue(sides, {})
        for number in range(20):
            talk.answer_calls()
            one, other = await talk.say({"role": "user", "content": f"part {number}"}, stream=number % 2 == 0)
            same_face(one, other)
            assert (other.mode, other.reason) == ("http", "upgrade_refused")
        assert 1 <= len(dials(sides)) <= MOST_IN_SEQUENCE.get(name, 1)
        assert len(sides.behind.journal.creates("http")) == 20


@pytest.mark.parametrize("name", REFUSALS)
async def test_many_at_once_wait_for_one_dial(name):
    """Twenty turns at the same time are answered over plain HTTP after the dials that one of them needs."""
    options, action = REFUSALS[name]
    async with pair(options, dial_timeout=0.3) as sides:
        refusing(sides, action)
        began = time.monotonic()
        answers = await asyncio.gather(
            *(
                sides.other.create({"model": "gpt-5", "input": [USER], "stream": n % 2 == 0})
                for n in range(20)
            )
        )
        assert time.monotonic() - began < 5
        assert {(answer.status, answer.mode, answer.reason) for answer in answers} == {
            (200, "http", "upgrade_refused")
        }
        # On another loop some of them come in only after the first dial has failed.
        own = isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop)
        assert len(dials(sides)) == 1 or (not own and len(dials(sides)) <= 3)
        assert len(sides.behind.journal.creates("http")) == 20
