"""``make docs``: writes what is made from the code. Tests hold every file to it."""

from __future__ import annotations

import sys

from gateway.cli.config import as_toml
from gateway.config import load
from tests.documents.parts import PARTS, filled
from tests.documents.reference import PLACE, SAMPLE, document

made = {PLACE: document(), SAMPLE: as_toml(load({}, {}))}
made |= {place: filled(place.read_text(), parts) for place, parts in PARTS.items()}
for place, text in made.items():
    place.write_text(text)
    sys.stdout.write(f"{place}\n")
