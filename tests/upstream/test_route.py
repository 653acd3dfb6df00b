"""Which proxy and which trust are used towards the upstream."""

import ssl

import pytest

from gateway.upstream.route import NoRoute, route_to

PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("upstream", "environment", "proxy"),
    [
        ("https://api.example/v1", {}, None),
        ("https://api.example/v1", {"HTTPS_PROXY": PROXY}, PROXY),
        ("https://api.example/v1", {"https_proxy": PROXY, "HTTPS_PROXY": "http://other:1"}, PROXY),
        ("https://api.example/v1", {"HTTP_PROXY": PROXY}, None),
        ("http://api.example/v1", {"http_proxy": PROXY}, PROXY),
        ("http://api.example/v1", {"HTTPS_PROXY": PROXY}, None),
        ("https://api.example/v1", {"ALL_PROXY": PROXY}, PROXY),
        ("https://api.example/v1", {"ALL_PROXY": PROXY, "HTTPS_PROXY": "http://first:1"}, "http://first:1"),
        ("https://api.example/v1", {"HTTPS_PROXY": "proxy.example:3128"}, PROXY),
        ("https://api.example/v1", {"HTTPS_PROXY": PROXY, "NO_PROXY": "other,.example"}, None),
        ("https://api.example/v1", {"HTTPS_PROXY": PROXY, "no_proxy": "*"}, None),
        ("https://api.example/v1", {"HTTPS_PROXY": PROXY, "NO_PROXY": "xapi.example"}, PROXY),
        ("https://api.example:8443/v1", {"HTTPS_PROXY": PROXY, "NO_PROXY": "api.example:8443"}, None),
        ("http://127.0.0.1:1/v1", {"ALL_PROXY": PROXY}, None),
        ("http://[::1]:1/v1", {"ALL_PROXY": PROXY}, None),
        ("http://localhost/v1", {"ALL_PROXY": PROXY}, None),
    ],
)
def test_the_proxy_of_the_environment(upstream, environment, proxy):
    """The usual variables decide, small letters first, and nothing on this machine goes through a proxy."""
    assert route_to(upstream, environment).proxy == proxy


def test_the_setting_overrules_the_environment():
    """A URL is used as given, even to this machine; none means none."""
    environment = {"HTTPS_PROXY": "http://other:1"}
    assert route_to("https://api.example/v1", environment, proxy=PROXY).proxy == PROXY
    assert route_to("http://127.0.0.1/v1", environment, proxy=PROXY).proxy == PROXY
    assert route_to("https://api.example/v1", environment, proxy="none").proxy is None


@pytest.mark.parametrize("proxy", ["socks5://me:secret@h:1", "secret", "http://", "http://me:secret@h:x"])
def test_a_proxy_that_cannot_be_used_is_refused(proxy):
    """It is not passed over in silence, and no part of it is quoted: it may hold a password."""
    with pytest.raises(NoRoute) as error:
        route_to("https://api.example/v1", {}, proxy=proxy)
    assert "secret" not in str(error.value)
    if "://" in proxy:
        with pytest.raises(NoRoute):
            route_to("https://api.example/v1", {"ALL_PROXY": proxy})


def test_tls_verifies_and_is_made_for_https_only():
    """Verification is on by default, and plain http needs no context."""
    context = route_to("https://api.example/v1", {}).tls
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    assert route_to("http://api.example/v1", {}).tls is None


@pytest.mark.parametrize("setting", ["ca_file", "client_cert"])
def test_a_certificate_file_that_cannot_be_used(tmp_path, setting):
    """A missing file and one that is no PEM are named with their setting."""
    path = tmp_path / "cert.pem"
    for words in ("there is no file", "must be PEM"):
        with pytest.raises(NoRoute, match=rf"{setting}: .*{words}|{words}") as error:
            route_to("https://api.example/v1", {}, **{setting: str(path)})
        assert str(path) in str(error.value)
        path.write_text("nothing")
