"""How the simulated upstream behaves: which rules of the protocol it plays, what it costs, what it answers with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of one simulated upstream; every one has a default. Times are seconds, sizes are bytes."""

    keys: frozenset[str] | None = None
    """Accepted bearer keys; None accepts any key that is not empty."""
    seed: str = "upwire"
    """Answers are a function of this and of the effective context: equal seeds answer equally."""

    cost_per_request: float = 0.0
    cost_per_kb: float = 0.0
    """Per 1000 bytes of context that the upstream does not hold: a whole body over HTTP, the new items over a socket."""
    token_pace: float = 0.0
    """Before each delta event."""

    websocket: bool = True
    upgrade_status: int = 426
    """What an upgrade is answered with when ``websocket`` is off."""
    lanes: bool = False
    """Whether ``stream_id`` is understood; without, it is refused as an unsupported parameter."""
    max_running: int = 16
    max_lane_names: int = 32
    max_frame: int = 16 * MEBIBYTE
    """A text frame of this size or more is answered with close 1009."""
    max_age: float | None = None
    """Older connections refuse creates, stay open and go on answering pings."""
    ping_interval: float | None = None
    """Pings the client this often; one that is silent for a whole interval is closed with 1011."""
    survives_errors: bool = True
    """Whether a socket stays usable after an error frame; without, it is closed with 1000."""
    any_error_evicts: bool = False
    """Whether each failed turn of a lane costs its memory, not only one that continued the response held there."""
    refuses_empty_delta: bool = True
    """Whether a continuation of an ordinary response without new items is refused."""
    refuses_stream_options: bool = False
    """Whether ``stream_options`` in a frame is refused."""
    one_model: bool = False
    """Whether a socket that is asked for another model than before is closed with 1008."""
    api_key_header: bool = False
    """Whether the key may also come as it is in a header ``api-key``."""
    compression: bool = False
    """Whether permessage-deflate is accepted where it is offered."""
    receive_buffer: int | None = None
    """Kernel receive buffer of accepted sockets, to make a reader that stopped felt early."""

    ignores_parents: bool = False
    """Whether ``previous_response_id`` is accepted and not looked at, as by an upstream that does not know it."""
    zero_retention: bool = False
    """Whether ``store: true`` is accepted but nothing can be loaded later."""
    strict_reasoning_ids: bool = False
    """Whether a reasoning item that is known by its id only must be one that was stored."""
    reasoning_pairs: bool = False
    """Whether an output item that was made after a reasoning item is refused without it."""

    terminal_output: Literal["filled", "empty", "missing", "null", "first"] = "filled"
    """What ``response.output`` of terminal events holds; the finished items are complete in any case."""
    setup_events: bool = True
    """Whether items and parts are announced before their deltas on a socket."""
    notices: bool = False
    """Whether ``codex.rate_limits`` events stand between the others."""
    keepalives: bool = False
    """Whether ``keepalive`` events, which consume a sequence number, stand between the others."""
    obfuscation: bool = False
    """Whether deltas carry padding unless the request switches it off."""

    rounds: int | None = None
    """Tool rounds per user message; None lets the context decide. A user text ``loop N`` goes before both."""
    parallel_calls: int | None = None
    """Calls per tool round; None lets the context decide between one and two."""
    reasoning: bool | None = None
    """Whether answers begin with a reasoning item; None lets the context decide, mostly yes."""
    words: int = 8
    """Filler words of a final text; a user text ``words N`` goes before it."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Fixed argument or input texts by tool name, for real agents whose tools must not run made-up values."""
    unknown_models: frozenset[str] = frozenset({"no-such-model"})
    models: tuple[str, ...] = ("gpt-5", "gpt-5-mini", "gpt-6-astra")
    journal_limit: int = 20_000
    """Journal entries kept; the oldest fall out."""
