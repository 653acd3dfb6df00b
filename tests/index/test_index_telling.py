"""What is written of a conversation as it grows: which records stand on others, and when nothing is written. Without a server."""

from __future__ import annotations

import pytest

from gateway.conversation.fields import FieldFacts
from gateway.conversation.items import ItemFacts, Kind
from gateway.index import telling
from gateway.index.health import Health
from gateway.index.names import Deployment
from gateway.index.records import Record, joined, read
from gateway.index.redis_server import Unanswered
from gateway.index.telling import Teller
from gateway.store import Store, StoreLimits

OURS = Deployment(b"a secret of thirty-two characters", "1")
WHO = b"w" * 16
FIELDS = FieldFacts(frozenset({"model"}), bytes(16), bytes(16), truncates=False)
AGE = 100.0


class Conversation:
    """A conversation of two items a turn, told by a teller whose clock is set by hand."""

    def __init__(self):
        self.now = 0.0
        self.failures = []
        self.health = Health(lambda _state, _cause: None, "works")
        self.teller = Teller(
            None, OURS, age=AGE, health=self.health, fail=self.failures.append, clock=lambda: self.now,
            entry=lambda _, response_id: (b"XADD", response_id.encode()),
        )  # fmt: skip
        self.store = Store(StoreLimits(10_000, 100_000, 1e9))
        self.last = None
        self.count = 0

    def turn(self):
        """One more turn; the record that was queued for it, if one was."""
        self.count += 1
        sent, answered = (ItemFacts(Kind.ITEM, (2 * self.count + n).to_bytes(16, "big")) for n in range(2))
        self.last = self.store.add(
            WHO, response_id=f"resp_{self.count}", base=self.last, sent=[sent], answered=[answered], fields=FIELDS, stored=True,
            now=self.now,
        )  # fmt: skip
        before = self.teller._queue.qsize()
        self.teller.tell(WHO, self.last)
        if self.teller._queue.qsize() == before:
            return None
        entry = self.teller._queue._queue[-1]
        put = next(command for command in entry.commands if command[0] == b"SET")
        record = read(OURS, entry.name, put[2])
        assert isinstance(record, Record)
        return record


def test_each_turn_adds_its_own_items_to_what_stands_there():
    """Records are as small as turns, and joined they are the conversation."""
    talk = Conversation()
    records = [talk.turn() for _ in range(5)]
    assert [record.needs for record in records] == [0, 1, 2, 3, 4]
    assert [len(record.facts) for record in records] == [2] * 5
    whole = joined(records[-1], records[-2::-1])
    assert whole.facts == talk.last.held()
    assert whole.asked == talk.last.asked


def test_a_record_is_whole_when_the_oldest_that_it_would_stand_on_is_half_as_old_as_may_be():
    """So nothing that can be found stands on something that has expired."""
    talk = Conversation()
    needs = []
    for _ in range(12):
        needs.append(talk.turn().needs)
        talk.now += AGE / 8
    assert needs == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    assert telling._LIFE >= 1.5


def test_a_record_is_whole_after_so_many(monkeypatch):
    """One look-up reads a bounded number of records."""
    monkeypatch.setattr(telling, "MOST_NEEDED", 2)
    talk = Conversation()
    records = [talk.turn() for _ in range(7)]
    assert [record.needs for record in records] == [0, 1, 2, 0, 1, 2, 0]
    assert [len(record.facts) for record in records] == [2, 2, 2, 8, 2, 2, 14]
    # All that it was chained through is named all the same, so that a deletion of any of them counts.
    assert [len(record.before) for record in records] == list(range(7))


def test_a_record_whose_parent_is_not_known_to_be_there_is_whole():
    """What was not written, or got lost, is not built on."""
    talk = Conversation()
    talk.turn()
    talk.teller.kept.clear()
    record = talk.turn()
    assert (record.needs, record.facts) == (0, talk.last.held())
    assert record.before == (OURS.response(WHO, "resp_1"),)


def test_too_long_a_chain_is_not_shared(monkeypatch):
    """Beyond the bound nothing is written, and what comes behind it is not built on what is not there."""
    monkeypatch.setattr(telling, "MOST_BEFORE", 3)
    talk = Conversation()
    assert [talk.turn() is not None for _ in range(6)] == [True, True, True, True, False, False]


@pytest.mark.parametrize("state", ["untried", "down"])
def test_who_does_not_answer_is_told_nothing(state):
    """It is counted, and costs no work."""
    talk = Conversation()
    talk.health.state = state
    assert talk.turn() is None
    talk.teller.deleted(WHO, "resp_1")
    talk.teller.forgotten(WHO, "resp_1")
    assert talk.health.dropped == 3
    assert not talk.teller.kept


def queued(talk):
    """The responses that are to be told of as deleted, in order; the queue is empty after."""
    found = []
    while not talk.teller._queue.empty():
        entry = talk.teller._queue.get_nowait()
        if entry.deletes is not None:
            assert [command[0] for command in entry.commands] == [b"SET", b"XADD"]
            found.append(entry.commands[1][1].decode())
    return found


class Answers:
    """A server that takes everything, or refuses everything."""

    def __init__(self):
        self.refusal = None

    async def do(self, commands):
        return [self.refusal or b"OK" for _ in commands]


async def test_a_deletion_is_told_until_it_was_heard():
    """While nobody answers, while data is refused, while the queue is full: it is kept, and told when it can be."""
    talk = Conversation()
    talk.teller._server = server = Answers()
    talk.health.state = "down"
    talk.teller.deleted(WHO, "resp_1")
    assert queued(talk) == []
    talk.health.state = "works"
    talk.teller.tell_deletions(again=False)
    entry = talk.teller._queue.get_nowait()
    server.refusal = Unanswered("full")
    await talk.teller._write_all([entry])
    assert talk.health.state == "read_only"
    talk.teller.tell_deletions(again=False)
    assert queued(talk) == ["resp_1"]
    server.refusal = None
    await talk.teller._write_all([entry])
    talk.teller.tell_deletions(again=False)
    assert queued(talk) == []
    talk.teller.tell_deletions(again=True)
    assert queued(talk) == ["resp_1"]


def test_deletions_are_remembered_for_as_long_as_what_was_deleted():
    """And only the newest ones, so that they take bounded room."""
    talk = Conversation()
    talk.health.state = "down"
    for number in range(telling._DELETIONS + 5):
        talk.teller.deleted(WHO, f"resp_{number}")
    talk.health.state = "works"
    talk.teller.tell_deletions(again=False)
    assert len(talk.teller._deletions) == telling._DELETIONS
    assert len(queued(talk)) == telling._QUEUE
    talk.now += 1.5 * AGE
    talk.teller.tell_deletions(again=True)
    assert queued(talk) == []


def test_a_full_queue_drops():
    """What does not fit is counted and not built on; turns never wait."""
    talk = Conversation()
    for _ in range(telling._QUEUE + 1):
        talk.last = None
        talk.turn()
    assert talk.teller._queue.full()
    assert talk.health.dropped == 1
    assert OURS.response(WHO, f"resp_{talk.count}") not in talk.teller.kept
