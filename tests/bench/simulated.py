"""The simulated upstream for one agent loop. Run as ``python -m tests.bench.simulated SESSION HOST OPTIONS``; prints its port."""

from __future__ import annotations

import asyncio
import json
import sys

from gateway.simulator import FunctionScript, Options, Simulator, TraceScript
from tests.laws.recorded import turns_of

SYNTHETIC = "synthetic"
TURNS = 30
_SAID = "The file has been read; the next step is to look at what it imports. " * 4


def script_of(session):
    """What the upstream answers: a tool call in each turn but the last, or what the recorded session was answered."""
    if session != SYNTHETIC:
        return TraceScript(turn.row for turn in turns_of(session))

    def answer(ask):
        turn = sum(1 for item in ask.context if item.get("type") == "function_call_output")
        if turn + 1 >= TURNS:
            text = {"type": "output_text", "text": _SAID, "annotations": []}
            return [{"type": "message", "role": "assistant", "status": "completed", "content": [text]}]
        arguments = json.dumps({"path": f"src/part_{turn}.py", "why": _SAID})
        return [
            {"type": "function_call", "call_id": f"call_{turn}", "name": "read_file", "status": "completed",
             "arguments": arguments}
        ]  # fmt: skip

    return FunctionScript(answer)


async def main():
    session, host, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    simulator = Simulator(Options(**options), script_of(session))
    await simulator.start(host, 0)
    sys.stdout.write(simulator.url.removesuffix("/v1").rpartition(":")[2] + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
