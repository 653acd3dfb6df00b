"""The WebSocket side of the simulated upstream, rule by rule."""

import json

import aiohttp
import pytest

CREATE = {"type": "response.create", "model": "gpt-5"}


async def closed(talk):
    """The close code that the upstream ends the socket with."""
    message = await talk.ws.receive(timeout=10)
    assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED), message
    return talk.ws.close_code


async def test_the_latest_response_is_remembered_and_only_that(simulate, dial):
    """Without storage the newest response can be continued on its socket; an older one, or another socket, cannot."""
    simulator = await simulate()
    talk, other = await dial(simulator), await dial(simulator)
    first = await talk.response(input="a", store=False)
    second = await talk.response(input="b", store=False, previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    assert [item.get("role") for item in simulator.context_of(second["id"]) if "role" in item] == [
        "user", "assistant", "user", "assistant",
    ]  # fmt: skip
    for where, parent in ((talk, first), (other, second)):
        frame = await where.error(input="c", store=False, previous_response_id=parent["id"])
        assert frame == {
            "type": "error",
            "status": 400,
            "error": {
                "message": f"Previous response with id '{parent['id']}' not found.",
                "type": "invalid_request_error",
                "param": "previous_response_id",
                "code": "previous_response_not_found",
            },
        }
    assert (await talk.response(input="c", store=False, previous_response_id=second["id"]))[
        "status"
    ] == "completed"


async def test_stored_responses_are_loaded_on_any_socket_and_over_http(simulate, dial, post):
    """With storage an older response, another socket and plain HTTP all continue it."""
    simulator = await simulate()
    talk, other = await dial(simulator), await dial(simulator)
    first = await talk.response(input="a")
    await talk.response(input="b")
    for where in (talk, other):
        assert (await where.response(input="c", previous_response_id=first["id"]))["status"] == "completed"
    assert (await post(simulator, input="c", previous_response_id=first["id"]))[0] == 200


async def test_the_memory_belongs_to_the_key_of_the_socket(simulate, dial):
    """Another key, organization or project does not find a stored response."""
    simulator = await simulate()
    first = await (await dial(simulator)).response(input="a")
    for headers in ({"authorization": "Bearer other"}, {"openai_organization": "o"}, {"openai_project": "p"}):
        talk = await dial(simulator, **headers)
        assert (await talk.error(input="b", previous_response_id=first["id"]))["status"] == 400
    keys = {entry.key for entry in simulator.journal.opened()}
    assert keys == {"sk-test", "other"}


async def test_a_refused_continuation_evicts_its_parent(simulate, dial):
    """After a 4xx the parent is gone; a refused turn that continued nothing costs nothing, unless that is switched on."""
    for option, survives in ((False, True), (True, False)):
        talk = await dial(await simulate(any_error_evicts=option))
        first = await talk.response(input="a", store=False)
        await talk.error(input="b", store=False, temperature="hot")
        last = await talk.turn(input="b", store=False, previous_response_id=first["id"])
        assert (last["type"] == "response.completed") is survives
    talk = await dial(await simulate())
    first = await talk.response(input="a", store=False)
    await talk.error(input="b", store=False, previous_response_id=first["id"], temperature="hot")
    frame = await talk.error(input="b", store=False, previous_response_id=first["id"])
    assert frame["error"]["code"] == "previous_response_not_found"


async def test_an_incomplete_response_is_no_parent_and_costs_the_old_one(simulate, dial):
    """Without storage neither the incomplete response nor its parent can be continued."""
    talk = await dial(await simulate())
    first = await talk.response(input="a", store=False)
    parent = {"store": False, "previous_response_id": first["id"]}
    cut = await talk.turn(input="words 40", max_output_tokens=5, **parent)
    assert cut["type"] == "response.incomplete"
    assert (await talk.error(input="b", store=False, previous_response_id=cut["response"]["id"]))[
        "status"
    ] == 400
    assert (await talk.error(input="b", **parent))["status"] == 400


@pytest.mark.parametrize("field", ["stream", "background", "background_options"])
async def test_transport_fields_are_refused(simulate, dial, field):
    """Fields of the HTTP transport have no place in a frame."""
    talk = await dial(await simulate())
    frame = await talk.error(input="a", **{field: True})
    assert (frame["status"], frame["error"]["param"]) == (400, field)


async def test_frames_that_are_no_creates_are_refused(simulate, dial):
    """Broken JSON and other types get an error frame, a binary frame ends the socket."""
    simulator = await simulate()
    talk = await dial(simulator)
    for raw in ("{", "[]", "{}", '{"type":"response.cancel"}'):
        await talk.ws.send_str(raw)
        assert (await talk.event())["status"] == 400
    await talk.ws.send_bytes(b"{}")
    assert await closed(talk) == 1003
    assert [entry.kind for entry in simulator.journal if entry.raw] == ["frame"] * 5


async def test_a_frame_of_the_limit_is_closed_with_1009_and_one_below_is_served(simulate, dial):
    """The limit is exact to the byte."""
    simulator = await simulate(max_frame=2000)
    talk = await dial(simulator)
    empty = json.dumps({**CREATE, "input": ""})
    await talk.ws.send_str(json.dumps({**CREATE, "input": "x" * (1999 - len(empty))}))
    assert (await talk.events())[-1]["type"] == "response.completed"
    await talk.ws.send_str(json.dumps({**CREATE, "input": "x" * (2000 - len(empty))}))
    assert await closed(talk) == 1009


async def test_an_old_connection_refuses_creates_and_answers_pings(simulate, dial):
    """Past its age a socket looks alive and serves nothing."""
    talk = await dial(await simulate(max_age=0.0))
    frame = await talk.error(input="a")
    assert (frame["status"], frame["error"]["code"]) == (400, "websocket_connection_limit_reached")
    await talk.ws.ping(b"x")
    assert (await talk.error(input="a"))["status"] == 400
    assert not talk.ws.closed


async def test_a_warm_up_has_no_output_and_can_be_continued_without_new_items(simulate, dial):
    """``generate: false`` gives an empty response; an empty delta is refused on any other parent."""
    talk = await dial(await simulate())
    warm = await talk.response(input="a", store=False, generate=False)
    assert warm["output"] == [] and warm["usage"]["output_tokens"] == 0
    answer = await talk.response(input=[], store=False, previous_response_id=warm["id"])
    assert answer["output"]
    assert (await talk.error(input=[], store=False, previous_response_id=answer["id"]))["error"][
        "code"
    ] == "empty_input"


async def test_creates_on_a_busy_socket_wait_their_turn_and_are_noted(simulate, dial):
    """Two creates at once are served one after the other, and the journal tells."""
    simulator = await simulate(cost_per_request=0.05)
    talk = await dial(simulator)
    await talk.send(input="a")
    await talk.send(input="b")
    first, second = await talk.events(), await talk.events()
    assert len({event["response"]["id"] for event in first if "response" in event}) == 1
    assert second[0]["type"] == "response.created" and second[0]["sequence_number"] == 0
    assert [entry.overlapped for entry in simulator.journal.creates()] == [False, True]
    assert len(simulator.journal.overlaps()) == 1


async def test_a_careful_client_never_overlaps(simulate, dial):
    """A create sent right after a terminal event finds the lane free."""
    simulator = await simulate()
    talk = await dial(simulator)
    for _ in range(50):
        await talk.response(input="a")
    assert not simulator.journal.overlaps()


async def test_an_upstream_that_does_not_survive_errors_closes(simulate, dial):
    """After an error frame comes close 1000."""
    talk = await dial(await simulate(survives_errors=False))
    await talk.error(input="a", temperature="hot")
    assert await closed(talk) == 1000


async def test_stream_ids_are_refused_without_lanes(simulate, dial):
    """An upstream without multiplexing names the parameter in a ``detail``."""
    talk = await dial(await simulate())
    frame = await talk.error(input="a", stream_id="l00")
    assert frame == {"type": "error", "status": 400, "detail": "Unsupported parameter: stream_id"}


async def test_lanes_run_side_by_side_and_remember_each_their_own(simulate, dial):
    """Events name their lane, memory is per lane, a failed fork leaves the source alone."""
    simulator = await simulate(lanes=True)
    talk = await dial(simulator)
    first = {}
    for lane in ("a", "b"):
        first[lane] = await talk.response(input=lane, store=False, stream_id=lane)
    for lane in ("a", "b"):
        parent = {"store": False, "previous_response_id": first[lane]["id"]}
        await talk.send(input="more", stream_id=lane, **parent)
        events = await talk.events()
        assert {event["stream_id"] for event in events} == {lane}
    fork = await talk.response(input="fork", store=False)
    kept = {"store": False, "previous_response_id": fork["id"]}
    refused = await talk.error(input="x", stream_id="b", temperature="hot", **kept)
    assert refused["stream_id"] == "b"
    assert "stream_id" not in await talk.turn(input="x", **kept)


async def test_lane_names_are_checked_and_counted(simulate, dial):
    """Bad names are refused without echo; one name more than the limit is refused with it."""
    talk = await dial(await simulate(lanes=True, max_lane_names=3))
    for bad in ("", "a b", "x" * 257, 5):
        frame = await talk.error(input="a", stream_id=bad)
        assert frame["error"]["code"] == "invalid_stream_id" and "stream_id" not in frame
    for name in ("l.0", "l_1", "l-2"):
        await talk.response(input="a", stream_id=name)
    frame = await talk.error(input="a", stream_id="l3")
    assert (frame["error"]["code"], frame["stream_id"]) == ("websocket_stream_limit_reached", "l3")
    await talk.response(input="a", stream_id="l.0")


async def test_running_responses_are_limited_and_the_rest_wait(simulate, dial):
    """With one running response allowed, the second lane starts when the first has ended."""
    talk = await dial(await simulate(lanes=True, max_running=1, token_pace=0.001))
    await talk.send(input="a", stream_id="a")
    await talk.send(input="b", stream_id="b")
    lanes = [event["stream_id"] for event in [*await talk.events(), *await talk.events()]]
    assert lanes == sorted(lanes)


async def test_a_forgotten_response_is_not_found(simulate, dial):
    """``forget`` and ``forget_all`` take effect in memory and in storage."""
    simulator = await simulate()
    talk = await dial(simulator)
    first = await talk.response(input="a")
    simulator.forget(first["id"])
    assert (await talk.error(input="b", previous_response_id=first["id"]))["status"] == 400
    second = await talk.response(input="a")
    simulator.forget_all()
    assert (await talk.error(input="b", previous_response_id=second["id"]))["status"] == 400


async def test_upgrades_are_refused_as_http(simulate, http):
    """A wrong key is 401, an upstream without sockets 426; the journal has both."""
    for options, status in (({"keys": frozenset({"k"})}, 401), ({"websocket": False}, 426)):
        simulator = await simulate(**options)
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(simulator.url + "/responses")
        assert refused.value.status == status
        assert [(entry.kind, entry.status) for entry in simulator.journal] == [("upgrade_refused", status)]


async def test_silent_clients_are_closed_with_1011(simulate, http, stack):
    """A client that answers no ping for an interval is dropped."""
    simulator = await simulate(ping_interval=0.05)
    ws = await stack.enter_async_context(
        http.ws_connect(simulator.url + "/responses", autoping=False, autoclose=False)
    )
    kinds = [(await ws.receive(timeout=5)).type for _ in range(2)]
    assert kinds == [aiohttp.WSMsgType.PING, aiohttp.WSMsgType.CLOSE]


async def test_the_journal_tells_what_each_create_held_and_how_sockets_ended(simulate, dial):
    """Items, parent, raw bytes, connection and the side that closed are there to assert on."""
    simulator = await simulate()
    talk = await dial(simulator)
    first = await talk.response(input=[{"role": "user", "content": "a"}])
    await talk.response(input="b", previous_response_id=first["id"])
    await talk.ws.close(code=1001)
    creates = simulator.journal.creates("ws")
    assert [(entry.parent, len(entry.items)) for entry in creates] == [(None, 1), (first["id"], 1)]
    assert creates[0].response_id == first["id"]
    assert json.loads(creates[1].raw)["input"] == "b"
    assert {entry.connection for entry in simulator.journal} == {1}
    await simulator.until(lambda journal: journal.closed())
    ended = simulator.journal.closed()[0]
    assert (ended.close_code, ended.closed_by) == (1001, "client")


async def test_cost_counts_what_is_not_held(simulate, dial, post):
    """A continuation from memory pays for its frame, a resent history and a reload pay for the whole."""
    simulator = await simulate(cost_per_kb=0.001)
    charged = []
    admit = simulator._upstream.model.admit

    def spy(*args, **kwargs):
        turn = admit(*args, **kwargs)
        charged.append(turn.unseen)
        return turn

    simulator._upstream.model.admit = spy
    talk, other = await dial(simulator), await dial(simulator)
    first = await talk.response(input="x" * 50_000)
    await talk.response(input="y", previous_response_id=first["id"])
    await other.response(input="y", previous_response_id=first["id"])
    await post(simulator, input="x" * 50_000)
    assert [charge > 50_000 for charge in charged] == [True, False, True, True]
