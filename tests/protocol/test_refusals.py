"""Errors of the upstream as the answers of plain HTTP."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.refusals import Cause, Refusal, not_found_over_http, refusal_of

GONE = {
    "type": "invalid_request_error",
    "code": "previous_response_not_found",
    "message": "Previous response with id 'resp_abc' not found.",
    "param": "previous_response_id",
}
TEXT_ONLY = {"type": "invalid_request_error", "message": GONE["message"]}


def of(event):
    """The refusal of an event given as a Python value."""
    return refusal_of(json.dumps(event).encode())


def error(refusal):
    """The error object in the refusal's body."""
    body = json.loads(refusal.body)
    assert list(body) == ["error"]
    return body["error"]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "status": 400, "error": GONE},
        {"type": "error", "error": {"code": "previous_response_not_found"}},
        {"type": "error", "status": 400, "error": TEXT_ONLY},
        {"type": "error", "error": {"message": "previous_response_not_found"}},
        {"type": "error", "status": 400, "error": {"type": "x", "error": GONE}},
        {"type": "error", "body": {"error": GONE}, "status_code": 400},
        {"type": "response.failed", "response": {"id": "r", "status": "failed", "error": GONE}},
        {"type": "response.failed", "response": {"id": "r", "status": "failed", "error": TEXT_ONLY}},
        {"type": "error", **{name: GONE[name] for name in ("code", "message", "param")}},
        {"type": "error", "message": GONE["message"]},
        {"type": "response.error", "error": GONE},
        {"type": "error", "status": 404, "detail": "Previous response resp_abc could not be found"},
        {"type": "error", "error": "previous response 'resp_abc' does not exist"},
    ],
)
def test_every_shape_of_a_lost_parent(event):
    """A lost parent is recognised by code or by text, nested or flat, and reaches the client as that error."""
    refusal = of(event)
    assert refusal.cause is Cause.NOT_FOUND
    assert refusal.status == event.get("status", 400)
    shown = error(refusal)
    told = json.dumps(shown)
    assert "previous_response_not_found" in told or "revious response" in told


@pytest.mark.parametrize(
    "body",
    [
        {"error": GONE},
        {"error": TEXT_ONLY},
        {"error": {"error": GONE}},
        {"detail": "Previous response not found"},
        GONE,
    ],
)
def test_a_lost_parent_over_http(body):
    """The same is recognised in a plain HTTP answer, but only in one that says bad request or not found."""
    text = json.dumps(body).encode()
    assert not_found_over_http(400, text) and not_found_over_http(404, text)
    assert not any(not_found_over_http(status, text) for status in (200, 401, 403, 429, 500, 502))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>previous_response_not_found</html>",
        b"[]",
        b'{"error":{"message":"No tool output found for function call call_1."}}',
        b'{"error":{"message":"The model `previous` was not found","code":"model_not_found"}}',
        b'{"error":{"message":"Duplicate item found with id msg_1."}}',
    ],
)
def test_other_answers_are_no_lost_parent(body):
    """Unrelated refusals and rubbish are not taken for a lost parent."""
    assert not not_found_over_http(400, body)


def test_a_stated_status_outranks_the_text():
    """A rate limit or server error that only mentions a parent is not a lost parent."""
    for status in (401, 403, 429, 500, 503):
        assert of({"type": "error", "status": status, "error": TEXT_ONLY}).cause is Cause.OTHER


@pytest.mark.parametrize(
    "event",
    [
        {
            "type": "error",
            "status": 400,
            "error": {"code": "websocket_connection_limit_reached", "message": "60 minutes"},
        },
        {"type": "error", "error": {"code": "websocket_connection_limit_reached"}},
        {"type": "error", "code": "websocket_connection_limit_reached"},
        {"type": "error", "error": {"message": "websocket_connection_limit_reached"}},
    ],
)
def test_the_age_limit_of_a_socket(event):
    """A socket that is too old for new work is recognised in every shape."""
    refusal = of(event)
    assert refusal.cause is Cause.CONNECTION_LIMIT and refusal.status == 400


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503, 529])
@pytest.mark.parametrize("name", ["status", "status_code"])
def test_a_stated_status_is_kept(status, name):
    """The upstream's own status is the client's, whatever type and code would say."""
    refusal = of(
        {"type": "error", name: status, "error": {"type": "server_error", "code": "x", "message": "m"}}
    )
    assert (refusal.status, refusal.stated, refusal.code) == (status, True, "x")


@pytest.mark.parametrize(
    ("code", "kind", "status"),
    [
        ("rate_limit_exceeded", "tokens", 429),
        ("rate_limit_exceeded", None, 429),
        (None, "requests", 429),
        (None, "too_many_requests", 429),
        ("insufficient_quota", "insufficient_quota", 429),
        ("credit_balance_exhausted", None, 429),
        ("usage_limit_reached", None, 429),
        ("server_is_overloaded", "service_unavailable_error", 503),
        (None, "service_unavailable_error", 503),
        (None, "overloaded_error", 503),
        ("slow_down", None, 503),
        (None, "server_error", 500),
        ("server_error", None, 500),
        ("vector_store_timeout", None, 500),
        ("something_new", None, 500),
        (None, None, 500),
        ("something_new", "invalid_request_error", 400),
        (None, "invalid_request_error", 400),
        ("invalid_prompt", None, 400),
        ("bio_policy", None, 400),
        ("cyber_policy", None, 400),
        ("misalignment_policy_violation", None, 400),
        ("image_content_policy_violation", None, 400),
        ("content_policy_violation", None, 400),
        ("context_length_exceeded", "invalid_request_error", 400),
        ("invalid_encrypted_content", "invalid_request_error", 400),
        ("unsupported_parameter", None, 400),
        ("data_residency_mismatch", None, 400),
        ("invalid_image_url", None, 400),
        ("image_file_not_found", None, 400),
        ("empty_image_file", None, 400),
        ("failed_to_download_image", None, 400),
        ("unsupported_image_media_type", None, 400),
        ("model_not_found", "invalid_request_error", 404),
        ("invalid_api_key", "invalid_request_error", 401),
        (None, "authentication_error", 401),
        (None, "permission_error", 403),
    ],
)
def test_a_status_that_is_not_stated_follows_from_code_and_type(code, kind, status):
    """Mid-stream errors and failed responses have no status; code outranks type."""
    for event in (
        {"type": "error", "sequence_number": 2, "error": {"type": kind, "code": code, "message": "m"}},
        {"type": "response.failed", "response": {"error": {"type": kind, "code": code, "message": "m"}}},
    ):
        refusal = of(event)
        assert (refusal.status, refusal.stated, refusal.cause) == (status, False, Cause.OTHER)


@pytest.mark.parametrize(
    "status", [True, 0, 99, 101, 200, 399, 600, -5, 4.5, "x", "٤٠٠", "4000", None, [400], 10**30]
)
def test_nonsense_for_a_status_is_passed_over(status):
    """Only an HTTP error status counts as one."""
    assert of({"type": "error", "status": status, "error": {"type": "server_error"}}).status == 500


def test_the_own_error_object_travels_byte_for_byte():
    """Spacing, order, escapes and unknown keys of the error object stay; only headers are taken out."""
    own = rb'{ "message" : "\u00e9\ud800", "x":1e0, "headers":{"retry-after":"7"}, "code":null }'
    refusal = refusal_of(b'{"type":"error","status":"429","error":' + own + b"}")
    assert refusal.body == rb'{"error":{ "message" : "\u00e9\ud800", "x":1e0, "code":null }}'
    assert refusal.headers == (("retry-after", "7"),) and refusal.status == 429


@pytest.mark.parametrize(
    ("event", "want"),
    [
        (
            {"type": "error", "code": "c", "message": "m", "param": "p"},
            {"code": "c", "message": "m", "param": "p"},
        ),
        ({"type": "error", "status": 400, "detail": "d"}, {"message": "d", "type": "invalid_request_error"}),
        (
            {"type": "error", "status": 400, "error": {"detail": "d", "code": "c"}},
            {"message": "d", "code": "c"},
        ),
        ({"type": "error", "error": "boom"}, {"message": "boom", "type": "server_error", "code": None}),
        ({"type": "error", "status": 400, "error": {}}, {}),
        ({"type": "error", "error": {"type": "server_error", "message": None}}, {"type": "server_error"}),
        ({"type": "error", "message": "outer", "error": {"code": "c"}}, {"message": "outer", "code": "c"}),
    ],
)
def test_other_shapes_become_the_http_shape(event, want):
    """Flat, detail and text errors get the members that clients read."""
    shown = error(of(event))
    assert {name: shown.get(name) for name in want} == want


def test_headers_from_either_place():
    """Headers inside the error outrank those beside it; what cannot be a header or is not ours to copy is left out."""
    inside = {
        "X-RateLimit-Limit-Tokens": 100,
        "retry-after": ["7"],
        "Content-Length": "5",
        "bad name": "x",
        "a": "x\r\nb: c",
    }
    beside = {
        "Retry-After": "9",
        "x-other": " 1.5 ",
        "transfer-encoding": "chunked",
        "flag": True,
        "n": None,
        "": "x",
    }
    refusal = of(
        {"type": "error", "status": 429, "headers": beside, "error": {"message": "m", "headers": inside}}
    )
    assert refusal.headers == (("X-RateLimit-Limit-Tokens", "100"), ("retry-after", "7"), ("x-other", "1.5"))
    assert "headers" not in error(refusal)


@pytest.mark.parametrize(
    "event", [b"", b"x", b"[]", b"{}", b'{"type":"error"}', b'{"type":"error","error":null}', b"[" * 100_000]
)
def test_rubbish_is_a_bad_gateway(event):
    """What cannot be read becomes a 502 that says so."""
    refusal = refusal_of(event)
    assert (refusal.status, refusal.cause) == (502, Cause.OTHER)
    assert error(refusal)["code"] == "upstream_protocol_error"


def test_a_missing_error_in_a_failed_response():
    """A failed response without an error object is still a refusal."""
    assert of({"type": "response.failed", "response": {"id": "r", "error": None}}).status == 502


_NAMES = st.sampled_from(
    [
        "type",
        "error",
        "response",
        "body",
        "status",
        "status_code",
        "code",
        "message",
        "detail",
        "headers",
        "param",
    ]
)
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["error", "400", "x\n"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES | st.text(), inner, max_size=6),
    max_leaves=20,
)


@given(st.binary() | st.dictionaries(_NAMES, _VALUES).map(lambda value: json.dumps(value).encode()))
def test_any_event_gives_a_refusal_that_can_be_sent(event):
    """Whatever comes, there is a status, a JSON body with an error, and headers that can be written."""
    refusal = refusal_of(event)
    assert isinstance(refusal, Refusal) and 400 <= refusal.status < 600
    assert isinstance(error(refusal), dict)
    assert all("\r" not in text and "\n" not in text for header in refusal.headers for text in header)
