"""What a storm must not have done to any turn: the promises, checked one turn at a time against what the upstream saw."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from gateway.simulator.answers import settings_digest
from tests.storm.hazards import OUTAGE

MOST_TRIES, MOST_BEGUN = 4, 2
KINDS = (
    "wrong context", "mixed answer", "cut answer looks whole", "too many tries", "repeated after the first byte",
    "second try with a parent of ours", "repeat of what a new socket lost", "another identity's socket", "failure that the rules do not allow", "two turns on one socket",
    "gateway failed", "turn miscounted",
)  # fmt: skip
_MARK = re.compile(r"ctx strict=([0-9a-f]{16}) modulo=([0-9a-f]{16}) settings=([0-9a-f]{16})")


@dataclass
class Verdict:
    """Every breach, by kind, with the name of its turn; and how often each hazard ended how."""

    breaches: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    ends: dict[str, Counter] = field(default_factory=lambda: defaultdict(Counter))
    begun: Counter = field(default_factory=Counter)
    tries: Counter = field(default_factory=Counter)

    @property
    def clean(self):
        """Whether nothing was breached."""
        return not any(self.breaches.values())

    def breach(self, kind, text):
        """Note a breach."""
        self.breaches[kind].append(text)


def judge(storm):
    """Look at every turn of ``storm``."""
    verdict = Verdict()
    tries = defaultdict(list)
    served = Counter()
    for entry in storm.simulator.journal:
        if entry.kind == "create":
            tries[entry.body["client_metadata"]["turn"]].append((entry, served[entry.connection]))
            served[entry.connection] += 1
            if entry.overlapped:
                verdict.breach("two turns on one socket", f"connection {entry.connection}")
    for asked in storm.asked:
        _judge(storm, verdict, asked, tries[asked.turn])
    verdict.breaches["gateway failed"].extend(storm.failures)
    _count(storm, verdict)
    return verdict


def _judge(storm, verdict, asked, tries):
    entries = [entry for entry, _ in tries]
    answer, hazard = asked.answer, asked.hazard
    outage = any(o.began <= asked.ended and asked.began <= o.ended for o in storm.outages)
    verdict.ends[hazard.label if hazard else "calm"][answer.outcome + (" (outage)" if outage else "")] += 1

    def breach(kind, text=""):
        seen = f"{asked.turn} {hazard.label if hazard else 'calm'}: {answer.outcome} {answer.status} {answer.mode}"
        path = " | ".join(
            f"{e.transport} {e.connection}/{before} {'delta' if e.parent else 'full'} {e.outcome} {e.status or ''}"
            for e, before in tries
        )
        verdict.breach(kind, f"{seen} [{path}] {text}")

    begun = sum(_began(entry, hazard) for entry in entries)
    verdict.begun[begun] += 1
    verdict.tries[len(entries)] += 1
    if len(entries) > MOST_TRIES or begun > MOST_BEGUN:
        breach("too many tries", f"tries {len(entries)} begun {begun}")
    ran = [(entry, before) for entry, before in tries if _began(entry, hazard)]
    if not outage and any(entry.transport != "ws" or not before for entry, before in ran[:-1]):
        breach("repeat of what a new socket lost")
    if any(entry.key != asked.key for entry in entries):
        breach("another identity's socket")
    own = asked.body.get("previous_response_id")
    if any(entry.parent != own for entry in entries[1:]):
        breach("second try with a parent of ours")
    if not outage and any(entry.response_id for entry in entries[:-1]):
        breach("repeated after the first byte")
    allowed = storm.arming.allowed(asked.turn, hazard, entries) | (OUTAGE if outage else frozenset())
    if answer.outcome not in allowed or (answer.outcome == "refused" and answer.status != hazard.status):
        breach(
            "failure that the rules do not allow", f"allowed: {' '.join(sorted(allowed))} {answer.raw[-300:]}"
        )
    _check_whole(storm, asked, entries, breach)
    _check_stream(storm, asked, entries, breach)


def _began(entry, hazard):
    """Whether the upstream may have begun to run this try: it did not say that it refused it."""
    if entry.outcome in {"refused", "error"}:
        return False
    return not (
        hazard is not None
        and not hazard.begins
        and entry.outcome in {"broken", "failed"}
        and not entry.response_id
    )


def _check_whole(storm, asked, entries, breach):
    """A whole answer is the one that the upstream gave to the last try, in the context that the client meant."""
    answer = asked.answer
    if answer.outcome not in {"completed", "incomplete"} or answer.end != "whole":
        if answer.outcome == "cut":
            breach("cut answer looks whole")
        return
    response, last = answer.response, entries[-1] if entries else None
    if last is None or response["id"] != last.response_id:
        breach("mixed answer", "another response")
        return
    held = storm.simulator.response(last.response_id)
    if held["status"] != answer.outcome or last.outcome != answer.outcome:
        breach("cut answer looks whole", f"upstream: {last.outcome}")
    if answer.outcome != "completed":
        return
    if answer.output != held["output"]:
        breach("mixed answer", "items")
    if answer.mode != "http" and response["output"] != held["output"]:
        breach("mixed answer", "output of the response object")
    if response.get("previous_response_id") != asked.body.get("previous_response_id"):
        breach("mixed answer", "previous_response_id")
    wanted, found = asked.expected, last.digests
    # What was sent whole is held to the letter; in a delta a client may have altered or left out what the level names.
    own = last.parent in (None, asked.body.get("previous_response_id"))
    level = "exact" if own else storm.level
    if _digest(found, level) != _digest(wanted, level) or (
        level != "lenient" and found.items != wanted.items
    ):
        breach("wrong context", f"at {level}")
    settings = settings_digest(asked.body)
    if settings != settings_digest(last.body):
        breach("wrong context", "settings")
    for strict, modulo, quoted in _MARK.findall(str(answer.output[-1])):
        # The answer quotes the digests of the context that it was given for.
        if quoted != settings or (strict, modulo) != (found.strict, found.modulo):
            breach("wrong context", "the answer is for another")


def _digest(digests, level):
    return {"exact": digests.strict, "equivalent": digests.modulo, "lenient": digests.loose}[level]


def _check_stream(storm, asked, entries, breach):
    """Every event that the client saw, of whole and broken answers alike, is of the last try's response, in order."""
    answer = asked.answer
    events = answer.events
    if not events:
        return
    last = entries[-1]
    records = storm.simulator._upstream.records
    numbers = [event["sequence_number"] for event in events if "sequence_number" in event]
    gaps = asked.hazard is not None and asked.hazard.family == "error in the stream"
    if (
        numbers != sorted(set(numbers))
        if gaps or answer.mode == "http"
        else numbers != list(range(len(numbers)))
    ):
        breach("mixed answer", f"numbers {numbers}")
    if {e["response"]["id"] for e in events if "response" in e and e["response"].get("id")} - {
        last.response_id
    }:
        breach("mixed answer", "id")
    for name in {event["item_id"] for event in events if "item_id" in event}:
        issued = records.issued(name)
        if issued is None or issued.response_id != last.response_id:
            breach("mixed answer", f"item {name}")
    ends = [
        e["type"]
        for e in events
        if e["type"] in {"response.completed", "response.incomplete", "response.failed"}
    ]
    if len(ends) > 1 or (ends and events[-1]["type"] != ends[0]):
        breach("mixed answer", f"ends {ends}")
    told = (
        ends == ["response.failed"] and events[-1]["response"]["error"]["code"] == "upstream_connection_lost"
    )
    if answer.outcome == "broken" and answer.mode != "http" and not told:
        breach("cut answer looks whole", f"broken off without a word: {events[-1]}")


def _count(storm, verdict):
    """Every turn that the gateway knew of is counted once, as the client saw it."""
    turns = storm.stats["turns"]
    total = turns["delta"] + turns["full"] + turns["http"]
    certain = sum(asked.answer.end != "left" for asked in storm.asked)
    if (
        turns["total"] != total
        or not certain <= total <= len(storm.asked)
        or turns["cancelled"] > total - certain
    ):
        verdict.breach("turn miscounted", f"{turns} of {len(storm.asked)}, {certain} not left")
    if len(storm.records) != total:
        verdict.breach("turn miscounted", f"{len(storm.records)} lines for {total} turns")
