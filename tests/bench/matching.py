"""What finding the known part of a body costs, against ``orjson.loads`` of the same body; and what remembering it takes.

Run as ``python -m tests.bench.matching WHAT``, in a process of its own; prints JSON.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time
import tracemalloc
from pathlib import Path

import orjson

from gateway.conversation.arriving import Body
from gateway.conversation.digests import Digester
from gateway.conversation.fields import field_facts
from gateway.conversation.items import Level, facts_of
from gateway.conversation.plan import Rules
from gateway.conversation.reading import Reader
from gateway.store import Store, StoreLimits

_DIGESTER = Digester(b"k" * 32)
_RULES = Rules(Level.EQUIVALENT, any_change_is_full=False, chain_stored=True)
_WORDS = (
    "alpha", "beta", "naïve", "Zürich", "\n", '"quoted"', '{"a": 1}', "path/to/file.py", "\t", "x = y + 1", "😀", "def f(a, b):",
)  # fmt: skip
_ME = b"me"


def history(items, size):
    """Items of an agent's session, ``size`` bytes each or so: messages, reasoning, calls and their outputs."""
    dice = random.Random(items)

    def text(length):
        parts, long = [], 0
        while long < length:
            parts.append(dice.choice(_WORDS))
            long += len(parts[-1]) + 1
        return " ".join(parts)

    made = []
    for at in range(max(1, items // 4)):
        arguments = json.dumps({"text": text(size // 2), "n": at, "list": [{"x": x} for x in range(10)]})
        made += [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text(size)}]},
            {"id": f"rs_{at}", "type": "reasoning", "summary": [], "encrypted_content": "gAAA" * (size // 4)},
            {"id": f"fc_{at}", "type": "function_call", "status": "completed", "name": "f", "call_id": f"c{at}",
             "arguments": arguments},
            {"type": "function_call_output", "call_id": f"c{at}", "output": text(size)},
        ]  # fmt: skip
    return made[: max(2, items)]


def written(items, *, spaced=False):
    tools = [{"type": "function", "name": f"f{n}", "parameters": {"a": "b" * 400}} for n in range(10)]
    fields = {"model": "m", "instructions": "i" * 4000, "tools": tools, "store": False, "stream": True}
    if spaced:
        return json.dumps({**fields, "input": items}).encode()
    return json.dumps({**fields, "input": items}, ensure_ascii=False, separators=(",", ":")).encode()


def best(work, rounds):
    """Microseconds of processor time, the least of some rounds."""
    times = []
    for _ in range(rounds):
        begun = time.process_time_ns()
        work()
        times.append(time.process_time_ns() - begun)
    return min(times) / 1000


class Scene:
    """A store that knows a history, and the body of the turn that continues it."""

    def __init__(self, items, size):
        held = history(items, size)
        self.reader, self.store = Reader(_DIGESTER), Store(StoreLimits(10**6, 10**9, 1e9))
        known = self.reader.read(written(held[:-1]))
        answered = json.dumps(held[-1], ensure_ascii=False).encode()
        self.store.add(
            _ME, response_id="r", base=None, sent=known.facts, answered=[self.reader.facts(answered)],
            fields=known.fields, stored=False, now=1.0, spelling=known.spelling,
        )  # fmt: skip
        self.count = len(held)
        more = [*held, {"role": "user", "content": "more"}]
        self.same, self.other = written(more), written(more, spaced=True)
        self.pieces = [self.same[at : at + 131_072] for at in range(0, len(self.same), 131_072)]

    def repeats(self):
        """The client sends the same bytes again, and more: tier 1."""
        body = Body(_ME, self.store.scan(_ME, _DIGESTER.running()))
        for piece in self.pieces:
            body.feed(piece)
        self._planned(self.reader.read(body))

    def respells(self):
        """The client writes its history in another spelling than was seen to end a turn: tier 2."""
        self._planned(self.reader.read(self.other))

    def unseen(self):
        """Every item comes in a spelling never seen: tier 3."""
        self._planned(Reader(_DIGESTER).read(self.other))

    def _planned(self, request):
        found = self.store.plan(_ME, request, _RULES)
        if not found.parents or found.parents[0].consumed != self.count:
            raise RuntimeError("the history was not recognised")


def diff(rounds=7):
    """The two rows of the table, and tier 3, which one turn meets for its new items only."""
    scene = Scene(2000, 2300)
    same, other = (best(lambda b=body: orjson.loads(b), rounds) for body in (scene.same, scene.other))
    scene.respells()
    return {
        "bytes": len(scene.same),
        "repeats": best(scene.repeats, rounds) / same,
        "respells": best(scene.respells, rounds) / other,
        "unseen": best(scene.unseen, max(2, rounds // 3)) / other,
    }


def curve(rounds=5):
    """Processor time of one turn's reading and planning from 20 KB to 50 MB, in us."""
    rows = []
    for items, size in ((10, 2000), (40, 2400), (200, 2400), (2000, 2400), (20_000, 200), (20_000, 2400)):
        scene = Scene(items, size)
        scene.respells()
        n = rounds if items < 20_000 else 3
        loads = best(lambda s=scene: orjson.loads(s.same), n)
        rows.append(
            {"bytes": len(scene.same), "items": scene.count, "loads": loads, "repeats": best(scene.repeats, n),
             "respells": best(scene.respells, n), "unseen": best(scene.unseen, 1)}
        )  # fmt: skip
    return rows


def memory(conversations, items, turns):
    """Bytes for each conversation of ``items`` items that grew in ``turns`` turns."""
    fields, each = field_facts((), _DIGESTER), items // turns
    gc.collect()
    store = Store(StoreLimits(10**9, 10**9, 1e9))

    def fact(name, at):
        kinds = (
            {"role": "user", "content": name},
            {"type": "reasoning", "id": f"rs_{name}", "summary": [], "encrypted_content": name},
            {"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": name, "output": "x"},
        )
        return facts_of(orjson.dumps(kinds[at % 4]), _DIGESTER)

    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(conversations):
        base = None
        for turn in range(turns):
            new = [fact(f"{number}.{turn}.{at}", at) for at in range(each)]
            base = store.add(
                _ME, response_id=f"resp_{number:020}{turn:020}", base=base, sent=new[:-1], answered=new[-1:],
                fields=fields, stored=False, now=0.0,
            )  # fmt: skip
    new = base = None
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return taken / conversations


def resident(conversations=10_000, items=500):
    """Bytes by which the process grows for that many conversations, each of one long turn: the row of the table, in full."""

    def now():
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    fields = field_facts((), _DIGESTER)
    store = Store(StoreLimits(10**9, 10**9, 1e9))
    gc.collect()
    before = now()
    for number in range(conversations):
        new = [
            facts_of(
                b'{"type":"reasoning","summary":[],"encrypted_content":"%d.%d"}' % (number, at)
                if at % 4 == 1
                else b'{"role":"user","content":"%d.%d"}' % (number, at),
                _DIGESTER,
            )
            for at in range(items)
        ]
        store.add(
            _ME, response_id=f"resp_{number:048}", base=None, sent=new[:-1], answered=new[-1:], fields=fields,
            stored=False, now=0.0,
        )  # fmt: skip
    gc.collect()
    return now() - before


_WHAT = {
    "diff": diff,
    "curve": curve,
    "memory": lambda: {"one turn": memory(300, 500, 1), "125 turns": memory(100, 500, 125)},
    "resident": resident,
}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_WHAT[sys.argv[1]]()))
