"""Reading by familiarity: the three tiers give the same plan, and a shortcut is never taken on trust."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.conversation.arriving import Body
from gateway.conversation.items import Level
from gateway.conversation.plan import Rules
from gateway.conversation.reading import Reader
from gateway.conversation.request import NotUpgradable, Request
from gateway.store import Store, StoreLimits
from tests.conversation.histories import DIGESTER, said, thought, user

ME = b"me"
RULES = Rules(Level.EQUIVALENT, any_change_is_full=False, chain_stored=True)


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def spaced(value):
    return json.dumps(value).encode()


class Gateway:
    """A reader and a store, used as a turn uses them."""

    def __init__(self):
        self.reader = Reader(DIGESTER)
        self.store = Store(StoreLimits(responses=1000, items=10**6, age=1e9))
        self.count = 0

    def read(self, body):
        """Read a body that arrives in pieces of uneven sizes."""
        arriving = Body(ME, self.store.scan(ME, DIGESTER.running()))
        at, size = 0, 1
        while at < len(body):
            arriving.feed(body[at : at + size])
            at, size = at + size, size * 3 % 101
        assert len(arriving) == len(body)
        return self.reader.read(arriving)

    def answer(self, body, answer):
        """Take a turn to its end: plan it, and remember the response on what it continues."""
        request = self.read(body)
        parents = self.store.plan(ME, request, RULES).parents
        if request.after is not None and not parents:
            request = self.reader.read(body)
            parents = self.store.plan(ME, request, RULES).parents
        match = parents[0] if parents else None
        self.count += 1
        self.store.add(
            ME,
            response_id=f"r{self.count}",
            base=match.transcript if match else None,
            sent=request.facts[match.consumed - request.skipped :] if match else request.facts,
            answered=[self.reader.facts(compact(item)) for item in answer],
            fields=request.fields,
            stored=request.store,
            now=float(self.count),
            spelling=request.spelling,
        )
        return request, match


@pytest.mark.parametrize("write", [compact, spaced], ids=["compact", "spaced"])
def test_a_growing_history_is_recognised_by_its_beginning(write):
    """From the second turn on only what follows the earlier request is read, and the delta is the same."""
    gateway, history = Gateway(), [user("hé")]
    seen = []
    for turn in range(6):
        answer = [thought(f"rs_{turn}", "blob"), said(f"a{turn}")]
        request, match = gateway.answer(write({"model": "m", "input": history, "store": False}), answer)
        seen.append((request.skipped, len(request.items), match.consumed if match else 0))
        history = [*history, *answer, user(f"u{turn}")]

    assert seen[0] == (0, 1, 0)
    # A space behind the comma is part of what follows the beginning, so both spellings are recognised.
    assert seen[1:] == [(1 + 3 * n, 3, 3 + 3 * n) for n in range(5)]


def test_a_beginning_is_recognised_at_the_top_of_the_body_only():
    """The same text inside another member, before the input or in its place, changes nothing."""
    gateway, history = Gateway(), [user("one")]
    gateway.answer(compact({"model": "m", "input": history}), [said("a")])
    more = [*history, said("a"), user("two")]
    inside = {"model": "m", "metadata": {"input": more}, "input": [user("other"), user("one")]}
    request = gateway.read(compact(inside))

    assert isinstance(request, Request)
    assert (request.skipped, len(request.items)) == (0, 2)
    quoted = {"model": "m", "instructions": compact({"input": more}).decode(), "input": more}
    request = gateway.read(compact(quoted))
    assert isinstance(request, Request)
    assert request.skipped + len(request.items) == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.replace(b'"store":false', b'"store":false,"store":true'),
        lambda body: body.replace(b'"store":false', b'"input":[],"store":false'),
        lambda body: body + b"x",
        lambda body: body.replace(b'"two"', b'"\xff"'),
        lambda body: body.replace(b'"two"', b'"\\ud800"'),
        lambda body: body.replace(b'"two"', b"NaN"),
        lambda body: body[:-1],
    ],
    ids=["key twice", "input twice", "bytes behind", "not UTF-8", "lone surrogate", "NaN", "cut"],
)
def test_what_follows_a_known_beginning_is_read_as_strictly(change):
    """A body that plain HTTP must carry is found out behind a recognised beginning too."""
    gateway, history = Gateway(), [user("one")]
    gateway.answer(compact({"model": "m", "input": history, "store": False}), [said("a")])
    body = compact({"model": "m", "input": [*history, said("a"), user("two")], "store": False})

    assert isinstance(gateway.read(body), Request)
    assert isinstance(gateway.read(change(body)), NotUpgradable)


def test_another_identity_recognises_nothing():
    """Beginnings are kept per identity."""
    gateway = Gateway()
    gateway.answer(compact({"model": "m", "input": [user("one")]}), [said("a")])
    text = compact([user("one"), said("a"), user("two")])[1:-1]

    scan = gateway.store.scan(ME, DIGESTER.running())
    scan.feed(memoryview(text))
    assert scan.found() is not None
    assert gateway.store.scan(b"other", DIGESTER.running()) is None


def test_a_forgotten_response_is_no_beginning_any_more():
    """A shortcut into a tree that was cut down would find what is not there."""
    gateway = Gateway()
    gateway.answer(compact({"model": "m", "input": [user("one")]}), [said("a")])
    gateway.store.delete(ME, "r1")
    request = gateway.read(compact({"model": "m", "input": [user("one"), said("a"), user("two")]}))

    assert isinstance(request, Request)
    assert request.skipped == 0
    assert gateway.store.plan(ME, request, RULES).parents == ()


@pytest.mark.parametrize("opening", [b'"input":[', b'"input": ['])
def test_a_beginning_is_found_wherever_the_body_is_cut(opening):
    """Whatever two pieces a body arrives in, what is known of it is found, and it is whole again."""
    gateway, items = Gateway(), [user("one"), said("a"), user("two")]
    known, rest = compact([items[0]])[1:-1], compact(items)[1 + len(compact([items[0]])) - 2 :]
    body = b'{"model":"m",' + opening + known + rest + b',"store":false}'
    gateway.answer(b'{"model":"m",' + opening + known + b"]}", [said("a")])
    start = body.index(b"[")
    for cut in range(len(body)):
        arriving = Body(ME, gateway.store.scan(ME, DIGESTER.running()))
        arriving.feed(body[:cut])
        arriving.feed(body[cut:])
        found = arriving.known()
        assert found is not None
        assert (found[0], found[1].length) == (start, len(known))
        assert arriving.without(start + 1, start + 1 + len(known)) == body.replace(known, b"", 1)
        assert arriving.whole() == body


def test_a_beginning_that_is_forgotten_while_the_body_arrives_is_none():
    """What was recognised in the first piece may be gone when the last one comes; the body is then read in full."""
    gateway, history = Gateway(), [user("one"), said("a"), user("two")]
    gateway.answer(compact({"model": "m", "input": history[:1]}), [said("a")])
    body = compact({"model": "m", "input": history})
    arriving = Body(ME, gateway.store.scan(ME, DIGESTER.running()))
    arriving.feed(body[:-10])
    assert arriving.known() is not None
    gateway.store.delete(ME, "r1")
    arriving.feed(body[-10:])

    assert arriving.known() is None
    assert gateway.reader.read(arriving).skipped == 0


texts = st.sampled_from(["a", "b", "ü\n", '"', "\u2028"])
items = st.one_of(texts.map(user), texts.map(said), st.builds(thought, texts, st.sampled_from([None, "e"])))
histories = st.lists(items, min_size=1, max_size=4)
writers = st.sampled_from([compact, spaced, lambda value: json.dumps(value, indent=1).encode()])


@given(st.lists(st.tuples(histories, histories, writers), min_size=1, max_size=5), st.data())
def test_all_tiers_find_the_same_parents(turns, data):
    """However familiar a body is, the plan is that of a reader who has never seen anything, or a shorter way to a part of it."""
    gateway, known = Gateway(), [[]]
    for new, answer, write in turns:
        history = [*data.draw(st.sampled_from(known)), *new]
        body = write({"model": "m", "input": history, "instructions": "x"})
        familiar = gateway.read(body)
        fresh = Reader(DIGESTER).read(body)
        assert isinstance(familiar, Request) and isinstance(fresh, Request)
        quick = gateway.store.plan(ME, familiar, RULES).parents
        full = gateway.store.plan(ME, fresh, RULES).parents
        ways = {(m.transcript.response_id, m.consumed) for m in full}
        assert {(m.transcript.response_id, m.consumed) for m in quick} <= ways
        assert familiar.skipped + len(familiar.items) == len(fresh.items)
        assert familiar.facts == fresh.facts[familiar.skipped :]
        if familiar.skipped == 0:
            assert [m.consumed for m in quick] == [m.consumed for m in full]
        gateway.answer(body, answer)
        known.append([*history, *answer])
