"""The plan: what the upstream holds of a request, found among many branches, and the reason where it holds nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.conversation.items import Level, equal
from gateway.conversation.plan import Rules
from gateway.conversation.reasons import Reason
from gateway.store import Store, StoreLimits
from tests.conversation.histories import EMPTY, facts, reference, request, said, thought, user

ME, OTHER = b"me", b"other"


def rules(level=Level.EQUIVALENT, *, any_change_is_full=False, chain_stored=True):
    return Rules(level, any_change_is_full=any_change_is_full, chain_stored=chain_stored)


class Book:
    """A store with a clock that ticks once per response."""

    def __init__(self):
        self.store = Store(StoreLimits(responses=1000, items=10**6, age=1e9))
        self.now = 0.0

    def hold(self, name, items, answer, *, base=None, **fields):
        """Record that the upstream holds ``items`` and answered with ``answer``."""
        self.now += 1
        made = request(items or [user("")], **fields)
        sent = made.facts if items else ()
        return self.store.add(
            ME, response_id=name, base=base, sent=sent, answered=facts(answer), fields=made.fields,
            stored=made.store, now=self.now,
        )  # fmt: skip

    def plan(self, items, level=Level.EQUIVALENT, identity=ME, **fields):
        return self.store.plan(identity, request(items, **fields), rules(level))

    def found(self, items, level=Level.EQUIVALENT, **fields):
        """The parents by name with how many items each stands for, or the reason that there is none."""
        plan = self.plan(items, level, **fields)
        return [(m.transcript.response_id, m.consumed) for m in plan.parents] or plan.reason


U1, U2, A1 = user("one"), user("two"), said("answer", phase="final_answer")


def test_the_longest_held_beginning_is_the_parent_and_shorter_ones_follow():
    """All transcripts that are beginnings of the request are offered, the longest first."""
    book = Book()
    first = book.hold("r1", [U1], [A1])
    book.hold("r2", [U2], [said("more")], base=first)

    assert book.found([U1, A1, U2, said("more"), user("three")]) == [("r2", 4), ("r1", 2)]


def test_a_known_history_without_new_items_is_no_delta_of_nothing():
    """A request that equals a transcript falls back to the next older parent, else to a full turn."""
    book = Book()
    first = book.hold("r1", [U1], [A1])
    book.hold("r2", [U2], [said("more")], base=first)

    assert book.found([U1, A1, U2, said("more")]) == [("r1", 2)]
    assert book.found([U1, A1]) == Reason.NO_NEW_ITEMS


def test_each_branch_finds_its_own_parent():
    """Two histories that differ in one earlier item never share a parent."""
    book = Book()
    book.hold("r1", [U1, user("left")], [A1])
    book.hold("r2", [U1, user("right")], [A1])

    assert book.found([U1, user("left"), A1, U2]) == [("r1", 3)]
    assert book.found([U1, user("right"), A1, U2]) == [("r2", 3)]
    assert book.found([U1, user("middle"), A1, U2]) == Reason.NEW_CONVERSATION


def test_a_changed_history_is_told_from_a_new_one():
    """It counts as changed when it agreed through an item of an answer."""
    book = Book()
    book.hold("r1", [U1], [said("a"), said("b")])

    assert book.found([U1, said("a"), said("B"), U2]) == Reason.HISTORY_CHANGED
    assert book.found([U1, said("A"), said("b"), U2]) == Reason.NEW_CONVERSATION


def test_phase_left_out_finds_only_the_answer_and_a_wrong_phase_finds_nothing():
    """Two answers that differ in phase only are both found without it, and told apart with it."""
    book = Book()
    book.hold("r1", [U1], [said("a", phase="commentary")])
    book.hold("r2", [U1], [said("a", phase="final_answer")])

    assert book.found([U1, said("a"), U2]) == [("r2", 2), ("r1", 2)]
    assert book.found([U1, said("a", phase="commentary"), U2]) == [("r1", 2)]
    assert book.found([U1, said("a", phase="other"), U2]) == Reason.NEW_CONVERSATION
    assert book.found([U1, said("a"), U2], Level.EXACT) == Reason.NEW_CONVERSATION


@pytest.mark.parametrize("inserted", [[EMPTY], [EMPTY, EMPTY]])
def test_an_inserted_empty_message_is_part_of_what_is_held(inserted):
    """Empty assistant messages of the client's own, also right behind the match, are never sent again."""
    book = Book()
    book.hold("r1", [U1], [thought(), A1])

    assert book.found([U1, *inserted, thought(), A1, U2]) == [("r1", 3 + len(inserted))]
    assert book.found([U1, thought(), A1, *inserted, U2]) == [("r1", 3 + len(inserted))]
    assert book.found([U1, thought(), A1, *inserted]) == Reason.NO_NEW_ITEMS
    assert book.found([U1, thought(), A1, *inserted, U2], Level.EXACT) == [("r1", 3)]


def test_an_empty_message_of_the_upstream_may_be_left_out():
    """A held assistant message without text may be missing, also at the end."""
    book = Book()
    book.hold("r1", [U1], [said(""), A1, said("", name="msg_9")])

    assert book.found([U1, A1, U2]) == [("r1", 2)]
    assert book.found([U1, A1, U2], Level.EXACT) == Reason.NEW_CONVERSATION


def test_reasoning_left_out_is_named_as_the_only_cause():
    """At equivalent the reason says so, at lenient it is a delta."""
    book = Book()
    book.hold("r1", [U1], [thought(), A1])

    assert book.found([U1, A1, U2]) == Reason.REASONING_OMITTED
    assert book.found([U1, A1, U2], Level.LENIENT) == [("r1", 2)]
    assert book.found([U1, said("other"), U2]) == Reason.NEW_CONVERSATION


def test_trailing_reasoning_left_out_is_not_equivalent():
    """A response that ended in reasoning is not continued by a client that dropped it."""
    book = Book()
    book.hold("r1", [U1], [A1, thought()])

    assert book.found([U1, A1, U2]) == Reason.REASONING_OMITTED
    assert book.found([U1, A1, U2], Level.LENIENT) == [("r1", 2)]


def test_references_stand_for_stored_items_of_the_same_transcript():
    """Known ids match where the response was stored, others nowhere."""
    book = Book()
    book.hold("r1", [U1], [thought("rs_1"), said("a", name="msg_1")])
    book.hold("r2", [user("x")], [said("a", name="msg_2")])

    assert book.found([U1, reference("rs_1"), reference("msg_1"), U2]) == [("r1", 3)]
    assert book.found([U1, reference("rs_1"), reference("msg_2"), U2]) == Reason.HISTORY_CHANGED
    assert book.found([U1, reference("rs_x"), reference("msg_1"), U2]) == Reason.NEW_CONVERSATION
    assert book.found([U1, reference("rs_1"), reference("msg_1"), U2], Level.EXACT) == Reason.NEW_CONVERSATION


def test_references_never_stand_for_items_that_were_not_stored():
    """With store false an item_reference resolves nowhere, so it matches nothing."""
    book = Book()
    book.hold("r1", [U1], [thought("rs_1"), said("a")], store=False)

    assert book.found([U1, reference("rs_1"), said("a"), U2], store=False) == Reason.NEW_CONVERSATION
    assert book.found([U1, reference("rs_1"), said("a"), U2]) == Reason.NEW_CONVERSATION


def test_a_reference_that_was_sent_is_matched_as_it_was_sent():
    """After a full resend with references the transcript holds them in that spelling."""
    book = Book()
    book.hold("r2", [U1, reference("msg_1"), U2], [said("b", name="msg_2")])

    assert book.found([U1, reference("msg_1"), U2, reference("msg_2"), user("3")]) == [("r2", 4)]


def test_another_identity_finds_nothing():
    """The same items of another identity are a new conversation."""
    book = Book()
    book.hold("r1", [U1], [A1])

    assert book.plan([U1, A1, U2], identity=OTHER).parents == ()
    assert book.plan([U1, A1, U2], identity=OTHER).reason is Reason.NEW_CONVERSATION


def test_the_clients_own_parent_and_settings_that_forbid_chaining_come_first():
    """A client's own previous_response_id is kept; stored turns can be kept from chaining."""
    book = Book()
    book.hold("r1", [U1], [A1])

    assert book.found([U1, A1, U2], previous_response_id="resp_x") == Reason.CLIENT_PARENT
    never = book.store.plan(ME, request([U1, A1, U2]), rules(chain_stored=False))
    assert never.reason is Reason.DISABLED
    assert (
        book.store.plan(ME, request([U1, A1, U2], store=False), rules(chain_stored=False)).reason
        is Reason.SETTINGS_CHANGED
    )


words = st.sampled_from(["a", "b", "c"])
items = st.one_of(
    words.map(user),
    st.builds(said, words, st.sampled_from([None, "p", "q"])),
    st.builds(thought, st.sampled_from(["rs_1", "rs_2"]), st.sampled_from([None, "e1", "e2"])),
    st.just(EMPTY),
)
histories = st.lists(items, min_size=1, max_size=6)


@given(
    st.lists(st.tuples(histories, histories), max_size=5),
    histories,
    st.sampled_from([Level.EXACT, Level.EQUIVALENT]),
)
def test_what_a_parent_holds_and_the_new_items_are_what_was_asked_for(held, asked, level):
    """The context law: each parent's items equal the consumed items one by one, but for skips, and new items remain."""
    book = Book()
    for number, (sent, answer) in enumerate(held):
        book.hold(f"r{number}", sent, answer)
    wanted = request(asked)
    for match in book.store.plan(ME, wanted, rules(level)).parents:
        assert 0 < match.consumed < len(wanted.facts)
        assert aligned(wanted.facts[: match.consumed], match.transcript.held(), level)


@given(histories, histories, histories)
def test_what_was_answered_and_resent_is_found(sent, answer, more):
    """A client that appends to what it holds continues its own response, whatever the items are."""
    book = Book()
    book.hold("r1", sent, answer)
    wanted = [*sent, *answer, *more]
    if all(fact.kind.name == "EMPTY" for fact in facts(more)):
        return

    assert ("r1", len(sent) + len(answer)) == (
        book.found(wanted)[0][0],
        min(book.found(wanted)[0][1], len(sent + answer)),
    )


def aligned(asked, held, level):
    """Whether two histories are equal item by item, with nothing skipped but empty assistant messages above exact."""
    if level is not Level.EXACT:
        asked = [fact for fact in asked if fact.kind.name != "EMPTY"]
        held = [fact for fact in held if fact.kind.name != "EMPTY"]
    return len(asked) == len(held) and all(equal(a, h, level) for a, h in zip(asked, held, strict=True))
