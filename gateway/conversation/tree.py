"""The ways through the tree of what the upstream holds for one identity: finding parents, adding and removing transcripts.

Finding a parent is one walk from the root along the resent items. Because equality above ``exact`` is not transitive and items
may be skipped on either side, the walk carries a small set of places at once; each step compares two items by their facts. The
walk visits every place where a transcript ends, so it finds what a chained digest of the items would find, verified as it goes,
and knows as well how far a changed history still agreed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gateway.conversation.fields import FieldFacts
from gateway.conversation.items import ItemFacts, Kind, Level, equal, refers_to
from gateway.conversation.packed import PackedFacts
from gateway.conversation.transcripts import SKIPPABLE, Fork, Known, Lineage, Match, Segment, Transcript, Walk

# Places carried at once. More would mean many histories that differ only in what a level ignores; dropping one costs a full turn.
_MOST_PLACES = 64
_SKIPPED_AT = {
    Level.EXACT: frozenset[Kind](),
    Level.EQUIVALENT: frozenset({Kind.EMPTY}),
    Level.LENIENT: SKIPPABLE,
}


class Tree:
    """All transcripts of one identity."""

    __slots__ = ("items", "root")

    def __init__(self) -> None:
        self.root = Segment(None, 0, PackedFacts(), 0, after_answer=False)
        self.items = 0

    def walk(
        self, request: Sequence[ItemFacts], level: Level, *, references: bool, after: Known | None = None
    ) -> Walk:
        """Find every transcript that is a beginning of ``request`` at this level.

        With ``references`` an ``item_reference`` stands for the held item of that id; only right for stored responses. With
        ``after`` the request's items are those behind the known ones, and the walk begins there.
        """
        found: list[Match] = []
        met_answer = False
        begin, skipped = (self.root, 0), 0
        if after is not None:
            begin, skipped = after.transcript.place_asked(), after.items
        places = _with_skips([begin], level)
        consumed = skipped
        for item in request:
            consumed += 1
            if len(places) == 1 and (place := _only_step(places[0], item, level)) is not None:
                places = [place]
                segment, depth = place
                met_answer = met_answer or segment.after_answer or depth > segment.answer
                if depth in segment.ends:
                    found.extend(Match(transcript, consumed) for transcript in segment.ends[depth])
                continue
            following = [
                place
                for at in places
                for place in _places_for(item, at)
                if _stands_for(item, _fact_before(place), level, references=references)
            ]
            if item.kind is Kind.EMPTY and level is not Level.EXACT:
                following.extend(places)
            places = _with_skips(following, level)
            if not places:
                break
            for segment, depth in places:
                met_answer = met_answer or segment.after_answer or depth > segment.answer
                found.extend(Match(transcript, consumed) for transcript in segment.ends.get(depth, ()))
        found.sort(key=lambda match: (match.consumed, match.transcript.used), reverse=True)
        return Walk(_first_of_each(found), met_answer)

    def add(
        self,
        base: Transcript | None,
        sent: Sequence[ItemFacts],
        answered: Sequence[ItemFacts],
        *,
        response_id: str,
        fields: FieldFacts,
        stored: bool,
        chained: Transcript | None,
        now: float,
    ) -> Transcript:
        """Record that a response stands on ``base`` and ``sent`` and added ``answered``, all in the upstream's spelling."""
        segment, depth = (base.segment, base.depth) if base else (self.root, 0)
        facts = (*sent, *answered)
        answer = depth + len(sent)
        at = 0
        while (
            at < len(facts)
            and (shared := _shared(segment, depth, facts[at], issued=at >= len(sent))) is not None
        ):
            segment, depth = shared
            at += 1
        if at < len(facts):
            segment = self._branch(segment, depth, PackedFacts(facts[at:]), max(depth, answer))
            depth = segment.end
        lineage = Lineage(response_id, chained.lineage if chained is not None else None)
        transcript = Transcript(response_id, segment, depth, fields, stored, lineage, now, asked=answer)
        segment.ends[depth] = (*segment.ends.get(depth, ()), transcript)
        return transcript

    def remove(self, transcript: Transcript) -> None:
        """Forget a transcript and every item that no other transcript needs."""
        segment = transcript.segment
        left = tuple(each for each in segment.ends[transcript.depth] if each is not transcript)
        if left:
            segment.ends[transcript.depth] = left
        else:
            del segment.ends[transcript.depth]
        while segment.parent is not None:
            needed = max((*segment.ends, *segment.branches), default=segment.start)
            self.items -= segment.end - needed
            if needed > segment.start:
                if needed < segment.end:
                    segment.facts = segment.facts.first(needed - segment.start)
                return
            fork = segment.parent.branches[segment.start]
            fork.discard(segment)
            if not fork:
                del segment.parent.branches[segment.start]
            segment = segment.parent

    def _branch(self, parent: Segment, depth: int, facts: PackedFacts, answer: int) -> Segment:
        segment = Segment(
            parent, depth, facts, answer, after_answer=parent.after_answer or depth > parent.answer
        )
        parent.branches.setdefault(depth, Fork()).add(segment)
        self.items += len(facts)
        return segment


_Place = tuple[Segment, int]


def _only_step(place: _Place, item: ItemFacts, level: Level) -> _Place | None:
    """The place behind ``item`` where nothing branches off and nothing may be skipped: the way of almost every step."""
    segment, depth = place
    at = depth - segment.start
    facts = segment.facts
    if at >= len(facts) or depth in segment.branches or not facts.answers_to(at, item, level):
        return None
    if (item.kind is Kind.EMPTY and level is not Level.EXACT) or depth + 1 in segment.branches:
        return None
    if at + 1 < len(facts) and facts.kind(at + 1) in _SKIPPED_AT[level]:
        return None
    return segment, depth + 1


def _places_for(item: ItemFacts, place: _Place) -> Iterator[_Place]:
    """The places one item further on that could hold this item, the newest first."""
    segment, depth = place
    if depth < segment.end:
        yield segment, depth + 1
    if (fork := segment.branches.get(depth)) is not None:
        for branch in reversed(fork.with_core(item.core)):
            yield branch, depth + 1
        if item.kind is Kind.REFERENCE and item.identifier is not None:
            for branch in reversed(fork.with_identifier(item.identifier)):
                yield branch, depth + 1


def _skippable_places(place: _Place) -> Iterator[_Place]:
    """The places one item further on whose item some level lets a client leave out."""
    segment, depth = place
    if depth < segment.end and segment.facts.kind(depth - segment.start) in SKIPPABLE:
        yield segment, depth + 1
    if (fork := segment.branches.get(depth)) is not None:
        for branch in reversed(fork.skippable()):
            yield branch, depth + 1


def _fact_before(place: _Place) -> ItemFacts:
    segment, depth = place
    return segment.facts[depth - segment.start - 1]


def _stands_for(client: ItemFacts, held: ItemFacts, level: Level, *, references: bool) -> bool:
    return equal(client, held, level) or (references and level is not Level.EXACT and refers_to(client, held))


def _with_skips(places: list[_Place], level: Level) -> list[_Place]:
    """These places, and those behind held items that the client may leave out at this level."""
    if level is Level.EXACT:
        return places[:_MOST_PLACES]
    reached = {(id(segment), depth): (segment, depth) for segment, depth in places}
    open_places = list(reached.values())
    while open_places and len(reached) < _MOST_PLACES:
        for place in _skippable_places(open_places.pop()):
            if _fact_before(place).kind in _SKIPPED_AT[level]:
                key = (id(place[0]), place[1])
                if key not in reached:
                    reached[key] = place
                    open_places.append(place)
    return list(reached.values())[:_MOST_PLACES]


def _shared(segment: Segment, depth: int, fact: ItemFacts, *, issued: bool) -> _Place | None:
    """The place one item further on that holds the same item already.

    An item that the API has just made is another one if its id is; one that a client resent may be the one that the API made,
    whether or not the client kept its id.
    """
    places = [(place, _fact_before(place)) for place in _places_for(fact, (segment, depth))]
    same = [place for place, held in places if held == fact]
    if not same and not issued:
        bare = replace(fact, identifier=None)
        same = [place for place, held in places if replace(held, identifier=None) == bare]
    return same[0] if same else None


def _first_of_each(found: list[Match]) -> tuple[Match, ...]:
    """A transcript can be met twice when skips lead to the same end; its longest match counts."""
    seen: set[int] = set()
    kept: list[Match] = []
    for match in found:
        if id(match.transcript) not in seen:
            seen.add(id(match.transcript))
            kept.append(match)
    return tuple(kept)
