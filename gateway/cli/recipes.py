"""The recipes in ``config/clients``: what to set so that a client uses the gateway."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

PLACE = "{base_url}"
DEFAULT_URL = "http://127.0.0.1:7411/v1"


@dataclass(frozen=True, kw_only=True, slots=True)
class File:
    """A configuration file of the client: its place, and what stands in it."""

    path: str
    text: str
    place: str = ""

    @property
    def where(self) -> str:
        """The path, and the place in it if any spot will not do."""
        return f"{self.path} ({self.place})" if self.place else self.path


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How one client is pointed at the gateway. Every text has the gateway's base URL, which ends in ``/v1``, filled in."""

    name: str
    title: str
    package: str
    environment: Mapping[str, str] = field(default_factory=dict)
    files: tuple[File, ...] = ()
    commands: tuple[str, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)
    notes: str = ""

    def sections(self) -> list[tuple[str, str]]:
        """Each way to set the client up: what to do, and the text to copy."""
        found: list[tuple[str, str]] = []
        if self.environment:
            lines = "\n".join(f"export {name}={value}" for name, value in self.environment.items())
            found.append(("In the environment of any program that uses it, unchanged", lines))
        found.extend((f"In {file.where}", file.text.strip("\n")) for file in self.files)
        found.extend(("Once, as a command", command.strip()) for command in self.commands)
        found.extend(
            (f"Or for one run of {command}", f"{command} {flags.strip()}")
            for command, flags in self.flags.items()
        )
        found.extend(
            (f"Or in {_LANGUAGES[language]}", text.strip("\n")) for language, text in self.code.items()
        )
        return found

    def text(self) -> str:
        """The whole recipe as a person reads it; what is to be copied is indented by four spaces."""
        parts = [f"# {self.title}"]
        for what, block in self.sections():
            parts += [f"{what}:", "\n".join(f"    {line}".rstrip() for line in block.splitlines())]
        if self.notes:
            parts.append(self.notes.strip())
        return "\n\n".join(parts) + "\n"


_LANGUAGES = {"python": "Python code", "javascript": "JavaScript code"}


def names() -> list[str]:
    """The names of all clients with a recipe."""
    return sorted(name.removesuffix(".toml") for name in _texts())


def recipe(name: str, base_url: str) -> Recipe:
    """The recipe of the client ``name`` for the gateway at ``base_url``. KeyError if there is none."""
    given: dict[str, Any] = tomllib.loads(_texts()[f"{name}.toml"].replace(PLACE, base_url))
    given["files"] = tuple(File(**file) for file in given.get("files", ()))
    given["commands"] = tuple(command["text"] for command in given.get("commands", ()))
    return Recipe(name=name, **given)


def environment(base_url: str) -> dict[str, str]:
    """The variables of all recipes together: what a program with any of the clients inside needs."""
    found: dict[str, str] = {}
    for name in names():
        found.update(recipe(name, base_url).environment)
    return found


def markdown_table() -> str:
    """The table of all clients for the README, for a gateway at its default address."""
    rows = ["| client | what to set | |", "|---|---|---|"]
    for name in names():
        found = recipe(name, DEFAULT_URL)
        places = [
            *(f"`{variable}`" for variable in found.environment),
            *(f"`{file.path}`" for file in found.files),
        ]
        places += [f"`{command.split(' -')[0].strip()}`" for command in found.commands]
        rows.append(f"| {found.title} | {', '.join(places)} | `upwire connect {name}` |")
    return "\n".join(rows) + "\n"


def _texts() -> dict[str, str]:
    packed = resources.files("gateway.cli").joinpath("clients")
    folder = packed if packed.is_dir() else Path(__file__).parents[2] / "config" / "clients"
    return {
        file.name: file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".toml")
    }
