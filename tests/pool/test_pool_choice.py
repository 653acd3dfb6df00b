"""Which socket the pool chooses, case by case, and that it never lends one twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from gateway.pool import Barred, Closed, Dial, Fate, Full, Pool, PoolLimits, Use, Want

ME, YOU = b"me", b"you"
URL = "wss://api.example/v1/responses"


class Bench:
    """A pool with a clock and short ways to bring it into a state."""

    def __init__(self, **limits: float) -> None:
        self.pool = Pool(PoolLimits(**limits))
        self.now = 0.0

    def reserve(self, *wants: Want, identity: bytes = ME, **how: object) -> Use | Dial | Full | Barred:
        """Reserve at the next moment."""
        self.now += 1
        return self.pool.reserve(identity, wants, self.now, upstream=URL, **how)

    def busy(self, identity: bytes = ME) -> int:
        """A new socket, busy with its first turn."""
        self.now += 1
        grant = self.pool.reserve(identity, (), self.now, upstream=URL, avoid=frozenset(range(1000)))
        assert isinstance(grant, Dial)
        self.pool.opened(grant.socket_id, self.now)
        return grant.socket_id

    def idle(self, tip: str | None = None, *, stored: bool = False, identity: bytes = ME) -> int:
        """A new socket, idle with the given newest response."""
        socket_id = self.busy(identity)
        self.free(socket_id, tip, stored=stored)
        return socket_id

    def free(
        self, socket_id: int, tip: str | None = None, *, stored: bool = False, keep: bool = False
    ) -> None:
        """End the turn of a busy socket."""
        self.now += 1
        self.pool.release(socket_id, self.now, tip=tip, stored=stored, keep_parent=keep)

    def closings(self) -> list[tuple[int, Closed]]:
        """What the shell would close now."""
        return [(closing.socket_id, closing.reason) for closing in self.pool.take_closings()]


def unstored(name: str) -> Want:
    """A parent that only its socket holds."""
    return Want(name, stored=False)


def stored(name: str) -> Want:
    """A parent that the upstream can reload."""
    return Want(name, stored=True)


def test_new_identity_dials() -> None:
    """Nothing is known: a new socket, and the wanted parent is lost."""
    assert Bench().reserve(unstored("r1")) == Dial(1, None, Fate.LOST)


def test_idle_holder_is_used() -> None:
    """The socket whose newest response is wanted serves, whatever others there are."""
    bench = Bench()
    bench.idle("r0")
    holder = bench.idle("r1")
    bench.idle()
    assert bench.reserve(unstored("r1")) == Use(holder, unstored("r1"), None)


def test_longest_want_that_can_be_had_wins() -> None:
    """The first want is lost, the second is held: it is used and the fate of the first is told."""
    bench = Bench()
    holder = bench.idle("r1")
    assert bench.reserve(unstored("r2"), unstored("r1")) == Use(holder, unstored("r1"), Fate.LOST)


def test_superseded_parent() -> None:
    """Its socket went on without it, or its turn failed: the socket lives but does not hold it any more."""
    bench = Bench()
    socket_id = bench.idle("r1")
    assert bench.reserve(unstored("r1")) == Use(socket_id, unstored("r1"), None)
    bench.free(socket_id, "r2")
    assert bench.reserve(unstored("r1")) == Dial(2, None, Fate.SUPERSEDED)
    assert bench.reserve(unstored("r2")) == Use(socket_id, unstored("r2"), None)
    bench.free(socket_id, None)
    assert bench.reserve(unstored("r2")) == Use(socket_id, None, Fate.SUPERSEDED)


def test_turn_that_changed_nothing_keeps_the_parent() -> None:
    """A turn that never began leaves what its socket holds."""
    bench = Bench()
    socket_id = bench.idle("r1")
    bench.reserve(unstored("r1"))
    bench.free(socket_id, None, keep=True)
    assert bench.reserve(unstored("r1")) == Use(socket_id, unstored("r1"), None)


def test_busy_parent() -> None:
    """A parent in use is not waited for: another socket, in full, or reloaded there if the upstream can."""
    bench = Bench()
    socket_id = bench.idle("r1")
    bench.reserve(unstored("r1"))
    assert bench.reserve(unstored("r1")) == Dial(2, None, Fate.BUSY)
    assert bench.reserve(stored("r1")) == Dial(3, stored("r1"), None)
    bench.free(socket_id, "r2")
    assert bench.reserve(unstored("r1")) == Dial(4, None, Fate.SUPERSEDED)


def test_stored_parent_is_reloaded_on_a_harmless_socket_before_a_new_one() -> None:
    """A socket without a conversation is taken, one that alone holds another is not."""
    bench = Bench()
    bench.idle("other")
    assert bench.reserve(stored("r1")) == Dial(2, stored("r1"), None)
    free = bench.idle()
    assert bench.reserve(stored("r1")) == Use(free, stored("r1"), None)
    reloadable = bench.idle("another", stored=True)
    assert bench.reserve(stored("r1")) == Use(reloadable, stored("r1"), None)


def test_identity_that_forgets_stored_parents() -> None:
    """For a time only the socket's own memory counts; holding sockets still serve."""
    bench = Bench(forgets_for=100)
    holder = bench.idle("r1", stored=True)
    bench.pool.forgets_stored(ME, bench.now)
    assert bench.reserve(stored("r0")) == Dial(2, None, Fate.LOST)
    assert bench.reserve(stored("r1")) == Use(holder, stored("r1"), None)
    bench.free(holder, "r2", stored=True)
    assert bench.reserve(stored("r2")) == Use(holder, stored("r2"), None)
    assert bench.reserve(stored("r1"), identity=YOU) == Dial(3, stored("r1"), None)
    bench.now += 100
    assert bench.reserve(stored("r0")) == Dial(4, stored("r0"), None)


def test_fresh_and_avoid() -> None:
    """A second try takes no parent and another socket."""
    bench = Bench()
    held = bench.idle("r1")
    free = bench.idle()
    assert bench.reserve(stored("r1"), fresh=True, avoid=frozenset({free})) == Dial(3, None, None)
    assert bench.reserve(unstored("r1"), avoid=frozenset({held})) == Use(free, None, Fate.LOST)


def test_lending_at_the_limit_takes_the_least_recently_used() -> None:
    """Only when no socket may be added is a conversation given up, the one unused for longest."""
    bench = Bench(sockets_per_identity=2)
    first = bench.idle("r1")
    bench.idle("r2")
    bench.reserve(unstored("r1"))
    bench.free(first, "r3")
    second = 2
    assert bench.reserve() == Use(second, None, None)
    assert bench.closings() == []
    assert bench.reserve() == Use(first, None, None)
    assert bench.reserve() == Full()


def test_limit_of_all_closes_another_identitys_least_recently_used() -> None:
    """A socket never crosses identities: it is closed and a new one dialled."""
    bench = Bench(sockets=2)
    yours = bench.idle("y1", identity=YOU)
    bench.idle("y2", identity=YOU)
    assert bench.reserve() == Dial(3, None, None)
    assert bench.closings() == [(yours, Closed.EVICTED)]
    assert bench.reserve() == Full()
    assert bench.reserve(identity=YOU) == Use(2, None, None)


def test_limit_of_all_with_an_own_socket_unused_for_longest_lends_it() -> None:
    """The least recently used one may be one's own: no dial is needed."""
    bench = Bench(sockets=2)
    mine = bench.idle("r1")
    bench.idle("y1", identity=YOU)
    assert bench.reserve() == Use(mine, None, None)
    assert bench.closings() == []


def test_avoided_socket_makes_room_at_the_limit() -> None:
    """A second try that may not use the only idle socket has it closed for a new one."""
    bench = Bench(sockets_per_identity=1)
    socket_id = bench.idle("r1")
    assert bench.reserve(fresh=True, avoid=frozenset({socket_id})) == Dial(2, None, None)
    assert bench.closings() == [(socket_id, Closed.EVICTED)]


def test_without_leave_to_dial() -> None:
    """Idle sockets serve; what would need a dial is barred, and nothing is closed for it."""
    bench = Bench(sockets=2)
    bench.idle("r1")
    assert bench.reserve(may_dial=False) == Barred()
    assert bench.reserve(unstored("r1"), may_dial=False) == Use(1, unstored("r1"), None)
    bench.idle("y1", identity=YOU)
    assert bench.reserve(identity=b"third", may_dial=False) == Barred()
    assert bench.closings() == []


def test_reserved_socket_is_not_idle_before_its_turn_has_begun() -> None:
    """Two reservations in a row never count or choose the same idle socket."""
    bench = Bench(sockets_per_identity=1)
    bench.idle()
    assert isinstance(bench.reserve(), Use)
    assert bench.pool.snapshot()["idle"] == 0
    assert bench.reserve() == Full()
    bench.pool.retire(bench.now + 10_000)
    assert bench.closings() == []


def test_dials_in_progress_count() -> None:
    """A place that is being dialled is taken, and free again when the dial fails."""
    bench = Bench(sockets_per_identity=1)
    dialling = bench.reserve()
    assert isinstance(dialling, Dial)
    assert bench.reserve() == Full()
    assert bench.pool.snapshot()["open"] == 0
    bench.pool.dial_failed(dialling.socket_id)
    assert bench.reserve() == Dial(2, None, None)


def test_old_sockets_take_no_turn() -> None:
    """At its age a socket is closed: idle at once, busy when its turn ends."""
    bench = Bench(socket_age=100)
    idle = bench.idle("r1")
    busy = bench.busy()
    bench.now += 100
    assert bench.reserve(unstored("r1")) == Dial(3, None, Fate.LOST)
    assert bench.closings() == [(idle, Closed.AGE)]
    bench.free(busy, "r2")
    assert bench.closings() == [(busy, Closed.AGE)]
    assert not bench.pool.holds(ME, "r2")


def test_unused_sockets_are_retired() -> None:
    """Idle for too long: closed; used since: kept."""
    bench = Bench(socket_idle=50)
    old = bench.idle("r1")
    bench.now += 30
    bench.idle("r2")
    bench.now += 30
    bench.pool.retire(bench.now)
    assert bench.closings() == [(old, Closed.IDLE)]
    assert bench.pool.snapshot()["closed"]["idle"] == 1


def test_forgotten_response_is_not_offered() -> None:
    """A deleted response goes, for its identity only; its socket is then free for all."""
    bench = Bench()
    mine = bench.idle("r1")
    bench.idle("r1", identity=YOU)
    bench.pool.forget(ME, "r1")
    assert not bench.pool.holds(ME, "r1")
    assert bench.pool.holds(YOU, "r1")
    assert bench.reserve(unstored("r1")) == Use(mine, None, Fate.LOST)


def test_draining_closes_idle_sockets_now_and_busy_ones_when_released() -> None:
    """Nothing is left open in the end."""
    bench = Bench()
    idle = bench.idle("r1")
    busy = bench.busy()
    bench.pool.drain()
    assert bench.closings() == [(idle, Closed.DRAINED)]
    bench.free(busy, "r2")
    assert bench.closings() == [(busy, Closed.DRAINED)]
    assert bench.pool.snapshot()["closed"]["drained"] == 2


def test_socket_both_drained_and_old_is_closed_once() -> None:
    """One close, one reason."""
    bench = Bench(socket_age=100)
    busy = bench.busy()
    bench.pool.drain()
    bench.now += 200
    bench.free(busy, "r1")
    assert bench.closings() == [(busy, Closed.DRAINED)]
    assert sum(bench.pool.snapshot()["closed"].values()) == 1


def test_given_back_socket_is_as_before() -> None:
    """A reservation that was not used counts as no reuse and keeps the parent."""
    bench = Bench()
    socket_id = bench.idle("r1")
    bench.reserve(unstored("r1"))
    bench.pool.give_back(socket_id)
    assert bench.pool.snapshot()["reused"] == 0
    assert bench.reserve(unstored("r1")) == Use(socket_id, unstored("r1"), None)


def test_reports_about_sockets_that_are_gone_change_nothing() -> None:
    """Late and double reports are harmless."""
    bench = Bench()
    socket_id = bench.busy()
    bench.pool.close(socket_id, Closed.CLIENT_LEFT)
    before = bench.pool.snapshot()
    bench.pool.close(socket_id, Closed.ERROR)
    bench.pool.lost(socket_id, bench.now)
    bench.pool.aged(socket_id, bench.now)
    bench.pool.give_back(socket_id)
    bench.free(socket_id, "r1")
    assert bench.pool.snapshot() == before
    assert before["closed"]["client_left"] == 1


@pytest.mark.parametrize("how", ["lost", "error"])
@given(tips=st.lists(st.booleans(), min_size=1, max_size=5))
def test_every_closed_socket_is_counted_once(how: str, tips: list[bool]) -> None:
    """Opened is always open plus closed."""
    bench = Bench()
    for number, keep in enumerate(tips):
        socket_id = bench.idle(f"r{number}")
        if not keep:
            if how == "lost":
                bench.pool.lost(socket_id, bench.now)
            else:
                bench.pool.close(socket_id, Closed.ERROR)
    counts = bench.pool.snapshot()
    assert counts["opened"] == counts["open"] + sum(counts["closed"].values())
    assert counts["open"] == sum(tips)


class PoolMachine(RuleBasedStateMachine):
    """Any order of calls, checked against a plain record of who holds what."""

    leases = Bundle("leases")

    @initialize(per_identity=st.integers(1, 3), total=st.integers(1, 5), warm=st.integers(0, 2))
    def begin(self, per_identity: int, total: int, warm: int) -> None:
        """Set small limits."""
        self.limits = PoolLimits(
            sockets_per_identity=per_identity, sockets=total, socket_age=200, socket_idle=60, forgets_for=50,
            warm=warm,
        )  # fmt: skip
        self.pool = Pool(self.limits)
        self.now = 0.0
        self.owner: dict[int, bytes] = {}
        self.state: dict[int, str] = {}
        self.tips: dict[int, tuple[str, bool] | None] = {}
        self.serial = 0

    def settle(self) -> None:
        """Do what the shell does."""
        for closing in self.pool.take_closings():
            assert self.state.pop(closing.socket_id) == "idle"
            del self.owner[closing.socket_id], self.tips[closing.socket_id]

    @rule(
        target=leases,
        identity=st.sampled_from([b"a", b"b", b"c"]),
        wants=st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=3),
        fresh=st.booleans(),
        avoid=st.frozensets(st.integers(1, 12), max_size=3),
        may_dial=st.booleans(),
    )
    def reserve(self, identity, wants, fresh, avoid, may_dial):
        """Reserve, and open what is dialled."""
        self.now += 1
        mine = [n for n, who in self.owner.items() if who == identity]
        room = len(mine) < self.limits.sockets_per_identity and len(self.owner) < self.limits.sockets
        asked = [Want(f"r{number}", stored=kept) for number, kept in wants]
        grant = self.pool.reserve(
            identity, asked, self.now, upstream=URL, fresh=fresh, avoid=avoid, may_dial=may_dial
        )
        if isinstance(grant, (Full, Barred)):
            self.settle()
            assert not (isinstance(grant, Barred) and may_dial)
            return multiple()
        assert grant.socket_id not in avoid or isinstance(grant, Dial)
        assert grant.parent is None or (grant.parent in asked and not fresh)
        if fresh or not asked or grant.parent is asked[0]:
            assert grant.fate is None
        else:
            assert grant.fate is not None
        if isinstance(grant, Use):
            assert self.state[grant.socket_id] == "idle"
            assert self.owner[grant.socket_id] == identity
            held = self.tips[grant.socket_id]
            wanted = None if grant.parent is None else grant.parent.response_id
            if held is not None and not held[1] and held[0] != wanted:
                assert not room
            if grant.parent is not None and not grant.parent.stored:
                assert held is not None and held[0] == wanted
            self.state[grant.socket_id] = "busy"
            self.settle()
        else:
            assert may_dial
            self.settle()
            assert grant.socket_id not in self.owner
            self.owner[grant.socket_id] = identity
            self.tips[grant.socket_id] = None
            self.state[grant.socket_id] = "busy"
            self.pool.opened(grant.socket_id, self.now)
        return grant.socket_id

    @rule(identity=st.sampled_from([b"a", b"b", b"c"]), succeeds=st.booleans())
    def spare(self, identity, succeeds):
        """Open a spare socket, if one is wanted, or fail to."""
        self.pool.retire(self.now)
        self.settle()
        grant = self.pool.spare(identity, self.now, upstream=URL)
        assert grant is None or self.limits.warm
        if grant is None:
            return
        if not succeeds:
            self.pool.dial_failed(grant.socket_id)
            return
        self.pool.spared(grant.socket_id, self.now)
        self.owner[grant.socket_id] = identity
        self.tips[grant.socket_id] = None
        self.state[grant.socket_id] = "idle"
        assert sum(
            who == identity and self.state[n] == "idle" and self.tips[n] is None for n, who in self.owner.items()
        ) <= self.limits.warm  # fmt: skip

    @rule(lease=consumes(leases), how=st.sampled_from(["tip", "stored", "void", "keep"]))
    def release(self, lease, how):
        """End a turn in order."""
        self.now += 1
        self.serial += 1
        tip = f"r{self.serial % 13}" if how in {"tip", "stored"} else None
        self.pool.release(lease, self.now, tip=tip, stored=how == "stored", keep_parent=how == "keep")
        if lease in self.state:
            self.state[lease] = "idle"
            if how != "keep":
                self.tips[lease] = None if tip is None else (tip, how == "stored")
        self.settle()

    @rule(lease=consumes(leases), how=st.sampled_from(["close", "lost", "aged", "give_back"]))
    def end(self, lease, how):
        """End a turn in disorder."""
        if how == "give_back":
            self.pool.give_back(lease)
            if lease in self.state:
                self.state[lease] = "idle"
            self.settle()
            return
        if how == "close":
            self.pool.close(lease, Closed.CLIENT_LEFT)
        elif how == "lost":
            self.pool.lost(lease, self.now)
        else:
            self.pool.aged(lease, self.now)
        for record in (self.state, self.owner, self.tips):
            record.pop(lease, None)

    @rule(seconds=st.integers(1, 120))
    def wait(self, seconds):
        """Let time pass and retire."""
        self.now += seconds
        self.pool.retire(self.now)
        self.settle()

    @invariant()
    def counts(self) -> None:
        """The gauges say what is, within the limits."""
        if not hasattr(self, "pool"):
            return
        counts = self.pool.snapshot()
        assert counts["busy"] == sum(state == "busy" for state in self.state.values())
        assert counts["idle"] == sum(state == "idle" for state in self.state.values())
        assert counts["open"] == len(self.state) <= self.limits.sockets
        assert counts["opened"] == counts["open"] + sum(counts["closed"].values())
        for identity in set(self.owner.values()):
            of = sum(who == identity for who in self.owner.values())
            assert of <= self.limits.sockets_per_identity


TestPoolMachine = PoolMachine.TestCase


def test_stored_conversation_that_goes_on_keeps_its_socket_while_there_is_room() -> None:
    """Reloading a stored parent is slower than holding it, so a socket with a continued conversation is lent last."""
    bench = Bench(sockets_per_identity=2)
    first = bench.idle("r1", stored=True)
    assert bench.reserve(stored("r1")) == Use(first, stored("r1"), None)
    bench.free(first, "r2", stored=True)
    assert bench.reserve() == Dial(2, None, None)
    bench.pool.opened(2, bench.now)
    bench.free(2, "s1", stored=True)
    assert bench.reserve() == Use(2, None, None)
    assert bench.reserve() == Use(first, None, None)


def test_stored_conversation_that_was_never_continued_or_is_quiet_gives_its_socket() -> None:
    """Single questions one after the other share a socket, and a conversation that paused can be reloaded."""
    bench = Bench()
    only = bench.idle("r1", stored=True)
    assert bench.reserve() == Use(only, None, None)
    bench.free(only, "r2", stored=True)
    assert bench.reserve(stored("r2")) == Use(only, stored("r2"), None)
    bench.free(only, "r3", stored=True)
    bench.now += 61
    assert bench.reserve() == Use(only, None, None)


def test_stored_response_counts_as_held_alone_where_stored_ones_are_forgotten() -> None:
    """An identity whose stored responses were not found has them on their sockets only."""
    bench = Bench()
    bench.idle("r1", stored=True)
    bench.pool.forgets_stored(ME, bench.now)
    assert bench.reserve() == Dial(2, None, None)
