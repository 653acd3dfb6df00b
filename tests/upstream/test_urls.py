"""One function joins base URL, client path and query, for HTTP and for WebSocket."""

import pytest

from gateway.upstream.urls import api_path, http_url, socket_url

BASES = {
    "https://h": "https://h/v1",
    "https://h/": "https://h/v1",
    "https://h/v1": "https://h/v1",
    "https://h/v1/": "https://h/v1",
    "https://h:8443/openai/v1": "https://h:8443/openai/v1",
    "http://[::1]:9/openai/v1/": "http://[::1]:9/openai/v1",
}
PATHS = (
    "/v1/responses",
    "/v1/responses/",
    "/responses",
    "/openai/v1/responses",
    "/openai/responses",
    "//v1/responses",
    "/v1/v1/responses",
)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("path", PATHS)
def test_every_spelling_of_base_and_path_meets_in_one_url(base, path):
    """Every base URL and client path that users write gives one URL, without a second v1."""
    assert http_url(base, path) == BASES[base] + "/responses"


@pytest.mark.parametrize("base", [*BASES, "https://h/openai?api-version=p"])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("query", ["", "api-version=q", "b=2&a=1&x=%2F&x=%2f&y=+&z"])
def test_http_and_socket_urls_differ_in_the_scheme_only(base, path, query):
    """The WebSocket URL is the HTTP URL with ws for http."""
    target = f"{path}?{query}" if query else path
    assert socket_url(base, query) == http_url(base, target).replace("http", "ws", 1)


def test_the_query_of_the_base_comes_first_and_nothing_is_escaped_anew():
    """Base parameters stay, the client's follow in their order and spelling."""
    base = "https://h/openai?api-version=p&k=%2F"
    assert http_url(base, "/v1/responses") == "https://h/openai/responses?api-version=p&k=%2F"
    assert (
        http_url(base, "/v1/responses?b=%2f&a=%2F&b=")
        == "https://h/openai/responses?api-version=p&k=%2F&b=%2f&a=%2F&b="
    )


def test_a_parameter_that_the_client_names_is_left_to_the_client():
    """A parameter of the base is a default: it is not sent twice."""
    assert (
        http_url("https://h/openai?api-version=p&k=1", "/v1/responses?x=1&api-version=q")
        == "https://h/openai/responses?k=1&x=1&api-version=q"
    )


def test_other_paths_keep_their_bytes():
    """Everything behind the root is passed on as written, dot segments and doubled slashes included."""
    assert http_url("https://h/v1", "/v1/files//a%2Fb/../c/?") == "https://h/v1/files//a%2Fb/../c/"
    assert http_url("https://h/v1", "/v1") == "https://h/v1"
    assert http_url("https://h/v1", "/v1/responses/resp_1/") == "https://h/v1/responses/resp_1/"
    assert http_url("wss://h/v1", "/v1/models") == "https://h/v1/models"


@pytest.mark.parametrize(
    "target", ["/", "/stats", "/v1x", "/v10/responses", "/responsesx", "/x/v1/responses", ""]
)
def test_paths_outside_the_api_are_none_of_ours(target):
    """A target outside the API's roots has no upstream URL."""
    assert api_path(target) is None
    with pytest.raises(ValueError, match="not a path"):
        http_url("https://h/v1", target)


@pytest.mark.parametrize("base", ["ftp://h/v1", "h/v1", "https:///v1", ""])
def test_a_base_that_is_no_http_url_is_refused(base):
    """Nothing is sent to a base URL that cannot be one."""
    with pytest.raises(ValueError, match="http or https"):
        http_url(base, "/v1/responses")
