"""The store: bounded by count, items and age, sharing what conversations share, forgetting what was deleted."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from gateway.conversation.items import Level
from gateway.conversation.plan import Rules
from gateway.conversation.transcripts import Segment
from gateway.store import Store, StoreLimits
from tests.conversation.histories import facts, request, said, user

ME = b"me"
RULES = Rules(Level.EQUIVALENT, any_change_is_full=False, chain_stored=True)


def add(store, name, items, answer, *, base=None, now=0.0, identity=ME, stored=True):
    made = request(items, store=stored)
    return store.add(
        identity, response_id=name, base=base, sent=made.facts, answered=facts(answer), fields=made.fields,
        stored=stored, now=now,
    )  # fmt: skip


def names(store, items, identity=ME):
    return [match.transcript.response_id for match in store.plan(identity, request(items), RULES).parents]


def store(responses=1000, items=10**6, age=1e9):
    return Store(StoreLimits(responses=responses, items=items, age=age))


def conversation(number, turns):
    """A conversation as the list of its items, two of the client's and one of the API's per turn."""
    return [
        item
        for turn in range(turns)
        for item in (user(f"{number}.{turn}"), user("same"), said(f"answer {number}.{turn}"))
    ]


def test_the_least_recently_used_response_goes_first():
    """Beyond the limit of responses the one that was continued longest ago is dropped."""
    book = store(responses=2)
    first = add(book, "r1", [user("1")], [said("a")])
    add(book, "r2", [user("2")], [said("b")])
    book.touch(ME, first, 5.0)
    add(book, "r3", [user("3")], [said("c")])

    assert book.evicted == 1
    assert names(book, [user("1"), said("a"), user("x")]) == ["r1"]
    assert names(book, [user("2"), said("b"), user("x")]) == []


def test_items_bound_the_store_and_shared_items_count_once():
    """A growing conversation costs its new items only, whichever way its turns were sent."""
    book = store(items=50)
    base = None
    for turn in range(1, 12):
        history = conversation(0, turn)
        sent = history[3 * (turn - 1) : -1] if turn % 2 else history[:-1]
        base = add(book, f"r{turn}", sent, history[-1:], base=base if turn % 2 else None)

    assert book.items == 3 * 11
    assert book.evicted == 0
    add(book, "other", conversation(1, 10)[:-1], conversation(1, 10)[-1:])
    assert book.items <= 50
    assert book.evicted > 0


def test_unused_conversations_expire():
    """What was not used for the age limit is dropped, and with it its memory."""
    book = store(age=10.0)
    add(book, "r1", [user("1")], [said("a")], now=0.0)
    add(book, "r2", [user("2")], [said("b")], now=8.0)
    book.expire(11.0)

    assert len(book) == 1
    book.expire(19.0)
    assert (len(book), book.items) == (0, 0)


def test_deleting_a_response_drops_what_is_chained_through_it_and_nothing_else():
    """Transcripts that stand on a deleted response cannot be continued; siblings can."""
    book = store()
    first = add(book, "r1", [user("1")], [said("a")])
    second = add(book, "r2", [user("2")], [said("b")], base=first)
    add(book, "r3", [user("3")], [said("c")], base=second)
    add(book, "s2", [user("other")], [said("b")], base=first)
    book.delete(ME, "r2")

    assert [book.get(ME, name) is not None for name in ("r1", "r2", "r3", "s2")] == [True, False, False, True]
    book.delete(b"someone else", "r1")
    assert book.get(ME, "r1") is not None
    book.delete(ME, "r1")
    assert (len(book), book.items) == (0, 0)


def test_deleting_counts_chains_through_evicted_responses():
    """A chain is broken by a deleted link even if the link itself was no longer kept."""
    book = store()
    first = add(book, "r1", [user("1")], [said("a")])
    second = add(book, "r2", [user("2")], [said("b")], base=first)
    add(book, "r3", [user("3")], [said("c")], base=second)
    book.forget(ME, "r1")
    book.delete(ME, "r1")

    assert len(book) == 0


def test_nothing_is_recorded_on_a_parent_that_was_dropped_meanwhile():
    """What the upstream holds is not known any more, so the next turn must be full."""
    book = store()
    first = add(book, "r1", [user("1")], [said("a")])
    book.delete(ME, "r1")

    assert add(book, "r2", [user("2")], [said("b")], base=first) is None
    assert (len(book), book.items) == (0, 0)


def test_the_same_response_id_in_two_identities_is_two_responses():
    """Identities do not see, share or delete each other's responses."""
    book = store()
    add(book, "r1", [user("1")], [said("a")], identity=b"one")
    add(book, "r1", [user("2")], [said("b")], identity=b"two")
    book.delete(b"one", "r1")

    assert book.get(b"one", "r1") is None
    assert book.get(b"two", "r1") is not None


def test_random_growth_and_eviction_leave_the_tree_whole():
    """After any order of turns and removals what is left is found, what is gone is not, and the item count is the tree's."""
    random = Random(7)
    book = store(responses=60)
    known = {}
    for step in range(1500):
        name = f"r{step}"
        base_name = random.choice([None, *known]) if known else None
        base, history = known.get(base_name, (None, []))
        if base is not None and book.get(ME, base_name) is not base:
            base, history = None, []
        new, answer = [user(str(random.randrange(4)))], [said(str(random.randrange(3)))]
        if random.random() < 0.3:
            base, new = None, history + new
            history = []
        made = add(book, name, new, answer, base=base, now=float(step))
        known[name] = (made, history + new + answer)
        if random.random() < 0.2:
            book.delete(ME, random.choice(list(known)))

    alive = {
        name: held for name, held in known.items() if book.get(ME, name) is held[0] and held[0] is not None
    }
    assert alive
    for name, (transcript, history) in alive.items():
        assert [replace(fact, identifier=None) for fact in transcript.held()] == facts_without_ids(history)
        assert name in names(book, [*history, user("more")])
    assert book.items == tree_items(book)
    for name in list(alive):
        book.forget(ME, name)
    assert (len(book), book.items) == (0, 0)


def facts_without_ids(history):
    return [replace(fact, identifier=None) for fact in facts(history)]


def tree_items(book):
    def count(segment: Segment) -> int:
        return len(segment.facts) + sum(count(child) for fork in segment.branches.values() for child in fork)

    return sum(count(realm.tree.root) for realm in book._realms.values())


def test_fewer_conversations_than_are_kept():
    """A lower limit drops the oldest at once."""
    book = store()
    for number in range(5):
        add(book, f"r{number}", [user(str(number))], [said("a")])
    book.reconfigure(StoreLimits(responses=2, items=10**6, age=1e9), 0.0)
    assert (len(book), book.evicted) == (2, 3)
