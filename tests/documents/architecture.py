"""The diagrams of gateway/README.md: the floors by the contract in pyproject.toml, one turn by its table of phases."""

from __future__ import annotations

import ast
import textwrap
import tomllib

from gateway.protocol.phases import PERMITS, TRANSITIONS
from tests.documents.places import ROOT
from tests.documents.reference import table

WIDTH = 112


def contracts():
    """All contracts about imports."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def floor_contract():
    """The contract that orders the floors."""
    (found,) = (contract for contract in contracts() if contract["type"] == "layers")
    return found


def about(module):
    """The first sentence of a module or package of the gateway."""
    place = ROOT / "gateway" / module
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    said = ast.get_docstring(ast.parse(file.read_text()))
    return " ".join(said.partition("\n\n")[0].replace("``", "").split())


def pure():
    """Modules that must not do input or output."""
    (found,) = (contract for contract in contracts() if contract["name"].startswith("pure"))
    return {module.removeprefix("gateway.") for module in found["source_modules"]}


def floors():
    """Each floor with its modules, the highest first; a module knows only those below its line."""
    contract, quiet = floor_contract(), pure()
    rows = [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]
    width = max(len(name) for row in rows for name in row) + 5
    line = "+" + "-" * (WIDTH - 2) + "+"
    lines = [line]
    for row in [*rows]:
        for name in row:
            mark = "(P)" if name in quiet else ""
            told = textwrap.wrap(about(name), WIDTH - width - 8)
            lines += [
                f"| {name if at == 0 else '':<{width - 4}}{mark if at == 0 else '':<4}  {text:<{WIDTH - width - 6}} |"
                for at, text in enumerate(told)
            ]
        lines.append(line)
    beside = ", ".join(contract["exhaustive_ignores"])
    return "```text\n" + "\n".join(lines) + f"\n```\n\nBeside the floors: `{beside}`. {about(beside)}\n"


def turn():
    """The phases of an exchange and what moves it, as a diagram."""
    lines = [
        f"    {at.name} --> {to.name} : {signal.name.lower()}" for (at, signal), to in TRANSITIONS.items()
    ]
    first = next(iter(PERMITS)).name
    ends = [f"    {phase.name} --> [*]" for phase, permit in PERMITS.items() if permit.ended]
    return (
        "```mermaid\nstateDiagram-v2\n    direction LR\n"
        + "\n".join([f"    [*] --> {first}", *lines, *ends])
        + "\n```\n"
    )


def permits():
    """What each phase allows, and what may follow."""
    words = {True: "yes", False: "no", None: "if the upstream keeps sockets after errors"}
    return table(
        ["phase", "may be sent again", "events are passed on", "may become a parent", "socket can be used again", "next"],
        [
            [
                f"`{phase.name}`", words[permit.may_repeat], words[permit.may_relay], words[permit.may_commit],
                words[permit.socket_reusable],
                ", ".join(f"{s.name.lower()}: `{to.name}`" for (at, s), to in TRANSITIONS.items() if at is phase) or "-",
            ]
            for phase, permit in PERMITS.items()
        ],
    ) + "\n"  # fmt: skip
