"""Why a turn was not a delta: the closed set that statistics, logs and the response header use."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """One per turn that is not a delta."""

    NEW_CONVERSATION = "new_conversation"
    HISTORY_CHANGED = "history_changed"
    REASONING_OMITTED = "reasoning_omitted"
    SETTINGS_CHANGED = "settings_changed"
    NO_NEW_ITEMS = "no_new_items"
    PARENT_LOST = "parent_lost"
    PARENT_SUPERSEDED = "parent_superseded"
    PARENT_BUSY = "parent_busy"
    NOT_FOUND = "not_found"
    DELTA_REFUSED = "delta_refused"
    CONNECTION_LOST = "connection_lost"
    TOO_LARGE = "too_large"
    NOT_UPGRADABLE = "not_upgradable"
    CLIENT_PARENT = "client_parent"
    NO_SOCKET = "no_socket"
    UPGRADE_REFUSED = "upgrade_refused"
    DISABLED = "disabled"
