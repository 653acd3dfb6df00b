"""Whoever sees an error finds it in the README: every text and code that the gateway may answer with, word for word."""

import ast
import re

import pytest

from tests.documents.answers import HOLE, answers, modules
from tests.documents.places import README

ANSWERS = answers()


def table_under(heading):
    """The cells of the table under a heading."""
    _, _, rest = README.read_text().partition(f"\n### {heading}\n")
    lines = re.search(r"(?m)(?:^\|.*\n)+", rest)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def answered():
    """Each text of the first table, with the cell of its code and what to do; an empty cell repeats the one above."""
    found, above = {}, ""
    for code, texts, remedy in table_under("Errors that upwire itself answers"):
        above = code or above
        found |= dict.fromkeys(re.findall(r"`([^`]*)`", texts), (above, remedy))
    return found


def pattern(text):
    """What matches a text whose holes are filled."""
    return ".*".join(re.escape(part) for part in text.split(HOLE))


def test_there_is_something_to_find():
    """The source was read: errors of each of its corners are among those found."""
    codes = {answer.code for answer in ANSWERS}
    assert {
        "draining",
        "upstream_connection_lost",
        "too_many_watchers",
        "forbidden_…",
        "body_too_large",
    } <= codes
    assert len(ANSWERS) > 25
    assert all(answer.text.strip(HOLE) for answer in ANSWERS)


@pytest.mark.parametrize("answer", ANSWERS, ids=[f"{n}-{answer.code}" for n, answer in enumerate(ANSWERS)])
def test_an_answer_is_explained(answer):
    """A new error, or new words for an old one, needs its entry: text, code, status and what to do."""
    code, remedy = answered()[answer.text]
    spans = re.findall(r"`([^`]*)`", code)
    assert any(re.fullmatch(pattern(answer.code), span) for span in spans) or (
        not answer.code and "none" in code
    )
    assert not answer.status or str(answer.status) in code
    assert len(remedy) > 10


def test_no_entry_is_out_of_date():
    """Every text of the table is one that may be answered."""
    assert set(answered()) == {answer.text for answer in ANSWERS}


def said():
    """Every text in the source, with holes where something is filled in."""
    for tree in modules().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                yield "".join(v.value if isinstance(v, ast.Constant) else HOLE for v in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_commands_say_what_is_explained():
    """Each text of the second table is in the source, word for word."""
    spans = [s for texts, _ in table_under("What commands say") for s in re.findall(r"`([^`]*)`", texts)]
    source = list(said())
    assert len(spans) >= 8
    assert [s for s in spans if not any(re.search(pattern(s), text) for text in source)] == []
