"""Fuzz target: request bodies of any kind, one after the other, read, planned and remembered as the gateway does.

What the upstream would hold is kept beside, item by item, and compared by the code of the simulated upstream, which shares
nothing with what is tried here.
"""

from __future__ import annotations

import time
from dataclasses import replace

import orjson

from gateway.conversation.arriving import Body
from gateway.conversation.digests import Digester
from gateway.conversation.items import Level
from gateway.conversation.plan import Rules
from gateway.conversation.reading import Reader, read_request
from gateway.conversation.request import NotUpgradable
from gateway.protocol.ending import Ending
from gateway.simulator import digest_of
from gateway.simulator.refusal import Refusal
from gateway.store import Store, StoreLimits
from gateway.turn.retention import Retention
from gateway.turn.standing import Standing
from gateway.upstream.profile import PROFILES
from tests.fuzz.choices import Choices, mangle

SLOWEST = 2.0
KEY = b"k" * 16
IDENTITY = b"one"
# Neighbours are alike, so that one in place of the other is what an alteration by a client looks like.
ITEMS = (
    b'{"role":"user","content":"a"}',
    b'{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]}',
    b'{"content":"b", "role":"user"}',
    b'{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x","annotations":[]}],"id":"msg_1"}',
    b'{"role":"assistant","content":"x"}',
    b'{"role":"assistant","content":"x","phase":"final_answer"}',
    b'{"role":"assistant","content":"x","phase":"commentary"}',
    b'{"role":"assistant","content":""}',
    b'{"type":"message","role":"assistant","content":[]}',
    b'{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"E"}',
    b'{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":"E"}',
    b'{"type":"reasoning","id":"rs_2","summary":[]}',
    b'{"type":"function_call","call_id":"c","name":"f","arguments":"{\\"a\\":1}","id":"fc_1","status":"completed"}',
    b'{"type":"function_call","call_id":"c","name":"f","arguments":"{ \\"a\\" : 1 }"}',
    b'{"type":"function_call","call_id":"c","name":"f","arguments":"{\\"a\\":1.0}"}',
    b'{"type":"function_call","call_id":"c","name":"f","arguments":"{\\"a\\":1e0}"}',
    b'{"type":"function_call_output","call_id":"c","output":"ok","status":"completed"}',
    b'{"type":"function_call_output","call_id":"c","output":"ok"}',
    b'{"type":"item_reference","id":"msg_1"}',
    b'{"id":"rs_1"}',
    b'{"type":"x","n":12345678901234567890123,"f":1e400,"z":-0}',
    b'{"type":"x","n":12345678901234567890123,"f":1e400,"z":-0.0}',
    b'{"type":"x","a":1,"a":2}',
    b'{"type":"x","a":2}',
    b'{"type":"x","a":"\\ud800"}',
    b'{"type":"x","a":"\xff"}',
    b'{"type":"x","a":"\xe2\x80\xa8"}',
    b'{"type":null,"role":"user","content":null}',
    b'{"type":["x"],"role":{},"content":[1,null,"a",{"type":5}]}',
    b'"a"', b"1", b"null", b"[]", b"{}", b"{", b"nul",
    b'{"type":"x","d":' + b"[" * 600 + b"]" * 600 + b"}",
    b'{"type":"x","d":' + b'{"a":' * 2000 + b"1" + b"}" * 2000 + b"}",
)  # fmt: skip
FIELDS = (
    b"", b'"store":false', b'"store":true', b'"stream":true', b'"stream":1', b'"instructions":"i"', b'"instructions":"j"',
    b'"input":[]', b'"previous_response_id":"resp_0"', b'"previous_response_id":null', b'"truncation":"auto"',
    b'"metadata":{"input":[{"role":"user","content":"a"}]}', b'"x":"\\"input\\":["', b'"reasoning":{"context":1}', b'"conversation":"c"',
    b'"metadata":{"input":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}', b'"background":false', b'"stream_options":{}', b'"model":"o"', b'"temperature":1.0', b'"user":"\xff"', b'"tools":[{"input":[1]}]',
)  # fmt: skip
ANSWERS = ITEMS[3:19]
OPENINGS = (b'"input":[', b'"input": [', b'"input" :[', b'"input":\n[', b'"input":  [', b'"inp\\u0075t":[')
SEPARATORS = (b",", b", ", b" , ", b",\n", b",,")


class Gateway:
    """The parts of a driver that read and remember, on a clock that stands still."""

    index = None
    profile = PROFILES["openai"]

    def __init__(self, level):
        self.clock = lambda: 0.0
        self.retention = Retention(self.clock)
        self.digester = Digester(KEY)
        self.reader = Reader(self.digester)
        self.store = Store(StoreLimits(responses=8, items=400, age=60))
        self.rules = Rules(level, any_change_is_full=False, chain_stored=True)

    @property
    def level(self):
        """As the driver gives it."""
        return self.rules.level

    def plan(self, identity, request):
        """As the driver does, but for what it learned of the upstream."""
        return self.store.plan(identity, request, self.rules)


def check(data):
    """Play the turns that ``data`` stands for; every delta must give the upstream what the client asked for."""
    began = time.perf_counter()
    choices = Choices(data)
    level = choices.pick([Level.EQUIVALENT, Level.EXACT, Level.LENIENT])
    gateway = Gateway(level)
    held = {}
    history = []
    for turn in range(8):
        if not choices:
            break
        for _ in range(choices.below(4)):
            history = _edited(history, choices)
        body = _body(history, choices)
        if (answered := _turn(gateway, body, f"resp_{turn}", held, choices)) is not None:
            history = [*history, *answered]
        match choices.below(13):
            case 9:
                gateway.rules = replace(gateway.rules, level=choices.pick(list(Level)))
            case 10:
                gateway.store.forget(IDENTITY, f"resp_{choices.below(turn + 1)}")
            case 11:
                gateway.store.delete(IDENTITY, f"resp_{choices.below(turn + 1)}")
    assert gateway.store.items <= 400 + 64
    assert time.perf_counter() - began < SLOWEST


def _edited(history, choices):
    kind, at = choices.below(7), choices.below(len(history) + 1)
    match kind:
        case 0 | 1 | 2:
            return [*history, choices.pick(ITEMS)]
        case 3:
            return history[:at]
        case 4:
            return [*history[:at], choices.pick(ITEMS), *history[at:]]
        case 5 if history[at:] and history[at] in ITEMS:
            alike = ITEMS[(ITEMS.index(history[at]) + choices.pick((1, -1, 2))) % len(ITEMS)]
            return [*history[:at], alike, *history[at + 1 :]]
        case _:
            return [
                *history[:at],
                *(mangle(item, choices) for item in history[at : at + 1]),
                *history[at + 1 :],
            ]


def _body(history, choices):
    items = choices.pick(SEPARATORS[:2] if choices.below(8) else SEPARATORS).join(history)
    sent = (choices.pick(OPENINGS[:2]) if choices.below(8) else choices.pick(OPENINGS)) + items + b"]"
    before = [choices.pick(FIELDS) for _ in range(choices.below(3))]
    after = [choices.pick(FIELDS) for _ in range(choices.below(3))]
    body = b"{" + b",".join([b'"model":"m"', *filter(None, before), sent, *filter(None, after)]) + b"}"
    return mangle(body, choices) if choices.below(6) == 5 else body


def _turn(gateway, text, response_id, held, choices):
    """One turn; what it was answered with, if the answer would be resent."""
    body = Body(IDENTITY, gateway.store.scan(IDENTITY, gateway.digester.running()))
    size, continues = 1 + choices.below(255), choices.below(8)
    answer = [choices.pick(ANSWERS) for _ in range(choices.below(3))]
    for at in range(0, len(text), size):
        body.feed(text[at : at + size])
    request = gateway.reader.read(body)
    plainly = read_request(text, gateway.digester)
    assert isinstance(request, NotUpgradable) == isinstance(plainly, NotUpgradable)
    if isinstance(request, NotUpgradable):
        assert request == plainly
        return None
    standing = Standing(gateway, IDENTITY, request, body)
    parents = standing.plan.parents
    match = parents[0] if parents and continues else None
    frame = orjson.loads(standing.frame(match)) if _strict(text) else None
    whole = orjson.loads(text)["input"] if frame is not None else None
    if frame is not None:
        _check_frame(frame, orjson.loads(text), match)
    if match is not None and frame is not None:
        context = [*held[match.transcript.response_id], *frame["input"]]
        _check_context(context, whole, gateway.rules.level)
    ending = Ending("completed", b"{}", tuple(answer), contradicts=False, response_id=response_id, usage=None)
    standing.remember(ending, match)
    _check_read(standing.request, plainly, match)
    if whole is not None and not isinstance(whole, str):
        start = held[match.transcript.response_id] if match is not None else []
        if match is None and request.client_parent is not None:
            start = held.get(request.client_parent, [])
        held[response_id] = [*start, *frame["input"], *map(orjson.loads, answer)]
    return answer


def _strict(text):
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return all(isinstance(item, dict) for item in value["input"])


def _check_frame(frame, asked, match):
    """Nothing but the transport's own fields, the input and our parent differs from what the client sent."""
    changed = {"stream", "background", "input", "type", "previous_response_id"}
    assert {k: v for k, v in frame.items() if k not in changed} == {
        k: v for k, v in asked.items() if k not in changed
    }
    if match is None:
        assert frame["input"] == asked["input"]
        assert frame.get("previous_response_id") == asked.get("previous_response_id")
    else:
        assert frame["input"]
        assert frame["previous_response_id"] == match.transcript.response_id


def _check_context(context, asked, level):
    """The context law, by the simulated upstream's own comparison."""
    try:
        found, wanted = digest_of(context), digest_of(asked)
    except Refusal:
        return
    names = {Level.EXACT: "strict", Level.EQUIVALENT: "modulo", Level.LENIENT: "loose"}
    assert getattr(found, names[level]) == getattr(wanted, names[level])


def _check_read(request, plainly, match):
    """However much of a body was recognised, what was read of it is what a plain reading gives."""
    skipped = request.skipped
    assert (request.fields, request.model, request.stream, request.store, request.client_parent) == (
        plainly.fields, plainly.model, plainly.stream, plainly.store, plainly.client_parent,
    )  # fmt: skip
    assert list(map(bytes, request.items)) == list(map(bytes, plainly.items[skipped:]))
    assert request.facts == plainly.facts[skipped:]
    assert not skipped or match is not None


def seeds():
    """A conversation that grows, with every item and every field in its way, and with every answer resent as its likes."""
    first, second = _turn_of([(0, 0, 0)], answers=[1]), _turn_of([(0, 0, 2)])
    items = [first + _turn_of([(0, 0, at)]) + second for at in range(len(ITEMS))]
    fields = [
        first + _turn_of([(0, 0, 2)], before=[at]) + _turn_of([(0, 0, 2)], after=[at])
        for at in range(len(FIELDS))
    ]
    alike = [
        _turn_of([(0, 0, 0)], answers=[at]) + _turn_of([(5, 1, way), (0, 0, 2)]) + second
        for at in range(len(ANSWERS))
        for way in range(3)
    ]
    # A field that looks like the known beginning of the input, before an input that would fit behind it.
    disguised = [first + _turn_of([(3, 0), (0, 0, 4), (0, 0, 2)], before=[at]) for at in range(len(FIELDS))]
    long = b"".join(_turn_of([(0, 0, at % 3)], answers=[at, at + 1]) for at in range(8))
    return [
        bytes([level]) + play for level in range(3) for play in (*items, *fields, *alike, *disguised, long)
    ]


def _turn_of(edits, *, before=(), after=(), answers=()):
    """The bytes that make ``check`` play such a turn; numbers are places in the tuples above."""
    changed = [number for edit in edits for number in edit]
    spelled = [1, 0, 1, 0, len(before), *before, len(after), *after, 0, 254, 1]
    return bytes([len(edits), *changed, *spelled, len(answers), *answers, 0])
