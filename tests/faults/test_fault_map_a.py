"""The table of reported faults says what is there."""

import ast
from pathlib import Path

from tests.faults.fault_map_a import SHOWN_BY

REPORTED = [
    "01",
    "02",
    "05",
    "07",
    "08",
    "09",
    "10",
    "12",
    "13",
    "14",
    "16",
    "17",
    "18",
    "19",
    "20",
    "21",
    "22",
    "24",
]


def existing_tests():
    """The names of all test functions beside this file."""
    trees = [ast.parse(path.read_text()) for path in sorted(Path(__file__).parent.glob("test_faults_b*.py"))]
    functions = (node for tree in trees for node in tree.body)
    return [node.name for node in functions if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)]


def test_every_reported_fault_of_the_range_is_shown():
    """Each number has its tests, and no number is listed that was not reported."""
    assert sorted(SHOWN_BY) == ["B" + number for number in REPORTED]
    assert all(SHOWN_BY.values())


def test_the_table_names_exactly_the_tests_that_exist():
    """Every test named is there once, under its own number, and every test of the range is named."""
    named = [name for names in SHOWN_BY.values() for name in names]
    assert all(
        name.startswith(f"test_{number.lower()}_") for number, names in SHOWN_BY.items() for name in names
    )
    existing = [
        name for name in existing_tests() if name[:8] in {f"test_{number.lower()}" for number in SHOWN_BY}
    ]
    assert sorted(named) == sorted(existing)
    assert len(set(existing)) == len(existing)
