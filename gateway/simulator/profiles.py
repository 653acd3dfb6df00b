"""What kinds of upstream can be played, each as strict as the strictest that is known of it."""

from __future__ import annotations

from gateway.simulator.options import MEBIBYTE, Options

PLAYED = {
    "openai": Options(lanes=True),
    "azure": Options(survives_errors=False, one_model=True, any_error_evicts=True, api_key_header=True),
    "xai": Options(
        survives_errors=False, one_model=True, any_error_evicts=True, zero_retention=True, max_age=1500.0
    ),
    "codex": Options(
        survives_errors=False,
        any_error_evicts=True,
        zero_retention=True,
        terminal_output="empty",
        notices=True,
        keepalives=True,
    ),
    "generic": Options(
        survives_errors=False,
        one_model=True,
        any_error_evicts=True,
        zero_retention=True,
        max_age=780.0,
        max_frame=4 * MEBIBYTE,
        terminal_output="missing",
    ),
}
"""Options by the name of the kind. Ages are in seconds, sizes in bytes, as the API of that kind has them."""
