"""The walls of a whole gateway: who may listen wide, what is no request, which pages may call, which headers cross."""

from __future__ import annotations

import json

import pytest

from gateway.simulator import Options
from gateway.simulator.faults import Fault, SendError
from tests.gateways import Api, running_gateway, running_simulator
from tests.raw_http import head, talk
from tests.serving import begin, serving

TOKEN = "t" * 32
USER = {"role": "user", "content": "hello"}
WIDE = "127.1"
"""A spelling of 127.0.0.1 that is no address as the gateway reads one: it counts as wide and reaches nobody else."""


@pytest.mark.parametrize(
    "given", ["nothing", "flag only", "token only", "short token", "no token in the file"]
)
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "gateway.example", WIDE])
async def test_a_process_does_not_listen_wide_without_flag_and_token(given, host, tmp_path):
    """It exits with 2 before it listens and says which setting is wrong, why, and what to do."""
    token = tmp_path / "token"
    token.write_text({"short token": "short", "no token in the file": ""}.get(given, TOKEN))
    options = [] if given in ("nothing", "token only") else ["--allow-remote"]
    options += [] if given in ("nothing", "flag only") else ["--token-file", str(token)]
    process = await begin("--port", "0", "--host", host, *options)
    code, out, err = await process.ended(within=20)
    assert (code, out) == (2, "")
    if "file" in given or given == "short token":
        assert f"token_file {token} must hold one word of at least 16 printable characters" in err
    else:
        assert "host (flag --host) is wider than loopback: anyone who reaches it could use the gateway" in err
        assert "--allow-remote and --token-file FILE" in err
    assert "Traceback" not in err and TOKEN not in err


async def test_a_process_listens_wide_with_both_and_asks_for_the_token(tmp_path):
    """With flag and token it starts; turns, statistics and metrics take the token, liveness does not."""
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    async with running_simulator(Options(rounds=0)) as upstream:
        options = ("--host", WIDE, "--allow-remote", "--token-file", str(token), "--upstream", upstream.url)
        async with serving(*options) as process:
            assert TOKEN not in str(process.lines)
            port = process.url.rpartition(":")[2]
            async with Api(f"http://127.0.0.1:{port}/v1") as stranger:
                for path in ("/../stats", "/../metrics", "/models", "/../events", "/../nowhere"):
                    assert (await stranger.get(path)).status == 401
                assert (await stranger.create({"model": "gpt-5", "input": [USER]})).status == 401
                for path in ("/../healthz", "/../readyz"):
                    assert (await stranger.get(path)).status == 200
            assert not len(upstream.journal)
            async with Api(f"http://127.0.0.1:{port}/v1", **{"x-upwire-token": TOKEN}) as friend:
                first = await friend.create({"model": "gpt-5", "input": [USER]})
                more = [USER, *first.answer["output"], USER]
                assert (await friend.create({"model": "gpt-5", "input": more})).mode == "delta"
                assert (await friend.get("/../stats")).answer["turns"]["total"] == 2
            assert TOKEN not in json.dumps([entry.headers for entry in upstream.journal])


class Conversation:
    """A conversation that goes on between whatever else happens; each of its turns but the first must be a delta."""

    def __init__(self, api):
        self.api = api
        self.history = [USER]
        self.turns = 0

    async def goes_on(self):
        """One more turn, which is right and a delta."""
        seen = await self.api.create({"model": "gpt-5", "store": False, "input": self.history})
        assert (seen.status, seen.mode) == (200, "delta" if self.turns else "full")
        self.turns += 1
        self.history += [*seen.answer["output"], USER]


@pytest.fixture
async def front():
    """A gateway before a simulated upstream, and a conversation through it."""
    async with (
        running_simulator(Options(rounds=0)) as upstream,
        running_gateway(upstream.url) as gateway,
        Api(gateway.url) as api,
    ):
        yield upstream, int(gateway.root.rpartition(":")[2]), Conversation(api)


BODY = json.dumps({"model": "gpt-5", "input": "smuggled"}).encode()
TOP = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sk-test\r\n"
INNER = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
SHAPES = {
    "length and chunked": TOP
    + b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%b" % (5 + len(INNER), INNER),
    "chunked and length": TOP
    + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(INNER), INNER),
    "two lengths": TOP + b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n%b" % (len(INNER), INNER),
    "hidden chunked": TOP + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + INNER,
    "space before the colon": TOP + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + INNER,
    "chunked twice": TOP + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + INNER,
    "chunk size with sign": TOP + b"Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n" + INNER,
    "chunk size with 0x": TOP + b"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + INNER,
    "chunk size too large": TOP + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n" + INNER,
    "negative chunk": TOP + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n" + INNER,
    "chunk longer than its size": TOP + b"Transfer-Encoding: chunked\r\n\r\n1\r\n" + INNER + b"\r\n0\r\n\r\n",
    "chunk ended by a bare lf": TOP + b"Transfer-Encoding: chunked\r\n\r\n1\n{\r\n0\r\n\r\n" + INNER,
    "folded length": TOP + b"Content-Length:\r\n %d\r\n\r\n%b" % (len(BODY), BODY),
    "folded field": TOP + b"X-A: 1\r\n\tTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + INNER,
    "bare lf in the head": TOP + b"X-A: 1\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + INNER,
    "bare lf everywhere": TOP.replace(b"\r\n", b"\n") + b"Content-Length: 0\n\n" + INNER,
    "bare cr": TOP + b"X-A: 1\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + INNER,
    "nul in a field": TOP + b"X-A: \x00\r\nContent-Length: 0\r\n\r\n" + INNER,
    "chunked in http 1.0": TOP.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + INNER,
    "absolute form": TOP.replace(b"/v1", b"http://localhost/v1") + b"Content-Length: 0\r\n\r\n",
    "absolute form elsewhere": TOP.replace(b"/v1", b"http://evil.example/v1") + b"Content-Length: 0\r\n\r\n",
    "authority form": b"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost\r\n\r\n" + INNER,
    "authority form of post": TOP.replace(b"/v1/responses", b"localhost:443") + b"Content-Length: 0\r\n\r\n",
    "asterisk": TOP.replace(b"/v1/responses", b"*") + b"Content-Length: 0\r\n\r\n",
    "asterisk of options": b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two hosts": TOP + b"Host: evil.example\r\nContent-Length: 0\r\n\r\n",
}  # fmt: skip


async def test_shapes_that_smuggle_are_refused_and_disturb_nobody(front):
    """Each is one 400 in the API's shape at the end of its connection, whose rest is no request; a conversation goes on."""
    upstream, port, conversation = front
    await conversation.goes_on()
    for name, data in SHAPES.items():
        before = len(upstream.journal)
        back = await talk(port, data)
        status, fields, body = head(back)
        assert status == 400, name
        assert back.startswith(b"HTTP/1.0 ") or fields["connection"] == "close", name
        assert back.count(b"HTTP/1.") == 1, name
        assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}, name
        assert len(upstream.journal) == before, name
        await conversation.goes_on()
    assert len(upstream.journal.opened()) == 1


async def test_a_path_that_contains_a_url_is_a_path(front):
    """What only looks like an absolute target, behind a slash, is passed on as the path that it is, to our upstream only."""
    upstream, port, conversation = front
    await conversation.goes_on()
    back = await talk(
        port, b"GET /v1/http://evil.example/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    assert head(back)[0] in (401, 404)
    await conversation.goes_on()
    assert len(upstream.journal.opened()) == 1


PREFLIGHT = (
    b"OPTIONS /v1/responses HTTP/1.1\r\nHost: localhost\r\nOrigin: %b\r\nAccess-Control-Request-Method: POST\r\n"
    b"Access-Control-Request-Headers: authorization, x-upwire-token\r\nConnection: close\r\n\r\n"
)


@pytest.mark.parametrize("token", [None, TOKEN], ids=["no token", "token"])
async def test_preflights_are_answered_for_allowed_origins_only(token):
    """An allowed page may send its key and our token, and needs none for asking; others get no permission of any kind."""
    async with (
        running_simulator() as upstream,
        running_gateway(upstream.url, token=token, allowed_origins=("https://app.example",)) as gateway,
    ):
        port = int(gateway.root.rpartition(":")[2])
        status, fields, _ = head(await talk(port, PREFLIGHT % b"https://app.example"))
        assert (status, fields["access-control-allow-origin"]) == (204, "https://app.example")
        assert fields["access-control-allow-headers"] == "authorization, x-upwire-token"
        assert "access-control-allow-credentials" not in fields
        for origin in (
            b"https://app.example.evil.example", b"http://app.example", b"https://APP.example:444", b"null", b"file://",
            b"https://app.example, https://evil.example", b"https://app.example\r\nOrigin: https://evil.example",
        ):  # fmt: skip
            status, fields, body = head(await talk(port, PREFLIGHT % origin))
            assert status == 403, origin
            assert not [name for name in fields if name.startswith("access-control-")], origin
            assert b"evil" not in body
        assert not len(upstream.journal)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site"])
async def test_a_page_that_embeds_a_path_of_the_api_gets_nothing(front, site):
    """Without an Origin, as for an image or a script, the browser still tells that another site asks."""
    upstream, port, conversation = front
    ask = b"GET %b HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: %b\r\nSec-Fetch-Mode: no-cors\r\nConnection: close\r\n\r\n"
    for path in (b"/v1/models", b"/responses/resp_1", b"/openai/v1/files"):
        status, _, body = head(await talk(port, ask % (path, site.encode())))
        assert (status, json.loads(body)["error"]["code"]) == (403, "forbidden_origin")
    assert not len(upstream.journal)
    for other in (b"same-origin", b"none"):
        assert head(await talk(port, ask % (b"/v1/models", other)))[0] != 403
    assert head(await talk(port, ask % (b"/stats", b"cross-site")))[0] == 200
    await conversation.goes_on()


HOPS = {
    "connection": "keep-alive, x-listed", "x-listed": "1", "keep-alive": "timeout=9", "te": "trailers", "upgrade": "h2c",
    "proxy-authorization": "Basic eA==", "proxy-connection": "keep-alive",
    "x-upwire-token": "a", "x-upwire-mode": "auto", "x-upwire-anything": "b",
}  # fmt: skip


@pytest.mark.parametrize("mode", ["auto", "http"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
async def test_hop_by_hop_and_own_headers_do_not_go_up(mode, stream):
    """Neither the upgrade nor a plain request nor another path carries what ends here; what is end to end is carried."""
    async with (
        running_simulator(Options(rounds=0)) as upstream,
        running_gateway(upstream.url, mode=mode) as gateway,
        Api(gateway.url) as api,
    ):
        kept = {"x-kept": "1"}
        seen = await api.create(
            {"model": "gpt-5", "stream": stream, "input": [USER]}, headers={**HOPS, **kept}
        )
        assert (seen.status, seen.mode) == (200, "full" if mode == "auto" else "http")
        carried = [entry.headers for entry in upstream.journal if entry.headers]
        assert carried
        for headers in carried:
            ours = {"connection", "upgrade"} if "sec-websocket-key" in headers else {"connection"}
            assert not (HOPS.keys() - ours) & headers.keys()
            assert "x-listed" not in headers.get("connection", "") and headers.get("upgrade") != "h2c"
            assert headers["x-kept"] == "1"


@pytest.mark.parametrize("transport", ["ws", "http"])
async def test_hop_by_hop_and_own_headers_do_not_come_down(transport):
    """A refusal's headers cross, but for those that end at a connection and for ours, which the upstream cannot forge."""
    headers = {
        "retry-after": "7", "x-ratelimit-limit-requests": "9", "x-upwire-mode": "delta", "X-Upwire-Reason": "forged",
        "x-upwire-token": "x", "connection": "x-hop", "x-hop": "1", "keep-alive": "9", "proxy-authenticate": "Basic",
        "trailer": "x-t", "upgrade": "h2c",
    }  # fmt: skip
    async with (
        running_simulator() as upstream,
        running_gateway(upstream.url, mode="auto" if transport == "ws" else "http") as gateway,
        Api(gateway.url) as api,
    ):
        refusal = SendError(status=429, code="rate_limit_exceeded", kind="tokens", headers=headers)
        upstream.faults.add(Fault(actions=refusal, transport=transport))
        seen = await api.create({"model": "gpt-5", "input": [USER]})
        assert seen.status == 429
        assert (seen.headers["retry-after"], seen.headers["x-ratelimit-limit-requests"]) == ("7", "9")
        assert seen.mode == ("full" if transport == "ws" else "http")
        assert seen.reason == ("new_conversation" if transport == "ws" else "disabled")
        for name in ("x-upwire-token", "x-hop", "keep-alive", "proxy-authenticate", "trailer", "upgrade"):
            assert name not in seen.headers
