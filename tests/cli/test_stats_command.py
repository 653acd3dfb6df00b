"""``upwire stats``."""

import json

import pytest

from gateway.cli import stats as stats_command
from gateway.cli.stats import base_url, table, upstream_line
from gateway.settings import Settings
from gateway.stats import FIELDS, TURN_FIELDS, Stats, TurnRecord


@pytest.fixture
def seen():
    """The statistics of three turns."""
    stats = Stats()
    for mode, reason, outcome in (
        ("full", "new_conversation", "ok"),
        ("delta", None, "ok"),
        ("delta", None, "failed"),
    ):
        stats.begin()
        stats.end(
            TurnRecord(
                mode=mode,
                reason=reason,
                outcome=outcome,
                status=200,
                client_in=2_000_000,
                upstream_out=500_000,
                first_event=0.25,
                added=None,
                total=1,
                recoveries=("replay",),
                model="m",
            )
        )
    return stats.snapshot(
        connections={"open": 2, "busy": 1, "idle": 1, "opened": 3, "reused": 4, "closed": {}},
        conversations={"known": 7, "evicted": 8},
        uptime=3725,
        version="1.2.3",
    )


def test_the_table_shows_what_was_counted(seen):
    """Turns by mode, bytes, sockets, percentiles and the reasons that occurred, each on its line."""
    lines = [" ".join(line.split()) for line in table(seen).splitlines()]
    for line in (
        "upwire 1.2.3, up 1 h 2 min",
        "delta 2 turns 67%",
        "full 1 turns 33%",
        "http 0 turns 0%",
        "all 3 turns 0 in flight, 1 failed, 0 cancelled",
        "received 6.0 MB",
        "sent upstream 1.5 MB",
        "saved 4.5 MB 75%",
        "sockets 2 open 1 busy, 3 opened, 4 reused",
        "conversations 7 known 8 evicted",
        "first event p50 250.0 ms p95 250.0 ms p99 250.0 ms",
        "added p50 - p95 - p99 -",
        "new_conversation 1 Nothing that the gateway knows begins like this request.",
        "replay 3 A kept socket was dead before anything came back, and the turn was sent once more.",
    ):
        assert line in lines
    assert "parent_lost" not in table(seen)


def test_the_table_of_a_fresh_gateway():
    """Before the first turn nothing is divided by zero."""
    empty = Stats().snapshot(connections={}, conversations={}, uptime=65, version="1")
    assert "up 1 min 5 s" in table(empty)
    assert table(empty | {"bytes": {"saved": -5_000_000_000}}).count("-5.0 GB") == 1


def test_a_first_turn_has_nothing_to_save():
    """What makes a body a frame is not shown as a loss before the first delta; after it, a loss is a loss."""
    sizes = {"client_in": 30, "upstream_out": 55, "saved": -25}
    first = {"turns": {"total": 1, "full": 1}, "bytes": sizes}
    assert "saved -25 B nothing yet: a conversation saves from its second turn on" in " ".join(
        table(first).split()
    )
    later = {"turns": {"total": 2, "full": 1, "delta": 1}, "bytes": sizes}
    assert "saved -25 B -83%" in " ".join(table(later).split())


def test_json_is_what_the_gateway_said(upwire, answering, seen):
    """With --json the output is the object itself; a URL may end in /v1, as clients have it."""
    url, requests = answering(200, seen)
    code, out, _ = upwire("stats", "--json", "--url", url + "/v1/")
    assert code == 0
    assert json.loads(out) == seen
    assert requests[0][0] == "/stats"


def test_the_url_comes_from_settings_too(upwire, answering, seen, monkeypatch, tmp_path):
    """Without --url the gateway of the same settings is asked, with its token."""
    url, requests = answering(200, seen)
    token = tmp_path / "token"
    token.write_text("t" * 32)
    monkeypatch.setenv("UPWIRE_PORT", url.rpartition(":")[2])
    monkeypatch.setenv("UPWIRE_TOKEN_FILE", str(token))
    assert upwire("stats")[0] == 0
    assert {k.lower(): v for k, v in requests[0][1].items()}["x-upwire-token"] == "t" * 32
    monkeypatch.delenv("UPWIRE_PORT")
    monkeypatch.setenv("UPWIRE_URL", url)
    assert upwire("stats")[0] == 0


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (404, b"{}", "answered 404"),
        (200, b"<html>", "did not answer with statistics"),
        (200, b"[]", "did not answer with statistics"),
        (200, b"{}", "did not answer with statistics"),
    ],
)
def test_something_else_on_that_port(upwire, answering, status, body, words):
    """Another server there is an error of one line."""
    code, out, err = upwire("stats", "--url", answering(status, body)[0])
    assert (code, out) == (1, "")
    assert words in err


def test_nothing_on_that_port(upwire):
    """No gateway is an error that asks whether it runs."""
    code, _, err = upwire("stats", "--url", "http://127.0.0.1:1")
    assert code == 1
    assert "is upwire serve running there?" in err


def test_watching_shows_again_until_interrupted(upwire, answering, seen, monkeypatch):
    """Ctrl-C ends --watch with exit code 0."""
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(stats_command.time, "sleep", sleep)
    code, out, _ = upwire("stats", "--watch", "--url", answering(200, seen)[0])
    assert (code, waits) == (0, [1, 1, 1])
    assert out.count("upwire 1.2.3") == 3


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:5"),
        ("::1", "http://[::1]:5"),
        ("0.0.0.0", "http://127.0.0.1:5"),
        ("::", "http://[::1]:5"),
        ("localhost", "http://localhost:5"),
    ],
)
def test_where_a_gateway_is_reached(host, url):
    """A wildcard address is reached over loopback."""
    assert base_url(Settings(host=host, port=5)) == url


def test_what_keeps_an_upstream_from_deltas_is_in_the_second_line():
    """A refusal with its cause, the kill switch and lessons learned are told beside the upstream."""
    upstream = {
        "url": "http://h/v1", "mode": "http", "websocket": "refused", "refusal": {"status": 426, "reason": "status"},
        "nothing_chained_seconds": 5, "streams_over_http_seconds": 5,
    }  # fmt: skip
    assert upstream_line(upstream) == (
        "upstream http://h/v1, WebSocket refused (status 426), mode http: nothing is upgraded, ignores parents, so nothing is "
        "chained now, streams go over plain HTTP now"
    )
    dns = {"url": "http://h/v1", "websocket": "refused", "refusal": {"status": None, "reason": "dns"}}
    assert upstream_line(dns) == "upstream http://h/v1, WebSocket refused (dns)"


def test_the_help_explains_every_value(upwire):
    """One sentence each on what it is and on what a rising value means."""
    _, out, _ = upwire("stats", "--help")
    words = " ".join(out.split())
    for path, text in FIELDS.items():
        if path.startswith(("turns.", "bytes.", "connections.")):
            assert f"{path.removesuffix('.*')} {text.meaning} Rising: {text.rising}" in words
    _, out, _ = upwire("tail", "--help")
    for name, text in TURN_FIELDS.items():
        assert f"{name} {text.meaning} Rising: {text.rising}" in " ".join(out.split())
