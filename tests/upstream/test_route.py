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
        ("http://me.localhost/v1", {"ALL_PROXY": PROXY}, None),
        ("https://api.example/v1", {"ALL_PROXY": "socks://h:1"}, "socks5h://h:1"),
        ("https://api.example/v1", {"ALL_PROXY": "socks5://h"}, "socks5://h:1080"),
        ("https://api.example/v1", {"ALL_PROXY": PROXY, "NO_PROXY": "*.example"}, None),
        ("https://api.example/v1", {"ALL_PROXY": PROXY, "NO_PROXY": "api.example:443 x"}, None),
        ("https://api.example/v1", {"ALL_PROXY": PROXY, "NO_PROXY": "api.example:8443"}, PROXY),
        ("https://api.example./v1", {"ALL_PROXY": PROXY, "NO_PROXY": "api.example"}, None),
        ("https://10.1.2.3/v1", {"ALL_PROXY": PROXY, "NO_PROXY": "10.0.0.0/8"}, None),
        ("https://11.1.2.3/v1", {"ALL_PROXY": PROXY, "NO_PROXY": "10.0.0.0/8,1.2.3"}, PROXY),
        ("https://[fd00::1]/v1", {"ALL_PROXY": PROXY, "NO_PROXY": "fd00::/8"}, None),
        ("https://[fd00::1]:8443/v1", {"ALL_PROXY": PROXY, "NO_PROXY": "[fd00::1]:8443"}, None),
        ("https://[fd00::1]/v1", {"ALL_PROXY": PROXY, "NO_PROXY": "[fd00::1]:8443"}, PROXY),
        ("https://api.example/v1", {"ALL_PROXY": "http://[fd00::9]:3128"}, "http://[fd00::9]:3128"),
    ],
)
def test_the_proxy_of_the_environment(upstream, environment, proxy):
    """The usual variables decide, small letters first, and nothing on this machine goes through a proxy."""
    found = route_to(upstream, environment).proxy
    assert (found and found.url) == proxy


def test_the_setting_overrules_the_environment():
    """A URL is used as given, even to this machine; none means none."""
    environment = {"HTTPS_PROXY": "http://other:1"}
    assert route_to("https://api.example/v1", environment, proxy=PROXY).proxy.url == PROXY
    assert route_to("http://127.0.0.1/v1", environment, proxy=PROXY).proxy.url == PROXY
    assert route_to("https://api.example/v1", environment, proxy="none").proxy is None


@pytest.mark.parametrize(
    "proxy",
    [
        "socks4://me:secret@h:1", "ftp://secret", "http://", "http://me:secret@h:x", "http://h:1/secret", "http://h?secret",
        "socks5://secret@h", "socks5://me:s%C3%A9cret@h", "http://me:secret%FF@h", "http://a%3Ab:secret@h",
    ],
)  # fmt: skip
def test_a_proxy_that_cannot_be_used_is_refused(proxy):
    """It is not passed over in silence, and no part of it is quoted: it may hold a password."""
    with pytest.raises(NoRoute) as error:
        route_to("https://api.example/v1", {}, proxy=proxy)
    assert "secret" not in str(error.value)
    if "://" in proxy:
        with pytest.raises(NoRoute):
            route_to("https://api.example/v1", {"ALL_PROXY": proxy})


def test_credentials_are_decoded_and_not_shown():
    """What a URL must escape arrives as it was meant; nothing that prints a route prints a password."""
    found = route_to("https://api.example/v1", {}, proxy="http://me%40home:s%3Ccret@h:1").proxy
    assert (found.username, found.password, found.url) == ("me@home", "s<cret", "http://h:1")
    assert "cret" not in repr(found)
    assert route_to("https://api.example/v1", {}, proxy="http://me@h:1").proxy.password == ""


@pytest.mark.parametrize(("minimum", "oldest"), [("1.2", "TLSv1_2"), ("1.3", "TLSv1_3")])
def test_the_oldest_version_of_tls(minimum, oldest):
    """Nothing below version 1.2 is spoken, and nothing below the setting."""
    context = route_to("https://api.example/v1", {}, tls_minimum=minimum).tls
    assert context.minimum_version is ssl.TLSVersion[oldest]


def test_tls_verifies_and_is_made_for_https_only():
    """Verification is on by default, and plain http needs no context."""
    context = route_to("https://api.example/v1", {}).tls
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    assert route_to("http://api.example/v1", {}).tls is None
    assert route_to("http://api.example/v1", {}, proxy="https://h").tls.check_hostname


@pytest.mark.parametrize("setting", ["ca_file", "client_cert"])
def test_a_certificate_file_that_cannot_be_used(tmp_path, setting):
    """A missing file and one that is no PEM are named with their setting."""
    path = tmp_path / "cert.pem"
    for words in ("there is no file", "must be PEM"):
        with pytest.raises(NoRoute, match=rf"{setting}: .*{words}|{words}") as error:
            route_to("https://api.example/v1", {}, **{setting: str(path)})
        assert str(path) in str(error.value)
        path.write_text("nothing")
