"""Faults that others met: histories spelled anew, forgotten parents, and refusals hidden in a stream."""

import json

import pytest

from gateway.simulator import Fault
from gateway.simulator import faults as f
from tests.faults.scenes import (
    answers,
    bare,
    body,
    call,
    finished,
    output,
    post_broken,
    said,
    scene,
    user,
)
from tests.gateways import Api

ARGUMENTS = '{"word": "Zürich", "count": 1.0, "deep": {"b": [1, 2], "a": null}}'
REASONING = {
    "type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "gAAAA1",
}  # fmt: skip
PRODUCED = [REASONING, said("I look it up", phase="commentary"), call("c1", ARGUMENTS)]


def without_server_fields(item):
    """What a client keeps that stores only what it understands."""
    return bare(item)


def permuted(value):
    """Every object with its keys in the reverse order."""
    if isinstance(value, dict):
        return {key: permuted(value[key]) for key in reversed(value)}
    return [permuted(one) for one in value] if isinstance(value, list) else value


def with_nulls(item):
    """A client that writes out every field it knows of."""
    nulls = {"created_by": None, "name": None} if "content" in item else {"created_by": None, "content": None}
    return {**nulls, **item}


def without_nulls(item):
    """A client that drops fields without a value."""
    return {key: value for key, value in item.items() if value is not None}


def one_letter(item):
    """One letter of a message changed."""
    if item.get("type") != "message":
        return item
    return {
        **item,
        "content": [{**part, "text": part["text"].replace("look", "took")} for part in item["content"]],
    }


def arguments_respelled(item):
    """The argument text parsed and written again, with other spaces and another key order."""
    if item.get("type") != "function_call":
        return item
    parsed = json.loads(item["arguments"])
    return {**item, "arguments": json.dumps(permuted(parsed), separators=(",", ":"), ensure_ascii=False)}


def number_respelled(item):
    """A client in whose language 1.0 is 1."""
    if item.get("type") != "function_call":
        return item
    return {**item, "arguments": item["arguments"].replace("1.0", "1")}


def changed(kind, **fields):
    """An item of one type with other fields."""
    return lambda item: {**item, **fields} if item.get("type") == kind else item


REPLAYS = {
    "server_fields": (without_server_fields, None),
    "keys_permuted": (permuted, None),
    "nulls_added": (with_nulls, None),
    "nulls_dropped": (without_nulls, None),
    "arguments_respelled": (arguments_respelled, None),
    "one_letter": (one_letter, "history_changed"),
    "role": (changed("message", role="user"), "history_changed"),
    "phase": (changed("message", phase="final_answer"), "history_changed"),
    "call_id": (changed("function_call", call_id="c1", name="other"), "history_changed"),
    "call_text": (changed("function_call", arguments='{"word": "Bern"}'), "history_changed"),
    "number": (number_respelled, "history_changed"),
    "encrypted_content": (changed("reasoning", encrypted_content="gAAAA2"), "new_conversation"),
    "unknown_key": (changed("message", x_new=1), "history_changed"),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("how", REPLAYS)
async def test_b14_replayed_items_are_compared_by_meaning(how, stream):
    """Delivery fields, key order and spelling cost no delta; a letter, role, phase, number or call that changed does."""
    respell, reason = REPLAYS[how]
    async with scene(answers(PRODUCED, [said("done")])) as run:
        first = await run.api.create(body([user("u1")], stream=stream))
        replayed = [respell(item) for item in finished(first)]
        asked = [user("u1"), *replayed, output("c1")]
        second = await run.api.create(body(asked, stream=stream))

        assert (second.status, second.reason) == (200, reason)
        # What the model was shown is what a direct request would have shown it, whichever way it went.
        shown = run.frames[1].digests
        assert shown.modulo == run.simulator.digest_of(asked).modulo
        if reason is None:
            assert second.mode == "delta"
            assert run.frames[1].parent == first.answer["id"]
            assert run.frames[1].items == [output("c1")]
        else:
            assert second.mode == "full"
            assert (run.frames[1].parent, run.frames[1].items) == (None, asked)


async def test_b14_exact_matching_is_strict_on_what_the_model_may_see():
    """At the level exact a phase left out is a change; delivery fields still are none."""
    async with scene(answers(PRODUCED, [said("b")], [said("c")]), match="exact") as run:
        first = await run.api.create(body([user("u1")]))
        replayed = [bare(item) for item in finished(first)]
        second = await run.api.create(body([user("u1"), *replayed, output("c1")]))
        assert second.mode == "delta"
        unphased = [{k: v for k, v in item.items() if k != "phase"} for item in replayed]
        third = await run.api.create(body([user("u1"), *unphased, output("c1")]))
        assert (third.mode, third.reason) == ("full", "history_changed")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("store", [True, False])
async def test_b16_a_forgotten_parent_costs_one_hidden_resend(store, stream):
    """The delta is answered with not-found, the whole goes up at once, the client sees one answer, and deltas follow again."""
    async with scene(lambda ask: [said(f"answer {ask.ordinal}")]) as run:
        first = await run.api.create(body([user("u1")], store=store, stream=stream))
        run.simulator.forget(first.answer["id"])
        asked = [user("u1"), *finished(first), user("u2")]
        second = await run.api.create(body(asked, store=store, stream=stream))

        assert second.status == 200
        assert (second.mode, second.reason) == ("full", "not_found")
        if stream:
            assert second.kinds.count("response.created") == 1
            assert "error" not in second.kinds
        refused, resent = run.frames[1:]
        assert (refused.parent, refused.code) == (first.answer["id"], "previous_response_not_found")
        assert (resent.parent, resent.items) == (None, asked)
        assert refused.connection == resent.connection
        assert not run.posts

        longer = [*asked, *finished(second), user("u3")]
        third = await run.api.create(body(longer, store=store, stream=stream))
        assert third.mode == "delta"
        assert (run.frames[-1].parent, run.frames[-1].items) == (second.answer["id"], [user("u3")])
        stats = await run.stats()
        assert stats["recoveries"]["full_resend"] == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_b16_a_failing_resend_has_the_last_word(stream):
    """When the whole is refused too, that refusal is the client's, after two frames and no more."""
    verdict = f.SendError(
        status=400, code="context_length_exceeded", kind="invalid_request_error", message="Too long."
    )
    async with scene(answers([said("a")])) as run:
        first = await run.api.create(body([user("u1")], stream=stream))
        run.simulator.forget(first.answer["id"])
        run.simulator.faults.add(Fault(actions=verdict, skip=1))
        asked = body([user("u1"), *finished(first), user("u2")], stream=stream)
        second = await run.api.create(asked)
        assert second.status == 400
        assert second.answer["error"]["code"] == "context_length_exceeded"
        assert len(run.simulator.journal.creates()) == 3


async def test_b16_an_upstream_that_closes_after_its_errors_gets_the_resend_on_a_new_socket():
    """Where the socket does not outlive the not-found error, the whole goes over another one, unseen by the client."""
    async with scene(answers([said("a")], [said("b")]), options={"survives_errors": False}) as run:
        first = await run.api.create(body([user("u1")]))
        run.simulator.forget(first.answer["id"])
        second = await run.api.create(body([user("u1"), *finished(first), user("u2")]))
        assert (second.status, second.reason) == (200, "not_found")
        assert second.kinds.count("response.created") == 1
        assert second.answer["output"][0]["content"][0]["text"] == "b"


REFUSALS = {
    400: f.SendError(status=400, code="invalid_prompt", kind="invalid_request_error", message="Bad prompt."),
    401: f.SendError(status=401, code="invalid_api_key", kind="invalid_request_error", message="Bad key."),
    404: f.SendError(status=404, code="model_not_found", kind="invalid_request_error", message="No model."),
    429: f.SendError(
        status=429, code="rate_limit_exceeded", kind="tokens", message="Slow down.", headers={"retry-after": "7"}
    ),
    500: f.SendError(status=500),
    503: f.SendError(status=503, code="server_is_overloaded", kind="service_unavailable_error", message="Busy."),
}  # fmt: skip


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("status", REFUSALS)
async def test_b17_a_refusal_before_output_is_the_answer_of_plain_http(status, stream):
    """Status, body and retry-after of a refusal over the socket are what a direct request gets; it is asked once."""
    async with scene() as run, Api(run.simulator.url) as direct:
        run.simulator.faults.add(Fault(actions=REFUSALS[status], times=2))
        sent = body([user("u1")], stream=stream)
        wanted = await direct.create(sent)
        found = await run.api.create(sent)

        assert found.status == wanted.status == status
        assert found.answer == wanted.answer
        assert found.headers["content-type"].partition(";")[0] == "application/json"
        assert found.headers.get("retry-after") == wanted.headers.get("retry-after")
        assert found.headers.get("retry-after") == ("7" if status == 429 else None)
        assert len(run.frames) == 1
        assert len(run.posts) == 1  # the direct one


@pytest.mark.parametrize("after", [f.CREATED, f.after_deltas(2)], ids=["created", "deltas"])
@pytest.mark.parametrize("then_failed", [True, False])
async def test_b17_an_error_after_the_head_is_an_event_as_the_upstream_sent_it(after, then_failed):
    """Behind the first event an error stays an event of a 200 stream, told once, with nothing after its end."""
    error = f.SendError(status=500, shape="stream", message="Broke.", then_failed=then_failed)
    async with scene(options={"reasoning": False}) as run:
        run.simulator.faults.add(Fault(actions=error, at=after))
        status, events, broken = await post_broken(run.api, body([user("u1")]))
        assert status == 200
        assert not broken
        kinds = [event["type"] for event in events]
        ends = ["error", "response.failed"] if then_failed else ["error"]
        assert kinds[-len(ends) :] == ends
        assert kinds.count("error") == 1
        assert kinds.count("response.failed") == then_failed
        assert not {"response.completed", "response.incomplete"} & set(kinds)
        assert len(run.simulator.journal.creates()) == 1
        following = await run.api.create(body([user("u1"), user("u2")]))
        assert (following.status, following.mode) == (200, "full")


async def test_b17_an_error_in_mid_answer_is_a_status_for_a_client_that_waits_for_json():
    """Without a stream the same error is the answer's status and body, as over plain HTTP, and is not asked for again."""
    error = f.SendError(status=503, code="server_is_overloaded", message="Broke.")
    async with scene(options={"reasoning": False}) as run, Api(run.simulator.url) as direct:
        run.simulator.faults.add(Fault(actions=error, at=f.after_deltas(1), times=2))
        sent = body([user("u1")], stream=False)
        wanted, found = await direct.create(sent), await run.api.create(sent)
        assert (found.status, found.answer) == (wanted.status, wanted.answer)
        assert found.status == 503
        assert len(run.frames) == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_b17_the_head_waits_for_the_first_event_without_limit(stream):
    """A refusal that comes after every other limit of the gateway has passed still is a status, not a broken stream."""
    async with scene(
        client_timeout=0.1, dial_timeout=0.2, write_timeout=0.1, socket_wait=0.1, socket_idle=0.2
    ) as run:
        run.simulator.faults.add(Fault(actions=(f.Silence(0.6), REFUSALS[429])))
        found = await run.api.create(body([user("u1")], stream=stream))
        assert found.status == 429
        assert found.headers["retry-after"] == "7"
