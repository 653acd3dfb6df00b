"""Every command that a document names: lines of shell blocks, and spans of code that begin with a program."""

from __future__ import annotations

import re

PROGRAMS = frozenset({
    "upwire", "make", "curl", "export", "pip", "python", "python3", "docker", "docker-compose", "kubectl", "systemctl",
    "systemd-analyze", "kill", "openssl", "haproxy", "redis-server", "redis-cli", "promtool", "ulimit", "sysctl", "sudo",
})  # fmt: skip
SHELL = "sh"
OTHERS = frozenset({"text", "mermaid", "toml", "yaml", "json"})
"""Blocks of these languages hold no commands."""

_FENCE = re.compile(r"(?ms)^```(\S*)\n(.*?)^```$")


def commands(text):
    """The commands of one document in its order, without comments; ValueError for a block that does not say its language."""
    found = []
    rest = text
    for language, block in _FENCE.findall(text):
        if language == SHELL:
            found += [line.partition("  # ")[0].strip() for line in block.splitlines()]
        elif language not in OTHERS:
            raise ValueError(f"a block of {language or 'no language'}")
    rest = _FENCE.sub("", text)
    # An indented block is one as well; what belongs to a list is indented less.
    found += [line.partition("  # ")[0].strip() for line in re.findall(r"(?m)^    (.*)$", rest)]
    found += [span for span in re.findall(r"`([^`\n]+)`", rest) if program(span) in PROGRAMS and " " in span]
    return [command for command in found if command and not command.startswith("#")]


def program(command):
    """The name of the program that a command runs, without variables before it and without its folder."""
    words = [word for word in command.split() if not re.fullmatch(r"[A-Z_]+=\S*", word)]
    return words[0].rpartition("/")[2] if words else ""
