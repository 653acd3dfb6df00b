"""Several upstreams behind several processes: whichever gets a turn, it goes to the upstream of its path and continues what it began."""

from __future__ import annotations

import asyncio
import contextlib

from gateway.simulator import Options
from tests.gateways import running_simulator
from tests.serving import serving
from tests.upstreams_several.test_key_changes import NEW, OLD, keys_of, until, write
from tests.workers.conversations import Talk, stats, talk_all, texts


@contextlib.asynccontextmanager
async def two_of_both(tmp_path, *, options=None, extra=""):
    """Two upstreams, and two workers before them."""
    file = tmp_path / "upwire.toml"
    async with (
        running_simulator(Options(seed="one")) as one,
        running_simulator(options or Options(seed="two")) as two,
    ):
        file.write_text(
            f'[upstreams.second]\npath = "/second/v1"\nurl = "{two.url}"\nprofile = "openai"\n{extra}'
            '[upstreams.second.headers]\nx-team = "tools"\n'
        )
        named = ("--upstream", one.url, "--profile", "openai", "--workers", "2", "--config", str(file))
        async with serving(*named) as process:
            yield one, two, process


async def test_no_delta_is_lost_at_either(tmp_path):
    """Many conversations, the same at both upstreams, each turn over a connection of its own; the answers are those of direct runs."""
    async with (
        two_of_both(tmp_path) as (one, two, process),
        running_simulator(Options(seed="one")) as first,
        running_simulator(Options(seed="two")) as second,
    ):
        places = (
            process.url,
            process.url + "/second",
            first.url.removesuffix("/v1"),
            second.url.removesuffix("/v1"),
        )
        talks = [[Talk(url, f"words 2, number {n}", store=n % 2 == 0) for n in range(6)] for url in places]
        await asyncio.gather(*(talk_all(each, 5) for each in talks))
        here, there, *direct = ([texts(talk) for talk in each] for each in talks)
        assert [here, there] == direct
        assert here != there
        through = [talk for each in talks[:2] for talk in each]
        assert {answer.mode for talk in through for answer in talk.answers[1:]} == {"delta"}
        found = await stats(process.url)
        for name in ("main", "second"):
            assert found["upstreams"][name]["turns"]["total"] == 30
            assert found["upstreams"][name]["turns"]["delta"] == 24
            assert found["upstreams"][name]["websocket"] == "works"
        assert (
            sum(each["connections"]["open"] for each in found["upstreams"].values())
            == found["connections"]["open"]
        )
        assert {entry.headers.get("x-team") for entry in two.journal.opened()} == {"tools"}
        assert {entry.headers.get("x-team") for entry in one.journal.opened()} == {None}


async def test_a_response_that_a_client_continues_itself_is_found_at_its_upstream(tmp_path):
    """By its id, in whichever process it lives, and deleted everywhere."""
    async with two_of_both(tmp_path) as (_, two, process):
        talk = Talk(process.url + "/second", "words 2", store=True)
        made = await talk.turn()
        for _ in range(4):
            seen = await Talk(
                process.url + "/second", "go on", store=True, previous_response_id=made.answer["id"]
            ).turn()
            assert seen.status == 200 and seen.reason == "client_parent"
        assert len({entry.connection for entry in two.journal.creates("ws")}) <= 4


async def test_a_key_that_is_replaced_drains_the_sockets_of_every_process(tmp_path):
    """Each looks at the file for itself."""
    key = tmp_path / "key"
    write(key, OLD)
    strict = Options(seed="two", keys=frozenset({OLD, NEW}))
    async with two_of_both(tmp_path, options=strict, extra=f'key_file = "{key}"\n') as (_, two, process):
        talks = [Talk(process.url + "/second", f"words 2, number {n}") for n in range(12)]
        await talk_all(talks, 2)
        opened = len(two.journal.opened())
        assert {socket["worker"] for socket in (await stats(process.url))["sockets"]} == {0, 1}
        write(key, NEW)
        await until(lambda: len(two.journal.closed()) == opened)
        await talk_all(talks, 2)
        assert {answer.status for talk in talks for answer in talk.answers} == {200}
        assert [talk.answers[2].reason for talk in talks] == ["new_conversation"] * 12
        assert {talk.answers[3].mode for talk in talks} == {"delta"}
        assert set(keys_of(two)[opened:]) == {NEW}
        found = (await stats(process.url))["connections"]["closed"]
        assert found["key_changed"] == opened
