"""The plan of a turn: what the upstream may already hold of a request, and why not, where it holds nothing usable.

The context law, which the plan keeps and its property test states: what a parent holds, followed by the items that are sent,
equals what the client asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.conversation.fields import allows_delta
from gateway.conversation.items import Level
from gateway.conversation.reasons import Reason
from gateway.conversation.request import Request
from gateway.conversation.transcripts import Match, Walk


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings that decide about deltas."""

    level: Level
    any_change_is_full: bool
    chain_stored: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """``parents`` to continue, best first; without any, ``reason`` says why the turn is not a delta."""

    parents: tuple[Match, ...]
    reason: Reason


def plan(request: Request, walk: Callable[[Level], Walk], rules: Rules) -> Plan:
    """Decide what a request may continue. ``walk`` looks the request's items up at a level."""
    if request.client_parent is not None:
        return Plan((), Reason.CLIENT_PARENT)
    if request.store and not rules.chain_stored:
        return Plan((), Reason.DISABLED)
    found = walk(rules.level)
    refusals = [(match, _refusal(request, match, rules)) for match in found.matches]
    parents = tuple(match for match, refusal in refusals if refusal is None)
    if parents:
        return Plan(parents, Reason.PARENT_LOST)
    if refusals:
        return Plan((), refusals[0][1] or Reason.NEW_CONVERSATION)
    if rules.level is Level.EQUIVALENT and _would_match(request, walk(Level.LENIENT)):
        return Plan((), Reason.REASONING_OMITTED)
    return Plan((), Reason.HISTORY_CHANGED if found.met_answer else Reason.NEW_CONVERSATION)


def _refusal(request: Request, match: Match, rules: Rules) -> Reason | None:
    """Why a matching transcript cannot be continued by this request."""
    if match.consumed == request.skipped + len(request.items):
        return Reason.NO_NEW_ITEMS
    if not allows_delta(match.transcript.fields, request.fields, any_change=rules.any_change_is_full):
        return Reason.SETTINGS_CHANGED
    return None


def _would_match(request: Request, found: Walk) -> bool:
    return any(match.consumed < request.skipped + len(request.items) for match in found.matches)
