"""Which local path leads where."""

import pytest

from gateway.upstream.local_paths import LocalPaths
from gateway.upstream.urls import api_path, http_url

PATHS = LocalPaths("main", {"/azure/openai/v1": "azure", "/xai": "xai", "/xai2/v1": "second"})


@pytest.mark.parametrize(
    ("target", "led", "path"),
    [
        ("/v1/responses", "main", "/responses"),
        ("/responses", "main", "/responses"),
        ("/openai/v1/models", "main", "/models"),
        ("/azure/openai/v1/responses", "azure", "/responses"),
        ("/azure/openai/v1/responses/", "azure", "/responses"),
        ("//azure/openai/v1/responses?a=/v1", "azure", "/responses"),
        ("/azure/openai/v1/v1/responses", "azure", "/responses"),
        ("/azure/openai/v1/files/a%2Fb?x=1", "azure", "/files/a%2Fb"),
        ("/azure/openai/v1", "azure", ""),
        ("/azure/openai/v1?x", "azure", ""),
        ("/xai/responses", "xai", "/responses"),
        ("/xai/v1/responses", "xai", "/responses"),
        ("/xai/openai/v1/responses", "xai", "/responses"),
        ("/xai/models", "xai", "/models"),
        ("/xai2/v1/models", "second", "/models"),
    ],
)
def test_a_path_leads_to_one_upstream(target, led, path):
    """With and without the API's root behind it; what is below, and the query, is kept byte for byte."""
    found, below = PATHS.find(target)
    assert (found, api_path(below)) == (led, path)
    assert below.partition("?")[2] == target.partition("?")[2]


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/azure",
        "/azure/openai",
        "/azure/openai/v10/responses",
        "/xai2",
        "/xais/v1",
        "/Xai/v1",
        "/%78ai/v1",
        "/stats",
        "*",
    ],
)
def test_other_paths_lead_nowhere(target):
    """A path ends where a segment ends, and nothing is guessed."""
    assert PATHS.find(target) is None


def test_the_base_of_each_upstream_takes_the_place_of_its_local_path():
    """Whatever its root is."""
    _, target = PATHS.find("/azure/openai/v1/files/f?b=2")
    assert (
        http_url("https://n.azure/openai/v1?api-version=1", target)
        == "https://n.azure/openai/v1/files/f?api-version=1&b=2"
    )


def test_all_are_known_and_can_be_changed():
    """In order, the main one first."""
    assert list(PATHS) == ["main", "azure", "xai", "second"]
    assert PATHS.map(len).find("/xai/v1/x") == (3, "/v1/x")
