"""The reference in config/ is what the code says."""

import re

from tests.documents.reference import PLACE, document


def test_the_reference_is_what_the_code_says():
    """After a change of settings, fields, metrics or reasons: ``make docs``."""
    assert PLACE.read_text() == document()


def test_its_links_lead_somewhere():
    """Every link of the overview is a heading, as GitHub makes anchors of them."""
    text = document()
    headings = {
        re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"(?m)^## (.*)$", text)
    }
    assert set(re.findall(r"\(#([^)]*)\)", text)) == headings


def test_tables_are_whole():
    """Every line of a table has as many cells as its head."""
    for block in re.findall(r"(?m)(?:^\|.*\n)+", document()):
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(counts) == 1
