"""The settings of the shared index: what they need, and that nothing secret is quoted."""

import pytest

from gateway.cli.config import shown
from gateway.config import ConfigError, load
from gateway.index.opening import IndexUnusable, index_secret, open_index
from gateway.settings import Settings

SECRET = "0123456789abcdef" * 2
HIDDEN = "hidden-password"


def test_without_an_address_there_is_no_index():
    """The default shares nothing, and needs nothing."""
    assert open_index(Settings(), {}, None, reloads=True) is None


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"index": f"http://u:{HIDDEN}@host"}, "must be a URL"),
        ({"index": f"u:{HIDDEN}@host:6379"}, "must be a URL"),
        ({"index": f"redis://u:{HIDDEN}@host"}, "needs the secret"),
        ({"index": f"redis://u:{HIDDEN}@host", "index_key_file": "a", "index_key_env": "B"}, "one of both"),
        ({"index_key_env": f"no name {HIDDEN}"}, "must be the name of an environment variable"),
        ({"index_timeout": 0.0}, "must be greater than 0"),
    ],
)
def test_what_makes_no_sense_is_an_error_that_quotes_nothing(given, rule):
    """The text says which setting is wrong, and what would be right."""
    with pytest.raises(ConfigError, match=rule) as error:
        load(given, {})
    assert HIDDEN not in str(error.value)


def test_the_variable_that_holds_the_secret_may_be_called_like_ours():
    """It is no unknown setting."""
    environment = {
        "UPWIRE_INDEX": "redis://host", "UPWIRE_INDEX_KEY_ENV": "UPWIRE_INDEX_SECRET", "UPWIRE_INDEX_SECRET": SECRET,
    }  # fmt: skip
    assert load({}, environment).settings.index_key_env == "UPWIRE_INDEX_SECRET"
    with pytest.raises(ConfigError, match="unknown environment variable"):
        load({}, {"UPWIRE_INDEX_SECRET": SECRET})


def test_a_secret_comes_from_a_file_or_a_variable(tmp_path):
    """Spaces around it do not count; a short, missing or unreadable one is an error that quotes nothing."""
    file = tmp_path / "secret"
    file.write_text(f" {SECRET}\n")
    assert index_secret(str(file), "", {}) == index_secret("", "S", {"S": SECRET}) == SECRET.encode()
    file.write_text("short-one")
    for place in (
        (str(file), "", {}),
        ("", "S", {"S": "short-one"}),
        ("", "S", {}),
        (str(tmp_path / "no"), "", {}),
    ):
        with pytest.raises(IndexUnusable) as error:
            index_secret(*place)
        assert "short-one" not in str(error.value)
    for both in (("", ""), (str(file), "S")):
        with pytest.raises(IndexUnusable, match="one of both"):
            index_secret(*both, {})


def test_the_password_is_not_shown():
    """The commands that print settings leave user and password out."""
    assert HIDDEN not in shown(f"redis://user:{HIDDEN}@host:6379/0")
    assert HIDDEN not in shown(f"unix:///run/redis.sock?password={HIDDEN}")
