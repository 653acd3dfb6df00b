"""Why turns are not deltas, how turns are tried again, and why sockets close: each word with its meaning and a remedy.

The same sentences are shown by the dashboard, by commands and in the documentation, so that a word is looked up only once.
"""

from __future__ import annotations

from typing import NamedTuple


class Explained(NamedTuple):
    """What a word means, and what to do about it where it is seen often."""

    meaning: str
    remedy: str


REASON_TEXTS: dict[str, Explained] = {
    "new_conversation": Explained(
        "Nothing that the gateway knows begins like this request.",
        "Normal for the first turn of every conversation and after a restart of the gateway. If every turn is one, the client "
        "changes its first items each time, by a clock or a random id in its prompt.",
    ),
    "history_changed": Explained(
        "The request repeats a known conversation through at least one answer, then differs from it.",
        "Normal after an edit, a retry of an older turn or a compaction. If every turn is one, the client alters what it "
        "resends; look for settings of the client that trim or rewrite the history.",
    ),
    "reasoning_omitted": Explained(
        "The client left out reasoning items that the upstream still holds.",
        "Let the client resend them (include reasoning.encrypted_content), or accept with match = lenient that the model keeps "
        "reasoning that was not resent.",
    ),
    "settings_changed": Explained(
        "A field changed that a continued response cannot change, such as the model or store.",
        "Normal when the user switches the model. With settings = full any changed field counts; delta is more tolerant.",
    ),
    "no_new_items": Explained(
        "The request equals what the upstream already holds, so there is nothing to send as a delta.",
        "Normal when a client repeats its last request; look for retries in the client.",
    ),
    "parent_lost": Explained(
        "The socket that held the conversation is gone, and the upstream cannot reload it.",
        "Look at what closes sockets. Raise socket_idle if it is idle, sockets_per_identity if it is evicted; client_left comes "
        "from clients that cancel.",
    ),
    "parent_superseded": Explained(
        "The socket that held the conversation has since served another one.",
        "More conversations run than sockets may be open: raise sockets_per_identity.",
    ),
    "parent_busy": Explained(
        "The socket that holds the conversation is serving another turn, which is never waited for.",
        "Normal when a client branches one conversation into parallel turns. If more conversations run than sockets may be open, raise "
        "sockets_per_identity.",
    ),
    "not_found": Explained(
        "The upstream did not find the response that was to be continued.",
        "The upstream forgets what it was told to store, as with zero data retention: set stored = full, or let the client send "
        "store = false.",
    ),
    "delta_refused": Explained(
        "The upstream refused or ignored the delta, and the turn was sent again in full.",
        "Rare is harmless. If it is frequent, this upstream does not continue responses over WebSocket: use mode = http.",
    ),
    "connection_lost": Explained(
        "A kept socket turned out to be dead, and the turn was sent again.",
        "Something between drops idle connections: lower ping_interval or socket_idle below its limit.",
    ),
    "too_large": Explained(
        "The frame would have been larger than the upstream takes.",
        "Normal for the first turn of a very long history. Raise max_frame only if the upstream takes larger frames.",
    ),
    "not_upgradable": Explained(
        "The request asks for something that a socket cannot carry, such as background, conversation or prompt.",
        "Nothing is wrong: it goes over plain HTTP unchanged. If a header_keeps_changing line is in the log, name that header in "
        "per_request_headers.",
    ),
    "client_parent": Explained(
        "The client gave its own previous_response_id, so it already sends only new items.",
        "Nothing is wrong, and there is nothing to save.",
    ),
    "no_socket": Explained(
        "No socket came free in time, and the turn went over plain HTTP.",
        "Raise sockets_per_identity and sockets, or socket_wait.",
    ),
    "upgrade_refused": Explained(
        "The upstream could not be reached by WebSocket, and the turn went over plain HTTP.",
        "Run upwire check: it tells whether name, network, TLS, a proxy or the key is the cause.",
    ),
    "disabled": Explained(
        "Upgrading was switched off: by mode = http, by stored = full, or by the header x-upwire-mode: http.",
        "Take that setting or header away to save again.",
    ),
}

REASONS = tuple(REASON_TEXTS)
"""Every reason for which a turn is not a delta: a closed set."""

RECOVERY_TEXTS: dict[str, Explained] = {
    "full_resend": Explained(
        "A delta was refused, and the turn was sent again in full.",
        "See the reasons not_found and delta_refused.",
    ),
    "reconnect": Explained(
        "The socket had reached the upstream's age limit, and a new one was opened.",
        "The limit is learned; lower socket_age if it stays frequent.",
    ),
    "http_fallback": Explained(
        "The turn could not be sent over a socket and went over plain HTTP.",
        "See the reasons no_socket, upgrade_refused and too_large.",
    ),
    "replay": Explained(
        "A kept socket was dead before anything came back, and the turn was sent once more.",
        "See the reason connection_lost.",
    ),
}

RECOVERIES = tuple(RECOVERY_TEXTS)
"""Every way in which a turn is tried again: a closed set."""

CLOSED_TEXTS: dict[str, Explained] = {
    "age": Explained("It reached the age limit between two turns.", "Normal, about once an hour."),
    "idle": Explained(
        "It was unused for socket_idle seconds.", "Normal; a longer socket_idle keeps conversations longer."
    ),
    "evicted": Explained(
        "Its place was needed for another conversation.", "Raise sockets_per_identity and sockets."
    ),
    "client_left": Explained(
        "The client went away in the middle of a turn, and closing is the only way to cancel.",
        "Look at timeouts and cancellations in the client.",
    ),
    "error": Explained(
        "It was not clean after a turn, as after an error of the upstream.", "Look at failed turns."
    ),
    "lost": Explained(
        "The upstream, or something between, closed it.", "If it is frequent, run upwire check."
    ),
    "drained": Explained("The gateway was shutting down.", "Normal."),
    "ping_timeout": Explained(
        "No pong came in time.", "The network drops connections silently: lower ping_interval."
    ),
    "write_timeout": Explained("The upstream stopped taking bytes.", "The network or the upstream is stuck."),
    "key_changed": Explained(
        "The gateway has another key for this upstream than when it was opened.",
        "Normal after the key was replaced; running turns were finished first.",
    ),
}
"""Why sockets are closed."""
