"""A team behind one gateway: labels, limits of their own, and a busy key that starves nobody."""

import asyncio
import contextlib
import hashlib
import json
import subprocess
import sys
from dataclasses import replace

import aiohttp
import pytest

from gateway.cli.check import rows
from gateway.cli.stats import table
from gateway.config import ConfigError, load_token, load_tokens
from gateway.settings import Settings
from gateway.simulator import Fault, Options
from gateway.simulator import faults as f
from gateway.tasks import Tasks
from gateway.upstream.team import TeamUnusable, digest_of, read_team
from tests.gateways import Api, running_gateway, running_simulator

ALICE, BOB = "sk-alice-canary", "sk-bob-canary"


def body(text, **fields):
    """A request that the API does not store."""
    return {"model": "gpt-5", "store": False, "input": [{"role": "user", "content": text}], **fields}


def written(tmp_path, text):
    """A file of a team."""
    path = tmp_path / "team.toml"
    path.write_text(text)
    return str(path)


def team_of(tmp_path, **limits):
    """Alice and bob by their keys; ``limits`` are alice's."""
    own = "".join(f"{name} = {value}\n" for name, value in limits.items())
    return written(
        tmp_path,
        f'[alice]\nkeys = ["{digest_of(ALICE)}"]\n{own}[bob]\nkeys = ["{digest_of(BOB)}"]\n',
    )


@contextlib.asynccontextmanager
async def hanging(simulator, api, count):
    """So many turns of one client that are upstream and not answered; cancelled at the end."""
    simulator.faults.add(Fault(actions=f.Stall(), times=count))
    before = len(simulator.journal.creates())
    tasks = Tasks(lambda *_: None)
    for number in range(count):
        tasks.spawn(api.create(body(f"hanging {number}")), name="hangs")
    try:
        await simulator.until(lambda journal: len(journal.creates()) >= before + count)
        yield
    finally:
        await tasks.close()


async def read(gateway, path="/stats", **headers):
    """What the gateway tells of itself to whoever sends these headers."""
    async with aiohttp.ClientSession() as client, client.get(gateway.root + path, headers=headers) as answer:
        return await answer.text()


async def stats_of(gateway, **headers):
    """The statistics."""
    return json.loads(await read(gateway, **headers))


async def test_a_busy_key_starves_nobody():
    """While one key has all turns that it can get, and keeps asking, every turn of another is served over a socket."""
    async with (
        running_simulator(Options(rounds=0)) as simulator,
        running_gateway(simulator.url, max_in_flight=18, sockets_per_identity=64, sockets=18) as gateway,
        Api(gateway.url, key=ALICE) as alice,
        Api(gateway.url, key=BOB) as bob,
        hanging(simulator, alice, 16),
    ):
        refused = await asyncio.gather(*(alice.create(body(f"more {number}")) for number in range(20)))
        assert {(seen.status, seen.answer["error"]["code"]) for seen in refused} == {(503, "too_many_turns")}
        assert all(int(seen.headers["retry-after"]) >= 1 for seen in refused)
        items = body("hello")["input"]
        modes = []
        for _ in range(5):
            seen = await bob.create(body("", input=items))
            assert seen.status == 200
            modes.append(seen.mode)
            items += [*seen.answer["output"], {"role": "user", "content": "go on"}]
        assert modes == ["full", "delta", "delta", "delta", "delta"]


async def test_other_headers_make_no_other_key():
    """Whoever varies a header that tells callers apart gets no second share for it."""
    async with (
        running_simulator(Options(rounds=0)) as simulator,
        running_gateway(simulator.url, in_flight_per_identity=2) as gateway,
        Api(gateway.url, key=ALICE) as alice,
        hanging(simulator, alice, 2),
    ):
        seen = await alice.create(body("more"), headers={"x-team": "another"})
        assert (seen.status, seen.answer["error"]["code"]) == (503, "too_many_turns")


async def test_bodies_that_arrive_count():
    """A place is taken from the head of a request on, and a body that does not go on gives it back in time."""
    async with (
        running_simulator(Options(rounds=0)) as simulator,
        running_gateway(simulator.url, in_flight_per_identity=1, client_timeout=0.4) as gateway,
        Api(gateway.url, key=ALICE) as alice,
    ):
        host, port = gateway.root.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %b\r\nContent-Length: 1000\r\n"
            b"Expect: 100-continue\r\n\r\n{" % ALICE.encode()
        )
        async with asyncio.timeout(5):
            assert b" 100 " in await reader.readuntil(b"\r\n\r\n")
            assert (await alice.create(body("while it arrives"))).status == 503
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 408 ")
            await reader.readuntil(b"body_timeout")
        writer.close()
        assert (await alice.create(body("after it"))).status == 200


async def test_counted_under_labels_and_never_under_keys(tmp_path):
    """Each label has its own numbers, all others are one, and neither a key nor its digest is shown anywhere."""
    async with (
        running_simulator(Options(rounds=0)) as simulator,
        running_gateway(simulator.url, team_file=team_of(tmp_path, in_flight=1)) as gateway,
        Api(gateway.url, key=ALICE) as alice,
        Api(gateway.url, key=BOB) as bob,
        Api(gateway.url, key="sk-nobody-canary") as nobody,
    ):
        first = await alice.create(body("hello"))
        history = [*body("hello")["input"], *first.answer["output"], {"role": "user", "content": "more"}]
        assert (await alice.create(body("", input=history))).mode == "delta"
        await bob.create(body("hello"))
        await nobody.create(body("hello"))
        async with hanging(simulator, alice, 1):
            assert (await alice.create(body("over her limit"))).status == 503
            assert (await bob.create(body("still served"))).status == 200
            seen = await stats_of(gateway)
            metrics = await read(gateway, "/metrics")
        found = seen["identities"]
        assert list(found) == ["alice", "bob", "other"]
        assert found["alice"]["turns"] == {
            "total": 2, "delta": 1, "full": 1, "http": 0, "failed": 0, "cancelled": 0, "in_flight": 1,
        }  # fmt: skip
        assert found["bob"]["turns"]["total"] == 2 and found["other"]["turns"]["total"] == 1
        for part in ("client_in", "upstream_out", "saved"):
            assert sum(each["bytes"][part] for each in found.values()) == seen["bytes"][part]
        connections = seen["connections"]
        assert sum(e["sockets"] for e in found.values()) == connections["open"] + connections["dialling"]
        assert found["alice"]["sockets"] == 2
        assert 'upwire_identity_turns_total{identity="alice",mode="delta"} 1.0' in metrics
        assert 'upwire_identity_turns_in_flight{identity="alice"} 1.0' in metrics
        assert 'upwire_identity_sockets{identity="other"} 1.0' in metrics
        shown = [line for line in table(seen).splitlines() if line.startswith(("alice", "bob", "other"))]
        assert [line.split()[:4] for line in shown] == [
            ["alice", "2", "turns", "50%"], ["bob", "2", "turns", "0%"], ["other", "1", "turns", "0%"],
        ]  # fmt: skip
        told = metrics + str(seen) + await read(gateway, "/dashboard")
        for key in (ALICE, BOB, "sk-nobody-canary"):
            assert key not in told and hashlib.sha256(key.encode()).hexdigest() not in told


async def test_no_labels_no_series():
    """Without a team nothing is counted by key."""
    async with (
        running_simulator(Options(rounds=0)) as simulator,
        running_gateway(simulator.url) as gateway,
        Api(gateway.url) as api,
    ):
        await api.create(body("hello"))
        assert (await stats_of(gateway))["identities"] == {}
        assert "{identity=" not in await read(gateway, "/metrics")


async def test_labels_of_tokens(tmp_path):
    """Several tokens have a label each; only these are let in, and their conversations do not meet."""
    tokens = {"a" * 32: "alice", "b" * 32: "bob"}
    async with (
        running_simulator(Options(rounds=0)) as simulator,
        running_gateway(
            simulator.url, token=tokens, team_file=written(tmp_path, "[bob]\nin_flight = 3\n")
        ) as gateway,
        Api(gateway.url, **{"x-upwire-token": "a" * 32}) as alice,
        Api(gateway.url, **{"x-upwire-token": "b" * 32}) as bob,
        Api(gateway.url, **{"x-upwire-token": "c" * 32}) as stranger,
    ):
        first = await alice.create(body("hello"))
        history = [*body("hello")["input"], *first.answer["output"], {"role": "user", "content": "more"}]
        assert (await bob.create(body("", input=history))).mode == "full"
        assert (await stranger.create(body("hello"))).status == 401
        for label, token in (("alice", "a" * 32), ("bob", "b" * 32)):
            found = (await stats_of(gateway, **{"x-upwire-token": token}))["identities"]
            assert {name: each["turns"]["total"] for name, each in found.items()} == {label: 1}


async def test_members_see_their_own_numbers(tmp_path):
    """In all forms of the statistics a member is shown its own label only, and whoever sees all is shown all."""
    tokens = {"a" * 32: "alice", "b" * 32: "bob", "w" * 32: "watcher"}
    team = written(tmp_path, "[watcher]\nsees_all = true\n")
    labels = ("alice", "bob", "watcher", "other")
    async with (
        running_simulator(Options(rounds=0)) as simulator,
        running_gateway(simulator.url, token=tokens, team_file=team) as gateway,
        aiohttp.ClientSession() as client,
    ):

        async def shown(path, headers):
            async with client.get(gateway.root + path, headers=headers) as answer:
                text = (
                    await answer.content.readuntil(b'sockets":[')
                    if path == "/events"
                    else await answer.read()
                ).decode()
            form = 'identity="%s"' if path == "/metrics" else '"%s":{'
            return [label for label in labels if form % label in text]

        for path in ("/stats", "/metrics", "/events"):
            assert await shown(path, {"x-upwire-token": "w" * 32}) == list(labels)
            assert await shown(path, {"x-upwire-token": "a" * 32}) == ["alice"]
            assert await shown(path, {"authorization": "Bearer " + "b" * 32}) == ["bob"]


async def test_labels_are_read_again(tmp_path):
    """A changed file counts from the next request, with what was counted; one that makes no sense changes nothing."""
    file = team_of(tmp_path)
    async with (
        running_simulator(Options(rounds=0)) as simulator,
        running_gateway(simulator.url, team_file=file) as gateway,
        Api(gateway.url, key=ALICE) as alice,
    ):
        settings = Settings(upstream=simulator.url, team_file=file)
        await alice.create(body("hello"))
        team_of(tmp_path, in_flight=0)
        with pytest.raises(TeamUnusable, match="in_flight of alice"):
            gateway.gateway.reconfigure(replace(settings, mode="http"))
        assert (await alice.create(body("hello"))).mode == "full"
        team_of(tmp_path, in_flight=1)
        gateway.gateway.reconfigure(settings)
        async with hanging(simulator, alice, 1):
            assert (await alice.create(body("over the limit"))).status == 503
        assert (await stats_of(gateway))["identities"]["alice"]["turns"]["total"] == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[alice\n", "not TOML"),
        ("[alice]\n", "needs keys"),
        ('[alice]\nkeys = ["sk-canary"]\n', "must be a list of digests"),
        ('[alice]\nkeys = "sha256:"\n', "must be a list of digests"),
        ("[alice]\nsk-canary = 1\n", "1 entries that are none of"),
        ("alice = 1\n", "must be a table"),
        ('["al ice"]\n', "a label has at most"),
        ("[other]\n", "stands for all"),
        (f'[a]\nkeys = ["{digest_of("k")}"]\n[b]\nkeys = ["{digest_of("k")}"]\n', "another label"),
        (f'[a]\nkeys = ["{digest_of("k")}"]\nsockets = "1"\n', "sockets of a"),
        (f'[a]\nkeys = ["{digest_of("k")}"]\nsees_all = 1\n', "sees_all of a"),
    ],
)
def test_what_is_wrong_with_a_team(tmp_path, text, told):
    """The text says where and what would be right, and quotes no key."""
    with pytest.raises(TeamUnusable, match=told) as wrong:
        read_team(written(tmp_path, text), {})
    assert "canary" not in str(wrong.value)
    with pytest.raises(TeamUnusable, match="cannot be read"):
        read_team(str(tmp_path / "none"), {})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a" * 32 + "\n" + "b" * 32, "each needs a label"),
        ("alice: " + "a" * 32 + "\nbob: " + "a" * 32, "one token twice"),
        ("other: " + "a" * 32, "stands for all"),
        ("alice: short", "at least 16"),
        ("", "at least 16"),
    ],
)
def test_what_is_wrong_with_tokens(tmp_path, text, told):
    """The text quotes nothing of the file."""
    file = tmp_path / "tokens"
    file.write_text(text)
    with pytest.raises(ConfigError, match=told) as wrong:
        load_tokens(Settings(token_file=str(file)))
    assert "aaaa" not in str(wrong.value) and "short" not in str(wrong.value)


def test_one_token_or_several(tmp_path):
    """One word, with or without a label, or a line for each."""
    file = tmp_path / "tokens"
    settings = Settings(token_file=str(file))
    file.write_text("a" * 32 + "\n")
    assert load_tokens(settings) == {"a" * 32: ""}
    file.write_text("alice: " + "a" * 32 + "\n\nbob:  " + "b" * 32)
    assert load_tokens(settings) == {"a" * 32: "alice", "b" * 32: "bob"}
    assert load_token(settings) == "a" * 32


async def test_check_names_a_team_that_makes_no_sense(tmp_path):
    """What ``upwire serve`` would refuse is the first thing that ``upwire check`` says."""
    given = {"team_file": written(tmp_path, "[alice]\n")}
    found = [row async for row in rows(None, given, live=False, model="gpt-5")]
    assert [(row.name, row.verdict) for row in found] == [("config", "failed")]
    assert "alice needs keys" in found[0].seen


def test_the_command_prints_a_table_without_the_key(tmp_path):
    """What ``upwire label`` prints for a key from standard input can be read as a team; a bad label or no key is refused."""

    def run(label, given):
        return subprocess.run(
            [sys.executable, "-m", "gateway", "label", label], input=given, capture_output=True, text=True, timeout=30, check=False
        )  # fmt: skip

    done = run("alice", f"Bearer {ALICE}\n")
    assert done.returncode == 0 and ALICE not in done.stdout
    team = read_team(written(tmp_path, done.stdout), {})
    assert team.labels == ("alice",) and team.member([ALICE]).label == "alice"
    assert run("other", ALICE).returncode == 2
    assert run("alice", "two words").returncode == 1
