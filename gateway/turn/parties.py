"""Which party a request belongs to: those who share a limit and a label."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from weakref import WeakValueDictionary

from gateway.pool.party import Party
from gateway.turn.call import Headers
from gateway.upstream.identity import CLIENT_KEYS, credential_digest, key_in
from gateway.upstream.team import Team

_REMEMBERED = 10_000
"""Identities whose party is known without looking at their headers."""


class Parties:
    """Finds parties. An identity has one for as long as it is remembered: its credentials are a part of what it is."""

    def __init__(self, key: bytes, team: Team) -> None:
        self._key = key
        self._labelled: dict[str, Party] = {}
        self._unlabelled: WeakValueDictionary[bytes, Party] = WeakValueDictionary()
        self._known: OrderedDict[bytes, Party] = OrderedDict()
        self.reconfigure(team)

    def reconfigure(self, team: Team) -> None:
        """Other labels and limits, from the next request."""
        self._team = team
        limits = {member.label: member for member in team.members.values()}
        self._labelled = {label: self._labelled.get(label) or Party(label) for label in limits}
        for label, party in self._labelled.items():
            party.most_turns, party.most_sockets = limits[label].in_flight, limits[label].sockets
        self._known.clear()

    def of(self, identity: bytes, headers: Headers, token: str | None) -> Party:
        """The party of ``identity``, whose request has these headers and presented ``token`` to the gateway."""
        party = self._known.get(identity)
        if party is None:
            party = self._known[identity] = self._find(headers, token)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return party

    def labelled(self) -> Iterator[Party]:
        """The party of every label."""
        return iter(self._labelled.values())

    def may_see(self, headers: Headers, token: str | None) -> str | None:
        """The only label whose numbers are shown to whoever sent this; None if that is a stranger to the team, or sees all."""
        member = self._team.member(_presented(headers, token)) if self._team.members else None
        return None if member is None or member.sees_all else member.label

    def _find(self, headers: Headers, token: str | None) -> Party:
        if self._team.members:
            member = self._team.member(_presented(headers, token))
            if member is not None:
                return self._labelled[member.label]
        whose = credential_digest(self._key, headers, token)
        party = self._unlabelled.get(whose)
        if party is None:
            # Not in one step: nothing else would hold it.
            party = self._unlabelled[whose] = Party()
        return party


def _presented(headers: Headers, token: str | None) -> list[str]:
    """All keys and tokens in a request."""
    found = [key_in(each) for each in (token or "").split("\n")]
    found += [key_in(value) for name, value in headers if name.lower() in CLIENT_KEYS]
    return [each for each in found if each]
