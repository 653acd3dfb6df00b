"""Where settings come from, and which are refused."""

from dataclasses import fields

import pytest

from gateway.config import ConfigError, find_file, is_loopback, load, load_token, variable_name
from gateway.settings import Settings


@pytest.fixture
def file(tmp_path):
    """Writes a configuration file and gives its path as text."""

    def write(text: str) -> str:
        path = tmp_path / "upwire.toml"
        path.write_text(text)
        return str(path)

    return write


def test_defaults_alone():
    """With nothing given every setting is its default and says so."""
    loaded = load({}, {})
    assert loaded.settings == Settings()
    assert loaded.sources == {f.name: "default" for f in fields(Settings)}
    assert loaded.file is None


def test_flags_beat_environment_beats_file_beats_default(file):
    """Each layer wins over the next, and the source of each value is kept."""
    path = file('port = 1\nmax_body = 1\nmax_frame = 1\nmatch = "exact"\n')
    loaded = load(
        {"port": 3}, {"UPWIRE_PORT": "2", "UPWIRE_MAX_BODY": "2", "UPWIRE_CONFIG": path, "HOME": "/x"}
    )
    got = loaded.settings
    assert (got.port, got.max_body, got.max_frame, got.match) == (3, 2, 1, "exact")
    assert loaded.sources["port"] == "flag --port"
    assert loaded.sources["max_body"] == "environment UPWIRE_MAX_BODY"
    assert loaded.sources["max_frame"] == f"file {path}"
    assert loaded.sources["max_event"] == "default"
    assert str(loaded.file) == path


@pytest.mark.parametrize(
    ("name", "text", "toml", "value"),
    [
        ("expose_mode", "No", "false", False),
        ("max_body", "5", "5", 5),
        ("socket_age", "5", "5", 5.0),
        ("socket_age", "0.5", "0.5", 0.5),
        ("match", "lenient", '"lenient"', "lenient"),
        ("allowed_hosts", "a, b,", '["a", "b"]', ("a", "b")),
    ],
)
def test_each_kind_of_value(file, name, text, toml, value):
    """Environment texts and TOML values give the same setting."""
    assert getattr(load({}, {variable_name(name): text}).settings, name) == value
    assert getattr(load({}, {}, config=file(f"{name} = {toml}")).settings, name) == value


def test_repeated_flag_gives_all_values():
    """A flag given several times becomes a tuple."""
    assert load({"allowed_hosts": ("a", "b")}, {}).settings.allowed_hosts == ("a", "b")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"UPWIRE_MAX_BODI": "1"}, ["UPWIRE_MAX_BODI", "did you mean UPWIRE_MAX_BODY?"]),
        ({"UPWIRE_QQQQQQ": "1"}, ["UPWIRE_QQQQQQ", "--help"]),
        ({"UPWIRE_PORT": "x"}, ["port", "UPWIRE_PORT", "whole number"]),
        ({"UPWIRE_EXPOSE_MODE": "2"}, ["expose_mode", "true or false"]),
        ({"UPWIRE_SOCKET_AGE": "nan"}, ["socket_age", "finite"]),
        ({"UPWIRE_SOCKET_AGE": "0"}, ["socket_age", "greater than 0"]),
        ({"UPWIRE_SOCKET_WAIT": "-1"}, ["socket_wait", "not be negative"]),
        ({"UPWIRE_MAX_BODY": "-1"}, ["max_body", "greater than 0"]),
        ({"UPWIRE_PORT": "65536"}, ["port", "65535"]),
        ({"UPWIRE_MATCH": "fuzzy"}, ["match", "exact, equivalent, lenient"]),
        (
            {"UPWIRE_MATCH": "Equivalnt"},
            ["UPWIRE_MATCH", "exact, equivalent, lenient; did you mean equivalent?"],
        ),
        ({"UPWIRE_UPSTREAM": "ftp://h"}, ["upstream", "http"]),
        ({"UPWIRE_UPSTREAM": "http://h:x/v1"}, ["upstream", "URL"]),
        ({"UPWIRE_UPSTREAM": "http:///v1"}, ["upstream", "URL"]),
        ({"UPWIRE_UPSTREAM": "http://h/v1#f"}, ["upstream", "fragment"]),
        (
            {"UPWIRE_CONFIG": "/nonexistent/upwire.toml"},
            ["no configuration file", "/nonexistent/upwire.toml"],
        ),
    ],
)
def test_wrong_environment(environment, words):
    """A wrong variable is an error that names it and what would be right."""
    with pytest.raises(ConfigError) as error:
        load({}, environment)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max-body = 1", ["'max-body'", "did you mean max_body?"]),
        ('mode = "htpp"', ["mode", "must be one of auto, http; did you mean http?"]),
        ("[serve]\nport = 1", ["'serve'"]),
        ("port = true", ["port", "whole number"]),
        ("port = 1.5", ["port", "whole number"]),
        ('port = "1"', ["port", "whole number"]),
        ("socket_age = true", ["socket_age", "seconds"]),
        ("expose_mode = 1", ["expose_mode", "true or false"]),
        ('allowed_hosts = "a"', ["allowed_hosts", "list of texts"]),
        ("allowed_hosts = [1]", ["allowed_hosts", "list of texts"]),
        ("port = x\n", ["not TOML", "line 1"]),
    ],
)
def test_wrong_file(file, text, words):
    """A wrong key or value in the file is an error that names the file."""
    path = file(text)
    with pytest.raises(ConfigError) as error:
        load({}, {}, config=path)
    for word in [*words, path]:
        assert word in str(error.value)


def test_variables_of_other_commands_may_stand():
    """Variables named by the caller are no error."""
    assert load({}, {"UPWIRE_STATS_URL": "x"}, also_known=["UPWIRE_STATS_URL"]).settings == Settings()


def test_a_secret_in_the_upstream_is_not_quoted():
    """An error about the upstream does not print it: it may hold a password."""
    with pytest.raises(ConfigError) as error:
        load({"upstream": "https://me:secret@h/v1"}, {})
    assert "secret" not in str(error.value)


def test_the_users_file_is_found_and_the_working_directorys_is_not(tmp_path, monkeypatch):
    """XDG_CONFIG_HOME, else ~/.config; never ./config.toml, which a cloned repository could bring."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text("port = 1")
    assert find_file(None, {"HOME": str(tmp_path)}) is None
    assert find_file(None, {}) is None
    for home in (tmp_path / ".config", tmp_path / "xdg"):
        (home / "upwire").mkdir(parents=True)
        (home / "upwire" / "config.toml").write_text("")
    assert find_file(None, {"HOME": str(tmp_path)}) == tmp_path / ".config" / "upwire" / "config.toml"
    xdg = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    assert find_file(None, xdg) == tmp_path / "xdg" / "upwire" / "config.toml"


@pytest.mark.parametrize(
    ("host", "near"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.1", False),
        ("example.org", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_wider_than_loopback_needs_flag_and_token(host, near, tmp_path):
    """Anything but loopback is refused with the reason unless both are given."""
    token = tmp_path / "token"
    token.write_text("t" * 32)
    assert is_loopback(host) is near
    for flags in ({}, {"allow_remote": True}, {"token_file": str(token)}):
        if near:
            assert load({"host": host, **flags}, {}).settings.host == host
        else:
            with pytest.raises(ConfigError, match="wider than loopback"):
                load({"host": host, **flags}, {})
    both = {"allow_remote": True, "token_file": str(token)}
    assert load_token(load({"host": host, **both}, {}).settings) == "t" * 32


@pytest.mark.parametrize("text", ["", "short", "two words of some length", "ümlaut" * 8, "line\n" * 8])
def test_a_poor_token_is_refused_and_not_quoted(tmp_path, text):
    """A token must be one long printable ASCII word; the error does not print it."""
    path = tmp_path / "token"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load_token(Settings(token_file=str(path)))
    assert str(path) in str(error.value)
    assert not text or text not in str(error.value)


def test_no_token_file_no_token(tmp_path):
    """Without the setting no token is asked for; with a missing file the start fails."""
    assert load_token(Settings()) is None
    with pytest.raises(ConfigError, match="FileNotFoundError"):
        load_token(Settings(token_file=str(tmp_path / "none")))
