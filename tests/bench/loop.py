"""One agent loop against one base address, over one kept-alive connection. Run as ``python -m tests.bench.loop SESSION HOST PORT``.

Prints as JSON how long it took, how long it waited for first events, and how many bytes of bodies it sent.
"""

from __future__ import annotations

import http.client
import json
import sys
import time

from tests.bench.simulated import SYNTHETIC, TURNS
from tests.laws.recorded import turns_of

_FIRST, _EACH = 50_000, 10_000


def text(size):
    line = "The quick brown fox jumps over the lazy dog, and writes it down in a file.\n"
    return (line * (size // len(line) + 1))[:size]


def synthetic():
    """Bodies of 30 turns: 50 KB, and 10 KB of a tool's output more each turn. A generator that is sent each answer's items."""
    tools = [{"type": "function", "name": "read_file", "parameters": {"type": "object"}, "strict": False}]
    fields = {"model": "m", "stream": True, "store": False, "tools": tools, "instructions": text(8000)}
    items = [{"type": "message", "role": "user", "content": text(_FIRST - 8000)}]
    headers = {"content-type": "application/json"}
    for _ in range(TURNS):
        body = json.dumps({**fields, "input": items}, separators=(",", ":")).encode()
        answered = yield body, headers
        items = [*items, *answered]
        items += [
            {"type": "function_call_output", "call_id": item["call_id"], "output": text(_EACH)}
            for item in answered
            if item["type"] == "function_call"
        ]


def recorded(name):
    """The bodies of a recorded session, as they were sent."""
    for turn in turns_of(name):
        yield turn.data, turn.headers


def run(session, host, port):
    connection = http.client.HTTPConnection(host, port, timeout=120)
    bodies = synthetic() if session == SYNTHETIC else recorded(session)
    waited, sent, turns, modes = 0.0, 0, 0, {}
    begun = time.perf_counter()
    body, headers = next(bodies)
    while True:
        asked = time.perf_counter()
        connection.request("POST", "/v1/responses", body, {**headers, "authorization": "Bearer bench"})
        answer = connection.getresponse()
        first = answer.read1(65_536)
        waited += time.perf_counter() - asked
        whole = first + answer.read()
        if answer.status != 200:
            raise SystemExit(f"{answer.status}: {whole[:300]!r}")
        mode = answer.headers.get("x-upwire-mode", "direct")
        modes[mode] = modes.get(mode, 0) + 1
        sent, turns = sent + len(body), turns + 1
        try:
            body, headers = bodies.send(items_in(whole))
        except StopIteration:
            break
    took = time.perf_counter() - begun
    return {"took": took, "waited": waited, "sent": sent, "turns": turns, "modes": modes}


def items_in(answer):
    """The items that an answer ended with, whether it was a stream or not."""
    if answer.startswith(b"{"):
        return json.loads(answer)["output"]
    events = [json.loads(part.partition(b"data: ")[2]) for part in answer.split(b"\n\n") if b"data: " in part]
    return next(e["response"]["output"] for e in events if e["type"] == "response.completed")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
