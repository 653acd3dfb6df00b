"""What the pool learns of upstreams: how old their sockets may grow, and whether they speak WebSocket at all."""

from __future__ import annotations

import pytest

from gateway.pool import AgeLimits, Bar, UpgradeMemory

URL = "wss://api.example/v1/responses"


@pytest.mark.parametrize(
    ("closes", "limit"),
    [
        ([], 3300),
        ([(1500, 0, 1500)], 3300),
        ([(1500, 0, 1500), (1510, 0, 3010)], 1200),
        ([(1500, 0, 1500), (1500, 0, 1501)], 3300),
        ([(1500, 0, 1500), (1500, 0, 1501), (1490, 0, 3000)], 1192),
        ([(1500, 0, 1500), (900, 0, 2400)], 3300),
        ([(1500, 300, 1500), (1500, 300, 3000)], 1200),
        ([(1500, 301, 1500), (1500, 301, 3000)], 3300),
        ([(9, 0, 9), (9, 0, 18)], 3300),
        ([(10, 0, 10), (10, 0, 20)], 8),
        ([(3500, 0, 3500), (3500, 0, 7000)], 2800),
        ([(5000, 0, 5000), (5000, 0, 10_000)], 3300),
    ],
    ids=[
        "nothing seen", "one close", "two alike", "one restart", "restart and a third", "two unlike", "short idle",
        "idle timeouts", "too young", "just old enough", "near the limit", "above the limit",
    ],
)  # fmt: skip
def test_age_learned_from_closes(closes: list[tuple[float, float, float]], limit: float) -> None:
    """Two closes that agree teach 0.8 of the age; a restart, an idle timeout and young sockets teach nothing."""
    ages = AgeLimits(3300, floor=10)
    for age, idle, now in closes:
        ages.closed(URL, age, idle, now)
    assert ages.limit(URL, 8000) == pytest.approx(limit)
    assert ages.limit("wss://other.example/", 8000) == 3300


def test_age_learned_from_one_refusal_only_falls() -> None:
    """The upstream's own word is enough, and a later higher age does not raise the limit."""
    ages = AgeLimits(3300, floor=10)
    ages.refused(URL, 5, 100)
    assert ages.limit(URL, 100) == 3300
    ages.refused(URL, 20, 100)
    assert ages.limit(URL, 100) == 16
    ages.refused(URL, 1000, 100)
    assert ages.limit(URL, 100) == 16


def test_a_learned_age_counts_for_a_day() -> None:
    """Then the configured age is tried again; a lower age learned meanwhile counts from then."""
    ages = AgeLimits(3300, floor=10)
    ages.refused(URL, 1000, 0)
    assert ages.lowest_learned(400) == (800, 86_000)
    assert (ages.limit(URL, 86_399), ages.limit(URL, 86_401)) == (800, 3300)
    assert ages.lowest_learned(86_401) is None
    ages.refused(URL, 2000, 90_000)
    ages.refused(URL, 1000, 100_000)
    assert ages.lowest_learned(100_000) == (800, 86_400)


@pytest.mark.parametrize("status", [404, 405, 426, 501, 200, 204, 302])
def test_no_websocket_is_remembered_at_once(status: int) -> None:
    """The answer leaves no doubt: not dialled for the memory time, then once more."""
    memory = UpgradeMemory(memory=300)
    memory.refused(URL, status, "status", 10)
    assert memory.barred(URL, 309.9) == Bar(status, "status")
    assert memory.barred(URL, 310) is None
    assert memory.barred("wss://other.example/", 11) is None


@pytest.mark.parametrize("status", [400, 403])
def test_perhaps_blocked_is_remembered_after_two_in_a_row(status: int) -> None:
    """One refusal may be passing; a success between starts anew."""
    memory = UpgradeMemory(memory=300)
    memory.refused(URL, status, "status", 0)
    assert memory.barred(URL, 0) is None
    memory.accepted(URL)
    memory.refused(URL, status, "status", 1)
    assert memory.barred(URL, 1) is None
    memory.refused(URL, status, "status", 2)
    assert memory.barred(URL, 2) == Bar(status, "status")
    memory.refused(URL, status, "status", 303)
    assert memory.barred(URL, 304) is not None


def test_bad_key_is_not_remembered() -> None:
    """A 401 is about one caller and says nothing of WebSocket."""
    memory = UpgradeMemory(memory=300)
    memory.accepted(URL)
    for now in range(5):
        memory.refused(URL, 401, "status", now)
    assert memory.barred(URL, 4) is None
    assert memory.proven(URL)


@pytest.mark.parametrize(("status", "reason"), [(429, "status"), (503, "status"), (None, "connect")])
def test_failures_back_off(status: int | None, reason: str) -> None:
    """The pause doubles from one second to thirty, and a success ends it."""
    memory = UpgradeMemory(memory=300)
    now = 0.0
    pauses = []
    for _ in range(8):
        memory.refused(URL, status, reason, now)
        pause = next(p for p in range(1, 100) if memory.barred(URL, now + p) is None)
        pauses.append(pause)
        now += pause
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    memory.accepted(URL)
    memory.refused(URL, status, reason, now)
    assert memory.barred(URL, now + 0.9) is not None
    assert memory.barred(URL, now + 1) is None


@pytest.mark.parametrize(("status", "reason"), [(503, "status"), (None, "connect")])
def test_many_dials_into_one_outage_are_one_failure(status: int | None, reason: str) -> None:
    """Sixteen conversations that meet the same short restart pause for a second, not for thirty."""
    memory = UpgradeMemory(memory=300)
    memory.accepted(URL)
    for number in range(16):
        memory.refused(URL, status, reason, 10 + number / 100, began=9.5)
    assert memory.barred(URL, 10.9) is not None
    assert memory.barred(URL, 11) is None
    memory.refused(URL, status, reason, 11.5, began=11)
    assert memory.barred(URL, 13.4) is not None
    assert memory.barred(URL, 13.5) is None


def test_what_began_together_is_not_two_in_a_row() -> None:
    """Two turns refused at once, or closed at once, do not yet prove that no WebSocket passes; the next one does."""
    memory = UpgradeMemory(memory=300)
    for now in (1, 1.5):
        memory.refused(URL, 403, "status", now, began=0)
    assert memory.barred(URL, 1.5) is None
    memory.refused(URL, 403, "status", 3, began=2)
    assert memory.barred(URL, 4) is not None
    other = "wss://other.example/"
    for now in (1, 1.5):
        memory.closed_early(other, None, now, began=0)
    assert memory.barred(other, 1.5) is None
    memory.closed_early(other, None, 3, began=2)
    assert memory.barred(other, 4) == Bar(None, "closed_early")


def test_accepted_and_closed_before_any_event() -> None:
    """Twice in a row means a middlebox; not restarts, not frames too big, not once events have come."""
    memory = UpgradeMemory(memory=300)
    for code in (1001, 1009, 1012, 1013):
        memory.closed_early(URL, code, 0)
        memory.closed_early(URL, code, 0)
    assert memory.barred(URL, 0) is None
    memory.closed_early(URL, 1008, 0)
    memory.accepted(URL)
    memory.closed_early(URL, None, 1)
    assert memory.barred(URL, 1) == Bar(None, "closed_early")
    assert not memory.proven(URL)
    memory.answered(URL)
    memory.closed_early(URL, 1008, 400)
    memory.closed_early(URL, 1008, 400)
    assert memory.barred(URL, 400) is None


def test_proven_until_the_next_refusal() -> None:
    """One dial at a time until a dial succeeds, and again after one that fails."""
    memory = UpgradeMemory(memory=300)
    assert not memory.proven(URL)
    memory.accepted(URL)
    assert memory.proven(URL)
    memory.refused(URL, None, "timeout", 0)
    assert not memory.proven(URL)


def test_memory_is_bounded() -> None:
    """Many upstream URLs do not grow it for ever; the one met last stays."""
    memory = UpgradeMemory(memory=300)
    for number in range(3000):
        memory.refused(f"wss://{number}.example/", 404, "status", 0)
    assert memory.barred("wss://0.example/", 1) is None
    assert memory.barred("wss://2999.example/", 1) is not None
