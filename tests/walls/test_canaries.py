"""No diary: secrets planted wherever clients and upstreams can put them come out of a gateway process nowhere."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import os
import signal
import socket
import struct
import sys

import aiohttp
import pytest

from gateway.simulator import FunctionScript, Options
from gateway.simulator.faults import (
    BEFORE_TERMINAL,
    CREATED,
    OPENED,
    UPGRADE,
    Abort,
    Close,
    Cut,
    EndIncomplete,
    EndQuietly,
    Fail,
    Fault,
    Respond,
    SendBinary,
    SendError,
    SendEvent,
    SendText,
    Stall,
    TruncateBody,
    after_deltas,
)  # fmt: skip
from tests.gateways import Api, running_simulator
from tests.raw_http import raw_upstream
from tests.walls.canaries import canary, found_in, watched

QUERY = f"?api_key={canary('querykey')}&key={canary('querykey')}"
HEADERS = {
    "cookie": f"session={canary('cookie')}", "x-custom": canary("header"), "x-upwire-token": canary("token"),
    "x-upwire-anything": canary("token"), "proxy-authorization": f"Basic {canary('proxy')}", "user-agent": canary("header"),
    "traceparent": f"00-{canary('header')}", "session-id": canary("header"), "x-request-id": canary("header"),
}  # fmt: skip
REASONING = {
    "id": "rs_" + "1" * 32, "type": "reasoning", "encrypted_content": canary("reasoning"),
    "summary": [{"type": "summary_text", "text": canary("reasoning")}],
}  # fmt: skip
TOOL = {"type": "function", "name": "look", "description": canary("tool"), "parameters": {}}


def said():
    """What the model answers: a thought, a word and a call, each with a secret in it."""
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": canary("output")}
    call = {"type": "function_call", "status": "completed", "call_id": "call_1", "name": "look"}
    return [
        {"type": "reasoning", "encrypted_content": canary("reasoning"), "summary": []},
        {"type": "message", "status": "completed", "role": "assistant", "content": [part]},
        {**call, "arguments": json.dumps({"q": canary("arguments")})},
    ]


def user(text="prompt"):
    """A user's message with a secret."""
    return {"role": "user", "content": canary(text)}


def turn(*items, **more):
    """A request with a secret in every field that takes a text."""
    return {
        "model": f"{canary('prompt')} is no model", "store": False, "instructions": canary("instructions"), "tools": [TOOL],
        "metadata": {canary("metadata"): canary("metadata")}, "user": canary("metadata"), "prompt_cache_key": canary("metadata"),
        "input": [user(), REASONING, *items, user()], **more,
    }  # fmt: skip


class Rounds:
    """A client that drives one gateway, and keeps what the gateway itself said."""

    def __init__(self, process):
        self.process = process
        self.port = int(process.url.rpartition(":")[2])
        self.api = Api(process.url + "/v1", key=canary("key"), **HEADERS)
        self.said = []

    async def __aenter__(self):
        await self.api.__aenter__()
        return self

    async def __aexit__(self, *_):
        await self.api.__aexit__()

    async def create(self, body, *, ours, **more):
        """A turn; its head is the gateway's own word over a socket, its body only where ``ours``."""
        seen = await self.api.create(body, path="/responses" + QUERY, **more)
        self.said.append({name: value for name, value in seen.headers.items() if name.startswith("x-upwire")})
        if ours:
            assert seen.status >= 400
            self.said += [dict(seen.headers), seen.raw]
        return seen

    async def broken(self, body):
        """A turn whose answer breaks off; what the gateway itself wrote at its end is kept."""
        raw = b""
        async with self.api.session.post(
            self.api.url + "/responses" + QUERY, json=body, headers=self.api.headers
        ) as answer:
            with contextlib.suppress(aiohttp.ClientError):
                async for chunk in answer.content.iter_any():
                    raw += chunk
            if answer.status != 200:
                # The reset overtook all events.
                assert answer.status == 502
                self.said.append(raw)
                return [{"type": "response.failed"}]
        events = [json.loads(part.partition(b"data: ")[2]) for part in raw.split(b"\n\n") if part]
        self.said += [event["response"]["error"] for event in events if event["type"] == "response.failed"]
        return events

    async def left(self, body, *, after=0):
        """A turn whose client leaves after so many bytes of its answer, or before there is any."""
        sent = json.dumps(body).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(self.head(b"Content-Length: %d" % len(sent)) + sent)
        if after:
            await asyncio.wait_for(reader.readexactly(after), 10)
        else:
            await writer.drain()
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def raw(self, data, *, half=False):
        """Bytes that may be no request, and what comes back; with ``half`` the client says no more and leaves."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        back = b""
        if half:
            await writer.drain()
            with contextlib.suppress(OSError):
                writer.write_eof()
        with contextlib.suppress(ConnectionError, TimeoutError):
            # Whoever keeps the connection open has answered by then.
            async with asyncio.timeout(1):
                while part := await reader.read(65536):
                    back += part
        writer.close()
        self.said.append(back)
        return back

    @staticmethod
    def head(*fields, path=b"/v1/responses"):
        """The head of a request with secrets in it."""
        key = canary("malformed").encode()
        lines = [
            b"POST %b?key=%b HTTP/1.1" % (path, key),
            b"Host: localhost",
            b"Authorization: Bearer " + key,
        ]
        return b"\r\n".join([*lines, b"X-Own: " + key, *fields, b"", b""])

    async def told(self):
        """All that the gateway tells about itself."""
        async with aiohttp.ClientSession(headers={"x-upwire-token": canary("token")}) as session:
            for path in ("/stats", "/metrics", "/healthz", "/readyz", "/dashboard"):
                async with session.get(self.process.url + path) as answer:
                    assert answer.status == 200, path
                    self.said.append(await answer.read())
            async with session.get(self.process.url + "/events") as answer:
                part = await asyncio.wait_for(answer.content.readuntil(b"event: stats"), 10)
                self.said.append(part)
                assert b"event: recent" in part


async def silent(rounds, expected=0):
    """End the process; nothing that it said, printed or wrote holds a secret, and it was said and printed something."""
    process = rounds.process
    assert process.open_files() == []
    process.child.send_signal(signal.SIGTERM)
    code, out, err = await process.ended(within=20)
    assert code == expected
    assert '"event": "turn"' in err or "] turn " in err
    for what in (*process.lines, out, *err.splitlines(), *rounds.said, *process.files()):
        text = what if isinstance(what, str | bytes) else json.dumps(what)
        assert found_in(text) == []
    assert "Traceback" not in err
    return err


def test_a_secret_is_found_in_every_form():
    """The search finds what it looks for: plain, in a JSON escape's neighbourhood, in base64 at any offset, in a URL."""
    secret = canary("key")
    for lead in ("", "a", "ab", "abc"):
        assert found_in(f"x {lead}{secret} y")
        assert found_in(base64.b64encode(f"{lead}{secret}:pw".encode()))
    assert found_in(repr(secret.encode()))
    assert found_in(secret.upper())
    assert not found_in("canary without the rest")


@pytest.fixture
def held(tmp_path):
    """Options for a gateway that has the upstream's key and asks for a token, both secrets in files."""
    (tmp_path / "key").write_text(canary("injected"))
    (tmp_path / "token").write_text(canary("token"))
    return ("--upstream-key-file", str(tmp_path / "key"), "--token-file", str(tmp_path / "token"))


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
async def test_turns_that_succeed_and_that_fail(tmp_path, held, stream):
    """Turns of every mode and every failure, with secrets from both sides, leave no trace of them."""
    options = (
        ("--log-format", "json", *held) if stream else ("--log-format", "console", "--max-in-flight", "64")
    )
    async with (
        running_simulator(Options(), FunctionScript(lambda _ask: said())) as upstream,
        watched(tmp_path / "home", "--upstream", upstream.url, *options) as process,
        Rounds(process) as rounds,
    ):
        done = {"type": "function_call_output", "call_id": "call_1", "output": canary("output")}
        first = await rounds.create(turn(stream=stream), ours=False)
        assert (first.status, first.mode) == (200, "full")
        history = [*turn()["input"], *first.answer["output"], done, user()]
        second = await rounds.create({**turn(stream=stream), "input": history}, ours=False)
        assert (second.status, second.mode) == (200, "delta")
        for fault in (
            Fault(actions=Abort(), at=after_deltas(1)),
            Fault(actions=Close(1011, canary("reason")), at=CREATED),
        ):
            upstream.faults.add(fault)
            if stream:
                assert (await rounds.broken(turn(user(), stream=True)))[-1]["type"] == "response.failed"
            else:
                await rounds.create(turn(user()), ours=True)
        answered = set()
        for faults in failing():
            upstream.faults.clear()
            upstream.faults.add(*faults)
            with contextlib.suppress(aiohttp.ClientError, json.JSONDecodeError):
                seen = await rounds.create(turn(user(), stream=stream), ours=False)
                answered.add(seen.status)
                if seen.status == 502:
                    rounds.said.append(seen.raw)
        assert answered >= {200, 400, 401, 403, 404, 429, 500, 502, 503}
        upstream.faults.clear()
        upstream.faults.add(
            Fault(actions=Stall(), at=CREATED),
            Fault(actions=Stall()),
            Fault(actions=Stall(), transport="http"),
        )
        await rounds.left(turn(stream=stream), after=15 if stream else 0)
        await rounds.left(turn(stream=stream))
        await rounds.left(turn(stream=stream, background=True))
        upstream.faults.clear()
        parent = await rounds.create(turn(previous_response_id=canary("parent")), ours=False)
        assert parent.status == 400
        plain = await rounds.create(turn(background=True), ours=False)
        assert (plain.status, plain.mode) == (200, "http")
        for headers in ({"idempotency-key": canary("header")}, {"x-upwire-mode": "http"}):
            assert (await rounds.create(turn(), ours=False, headers=headers)).mode == "http"
        for number in range(25):
            await rounds.create(turn(), ours=False, headers={"x-nonce": f"{canary('header')}{number}"})
        for path in (f"/files/{canary('key')}", f"/responses/{canary('parent')}", f"/models{QUERY}"):
            await rounds.api.get(path)
        await rounds.told()
        err = await silent(rounds)
        assert "header_keeps_changing" in err and "socket_closed" in err


@pytest.mark.parametrize("answer", ["refused", "redirected", "rubbish", "late rubbish", "gone"])
async def test_upgrades_that_fail(tmp_path, answer):
    """An upstream that answers the upgrade with something else, secrets in it, is gone round without a word of it."""
    secret = canary("upstream")
    headers = {"location": f"http://127.0.0.1:9/{secret}", "www-authenticate": secret, "x-secret": secret}
    status = {"refused": 403, "redirected": 302}.get(answer, 500)
    faults = {
        "rubbish": Fault(actions=(SendText(f"HTTP/1.1 {secret}\r\n\r\n"), Abort()), at=OPENED, times=None),
        "late rubbish": Fault(
            actions=(SendBinary(secret.encode()), Close(1002, secret)), at=OPENED, times=None
        ),
        "gone": Fault(actions=Abort(), at=UPGRADE, times=None),
    }
    refusal = Fault(
        actions=Respond(status=status, headers=headers, body=secret.encode()), at=UPGRADE, times=None
    )
    async with (
        running_simulator(Options(), FunctionScript(lambda _ask: said())) as upstream,
        watched(tmp_path / "home", "--upstream", upstream.url + f"?key={canary('querykey')}") as process,
        Rounds(process) as rounds,
    ):
        upstream.faults.add(faults.get(answer, refusal))
        for number in range(3):
            seen = await rounds.create(
                turn(), ours=False, headers={"x-caller": f"{canary('header')}{number}"}
            )
            assert (seen.status, seen.mode) in {(200, "http"), (200, "full"), (502, None)}
            if seen.status == 502:
                rounds.said.append(seen.raw)
        await rounds.told()
        await silent(rounds)


@pytest.fixture
def closed_port():
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.parametrize(
    "broken",
    [
        "upstream",
        "name",
        "tls",
        "proxy",
        "proxy of the environment",
        "proxy that refuses",
        "proxy that babbles",
    ],
)
async def test_upstreams_and_proxies_out_of_reach(tmp_path, closed_port, broken):
    """Whoever cannot be reached, the secrets in its URL and in what it says stay out of the 502 and of the log."""
    userinfo = f"{canary('proxy')}:{canary('proxy')}"
    secret = canary("upstream").encode()

    async def refuse(connection, _request):
        if broken == "proxy that babbles":
            await connection.send(b"\x00\xff" + secret + b"\r\n\r\n" + secret)
        else:
            await connection.send(
                b"HTTP/1.1 407 %b\r\nProxy-Authenticate: Basic realm=%b\r\nContent-Length: %d\r\n\r\n%b"
                % (secret, secret, len(secret), secret)
            )

    environment = {}
    async with raw_upstream(refuse, keep=False) as peer:
        port = peer.port if "that" in broken or broken == "tls" else closed_port
        query = f"?key={canary('querykey')}"
        options = {
            "upstream": ("--upstream", f"http://127.0.0.1:{port}/v1{query}"),
            "name": ("--upstream", f"https://nobody.invalid/v1{query}"),
            "tls": ("--upstream", f"https://127.0.0.1:{port}/v1{query}"),
        }.get(
            broken,
            (
                "--upstream",
                f"https://nobody.invalid/v1{query}",
                "--proxy",
                f"http://{userinfo}@127.0.0.1:{port}",
            ),
        )
        if broken == "proxy of the environment":
            environment = {"HTTPS_PROXY": options[3]}
            options = options[:2]
        async with watched(tmp_path / "home", *options, "--dial-timeout", "3", **environment) as process:
            assert found_in("\n".join(process.lines)) == []
            async with Rounds(process) as rounds:
                for body in (turn(), turn(stream=True), turn(background=True)):
                    seen = await rounds.create(body, ours=True)
                    assert (seen.status, seen.mode) == (502, None)
                seen = await rounds.api.get(f"/models{QUERY}")
                assert seen.status == 502
                rounds.said.append(seen.raw)
                await rounds.told()
                err = await silent(rounds)
                assert "socket_refused" in err


async def test_bytes_that_are_no_request(tmp_path):
    """Malformed, oversized, half-sent and undecodable requests are answered or dropped without an echo anywhere."""
    secret = canary("malformed").encode()
    large = canary("oversized").encode() * 6000
    half = canary("halfsent").encode()
    head = Rounds.head
    body = json.dumps(turn()).encode()
    requests = [
        secret + b"\r\n\r\n",
        b"\x16\x03\x01" + secret * 20,
        b"GET /v1/" + secret + b" HTTP/9.9\r\n\r\n",
        b"GET http://" + secret + b"/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v1/\xff" + secret + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        head(b"Content-Length: " + secret),
        head(b"Content-Length: 5", b"Content-Length: 6"),
        head(b"Transfer-Encoding: " + secret),
        head(b"Transfer-Encoding: chunked") + secret + b"\r\n",
        head(b"Transfer-Encoding: chunked") + b"2\r\n" + secret + b"\r\n0\r\n\r\n",
        head(b"X-Bad: " + secret + b"\x00"),
        head(b"X-Fold: a\r\n " + secret),
        head(secret + b" : 1"),
        head(secret),
        head(b"X-Long: " + large),
        head(*[b"X-Many: " + secret] * 300),
        head(path=b"/v1/" + large),
        head(b"Expect: " + secret, b"Content-Length: 0"),
        head(b"Origin: http://" + secret, b"Content-Length: 0"),
        head(b"Host: " + secret, b"Content-Length: 0"),
        head(b"Content-Encoding: " + secret, b"Content-Length: 2") + b"{}",
        head(b"Content-Length: 999999999999") + half,
        head(b"Transfer-Encoding: chunked", b"Connection: close") + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body) * 3000, body * 3000),
        head(path=b"/nowhere/" + secret) + secret,
        head(path=b"/stats") + secret,
        b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + secret + b"\r\n\r\n" + secret,
    ]  # fmt: skip
    for coding, coded in (
        ("gzip", gzip.compress(body)[:-9]),
        ("br", body),
        ("zstd", half * 9),
        ("deflate", b"x" + body),
    ):
        requests.append(
            head(b"Content-Encoding: %b" % coding.encode(), b"Content-Length: %d" % len(coded)) + coded
        )
    texts = (b"", half, b'"' + half + b'"', b"[" + body + b"]", body[:-1], b"\xef\xbb\xbf" + body, b"{" + half, body + half,
                 b'{"input":"%b","input":"%b"}' % (half, half), b'{"input":"%b\xff"}' % half, b'{"%b":NaN}' % half,
                 b'{"model":{"%b":1},"input":"x"}' % half, b'{"model":"%b x","input":["%b"]}' % (half, half))  # fmt: skip
    requests += [head(b"Content-Length: %d" % len(text), b"Connection: close") + text for text in texts]
    halves = [
        b"POST /v1/responses HTTP/1.1\r\nAuthorization: Bearer " + half,
        head()[:-2],
        head(b"Content-Length: 90000") + half,
        head(b"Transfer-Encoding: chunked") + b"ffff\r\n" + half,
        head(b"Content-Encoding: gzip", b"Content-Length: 90000") + gzip.compress(half),
        head(b"Content-Length: 90000", path=b"/v1/files/" + half) + half,
    ]
    async with (
        running_simulator(Options(), FunctionScript(lambda _ask: said())) as upstream,
        watched(tmp_path / "home", "--upstream", upstream.url, "--max-body", "1000000") as process,
        Rounds(process) as rounds,
    ):
        for data in requests:
            back = await rounds.raw(data + (b"" if data.endswith(b"}") else b"\r\n"))
            if b"x-upwire-mode: http" in back.lower() or b"x-upwire-mode: full" in back.lower():
                # The upstream's own answer, which may quote what it refuses.
                rounds.said[-1] = back.partition(b"\r\n\r\n")[0]
            else:
                assert b"HTTP/1." in back
        for data in halves:
            await rounds.raw(data, half=True)
            reader, writer = await asyncio.open_connection("127.0.0.1", rounds.port)
            writer.write(data)
            await writer.drain()
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            del reader
        assert (await rounds.create(turn(), ours=False)).status == 200
        await rounds.told()
        await silent(rounds)


async def test_a_drain_that_cuts_turns_short(tmp_path):
    """Turns and half-sent bodies that the end of the process cuts off leave no trace either."""
    async with (
        running_simulator(Options(token_pace=0.05, words=5000)) as upstream,
        watched(tmp_path / "home", "--upstream", upstream.url, "--drain-timeout", "0.2") as process,
        Rounds(process) as rounds,
    ):
        assert (await rounds.create(turn(input=f"{canary('prompt')} words 2"), ours=False)).status == 200
        async with asyncio.TaskGroup() as group:
            for stream in (True, False):
                group.create_task(_cut(rounds, turn(stream=stream)))
            group.create_task(rounds.raw(Rounds.head(b"Content-Length: 90000") + canary("halfsent").encode()))
            await upstream.until(lambda journal: len(journal.creates()) == 3)
            group.create_task(_end(rounds))


async def _cut(rounds, body):
    with contextlib.suppress(aiohttp.ClientError):
        seen = await rounds.create(body, ours=False)
        if seen.status >= 500:
            rounds.said.append(seen.raw)


async def _end(rounds):
    err = await silent(rounds)
    assert '"outcome": "failed"' in err or '"outcome":"failed"' in err


async def command(home, *arguments, **environment):
    """Run a command of ``upwire``; exit code and all that it printed."""
    home.mkdir(exist_ok=True)
    given = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYTHONDEVMODE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", *arguments, env={**given, **environment}, cwd=home,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        out, _ = await asyncio.wait_for(child.communicate(), 30)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return child.returncode, out.decode()


@pytest.mark.parametrize("way", ["environment", "file"])
@pytest.mark.parametrize(
    "settings",
    [
        {"upstream": f"http://127.0.0.1:9/v1?api_key={canary('querykey')}", "proxy": f"http://u:{canary('proxy')}@127.0.0.1:9"},
        {"upstream": f"http://{canary('key')}:{canary('key')}@127.0.0.1:9/v1"},
        {"upstream": f"http://[{canary('key')}/v1"},
        {"upstream": f"{canary('key')}://h/v1"},
        {"upstream": f"http://h:{canary('key')}/v1"},
        {"upstream": f"http://127.0.0.1:9/v1#{canary('key')}"},
        {"upstream": f"http://127.0.0.1:9/v1?x {canary('key')}"},
        {"proxy": f"u:{canary('proxy')}@h:1"},
        {"proxy": f"http://u:{canary('proxy')}@[::1"},
        {"upstream_key_env": canary("injected")},
        {"upstream_key_env": canary("injected").replace("-", "_")},
        {"host": "0.0.0.0", "upstream": f"http://127.0.0.1:9/v1?key={canary('querykey')}"},
        {"port": "99999", "upstream": f"http://127.0.0.1:9/v1?key={canary('querykey')}"},
    ],
    ids=["query and proxy", "userinfo", "bracket", "scheme", "port", "fragment", "space", "no scheme", "half", "hyphens", "name", "wide", "wrong"],
)  # fmt: skip
async def test_commands_show_no_secret_of_a_setting(tmp_path, settings, way):
    """Each of config, check and a serve that does not start names the setting and the fault, and prints no secret value."""
    home = tmp_path / "home"
    home.mkdir()
    arguments, environment = [], {"OPENAI_API_KEY": canary("key")}
    if way == "flag":
        arguments = [
            part for name, value in settings.items() for part in ("--" + name.replace("_", "-"), value)
        ]
    elif way == "environment":
        environment |= {"UPWIRE_" + name.upper(): value for name, value in settings.items()}
    else:
        lines = [f"{k} = {v if v.isdigit() else json.dumps(v)}" for k, v in settings.items()]
        (tmp_path / "file.toml").write_text("\n".join(lines))
        environment["UPWIRE_CONFIG"] = str(tmp_path / "file.toml")
    # Such a proxy may be used, so the gateway would start.
    starts = settings.keys() == {"upstream", "proxy"} or settings.get("proxy", "").startswith("u:")
    shown = 0
    for name in ("config", "check", "serve"):
        if name == "serve" and starts:
            continue
        port = [] if name == "config" or "port" in settings else ["--port", "0"]
        code, out = await command(home, name, *arguments, *port, **environment)
        hidden = (
            out
            if name != "config"
            else out.replace(f'upstream_key_env = "{settings.get("upstream_key_env")}"', "")
        )
        assert found_in(hidden) == [], out
        assert "Traceback" not in out
        shown += any(setting in out for setting in settings)
        if name == "serve":
            assert code != 0
    assert shown >= 1
    assert list(home.iterdir()) == []


async def test_a_file_that_is_no_configuration_is_not_quoted(tmp_path):
    """A key that somebody put into the configuration file by mistake is not printed with what is wrong there."""
    file = tmp_path / "c.toml"
    for text in (canary("key"), f"= {canary('key')}", f'port = "{canary("key")}"', f"mode = '{canary('key')}'", f"port = [{canary('key')}",
                 f'upstream = "{canary("key")}', f'port = 1\nport = "{canary("key")}"'):  # fmt: skip
        file.write_text(text)
        code, out = await command(tmp_path / "home", "serve", "--config", str(file))
        assert code != 0
        assert str(file) in out
        assert found_in(out) == [], text


def failing():
    """Faults of the upstream, each with a secret wherever there is room for one."""
    secret = canary("upstream")
    for status in (400, 401, 403, 404, 409, 429, 500, 503):
        error = {
            "status": status,
            "code": secret,
            "kind": secret,
            "message": secret,
            "headers": {"x-secret": secret},
        }
        yield (Fault(actions=SendError(**error)),)
        yield (Fault(actions=SendError(**error, then_failed=True), at=CREATED),)
    for shape in (
        "stream",
        "flat",
        "nested",
        "body",
        "message",
        "detail",
        "status_code",
        "untyped",
        "response.error",
    ):
        yield (Fault(actions=SendError(status=400, message=secret, shape=shape)),)
    unknown = SendError(status=400, code="unknown_parameter", message=f"Unknown parameter: '{secret}'.")
    yield (Fault(actions=unknown, transport="ws"),)
    yield (Fault(actions=Fail(code=secret, message=secret)),)
    yield (Fault(actions=Fail(code=secret, message=secret), at=CREATED),)
    yield (Fault(actions=EndIncomplete(secret), at=CREATED),)
    for code in (1000, 1001, 1008, 1009, 1011, 1012, 4000):
        yield (Fault(actions=Close(code, secret)),)
        yield (Fault(actions=Close(code, secret), at=CREATED),)
    for action in (Abort(), Cut(), TruncateBody()):
        yield (Fault(actions=action),)
        yield (Fault(actions=action, at=BEFORE_TERMINAL),)
    for action in (
        SendText(secret),
        SendText('{"type":"' + secret),
        SendText('{"type":"error","error":"' + secret + '"}'),
        SendText('"' + secret + '"'),
        SendBinary(secret.encode() + b"\xff\x00"),
        SendEvent({"type": secret}),
        SendEvent({"type": f"response.{secret}", secret: secret}),
        SendEvent({"type": "codex.rate_limits", "plan": secret}),
        SendEvent({"type": "response.created", "response": {"id": secret}}),
        SendEvent({"type": "response.completed", "response": {"id": secret, "output": secret}}),
        SendEvent(
            {
                "type": "response.failed",
                "response": {"id": secret, "error": {"code": secret, "message": secret}},
            }
        ),
        SendEvent({"type": "response.output_item.done", "item": {"type": secret}, "output_index": 77}),
        SendEvent(
            {"type": "response.output_text.delta", "item_id": secret, "delta": secret, "output_index": secret}
        ),
    ):
        yield (Fault(actions=(action, Abort())),)
        yield (Fault(actions=(action, Abort()), at=CREATED),)
    yield (Fault(actions=EndQuietly(), transport="http"), Fault(actions=Abort(), transport="ws"))
