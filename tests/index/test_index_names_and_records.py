"""The pure part of the shared index: where a request looks, what is written, and what counts as not found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.conversation.digests import Digester
from gateway.conversation.fields import FieldFacts
from gateway.conversation.fields import field_facts as facts_of_fields
from gateway.conversation.items import ItemFacts, Kind
from gateway.index import names, records
from gateway.index.names import START, Deployment, ends, extended, referred
from gateway.index.records import Deleted, Gone, Pointer, Record, field_facts, joined, label, read, write
from gateway.protocol.raw import Member

OURS = Deployment(b"a secret of thirty-two characters", "1")
WHO = b"w" * 16
digests = st.binary(min_size=16, max_size=16)
facts = st.builds(ItemFacts, st.sampled_from(Kind), digests, *[st.none() | digests for _ in range(4)])


def item(number, kind=Kind.ITEM, **more):
    return ItemFacts(kind, number.to_bytes(16, "big"), **more)


@st.composite
def kept(draw):
    """A record as it may be kept."""
    held = tuple(draw(st.lists(facts, max_size=90)))
    before = tuple(draw(st.lists(digests, max_size=4)))
    return Record(
        draw(st.text(max_size=60).filter(lambda t: t.isprintable())),
        held,
        draw(st.integers(0, len(held))),
        before,
        draw(st.integers(0, len(before))),
        frozenset(draw(st.lists(st.binary(min_size=8, max_size=8), max_size=5))),
        draw(digests),
        draw(digests),
        draw(st.booleans()),
    )


values = (
    kept()
    | st.builds(Pointer, digests)
    | st.just(Gone())
    | st.builds(Deleted, st.binary(max_size=16), st.text(max_size=9))
)


@given(value=values, name=digests)
def test_what_was_written_is_read(value, name):
    """Every value comes back as it was."""
    assert read(OURS, name, write(OURS, name, value)) == value


@given(value=values, name=digests, data=st.data())
def test_what_is_not_exactly_ours_is_not_found(value, name, data):
    """A changed bit, a cut or longer value, another name, another deployment and another version are all as if nothing was there."""
    raw = write(OURS, name, value)
    at = data.draw(st.integers(0, 8 * len(raw) - 1))
    changed = bytearray(raw)
    changed[at // 8] ^= 1 << at % 8
    cut = data.draw(st.integers(0, len(raw) - 1))
    for odd in (bytes(changed), raw[:cut], raw + b"x", data.draw(st.binary(max_size=200)), b"", None):
        assert read(OURS, name, odd) is None
    assert read(OURS, bytes(16) if name != bytes(16) else b"1" * 16, raw) is None
    assert read(Deployment(b"another secret of many characters", "1"), name, raw) is None
    assert read(Deployment(b"a secret of thirty-two characters", "2"), name, raw) is None


@pytest.mark.parametrize(
    "body",
    [b"", b"p", b"p" + bytes(15), b"g" + b"x", b"r", b"r\xc1", b"r\x90", b"z" + bytes(16)],
)
def test_a_tag_alone_is_not_enough(body):
    """What is tagged rightly, but is no value of this version, is not found."""
    whole = records.VERSION + body
    assert read(OURS, WHO, whole + OURS.tag(WHO, whole)) is None


def test_counts_that_do_not_fit_are_not_found():
    """A record whose digests are fewer than its items, or that needs more than it names, is not found."""
    record = Record("resp_1", (item(1), item(2)), 1, (WHO,), 1, frozenset(), bytes(16), bytes(16), False)
    packed = records._packed(record)
    for change in (
        {"digests": packed.digests[:-16]}, {"digests": packed.digests + bytes(16)}, {"needs": 2}, {"asked": 3}, {"asked": -1},
        {"before": bytes(15)}, {"binding": b""}, {"every": bytes(17)}, {"heads": b"\0\1"}, {"labels": bytes(9)},
    ):  # fmt: skip
        odd = records.msgspec.structs.replace(packed, **change)
        whole = records.VERSION + b"r" + records.msgspec.msgpack.encode(odd)
        assert read(OURS, WHO, whole + OURS.tag(WHO, whole)) is None, change


def test_too_large_a_record_is_not_kept(monkeypatch):
    """Nothing is written that would not be read."""
    monkeypatch.setattr(records, "LARGEST", 64)
    record = Record("resp_1", (item(1),) * 4, 1, (), 0, frozenset(), bytes(16), bytes(16), False)
    assert write(OURS, WHO, record) is None


@given(st.lists(facts, max_size=40), st.lists(facts, min_size=1, max_size=5))
def test_a_request_looks_where_its_parent_ends(held, new):
    """Whatever a client leaves out or puts in that a level allows, the end of a held history is among the places it asks for."""
    parent = extended(START, held)
    resent = [fact for fact in held if fact.kind not in {Kind.EMPTY, Kind.REASONING}]
    resent.insert(len(resent) // 2, item(7, Kind.EMPTY))
    found = ends([*resent, *new])
    assert parent in found or parent == START
    assert len(found) <= names.MOST_POSITIONS


def test_positions_are_asked_for_newest_first_and_bounded():
    """The parent that leaves least to send comes first; the last item is never a part of a parent."""
    items = [item(number) for number in range(names.MOST_POSITIONS + 50)]
    found = ends(items)
    assert found[0] == extended(START, items[:-1])
    assert found[1] == extended(START, items[:-2])
    assert len(found) == names.MOST_POSITIONS
    assert ends(items[:1]) == []


def test_references_are_looked_for_by_id():
    """With a reference among its items a request also asks by the ids of its last items; without one it does not."""
    named = [item(n, identifier=n.to_bytes(16, "big")) for n in range(20)]
    assert referred(named) == []
    found = referred([*named, item(99, Kind.REFERENCE, identifier=bytes(16))])
    assert found[0] == bytes(16)
    assert found[1] == named[-1].identifier
    assert len(found) == names.MOST_ITEMS


def test_names_keep_identities_and_kinds_apart():
    """The same thing of another identity, or another kind of thing, or another deployment, stands elsewhere."""
    same = bytes(16)
    other = Deployment(b"another secret of many characters", "1")
    found = {
        OURS.position(WHO, same), OURS.item(WHO, same), OURS.response(WHO, "\0" * 16), OURS.position(b"x" * 16, same),
        other.position(WHO, same), OURS.response(WHO, "resp_1"), OURS.response(b"x" * 16, "resp_1"),
    }  # fmt: skip
    assert len(found) == 7
    assert OURS.key(b"digests") not in {OURS.key(b"names"), other.key(b"digests")}


def test_other_rules_about_who_is_who_find_nothing():
    """The order of the rules does not matter, their number and their text do."""
    rules = [("a*", "b"), ("b", "a*"), ("a*",), ("a*b",), ()]
    found = []
    for each in rules:
        deployment = Deployment(b"a secret of thirty-two characters", "1")
        deployment.go_by(each)
        found.append(deployment.response(WHO, "resp_1"))
    assert found[0] == found[1]
    assert len(set(found)) == len(rules) - 1


def chain(*parts):
    """Records that stand on one another, oldest first, of one item each, under their numbers as names."""
    found = []
    for number, _ in enumerate(parts):
        before = tuple(each.response_id.encode().ljust(16) for each in reversed(found))
        found.append(
            Record(f"r{number}", (item(number),), 0, before, number, frozenset(), bytes(16), bytes(16), False)
        )
    return found


def test_a_record_is_joined_with_those_that_it_stands_on():
    """All items, oldest first; and it counts from there what its own request asked."""
    one, two, three = chain(1, 2, 3)
    whole = joined(three, [two, one])
    assert [fact.core[-1] for fact in whole.facts] == [0, 1, 2]
    assert whole.asked == 2
    assert joined(one, []) == one


def test_a_record_is_nothing_without_those_that_it_stands_on():
    """One that is gone, missing, of another kind, or made on something else ends it."""
    one, two, three = chain(1, 2, 3)
    for before in (
        [two, None],
        [None, one],
        [two, Gone()],
        [Gone(), one],
        [one, two],
        [two, Pointer(WHO)],
        [one, one],
    ):
        assert joined(three, before) is None, before
    alone = Record("r", (item(1),), 0, (WHO,), 0, frozenset(), bytes(16), bytes(16), False)
    assert joined(alone, [None]) == alone
    assert joined(alone, [Gone()]) is None


def test_names_of_fields_are_not_kept():
    """They are digests until a request with the same names comes; a name that it lacks stays unknown, and so forbids a delta."""
    fields = facts_of_fields(
        [Member("model", b'"gpt-5"'), Member("x_secret_project", b"1")], Digester(OURS.key(b"digests"))
    )
    record = Record(
        "resp_1",
        (),
        0,
        (),
        0,
        frozenset(label(OURS, n) for n in fields.names),
        fields.binding,
        fields.every,
        False,
    )
    assert b"x_secret_project" not in write(OURS, WHO, record)
    assert field_facts(OURS, record, ["x_secret_project", "model", "tools"]) == fields
    some: FieldFacts = field_facts(OURS, record, ["model"])
    assert len(some.names) == 2
    assert not some.names <= {"model", "tools"}
