"""Who is who in a team behind one gateway: labels that the operator gives to keys and tokens, and limits of their own.

The file names a key by its SHA-256 digest, so that it holds nothing that opens anything. It is TOML, one table for each label:

    [alice]
    keys = ["sha256:..."]
    in_flight = 20
    sockets = 16
    sees_all = true

With tokens, a member is shown its own numbers in the statistics and no other label, unless it sees all: whoever watches the gateway.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gateway.stats.models import OTHER

DIGEST = "sha256:"
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}", re.ASCII)
"""What a label may look like; it becomes a label of metrics."""
MEMBERS = 1000
"""Labels at most: each is a set of series in the metrics."""

_DIGEST = re.compile(DIGEST + r"[0-9a-f]{64}", re.ASCII)
_LIMITS = ("in_flight", "sockets")


class TeamUnusable(Exception):
    """The file of the team makes no sense. The text says where and what would be right, and quotes no value."""


@dataclass(frozen=True, slots=True)
class Member:
    """A label with limits of its own: turns and upstream sockets at once, None for what holds for all.

    ``sees_all`` says that it is shown the labels of the others.
    """

    label: str
    in_flight: int | None = None
    sockets: int | None = None
    sees_all: bool = False


@dataclass(frozen=True, slots=True)
class Team:
    """The members by the digests of what they present."""

    members: Mapping[str, Member] = field(default_factory=dict)

    @property
    def labels(self) -> tuple[str, ...]:
        """Every label once, in the order of the file."""
        return tuple(dict.fromkeys(member.label for member in self.members.values()))

    def member(self, presented: Iterable[str]) -> Member | None:
        """Who presents one of these keys or tokens."""
        return next((m for each in presented if (m := self.members.get(digest_of(each))) is not None), None)


def digest_of(key: str) -> str:
    """How a key or token is named in the file."""
    return DIGEST + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def read_team(file: str, tokens: Mapping[str, str]) -> Team:
    """The team of ``file`` (empty for none) and of ``tokens``, which have a label each, or an empty one. Raises TeamUnusable."""
    tables = _tables(file) if file else {}
    members = {digest_of(token): Member(label) for token, label in tokens.items() if label}
    for label, table in tables.items():
        keys, member = _member(file, label, table)
        # A label of a token may have limits here, without keys.
        known = [digest for digest, other in members.items() if other.label == label]
        if not keys and not known:
            raise TeamUnusable(
                f"team_file {file}: {label} needs keys, a list of digests as upwire label prints them"
            )
        for digest in (*known, *keys):
            if members.get(digest, member).label != label:
                raise TeamUnusable(f"team_file {file}: {label} has a key that another label has as well")
            members[digest] = member
    team = Team(members)
    if len(team.labels) > MEMBERS:
        raise TeamUnusable(f"there are more than {MEMBERS} labels")
    return team


def told_team(team: Team) -> dict[str, Any]:
    """The team as plain values, for another process; see ``heard_team``."""
    return {digest: asdict(member) for digest, member in team.members.items()}


def heard_team(told: Mapping[str, Any]) -> Team:
    """The team that ``told_team`` told."""
    return Team({digest: Member(**member) for digest, member in told.items()})


def check_label(label: str) -> str | None:
    """What is wrong with a label, if anything is."""
    if label == OTHER:
        return f"{OTHER} stands for all who have no label; choose another name"
    if LABEL.fullmatch(label):
        return None
    return "a label has at most 40 letters, digits, - and _, and begins with a letter or digit"


def _tables(file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise TeamUnusable(f"team_file {file} cannot be read ({type(error).__name__})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        # The text of the error may quote a key that somebody wrote there.
        raise TeamUnusable(f"team_file {file} is not TOML") from None


def _member(file: str, label: str, table: Any) -> tuple[list[str], Member]:
    if wrong := check_label(label):
        raise TeamUnusable(f"team_file {file}: {wrong}")
    if not isinstance(table, dict):
        raise TeamUnusable(f"team_file {file}: {label} must be a table, [{label}]")
    if unknown := table.keys() - {"keys", "sees_all", *_LIMITS}:
        # An unknown name is not quoted either: it may be a key in the wrong place.
        raise TeamUnusable(
            f"team_file {file}: {label} has {len(unknown)} entries that are none of keys, sees_all, {', '.join(_LIMITS)}"
        )
    keys = table.get("keys", [])
    if not isinstance(keys, list) or not all(isinstance(key, str) and _DIGEST.fullmatch(key) for key in keys):
        raise TeamUnusable(
            f"team_file {file}: keys of {label} must be a list of digests, each {DIGEST} and 64 hex digits; upwire label makes them"
        )
    for name in _LIMITS:
        if name in table and (type(table[name]) is not int or table[name] < 1):
            raise TeamUnusable(f"team_file {file}: {name} of {label} must be a whole number above 0")
    sees_all = table.get("sees_all", False)
    if not isinstance(sees_all, bool):
        raise TeamUnusable(f"team_file {file}: sees_all of {label} must be true or false")
    return keys, Member(label, table.get("in_flight"), table.get("sockets"), sees_all)
