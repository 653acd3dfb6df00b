"""``upwire config``."""

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.config import as_toml, shown, toml
from gateway.config import load


def test_every_value_with_its_source_and_meaning(upwire, monkeypatch, tmp_path):
    """What was set is a live line that names where it came from; all else is commented out, and says how to set it."""
    path = tmp_path / "mine.toml"
    path.write_text('match = "exact"\nport = 7500\n')
    monkeypatch.setenv("UPWIRE_CONFIG", str(path))
    monkeypatch.setenv("UPWIRE_PORT", "7600")
    code, out, err = upwire("config", "--socket-idle", "60")
    assert (code, err) == (0, "")
    assert f'[from file {path}; --match, UPWIRE_MATCH, reload]\nmatch = "exact"\n' in out
    assert "[from environment UPWIRE_PORT; --port, UPWIRE_PORT]\nport = 7600\n" in out
    assert "[from flag --socket-idle; --socket-idle, UPWIRE_SOCKET_IDLE, reload]\nsocket_idle = 60.0\n" in out
    assert '# Address to listen on.\n# [default; --host, UPWIRE_HOST]\n# host = "127.0.0.1"\n' in out


def test_the_output_is_a_configuration_file(upwire, tmp_path):
    """Given back as a file it makes the same settings."""
    path = tmp_path / "again.toml"
    flags = ("--max-body", "5", "--allowed-hosts", 'odd "name"', "--allowed-hosts", "b", "--no-expose-mode")
    path.write_text(upwire("config", *flags)[1])
    again = load({}, {}, config=str(path))
    assert again.settings.max_body == 5
    assert again.settings.allowed_hosts == ('odd "name"', "b")
    assert again.settings.expose_mode is False
    assert {name for name, source in again.sources.items() if source != "default"} == {
        "max_body", "allowed_hosts", "expose_mode",
    }  # fmt: skip


def test_json_has_the_same(upwire):
    """With --json it is a list of records."""
    rows = {row["name"]: row for row in json.loads(upwire("config", "--json", "--mode", "http")[1])}
    assert rows["mode"] == {
        "name": "mode", "value": "http", "default": "auto", "source": "flag --mode", "flag": "--mode",
        "variable": "UPWIRE_MODE", "choices": ["auto", "http"], "reload": True,
        "meaning": "auto upgrades turns to WebSocket; http sends everything over plain HTTP.",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "secret", "kept"),
    [
        ("upstream", "http://h:1/openai?api-version=1&key=sk-x", "http://h:1/openai?..."),
        ("proxy", "http://me:sk-x@proxy:3128", "http://...@proxy:3128"),
    ],
)
def test_secrets_are_shown_only_when_asked_for(upwire, setting, secret, kept):
    """A query or password is replaced, in a line that is commented out; --reveal shows it."""
    out = upwire("config", f"--{setting}", secret)[1]
    assert "sk-x" not in out
    assert f'# {setting} = "{kept}"' in out
    assert "sk-x" not in upwire("config", "--json", f"--{setting}", secret)[1]
    assert f'\n{setting} = "{secret}"' in upwire("config", "--reveal", f"--{setting}", secret)[1]


def test_a_wrong_configuration_is_an_error(upwire, tmp_path):
    """The file, the key and the nearest right spelling are named, and nothing is printed."""
    path = tmp_path / "wrong.toml"
    path.write_text("max_bdy = 1\n")
    code, out, err = upwire("config", "--config", str(path))
    assert (code, out) == (2, "")
    assert f"unknown key 'max_bdy' in {path}; did you mean max_body?" in err


@given(st.text() | st.lists(st.text()).map(tuple) | st.booleans() | st.integers() | st.floats(0, 1e300))
def test_any_value_survives_being_written(value):
    """What is written reads back as itself, whatever is in it."""
    assert tomllib.loads("x = " + toml(value))["x"] == (list(value) if isinstance(value, tuple) else value)


def test_what_is_no_url_is_shown_as_it_is():
    """Only URLs can hold such secrets."""
    assert [shown(v) for v in ("none", 5, "a?b", "http://h/p", "http://[bad?x")] == [
        "none", 5, "a?b", "http://h/p", "...",
    ]  # fmt: skip
    assert as_toml(load({"port": 1}, {})).count("\nport = 1\n") == 1
