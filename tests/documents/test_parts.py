"""The parts of documents that are made from the code are what the code says; and the diagrams show all of it."""

import re
import tomllib

import pytest

from gateway.protocol.phases import PERMITS, TRANSITIONS, Phase
from tests.documents import architecture, speed
from tests.documents.parts import PARTS, filled, part
from tests.documents.places import INSIDE, ROOT


@pytest.mark.parametrize(
    ("place", "parts"), PARTS.items(), ids=[f"{place.parent.name}/{place.name}" for place in PARTS]
)
def test_what_is_made_from_the_code_is_what_it_says(place, parts):
    """After a change of recipes, floors, phases or recorded loops: ``make docs``."""
    text = place.read_text()
    assert filled(text, parts) == text


def test_every_marker_is_of_a_part():
    """No text stands between markers that nothing fills."""
    for place, parts in PARTS.items():
        assert set(re.findall(r"(?m)^<!-- /?([a-z]+) -->$", place.read_text())) == set(parts)


def test_the_floors_show_every_module():
    """Each module of the contract stands on its floor, in its order, with what it is for."""
    shown = re.findall(r"(?m)^\| (\w+) ", part(INSIDE.read_text(), "floors"))
    layers = architecture.floor_contract()["layers"]
    assert shown == [name.strip() for layer in layers for name in layer.split("|")]
    there = {
        p.stem for p in (ROOT / "gateway").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()
    }
    assert there - {"__init__"} == {*shown, *architecture.floor_contract()["exhaustive_ignores"]}


def test_the_diagram_of_a_turn_shows_every_transition():
    """One arrow for each entry of the table, one end for each phase that ends."""
    text = part(INSIDE.read_text(), "turn")
    arrows = set(re.findall(r"(?m)^    (\w+) --> (\w+) : (\w+)$", text))
    assert arrows == {(at.name, to.name, signal.name.lower()) for (at, signal), to in TRANSITIONS.items()}
    assert set(re.findall(r"(?m)^    (\w+) --> \[\*\]$", text)) == {p.name for p in Phase if PERMITS[p].ended}


def test_the_speed_is_what_was_recorded():
    """Every session and every set of conditions is in the table, and what was recorded used all turns that it names."""
    found = speed.measured()
    text = speed.speed()
    assert len(found["loops"]) == 4
    for loop in found["loops"]:
        for row in loop["rows"]:
            assert f"{row['took']:.2f}" in text
            assert sum(row["modes"].values()) >= 6


def test_versions_in_the_documents():
    """The Python that the README asks for is the one of the package."""
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert f"Python {needs.removeprefix('>=')} or newer" in (ROOT / "README.md").read_text()
