"""Faults that others met: reasoning and its message as a pair, closing events that list too little or the wrong thing."""

import openai
import pytest

from gateway.simulator import Fault, Options, Reply
from gateway.simulator import faults as f
from tests.faults.scenes import TOOLS, Scene, answers, body, call, finished, output, said, scene, user
from tests.gateways import Api, running_gateway, running_simulator

# -- B46

REASONING = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "thinking"}]}
HABITS = {
    "whole": lambda made: made,
    "message with id": lambda made: made[1:],
    "message without id": lambda made: [{k: v for k, v in made[1].items() if k != "id"}],
}


@pytest.mark.parametrize("habit", list(HABITS))
async def test_b46_a_full_resend_is_the_clients_own_list(habit):
    """After its socket died the items go up as the client sent them, and the upstream's verdict comes back."""
    async with scene(
        answers([REASONING, said("a1")], [said("a2")]), options={"reasoning_pairs": True}
    ) as run:
        first = await run.api.create(body([user("u1")]))
        await run.simulator.close_sockets()
        await run.simulator.until(lambda journal: len(journal.closed()) == 1)
        whole = [user("u1"), *HABITS[habit](finished(first)), user("u2")]
        second = await run.api.create(body(whole))

        assert run.frames[-1].parent is None
        assert run.frames[-1].items == whole
        if habit == "message with id":
            assert second.status == 400
            assert "required 'reasoning' item" in second.answer["error"]["message"]
            assert len(run.frames) == 2
        else:
            assert (second.status, second.mode) == (200, "full")


@pytest.mark.parametrize(
    ("level", "habit", "mode", "reason"),
    [
        ("equivalent", "whole", "delta", None),
        ("equivalent", "message with id", "full", "reasoning_omitted"),
        ("equivalent", "message without id", "full", "reasoning_omitted"),
        ("lenient", "message with id", "delta", None),
        ("lenient", "message without id", "delta", None),
        ("exact", "message without id", "full", None),
    ],
)
async def test_b46_with_the_socket_alive_the_level_decides(level, habit, mode, reason):
    """Left-out reasoning makes a full turn with the client's own items, and a delta only where the operator said so."""
    async with scene(answers([REASONING, said("a1")], [said("a2")]), match=level) as run:
        first = await run.api.create(body([user("u1")]))
        whole = [user("u1"), *HABITS[habit](finished(first)), user("u2")]
        second = await run.api.create(body(whole))

        assert (second.status, second.mode) == (200, mode)
        assert reason is None or second.reason == reason
        assert run.frames[-1].items == (whole if mode == "full" else [user("u2")])


# -- B47


class Named:
    """A script whose first answer has a known id."""

    def __init__(self, items):
        self.items = items

    def reply(self, ask):
        if ask.ordinal == 0:
            return Reply(items=self.items, response_id="resp_known")
        return Reply(items=(said("next"),))


MESSAGE = {"id": "msg_1", **said("text")}
CALL = {"id": "fc_1", **call("call_1", '{"a": 1}')}
UNFINISHED = {
    "id": "ctc_1",
    "type": "custom_tool_call",
    "status": "in_progress",
    "call_id": "call_1",
    "name": "x",
    "input": "",
}


def closing(listed):
    """A closing event that lists this, in place of the upstream's own."""
    response = {
        "id": "resp_known",
        "object": "response",
        "status": "completed",
        "model": "gpt-5",
        "created_at": 1.0,
    }
    response |= {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "output": listed}
    event = {"type": "response.completed", "sequence_number": 99, "response": response}
    return Fault(at=f.BEFORE_TERMINAL, actions=(f.SendEvent(event), f.EndQuietly()))


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("listed", ["filled", "missing", "null", "empty", "first", "conflict"])
async def test_b47_the_answer_has_both_finished_items_once(listed, stream):
    """Whatever the closing event lists, the SDK finds text and call, and the next turn stands on what was finished."""
    options = {} if listed == "conflict" else {"terminal_output": listed}
    async with (
        running_simulator(Options(**options), Named((MESSAGE, CALL))) as simulator,
        running_gateway(simulator.url) as gateway,
        Api(gateway.url) as api,
    ):
        run = Scene(simulator, gateway, api)
        if listed == "conflict":
            run.simulator.faults.add(closing([MESSAGE, UNFINISHED]))
        async with openai.AsyncOpenAI(base_url=run.gateway.url, api_key="sk-test", max_retries=0) as client:
            asked = {"model": "gpt-5", "input": [user("u1")], "store": False, "tools": TOOLS}
            if stream:
                async with client.responses.stream(**asked) as events:
                    made = await events.get_final_response()
            else:
                made = await client.responses.create(**asked)
        assert made.output_text == "text"
        assert [(item.type, item.id, item.status) for item in made.output] == [
            ("message", "msg_1", "completed"),
            ("function_call", "fc_1", "completed"),
        ]
        assert made.output[1].arguments == '{"a": 1}'

        history = [user("u1"), MESSAGE, CALL, output("call_1")]
        second = await run.api.create(body(history, tools=TOOLS))
        assert second.status == 200
        if listed == "conflict":
            # Nobody can say which of the two the upstream holds.
            assert (second.mode, run.frames[-1].items) == ("full", history)
        else:
            assert (second.mode, run.frames[-1].items) == ("delta", [output("call_1")])
