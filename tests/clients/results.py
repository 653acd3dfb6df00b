"""The table of what became of the turns of each client, as it is printed and committed."""

from __future__ import annotations

from pathlib import Path

from tests.clients import installing

COMMITTED = Path(__file__).parent / "RESULTS.md"
HEAD = (
    "client", "version", "way", "match", "turns", "deltas", "other turns", "bytes in", "bytes sent",
)  # fmt: skip
INTRODUCTION = """# Real clients

Written by `make client-results`. Each client, unmodified and set up by its recipe in `config/clients`, plays the same session on the
simulated upstream twice: directly, and through the gateway with its base URL alone. Texts, tool calls and exit codes were equal, and
in each turn the upstream held what the client had asked for, by the measure of the `match` level.

A session is a user turn with three tool rounds, a follow-up with one in a new process or with a reloaded history (Cline, which
goes on with a session on a terminal only: one user turn with five), a turn interrupted in the middle of its text, and one more.
The turn after the interruption is `parent_lost` where nothing is stored: the gateway can stop an answer only by closing the
socket that holds the conversation. Bytes are those of request bodies from the client, and of all frames and bodies for them to the upstream.

- `text`: the application keeps texts and bare calls, no reasoning. At `lenient` the model keeps that reasoning.
- `chain`, and Agno where answers are stored: the client sends `previous_response_id` itself; nothing is left to save.
- Agno with `store` false drops what was said beside a call, so the turn after such an answer is sent in full.
- Cline leaves reasoning out and asks for `truncation: "auto"`, which is never continued from a held history.
- opencode asks for a title beside its first turn: a conversation of its own. It names the day in its prompt, so that a session that
  goes on the next day is sent in full once.

"""
NOT_RUN = """
Not run: aider, qwen-code and smolagents speak chat completions only. LiteLLM 1.110.2 cannot be installed with its proxy, because
the registry lacks the version of litellm-enterprise that it pins; 1.108.7 is the newest that can.
"""


def line_of(row, level, run):
    """The cells of one row."""
    turns, counted = run.stats["turns"], run.stats["bytes"]
    reasons = [f"{name} {count}" for name, count in run.stats["reasons"].items() if count]
    return (
        row.client,
        installing.version_of(row.pin),
        row.how,
        level,
        str(turns["total"]),
        str(turns["delta"]),
        ", ".join(reasons),
        str(counted["client_in"]),
        str(counted["upstream_out"]),
    )


def table(lines):
    """The lines as a Markdown table."""
    rows = [HEAD, ("---",) * len(HEAD), *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def write(lines):
    """Put the table where it is committed."""
    COMMITTED.write_text(INTRODUCTION + table(lines) + NOT_RUN, "utf-8")


def committed():
    """The committed lines by client, way and level."""
    text = COMMITTED.read_text("utf-8")
    cells = [tuple(cell.strip() for cell in line.strip("| \n").split("|")) for line in text.splitlines()]
    return {(row[0], row[2], row[3]): row for row in cells if len(row) == len(HEAD)}
