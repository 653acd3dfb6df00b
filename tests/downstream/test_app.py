"""Which path is answered by whom."""

import json

import pytest
from raw_http import answer, head, raw_upstream, talk
from started_gateway import OK, start_gateway


async def ask(gateway, method, path, body=b""):
    """Send a request; status, headers and body of the answer."""
    data = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return head(await talk(gateway.port, data.encode() + body))


@pytest.mark.parametrize(
    "path",
    [
        "/v1/responses",
        "/v1/responses/",
        "/v1/responses?api-version=1",
        "/responses",
        "/responses/",
        "//v1/responses",
        "/openai/v1/responses",
        "/openai/responses?x",
        "/v1/v1/responses",
    ],
)
async def test_turns_are_found_under_every_spelling(path):
    """POST to the responses path is a turn, whatever base URL the client was given."""
    async with start_gateway() as gateway:
        assert (await ask(gateway, "POST", path, b"{}"))[0] == 200
        assert gateway.turns == [b"{}"]


@pytest.mark.parametrize(
    ("method", "path", "target"),
    [
        ("GET", "/v1/responses", "/v1/responses"),
        ("DELETE", "/v1/responses", "/v1/responses"),
        ("POST", "/v1/responses/compact", "/v1/responses/compact"),
        ("POST", "/v1/responses/input_tokens?x", "/v1/responses/input_tokens?x"),
        ("GET", "/responses/resp_1", "/v1/responses/resp_1"),
        ("POST", "/v1/chat/completions", "/v1/chat/completions"),
        ("GET", "/openai/v1/models", "/v1/models"),
        ("GET", "/v1", "/v1"),
        ("POST", "/v1/%72esponses", "/v1/%72esponses"),
        ("GET", "/v1/../stats", "/v1/../stats"),
        ("GET", "/v1/stats", "/v1/stats"),
    ],
)
async def test_all_else_of_the_api_goes_through(method, path, target):
    """Other methods and paths of the API are the upstream's to answer."""
    async with raw_upstream(answer(OK)) as upstream, start_gateway(upstream.base) as gateway:
        assert (await ask(gateway, method, path))[::2] == (200, b"hi")
        assert [request.line for request in upstream.requests] == [f"{method} {target} HTTP/1.1"]
        assert gateway.turns == []


async def test_paths_that_are_nobodys_are_404_in_our_shape():
    """Nothing outside the API and our own paths goes upstream."""
    async with raw_upstream(answer(OK)) as upstream, start_gateway(upstream.base) as gateway:
        for path in (
            "/",
            "/v2/responses",
            "/chat/completions",
            "/statsx",
            "/stats/",
            "/responsesx",
            "/%2e%2e/v1/models",
        ):
            status, fields, body = await ask(gateway, "GET", path)
            assert (status, fields["content-type"]) == (404, "application/json")
            assert json.loads(body)["error"]["code"] == "not_found"
        assert upstream.requests == []


async def test_our_own_paths_take_their_methods_only():
    """A wrong method on a path of ours is a 405 that names the right ones."""
    async with start_gateway() as gateway:
        assert (await ask(gateway, "GET", "/stats?x=1"))[0] == 200
        assert (await ask(gateway, "HEAD", "/stats"))[::2] == (200, b"")
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            status, fields, body = await ask(gateway, method, "/stats", b"x")
            assert (status, fields["allow"]) == (405, "GET, HEAD")
            assert json.loads(body)["error"]["code"] == "method_not_allowed"


async def test_our_answers_do_not_name_the_library():
    """No Server header tells what the gateway is made of, in answers, errors and refusals."""
    async with start_gateway() as gateway:
        for method, path in [
            ("GET", "/stats"),
            ("GET", "/nowhere"),
            ("POST", "/v1/responses"),
            ("FOO", "/v1/x"),
        ]:
            _, fields, body = await ask(gateway, method, path)
            assert "aiohttp" not in str(fields) + body.decode()
