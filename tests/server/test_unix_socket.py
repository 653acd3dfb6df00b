"""A unix socket beside TCP: its file, who may connect, and what is in the way."""

import contextlib
import os
import socket
import stat

import aiohttp
import pytest

from gateway.config import ConfigError, load
from gateway.server import CannotListen
from gateway.server.unix_socket import bind_unix
from tests.gateways import running_simulator
from tests.serving import begin, serving


def refuses(path):
    """The reason why nothing can listen there."""
    with pytest.raises(CannotListen) as error:
        bind_unix(str(path))
    return str(error.value)


def test_only_owner_and_group_may_connect(tmp_path):
    """The file is made with its final rights, whatever the process's mask is, which stays as it was."""
    before = os.umask(0)
    try:
        with contextlib.closing(bind_unix(str(tmp_path / "s"))):
            assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o660
        assert os.umask(0) == 0
    finally:
        os.umask(before)


def test_the_file_goes_with_the_socket(tmp_path):
    """After closing, also twice, there is no file."""
    listener = bind_unix(str(tmp_path / "s"))
    listener.close()
    listener.close()
    assert not list(tmp_path.iterdir())


def test_the_file_of_another_process_is_left(tmp_path):
    """Closing does not take away what has been put in the place of the own file."""
    listener = bind_unix(str(tmp_path / "s"))
    (tmp_path / "s").rename(tmp_path / "elsewhere")
    with contextlib.closing(bind_unix(str(tmp_path / "s"))):
        listener.close()
        assert (tmp_path / "s").is_socket()


def test_what_a_killed_process_left_is_replaced(tmp_path):
    """A socket file on which nobody listens is no obstacle."""
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(tmp_path / "s"))
    assert (tmp_path / "s").is_socket()
    with contextlib.closing(bind_unix(str(tmp_path / "s"))), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "s"))


@pytest.mark.parametrize("backlog", [0, 5])
def test_a_second_instance_is_told(tmp_path, backlog):
    """A socket on which somebody listens is not taken, also when its queue is full."""
    with socket.socket(socket.AF_UNIX) as first, contextlib.ExitStack() as waiting:
        first.bind(str(tmp_path / "s"))
        first.listen(backlog)
        for _ in range(0 if backlog else 1):
            client = waiting.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(tmp_path / "s"))
        assert "is in use; stop the other process" in refuses(tmp_path / "s")
        assert (tmp_path / "s").is_socket()


def test_a_file_that_is_no_socket_is_kept(tmp_path):
    """Whatever has that name may be precious."""
    (tmp_path / "s").write_text("precious")
    assert "no socket" in refuses(tmp_path / "s")
    assert (tmp_path / "s").read_text() == "precious"


def test_where_no_file_can_be(tmp_path):
    """A folder that is not there and a path that is too long are named as such."""
    assert "its folder does not exist" in refuses(tmp_path / "none" / "s")
    assert "too long" in refuses(tmp_path / ("s" * 120))


@pytest.mark.parametrize("wrong", ["/run/upwire.sock", "unix:", "127.0.0.1:80", "tcp:1", ""])
def test_other_forms_are_refused(wrong):
    """The setting names its one form."""
    with pytest.raises(ConfigError, match=r"listen .*must be unix:PATH"):
        load({"listen": (wrong,)}, {})
    assert load({"listen": ("unix:/a", "unix:b")}, {}).settings.listen == ("unix:/a", "unix:b")


async def test_both_are_served(tmp_path):
    """A turn through the file is a turn, the ready lines name it, and it is gone at the end."""
    path = tmp_path / "s"
    async with (
        running_simulator() as simulator,
        serving("--upstream", simulator.url, "--listen", f"unix:{path}") as process,
    ):
        assert process.lines[2] == f"listening on unix:{path}"
        body = {"model": "gpt-5", "store": False, "input": "words 2"}
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session,
            session.post(
                "http://localhost/v1/responses", json=body, headers={"authorization": "Bearer sk-x"}
            ) as answer,
        ):
            assert answer.status == 200
            assert answer.headers["x-upwire-mode"] == "full"
            assert (await answer.json())["status"] == "completed"
        async with aiohttp.ClientSession() as session, session.get(process.url + "/stats") as answer:
            assert (await answer.json())["turns"]["total"] == 1
        process.child.terminate()
        code, _, _ = await process.ended(within=5)
    assert code == 0
    assert not path.exists()


async def test_what_listens_goes_when_a_later_one_cannot(tmp_path):
    """A start that fails for its second socket leaves no file of its first."""
    (tmp_path / "taken").write_text("")
    process = await begin(
        "--port", "0", "--listen", f"unix:{tmp_path / 'free'}", "--listen", f"unix:{tmp_path / 'taken'}"
    )
    code, out, err = await process.ended(within=20)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "is no socket" in err
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
