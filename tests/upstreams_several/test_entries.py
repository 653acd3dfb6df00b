"""Which upstreams a configuration names, and which it may not."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from gateway.config import ConfigError, load
from gateway.settings import Settings, UpstreamEntry
from gateway.upstream.entries import all_entries, further_entries, revived, routed, settings_for

SECRET = "sk-canary-1234567890"
AZURE = """
[upstreams.azure]
path = "/azure/openai/v1"
url = "https://n.openai.azure.com/openai/v1?api-version=1"
key_env = "UPWIRE_AZURE_KEY"

[upstreams.azure.headers]
x-team = "tools"
"""


@pytest.fixture
def file(tmp_path):
    """Writes a configuration file and gives its path as text."""

    def write(text):
        path = tmp_path / "upwire.toml"
        path.write_text(text)
        return str(path)

    return write


def table(**values):
    """One table with these values, as TOML."""
    chosen = {"path": "/one", "url": "http://h:1/v1"} | values
    lines = [f"{name} = {json.dumps(value)}" for name, value in chosen.items() if value is not None]
    return "\n".join(["[upstreams.one]", *lines])


def test_tables_and_routes_are_upstreams(file):
    """A table has everything, a route a path and a URL; the main one comes first and keeps its settings."""
    environment = {"UPWIRE_ROUTE": "/xai/v1=https://api.x.ai/v1, /b=http://h:1", "UPWIRE_AZURE_KEY": "k"}
    settings = load({"upstream_key_env": "MINE"}, environment, config=file(AZURE)).settings
    main, azure, xai, plain = all_entries(settings)
    assert main == UpstreamEntry(name="main", path="/v1", url=settings.upstream, key_env="MINE")
    assert azure == UpstreamEntry(
        name="azure",
        path="/azure/openai/v1",
        url="https://n.openai.azure.com/openai/v1?api-version=1",
        headers=(("x-team", "tools"),),
        key_env="UPWIRE_AZURE_KEY",
    )
    assert (xai.name, xai.path, xai.url) == ("xai-v1", "/xai/v1", "https://api.x.ai/v1")
    assert (plain.name, plain.path, plain.url) == ("b", "/b", "http://h:1")
    own = settings_for(settings, azure)
    assert (own.upstream, own.upstream_key_env, own.route, own.upstreams) == (
        azure.url,
        azure.key_env,
        (),
        (),
    )
    assert own.port == settings.port
    assert revived(json.loads(json.dumps(asdict(settings)))["upstreams"]) == settings.upstreams


@pytest.mark.parametrize(
    ("path", "name"),
    [("/a.b/v1", "a-b-v1"), ("/main", "route"), ("/~", "route"), ("/_a", "a"), ("/" + "a" * 80, "a" * 40)],
)
def test_the_name_of_a_route_is_made_of_its_path(path, name):
    """It can be a label, and is not that of the main upstream."""
    assert routed(f"{path}=http://h").name == name


def test_a_flag_with_a_route_replaces_those_of_the_environment():
    """As every other setting does."""
    loaded = load({"route": ("/a=http://h:1",)}, {"UPWIRE_ROUTE": "/b=http://h:2"})
    assert [entry.path for entry in further_entries(loaded.settings)] == ["/a"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"path": None}, "needs path"),
        ({"url": None}, "needs path"),
        ({"url": "ftp://h"}, "url of upstreams.one must be an http or https URL"),
        ({"url": f"http://me:{SECRET}@h"}, "must not hold a user name"),
        ({"url": f"http://h/#{SECRET}"}, "fragment"),
        ({"path": "one"}, "must be a path"),
        ({"path": "/"}, "must be a path"),
        ({"path": "/one/"}, "final slash"),
        ({"path": "/one//two"}, "must be a path"),
        ({"path": "/one/../v1"}, "must be a path"),
        ({"path": "/o%6e"}, "must be a path"),
        ({"path": "/one?x"}, "must be a path"),
        ({"path": "/öne"}, "must be a path"),
        ({"path": "/v1"}, "where clients find the main upstream"),
        ({"path": "/v1/other"}, "where clients find the main upstream"),
        ({"path": "/openai/v1"}, "such as /other/openai/v1"),
        ({"path": "/responses"}, "where clients find the main upstream"),
        ({"path": "/stats"}, "which the gateway answers itself"),
        ({"path": "/metrics/v1"}, "which the gateway answers itself"),
        ({"path": "/healthz"}, "which the gateway answers itself"),
        ({"path": "/readyz"}, "which the gateway answers itself"),
        ({"path": "/dashboard"}, "which the gateway answers itself"),
        ({"path": "/events"}, "which the gateway answers itself"),
        ({"profile": "opanai"}, "must be one of auto, openai, azure, xai, codex, generic"),
        ({"key_file": "a", "key_env": "B"}, "which of them holds the key?"),
        ({"key_env": SECRET}, "must be the name of an environment variable"),
        ({"key": SECRET}, "none of path, url, profile, headers, key_file, key_env"),
        ({SECRET: "x"}, "has 1 entries that are none of"),
        ({"path": 1}, "path of upstreams.one must be a text"),
        ({"headers": "x"}, "headers of upstreams.one must be a table"),
    ],
)
def test_what_makes_no_sense_is_an_error(file, values, words):
    """The text says which upstream, what would be right and where it stands, and quotes nothing that may be a key."""
    path = file(table(**values))
    with pytest.raises(ConfigError) as raised:
        load({}, {}, config=path)
    assert words in str(raised.value)
    assert "upstreams.one" in str(raised.value) and path in str(raised.value)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ('authorization = "Bearer SECRET"', "by key_file or key_env"),
        ('Api-Key = "SECRET"', "by key_file or key_env"),
        ('x-api-key = "SECRET"', "by key_file or key_env"),
        ('host = "h"', "decides"),
        ('connection = "x"', "decides"),
        ('content-length = "1"', "decides"),
        ('sec-websocket-protocol = "x"', "decides"),
        ('x-upwire-mode = "http"', "decides"),
        ('"x y" = "1"', "must have names"),
        ('x-a = "a\\r\\nb"', "must have names"),
        ('x-a = "ä"', "must have names"),
        ('x-a = " a"', "without spaces"),
        ("x-a = 1", "must be a table of texts"),
        ('x-a = "1"\nX-A = "2"', "one name twice"),
    ],
)
def test_headers_that_may_not_be_set(file, headers, words):
    """Keys have a place of their own, and what belongs to a connection is not a matter of configuration."""
    text = table() + "\n[upstreams.one.headers]\n" + headers.replace("SECRET", SECRET)
    with pytest.raises(ConfigError) as raised:
        load({}, {}, config=file(text))
    assert words in str(raised.value)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("upstreams = 1", "must be tables"),
        ("[upstreams]\none = 1", "must be tables"),
        ('[upstreams.main]\npath = "/a"\nurl = "http://h"', "is not main"),
        ('[upstreams."a b"]\npath = "/a"\nurl = "http://h"', "letters, digits"),
        (
            '[upstreams.a]\npath = "/x"\nurl = "http://h"\n[upstreams.b]\npath = "/x"\nurl = "http://i"',
            "a and b",
        ),
        (
            '[upstreams.a]\npath = "/x"\nurl = "http://h"\n[upstreams.b]\npath = "/x/y"\nurl = "http://i"',
            "/x/y",
        ),
        ('route = ["/a=http://h"]\n[upstreams.a]\npath = "/b"\nurl = "http://i"', "are called a"),
        ('route = ["/a=http://h", "/a=http://i"]', "are called a"),
        ('route = ["/a/b=http://h", "/a=http://i"]', "one holds the other"),
        ('route = ["a=http://h"]', "must be PATH=URL"),
        (f'route = ["http://h/?key={SECRET}"]', "must be PATH=URL"),
        ('route = ["/v1=http://h"]', "path of route /v1 begins with /v1"),
        ('route = ["/stats=http://h"]', "which the gateway answers itself"),
    ],
)
def test_names_and_paths_are_those_of_one_upstream(file, text, words):
    """A request leads to one upstream, and a name in the statistics means one."""
    with pytest.raises(ConfigError) as raised:
        load({}, {}, config=file(text))
    assert words in str(raised.value)
    assert SECRET not in str(raised.value)


def test_there_is_an_end_to_upstreams():
    """Sixty-four are more than anybody needs."""
    routes = tuple(f"/a{n}=http://h" for n in range(64))
    assert len(further_entries(load({"route": routes}, {}).settings)) == 64
    with pytest.raises(ConfigError, match="64 further upstreams"):
        load({"route": (*routes, "/b=http://h")}, {})


def test_headers_do_not_come_out_by_accident():
    """What is printed of settings by a defect has no header in it."""
    entry = UpstreamEntry(name="a", path="/a", url="http://h", headers=(("x-a", SECRET),))
    assert SECRET not in repr(replace(Settings(), upstreams=(entry,)))
