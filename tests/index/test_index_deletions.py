"""The log of deletions: everybody hears of each, however often the log is cut or wiped in between. Without a server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.conversation.transcripts import Lineage
from gateway.index import deletions
from gateway.index.deletions import Deletions, Unheard
from gateway.index.names import Deployment
from gateway.index.redis_server import PREFIX, Unanswered

OURS = Deployment(b"a secret of thirty-two characters", "1")
THEIRS = Deployment(b"another secret of that many characters", "1")
WHO = b"w" * 16


class Log:
    """A server with nothing but a log, as Redis keeps one."""

    def __init__(self):
        self.entries = []
        self.count = 0
        self.refusal = None
        self.lives = []

    def add(self, command):
        """Append, as a gateway does by telling."""
        word, name, _, _, most, _, _, value = command
        assert (word, name) == (b"XADD", PREFIX + OURS.deletions())
        self.count += 1
        self.entries.append([b"%d-0" % self.count, [b"v", value]])
        del self.entries[:-most]

    async def do(self, commands):
        """XRANGE, XLEN and PEXPIRE."""
        answers = []
        for word, name, *more in commands:
            assert name == PREFIX + OURS.deletions()
            if word == b"XRANGE":
                first = 0 if more[0] == b"-" else int(more[0].partition(b"-")[0])
                found = [each for each in self.entries if int(each[0].partition(b"-")[0]) >= first]
                answers.append(found[: more[3]])
            elif word == b"XLEN":
                answers.append(len(self.entries))
            else:
                self.lives.append(more[0])
                answers.append(1)
        return [self.refusal or each for each in answers]


class Listener:
    """A gateway's log, what it heard, how often it was told to doubt, and how often that the log was wiped."""

    def __init__(self, log):
        self.heard, self.missed, self.wiped = [], 0, 0
        self.deletions = Deletions(log, OURS, life=150.0, wiped=self._wiped)
        self.deletions.hear(lambda identity, response: self.heard.append((identity, response)), self._missed)

    def _wiped(self):
        self.wiped += 1

    def _missed(self):
        self.missed += 1


async def test_each_is_heard_once_by_everybody():
    """Also by whoever began to listen later; the log is kept while anybody looks."""
    log = Log()
    one, other = Listener(log), Listener(log)
    for number in range(3):
        log.add(one.deletions.entry(WHO, f"resp_{number}"))
        await one.deletions.look()
    await other.deletions.look()
    await other.deletions.look()
    expected = [(WHO, f"resp_{number}") for number in range(3)]
    assert one.heard == other.heard == expected
    assert (one.missed, one.wiped) == (0, 0)
    assert set(log.lives) == {150_000}


@pytest.mark.parametrize("count", [511, 512, 513, 2000])
async def test_many_at_once(count):
    """All pages are read at once."""
    log = Log()
    listener = Listener(log)
    for number in range(count):
        log.add(listener.deletions.entry(WHO, f"resp_{number}"))
    await listener.deletions.look()
    assert [response for _, response in listener.heard] == [f"resp_{number}" for number in range(count)]


async def test_a_log_that_was_wiped_is_told_again():
    """Whoever sees it says so, and what is in the new one is heard."""
    log = Log()
    listener = Listener(log)
    log.add(listener.deletions.entry(WHO, "resp_1"))
    await listener.deletions.look()
    log.entries.clear()
    await listener.deletions.look()
    assert (listener.wiped, listener.missed) == (1, 0)
    log.add(listener.deletions.entry(WHO, "resp_2"))
    await listener.deletions.look()
    assert listener.heard == [(WHO, "resp_1"), (WHO, "resp_2")]
    assert listener.wiped == 1


async def test_who_was_away_for_too_long_doubts(monkeypatch):
    """Entries that were dropped for newer ones may have been about what is held here."""
    monkeypatch.setattr(deletions, "MOST", 5)
    log = Log()
    listener = Listener(log)
    log.add(listener.deletions.entry(WHO, "resp_0"))
    await listener.deletions.look()
    for number in range(1, 8):
        log.add(listener.deletions.entry(WHO, f"resp_{number}"))
    await listener.deletions.look()
    assert (listener.wiped, listener.missed) == (0, 1)
    assert [response for _, response in listener.heard[1:]] == [f"resp_{number}" for number in range(3, 8)]


@given(st.lists(st.integers(0, 3), max_size=30))
async def test_what_others_wrote_there_is_nothing(kinds):
    """Entries without our tag, of another form, or of another deployment are passed over."""
    log = Log()
    listener = Listener(log)
    foreign = Deletions(log, THEIRS, life=1.0, wiped=lambda: None)
    expected = []
    for number, kind in enumerate(kinds):
        command = listener.deletions.entry(WHO, f"resp_{number}")
        log.add(command)
        if kind == 0:
            expected.append((WHO, f"resp_{number}"))
        elif kind == 1:
            log.entries[-1][1] = [b"v", command[-1][:-1] + b"?"]
        elif kind == 2:
            log.entries[-1][1] = [b"other", b"x"]
        else:
            log.entries[-1][1] = [b"v", foreign.entry(WHO, f"resp_{number}")[-1]]
    await listener.deletions.look()
    assert listener.heard == expected


async def test_a_refusal_is_told():
    """The caller learns why, and goes on where it was."""
    log = Log()
    listener = Listener(log)
    log.add(listener.deletions.entry(WHO, "resp_1"))
    await listener.deletions.look()
    log.refusal = Unanswered("refused")
    with pytest.raises(Unheard, match="refused"):
        await listener.deletions.look()
    log.refusal = None
    log.add(listener.deletions.entry(WHO, "resp_2"))
    await listener.deletions.look()
    assert listener.heard == [(WHO, "resp_1"), (WHO, "resp_2")]
    assert listener.wiped == 0


async def test_a_look_up_under_way_does_not_bring_it_back():
    """What was read before the deletion was heard of is known to be stale, here and where it was deleted."""
    log = Log()
    here, there = Listener(log), Listener(log)
    chain = Lineage("resp_2", Lineage("resp_1", None))
    assert not here.deletions.just_deleted(WHO, chain)
    log.add(there.deletions.entry(WHO, "resp_1"))
    await here.deletions.look()
    for listener in (here, there):
        assert listener.deletions.just_deleted(WHO, chain)
        assert not listener.deletions.just_deleted(b"y" * 16, chain)
        assert not listener.deletions.just_deleted(WHO, Lineage("resp_3", None))
