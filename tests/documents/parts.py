"""The parts of documents that are made from the code: each between ``<!-- NAME -->`` and ``<!-- /NAME -->``."""

from __future__ import annotations

import re

from gateway.cli.recipes import markdown_table
from tests.documents import architecture, speed
from tests.documents.places import INSIDE, README

PARTS = {
    README: {"clients": markdown_table, "speed": speed.speed},
    INSIDE: {"floors": architecture.floors, "turn": architecture.turn, "permits": architecture.permits},
}


def part(text, name):
    """What stands between the markers of that name; ValueError unless they are there once."""
    (found,) = re.findall(rf"(?ms)^<!-- {name} -->\n(.*?)^<!-- /{name} -->$", text)
    return found


def filled(text, parts):
    """The text with each part made anew."""
    for name, make in parts.items():
        old, new = (f"<!-- {name} -->\n{body}<!-- /{name} -->" for body in (part(text, name), make()))
        text = text.replace(old, new)
    return text
