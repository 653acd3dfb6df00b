"""How much memory the store says that it takes, compared with what it takes."""

import gc
import tracemalloc

import pytest

from gateway.conversation.items import facts_of
from gateway.store import Store, StoreLimits
from tests.conversation.histories import DIGESTER, request, user

ME = b"me"


@pytest.mark.parametrize(
    ("conversations", "turns", "items"),
    [(300, 1, 1), (30, 10, 4), (3, 100, 4), (10, 30, 20)],
    ids=["single turns", "short", "long", "many tool calls a turn"],
)
def test_the_size_told_is_about_the_memory_taken(conversations, turns, items):
    """Whatever the shape of conversations, the estimate is within a factor of two."""
    book = Store(StoreLimits(responses=10**6, items=10**9, age=1e9))
    request([user("warm up")], store=False, model="m")
    tracemalloc.start()
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for conversation in range(conversations):
        base = None
        for turn in range(turns):
            made = request([user(f"{conversation}.{turn}.{n}") for n in range(items)], store=False)
            raw = f'{{"type":"message","role":"assistant","content":"{conversation}.{turn}"}}'.encode()
            base = book.add(
                ME, response_id=f"resp_{conversation:020}{turn:020}", base=base, sent=made.facts,
                answered=[facts_of(raw, DIGESTER)], fields=made.fields, stored=False, now=0.0,
            )  # fmt: skip
    del made, base
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert taken / 2 < book.size < taken * 2, (taken, book.size, len(book), book.items)
