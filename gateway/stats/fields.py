"""Every field of ``/stats``: what it is, and what a rising value means."""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """What a field is, and what it means when its value rises."""

    meaning: str
    rising: str


FIELDS: dict[str, Field] = {
    "version": Field("Version of the gateway.", "Changes with an update."),
    "loop": Field(
        "The event loop, asyncio or uvloop.", "Changes with the setting loop, or with what is installed."
    ),
    "uptime_seconds": Field("Seconds since the start.", "It runs; a fall means that it was restarted."),
    "turns.total": Field("Turns that have ended: delta + full + http.", "Clients use the gateway."),
    "turns.delta": Field("Turns sent as their new items only.", "Good: this is what saves."),
    "turns.full": Field(
        "Turns sent whole over a socket.", "Normal with new conversations; the reasons say why."
    ),
    "turns.http": Field(
        "Turns sent unchanged over plain HTTP.", "Something keeps turns off sockets; the reasons say what."
    ),
    "turns.failed": Field(
        "Turns that ended in an error, whoever's.", "Look at the status in the log or upwire tail."
    ),
    "turns.cancelled": Field(
        "Turns whose client went away first.", "Clients cancel or time out; each costs a socket."
    ),
    "turns.in_flight": Field(
        "Turns that run now.", "More work at once; a steady rise means that turns hang upstream."
    ),
    "reasons.*": Field("Turns that were not a delta, by why.", "See the table of reasons."),
    "bytes.client_in": Field(
        "Decoded bytes of request bodies, which plain HTTP would have sent.",
        "Longer histories, or more turns.",
    ),
    "bytes.upstream_out": Field(
        "Bytes sent upstream for them, repeats included.", "Should rise far slower than client_in."
    ),
    "bytes.saved": Field(
        "client_in less upstream_out.", "Good; a fall means that repeats cost more than deltas save."
    ),
    "connections.open": Field(
        "Upstream sockets open now.", "More conversations at once; bounded by sockets."
    ),
    "connections.busy": Field("Those that serve a turn.", "More turns at once."),
    "connections.idle": Field(
        "Those that wait, each holding a conversation or kept spare.", "More conversations can be continued."
    ),
    "connections.dialling": Field(
        "Sockets being opened, spare ones too.", "New conversations; a steady value means slow dials."
    ),
    "connections.opened": Field(
        "Sockets opened since the start.", "If it rises with every turn, nothing is being reused."
    ),
    "connections.reused": Field(
        "Turns that were given an open socket.", "Good: no handshake, and a conversation to continue."
    ),
    "connections.closed.*": Field("Sockets closed, by why.", "See the table of closings."),
    "connections.refused.*": Field("Sockets that could not be opened, by why.", "Run upwire check."),
    "conversations.known": Field(
        "Responses that may be continued.", "Normal until it meets the setting conversations."
    ),
    "conversations.evicted": Field(
        "Responses dropped for lack of room or use.", "Raise conversations if turns lose their parents."
    ),
    "conversations.items": Field(
        "Items remembered, by digests only.", "Longer conversations; bounded by conversation_items."
    ),
    "conversations.bytes": Field("Memory that they take, about.", "As items."),
    "recoveries.*": Field("Failures hidden from clients, by how.", "See the table of recoveries."),
    "latency_ms.first_event.*": Field(
        "From request read to first event of the upstream, newest turns, as percentiles.",
        "The model or the network is slower.",
    ),
    "latency_ms.added.*": Field(
        "The gateway's own part of that, without dials, waits, repeats and plain HTTP.",
        "This machine is overloaded.",
    ),
    "latency_ms.duration.*": Field("From request read to end of answer.", "Longer answers."),
    "upstream.url": Field("Where turns go, without its query.", "Changes with the setting upstream."),
    "upstream.mode": Field("The setting mode.", "http means that nothing is upgraded."),
    "upstream.match": Field(
        "The setting match.", "lenient makes more deltas than equivalent, and that more than exact."
    ),
    "upstream.profile.*": Field(
        "What this kind of upstream is trusted with before it has shown anything.",
        "Changes with the setting profile, or with the upstream's host.",
    ),
    "upstream.websocket": Field(
        "works, refused or untried.", "From works to refused: turns go over plain HTTP; run upwire check."
    ),
    "upstream.refusal": Field(
        "Status and cause of the last refusal that still counts, else null.", "Run upwire check."
    ),
    "upstream.retry_in_seconds": Field(
        "When a refused upstream is tried again, else null.", "It keeps refusing."
    ),
    "upstream.compression": Field(
        "offered, off (the setting) or failed.", "failed: a socket with compression could not be read."
    ),
    "upstream.compression_retry_in_seconds": Field(
        "When compression that failed is offered again, else null.", "It fails again."
    ),
    "upstream.socket_age_seconds": Field(
        "Age at which sockets are retired.", "It never rises: a shorter limit may be learned."
    ),
    "upstream.socket_age_learned": Field(
        "Whether that was learned from the upstream.", "The upstream closes sockets earlier than configured."
    ),
    "upstream.socket_age_learned_seconds": Field(
        "For how much longer that counts.", "The upstream did it again."
    ),
    "upstream.identities_without_stored_parents": Field(
        "Credentials whose stored responses this upstream did not find again, so that only sockets count for them.",
        "The upstream keeps nothing that it is asked to store, as for organisations without retention.",
    ),
    "upstream.frame_limit_bytes": Field(
        "Size from which on a turn goes over plain HTTP.", "A learned limit was forgotten."
    ),
    "upstream.frame_limit_learned": Field(
        "Whether that was learned from the upstream.", "The upstream takes smaller frames than configured."
    ),
    "upstream.frame_limit_seconds": Field(
        "For how much longer a learned frame limit counts.", "The upstream refused a large frame again."
    ),
    "upstream.streams_over_http_seconds": Field(
        "For how long streams go over plain HTTP, because this upstream's events on sockets were incomplete.",
        "It happened again.",
    ),
    "upstream.nothing_chained_seconds": Field(
        "For how long everything is sent in full, because this upstream ignored a parent.",
        "It happened again.",
    ),
    "upstream.fields_over_http": Field(
        "Fields that this upstream takes over plain HTTP only.",
        "Turns with these fields cannot be deltas there.",
    ),
    "identities.*.turns.total": Field(
        "Turns that have ended, by the label that the operator gave to the key; other is all without a label.",
        "Whoever has that label uses the gateway.",
    ),
    "identities.*.turns.delta": Field("Those sent as their new items only.", "Good: this is what saves."),
    "identities.*.turns.full": Field("Those sent whole over a socket.", "As turns.full."),
    "identities.*.turns.http": Field("Those sent unchanged over plain HTTP.", "As turns.http."),
    "identities.*.turns.failed": Field("Those that ended in an error.", "As turns.failed."),
    "identities.*.turns.cancelled": Field("Those whose client went away first.", "As turns.cancelled."),
    "identities.*.turns.in_flight": Field(
        "Turns that run now, or whose bodies still arrive.",
        "At its limit or fair share further ones get 503, too_many_turns.",
    ),
    "identities.*.bytes.client_in": Field("Decoded bytes of their bodies.", "As bytes.client_in."),
    "identities.*.bytes.upstream_out": Field("Bytes sent upstream for them.", "As bytes.upstream_out."),
    "identities.*.bytes.saved": Field("client_in less upstream_out.", "Good."),
    "identities.*.sockets": Field(
        "Upstream sockets of this label.", "More conversations at once; bounded by its limit or fair share."
    ),
    "index.state": Field(
        "The index that gateways share: off, untried, works, read_only (it takes no data) or down.",
        "down or read_only: conversations that move to another gateway are sent in full; turns go on.",
    ),
    "index.cause": Field(
        "Why it does not work: timeout, unreachable, refused, full or error; else null.",
        "Changes with the state.",
    ),
    "index.hits": Field(
        "Turns that continue what another gateway made.", "Conversations move between gateways."
    ),
    "index.misses": Field(
        "Turns for which the index had nothing better than what is known here.",
        "New conversations, or those that the index has lost.",
    ),
    "index.errors": Field("Requests that it did not answer in time, or refused.", "See index.cause."),
    "index.written": Field("Responses that others were told of.", "Turns with store true complete."),
    "index.dropped": Field(
        "Responses that could not be told.", "Each costs its conversation a full turn if it moves now."
    ),
    "workers.count": Field("Processes that serve this port.", "Changes with the setting workers."),
    "workers.silent": Field(
        "Numbers of workers that did not answer in time, so that their part is missing here.",
        "A worker hangs, or has just been replaced; see worker_ended in the log.",
    ),
    "sockets[].socket": Field(
        "Number of a socket, as in the log.", "Sockets are numbered as they are opened."
    ),
    "sockets[].worker": Field(
        "Number of the worker that has it.", "One worker has most of them: few conversations are busy."
    ),
    "sockets[].state": Field(
        "busy, idle, dialling (for a turn) or warming (a spare one).", "Many busy ones: many turns at once."
    ),
    "sockets[].state_seconds": Field(
        "For how long.", "Busy for many minutes is a long answer, or one that hangs."
    ),
    "sockets[].age_seconds": Field("Since it was opened.", "Normal up to socket_age."),
    "sockets[].turns": Field("Turns it has served.", "Good: it is reused."),
    "sockets[].holds": Field(
        "nothing, a conversation alone, or one that the upstream has stored.",
        "alone means that closing this socket costs its conversation one full turn.",
    ),
}
"""By path; ``*`` stands for each of a closed set of words, ``[]`` for each element of a list."""

FIELDS |= {
    "upstreams.*.path": Field(
        "Local path of an upstream, by its name; main is the setting upstream.", "Changes with the settings."
    ),
    "upstreams.*.url": Field("Where its turns go, without its query.", "Changes with the settings."),
    "upstreams.*.profile": Field("What kind of upstream it is.", "Changes with its profile or host."),
    "upstreams.*.turns.total": Field("Turns to it that have ended.", "It is used."),
    "upstreams.*.connections.open": Field("Sockets to it that are open now.", "As connections.open."),
}
FIELDS |= {
    f"upstreams.*.{part}": Field(f"As {part}, for that upstream.", f"As {part}.")
    for part in FIELDS
    if part in {
        "turns.delta", "turns.full", "turns.http", "turns.failed", "turns.cancelled", "connections.busy", "connections.idle",
        "connections.dialling",
    }
}  # fmt: skip
_OF_THE_MAIN_ONE = ("upstream.url", "upstream.mode", "upstream.match", "upstream.profile.*")
FIELDS |= {
    path.replace("upstream.", "upstreams.*.", 1): Field(f"As {path}, for that upstream.", f"As {path}.")
    for path in FIELDS
    if path.startswith("upstream.") and path not in _OF_THE_MAIN_ONE
}

TURN_FIELDS: dict[str, Field] = {
    "time": Field("When the turn ended.", "No new lines: no turn ends."),
    "model": Field(
        "Family of the model, other if it is not a known one.",
        "Turns of one model never continue those of another.",
    ),
    "mode": Field(
        "delta, full or http.", "More delta is good; more http means that something keeps turns off sockets."
    ),
    "reason": Field(
        "Why it was not a delta.",
        "One that comes again and again is worth looking up in the table of reasons.",
    ),
    "outcome": Field(
        "ok, failed or cancelled.", "More failed or cancelled ones: look at status, and at the client."
    ),
    "status": Field("Status of the answer.", "400 and above are errors."),
    "in": Field("Bytes of the client's body.", "The history grows, as it does in every conversation."),
    "sent": Field("Bytes sent upstream for it.", "Where it rises along with in, deltas do not happen."),
    "first": Field("Time to the first event of the upstream.", "The model or the network is slower."),
    "total": Field("Time to the end of the answer.", "Longer answers."),
}
"""The columns in which single turns are shown."""


def path_of(steps: tuple[str, ...]) -> str:
    """The path under which FIELDS describes the value at ``steps`` of the statistics; KeyError if none does."""
    exact = ".".join(steps)
    for path in (exact, ".".join((*steps[:-1], "*")), ".".join((*steps[:1], "*", *steps[2:]))):
        if path in FIELDS:
            return path
    raise KeyError(exact)
