"""Real clients, recorded turn by turn, replayed through the gateway against an upstream that answers as it did then."""

from __future__ import annotations

import sys

import pytest

from gateway.simulator import Options, TraceScript
from tests.gateways import Api, running_gateway, running_simulator
from tests.laws.recorded import Turn, trace_names, turns_of

FIRST = "new_conversation"
DELTA = "delta"

# Clients that resend no reasoning: opt-in at `lenient`, since the model then keeps what they left out.
WITHOUT_REASONING = ("cline-3.0.65", "openai-python-responses-outputtext-3.57.0")
CHAINING = ("openai-python-responses-prev-3.57.0",)
# It keeps only the final text of a user turn, so the fourth request lacks the tool steps of the first three.
LOSES_STEPS = ("vercel-ai-textonly-7.0.173+4.0.118",)
# Its first request asks for a title, beside the conversation.
TITLE_FIRST = ("opencode-1.18.33",)

# What `exact` does not accept: references in place of items, a summary cut to its last part, a phase left out (a history that
# was sent in full once without it then matches itself; with store false its parent may be superseded on its socket by then).
AT_EXACT = {
    "opencode-1.18.33": [FIRST] * 7,
    "vercel-ai-default-7.0.173+4.0.118": [FIRST] * 6,
    "vercel-ai-textonly-7.0.173+4.0.118": [FIRST] * 6,
    "pydantic-ai-responses-2.68.0": [FIRST, "history_changed", DELTA, DELTA, DELTA, DELTA],
    "pydantic-ai-stateless-2.68.0": [
        FIRST, "history_changed", DELTA, "parent_superseded", "parent_superseded", DELTA,
    ],
    "pydantic-ai-stream-2.68.0": [
        FIRST, "history_changed", DELTA, "parent_superseded", "parent_superseded", DELTA,
    ],
    "cline-3.0.65": [FIRST] * 3,
    "openai-python-responses-outputtext-3.57.0": [FIRST] * 6,
}  # fmt: skip


def expected(name, level, turns):
    """What becomes of each turn: ``delta``, or the reason why not."""
    later = len(turns) - 1
    if name in CHAINING:
        return [FIRST, *["client_parent"] * later]
    if level == "exact":
        return AT_EXACT.get(name, [FIRST, *[DELTA] * later])
    if name in WITHOUT_REASONING and level == "equivalent":
        return [FIRST, *["reasoning_omitted"] * later]
    if name == "cline-3.0.65":
        # It also asks for truncation "auto": the API may then drop items from a held history by other measure than from a
        # history sent whole, so a matching parent is never continued.
        return [FIRST, *["settings_changed"] * later]
    if name in LOSES_STEPS:
        lost = FIRST if level == "equivalent" else "history_changed"
        return [FIRST, DELTA, DELTA, lost, DELTA, DELTA]
    if name in TITLE_FIRST:
        return [FIRST, FIRST, *[DELTA] * (later - 1)]
    return [FIRST, *[DELTA] * later]


async def replay(turns, level):
    """What the client saw of each turn, the frames that came of it, and the upstream."""
    script = TraceScript([turn.row for turn in turns])
    async with (
        running_simulator(Options(), script) as upstream,
        running_gateway(upstream.url, match=level) as gateway,
        Api(gateway.url) as client,
    ):
        answers = [await client.create(data=turn.data, headers=turn.headers) for turn in turns]
        asked = [upstream.digest_of(turn.body["input"]) for turn in turns]
        return answers, upstream.journal, asked


@pytest.mark.parametrize("level", ["exact", "equivalent", "lenient"])
@pytest.mark.parametrize("name", trace_names())
async def test_recorded_turns_become_deltas_of_exactly_the_new_items(name, level):
    """Each turn has the mode that the level promises for this client, and its frame is what the client asked for, no more."""
    turns = turns_of(name)

    answers, journal, asked = await replay(turns, level)

    outcome = [answer.reason or answer.mode for answer in answers]
    assert outcome == expected(name, level, turns)
    frames = journal.creates()
    assert [frame.transport for frame in frames] == ["ws"] * len(turns)
    for number, (turn, answer, frame) in enumerate(zip(turns, answers, frames, strict=True)):
        assert answer.status == 200
        assert answer.answer["output"] == turn.output
        assert answer.answer["previous_response_id"] == turn.body.get("previous_response_id")
        check_frame(turn, frame)
        if answer.mode == DELTA:
            check_delta(turns[:number], turn, frame, level, lenient=name in WITHOUT_REASONING)
        else:
            assert frame.items == turn.body["input"]
            assert frame.parent == turn.body.get("previous_response_id")
        if name not in CHAINING:
            check_context(frame.digests, asked[number], level)


def check_frame(turn, frame):
    """Every field but the history goes up as the client wrote it."""
    travelling = {"type", "stream", "input", "previous_response_id"}
    sent = {key: value for key, value in frame.body.items() if key not in travelling}
    assert sent == {key: value for key, value in turn.body.items() if key not in travelling}


def check_delta(earlier: list[Turn], turn, frame, level, *, lenient):
    """The parent is a turn of this conversation, above ``exact`` the last one, and all behind it is sent, and only that."""
    parent = next(one for one in earlier if one.row["reply"]["id"] == frame.parent)
    assert level == "exact" or parent is earlier[-1]
    new = turn.new_items(parent, without_reasoning=lenient)
    assert new
    assert frame.items == new


def check_context(held, asked, level):
    """The upstream answered in the context that the client asked for, at the measure of the level."""
    assert held.loose == asked.loose
    if level != "lenient":
        assert held.modulo == asked.modulo
    if level == "exact":
        assert held.strict == asked.strict


async def test_the_table_at_exact(capsys):
    """At ``exact`` every client that resends what it was given, to the letter, gets deltas from its second turn on."""
    table = {}
    for name in trace_names():
        answers, _, _ = await replay(turns_of(name), "exact")
        table[name] = "".join("d" if answer.mode == DELTA else "f" for answer in answers)
    with capsys.disabled():
        sys.stdout.write("".join(f"\n  {name:50} {modes}" for name, modes in table.items()))
    assert {name: modes for name, modes in table.items() if modes != "fddddd"} == {
        "cline-3.0.65": "fff",
        "openai-python-responses-outputtext-3.57.0": "ffffff",
        "openai-python-responses-prev-3.57.0": "ffffff",
        "opencode-1.18.33": "fffffff",
        "pydantic-ai-responses-2.68.0": "ffdddd",
        "pydantic-ai-stateless-2.68.0": "ffdffd",
        "pydantic-ai-stream-2.68.0": "ffdffd",
        "vercel-ai-default-7.0.173+4.0.118": "ffffff",
        "vercel-ai-textonly-7.0.173+4.0.118": "ffffff",
    }
    assert len(table) == 28


async def test_a_compressed_body_is_the_same_turn():
    """The client that compresses its bodies gets the deltas, and the upstream the decoded bodies."""
    turns = turns_of("codex-chatgptauth-0.171.0")
    assert all(
        turn.headers["Content-Encoding"] == "zstd" and not turn.data.startswith(b"{") for turn in turns
    )

    answers, journal, _ = await replay(turns, "equivalent")

    assert [answer.mode for answer in answers] == ["full", *[DELTA] * (len(turns) - 1)]
    assert journal.creates()[0].body["tools"] == turns[0].body["tools"]
    assert "content-encoding" not in journal.opened()[0].headers
