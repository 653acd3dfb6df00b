"""Which event loop serves, in one process and in several, and what is said of it."""

import sys

import pytest

from gateway import loops
from gateway.simulator import Options
from tests.gateways import Api, running_simulator
from tests.serving import begin, serving
from tests.workers.conversations import stats


@pytest.fixture
def without_uvloop(monkeypatch):
    """The package is not installed."""
    monkeypatch.setitem(sys.modules, "uvloop", None)


def test_asyncio_is_what_python_has():
    """Nothing is imported for it."""
    assert loops.factory("asyncio") is None


@pytest.mark.usefixtures("without_uvloop")
def test_auto_takes_what_is_there():
    """Without the package it is Python's own."""
    assert loops.factory("auto") is None


def test_auto_takes_uvloop_where_it_is():
    """With the package it is that."""
    loop = loops.factory("auto")()
    assert type(loop).__module__ == "uvloop"
    loop.close()


@pytest.mark.usefixtures("without_uvloop")
def test_asked_for_and_not_there():
    """The text says what to install."""
    with pytest.raises(loops.NoLoop, match=r"pip install 'upwire\[uvloop\]'"):
        loops.factory("uvloop")


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(
    ("loop", "expected"), [("auto", "uvloop"), ("asyncio", "asyncio"), ("uvloop", "uvloop")]
)
async def test_turns_on_each(loop, expected, workers):
    """A conversation is one of deltas on either, and the statistics name the loop."""
    async with running_simulator(Options(seed="loops")) as simulator:
        options = ("--upstream", simulator.url, "--profile", "openai", "--loop", loop, "--workers", workers)
        async with serving(*options) as process, Api(process.url + "/v1") as api:
            history, modes = [{"role": "user", "content": "hello"}], []
            for _ in range(3):
                seen = await api.create({"model": "gpt-5", "store": False, "input": history})
                modes.append(seen.mode)
                history += [*seen.answer["output"], {"role": "user", "content": "go on"}]
            assert modes == ["full", "delta", "delta"]
            assert (await stats(process.url))["loop"] == expected


async def test_a_word_that_is_no_loop():
    """It is an error of the configuration that names what there is."""
    process = await begin("--port", "0", "--loop", "trio")
    code, _, err = await process.ended(within=10)
    assert code != 0
    assert "asyncio" in err and "uvloop" in err
