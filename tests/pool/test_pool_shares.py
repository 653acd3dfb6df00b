"""Sockets are shared fairly: what a party may take, whose idle sockets make room."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.pool import Dial, Full, Party, Pool, PoolLimits, Use, Want
from gateway.pool.yielding import AWAY

URL = "wss://api.example/v1/responses"


class Sharing:
    """A pool with parties that have an identity each."""

    def __init__(self, **limits):
        self.pool = Pool(PoolLimits(**({"sockets_per_identity": 10_000} | limits)))
        self.now = 0.0
        self.parties = {}

    def reserve(self, name, *wants, **how):
        """One turn of a party."""
        self.now += 1
        party = self.parties.setdefault(name, Party())
        return self.pool.reserve(name.encode(), wants, self.now, upstream=URL, party=party, **how)

    def busy(self, name):
        """A new socket that serves a turn."""
        grant = self.reserve(name, avoid=frozenset(range(10_000)))
        assert isinstance(grant, Dial)
        self.pool.opened(grant.socket_id, self.now)
        return grant.socket_id

    def idle(self, name, tip=None, *, stored=False):
        """A new socket that does not."""
        number = self.busy(name)
        self.pool.release(number, self.now, tip=tip, stored=stored)
        return number

    def evicted(self):
        """The sockets that were closed to make room."""
        return [closing.socket_id for closing in self.pool.take_closings()]


def test_one_alone_leaves_a_ninth():
    """However many turns a key has, another finds a socket at once."""
    sharing = Sharing(sockets=18)
    while isinstance(grant := sharing.reserve("busy"), Dial):
        sharing.pool.opened(grant.socket_id, sharing.now)
    assert grant == Full()
    assert sharing.parties["busy"].busy == 16
    assert isinstance(sharing.reserve("other"), Dial)


def test_who_has_most_makes_room_first_with_what_holds_nothing():
    """A newcomer takes from those above their share, never from one that has little, however long that one was quiet."""
    sharing = Sharing(sockets=6)
    small = sharing.idle("small", "r1")
    precious = [sharing.idle("big", f"b{number}") for number in range(3)]
    spare = sharing.idle("big")
    busy = sharing.busy("big")
    assert isinstance(sharing.reserve("new"), Dial)
    assert sharing.evicted() == [spare]
    assert isinstance(sharing.reserve("new", fresh=True), Dial)
    assert sharing.evicted() == [precious[0]]
    assert small not in precious and busy not in precious


def test_one_with_its_share_makes_do_with_its_own():
    """At the limit a key above its share gives up a conversation of its own, or gets none, while another keeps its only one."""
    sharing = Sharing(sockets=4)
    kept = sharing.idle("small", "r1")
    first = sharing.idle("big", "b1")
    for number in range(2):
        sharing.idle("big", f"other{number}")
    assert sharing.reserve("big") == Use(first, None, None)
    while isinstance(sharing.reserve("big"), Use):
        pass
    assert sharing.evicted() == []
    assert sharing.reserve("small", Want("r1", stored=False)) == Use(kept, Want("r1", stored=False), None)


def test_what_was_unused_for_long_is_anybodys():
    """A key that went away does not keep what others can use."""
    sharing = Sharing(sockets=2)
    gone = sharing.idle("gone", "r1")
    sharing.busy("here")
    assert sharing.reserve("here") == Full()
    sharing.now += AWAY
    assert isinstance(sharing.reserve("here"), Dial)
    assert sharing.evicted() == [gone]


def test_a_label_with_a_limit_of_its_own():
    """It counts over all identities of the label, also where it is more than the common one."""
    sharing = Sharing(sockets_per_identity=1)
    party = Party(most_sockets=2)
    sharing.parties |= {"one key": party, "another": party}
    first = sharing.idle("one key", "r1")
    sharing.busy("another")
    assert isinstance(sharing.reserve("another"), Dial)
    assert sharing.evicted() == [first]
    assert sharing.reserve("one key") == Full()
    sharing.busy("third")
    assert sharing.reserve("third") == Full()


@given(st.data())
def test_counts_are_kept(data):
    """After any calls each party's numbers are those of its sockets."""
    sharing = Sharing(sockets=data.draw(st.integers(1, 12)), sockets_per_identity=6)
    lent, dialling = [], []
    for _ in range(data.draw(st.integers(0, 40))):
        match data.draw(st.integers(0, 5)):
            case 0 | 1:
                grant = sharing.reserve(data.draw(st.sampled_from("abc")))
                if isinstance(grant, Dial):
                    dialling.append(grant.socket_id)
                elif isinstance(grant, Use):
                    lent.append(grant.socket_id)
            case 2 if dialling:
                number = dialling.pop()
                sharing.pool.opened(number, sharing.now)
                lent.append(number)
            case 3 if dialling:
                sharing.pool.dial_failed(dialling.pop())
            case 4 if lent:
                sharing.pool.release(lent.pop(), sharing.now, tip=None, stored=False)
            case 5 if lent:
                sharing.pool.lost(lent.pop(), sharing.now)
    seen = sharing.pool.snapshot()
    parties = sharing.parties.values()
    assert sum(p.sockets for p in parties) == seen["open"] + seen["dialling"]
    assert sum(p.busy for p in parties) == seen["busy"] + seen["dialling"] == len(lent) + len(dialling)
    sharing.pool.drain()
    for number in lent:
        sharing.pool.release(number, sharing.now, tip=None, stored=False)
    for number in dialling:
        sharing.pool.dial_failed(number)
    assert {(p.sockets, p.busy) for p in parties} <= {(0, 0)}
