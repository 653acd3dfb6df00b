"""Faults that others met: fields of the HTTP transport in a socket's frame."""

import json

import pytest

from gateway.protocol.refusals import Cause, refusal_of
from gateway.simulator import Fault
from gateway.simulator import faults as f
from tests.faults.scenes import TOOLS, answers, body, finished, said, scene, user

STRICT = {"refuses_stream_options": True}
X_NEW = '{"big":12345678901234567890,"one":1.0,"e":1e0,"esc":"\\u00fc\\/","keys":{"b":null,"a":[]}}'


def raw_body(**fields):
    """A body written by hand, with a field that nobody knows, in a spelling that no JSON library would repeat."""
    written = json.dumps({"model": "gpt-5", "store": False, "input": [user("u1")], **fields})
    return f'{written[:-1]}, "x_new": {X_NEW} }}'.encode()


FIELDS = {
    "stream_true": {"stream": True},
    "stream_false": {"stream": False},
    "stream_null": {"stream": None},
    "stream_absent": {},
    "background_false": {"stream": True, "background": False},
    "background_null": {"background": None},
    "include": {"stream": True, "include": ["reasoning.encrypted_content"]},
    "tools": {"stream": True, "tools": TOOLS, "tool_choice": "none", "parallel_tool_calls": False},
    "bookkeeping": {
        "stream": True,
        "client_metadata": {"a": "b"},
        "prompt_cache_key": "k",
        "service_tier": "auto",
    },
}


@pytest.mark.parametrize("fields", FIELDS)
async def test_b24_transport_fields_stay_out_of_the_frame(fields):
    """Stream and background are taken out, everything else goes up, known or not, to the byte; the answer has its form."""
    sent = FIELDS[fields]
    async with scene(answers([said("a")]), options=STRICT) as run:
        answer = await run.api.create(data=raw_body(**sent))
        assert (answer.status, answer.mode) == (200, "full")
        assert bool(answer.events) is (sent.get("stream") is True)
        assert answer.answer["status"] == "completed"
        frame = run.frames[0]
        kept = {k: v for k, v in sent.items() if k not in {"stream", "background"}}
        assert frame.body == {
            "type": "response.create", "model": "gpt-5", "store": False, "input": [user("u1")], **kept,
            "x_new": json.loads(X_NEW),
        }  # fmt: skip
        assert b'"x_new":' + X_NEW.encode() in frame.raw.replace(b'"x_new": ', b'"x_new":')


async def test_b24_unknown_fields_stay_on_deltas():
    """A delta carries the made-up field as well, to the byte."""
    async with scene(answers([said("a")], [said("b")]), options=STRICT) as run:
        first = await run.api.create(data=raw_body())
        items = [user("u1"), *finished(first), user("u2")]
        second = await run.api.create(data=raw_body(input=items))
        assert second.mode == "delta"
        assert X_NEW.encode() in run.frames[1].raw


@pytest.mark.parametrize(
    "path", ["/responses?api-version=2026-01-01", "/responses?x=1&x=2&empty=", "/responses/?x=1"]
)
async def test_b24_a_query_goes_up_as_it_is(path):
    """Parameters of the URL reach the upstream with the socket that is opened for them."""
    async with scene(answers([said("a")]), options=STRICT) as run:
        answer = await run.api.create(body([user("u1")]), path=path)
        assert (answer.status, answer.mode) == (200, "full")
        assert run.simulator.journal.opened()[0].path == "/v1/responses?" + path.partition("?")[2]


async def test_b24_turns_with_another_query_have_another_socket():
    """The query was given when the socket was opened, so a turn that names another one cannot use that socket."""
    async with scene(answers([said("a")], [said("b")], [said("c")]), options=STRICT) as run:
        first = await run.api.create(body([user("u1")]), path="/responses?version=1")
        items = [user("u1"), *finished(first), user("u2")]
        other = await run.api.create(body(items), path="/responses?version=2")
        assert (other.status, other.mode) == (200, "full")
        same = await run.api.create(body(items), path="/responses?version=1")
        assert same.mode == "delta"
        paths = [entry.path.partition("?")[2] for entry in run.simulator.journal.opened()]
        assert paths == ["version=1", "version=2"]


async def test_b24_a_query_that_is_new_each_time_opens_no_socket_each_time():
    """A client that puts a nonce into its URL ends up on plain HTTP instead of one socket for every turn."""
    async with scene(options=STRICT) as run:
        seen = [
            await run.api.create(body([user("words 1")]), path=f"/responses?nonce={number}")
            for number in range(25)
        ]
        assert {answer.status for answer in seen} == {200}
        assert [answer.mode for answer in seen[:20]] == ["full"] * 20
        assert [(answer.mode, answer.reason) for answer in seen[21:]] == [("http", "not_upgradable")] * 4
        assert run.posts[-1].path == "/v1/responses?nonce=24"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "fields",
    [{"background": True, "store": True}, {"conversation": "conv_1"}, {"prompt": {"id": "pmpt_1"}}],
    ids=["background", "conversation", "prompt"],
)
async def test_b24_what_a_socket_cannot_do_goes_over_http_unchanged(fields, stream):
    """Background runs and server-side conversations are sent as plain HTTP, byte for byte, and no socket is opened."""
    raw = raw_body(stream=stream, **fields)
    async with scene(options=STRICT) as run:
        answer = await run.api.create(data=raw)
        assert (answer.status, answer.mode, answer.reason) == (200, "http", "not_upgradable")
        created = run.simulator.journal.creates()
        assert [entry.raw for entry in created] == [raw]
        assert created[0].path == "/v1/responses"
        assert not run.simulator.journal.opened()


@pytest.mark.parametrize("store", [True, False])
async def test_b24_the_clients_own_parent_is_honoured_as_given(store):
    """A previous_response_id of the client's goes up with its own items, to the socket that holds it, and comes back in the answer."""
    async with scene(answers([said("a")], [said("b")], [said("c")]), options=STRICT) as run:
        first = await run.api.create(body([user("u1")], store=store))
        parent = first.answer["id"]
        # Another socket of the same caller, which must not be the one that is asked.
        await run.api.create(body([user("someone else")], store=False))
        second = await run.api.create(body([user("u2")], store=store, previous_response_id=parent))
        assert (second.status, second.mode, second.reason) == (200, "full", "client_parent")
        frame = run.frames[-1]
        assert (frame.parent, frame.items) == (parent, [user("u2")])
        assert second.answer["previous_response_id"] == parent
        assert {
            event["response"]["previous_response_id"] for event in second.events if "response" in event
        } == {parent}
        if not store:
            assert frame.connection == run.frames[0].connection


async def test_b24_an_unknown_parent_of_the_clients_is_the_upstreams_to_refuse():
    """A parent that nobody holds is asked for once, and the upstream's refusal is the client's answer."""
    async with scene(options=STRICT) as run:
        answer = await run.api.create(body([user("u2")], previous_response_id="resp_unknown"))
        assert answer.status == 400
        assert answer.answer["error"]["code"] == "previous_response_not_found"
        assert [frame.parent for frame in run.frames] == ["resp_unknown"]


@pytest.mark.parametrize("strict", [True, False], ids=["refused", "taken"])
async def test_b24_an_upstream_that_takes_stream_options_over_http_only_still_answers(strict):
    """Stream options stay in the frame; where the socket refuses them, plain HTTP answers, and later turns go there at once."""
    sent = body([user("u1")], stream_options={"include_obfuscation": False})
    async with scene(options={"refuses_stream_options": strict, "obfuscation": True}) as run:
        answer = await run.api.create(sent)
        assert answer.status == 200
        assert answer.kinds[-1] == "response.completed"
        assert not any("obfuscation" in event for event in answer.events)
        assert run.frames[0].body["stream_options"] == sent["stream_options"]
        assert answer.mode == ("http" if strict else "full")

        again = await run.api.create(sent)
        assert again.status == 200
        assert len(run.frames) == (1 if strict else 2)
        other = await run.api.create(body([user("words 1")]))
        assert (other.status, other.mode) == (200, "full")


@pytest.mark.parametrize("transport", ["any", "ws"])
async def test_b24_a_refused_field_has_the_answer_of_http(transport):
    """A field that the socket refuses is asked for over plain HTTP; only if that took it do later turns go there at once."""
    refusal = f.SendError(
        status=400,
        code="unsupported_parameter",
        kind="invalid_request_error",
        message="Unsupported parameter: 'temperature' is not supported with this model.",
        param="temperature",
    )
    async with scene(answers([said("a")], [said("b")], [said("c")], [said("d")])) as run:
        first = await run.api.create(body([user("u1")], temperature=0.5))
        run.simulator.faults.add(
            Fault(actions=refusal, transport=transport, times=3 if transport == "any" else 2)
        )
        asked = body([user("u1"), *finished(first), user("u2")], temperature=0.5)
        second = await run.api.create(asked)
        # The delta, the whole, and plain HTTP, whose verdict counts.
        assert [frame.parent for frame in run.frames[1:]] == [first.answer["id"], None]
        assert len(run.posts) == 1
        assert (second.mode, second.reason) == ("http", "not_upgradable")
        assert second.status == (400 if transport == "any" else 200)
        if transport == "any":
            assert second.answer["error"]["param"] == "temperature"
        again = await run.api.create(asked)
        assert (again.status, again.mode) == (200, "full" if transport == "any" else "http")


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("Unsupported parameter: stream_options", "stream_options"),
        ("Unknown parameter: 'stream_options'.", "stream_options"),
        ("Unsupported parameter: 'top_p' is not supported with this model.", "top_p"),
        ("Unknown parameter: 'input[0].x'.", None),
        ("Unknown parameter: 'reasoning.x'.", None),
        ("Invalid value for 'top_p'.", None),
    ],
)
async def test_b24_only_a_field_of_the_request_itself_is_a_matter_of_transport(message, field):
    """What is refused inside an item or an object would be refused over plain HTTP too, so nothing is asked twice for it."""
    event = {"type": "error", "status": 400, "error": {"message": message, "type": "invalid_request_error"}}
    found = refusal_of(json.dumps(event).encode())
    assert (found.cause is Cause.UNSUPPORTED, found.field) == (field is not None, field)
