"""What all drivers do: play each step with the history of the one before, stored as JSON in between, and print what came."""

import asyncio
import json
import sys

INSTRUCTIONS = "You are a helpful weather bot."
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["c", "f"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
PATIENCE = 1.0
"""Seconds after which a step that is to be interrupted is given up, where nothing of the answer shows before its end."""


class Interrupted(Exception):
    """The user has pressed stop."""


def mode():
    """The way in which this run uses the library."""
    return sys.argv[1]


def steps():
    """The user's texts, each with whether its turn is to be interrupted."""
    return [(text, "stall" in text) for text in sys.argv[2:]]


def weather(city, unit="c"):
    """The one tool: what it says depends on nothing but what it is asked."""
    return json.dumps({"ok": True, "city": city, "unit": unit})


def say(text, calls):
    """Print what one step gave: the final text, and the calls as name and argument text."""
    sys.stdout.write(json.dumps({"text": text, "calls": calls}, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def play(step):
    """Run ``step(history, text, interrupt)``, which gives the new history, final text and calls, for each step.

    A step that was interrupted leaves the history as the application keeps it: here, with the user's text only.
    """
    kept = "[]"
    for text, interrupt in steps():
        try:
            history, said, calls = step(json.loads(kept), text, interrupt)
        except Interrupted:
            say("interrupted", [])
            continue
        if interrupt:
            raise SystemExit("the turn was to be interrupted, and ended by itself")
        say(said, calls)
        kept = json.dumps(history)


def play_in_loop(step):
    """``play`` for a coroutine function; one event loop for all steps, since libraries keep connections that belong to it."""
    with asyncio.Runner() as runner:
        play(lambda *step_arguments: runner.run(step(*step_arguments)))
