"""Faults that others met: each turn stores the whole history again."""

import asyncio
import gc
import tracemalloc

import orjson
import pytest

from gateway.conversation.digests import Digester
from gateway.conversation.fields import field_facts
from gateway.conversation.items import Level, facts_of
from gateway.conversation.plan import Rules
from gateway.conversation.request import Request
from gateway.store import Store, StoreLimits
from tests.faults.scenes import answers, body, call, output, said, scene, user

KEY = Digester(b"k" * 32)
RULES = Rules(Level.EQUIVALENT, any_change_is_full=False, chain_stored=True)
FIELDS = field_facts((), KEY)
OUTPUT_BYTES = 100_000
PER_TURN = 2
"""A call of the model's and its output."""
DAY = 86_400.0


def keep(limits, conversations, turns):
    """Play conversations of tool calls turn by turn, all at once, each turn continuing what the store finds."""
    store = Store(limits)
    histories = [[facts_of(orjson.dumps(user(f"task {n}")), KEY)] for n in range(conversations)]
    fulls = 0
    for turn in range(turns):
        for number, history in enumerate(histories):
            asked = Request((), (b"",) * len(history), tuple(history), FIELDS, "gpt-5", True, False, None)
            found = store.plan(b"me", asked, RULES).parents
            fulls += not found
            name = f"{number}.{turn}"
            made = facts_of(orjson.dumps(call(name)), KEY)
            store.add(
                b"me",
                response_id=name,
                base=found[0].transcript if found else None,
                sent=history[found[0].consumed if found else 0 :],
                answered=[made],
                fields=FIELDS,
                stored=False,
                now=float(turn),
            )
            data = name + "x" * OUTPUT_BYTES
            history += [made, facts_of(orjson.dumps(output(name, data)), KEY)]
    return store, fulls


@pytest.mark.parametrize(
    ("conversations", "turns"), [(10, 50), pytest.param(200, 50, marks=pytest.mark.slow)]
)
def test_b49_what_is_kept_grows_with_new_items_only(conversations, turns):
    """Each turn adds its own two items to what is kept, in a few hundred bytes each, whatever they hold."""
    limits = StoreLimits(responses=10_000, items=5_000_000, age=DAY)
    keep(limits, 1, 2)
    gc.collect()
    tracemalloc.start()
    store, fulls = keep(limits, conversations, turns)
    gc.collect()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert fulls == conversations
    assert (len(store), store.items) == (conversations * turns, conversations * turns * PER_TURN)
    assert used < 1500 * store.items
    assert used < conversations * turns * OUTPUT_BYTES / 30

    store.expire(turns + DAY)
    gc.collect()
    assert (len(store), store.items) == (0, 0)


def test_b49_the_caps_hold_and_the_oldest_go_first():
    """Beyond the cap on items conversations are let go, and each of them costs full turns from then on, nothing else."""
    store, fulls = keep(StoreLimits(responses=10_000, items=300, age=DAY), 10, 40)

    assert store.items <= 300
    assert store.evicted > 0
    assert fulls > 10
    assert len(store) <= 150


async def test_b49_an_evicted_conversation_costs_one_full_turn():
    """The turn after the eviction is answered in full, and those behind it are deltas again."""
    async with scene(answers(*([said(f"a{n}")] for n in range(20))), conversations=3) as run:
        history, modes = [user("mine")], []
        for turn in range(6):
            seen = await run.api.create(body(history))
            modes.append((seen.status, seen.mode))
            history = [*history, *seen.answer["output"], user(f"u{turn}")]
            if turn == 2:
                for other in range(4):
                    await run.api.create(body([user(f"other {other}")]))

        assert modes == [(200, mode) for mode in ("full", "delta", "delta", "full", "delta", "delta")]
        after = await run.stats()
        assert after["conversations"]["known"] <= 3
        assert after["conversations"]["evicted"] > 0


async def test_b49_an_idle_gateway_lets_go_of_everything():
    """When nobody comes any more for the longest time allowed, nothing of any conversation is kept, nor a socket."""
    async with scene(answers([said("a1")]), conversation_age=0.2, socket_idle=0.2) as run:
        await run.api.create(body([user("u1")]))
        assert (await run.stats())["conversations"]["known"] == 1
        async with asyncio.timeout(3):
            # Nothing announces it but the statistics, asked over HTTP.
            while (now := await run.stats())["conversations"]["known"] or now["connections"]["open"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert now["connections"]["closed"]["idle"] == 1
