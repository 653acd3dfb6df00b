"""A gateway that has the upstream's key: clients need none, present the gateway's token instead, and neither crosses over."""

from __future__ import annotations

import json
import os
import stat

import pytest
from structlog.testing import capture_logs

from gateway.config import ConfigError, load
from gateway.simulator import Options
from gateway.upstream.identity import handshake_headers, upstream_headers, with_key
from gateway.upstream.key import KeyUnusable, UpstreamKey, upstream_key
from tests.files import write
from tests.gateways import Api, running_gateway, running_simulator
from tests.serving import begin, serving

TOKEN = "token-" + "t" * 32
KEY = "sk-the-upstreams-own"
USER = {"role": "user", "content": "hello"}
STRICT = Options(rounds=0, keys=frozenset({KEY, KEY + "-2"}))


@pytest.fixture
def key_file(tmp_path):
    """A file with the upstream's key."""
    path = tmp_path / "key"
    write(path, KEY + "\n")
    return path


async def talk(api, turns=2, **more):
    """A conversation of some turns; the mode of each."""
    history, modes = [USER], []
    for _ in range(turns):
        seen = await api.create({"model": "gpt-5", "input": history, **more})
        assert seen.status == 200, seen.raw
        modes.append(seen.mode)
        history = [*history, *seen.answer["output"], USER]
    return modes


def authorizations(upstream):
    """What stood in ``Authorization`` wherever the upstream saw headers: upgrades and plain requests."""
    return {entry.headers.get("authorization") for entry in upstream.journal if entry.headers}


@pytest.mark.parametrize("place", ["file", "environment"])
async def test_the_key_replaces_what_the_client_sent(place, key_file, monkeypatch):
    """Over sockets, over plain HTTP, and on every other path the upstream sees the gateway's key, once, and no other."""
    monkeypatch.setenv("SOME_KEY", KEY)
    settings = {"upstream_key_file": str(key_file)} if place == "file" else {"upstream_key_env": "SOME_KEY"}
    async with running_simulator(STRICT) as upstream, running_gateway(upstream.url, **settings) as gateway:
        for headers in (
            {"authorization": "Bearer sk-of-the-client"},
            {"authorization": ""},
            {"api-key": "sk-of-the-client", "x-api-key": "sk-of-the-client"},
            {"authorization": "Basic c2stb2YtdGhlLWNsaWVudA==", "connection": "authorization, keep-alive"},
        ):
            async with Api(gateway.url) as api:
                api.headers = headers
                assert await talk(api) == ["full", "delta"]
                plain = await api.create({"model": "gpt-5", "input": "x", "background": True})
                assert (plain.status, plain.mode) == (200, "http")
                assert (await api.get("/models")).status == 200
        assert authorizations(upstream) == {f"Bearer {KEY}"}
        told = json.dumps([entry.headers for entry in upstream.journal])
        assert "the-client" not in told and "c2st" not in told and "api-key" not in told


@pytest.mark.parametrize(
    "presented",
    [
        {"x-upwire-token": TOKEN},
        {"authorization": f"Bearer {TOKEN}"},
        {"authorization": f"bearer  {TOKEN}"},
        {"api-key": TOKEN},
        {"x-upwire-token": TOKEN, "authorization": "Bearer sk-whatever"},
    ],
    ids=["own header", "api key", "spelled otherwise", "azure's header", "both"],
)
async def test_the_token_may_be_presented_as_the_key(presented, key_file):
    """With the key here, the token is good in either place, for turns and for statistics, and stays here."""
    async with (
        running_simulator(STRICT) as upstream,
        running_gateway(upstream.url, token=TOKEN, upstream_key_file=str(key_file)) as gateway,
        Api(gateway.url) as api,
    ):
        api.headers = presented
        assert await talk(api) == ["full", "delta"]
        assert (await api.create({"model": "gpt-5", "input": "x", "background": True})).status == 200
        assert (await api.get("/models")).status == 200
        assert (await api.get("/../stats")).status == 200
        assert authorizations(upstream) == {f"Bearer {KEY}"}
        assert TOKEN not in json.dumps([[entry.headers, entry.path] for entry in upstream.journal])


@pytest.mark.parametrize(
    "presented",
    [
        {},
        {"authorization": "Bearer "},
        {"authorization": f"Bearer {KEY}"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"x-upwire-token": f"Bearer {TOKEN}"},
        {"x-upwire-token": "ü" * 16},
        {"cookie": TOKEN},
    ],
)
async def test_without_the_token_nobody_uses_the_key(presented, key_file):
    """Anything but the token gets a 401 that says where it is asked for and quotes nothing; nothing goes upstream."""
    async with (
        running_simulator(STRICT) as upstream,
        running_gateway(upstream.url, token=TOKEN, upstream_key_file=str(key_file)) as gateway,
        Api(gateway.url) as api,
    ):
        api.headers = presented
        for seen in (
            await api.create({"model": "gpt-5", "input": "x"}),
            await api.get("/models"),
            await api.get("/../stats"),
            await api.get("/../metrics"),
        ):
            assert seen.status == 401
            error = seen.answer["error"]
            assert error["code"] == "invalid_gateway_token"
            assert "or as the API key" in error["message"]
            assert TOKEN[:-1] not in seen.raw.decode() and KEY not in seen.raw.decode()
        assert not len(upstream.journal)


async def test_without_a_key_here_the_clients_key_is_no_token():
    """Where clients bring their own key it goes upstream, so the token in its place is refused and goes nowhere."""
    async with (
        running_simulator() as upstream,
        running_gateway(upstream.url, token=TOKEN) as gateway,
        Api(gateway.url, key=TOKEN) as api,
    ):
        seen = await api.create({"model": "gpt-5", "input": "x"})
        assert (seen.status, seen.answer["error"]["code"]) == (401, "invalid_gateway_token")
        assert "API key" not in seen.answer["error"]["message"]
        assert not len(upstream.journal)


async def test_a_new_key_in_the_file_is_used_from_the_next_turn(key_file):
    """A changed file is another identity: its own socket with the new key, in full, then deltas again."""
    async with (
        running_simulator(STRICT) as upstream,
        running_gateway(upstream.url, upstream_key_file=str(key_file)) as gateway,
        Api(gateway.url) as api,
    ):
        assert await talk(api) == ["full", "delta"]
        write(key_file, KEY + "-2")
        assert await talk(api) == ["full", "delta"]
        assert (await api.get("/models")).status == 200
        assert [entry.key for entry in upstream.journal.opened()] == [KEY, KEY + "-2"]
        by_key = {entry.connection: entry.key for entry in upstream.journal.opened()}
        parents = {}
        for frame in upstream.journal.creates("ws"):
            assert frame.parent is None or frame.parent in parents[by_key[frame.connection]]
            parents.setdefault(by_key[frame.connection], set()).add(frame.response_id)
        assert list(upstream.journal)[-1].headers["authorization"] == f"Bearer {KEY}-2"


@pytest.mark.parametrize("store", [True, False], ids=["stored", "unstored"])
async def test_clients_behind_one_key_stay_apart(key_file, store):
    """What a client presents in place of a key still tells it from others with the same words."""
    async with (
        running_simulator(STRICT) as upstream,
        running_gateway(upstream.url, upstream_key_file=str(key_file)) as gateway,
        Api(gateway.url, key="one") as one,
        Api(gateway.url, key="two") as two,
    ):
        body = {"model": "gpt-5", "store": store, "input": [USER]}
        first = await one.create(body)
        again = {**body, "input": [USER, *first.answer["output"], USER]}
        other = await two.create(again)
        assert (other.mode, other.reason) == ("full", "new_conversation")
        assert (await one.create(again)).mode == "delta"
        assert len(upstream.journal.opened()) == 2


def test_a_file_that_cannot_be_used_any_more_leaves_the_last_key(key_file):
    """Empty, gone, or no single word: the last key stays, the log says so once per change and quotes nothing."""
    key = UpstreamKey("", file=key_file)
    with capture_logs() as log:
        for text in ("", "two words", "sk-ümlaut", "sk-a\nsk-b", "sk-\x00"):
            write(key_file, text)
            assert key.current() == KEY
            assert key.current() == KEY
        key_file.unlink()
        assert key.current() == key.current() == KEY
    assert [line["event"] for line in log] == ["upstream_key_unusable"] * 6
    assert "sk-" not in str(log) and "words" not in str(log)
    write(key_file, "  sk-new \n")
    assert key.current() == "sk-new"


def test_a_file_changed_within_one_tick_of_the_clock_is_seen(key_file):
    """Also a key of the same length whose file has the same time is another one if the file is another one."""
    key = UpstreamKey("", file=key_file)
    before = key_file.stat()
    write(key_file, KEY[::-1] + "\n")
    os.utime(key_file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert key.current() == KEY[::-1]


@pytest.mark.parametrize("text", ["", "\n", "two words", "sk-ümlaut", "sk-\ttab", "sk-a\r\nx-evil: 1"])
def test_a_key_that_is_no_word_is_refused_at_the_start(tmp_path, text):
    """A key that could not stand in a header, or is none, is named by its place and not quoted."""
    path = tmp_path / "key"
    path.write_text(text, newline="")
    for make in (
        lambda: upstream_key(str(path), "", {}),
        lambda: upstream_key("", "SOME_KEY", {"SOME_KEY": text}),
    ):
        with pytest.raises(KeyUnusable) as error:
            make()
        assert not text.strip() or text.strip() not in str(error.value)


def test_no_key_two_keys_and_a_key_for_a_name(tmp_path):
    """Without the settings there is no key; both, an unset variable and a missing file are errors that quote no value."""
    assert upstream_key("", "", {}) is None
    with pytest.raises(KeyUnusable, match="FileNotFoundError"):
        upstream_key(str(tmp_path / "none"), "", {})
    with pytest.raises(KeyUnusable, match="must be the name") as error:
        upstream_key("", "sk_1234567890", {})
    assert "1234567890" not in str(error.value)
    with pytest.raises(ConfigError, match="both given"):
        load({"upstream_key_file": "f", "upstream_key_env": "E"}, {})
    with pytest.raises(ConfigError, match="must be the name") as error:
        load({"upstream_key_env": "sk-proj-1234567890"}, {})
    assert "1234567890" not in str(error.value)


@pytest.mark.parametrize("way", ["flag", "environment", "file"])
def test_the_variable_with_the_key_may_be_named_like_ours(way, tmp_path):
    """A name that begins like the variables of settings is no unknown setting if it is the one that holds the key."""
    environment = {"UPWIRE_KEY": KEY}
    file = tmp_path / "c.toml"
    file.write_text('upstream_key_env = "UPWIRE_KEY"\n' if way == "file" else "")
    flags = {"upstream_key_env": "UPWIRE_KEY"} if way == "flag" else {}
    if way == "environment":
        environment["UPWIRE_UPSTREAM_KEY_ENV"] = "UPWIRE_KEY"
    loaded = load(flags, environment, config=str(file))
    assert loaded.settings.upstream_key_env == "UPWIRE_KEY"
    with pytest.raises(ConfigError, match="UPWIRE_KEY"):
        load({}, {"UPWIRE_KEY": KEY})


def test_the_key_is_the_only_credential_in_every_spelling():
    """Repeated, differently spelled or declared to end here: nothing of the client's own keys is left beside the new one."""
    headers = [
        ("AUTHORIZATION", "Bearer a"), ("authorization", "Bearer b"), ("Api-Key", "c"), ("X-API-Key", "d"),
        ("Connection", "Authorization, x-hop"), ("X-Hop", "1"), ("Accept", "*/*"), ("x-upwire-mode", "http"),
    ]  # fmt: skip
    given = with_key(headers, KEY)
    assert given == (("Accept", "*/*"), ("x-upwire-mode", "http"), ("Authorization", f"Bearer {KEY}"))
    assert ("Authorization", f"Bearer {KEY}") in upstream_headers(given, body_length=1)
    assert ("Authorization", f"Bearer {KEY}") in handshake_headers(given)


async def test_the_process_says_where_the_key_is_from(key_file, tmp_path):
    """The lines at the start name the file, not the key; a client with nothing but the token has its turns."""
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(stat.S_IRUSR)
    async with running_simulator(STRICT) as upstream:
        options = (
            "--upstream",
            upstream.url,
            "--upstream-key-file",
            str(key_file),
            "--token-file",
            str(token),
        )
        async with serving(*options) as process, Api(process.url + "/v1", key=TOKEN) as api:
            assert f"upstream key from {key_file}" in process.lines
            assert KEY not in str(process.lines)
            assert await talk(api) == ["full", "delta"]


async def test_a_process_without_its_key_does_not_start():
    """The reason is one line that does not quote the setting, which may be the key by mistake."""
    process = await begin("--port", "0", "--upstream-key-env", "sk_canary_1234")
    code, out, err = await process.ended(within=20)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "upstream_key_env must be the name of an environment variable" in err
    assert "canary" not in err
